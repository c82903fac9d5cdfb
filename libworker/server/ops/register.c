/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fetch.h"
#include "list.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "reply.h"
#include "run_queue.h"
#include "segments.h"
#include "server_core.h"
#include "session.h"
#include "state.h"
#include "withdraw.h"

/*
 * DESIGN
 *
 * REGISTER: how the shards of one KV rank are laid out. A refused REGISTER changes nothing, so everything is judged on
 * a candidate layout first; the last step, making the chunk index, is undone when it fails.
 *
 * Threads: loop.
 */

#define SHARD_BYTES_MAX (UINT64_C(1) << 50)

struct refusal {
	uint16_t status;
	char text[384];
};

__attribute__((format(printf, 3, 4))) static bool
refuse(struct refusal *refusal, uint16_t status, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(refusal->text, sizeof(refusal->text), fmt, args);
	va_end(args);
	refusal->status = status;
	return false;
}

/* What does not depend on other peers. False: @refusal says why not. */
SCOUT_ON_LOOP static bool
check_sender(const struct scout__peer *peer, const struct scout__register_msg *m, struct refusal *refusal)
{
	const struct scout__ns *ns = peer->ns;

	if (peer->role != SCOUT_ROLE_WORKER)
		return refuse(refusal, SCOUT_WIRE_ROLE, "REGISTER is for workers");
	if (m->kv_rank < ns->rank_first || m->kv_rank >= ns->rank_first + ns->rank_count)
		return refuse(refusal, SCOUT_WIRE_ROLE, "kv_rank %u is not held here, only %u to %u",
			      (unsigned)m->kv_rank, (unsigned)ns->rank_first,
			      (unsigned)ns->rank_first + ns->rank_count - 1);
	if (m->reader >= ns->readers)
		return refuse(refusal, SCOUT_WIRE_RANGE, "reader = %u, but the namespace has %u readers",
			      (unsigned)m->reader, (unsigned)ns->readers);
	for (uint32_t i = 0; i < m->n_tables; i++)
		if (m->tables[i].group >= ns->groups.n)
			return refuse(refusal, SCOUT_WIRE_GROUP,
				      "a table is of group %u: must be below %u, the number of groups of the namespace",
				      (unsigned)m->tables[i].group, (unsigned)ns->groups.n);
	if (ns->groups.group[0].unit_tokens % m->tables[0].block_tokens)
		return refuse(refusal, SCOUT_WIRE_RANGE,
			      "block_tokens = %u does not divide the unit of group 0, %u tokens",
			      (unsigned)m->tables[0].block_tokens, (unsigned)ns->groups.group[0].unit_tokens);
	if (!peer->lease)
		return refuse(
			refusal, SCOUT_WIRE_STATE,
			"no lease connection: a worker maps the pool, so it must run on this machine and connect over ipc:// "
			"or to a loopback address");
	if (peer->rank >= 0 && (peer->rank != m->kv_rank - ns->rank_first || peer->reader != m->reader))
		return refuse(refusal, SCOUT_WIRE_STATE, "this worker has registered kv_rank %d, reader %u before",
			      (int)peer->rank + ns->rank_first, (unsigned)peer->reader);
	return true;
}

SCOUT_ON_LOOP static bool
measure(const struct scout__ns *ns, const struct scout__table_msg *m, struct scout__layout *layout,
	struct refusal *refusal)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < m->n_planes; i++) {
		uint64_t bytes = scout__plane_bytes(m, i);

		if (bytes == 0 || bytes > SHARD_BYTES_MAX || sum + bytes > SHARD_BYTES_MAX)
			return refuse(
				refusal, SCOUT_WIRE_RANGE,
				"plane %u has %llu bytes per block: must be 1 or more, and all planes together %llu at most",
				(unsigned)i, (unsigned long long)bytes, (unsigned long long)SHARD_BYTES_MAX);
		sum += bytes;
	}
	if (__builtin_mul_overflow(sum, (uint64_t)(ns->chunk_tokens / m->block_tokens), &layout->shard_bytes) ||
	    layout->shard_bytes > SHARD_BYTES_MAX)
		return refuse(refusal, SCOUT_WIRE_RANGE,
			      "a shard of %u blocks of %llu bytes: must be %llu bytes at most",
			      (unsigned)(ns->chunk_tokens / m->block_tokens), (unsigned long long)sum,
			      (unsigned long long)SHARD_BYTES_MAX);
	layout->block_tokens = m->block_tokens;
	layout->dtype = m->dtype;
	layout->n_planes = m->n_planes;
	return true;
}

/* False: @refusal says which part of the layout differs, with both values. */
SCOUT_ON_LOOP static bool
check_layout(const struct scout__layout *here, const struct scout__layout *there, const struct scout__register_msg *reg,
	     struct refusal *refusal)
{
	const struct scout__table_msg *m = &reg->tables[0];

