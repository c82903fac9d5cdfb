/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "checked_fork.h"
#include "fault_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* The private folders of killed servers: the next start removes them, and nothing else. */

#define DEAD 12u
#define AT_ONCE 6u

static char base[96];

struct server {
	pid_t pid;
	int out;
};

static void
setup(void)
{
	static unsigned n;

	(void)snprintf(base, sizeof(base), "%s/%d-%u", fault_home(), (int)getpid(), n++);
	ck_assert_int_eq(mkdir(base, 0700), 0);
	ck_assert_int_eq(setenv("XDG_RUNTIME_DIR", base, 1), 0);
}

/* kvscoutd on a port that the kernel chooses; its lease connections have a private folder under base. */
static struct server
start(void)
{
	char *argv[] = {
		(char *)(uintptr_t)fault_kvscoutd(), (char *)(uintptr_t) "--l1_bytes",        (char *)(uintptr_t) "1M",
		(char *)(uintptr_t) "--listen",      (char *)(uintptr_t) "tcp://127.0.0.1:*", NULL};
	pid_t parent = getpid();
	struct server server;
	int out[2];

	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	server.pid = checked_fork();
	if (server.pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent || dup2(out[1], STDOUT_FILENO) < 0)
			_exit(127);
		(void)execv(argv[0], argv);
		_exit(127);
	}
	(void)close(out[1]);
	server.out = out[0];
	return server;
}

static void
wait_ready(struct server *server)
{
	struct pollfd ready = {.fd = server->out, .events = POLLIN};
	char text[256] = "";

	ck_assert_int_eq(poll(&ready, 1, wait_limit_ms()), 1);
	ck_assert_int_gt(read(server->out, text, sizeof(text) - 1), 0);
	ck_assert_ptr_eq(strstr(text, "kvscoutd: ready on "), text);
}

static struct server
start_ready(void)
{
	struct server server = start();

	wait_ready(&server);
	return server;
}

static void
end(struct server *server, int signal_number)
{
	int status;

	ck_assert_int_eq(kill(server->pid, signal_number), 0);
	ck_assert_int_eq(waitpid(server->pid, &status, 0), server->pid);
	ck_assert(signal_number == SIGKILL ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
	(void)close(server->out);
}

static unsigned
count_entries(void)
{
	DIR *dir = opendir(base);
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n - 2;
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(the_next_start_removes_what_killed_servers_left)
{
	struct server dead[3], alive = start_ready(), next;

	for (unsigned i = 0; i < 3; i++)
		dead[i] = start_ready();
	ck_assert_uint_eq(count_entries(), 4);
	for (unsigned i = 0; i < 3; i++)
		end(&dead[i], SIGKILL);
	ck_assert_uint_eq(count_entries(), 4);
	next = start_ready();
	/* Its own, and that of the one that lives. */
	ck_assert_uint_eq(count_entries(), 2);
	end(&next, SIGTERM);
	ck_assert_uint_eq(count_entries(), 1);
	end(&alive, SIGTERM);
	ck_assert_uint_eq(count_entries(), 0);
}
END_TEST

START_TEST(many_starts_at_once_remove_the_dead_and_spare_each_other)
{
	struct server server[DEAD];

	for (unsigned i = 0; i < DEAD; i++)
		server[i] = start_ready();
	for (unsigned i = 0; i < DEAD; i++)
		end(&server[i], SIGKILL);
	for (unsigned i = 0; i < AT_ONCE; i++)
		server[i] = start();
	for (unsigned i = 0; i < AT_ONCE; i++)
		wait_ready(&server[i]);
	ck_assert_uint_eq(count_entries(), AT_ONCE);
	for (unsigned i = 0; i < AT_ONCE; i++)
		end(&server[i], SIGTERM);
	ck_assert_uint_eq(count_entries(), 0);
}
END_TEST

static void
make_file(const char *folder, const char *name, const char *text)
{
	char path[256];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s/%s", base, folder, name);
	fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
}

static void
make_folder(const char *name, mode_t mode)
{
	char path[192];

	(void)snprintf(path, sizeof(path), "%s/%s", base, name);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
}

/* As a killed server leaves it; the pid is of a process that is dead, or another one by now. */
static void
make_left_over(const char *name, mode_t mode)
{
	make_folder(name, mode);
	make_file(name, "kvscout.sock.lock", "1\n");
}

static bool
exists(const char *path)
{
	char whole[256];
	struct stat st;

	(void)snprintf(whole, sizeof(whole), "%s/%s", base, path);
	return lstat(whole, &st) == 0;
}

START_TEST(what_is_not_a_dead_servers_stays_as_it_is)
{
	char link[192], target[192];
	struct server server;

	make_left_over("kvscout-dead00", 0700);
	/* Something else in it; others may use it; another name. */
	make_left_over("kvscout-more00", 0700);
	make_file("kvscout-more00", "notes.txt", "mine");
	make_left_over("kvscout-mode00", 0755);
	make_left_over("kvscout-longer-name", 0700);
	/* One that is just being made: no lock yet, or no pid in it. */
	make_folder("kvscout-new000", 0700);
	make_folder("kvscout-empty0", 0700);
	make_file("kvscout-empty0", "kvscout.sock.lock", "");
	/* A file under the name of the socket; a lock that is a link; a link to a folder. */
	make_left_over("kvscout-file00", 0700);
	make_file("kvscout-file00", "kvscout.sock", "mine");
	make_folder("kvscout-lock00", 0700);
	make_left_over("elsewhere", 0700);
	(void)snprintf(link, sizeof(link), "%s/kvscout-lock00/kvscout.sock.lock", base);
	ck_assert_int_eq(symlink("../elsewhere/kvscout.sock.lock", link), 0);
	(void)snprintf(link, sizeof(link), "%s/kvscout-link00", base);
	(void)snprintf(target, sizeof(target), "%s/elsewhere", base);
	ck_assert_int_eq(symlink(target, link), 0);
	server = start_ready();
	ck_assert(!exists("kvscout-dead00"));
	ck_assert(exists("kvscout-more00/notes.txt") && exists("kvscout-more00/kvscout.sock.lock"));
	ck_assert(exists("kvscout-mode00/kvscout.sock.lock"));
	ck_assert(exists("kvscout-longer-name/kvscout.sock.lock"));
	ck_assert(exists("kvscout-new000"));
	ck_assert(exists("kvscout-empty0/kvscout.sock.lock"));
	ck_assert(exists("kvscout-file00/kvscout.sock"));
	ck_assert(exists("kvscout-lock00/kvscout.sock.lock"));
	ck_assert(exists("kvscout-link00"));
	ck_assert(exists("elsewhere/kvscout.sock.lock"));
	end(&server, SIGTERM);
}
END_TEST
