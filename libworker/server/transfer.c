/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

#include <stdlib.h>

#include "tier2.h"

/*
 * DESIGN
 *
 * STORE and RETRIEVE: grants of slots, built slice by slice into a reply that becomes a frame of its own when it is long.
 * What is granted is noted in a hold as it is granted, so cancelling needs nothing but the hold.
 *
 * A grant may be answered only when the worker has the memory: every segment goes out on the lease connection before. Where that
 * socket is full, the finished reply waits (peer.lease_waiters).
 *
 * STORE waits for an extent that is being grown (ns.pool_waiters); when its budget ends, what it has is granted and the rest gets
 * no room. No store evicts what its own session stored or retrieved: a prompt longer than the pool keeps its head.
 *
 * RETRIEVE holds what is there, and waits for what the second tier has: it starts the loads of its whole range, then
 * grants in order, each chunk as it arrives. It waits as long as its budget allows (the worker's transfer_timeout_ms): each load
 * ends by itself, for one that does not get on is late. What has not come when the budget ends is missing. Its hold comes before
 * its promise unit goes, so that nothing can be evicted in between.
 *
 * Threads: loop.
 */

#define HEAD_BYTES (SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + 16)
#define STORE_STEP_US 100u /* a slot that is used for the first time costs several page faults: look at the clock */
#define STORE_SPARES 256u  /* chunks of its own that a step may pass over when it looks for one to evict */
#define SMALL_BYTES 16384u /* shorter replies travel with others */
#define COPY_MARGIN_US UINT64_C(100000) /* a RETRIEVE is answered so long before its budget ends, or an eighth of it */

/* The reply's buffer, and where its slots are noted. False: refused, the task is gone. */
SCOUT_ON_LOOP static bool
begin(struct scout_server *s, struct scout__task *task, uint8_t kind)
{
	size_t bytes = HEAD_BYTES + (size_t)task->n * SCOUT_GRANT_BYTES;

	if (scout__hold_name_taken(s, task->peer, task->corr)) {
		scout__task_refuse(s, task, SCOUT_WIRE_STATE, "this correlation id names a transfer that is not done");
		return false;
	}
	if (s->grant_bytes + bytes > SCOUT__MAX_GRANT_BYTES) {
		scout__task_refuse(s, task, SCOUT_WIRE_LIMIT, "too many chunks are being granted at once");
		return false;
	}
	task->reply.buf = malloc(bytes);
	if (!task->reply.buf) {
		scout__task_refuse(s, task, SCOUT_WIRE_LIMIT, "the server is out of memory");
		return false;
	}
	task->reply.cap = bytes;
	s->grant_bytes += bytes;
	task->hold = scout__hold_new(s, task->peer, kind, task->n, task->corr);
	if (!task->hold) {
		scout__task_refuse(s, task, SCOUT_WIRE_LIMIT, "too many stores and retrieves are not done");
		return false;
	}
	scout__frame_begin(&task->reply);
	task->reply_op = scout__op_begin(&task->reply, task->opcode, SCOUT_KIND_REPLY, SCOUT_WIRE_OK, task->corr, 0);
	scout__put_grants_head(&task->reply, 0, task->n);
	return true;
}

SCOUT_ON_LOOP static void
put_granted(struct scout__task *task, uint32_t entry)
{
	struct scout__hold *hold = task->hold;
	struct scout__place place = scout__bank_place(task->ns->bank, entry, hold->rank);
	struct scout__grant grant = {
		.segment = place.segment,
		.state = SCOUT_GRANT_GRANTED,
		.offset = place.offset,
		.generation = place.generation,
	};

	hold->entries[hold->n++] = entry;
	scout__put_grant(&task->reply, &grant);
}

SCOUT_ON_LOOP static void
put_state(struct scout__task *task, uint16_t state)
{
	struct scout__grant grant = {.state = state};

	scout__put_grant(&task->reply, &grant);
}

/* Short: with the other replies of this turn. Long: as it is. */
SCOUT_ON_LOOP static void
send_reply(struct scout_server *s, struct scout__task *task, uint64_t id)
{
	struct scout__dest *dest = &task->peer->dest;
	struct scout__writer reply = task->reply;
	size_t head = SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES;
	uint8_t opcode = task->opcode;
	uint64_t corr = task->corr;
	struct scout__writer *w;
	size_t op;

	/* From here on the hold is the worker's, and taken back through its id. */
	s->grant_bytes -= reply.cap;
	task->reply = (struct scout__writer){.buf = NULL};
	scout__task_free(s, task);
	if (reply.len > SMALL_BYTES) {
		scout__frame_end(&reply, 1, s->epoch, scout__now_us());
		SCOUT_ASSERT(!reply.bad);
		scout__reply_frame(s, dest, reply.buf, reply.len, opcode, id);
		return;
	}
	w = scout__reply_begin(s, dest, opcode, SCOUT_WIRE_OK, corr, reply.len - head, &op);
	if (w) {
		scout__put_bytes(w, reply.buf + head, reply.len - head);
		scout__reply_end(s, dest, op);
		if (id)
			scout__reply_grants(s, dest, opcode, id, 0);
	} else if (id) {
		scout__hold_undo(s, s->holds[scout__map_get(&s->by_hold, id)]);
	}
	free(reply.buf);
}