	static const char fmt[] = "kv_rank %u was registered with %s = %llu, this REGISTER says %llu";
	const struct {
		const char *name;
		uint64_t here, there;
	} fields[] = {
		{"shard bytes", here->shard_bytes, there->shard_bytes},
		{"block_tokens", here->block_tokens, there->block_tokens},
		{"dtype", here->dtype, there->dtype},
		{"n_planes", here->n_planes, there->n_planes},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (fields[i].here != fields[i].there)
			return refuse(refusal, SCOUT_WIRE_SHARD_BYTES, fmt, (unsigned)reg->kv_rank, fields[i].name,
				      (unsigned long long)fields[i].here, (unsigned long long)fields[i].there);
	}
	for (uint32_t i = 0; i < m->n_planes; i++) {
		if (here->plane_bytes[i] != scout__plane_bytes(m, i))
			return refuse(refusal, SCOUT_WIRE_SHARD_BYTES, fmt, (unsigned)reg->kv_rank,
				      "bytes per block of a plane", (unsigned long long)here->plane_bytes[i],
				      (unsigned long long)scout__plane_bytes(m, i));
	}
	if (strlen(here->layout_tag) != m->layout_tag.len ||
	    memcmp(here->layout_tag, m->layout_tag.p, m->layout_tag.len) != 0)
		return refuse(refusal, SCOUT_WIRE_SHARD_BYTES,
			      "kv_rank %u was registered with layout_tag \"%s\", this REGISTER says \"%.*s\"",
			      (unsigned)reg->kv_rank, here->layout_tag, (int)m->layout_tag.len, m->layout_tag.p);
	return true;
}

/* Whether no peer but @peer uses the layouts, so that they may change. */
SCOUT_ON_LOOP static bool
is_alone(const struct scout_server *s, const struct scout__peer *peer)
{
	if (peer->ns->n_holds)
		return false;
	for (uint32_t i = 0; i < s->cfg.max_peers; i++) {
		const struct scout__peer *other = s->state->peers[i];

		if (other && other != peer && !other->leaving && other->ns == peer->ns &&
		    other->role == SCOUT_ROLE_WORKER)
			return false;
	}
	return true;
}

/*
 * All workers have left and one comes back with another layout: start anew. The sessions that still point into the
 * chunk index end here to the last handle, in one go: this happens when an engine is exchanged under a running
 * scheduler, not in service.
 */
SCOUT_ON_LOOP static void
start_anew(struct scout_server *s, struct scout__peer *peer)
{
	struct scout__ns *ns = peer->ns;

	uint32_t n_chunks = ns->index ? ns->index->n_entries : 0;

	scout__log_limited(
		&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, n_chunks ? SCOUT_LOG_WARN : SCOUT_LOG_INFO,
		"namespace \"%s\": its only worker has another layout: it is made anew, %u chunks are dropped",
		ns->name, (unsigned)n_chunks);
	while (!scout__list_empty(&ns->sessions))
		scout__session_end(s, SCOUT__OWNER(ns->sessions.next, struct scout__session, of_ns), false);
	while (ns->n_sessions)
		scout__run_queue_run(s);
	scout__withdraw_index(s, ns);
	scout__ns_drop_index(s, ns);
	peer->rank = -1;
}

/* Bytes that a chunk takes in the pool: of all ranks that are known, with @layout as @rank's. */
SCOUT_ON_LOOP static uint64_t
chunk_bytes(const struct scout__ns *ns, uint32_t rank, const struct scout__layout *layout)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < ns->rank_count; i++) {
		uint64_t bytes = i == rank ? layout->shard_bytes : ns->layouts[i].shard_bytes;

		/* 64 ranks of at most 2^50: no overflow */
		if (bytes)
			sum += scout__slot_stride(bytes);
	}
	return sum;
}

/* When all ranks are known. */
SCOUT_ON_LOOP static bool
make_index(struct scout_server *s, struct scout__ns *ns, struct refusal *refusal)
{
	uint64_t shard_bytes[SCOUT_MAX_RANKS];
	uint16_t nodes[SCOUT_MAX_RANKS];
	int rc;

	for (uint32_t i = 0; i < ns->rank_count; i++) {
		if (!ns->layouts[i].known)
			return true;
		shard_bytes[i] = ns->layouts[i].shard_bytes;
		nodes[i] = ns->layouts[i].numa;
	}
	rc = scout__index_new_on(&s->state->l1, shard_bytes, nodes, ns->rank_count, ns->readers, ns->hash_bytes,
				 &ns->index);
	if (rc) {
		ns->index = NULL;
		return refuse(refusal, rc == SCOUT_ERR_NO_ROOM ? SCOUT_WIRE_NO_ROOM : SCOUT_WIRE_LIMIT,
			      "the index for a pool of %llu bytes cannot be made: %s",
			      (unsigned long long)s->cfg.l1_bytes, scout_strerror(rc));
	}
	scout__fetch_open_ns(s, ns);
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "namespace \"%s\" is complete: %u ranks, %llu bytes a chunk", ns->name,
			   (unsigned)ns->rank_count, (unsigned long long)ns->index->chunk_bytes);
	return true;
}

