/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fetch.h"
#include "list.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "pending_op.h"
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
 * REGISTER: how the shards of one KV rank are laid out, group by group. A refused REGISTER changes nothing, so everything
 * is judged on candidate layouts first; the last step, making the chunk indexes, is undone when it fails.
 *
 * Sessions point into the chunk indexes: a REGISTER with another layout ends them in steps, and each step judges it anew.
 *
 * Threads: loop.
 */

#define SHARD_BYTES_MAX (UINT64_C(1) << 50)

#define END_STEP 64u /* sessions that one step ends */

struct refusal {
	uint16_t status; /* SCOUT_WIRE_OK: it is not refused, but has to wait */
	char text[384];
};

struct register_op {
	struct scout__pending_op op;
	struct scout__op msg;
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

/* Check what does not depend on other peers. False: @refusal says why not. */
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
	for (uint32_t i = 0; i < m->n_tables; i++) {
		const struct scout__table_msg *table = &m->tables[i];

		if (table->group >= ns->groups.n)
			return refuse(refusal, SCOUT_WIRE_GROUP,
				      "a table names group %u: must be below %u, the number of groups of the namespace",
				      (unsigned)table->group, (unsigned)ns->groups.n);
		if (ns->groups.group[table->group].unit_tokens % table->block_tokens)
			return refuse(refusal, SCOUT_WIRE_RANGE,
				      "block_tokens = %u does not divide the unit of group %u, %u tokens",
				      (unsigned)table->block_tokens, (unsigned)table->group,
				      (unsigned)ns->groups.group[table->group].unit_tokens);
	}
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
	uint64_t blocks = ns->groups.group[m->group].unit_tokens / m->block_tokens;
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
	if (__builtin_mul_overflow(sum, blocks, &layout->shard_bytes) || layout->shard_bytes > SHARD_BYTES_MAX)
		return refuse(refusal, SCOUT_WIRE_RANGE,
			      "a shard of %llu blocks of %llu bytes: must be %llu bytes at most",
			      (unsigned long long)blocks, (unsigned long long)sum, (unsigned long long)SHARD_BYTES_MAX);
	layout->known = true;
	layout->block_tokens = m->block_tokens;
	layout->dtype = m->dtype;
	layout->n_planes = m->n_planes;
	return true;
}

/* Whether the layouts agree. False: @refusal names the part that differs, with both values. */
SCOUT_ON_LOOP static bool
check_layout(const struct scout__layout *here, const struct scout__layout *there, uint32_t kv_rank,
	     const struct scout__table_msg *m, struct refusal *refusal)
{
	static const char fmt[] = "kv_rank %u was registered with %s = %llu in group %u, this REGISTER says %llu";
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
			return refuse(refusal, SCOUT_WIRE_SHARD_BYTES, fmt, (unsigned)kv_rank, fields[i].name,
				      (unsigned long long)fields[i].here, (unsigned)m->group,
				      (unsigned long long)fields[i].there);
	}
	for (uint32_t i = 0; i < m->n_planes; i++) {
		if (here->plane_bytes[i] != scout__plane_bytes(m, i))
			return refuse(refusal, SCOUT_WIRE_SHARD_BYTES, fmt, (unsigned)kv_rank,
				      "bytes per block of a plane", (unsigned long long)here->plane_bytes[i],
				      (unsigned)m->group, (unsigned long long)scout__plane_bytes(m, i));
	}
	if (strlen(here->layout_tag) != m->layout_tag.len ||
	    memcmp(here->layout_tag, m->layout_tag.p, m->layout_tag.len) != 0)
		return refuse(
			refusal, SCOUT_WIRE_SHARD_BYTES,
			"kv_rank %u was registered with layout_tag \"%s\" in group %u, this REGISTER says \"%.*s\"",
			(unsigned)kv_rank, here->layout_tag, (unsigned)m->group, (int)m->layout_tag.len,
			m->layout_tag.p);
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
 * All workers have left and one comes back with another layout: start anew. This happens when an engine is exchanged under
 * a running scheduler. False: sessions of before have yet to end.
 */
