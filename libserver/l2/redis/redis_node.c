/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

/*
 * DESIGN
 *
 * Purpose: know the servers, which of them can be used, and what happens to commands when one fails. Owns the nodes and
 * their links. redis_slots.c knows which node serves which slot.
 *
 * A node that failed is `down`: its commands and all new ones fail at once, instead of waiting for their deadlines.
 * Meanwhile one connection is tried again and again, with a back-off and jitter; when its handshake is done, the node
 * is used again. So the breaker sees errors that cost nothing, and finds the store working soon after it works.
 *
 * A connection that is lost while it works is made anew, and what was on it is sent again.
 *
 * Threads: the adapter's.
 */

#define YOUNG_US 100000u
#define FORGIVEN_US 10000000u /* a failure this long after the last one begins with the shortest back-off again */
#define IDLE_US 10000000u     /* nodes without slots are forgotten after this time */

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
uint64_t
scout__redis_back_off_us(struct redis *r, uint32_t *backoff_ms)
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

/* A command that waited its turn was not tried, and says nothing about its object. Others found no connection. */
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

uint16_t
scout__redis_node_index(const struct redis *r, const struct redis_node *node)
{
	for (uint32_t i = 0; i < r->n_nodes; i++)
		if (r->nodes[i] == node)
			return (uint16_t)i;
	return UINT16_MAX;
}

void
scout__redis_tell_ready(struct redis *r)
{
	bool ready = false;

	for (uint32_t i = 0; i < r->n_nodes && !ready; i++)
		ready = r->nodes[i] && r->nodes[i]->serves && r->nodes[i]->links[REDIS_ASK].state == REDIS_READY;
	atomic_store_explicit(&r->counters.ready, ready, memory_order_relaxed);
}

void
scout__redis_node_failed(struct redis *r, struct redis_node *node, enum redis_why why, int error, const char *text)
{
	char system[96] = "";

	if (!node->down && r->now_us - node->failed_us > FORGIVEN_US)
		node->backoff_ms = 0;
	node->down = true;
	node->failed_us = r->now_us;
	node->retry_us = r->now_us + scout__redis_back_off_us(r, &node->backoff_ms);
	node->addresses.n = 0;
	if (why == REDIS_SILENT)
		scout__redis_count(&r->counters.stalled);
	if (why == REDIS_UNREACHABLE && error != 0)
		(void)snprintf(system, sizeof(system), ": %s", scout__errno_text(error));
	scout__redis_say(r, node, error, text, system);
	if (node->why != why) {
		scout__log(r->log, why == REDIS_REFUSED || why == REDIS_UNTRUSTED ? SCOUT_LOG_ERROR : SCOUT_LOG_WARN,
			   "%s: %s:%u: %s%s; trying again", r->shown, node->host, node->port, text, system);
		node->why = (uint8_t)why;
	}
	/* Close all sockets first: nothing may be read or written for a job that has ended. */
	for (int lane = 0; lane < REDIS_LANES; lane++)
		scout__redis_link_close(r, &node->links[lane]);
	for (int lane = 0; lane < REDIS_LANES; lane++)
		drop_link(r, &node->links[lane], error);
	if (r->mode == REDIS_CLUSTER)
		scout__redis_refresh(r); /* another may have its slots by now */
	r->urgent = true;
	scout__redis_tell_ready(r);
}

static void
works(struct redis *r, struct redis_node *node) SCOUT_ON_REDIS
{
	if (node->why != REDIS_FINE)
		scout__log(r->log, SCOUT_LOG_WARN, "%s: %s:%u works again", r->shown, node->host, node->port);
	node->down = false;
	node->why = REDIS_FINE;
	scout__redis_tell_ready(r);
}

/* ---- their links ---- */

