/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

/*
 * DESIGN
 *
 * Purpose: which server serves which slot.
 *
 * The slot map is asked for (CLUSTER SLOTS) at the start, when a node says MOVED, when one fails, and when a slot has
 * no node; at most every SCOUT__REDIS_REFRESH_US. Any node can answer: all nodes are asked in turn, also those of the
 * URL, until one answers. Until the first answer operations wait; when all nodes have failed to answer, operations
 * fail. A server that knows no CLUSTER SLOTS is a single server (cluster=auto), and becomes a cluster when it says
 * MOVED.
 *
 * Threads: the adapter's, which owns the map.
 */

void
scout__redis_slots_moved(struct redis *r, struct redis_node *node, uint16_t slot)
{
	r->slots[slot] = scout__redis_node_index(r, node);
	node->serves = true;
}

/* No node answered, or nothing of use. */
static void
round_failed(struct redis *r) SCOUT_ON_REDIS
{
	r->refresh.tried = 0;
	r->refresh.not_before_us = r->now_us + scout__redis_back_off_us(r, &r->refresh.backoff_ms);
	if (r->mode == REDIS_UNKNOWN) {
		r->unreachable = true;
		r->urgent = true; /* waiting jobs fail in the next turn */
	}
}

static bool
is_candidate(const struct redis *r, const struct redis_node *node)
{
	return node && (node->seed || node->serves) && !(node->down && r->now_us < node->retry_us);
}

static void
ask_next(struct redis *r) SCOUT_ON_REDIS
{
	struct redis_command *command;
	struct redis_node *node = NULL;

	while (r->refresh.tried < r->n_nodes && !node) {
		node = r->nodes[r->refresh.next++ % r->n_nodes];
		r->refresh.tried++;
		if (!is_candidate(r, node))
			node = NULL;
	}
	command = node ? scout__redis_command_new(r, REDIS_SLOTS, NULL) : NULL;
	if (!command) {
		round_failed(r);
		return;
	}
	r->refresh.node = node;
	scout__redis_queue_push(&node->links[REDIS_ASK].queue, command);
	scout__redis_link_touch(r, &node->links[REDIS_ASK]);
}

static void
refreshed(struct redis *r, enum redis_mode mode) SCOUT_ON_REDIS
{
	if (r->mode != mode)
		scout__log(r->log, SCOUT_LOG_INFO, "%s: %s", r->shown,
			   mode == REDIS_CLUSTER ? "a cluster" : "a single server");
	r->mode = (uint8_t)mode;
	r->unreachable = false;
	r->refresh.wanted = false;
	r->refresh.tried = 0;
	r->refresh.backoff_ms = 0;
	r->refresh.not_before_us = r->now_us + SCOUT__REDIS_REFRESH_US;
	scout__redis_count(&r->counters.refreshes);
	for (uint32_t i = 0; i < r->n_nodes; i++)
		if (r->nodes[i] && r->nodes[i]->serves)
			scout__redis_link_touch(r, &r->nodes[i]->links[REDIS_ASK]);
	scout__redis_tell_ready(r);
}

void
scout__redis_single(struct redis *r)
{
	for (uint32_t i = 0; i < r->n_nodes; i++)
		if (r->nodes[i])
			r->nodes[i]->serves = i == 0;
	refreshed(r, REDIS_SINGLE);
}

/* A server that answers CLUSTER SLOTS with an error. */
static void
no_cluster(struct redis *r, struct redis_node *node, const char *text) SCOUT_ON_REDIS
{
	struct scout__redis_redirect to;
	enum scout__redis_error error = scout__redis_kind_of(text, &to);
	char words[80];

	if (r->mode == REDIS_CLUSTER || r->must_be_cluster ||
	    (error != SCOUT__REDIS_OTHER && error != SCOUT__REDIS_NOPERM)) {
		scout__redis_error_words(text, false, words, sizeof(words));
		scout__log_limited(r->log, &r->slots_limit, r->now_us, 60000000, SCOUT_LOG_ERROR,
				   "%s: %s:%u does not tell which node serves which slot (%s)", r->shown, node->host,
				   node->port, words[0] ? words : "an error");
		scout__redis_refresh_failed(r);
		return;
	}
	if (r->n_seeds > 1)
		scout__log(r->log, SCOUT_LOG_ERROR,
			   "%s: %s:%u is no Redis Cluster, but the URL names %u hosts: only the first, %s:%u, is used",
			   r->shown, node->host, node->port, r->n_seeds, r->nodes[0]->host, r->nodes[0]->port);
	r->refresh.node = NULL;
	scout__redis_single(r);
}

struct slot_map {
	struct redis *r;
	const struct redis_node *asked;
	uint16_t slots[SCOUT__REDIS_SLOTS];
	bool serves[SCOUT__REDIS_MAX_NODES];
};

static bool
add_range(void *user, uint16_t first, uint16_t last, const char *host, uint16_t port)
	SCOUT_TSA(no_thread_safety_analysis)
{
	struct slot_map *map = user;
	struct redis_node *node = scout__redis_node_get(map->r, host[0] ? host : map->asked->host, port);
	uint16_t index;

	if (!node)
		return false;
	index = scout__redis_node_index(map->r, node);
	for (unsigned slot = first; slot <= last; slot++)
		map->slots[slot] = index;
	map->serves[index] = true;
	return true;
}

void
scout__redis_refresh_done(struct redis *r, struct redis_node *node, const struct redisReply *reply)
{
	struct slot_map *map;
	int served;

	if (reply->type == REDIS_REPLY_ERROR) {
		no_cluster(r, node, reply->str);
		return;
	}
	map = calloc(1, sizeof(*map));
	r->refresh.node = NULL;
	if (!map)
		return;
	map->r = r;
	map->asked = node;
	memset(map->slots, 0xff, sizeof(map->slots));
	served = scout__redis_read_slots(reply, add_range, map);
	if (served <= 0) {
		scout__log_limited(r->log, &r->slots_limit, r->now_us, 60000000, SCOUT_LOG_ERROR, "%s: %s:%u: %s",
				   r->shown, node->host, node->port,
				   served == 0 ? "no node of the cluster serves any slot yet"
					       : "its slot map cannot be read");
		free(map);
		return;
	}
	memcpy(r->slots, map->slots, sizeof(map->slots));
	for (uint32_t i = 0; i < r->n_nodes; i++)
		if (r->nodes[i])
			r->nodes[i]->serves = map->serves[i];
	free(map);
	refreshed(r, REDIS_CLUSTER);
}

uint64_t
scout__redis_slots_tick(struct redis *r)
{
	if (!r->refresh.wanted || r->refresh.node)
		return UINT64_MAX;
	if (r->now_us >= r->refresh.not_before_us)
		ask_next(r);
	return r->refresh.node ? UINT64_MAX : r->refresh.not_before_us;
}