SCOUT_ON_LOOP static bool
start_anew(struct scout_server *s, struct scout__peer *peer)
{
	struct scout__ns *ns = peer->ns;
	uint32_t n_chunks = scout__ns_count_chunks(ns);

	for (uint32_t left = END_STEP; left && !scout__list_empty(&ns->sessions); left--)
		scout__session_end(s, SCOUT__OWNER(ns->sessions.next, struct scout__session, of_ns), false);
	(void)scout__sessions_unkeep(s, ns, true, END_STEP);
	if (ns->n_sessions)
		return false;
	scout__log_limited(
		&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, n_chunks ? SCOUT_LOG_WARN : SCOUT_LOG_INFO,
		"namespace \"%s\": its only worker has another layout; all is made anew, %u chunks are dropped",
		ns->name, (unsigned)n_chunks);
	scout__withdraw_indexes(s, peer);
	scout__ns_drop_indexes(s, ns);
	peer->rank = -1;
	peer->tables = 0;
	return true;
}

/* Bytes that one object of each group takes in the pool, for all known ranks. */
SCOUT_ON_LOOP static uint64_t
object_bytes(const struct scout__ns *ns)
{
	uint64_t sum = 0;

	for (uint32_t g = 0; g < ns->groups.n; g++)
		for (uint32_t i = 0; i < ns->by_group[g].rank_count; i++)
			/* 32 groups of 64 ranks of at most 2^50: no overflow */
			if (ns->by_group[g].layouts[i].known)
				sum += scout__slot_stride(ns->by_group[g].layouts[i].shard_bytes);
	return sum;
}

SCOUT_ON_LOOP static bool
make_index(struct scout_server *s, struct scout__ns_group *group, struct refusal *refusal)
{
	uint64_t shard_bytes[SCOUT_MAX_RANKS];
	uint16_t nodes[SCOUT_MAX_RANKS];
	uint32_t n = 0;
	int rc;

	for (uint32_t i = 0; i < group->rank_count; i++) {
		if (!group->layouts[i].known)
			continue;
		shard_bytes[n] = group->layouts[i].shard_bytes;
		nodes[n] = group->layouts[i].numa;
		group->ranks[n++] = (uint8_t)i;
	}
	/* No worker of this server has layers of the group: there is nothing to keep. */
	if (n == 0)
		return true;
	rc = scout__index_new(&s->state->l1, &group->ns->l1, shard_bytes, nodes, n, group->readers,
			      group->ns->hash_bytes, &group->index);
	if (rc) {
		group->index = NULL;
		return refuse(refusal, rc == SCOUT_ERR_NO_ROOM ? SCOUT_WIRE_NO_ROOM : SCOUT_WIRE_LIMIT,
			      "the index of group %u for a pool of %llu bytes cannot be made: %s",
			      (unsigned)group->number, (unsigned long long)s->cfg.l1_bytes, scout_strerror(rc));
	}
	group->index->user = group;
	/* Objects of different groups have different numbers of tokens. */
	group->index->token_bytes = (group->index->chunk_bytes + group->stride - 1) / group->stride;
	return true;
}

/* Which limit ends the pool, with memfds as small as those of the group that has the smallest. */
SCOUT_ON_LOOP static void
tell_pool_end(struct scout_server *s, const struct scout__ns *ns)
{
	uint64_t segment_bytes = UINT64_MAX;
	enum scout__pool_end end;
	char text[400];

	for (uint32_t i = 0; i < ns->groups.n; i++) {
		const struct scout__chunk_index *index = ns->by_group[i].index;

		if (index && scout__index_segment_bytes(index) < segment_bytes)
			segment_bytes = scout__index_segment_bytes(index);
	}
	if (segment_bytes == UINT64_MAX)
		return;
	end = scout__pool_end_text(&s->state->l1.pool.limits, s->cfg.l1_bytes, segment_bytes, text, sizeof(text));
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US,
			   end == SCOUT__POOL_END_L1_BYTES ? SCOUT_LOG_INFO : SCOUT_LOG_WARN, "namespace \"%s\": %s",
			   ns->name, text);
}