SCOUT_ON_LOOP static bool
fix_layout(struct scout_server *s, struct scout__ns *ns, uint32_t rank, const struct scout__table_msg *m,
	   const struct scout__layout *layout, struct refusal *refusal)
{
	size_t planes_bytes = (size_t)m->n_planes * sizeof(uint64_t);
	struct scout__layout *fixed = &ns->layouts[rank];
	uint64_t bytes = chunk_bytes(ns, rank, layout);

	if (bytes > s->cfg.l1_bytes)
		return refuse(refusal, SCOUT_WIRE_NO_ROOM,
			      "a chunk takes %llu bytes, l1_bytes is %llu: must be that or more",
			      (unsigned long long)bytes, (unsigned long long)s->cfg.l1_bytes);
	*fixed = *layout;
	fixed->plane_bytes = calloc(1, planes_bytes + m->layout_tag.len + 1u);
	if (!fixed->plane_bytes) {
		memset(fixed, 0, sizeof(*fixed));
		return refuse(refusal, SCOUT_WIRE_LIMIT, "the server is out of memory");
	}
	fixed->layout_tag = memcpy((char *)fixed->plane_bytes + planes_bytes, m->layout_tag.p, m->layout_tag.len);
	for (uint32_t i = 0; i < m->n_planes; i++)
		fixed->plane_bytes[i] = scout__plane_bytes(m, i);
	fixed->known = true;
	if (make_index(s, ns, refusal))
		return true;
	free(fixed->plane_bytes);
	memset(fixed, 0, sizeof(*fixed));
	return false;
}

SCOUT_ON_LOOP static bool
do_register(struct scout_server *s, struct scout__peer *peer, const struct scout__register_msg *m,
	    struct refusal *refusal)
{
	struct scout__ns *ns = peer->ns;
	struct scout__layout layout = {.known = true, .numa = m->numa};
	uint32_t rank;

	if (!check_sender(peer, m, refusal) || !measure(ns, &m->tables[0], &layout, refusal))
		return false;
	rank = (uint32_t)m->kv_rank - ns->rank_first;
	if (ns->layouts[rank].known && !check_layout(&ns->layouts[rank], &layout, m, refusal)) {
		if (!is_alone(s, peer))
			return false;
		(void)scout__writes_drop(s, ns);
		if (ns->n_moving)
			return refuse(refusal, SCOUT_WIRE_LIMIT,
				      "another layout, and %u transfers of L2 that are not over; try again",
				      (unsigned)ns->n_moving);
		start_anew(s, peer);
	}
	if (!ns->layouts[rank].known && !fix_layout(s, ns, rank, &m->tables[0], &layout, refusal))
		return false;
	if (peer->rank < 0)
		peer->segments_sent = 0;
	peer->rank = (int32_t)rank;
	peer->reader = m->reader;
	return true;
}

SCOUT_ON_LOOP static void
register_reply(struct scout_server *s, struct scout__peer *peer, uint64_t corr)
{
	const struct scout__ns *ns = peer->ns;
	uint64_t shard_bytes = ns->layouts[peer->rank].shard_bytes;
	struct scout__register_reply m = {
		.segments = ns->index ? ns->index->n_extents : 0,
		.n_tables = 1,
		.tables[0] = {.shard_bytes = shard_bytes, .slot_stride = scout__slot_stride(shard_bytes)},
	};
	struct scout__writer *w;
	size_t op;

	w = scout__reply_begin(s, &peer->dest, SCOUT_OP_REGISTER, SCOUT_WIRE_OK, corr,
			       SCOUT__REGISTER_REPLY_BYTES(m.n_tables), &op);
	if (!w)
		return;
	scout__put_register_reply(w, &m);
	scout__reply_end(s, &peer->dest, op);
}

void
scout__serve_register(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op)
{
	struct scout__register_msg m;
	struct refusal refusal;
	const char *field = "";
	int status = scout__get_register(op, &m, &field);

	if (status) {
		scout__refuse_body(s, &peer->dest, op, status, field);
		return;
	}
	if (!do_register(s, peer, &m, &refusal)) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, refusal.status, "%s", refusal.text);
		return;
	}
	/* What the socket does not take now is sent by the tick; no grant is answered before. */
	(void)scout__segments_deliver(s, peer);
	register_reply(s, peer, op->corr);
}
