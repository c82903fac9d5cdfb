/* SPDX-License-Identifier: Apache-2.0 */
#include "rights.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "secret.h"
#include "server_core.h"
#include "transport.h"

/*
 * DESIGN
 *
 * Who may do what: the rules of docs/security.md ("Rights"), for Unix sockets and for CURVE keys.
 *
 * Each message carries the key and the uid of its connection, as properties of libzmq: "User-Id", from our ZAP reply, and
 * "Peer-Address". (Its descriptor could be another connection's by now.) What comes through a channel is its peer's.
 *
 * The file is read outside of the loop, into a text with "\nKEY o" or "\nKEY e NAMESPACE..." for each line, which the loop
 * takes as a whole. A peer is judged at HELLO, and at its first operation after the text was replaced (peer.judged).
 */

/* So the kernel names each user whom our user namespace does not have; a socket of a group may let some of them in. */
#define OVERFLOW_UID 65534u
#define MAX_BYTES (1 << 20) /* of the file: the loop searches it in some 50 us */

/* Append what @line says to *out, in fewer bytes than @line has. False: it is wrong. */
static bool
add_line(char **out, const char *line)
{
	char key[SCOUT__CURVE_KEY + 2] = "", right[10] = "", name[SCOUT_MAX_NAME + 1];
	int len = 0, n = 0;

	(void)sscanf(line, " %41s %9s%n", key, right, &len);
	/* Z85 has '#', too: a line that does not begin as a key does is a comment. */
	if (!*key || (*key == '#' && strlen(key) != SCOUT__CURVE_KEY))
		return true;
	if (!scout__curve_is_key(key) || (strcmp(right, "engine") != 0 && strcmp(right, "operator") != 0))
		return false;
	*out += sprintf(*out, "\n%s %c", key, *right);
	for (line += len; sscanf(line, " %255s%n", name, &len) == 1 && *name != '#'; line += len, n++)
		*out += sprintf(*out, " %s", name);
	return *right == 'e' || n == 0;
}

int
scout__rights_read(const char *path, char **ret_rights, char *err, size_t err_len)
{
	int fd = scout__regular_open("curve_rights_file", path, SCOUT_ERR_FORMAT, err, err_len);
	char *text = fd < 0 ? NULL : calloc(1, MAX_BYTES + 2), *out = text, *at = text ? text + 1 : NULL;
	ssize_t len = text ? read(fd, at, MAX_BYTES) : -1;
	bool good = len >= 0 && len < MAX_BYTES && strlen(at) == (size_t)len;
	unsigned n = 0;

	if (fd < 0)
		return fd;
	(void)close(fd); /* read only: nothing is lost */
	for (; good && at; n++)
		good = add_line(&out, strsep(&at, "\n"));
	if (good) {
		*ret_rights = text;
		return 0;
	}
	free(text);
	return scout__fail(
		err, err_len, SCOUT_ERR_FORMAT,
		"curve_rights_file %s, line %u: must be `KEY engine NAMESPACE...` or `KEY operator`, of text, and all less "
		"than 1 MiB",
		path, n);
}

const char *
scout__rights_line(const char *rights, const char *key)
{
	char line[SCOUT__CURVE_KEY + 3];

	(void)snprintf(line, sizeof(line), "\n%s ", key);
	rights = rights ? strstr(rights, line) : NULL;
	return rights ? rights + strlen(line) : NULL;
}

enum scout__right
scout__right_of(const struct scout_server *s, const struct scout__sender *sender, const struct scout__str *name)
{
	const char *key = sender->who + strlen("key "), *at = s->transport->rights;
	enum scout__right right =
		*sender->who == 'k' && scout__rights_line(at, key) ? SCOUT__RIGHT_NONE : sender->right;

	while (*sender->who == 'k' && (at = scout__rights_line(at, key)) != NULL) {
		if (*at == 'o')
			return sender->right;
		right = name ? right : SCOUT__RIGHT_ENGINE;
		for (size_t n; *++at == ' ' && name; at += n) {
			n = strcspn(at + 1, " \n");
			if (at[n] == '*' ? name->len >= n - 1 && memcmp(name->p, at + 1, n - 1) == 0
					 : name->len == n && memcmp(name->p, at + 1, n) == 0)
				right = SCOUT__RIGHT_ENGINE;
		}
	}
	return right;
}

struct scout__sender
scout__sender_of(const struct scout_server *s, zmq_msg_t *msg)
{
	const char *address = s->transport->paths.socket ? zmq_msg_gets(msg, "Peer-Address") : NULL;
	const char *uid = address ? strchr(address, ':') : NULL; /* "localhost:UID:GID:PID" */
	const char *key = s->transport->zap ? zmq_msg_gets(msg, "User-Id") : NULL;
	struct scout__sender sender = {.right = SCOUT__RIGHT_OPERATOR};

	if (uid) {
		(void)snprintf(sender.who, sizeof(sender.who), "uid %.*s", (int)strcspn(uid + 1, ":"), uid + 1);
		sender.right = scout__right_of_uid(s, (uid_t)strtoul(uid + 1, NULL, 10));
	}
	if (key && (!uid || sender.right == SCOUT__RIGHT_ENGINE))
		(void)snprintf(sender.who, sizeof(sender.who), "key %s", key);
	return sender;
}

enum scout__right
scout__right_of_uid(const struct scout_server *s, uid_t uid)
{
	if ((uid == geteuid() && !(uid == OVERFLOW_UID && s->cfg.socket_group)) || uid == 0)
		return SCOUT__RIGHT_OPERATOR;
	return s->cfg.socket_group ? SCOUT__RIGHT_ENGINE : SCOUT__RIGHT_NONE;
}

int
scout__unix_admit(const struct scout_server *s, const char *path, mode_t own, mode_t group, char *err, size_t err_len)
{
	const char *name = s->cfg.socket_group;
	const struct group *found = name ? getgrnam(name) : NULL; // NOLINT(concurrency-mt-unsafe): at the start
	char *end = NULL;
	gid_t id = found ? found->gr_gid : name ? (gid_t)strtoul(name, &end, 10) : (gid_t)-1;

	if (end && *end)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "socket_group = \"%s\": must be a group of this machine, or its number", name);
	if (chown(path, (uid_t)-1, id) == 0 && chmod(path, name ? own | group : own) == 0)
		return 0;
	return scout__fail(err, err_len, SCOUT_ERR_PERMISSION, "%s cannot be given to its users (%s)%s", path,
			   scout__errno_text(errno), name ? ": is this process in socket_group?" : "");
}
