/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ftw.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_main.h"
#include "checked_fork.h"
#include "clock.h"
#include "waiting.h"

/*
 * DESIGN
 *
 * redis-server takes no port 0, so a port is taken from the kernel, closed again and given to it; another process may get in
 * between, then it ends and the next port is tried.
 *
 * Servers are killed with their parent (PR_SET_PDEATHSIG), so that a test that fails leaves none. The folder is removed when
 * the program ends.
 *
 * Threads: the test's.
 */

static char home[64];
static pid_t home_owner;

/* ---- the folder ---- */

static int
remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void
remove_home(void)
{
	if (getpid() == home_owner)
		(void)nftw(home, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static bool
has_server(void)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		if (!freopen("/dev/null", "w", stdout))
			_exit(127);
		(void)execlp("redis-server", "redis-server", "--version", (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int
redis_rig_main(Suite *suite)
{
	if (!has_server()) {
		(void)puts("1..0 # SKIP redis-server is not installed");
		return EXIT_SUCCESS;
	}
	(void)snprintf(home, sizeof(home), "/tmp/kvscout-redis-XXXXXX");
	home_owner = getpid();
	if (!mkdtemp(home) || atexit(remove_home) != 0) {
		perror(home);
		return EXIT_FAILURE;
	}
	return run_suite(suite);
}

/* ---- processes ---- */

static int
listen_anywhere(uint16_t *ret_port)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(listen(fd, 64), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
	*ret_port = ntohs(addr.sin_port);
	return fd;
}

uint16_t
redis_deaf_listener(int *ret_fd)
{
	uint16_t port;

	*ret_fd = listen_anywhere(&port);
	return port;
}

static void
write_config(const struct redis_server *s, uint16_t bus_port, const char *path)
{
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	(void)fprintf(file, "port %u\nbind 127.0.0.1\ndir %s\nlogfile %s/log\nsave \"\"\nappendonly no\ndaemonize no\n",
		      s->port, s->folder, s->folder);
	if (s->cluster)
		(void)fprintf(file,
			      "cluster-enabled yes\ncluster-port %u\ncluster-config-file nodes.conf\n"
			      "cluster-node-timeout 2000\ncluster-require-full-coverage no\n",
			      bus_port);
	for (int i = 0; i < 4 && s->extra[i][0]; i += 2)
		(void)fprintf(file, "%s \"%s\"\n", s->extra[i], s->extra[i + 1]);
	ck_assert_int_eq(fclose(file), 0);
}

static void
forget_control(struct redis_server *s)
{
	if (s->control)
		redisFree(s->control);
	s->control = NULL;
}

/* Whether it answers; false if it has ended. */
static bool
wait_until_up(struct redis_server *s)
{
	uint64_t deadline_us = wait_begin();

	for (;;) {
		struct timeval timeout = {.tv_sec = 10};
		redisReply *reply;
		bool up;

		if (waitpid(s->pid, NULL, WNOHANG) == s->pid)
			return false;
		ck_assert_msg(scout__now_us() < deadline_us, "redis-server does not answer; see %s/log", s->folder);
		s->control = redisConnectWithTimeout("127.0.0.1", s->port, timeout);
		ck_assert_ptr_nonnull(s->control);
		if (s->control->err || redisSetTimeout(s->control, timeout) != REDIS_OK) {
			forget_control(s);
			(void)poll(NULL, 0, 5);
			continue;
		}
		if (s->password)
			freeReplyObject(redisCommand(s->control, "AUTH %s", s->password));
		reply = redisCommand(s->control, "PING");
		up = reply && reply->type == REDIS_REPLY_STATUS;
		freeReplyObject(reply);
		if (up)
			return true;
		forget_control(s);
	}
}

static bool
launch(struct redis_server *s)
{
	uint16_t bus_port = 0;
	pid_t parent = getpid();
	char config[128];

	if (s->cluster)
		(void)close(listen_anywhere(&bus_port));
	(void)snprintf(config, sizeof(config), "%s/redis.conf", s->folder);
	write_config(s, bus_port, config);
	s->pid = checked_fork();
	if (s->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			(void)execlp("redis-server", "redis-server", config, (char *)NULL);
		_exit(127);
	}
	if (wait_until_up(s))
		return true;
	s->pid = 0;
	return false;
}

void
redis_start(struct redis_server *s, const char *const *extra)
{
	for (int i = 0; extra && extra[i]; i++) {
		ck_assert_int_lt(i, 4);
		(void)snprintf(s->extra[i], sizeof(s->extra[i]), "%s", extra[i]);
	}
	(void)snprintf(s->folder, sizeof(s->folder), "%s/server-XXXXXX", home);
	ck_assert_ptr_nonnull(mkdtemp(s->folder));
	for (int attempt = 0; attempt < 5; attempt++) {
		(void)close(listen_anywhere(&s->port));
		if (launch(s))
			return;
	}
	ck_abort_msg("redis-server does not start; see %s/log", s->folder);
}

void
redis_kill(struct redis_server *s)
{
	forget_control(s);
	if (!s->pid)
		return;
	ck_assert_int_eq(kill(s->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(s->pid, NULL, 0), s->pid);
	s->pid = 0;
}

void
redis_restart(struct redis_server *s)
{
	redis_kill(s);
	ck_assert_msg(launch(s), "redis-server does not start again; see %s/log", s->folder);
}

void
redis_freeze(struct redis_server *s)
{
	ck_assert_int_eq(kill(s->pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(s->pid, NULL, WUNTRACED), s->pid);
}

void
redis_thaw(struct redis_server *s)
{
	ck_assert_int_eq(kill(s->pid, SIGCONT), 0);
}

/* ---- commands ---- */

static redisReply *
do_args(struct redis_server *s, const char *format, va_list args)
{
	redisReply *reply = redisvCommand(s->control, format, args);

	ck_assert_msg(reply != NULL, "%s: no answer: %s", format, s->control->errstr);
	ck_assert_msg(reply->type != REDIS_REPLY_ERROR, "%s: %s", format, reply->str);
	return reply;
}

redisReply *
redis_do(struct redis_server *s, const char *format, ...)
{
	redisReply *reply;
	va_list args;

	va_start(args, format);
	reply = do_args(s, format, args);
	va_end(args);
	return reply;
}

void
redis_ok(struct redis_server *s, const char *format, ...)
{
	redisReply *reply;
	va_list args;

	va_start(args, format);
	reply = do_args(s, format, args);
	va_end(args);
	ck_assert_int_eq(reply->type, REDIS_REPLY_STATUS);
	freeReplyObject(reply);
}

long long
redis_number(struct redis_server *s, const char *format, ...)
{
	redisReply *reply;
	long long number;
	va_list args;

	va_start(args, format);
	reply = do_args(s, format, args);
	va_end(args);
	ck_assert_int_eq(reply->type, REDIS_REPLY_INTEGER);
	number = reply->integer;
	freeReplyObject(reply);
	return number;
}

void
redis_set(struct redis_server *s, const char *key, const void *value, size_t len)
{
	const char *argv[] = {"SET", key, value};
	const size_t lens[] = {3, strlen(key), len};
	redisReply *reply = redisCommandArgv(s->control, 3, argv, lens);

	ck_assert(reply && reply->type == REDIS_REPLY_STATUS);
	freeReplyObject(reply);
}

/* ---- clusters ---- */

static void
node_id(struct redis_server *s, char ret_id[41])
{
	redisReply *reply = redis_do(s, "CLUSTER MYID");

	ck_assert_int_eq((int)reply->len, 40);
	memcpy(ret_id, reply->str, 41);
	freeReplyObject(reply);
}

static bool
is_formed(struct redis_server *s)
{
	redisReply *reply = redis_do(s, "CLUSTER INFO");
	bool formed = strstr(reply->str, "cluster_state:ok") && strstr(reply->str, "cluster_known_nodes:3") &&
		      strstr(reply->str, "cluster_slots_ok:16384");

	freeReplyObject(reply);
	return formed;
}

static uint16_t
bus_port_of(struct redis_server *s)
{
	redisReply *reply = redis_do(s, "CONFIG GET cluster-port");
	long port;

	ck_assert_int_eq((int)reply->elements, 2);
	port = strtol(reply->element[1]->str, NULL, 10);
	freeReplyObject(reply);
	return (uint16_t)port;
}

void
redis_cluster_start(struct redis_cluster *c)
{
	for (uint32_t i = 0; i < REDIS_NODES; i++) {
		c->nodes[i].cluster = true;
		redis_start(&c->nodes[i], NULL);
		redis_ok(&c->nodes[i], "CLUSTER ADDSLOTSRANGE %u %u", i * 16384 / REDIS_NODES,
			 (i + 1) * 16384 / REDIS_NODES - 1);
		redis_ok(&c->nodes[i], "CLUSTER SET-CONFIG-EPOCH %u", i + 1);
	}
	/* Each two of them, so that none has to hear of another one by gossip, once a second. */
	for (uint32_t i = 1; i < REDIS_NODES; i++)
		for (uint32_t j = 0; j < i; j++)
			redis_ok(&c->nodes[j], "CLUSTER MEET 127.0.0.1 %u %u", c->nodes[i].port,
				 bus_port_of(&c->nodes[i]));
	for (uint32_t i = 0; i < REDIS_NODES; i++) {
		wait_until(is_formed(&c->nodes[i]))
			;
	}
}

void
redis_cluster_kill(struct redis_cluster *c)
{
	for (uint32_t i = 0; i < REDIS_NODES; i++)
		redis_kill(&c->nodes[i]);
}

uint16_t
redis_cluster_slot(struct redis_cluster *c, const char *key)
{
	return (uint16_t)redis_number(&c->nodes[0], "CLUSTER KEYSLOT %s", key);
}

uint32_t
redis_cluster_owner(struct redis_cluster *c, uint16_t slot)
{
	redisReply *reply = redis_do(&c->nodes[0], "CLUSTER SLOTS");
	uint32_t owner = REDIS_NODES;

	for (size_t i = 0; i < reply->elements; i++) {
		const redisReply *range = reply->element[i];

		if (slot < range->element[0]->integer || slot > range->element[1]->integer)
			continue;
		for (uint32_t n = 0; n < REDIS_NODES; n++)
			if (range->element[2]->element[1]->integer == c->nodes[n].port)
				owner = n;
	}
	freeReplyObject(reply);
	ck_assert_uint_lt(owner, REDIS_NODES);
	return owner;
}

void
redis_cluster_open_move(struct redis_cluster *c, uint16_t slot, uint32_t from, uint32_t to)
{
	char from_id[41], to_id[41];

	node_id(&c->nodes[from], from_id);
	node_id(&c->nodes[to], to_id);
	redis_ok(&c->nodes[to], "CLUSTER SETSLOT %u IMPORTING %s", slot, from_id);
	redis_ok(&c->nodes[from], "CLUSTER SETSLOT %u MIGRATING %s", slot, to_id);
}

void
redis_cluster_migrate(struct redis_cluster *c, uint16_t slot, uint32_t from, uint32_t to)
{
	redisReply *keys = redis_do(&c->nodes[from], "CLUSTER GETKEYSINSLOT %u 1000", slot);

	for (size_t i = 0; i < keys->elements; i++)
		redis_ok(&c->nodes[from], "MIGRATE 127.0.0.1 %u %s 0 10000", c->nodes[to].port, keys->element[i]->str);
	freeReplyObject(keys);
}

void
redis_cluster_close_move(struct redis_cluster *c, uint16_t slot, uint32_t to)
{
	char id[41];

	node_id(&c->nodes[to], id);
	redis_ok(&c->nodes[to], "CLUSTER SETSLOT %u NODE %s", slot, id);
	for (uint32_t i = 0; i < REDIS_NODES; i++)
		if (i != to)
			redis_ok(&c->nodes[i], "CLUSTER SETSLOT %u NODE %s", slot, id);
}