SCOUT_ON_LOOP static void
answer(struct scout_server *s, struct scout__task *task)
{
	struct scout__hold *hold = task->hold;
	uint64_t id = 0;

	if (hold->n) {
		if (!task->peer->lease) {
			scout__task_refuse(s, task, SCOUT_WIRE_STATE, "the lease connection is gone");
			return;
		}
		if (!scout__lease_deliver(s, task->peer)) {
			task->state = SCOUT__TASK_LEASE;
			scout__list_add(&task->peer->lease_waiters, &task->waiting);
			return;
		}
		id = hold->id;
		hold->told = true;
	} else {
		scout__hold_undo(s, hold);
	}
	task->hold = NULL;
	scout__patch_u64(&task->reply, task->reply_op + SCOUT_OP_HEADER_BYTES, id ? task->corr : 0);
	scout__op_end(&task->reply, task->reply_op);
	SCOUT_ASSERT(!task->reply.bad);
	send_reply(s, task, id);
}

static const char not_in[] =
	"the namespace was cleared after this worker joined it: the worker neither stores nor loads "
	"until it sends CLEAR itself";

/* What a new weights version or a clear has done to the task. True: it is refused. */
SCOUT_ON_LOOP static bool
is_outdated(struct scout_server *s, struct scout__task *task)
{
	if (task->instance != task->ns->instance)
		scout__task_refuse(s, task, task->ns->ended_by, "%s", scout__ns_ended_text(task->ns));
	else if (!scout__clear_is_in(task->peer))
		scout__task_refuse(s, task, SCOUT_WIRE_CLEARED, "%s", not_in);
	else
		return false;
	return true;
}

/* ---- STORE ---- */

/* @entry is the newest of task.hold: lookups of what is stored here will go the same way. */
SCOUT_ON_LOOP static void
note_order(const struct scout__task *task, uint32_t entry)
{
	const struct scout__hold *hold = task->hold;

	/* Of what was there already, the hold has nothing: then the distance is another one. */
	if (hold->n > SCOUT__AHEAD && hold->n == task->next + 1)
		scout__bank_follows(task->ns->bank, hold->entries[hold->n - 1 - SCOUT__AHEAD], entry);
}

/* One chunk. GRANTED, PRESENT and NO_ROOM are in the reply. */
SCOUT_ON_LOOP static enum scout__reserve
store_one(struct scout_server *s, struct scout__task *task, struct scout__session *session)
{
	struct scout__bank *bank = task->ns->bank;
	const uint8_t *hash = task->hashes + (size_t)task->next * task->ns->hash_bytes;
	enum scout__reserve what = SCOUT__RESERVE_NO_ROOM;
	uint32_t entry = SCOUT__NO_ENTRY;

	if (bank && !task->limited)
		what = scout__bank_reserve_for(bank, task->space, hash, (uint32_t)task->peer->rank, &task->user,
					       &entry);
	if (what == SCOUT__RESERVE_WAIT || what == SCOUT__RESERVE_AGAIN) {
		if (s->now_us < task->deadline_us)
			return what;
		what = SCOUT__RESERVE_NO_ROOM;
	}
	if (what == SCOUT__RESERVE_GRANTED) {
		scout__expected_replaced(s, task->ns, entry, task->hold->rank);
		put_granted(task, entry);
		note_order(task, entry);
	} else if (what == SCOUT__RESERVE_PRESENT) {
		put_state(task, SCOUT_GRANT_PRESENT);
	} else {
		/* The leading ones or none: a chunk without those before it is of no use. */
		task->limited = 1;
		put_state(task, SCOUT_GRANT_NO_ROOM);
	}
	/* Every rank stores the same keys, so one of them speaks for all. */
	if (session && entry != SCOUT__NO_ENTRY && task->peer->rank == 0)
		scout__session_stored(s, session, scout__bank_handle(bank, entry), what == SCOUT__RESERVE_PRESENT);
	/* What this session stores next does not take its slot. */
	if (session && entry != SCOUT__NO_ENTRY)
		scout__bank_used(bank, entry, session->serial);
	task->next++;
	return what;
}