/* Put what was under way back at the front of the queue, in its order. */
static void
requeue(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	struct redis_queue old = link->queue;
	struct redis_command *command;

	scout__redis_queue_init(&link->queue);
	if (!old.head)
		old.tail = &old.head; /* it pointed into the link */
	while ((command = scout__redis_queue_pop(&link->sent))) {
		if (command->kind == REDIS_SLOTS || (command->job && ++command->losses > SCOUT__REDIS_MAX_LOSSES)) {
			scout__redis_command_fail(r, command, SCOUT__L2_ERROR, ECONNRESET);
		} else if (command->job) {
			command->job->moved_us = r->now_us; /* the job waits for the store, which has to take us back */
			scout__redis_queue_push(&link->queue, command);
		} else {
			scout__redis_command_free(r, command);
		}
	}
	while ((command = scout__redis_queue_pop(&old))) {
		if (command->job || command->kind == REDIS_SLOTS)
			scout__redis_queue_push(&link->queue, command);
		else
			scout__redis_command_free(r, command);
	}
}

void
scout__redis_node_lost(struct redis *r, struct redis_link *link, struct redis_trouble trouble)
{
	bool was_ready = link->state == REDIS_READY;

	/* A connection that breaks as soon as it is made is no better than none. */
	if (trouble.why != REDIS_FINE &&
	    (!was_ready || trouble.why != REDIS_UNREACHABLE || r->now_us - link->ready_us < YOUNG_US)) {
		scout__redis_node_failed(r, link->node, trouble.why, trouble.error, trouble.text);
		return;
	}
	scout__log(r->log, SCOUT_LOG_DEBUG, "%s: %s:%u: %s; connecting anew", r->shown, link->node->host,
		   link->node->port, trouble.text);
	scout__redis_link_close(r, link);
	requeue(r, link);
	scout__redis_link_touch(r, link);
}

void
scout__redis_node_resolved(struct redis *r, struct redis_node *node)
{
	char text[96];

	if (node->addresses.n == 0) {
		(void)snprintf(text, sizeof(text), "its name cannot be resolved (%s)",
			       gai_strerror(node->addresses.error));
		scout__redis_node_failed(r, node, REDIS_UNREACHABLE, EHOSTUNREACH, text);
		return;
	}
	for (int lane = 0; lane < REDIS_LANES; lane++) {
		if (node->links[lane].state != REDIS_RESOLVING)
			continue;
		node->links[lane].state = REDIS_IDLE;
		scout__redis_link_touch(r, &node->links[lane]);
	}
}

void
scout__redis_node_connected(struct redis *r, struct redis_link *link)
{
	link->state = REDIS_READY;
	link->ready_us = r->now_us;
	if (link->was_ready)
		scout__redis_count(&r->counters.reconnects);
	link->was_ready = true;
	works(r, link->node);
	scout__redis_link_touch(r, link);
}

void
scout__redis_nodes_flush(struct redis *r)
{
	while (r->dirty) {
		struct redis_link *link = r->dirty;
		struct redis_trouble trouble;

		r->dirty = link->next_dirty;
		link->dirty = false;
		trouble = scout__redis_link_flush(r, link);
		if (trouble.text)
			scout__redis_node_lost(r, link, trouble);
	}
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

static const char *
silence(const struct redis_link *link)
{
	switch (link->state) {
	case REDIS_RESOLVING:
		return "its name is not resolved";
	case REDIS_HANDSHAKE:
		return "does not answer in TLS: a port without TLS would not";
	default:
		return "does not answer";
	}
}

static void
sweep_node(struct redis *r, struct redis_node *node) SCOUT_ON_REDIS
{
	for (int lane = 0; lane < REDIS_LANES; lane++) {
		const struct redis_link *link = &node->links[lane];
		uint64_t timeout_us =
			lane == REDIS_STORE && link->state == REDIS_READY ? r->write_timeout_us : r->timeout_us;

		if (!owes(link) || r->now_us - link->progress_us < timeout_us)
			continue;
		scout__redis_node_failed(r, node, link->state == REDIS_RESOLVING ? REDIS_UNREACHABLE : REDIS_SILENT,
					 ETIMEDOUT, silence(link));
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

/* Close the connections of a node that serves nothing and is idle; forget the node unless the URL names it. */
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

uint64_t
scout__redis_nodes_tick(struct redis *r)
{
	uint64_t next_us = sweep(r), us = retry_nodes(r);

	return us < next_us ? us : next_us;
}