/* All ranks are known. False: nothing was made. */
SCOUT_ON_LOOP static bool
make_indexes(struct scout_server *s, struct scout__ns *ns, struct refusal *refusal)
{
	ns->l1.n_groups = ns->groups.n;
	for (uint32_t i = 0; i < ns->groups.n; i++) {
		if (make_index(s, &ns->by_group[i], refusal))
			continue;
		while (i-- > 0) {
			scout__index_free(ns->by_group[i].index);
			ns->by_group[i].index = NULL;
		}
		return false;
	}
	for (uint32_t i = 0; i < ns->groups.n; i++)
		if (ns->by_group[i].index)
			scout__fetch_open_group(s, &ns->by_group[i]);
	ns->complete = true;
	scout__log_limited(&s->log, &s->limit_ns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "namespace \"%s\" is complete: %u ranks, %u groups, %llu bytes an object of each", ns->name,
			   (unsigned)ns->rank_count, (unsigned)ns->groups.n, (unsigned long long)object_bytes(ns));
	tell_pool_end(s, ns);
	return true;
}

/* The shard of a group that the worker of @m has, counted among this server's shards. */
SCOUT_ON_LOOP static uint32_t
shard_of(const struct scout__ns_group *group, const struct scout__register_msg *m)
{
	uint32_t worker = ((uint32_t)m->kv_rank - group->ns->rank_first) * group->ns->readers + m->reader;

	return worker / group->readers;
}

/* The place for the layout of @table from the worker of @m. */
SCOUT_ON_LOOP static struct scout__layout *
layout_of(const struct scout__ns *ns, const struct scout__register_msg *m, const struct scout__table_msg *table)
{
	struct scout__ns_group *group = &ns->by_group[table->group];

	return &group->layouts[shard_of(group, m)];
}

SCOUT_ON_LOOP static bool
fix_layout(struct scout__layout *fixed, const struct scout__table_msg *m, const struct scout__layout *layout,
	   struct refusal *refusal)
{
	size_t planes_bytes = (size_t)m->n_planes * sizeof(uint64_t);
	uint64_t *plane_bytes = calloc(1, planes_bytes + m->layout_tag.len + 1u);

	if (!plane_bytes)
		return refuse(refusal, SCOUT_WIRE_LIMIT, "the server is out of memory");
	*fixed = *layout;
	fixed->plane_bytes = plane_bytes;
	fixed->layout_tag = memcpy((char *)plane_bytes + planes_bytes, m->layout_tag.p, m->layout_tag.len);
	for (uint32_t i = 0; i < m->n_planes; i++)
		fixed->plane_bytes[i] = scout__plane_bytes(m, i);
	return true;
}

/* Groups (bits) of the tables of @m. */
static uint32_t
groups_of(const struct scout__register_msg *m)
{
	uint32_t groups = 0;

	for (uint32_t i = 0; i < m->n_tables; i++)
		groups |= 1u << m->tables[i].group;
	return groups;
}

/*
 * Whether the workers of a shard agree on having a table of its group. A missing shard stays missing, because the chunk
 * index is made for the shards that there are. If one worker of a shard had no table of the group, that worker's part
 * of the shard would never be stored.
 */
SCOUT_ON_LOOP static bool
check_groups(const struct scout__ns *ns, const struct scout__register_msg *m, struct refusal *refusal)
{
	uint32_t with_table = groups_of(m);

	for (uint32_t g = 0; g < ns->groups.n; g++) {
		const struct scout__ns_group *group = &ns->by_group[g];
		uint32_t shard = shard_of(group, m);
		bool has_table = with_table >> g & 1;

		if (!(group->heard >> shard & 1) || group->layouts[shard].known == has_table)
			continue;
		return refuse(refusal, SCOUT_WIRE_SHARD_BYTES,
			      "this REGISTER of kv_rank %u, reader %u has %s table of group %u, but its shard was "
			      "registered with%s one",
			      (unsigned)m->kv_rank, (unsigned)m->reader, has_table ? "a" : "no", (unsigned)g,
			      has_table ? "out" : "");
	}
	return true;
}

