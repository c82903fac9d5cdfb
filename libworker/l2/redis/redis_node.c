/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "l2.h"

/*
 * DESIGN
 *
 * Purpose: the servers: which there are, which serves what, which can be used.
 *
 * A node that failed is `down`: what it had fails at once, and so does what comes, instead of waiting for its deadline each
 * time. Meanwhile one connection is tried again and again, with a back-off and jitter; when its handshake is
 * through the node is used again. So the breaker sees errors that cost nothing, and finds the store working soon after
 * it works.
 *
 * The slot map is asked for (CLUSTER SLOTS) at the start, when a node says MOVED, when one fails, and when a slot is nobody's; at
 * most every SCOUT__REDIS_REFRESH_US. Any node can answer: they are asked in turn, those of the URL too, until one does.
 * Until the first answer operations wait; when all nodes have failed to answer, they fail. A server that knows no CLUSTER SLOTS is
 * a single one (cluster=auto), and becomes a cluster when it says MOVED.
 *
 * Threads: the adapter's.
 */

#define FORGIVEN_US 10000000u /* a failure so long after the one before begins with the shortest back-off again */
#define IDLE_US 10000000u     /* nodes without slots are forgotten after this time */

static void
count(atomic_uint_fast64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* xorshift: for jitter. */
static uint32_t
random_below(struct redis *r, uint32_t n)
{
	r->random ^= r->random << 13;
	r->random ^= r->random >> 7;
	r->random ^= r->random << 17;
	return (uint32_t)(r->random % n);
}

/* The next back-off: doubled, up to the longest; the time to wait has up to a half more of it. */
static uint64_t
back_off_us(struct redis *r, uint32_t *backoff_ms)
{
	uint32_t ms = *backoff_ms * 2;

	if (ms < SCOUT__REDIS_BACKOFF_MS_MIN)
		ms = SCOUT__REDIS_BACKOFF_MS_MIN;
	if (ms > SCOUT__REDIS_BACKOFF_MS_MAX)
		ms = SCOUT__REDIS_BACKOFF_MS_MAX;
	*backoff_ms = ms;
	return ((uint64_t)ms + random_below(r, ms / 2 + 1)) * 1000;
}

/* ---- nodes ---- */

static struct redis_node *
new_node(struct redis *r, const char *host, uint16_t port)
{
	struct redis_node *node = calloc(1, sizeof(*node));

	if (!node)
		return NULL;
	node->host = strdup(host);
	if (!node->host) {
		free(node);
		return NULL;
	}
	node->port = port;
	node->id = r->next_id++;
	node->used_us = r->now_us;
	for (int lane = 0; lane < REDIS_LANES; lane++)
		scout__redis_link_init(&node->links[lane], node, (enum redis_lane)lane);
	return node;
}

struct redis_node *
scout__redis_node_get(struct redis *r, const char *host, uint16_t port)
{
	uint32_t hole = r->n_nodes;

	for (uint32_t i = 0; i < r->n_nodes; i++) {
		if (!r->nodes[i])
			hole = i;
		else if (r->nodes[i]->port == port && strcmp(r->nodes[i]->host, host) == 0)
			return r->nodes[i];
	}
	if (hole == SCOUT__REDIS_MAX_NODES)
		return NULL;
	r->nodes[hole] = new_node(r, host, port);
	if (r->nodes[hole] && hole == r->n_nodes)
		r->n_nodes++;
	return r->nodes[hole];
}

static void
drop_queue(struct redis *r, struct redis_queue *queue, enum scout__l2_result result, int detail) SCOUT_ON_REDIS
{
	struct redis_command *command;

	while ((command = scout__redis_queue_pop(queue)))
		scout__redis_command_fail(r, command, result, detail);
}

/* What waited behind others was not tried, and says nothing about its object. What waited for a connection found none. */
static void
drop_link(struct redis *r, struct redis_link *link, int detail) SCOUT_ON_REDIS
{
	bool was_working = link->sent.head && link->sent.head->kind < REDIS_AUTH;
	enum scout__l2_result result = was_working ? SCOUT__L2_REFUSED : SCOUT__L2_ERROR;

	drop_queue(r, &link->sent, SCOUT__L2_ERROR, detail);
	drop_queue(r, &link->queue, result, detail);
}

void
scout__redis_node_free(struct redis *r, struct redis_node *node)
{
	for (int lane = 0; lane < REDIS_LANES; lane++) {
		scout__redis_link_close(r, &node->links[lane]);
		drop_link(r, &node->links[lane], ECANCELED);
	}
	free(node->host);
	free(node);
}

static uint16_t
index_of(const struct redis *r, const struct redis_node *node)
{
	for (uint32_t i = 0; i < r->n_nodes; i++)
		if (r->nodes[i] == node)
			return (uint16_t)i;
	return UINT16_MAX;
}

static void
tell_ready(struct redis *r)
{
	bool ready = false;

	for (uint32_t i = 0; i < r->n_nodes && !ready; i++)
		ready = r->nodes[i] && r->nodes[i]->serves && r->nodes[i]->links[REDIS_ASK].state == REDIS_READY;
	atomic_store_explicit(&r->counters.ready, ready, memory_order_relaxed);
}

void
scout__redis_node_failed(struct redis *r, struct redis_node *node, enum redis_why why, int error, const char *text)
{
	if (!node->down && r->now_us - node->failed_us > FORGIVEN_US)
		node->backoff_ms = 0;
	node->down = true;
	node->failed_us = r->now_us;
	node->retry_us = r->now_us + back_off_us(r, &node->backoff_ms);
	node->addresses.n = 0;
	if (why == REDIS_SILENT)
		count(&r->counters.stalled);
	if (node->why != why) {
		char system[96] = "";

		if (why == REDIS_UNREACHABLE && error != 0)
			(void)snprintf(system, sizeof(system), " (%s)", strerrordesc_np(error));
		scout__log(r->log, why == REDIS_REFUSED ? SCOUT_LOG_ERROR : SCOUT_LOG_WARN,
			   "%s: %s:%u: %s%s; trying again", r->shown, node->host, node->port, text, system);
		node->why = (uint8_t)why;
	}
	/* All sockets first: nothing may be read or written for a job that has ended. */
	for (int lane = 0; lane < REDIS_LANES; lane++)
		scout__redis_link_close(r, &node->links[lane]);
	for (int lane = 0; lane < REDIS_LANES; lane++)
		drop_link(r, &node->links[lane], error);
	if (r->mode == REDIS_CLUSTER)
		scout__redis_refresh(r); /* another may have its slots by now */
	r->urgent = true;
	tell_ready(r);
}

void
scout__redis_node_works(struct redis *r, struct redis_node *node)
{
	if (node->why != REDIS_FINE)
		scout__log(r->log, SCOUT_LOG_WARN, "%s: %s:%u works again", r->shown, node->host, node->port);
	node->down = false;
	node->why = REDIS_FINE;
	tell_ready(r);
}

/* ---- the slot map ---- */

void
scout__redis_node_serves(struct redis *r, struct redis_node *node, uint16_t slot)
{
	r->slots[slot] = index_of(r, node);
	node->serves = true;
}

void
scout__redis_refresh(struct redis *r)
{
	r->refresh.wanted = true;
}

/* Nobody answered, or nothing of use. */
static void
round_failed(struct redis *r) SCOUT_ON_REDIS
{
	r->refresh.tried = 0;
	r->refresh.not_before_us = r->now_us + back_off_us(r, &r->refresh.backoff_ms);
	if (r->mode == REDIS_UNKNOWN) {
		r->unreachable = true;
		scout__redis_jobs_fail_waiting(r, ENOTCONN);
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

void
scout__redis_refresh_failed(struct redis *r)
{
	r->refresh.node = NULL; /* the next tick asks somebody else */
	r->urgent = true;
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
	count(&r->counters.refreshes);
	for (uint32_t i = 0; i < r->n_nodes; i++)
		if (r->nodes[i] && r->nodes[i]->serves)
			scout__redis_link_touch(r, &r->nodes[i]->links[REDIS_ASK]);
	tell_ready(r);
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
	enum scout__redis_error error = scout__redis_error(text, &to);
	char word[24];

	if (r->mode == REDIS_CLUSTER || r->must_be_cluster ||
	    (error != SCOUT__REDIS_OTHER && error != SCOUT__REDIS_NOPERM)) {
		scout__redis_error_word(text, word, sizeof(word));
		scout__log_limited(r->log, &r->slots_limit, r->now_us, 60000000, SCOUT_LOG_ERROR,
				   "%s: %s:%u does not tell who serves which slot (%s)", r->shown, node->host,
				   node->port, word[0] ? word : "an error");
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
	index = index_of(map->r, node);
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

/* ---- time ---- */

static bool
owes(const struct redis_link *link)
{
	switch (link->state) {
	case REDIS_IDLE:
		return false;
	case REDIS_READY:
		return link->sent.head || link->payload;
	default:
		return true;
	}
}

static void
sweep_node(struct redis *r, struct redis_node *node) SCOUT_ON_REDIS
{
	for (int lane = 0; lane < REDIS_LANES; lane++) {
		const struct redis_link *link = &node->links[lane];

		if (!owes(link) || r->now_us - link->progress_us < r->timeout_us)
			continue;
		scout__redis_node_failed(
			r, node, link->state == REDIS_RESOLVING ? REDIS_UNREACHABLE : REDIS_SILENT, ETIMEDOUT,
			link->state == REDIS_RESOLVING ? "its name is not resolved" : "does not answer");
		return;
	}
}

static bool
is_busy(const struct redis_node *node)
{
	for (int lane = 0; lane < REDIS_LANES; lane++)
		if (node->links[lane].queue.head || node->links[lane].sent.head || node->links[lane].dirty)
			return true;
	return false;
}

/* A node that serves nothing and was not used for a while: its connections go, and unless the URL names it, it too. */
static void
forget_idle(struct redis *r, uint32_t i) SCOUT_ON_REDIS
{
	struct redis_node *node = r->nodes[i];

	if (node->serves || r->mode == REDIS_UNKNOWN || is_busy(node) || r->now_us - node->used_us < IDLE_US)
		return;
	if (!node->seed) {
		r->nodes[i] = NULL;
		scout__redis_node_free(r, node);
		return;
	}
	for (int lane = 0; lane < REDIS_LANES; lane++)
		scout__redis_link_close(r, &node->links[lane]);
}

static uint64_t
sweep(struct redis *r) SCOUT_ON_REDIS
{
	uint64_t pause_us = r->timeout_us / 8;

	if (r->now_us < r->sweep_us)
		return r->sweep_us;
	for (uint32_t i = 0; i < r->n_nodes; i++) {
		if (r->nodes[i])
			sweep_node(r, r->nodes[i]);
		if (r->nodes[i])
			forget_idle(r, i);
	}
	r->sweep_us = r->now_us + (pause_us < 1000 ? 1000 : pause_us > 500000 ? 500000 : pause_us);
	return r->sweep_us;
}

static uint64_t
retry_nodes(struct redis *r) SCOUT_ON_REDIS
{
	uint64_t next_us = UINT64_MAX;

	for (uint32_t i = 0; i < r->n_nodes; i++) {
		struct redis_node *node = r->nodes[i];

		if (!node || !node->down || !node->serves || node->links[REDIS_ASK].state != REDIS_IDLE)
			continue;
		if (r->now_us >= node->retry_us)
			scout__redis_link_touch(r, &node->links[REDIS_ASK]);
		else if (node->retry_us < next_us)
			next_us = node->retry_us;
	}
	return next_us;
}

static uint64_t
retry_delayed(struct redis *r) SCOUT_ON_REDIS
{
	while (r->delayed.head && r->delayed.head->since_us <= r->now_us)
		scout__redis_command_route(r, scout__redis_queue_pop(&r->delayed));
	return r->delayed.head ? r->delayed.head->since_us : UINT64_MAX;
}

static uint64_t
retry_refresh(struct redis *r) SCOUT_ON_REDIS
{
	if (!r->refresh.wanted || r->refresh.node)
		return UINT64_MAX;
	if (r->now_us >= r->refresh.not_before_us)
		ask_next(r);
	return r->refresh.node ? UINT64_MAX : r->refresh.not_before_us;
}

uint64_t
scout__redis_nodes_tick(struct redis *r)
{
	uint64_t next_us = sweep(r), us;

	us = retry_delayed(r);
	next_us = us < next_us ? us : next_us;
	us = retry_refresh(r);
	next_us = us < next_us ? us : next_us;
	us = retry_nodes(r);
	return us < next_us ? us : next_us;
}