SCOUT_ON_LOOP static void
store_step(struct scout_server *s, struct scout__job *job)
{
	struct scout__task *task = SCOUT__OWNER(job, struct scout__task, job);
	struct scout__session *session = scout__session_find(s, task->ns, task->ticket);
	uint64_t end_us = scout__now_us() + STORE_STEP_US;
	uint32_t left = SCOUT__SLICE_CHUNKS;

	scout__list_del(&task->waiting);
	scout__timer_clear(s, task);
	if (scout__records_wait(s, task) || is_outdated(s, task))
		return;
	task->user.spares = STORE_SPARES;
	for (; left && task->next < task->n; left--) {
		enum scout__reserve what;

		if (left % 16 == 0 && scout__now_us() >= end_us)
			break;
		what = store_one(s, task, session);
		if (what == SCOUT__RESERVE_AGAIN)
			break;
		if (what != SCOUT__RESERVE_WAIT)
			continue;
		task->state = SCOUT__TASK_POOL;
		scout__list_add(&task->ns->pool_waiters, &task->waiting);
		scout__timer_set(s, task, task->deadline_us);
		return;
	}
	if (task->next < task->n)
		scout__job_queue(s, job);
	else
		answer(s, task);
}

/* What both operations need. */
SCOUT_ON_LOOP static bool
may_transfer(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op)
{
	const char *name = scout__op_name(op->opcode);

	if (peer->role != SCOUT_ROLE_WORKER)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_ROLE, "%s is for workers", name);
	else if (!peer->lease)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_STATE, "%s: no lease connection", name);
	else if (peer->rank < 0)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_STATE, "%s: REGISTER first", name);
	else if (!scout__peer_weights_fit(s, peer, op))
		return false; /* before what a CLEAR ended: with the right weights it is in */
	else if (!scout__clear_is_in(peer))
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_CLEARED, "%s", not_in);
	else
		return true;
	return false;
}

void
scout__store(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet, const struct scout__op *op,
	     uint64_t deadline_us)
{
	struct scout__session *session;
	struct scout__store_msg m;
	struct scout__task *task;
	const char *field = "";
	uint16_t refusal;
	uint32_t space;
	int status = scout__get_store(op, peer->ns->hash_bytes, &m, &field);

	if (status) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, (uint16_t)status, "STORE: %s is wrong", field);
		return;
	}
	if (!may_transfer(s, peer, op))
		return;
	refusal = m.ticket ? scout__outdated_has(s, peer->ns, m.ticket) : SCOUT_WIRE_OK;
	if (refusal) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, refusal,
			      refusal == SCOUT_WIRE_CLEARED
				      ? "a clear ended the session of this ticket: what it computed is of before"
				      : "the session of this ticket was of older weights: what it computed is, too");
		return;
	}
	space = scout__ns_space_make(s, peer->ns, &m.tenant, m.group);
	if (!space) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_LIMIT,
			      "no room for one more tenant, there are %u", (unsigned)peer->ns->n_spaces);
		return;
	}
	task = scout__task_new(s, peer, packet, op, deadline_us);
	if (!task)
		return;
	task->job.step = store_step;
	task->ticket = m.ticket;
	task->hashes = m.hashes;
	task->n = m.n;
	task->space = space;
	session = scout__session_find(s, peer->ns, m.ticket);
	if (session && peer->ns->bank)
		task->user = scout__bank_user(peer->ns->bank, session->serial);
	if (begin(s, task, SCOUT__HOLD_WRITE))
		scout__job_start(s, &task->job, task->n);
}

/* ---- RETRIEVE ---- */

/* What the session has of chunk @i, if it is still there; else entry NO_ENTRY. */
SCOUT_ON_LOOP static struct scout__handle
handle_of(const struct scout__task *task, const struct scout__session *session, uint32_t i)
{
	struct scout__handle handle = {SCOUT__NO_ENTRY, 0};

	if (session && i < session->hit)
		handle = session->handles[i];
	if (handle.entry != SCOUT__NO_ENTRY && !scout__bank_valid(task->ns->bank, handle))
		handle.entry = SCOUT__NO_ENTRY;
	return handle;
}

/* It is not readable. Whether it may be soon: it is loaded, or stored by a worker after the lookup found it elsewhere. */
SCOUT_ON_LOOP static bool
may_come(const struct scout__task *task, uint32_t entry)
{
	const struct scout__expected *x = scout__expected_of(task->ns, entry);
	uint32_t rank = task->hold->rank;

	if (!x || task->ns->bank->entries[entry].spoiled)
		return false;
	switch (scout__bank_state(task->ns->bank, entry, rank)) {
	case SCOUT__SHARD_EXPECTED:
		return x->shards[rank].load;
	case SCOUT__SHARD_LOADING:
		return true;
	case SCOUT__SHARD_WRITING:
		return !x->shards[rank].load; /* else it is late */
	default:
		return false;
	}
}