/* Whether @m agrees with what its shards were registered with. Else @refusal names the difference. */
SCOUT_ON_LOOP static bool
check_layouts(const struct scout__ns *ns, const struct scout__register_msg *m, const struct scout__layout *layouts,
	      struct refusal *refusal)
{
	for (uint32_t i = 0; i < m->n_tables; i++) {
		const struct scout__layout *here = layout_of(ns, m, &m->tables[i]);

		if (here->known && !check_layout(here, &layouts[i], m->kv_rank, &m->tables[i], refusal))
			return false;
	}
	return check_groups(ns, m, refusal);
}

/* Note that the worker of @m has said whether it has a shard, for each group. */
SCOUT_ON_LOOP static void
hear(struct scout__ns *ns, const struct scout__register_msg *m)
{
	for (uint32_t g = 0; g < ns->groups.n; g++)
		ns->by_group[g].heard |= UINT64_C(1) << shard_of(&ns->by_group[g], m);
}

/* Whether, with the worker of @m, some worker of each shard of each group has registered. */
SCOUT_ON_LOOP static bool
is_last(const struct scout__ns *ns, const struct scout__register_msg *m)
{
	for (uint32_t g = 0; g < ns->groups.n; g++) {
		const struct scout__ns_group *group = &ns->by_group[g];
		uint64_t all = group->rank_count == 64 ? UINT64_MAX : (UINT64_C(1) << group->rank_count) - 1;

		if ((group->heard | UINT64_C(1) << shard_of(group, m)) != all)
			return false;
	}
	return true;
}

/* Fix what is new in @m, and make the chunk indexes if this is the last rank. False: nothing has changed. */
SCOUT_ON_LOOP static bool
fix_layouts(struct scout_server *s, struct scout__ns *ns, const struct scout__register_msg *m,
	    const struct scout__layout *layouts, struct refusal *refusal)
{
	struct scout__layout *fixed[SCOUT_MAX_GROUPS];
	uint32_t n_fixed = 0;

	for (uint32_t i = 0; i < m->n_tables; i++) {
		fixed[n_fixed] = layout_of(ns, m, &m->tables[i]);
		if (fixed[n_fixed]->known)
			continue;
		if (!fix_layout(fixed[n_fixed], &m->tables[i], &layouts[i], refusal))
			goto err_forget;
		n_fixed++;
	}
	if (object_bytes(ns) > s->cfg.l1_bytes) {
		(void)refuse(refusal, SCOUT_WIRE_NO_ROOM,
			     "a chunk takes %llu bytes, l1_bytes is %llu: must be that or more",
			     (unsigned long long)object_bytes(ns), (unsigned long long)s->cfg.l1_bytes);
		goto err_forget;
	}
	/* With several groups, each has an extent of its own: see scout__index_belongs(). */
	if (ns->groups.n > 1 && object_bytes(ns) > s->cfg.l1_bytes / 2) {
		(void)refuse(
			refusal, SCOUT_WIRE_NO_ROOM,
			"an object of each of %u groups takes %llu bytes together, l1_bytes is %llu: must be twice that or "
			"more",
			(unsigned)ns->groups.n, (unsigned long long)object_bytes(ns),
			(unsigned long long)s->cfg.l1_bytes);
		goto err_forget;
	}
	if (!ns->complete && is_last(ns, m) && !make_indexes(s, ns, refusal))
		goto err_forget;
	hear(ns, m);
	return true;

err_forget:
	while (n_fixed-- > 0) {
		free(fixed[n_fixed]->plane_bytes);
		memset(fixed[n_fixed], 0, sizeof(*fixed[n_fixed]));
	}
	return false;
}

