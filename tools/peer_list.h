/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "operator.h"
#include "text.h"

/* All peers of a server (cmd_peers.c). Main thread. */

struct peer_row {
	uint64_t id;            /* as in the server's log */
	uint16_t role, kv_rank; /* plus 1; 0: none */
	uint32_t pid;
	uint64_t unread_bytes;
	uint32_t silent_ms, waiting, sessions, holds;
	char name_space[SCOUT_MAX_NAME + 1];
};

struct peer_list {
	struct peer_row *rows; /* free() it; the slowest first */
	uint32_t n;
};

/* Ask. Returns 0, or an exit status after saying why. */
int peers_take(struct operator* op, struct peer_list *ret);
/* As a table, at most @most of them. */
void peers_print(const struct peer_list *list, uint32_t most);
/* As a JSON array, likewise. */
void peers_json(const struct peer_list *list, uint32_t most, struct scout__text *text);