/* One chunk. False: it has to wait. */
SCOUT_ON_LOOP static bool
retrieve_one(struct scout_server *s, struct scout__task *task, struct scout__session *session)
{
	struct scout__bank *bank = task->ns->bank;
	struct scout__handle handle = handle_of(task, session, task->next);
	uint32_t rank = task->hold->rank;

	if (handle.entry == SCOUT__NO_ENTRY || !scout__bank_hold(bank, handle.entry, rank)) {
		if (handle.entry != SCOUT__NO_ENTRY && s->now_us < task->wait_end_us && may_come(task, handle.entry)) {
			scout__chunk_wait(task, bank->entries[handle.entry].hash);
			scout__timer_set(s, task, task->wait_end_us);
			return false;
		}
		put_state(task, SCOUT_GRANT_MISSING);
		task->next++;
		return true;
	}
	scout__session_use(s, session, task->next++, rank * bank->readers + task->peer->reader);
	scout__bank_used(bank, handle.entry, session->serial);
	put_granted(task, handle.entry);
	return true;
}

/* See that the chunks of the range are loaded. Returns how many it looked at. */
SCOUT_ON_LOOP static uint32_t
start_loads(struct scout_server *s, struct scout__task *task, const struct scout__session *session, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n && task->load_next < task->to; i++, task->load_next++) {
		struct scout__handle handle = handle_of(task, session, task->load_next);

		if (handle.entry != SCOUT__NO_ENTRY)
			scout__load_want(s, task->ns, handle.entry, task->hold->rank);
	}
	return i;
}

SCOUT_ON_LOOP static void
retrieve_step(struct scout_server *s, struct scout__job *job)
{
	struct scout__task *task = SCOUT__OWNER(job, struct scout__task, job);
	struct scout__session *session = scout__session_find(s, task->ns, task->ticket);
	uint32_t left = SCOUT__SLICE_CHUNKS;

	scout__list_del(&task->waiting);
	scout__timer_clear(s, task);
	if (scout__records_wait(s, task) || is_outdated(s, task))
		return;
	/* A session that ends meanwhile takes its list with it: the rest is missing. */
	if (session && session->serial != task->serial)
		session = NULL;
	if (task->ns->expected)
		left -= start_loads(s, task, session, left);
	for (; left && task->next < task->to; left--)
		if (!retrieve_one(s, task, session))
			return;
	if (task->next < task->to)
		scout__job_queue(s, job);
	else
		answer(s, task);
}

/* Until when loads are waited for: what has come by then is to be copied before the job's time is over. */
static uint64_t
load_wait_end(const struct scout__task *task)
{
	uint64_t margin_us = (task->deadline_us - task->arrived_us) / 8;

	if (task->deadline_us == UINT64_MAX)
		return UINT64_MAX;
	return task->deadline_us - (margin_us < COPY_MARGIN_US ? margin_us : COPY_MARGIN_US);
}

/* The session that @m names, if it may be retrieved from. */
SCOUT_ON_LOOP static struct scout__session *
session_of(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op,
	   const struct scout__retrieve_msg *m)
{
	struct scout__session *session = scout__session_find(s, peer->ns, m->ticket);

	if (session && session->lookup && session->lookup->renews)
		scout__lookup_cut(s, session->lookup);
	if (!session)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_NO_SESSION,
			      "no session has this ticket");
	else if (session->lookup)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_STATE, "the lookup is not answered yet");
	else if (m->to > session->n)
		scout__refuse(s, &peer->dest, op->opcode, op->corr, SCOUT_WIRE_RANGE,
			      "chunks %u to %u of a lookup of %u", (unsigned)m->from, (unsigned)m->to,
			      (unsigned)session->n);
	else
		return session;
	return NULL;
}

void
scout__retrieve(struct scout_server *s, struct scout__peer *peer, struct scout__packet *packet,
		const struct scout__op *op, uint64_t deadline_us)
{
	struct scout__session *session;
	struct scout__retrieve_msg m;
	struct scout__task *task;
	const char *field = "";
	int status = scout__get_retrieve(op, &m, &field);

	if (status) {
		scout__refuse(s, &peer->dest, op->opcode, op->corr, (uint16_t)status, "RETRIEVE: %s is wrong", field);
		return;
	}
	if (!may_transfer(s, peer, op))
		return;
	session = session_of(s, peer, op, &m);
	if (!session)
		return;
	task = scout__task_new(s, peer, packet, op, deadline_us);
	if (!task)
		return;
	task->job.step = retrieve_step;
	task->ticket = m.ticket;
	task->serial = session->serial;
	task->next = task->load_next = m.from;
	task->to = m.to;
	task->n = m.to - m.from;
	task->wait_end_us = load_wait_end(task);
	if (begin(s, task, SCOUT__HOLD_READ))
		scout__job_start(s, &task->job, task->n);
}
