/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * A library starts a process in a program that is not its own. So posix_spawn(), never fork(): the child runs nothing of
 * the host (no pthread_atfork() handler, no copy of its memory), and the caller's thread goes on as soon as the program is
 * loaded. posix_spawn() removes what it can of the host's state (signal mask and dispositions, standard streams, the
 * session and its terminal). kvscoutd removes the rest at the start of its main(): other descriptors, working directory,
 * umask, CPUs, scheduling policy, and by a second fork the host as its parent (libserver/daemon/instance_server.c).
 *
 * What stays: the user, the environment, resource limits, the niceness, and the cgroup. A library cannot choose a better
 * cgroup: the server lives and dies with the cgroup of the process that started it (docs/operations.md).
 *
 * Rejected: a double fork here. Between fork() and exec() in a threaded program only async-signal-safe calls are
 * legal, the handlers of other libraries run, and a process with a GPU context copies page tables for it.
 *
 * Threads: any; no state.
 */
#include "instance_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "instance_record.h"
#include "log.h"
#include "mask.h"

#define KEYS_MAX 64u

extern char **environ;

static bool
is_key_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* The next word of *at, *ret_len bytes long; NULL: there is none. */
static const char *
next_word(const char **at, size_t *ret_len)
{
	const char *begin = *at + strspn(*at, " \t\n");

	*ret_len = strcspn(begin, " \t\n");
	*at = begin + *ret_len;
	return *ret_len ? begin : NULL;
}

static bool
is_reserved(const char *key, size_t len)
{
	/* Keys that the instance sets itself, and keys with which kvscoutd would not serve. */
	static const char *const reserved[] = {"listen", "instance", "status", "curve-keygen", "help", "version"};

	for (size_t i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
		if (strlen(reserved[i]) == len && memcmp(reserved[i], key, len) == 0)
			return true;
	return false;
}

int
scout__server_keys_check(const char *keys, char *err, size_t err_len)
{
	const char *at = keys, *one;
	size_t len;
	unsigned n = 0;

	if (strlen(keys) > SCOUT__SERVER_KEYS_MAX)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "server_keys: at most %u bytes",
				   SCOUT__SERVER_KEYS_MAX);
	while ((one = next_word(&at, &len))) {
		size_t key = 0;

		while (key < len && is_key_char(one[key]))
			key++;
		if (key == 0 || key == len || one[key] != '=') {
			char word[SCOUT__SERVER_KEYS_MAX + SCOUT__MASK_ROOM], shown[sizeof(word)];

			(void)snprintf(word, sizeof(word), "%.*s", (int)len, one);
			scout__mask(word, shown, sizeof(shown));
			return scout__fail(err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
					   "server_keys: \"%s\" is not KEY=VALUE; separate them by blanks", shown);
		}
		if (is_reserved(one, key))
			return scout__fail(
				err, err_len, SCOUT_ERR_CONFIG_KEY,
				"server_keys: \"%.*s\" cannot be given to a server that endpoint=auto starts", (int)key,
				one);
		if (++n > KEYS_MAX)
			return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "server_keys: at most %u keys",
					   KEYS_MAX);
	}
	return 0;
}

/* The command line, one allocation with its text; NULL: out of memory. */
static char **
command_line(const struct scout__instance *instance, const char *program, const char *keys)
{
	const char *const first[] = {program, "--instance", instance->folder};
	const size_t n_first = sizeof(first) / sizeof(first[0]);
	/* Each key gets two dashes and a terminator. */
	size_t text = strlen(keys) + (size_t)3 * KEYS_MAX, n = 0, len;
	char **argv, *to;
	const char *one;

	for (size_t i = 0; i < n_first; i++)
		text += strlen(first[i]) + 1;
	argv = calloc(1, (KEYS_MAX + n_first + 1) * sizeof(*argv) + text);
	if (!argv)
		return NULL;
	to = (char *)(argv + KEYS_MAX + n_first + 1);
	for (; n < n_first; n++) {
		argv[n] = to;
		to += sprintf(to, "%s", first[n]) + 1;
	}
	for (; (one = next_word(&keys, &len)) && n < KEYS_MAX + n_first; n++) {
		argv[n] = to;
		to += sprintf(to, "--%.*s", (int)len, one) + 1;
	}
	return argv;
}

static int
set_actions(posix_spawn_file_actions_t *actions, const struct scout__instance *instance, int lock_fd)
{
	int rc = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);

	if (rc == 0)
		rc = posix_spawn_file_actions_addopen(actions, STDERR_FILENO, instance->log,
						      O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
	if (rc == 0)
		rc = posix_spawn_file_actions_adddup2(actions, STDERR_FILENO, STDOUT_FILENO);
	if (rc == 0)
		rc = posix_spawn_file_actions_adddup2(actions, lock_fd, SCOUT__INSTANCE_LOCK_FD);
	return rc;
}

static int
set_attributes(posix_spawnattr_t *attr)
{
	sigset_t none, all;
	int rc;

	(void)sigemptyset(&none);
	(void)sigfillset(&all);
	rc = posix_spawnattr_setsigmask(attr, &none);
	if (rc == 0)
		rc = posix_spawnattr_setsigdefault(attr, &all);
	if (rc == 0)
		rc = posix_spawnattr_setflags(attr,
					      POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
	return rc;
}

int
scout__spawn_server(const struct scout__instance *instance, const char *program, const char *keys, int lock_fd,
		    pid_t *ret_pid, char *err, size_t err_len)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	char **argv = command_line(instance, program, keys ? keys : "");
	int rc;

	if (!argv)
		return scout__fail_no_memory(err, err_len);
	rc = posix_spawn_file_actions_init(&actions);
	if (rc)
		goto out_free;
	rc = posix_spawnattr_init(&attr);
	if (rc)
		goto out_actions;
	rc = set_actions(&actions, instance, lock_fd);
	if (rc == 0)
		rc = set_attributes(&attr);
	if (rc == 0)
		rc = posix_spawn(ret_pid, program, &actions, &attr, argv, environ);
	(void)posix_spawnattr_destroy(&attr);
out_actions:
	(void)posix_spawn_file_actions_destroy(&actions);
out_free:
	free(argv);
	if (rc)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "%s cannot be started (%s); its log is %s", program,
				   scout__errno_text(rc), instance->log);
	return 0;
}
