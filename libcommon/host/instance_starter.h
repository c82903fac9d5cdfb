/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "log.h"
#include "thread.h"

/*
 * Finds the server of this host, and starts it if there is none. A look takes some microseconds, or about a millisecond
 * if it starts kvscoutd; it never waits for a server. One thread at a time uses a starter: a courier, or the caller of
 * scout_ensure_server().
 */

struct scout__starter;

struct scout__starter_config {
	const char *endpoint;       /* "auto", "auto:///FOLDER" or NULL */
	const char *server_program; /* NULL: the installed one */
	const char *server_keys;    /* NULL: none */
	const struct scout__log *log;
};

/*
 * All strings are copied; the log is borrowed. Makes the folder, and starts nothing. Returns 0, SCOUT_ERR_INVALID (endpoint),
 * SCOUT_ERR_PERMISSION (the folder), SCOUT_ERR_CONFIG_SYNTAX, SCOUT_ERR_CONFIG_KEY, SCOUT_ERR_CONFIG_RANGE (server_keys),
 * SCOUT_ERR_NOMEM, SCOUT_ERR_SYSTEM.
 */
SCOUT_ON_ANY int scout__starter_new(const struct scout__starter_config *cfg, struct scout__starter **ret_starter,
				    char *err, size_t err_len);
/* A server that was started stays. NULL is ignored. */
SCOUT_ON_ANY void scout__starter_free(struct scout__starter *starter);

/* Where the server listens: always the same path. Owned by the starter. */
SCOUT_ON_ANY const char *scout__starter_endpoint(const struct scout__starter *starter);

/* Whether connections are accepted at the endpoint. */
SCOUT_ON_ANY bool scout__starter_listens(const struct scout__starter *starter);
/* Where kvscoutd's log is. Owned by the starter. */
SCOUT_ON_ANY const char *scout__starter_log_path(const struct scout__starter *starter);

/*
 * Look once. 0: a server serves, connect. SCOUT_NOT_YET: one is being started, or ends; look again at *ret_next_us.
 * Negative: there is none to connect to, and scout__starter_text() says why; still look again at *ret_next_us:
 * SCOUT_ERR_VERSION (a server of another version), SCOUT_ERR_FORMAT (no kvscoutd found), SCOUT_ERR_UNREACHABLE
 * (kvscoutd ends before it serves), SCOUT_ERR_PERMISSION, SCOUT_ERR_SYSTEM, SCOUT_ERR_NOMEM.
 */
SCOUT_ON_ANY int scout__starter_look(struct scout__starter *starter, uint64_t now_us, uint64_t *ret_next_us);
SCOUT_ON_ANY const char *scout__starter_text(const struct scout__starter *starter);
/* @what, with what is known of the server that serves, and what to do; @what alone if none does. Until the next call. */
SCOUT_ON_ANY const char *scout__starter_explain(struct scout__starter *starter, const char *what);
/* Take the status of the process that puts a server into the background, if it has ended. False: it has not, call again. */
SCOUT_ON_ANY bool scout__starter_reap(struct scout__starter *starter);