SCOUT_ON_LOOP static bool
do_register(struct scout_server *s, struct scout__peer *peer, const struct scout__register_msg *m,
	    struct refusal *refusal)
{
	struct scout__ns *ns = peer->ns;
	struct scout__layout layouts[SCOUT_MAX_GROUPS];

	memset(layouts, 0, m->n_tables * sizeof(layouts[0]));
	if (!check_sender(peer, m, refusal))
		return false;
	for (uint32_t i = 0; i < m->n_tables; i++) {
		layouts[i].numa = m->numa;
		if (!measure(ns, &m->tables[i], &layouts[i], refusal))
			return false;
	}
	if (!check_layouts(ns, m, layouts, refusal)) {
		if (!is_alone(s, peer))
			return false;
		(void)scout__writes_drop(s, ns);
		if (ns->n_moving)
			return refuse(refusal, SCOUT_WIRE_LIMIT,
				      "another layout, and %u transfers of L2 that are not over; try again",
				      (unsigned)ns->n_moving);
		if (!start_anew(s, peer))
			return refuse(refusal, SCOUT_WIRE_OK, "sessions have yet to end");
	}
	if (!fix_layouts(s, ns, m, layouts, refusal))
		return false;
	if (peer->rank < 0)
		memset(peer->segments_sent, 0, sizeof(peer->segments_sent));
	peer->rank = (int32_t)m->kv_rank - ns->rank_first;
	peer->reader = m->reader;
	peer->tables = groups_of(m);
	return true;
}

SCOUT_ON_LOOP static void
register_reply(struct scout_server *s, struct scout__peer *peer, const struct scout__register_msg *m, uint64_t corr)
{
	const struct scout__ns *ns = peer->ns;
	struct scout__register_reply reply = {.n_tables = m->n_tables};
	struct scout__writer *w;
	size_t op;

	for (uint32_t i = 0; i < m->n_tables; i++) {
		const struct scout__chunk_index *index = ns->by_group[m->tables[i].group].index;
		uint64_t shard_bytes = layout_of(ns, m, &m->tables[i])->shard_bytes;

		reply.segments += index ? index->extents.n : 0;
		reply.tables[i].shard_bytes = shard_bytes;
		reply.tables[i].slot_stride = scout__slot_stride(shard_bytes);
	}
	w = scout__reply_begin(s, &peer->dest, SCOUT_OP_REGISTER, SCOUT_WIRE_OK, corr,
			       SCOUT__REGISTER_REPLY_BYTES(reply.n_tables), &op);
	if (!w)
		return;
	scout__put_register_reply(w, &reply);
	scout__reply_end(s, &peer->dest, op);
}

SCOUT_ON_LOOP static void
register_step(struct scout_server *s, struct scout__run_item *item)
{
	struct register_op *pending = SCOUT__OWNER(item, struct register_op, op.run);
	struct scout__peer *peer = pending->op.peer;
	struct scout__register_msg m;
	struct refusal refusal;
	const char *field;

	SCOUT_ASSERT(scout__get_register(&pending->msg, &m, &field) == SCOUT_WIRE_OK);
	if (do_register(s, peer, &m, &refusal)) {
		/* What the socket does not take now is sent by the tick; no grant is answered before. */
		(void)scout__segments_deliver(s, peer);
		register_reply(s, peer, &m, pending->op.corr);
		scout__pending_op_free(s, &pending->op);
	} else if (refusal.status) {
		scout__pending_op_refuse(s, &pending->op, refusal.status, "%s", refusal.text);
	} else {
		scout__run_queue_add(s, item);
	}
}

static const struct scout__pending_kind register_kind = {.size = sizeof(struct register_op), .step = register_step};

void
scout__serve_register(struct scout_server *s, struct scout__request *req)
{
	struct register_op *pending;
	struct scout__register_msg m;
	const char *field = "";
	int status = scout__get_register(req->op, &m, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	pending = scout__pending_op_new(s, &register_kind, req->peer, req->packet, req->op, UINT64_MAX);
	if (!pending)
		return;
	pending->msg = *req->op;
	register_step(s, &pending->op.run);
}
