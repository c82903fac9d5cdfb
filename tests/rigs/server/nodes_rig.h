/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <kvscout/client.h>

#include "server_rig.h"

/* Two servers on one L2, as two nodes of a cluster: one writes late and out of order, the other one waits for it. */

struct node {
	struct scout_server_config cfg;
	struct rig rig;
};

/* Does not wait for its L2. @l2_timeout_ms is that of questions, too. */
void node_start(struct node *node, const char *url, uint32_t l2_timeout_ms);
void node_up(struct node *node, const char *url);
void node_write(struct node *node, uint64_t key);
void node_read(struct node *node, uint64_t ticket, uint64_t first_key, uint32_t n);

#define NODE_CHUNKS 8u
#define NODE_CHUNK_TOKENS 16u
#define NODE_HASH 16u

/*
 * A prefill node writes a prompt's chunks late and out of order; a decode scheduler that asked before gets all of them.
 */
void nodes_wait_for_late_keys(const char *url, bool waits_for_all);
