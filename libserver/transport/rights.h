/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>
#include <zmq.h>

#include "curve.h"
#include "thread.h"

struct scout_server;
struct scout__str;

/* Who may do what (rights.c). In order: nothing; an engine's operations, in its namespaces; everything. */
enum scout__right {
	SCOUT__RIGHT_NONE,
	SCOUT__RIGHT_ENGINE,
	SCOUT__RIGHT_OPERATOR
};

/* Who is at the other end of a connection. */
struct scout__sender {
	enum scout__right right;            /* a key may have less */
	char who[4 + SCOUT__CURVE_KEY + 1]; /* "key KEY", or of a Unix socket "uid UID" */
};

/* Read curve_rights_file. Any thread. Returns 0 and *ret_rights (malloc), or SCOUT_ERR_* and a sentence in @err. */
int scout__rights_read(const char *path, char **ret_rights, char *err, size_t err_len);
/* What the first line of @key says; NULL: it has none. @rights: NULL, or *ret_rights. */
const char *scout__rights_line(const char *rights, const char *key);
/* Whose frame @msg is, which came through the ROUTER. */
SCOUT_ON_LOOP struct scout__sender scout__sender_of(const struct scout_server *s, zmq_msg_t *msg);
/* What @sender may do in @name_space; NULL: in any. */
SCOUT_ON_LOOP enum scout__right scout__right_of(const struct scout_server *s, const struct scout__sender *sender,
						const struct scout__str *name_space);
SCOUT_ON_LOOP enum scout__right scout__right_of_uid(const struct scout_server *s, uid_t uid);
/* Let those who may connect use the socket or folder @path: @own are its modes, with socket_group also @group. */
int scout__unix_admit(const struct scout_server *s, const char *path, mode_t own, mode_t group, char *err,
		      size_t err_len);
