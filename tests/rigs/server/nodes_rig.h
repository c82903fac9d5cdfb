/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "server_rig.h"

/* Servers on one L2, as nodes of a cluster. */

struct node {
	struct scout_server_config cfg;
	struct rig rig;
};

/* Does not wait for its L2. @l2_timeout_ms is that of questions, too. */
void node_start(struct node *node, const char *url, uint32_t l2_timeout_ms);
void node_up(struct node *node, const char *url);
void node_write(struct node *node, uint64_t key);
void node_read(struct node *node, uint64_t ticket, uint64_t first_key, uint32_t n);
