/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "clears.h"
#include "fetch.h"
#include "ns.h"
#include "pending_op.h"
#include "server_core.h"
#include "state.h"

/*
 * DESIGN
 *
 * The record of a namespace's last clear, in each store: what makes a clear outlive this server, and what other servers
 * on the same store learn of it by. It is read before a namespace first uses a store, and written before a CLEAR is
 * answered.
 *
 *            ┌────────── read: ours, or none and we know of none ──────────┐
 *   UNREAD ──┤                                                              ▼
 *            └─ read: older than ours ─▶ BEHIND ──── written ───────────▶ READY ─── looked at again: newer ──▶ (we learn it)
 *                                          ▲                               │
 *                                          └──── a CLEAR, or one learned ──┘
 *   DAMAGED: there is a record, and it makes no sense. What the store has could be of any generation.
 *
 * Only a READY store is asked, read or written for the namespace. Until each store has answered its first question, or
 * failed, or l2_timeout_ms have passed, LOOKUP, STORE, RETRIEVE and CLEAR wait (scout__records_wait), so that nothing
 * is cached under a generation that turns out to be an old one. After that a store that cannot be reached only is not
 * used.
 *
 * Writes wait in the queue until the records are known, or while one is written; they are not lost over it.
 *
 * A store that could not be read yet is not written either, whatever a peer has told of a clear: the record in it may be a later one.
 *
 * Looking again: about once a second while the namespace has peers, and when a peer says HELLO. A store that has lost
 * the record, or got an older one from a server whose clock is behind, gets ours again. So the records of all servers
 * on one store converge to the latest clear.
 *
 * One operation at a time for each namespace and store; one that hangs blocks only these. Records pass the breakers:
 * they are few, they are what a store that failed is waited for with, and their failures say nothing about objects.
 *
 * The record's name covers the namespace's name alone: an operator clears a namespace that no peer has named since the server's
 * start, and does not know what the first HELLO will fix. So a clear is for all namespaces of that name on the store, whatever
 * their chunks and KV ranks.
 *
 * Two servers that clear at once: the record of the later clear may be overwritten by the earlier one. So a store is looked at again for
 * AGAIN_US after a clear, also without peers, and the later clear is written again.
 *
 * Threads: loop.
 */

#define LOOK_US UINT64_C(1000000)  /* a READY store is looked at again */
#define RETRY_US UINT64_C(1000000) /* after a failure */
#define AGAIN_US UINT64_C(5000000) /* after a clear, a namespace without peers looks again for so long */
#define RECORD_BYTES 96u
#define RECORD_VERSION 1u
#define MAGIC_BYTES 8u

static const uint8_t magic[MAGIC_BYTES] = {'K', 'V', 'S', 'C', 'G', 'E', 'N', '1'};

enum store_state {
	UNREAD = 0,
	READY,
	BEHIND,
	DAMAGED
};

struct record_op {
	struct scout__l2_op op;
	struct scout_server *server;
	struct scout__records *records; /* NULL: the namespace is gone */
	uint32_t store;
	uint64_t generation, cleared; /* written */
	uint64_t late_us;             /* it is not waited for any longer */
	struct scout__l2_digest digest;
	uint8_t found;
	uint8_t bytes[RECORD_BYTES];
};

struct store {
	uint8_t state; /* enum store_state */
	bool tried;    /* the first read is over */
	bool seen;     /* it was read or written: a later clear in it is news */
	bool failed;   /* the last write failed, or hangs */
	bool lost;     /* READY: it has lost our record, which is written again */
	struct record_op *op;
	uint64_t due_us; /* of the next look or try */
};

struct scout__records {
	struct scout__list node; /* in fetch.records */
	struct scout__ns *ns;
	struct scout__l2_digest digest;
	uint64_t changed_us; /* the last clear */
	struct store stores[SCOUT__L2_MAX_ADAPTERS];
};

/* ---- the record ---- */

/*
 * u8[8] magic, u16 version, u16 0, u32 0, u64 generation, u64 cleared, u64 older[7], u64 XXH3-64 of all before.
 * Little-endian.
 */
static void
put_record(uint8_t bytes[RECORD_BYTES], const struct scout__ns *ns)
{
	struct scout__writer w = {.buf = bytes, .cap = RECORD_BYTES};

	scout__put_bytes(&w, magic, MAGIC_BYTES);
	scout__put_u16(&w, RECORD_VERSION);
	scout__put_u16(&w, 0);
	scout__put_u32(&w, 0);
	scout__put_u64(&w, ns->generation);
	scout__put_u64(&w, ns->cleared);
	for (uint32_t i = 0; i < SCOUT__OLD_GENERATIONS; i++)
		scout__put_u64(&w, ns->older[i]);
	scout__put_u64(&w, XXH3_64bits(bytes, w.len));
	SCOUT_ASSERT(!w.bad && w.len == RECORD_BYTES);
}

static bool
get_record(const uint8_t bytes[RECORD_BYTES], uint64_t *ret_generation, uint64_t *ret_cleared,
	   uint64_t ret_older[SCOUT__OLD_GENERATIONS])
{
	struct scout__reader r = scout__reader_of(bytes, RECORD_BYTES);

	if (memcmp(scout__get_bytes(&r, MAGIC_BYTES), magic, MAGIC_BYTES) != 0)
		return false;
	if (XXH3_64bits(bytes, RECORD_BYTES - 8) != scout__load_u64(bytes + RECORD_BYTES - 8))
		return false;
	if (scout__get_u16(&r) != RECORD_VERSION)
		return false;
	(void)scout__get_u16(&r);
	(void)scout__get_u32(&r);
	*ret_generation = scout__get_u64(&r);
	*ret_cleared = scout__get_u64(&r);
	for (uint32_t i = 0; i < SCOUT__OLD_GENERATIONS; i++)
		ret_older[i] = scout__get_u64(&r);
	return *ret_generation && *ret_generation != SCOUT_GENERATION_ANY && *ret_cleared;
}

static struct scout__l2_digest
name_of(const struct scout__ns *ns)
{
	uint8_t buf[64 + SCOUT_MAX_NAME];
	struct scout__writer w = {.buf = buf, .cap = sizeof(buf)};

	scout__put_bytes(&w, magic, MAGIC_BYTES);
	scout__put_str(&w, ns->name, ns->name_len);
	SCOUT_ASSERT(!w.bad);
	return scout__l2_sum(buf, w.len);
}

/* ---- operations ---- */

SCOUT_ON_LOOP static void op_done(void *user, struct scout__l2_op *op);

static bool
is_to_be_written(const struct store *store)
{
	return store->seen && (store->state == BEHIND || store->lost);
}

/* Read the record, or write it if the store is behind. */
SCOUT_ON_LOOP static void
start(struct scout_server *s, struct scout__records *records, uint32_t i)
{
	struct store *store = &records->stores[i];
	struct record_op *r;

	if (store->op || s->fetch->stopping)
		return;
	store->due_us = s->now_us + RETRY_US;
	r = calloc(1, sizeof(*r));
	if (!r) {
		s->count.out_of_memory++;
		store->tried = true;
		store->failed = true;
		return;
	}
	r->server = s;
	r->records = records;
	r->store = i;
	r->digest = records->digest;
	r->late_us = s->now_us + s->fetch->timeout_us;
	r->op = (struct scout__l2_op){
		.what = is_to_be_written(store) ? SCOUT__L2_RECORD_WRITE : SCOUT__L2_RECORD_READ,
		.timeout_us = is_to_be_written(store) ? scout__l2_store_of(s->fetch->l2, i)->write_timeout_us
						      : s->fetch->timeout_us,
		.n = 1,
		.digests = &r->digest,
		.found = &r->found,
		.data = r->bytes,
		.bytes = RECORD_BYTES,
		.done = op_done,
		.user = r,
	};
	if (is_to_be_written(store)) {
		put_record(r->bytes, records->ns);
		r->generation = records->ns->generation;
		r->cleared = records->ns->cleared;
	}
	store->op = r;
	s->fetch->records_at_us = 0;
	scout__l2_submit(s->fetch->l2, i, &r->op, s->now_us);
}

SCOUT_ON_LOOP static void
log_state(struct scout_server *s, const struct scout__records *records, uint32_t i, enum store_state before)
{
	const struct store *store = &records->stores[i];
	const char *name = scout__l2_store_of(s->fetch->l2, i)->name;

	if (store->state == DAMAGED && before != DAMAGED)
		scout__log(
			&s->log, SCOUT_LOG_ERROR,
			"namespace \"%s\": the record of its last clear in %s is damaged: the store is not used for it "
			"until the next clear",
			records->ns->name, name);
	if (store->state == READY && before == BEHIND)
		scout__log(&s->log, SCOUT_LOG_DEBUG, "namespace \"%s\": its last clear is recorded in %s",
			   records->ns->name, name);
}

/* The store has said what it has; all 0: no record. */
SCOUT_ON_LOOP static void
compare(struct scout_server *s, struct scout__records *records, uint32_t i, uint64_t generation, uint64_t cleared,
	const uint64_t *older)
{
	struct scout__ns *ns = records->ns;
	struct store *store = &records->stores[i];

	if (scout__clears_learn(s, ns, generation, cleared, older, scout__records_known(ns))) {
		/* The first time that a store is read, the clear is an old one, whatever a peer has told of an older one. */
		if (store->seen)
			scout__clears_all_out(ns);
		store->state = READY;
		return;
	}
	if (cleared == ns->cleared && generation == ns->generation) {
		store->state = READY;
		return;
	}
	/* op_done() writes it. What a READY store has is ours all the same, and stays in use. */
	store->lost = store->state == READY;
	if (!store->lost)
		store->state = BEHIND;
	store->failed = false;
}

/*
 * A record whose stamp is too far ahead of the clock. The clear itself was carried out, and a clear is answered only when the stores have
 * recorded it: so it is later than every clear before this server's start. It gets the stamp of the start, and the record is written
 * anew. If this server has carried out another clear since its start, the order of the two is unknown: DAMAGED.
 */
SCOUT_ON_LOOP static void
heal(struct scout_server *s, struct scout__records *records, uint32_t i, uint64_t generation, uint64_t days,
     const uint64_t *older)
{
	const struct scout__ns *ns = records->ns;
	struct store *store = &records->stores[i];

	if (ns->generation != generation && ns->cleared >= s->state->first_stamp) {
		store->state = DAMAGED;
		return;
	}
	scout__log(&s->log, SCOUT_LOG_WARN,
		   "namespace \"%s\": the record of its last clear in %s has a time stamp %llu days ahead of this "
		   "server's clock: it is written anew",
		   ns->name, scout__l2_store_of(s->fetch->l2, i)->name, (unsigned long long)days);
	compare(s, records, i, generation, ns->generation == generation ? ns->cleared : s->state->first_stamp, older);
	store->failed = false;
	if (store->state == READY)
		store->lost = true; /* what it has is of this clear: it is used while the record is written */
}

SCOUT_ON_LOOP static void
read_done(struct scout_server *s, struct scout__records *records, struct record_op *r)
{
	struct store *store = &records->stores[r->store];
	enum store_state before = (enum store_state)store->state;
	uint64_t older[SCOUT__OLD_GENERATIONS] = {0};
	uint64_t generation = 0, cleared = 0, days;

	if (r->op.result == SCOUT__L2_OK) {
		if (r->found && !get_record(r->bytes, &generation, &cleared, older)) {
			if (before != BEHIND)
				store->state = DAMAGED;
		} else if ((days = scout__clears_days_ahead(records->ns, cleared)) != 0) {
			heal(s, records, r->store, generation, days, older);
		} else {
			compare(s, records, r->store, generation, cleared, older);
		}
		store->seen = true;
	} else if (before == BEHIND) {
		store->failed = true; /* the write cannot start before a read succeeds: a CLEAR does not wait for it */
	}
	/* Not before: until now nothing was cached, so there was nothing to drop. */
	store->tried = true;
	log_state(s, records, r->store, before);
}

SCOUT_ON_LOOP static void
write_done(struct scout_server *s, struct scout__records *records, struct record_op *r)
{
	struct store *store = &records->stores[r->store];

	store->failed = r->op.result != SCOUT__L2_OK;
	store->lost = false; /* if it could not be written, the next look finds that */
	if (store->failed || store->state != BEHIND)
		return;
	if (r->generation != records->ns->generation || r->cleared != records->ns->cleared)
		return; /* cleared again meanwhile: op_done() writes that */
	store->state = READY;
	store->tried = store->seen = true;
	log_state(s, records, r->store, BEHIND);
}

SCOUT_ON_LOOP static void
op_done(void *user, struct scout__l2_op *op)
{
	struct record_op *r = user;
	struct scout_server *s = r->server;
	struct scout__records *records = r->records;
	struct store *store;

	if (!records) {
		free(r);
		return;
	}
	store = &records->stores[r->store];
	store->due_us = s->now_us + LOOK_US;
	/* As long as it is in store->op, nothing else is started. */
	if (op->what == SCOUT__L2_RECORD_WRITE)
		write_done(s, records, r);
	else
		read_done(s, records, r);
	store->op = NULL;
	if (is_to_be_written(store) && !store->failed)
		start(s, records, r->store);
	free(r);
	s->fetch->records_at_us = 0;
	scout__pending_ops_wake(s, &records->ns->record_waiters);
	scout__writes_go_on(s);
}

/* ---- what the server asks ---- */

void
scout__records_open(struct scout_server *s, struct scout__ns *ns)
{
	struct scout__records *records;
	uint32_t n;

	if (!s->fetch)
		return;
	records = calloc(1, sizeof(*records));
	if (!records) {
		s->count.out_of_memory++;
		scout__log(&s->log, SCOUT_LOG_ERROR, "namespace \"%s\" goes without L2: out of memory", ns->name);
		return;
	}
	records->ns = ns;
	records->digest = name_of(ns);
	ns->records = records;
	scout__list_add(&s->fetch->records, &records->node);
	n = s->fetch->n;
	SCOUT_ASSERT(n <= sizeof(records->stores) / sizeof(records->stores[0]));
	for (uint32_t i = 0; i < n; i++) {
		if (scout__l2_store_of(s->fetch->l2, i)->keeps_records) {
			start(s, records, i);
			continue;
		}
		records->stores[i] = (struct store){.state = READY, .tried = true, .due_us = UINT64_MAX};
	}
}

void
scout__records_close(struct scout__ns *ns)
{
	struct scout__records *records = ns->records;

	if (!records)
		return;
	for (uint32_t i = 0; i < SCOUT__L2_MAX_ADAPTERS; i++)
		if (records->stores[i].op)
			records->stores[i].op->records = NULL;
	scout__list_del(&records->node);
	free(records);
	ns->records = NULL;
}

/* A store without records is as durable as what it holds. */
static bool
keeps(const struct store *store)
{
	return store->due_us != UINT64_MAX;
}

void
scout__records_changed(struct scout_server *s, struct scout__ns *ns)
{
	struct scout__records *records = ns->records;

	if (records)
		records->changed_us = s->now_us;
	for (uint32_t i = 0; records && i < s->fetch->n; i++) {
		struct store *store = &records->stores[i];

		if (!keeps(store))
			continue;
		store->state = BEHIND;
		store->failed = false;
		start(s, records, i);
	}
}

void
scout__records_look(struct scout_server *s, struct scout__ns *ns)
{
	for (uint32_t i = 0; ns->records && i < s->fetch->n; i++)
		if (keeps(&ns->records->stores[i]))
			start(s, ns->records, i);
}

uint8_t
scout__records_stores(const struct scout__ns *ns)
{
	uint8_t stores = 0;

	for (uint32_t i = 0; ns->records && i < SCOUT__L2_MAX_ADAPTERS; i++)
		stores |= (uint8_t)((ns->records->stores[i].state == READY) << i);
	return stores;
}

uint8_t
scout__records_hoped(const struct scout_server *s, const struct scout__ns *ns)
{
	uint8_t stores = 0;

	for (uint32_t i = 0; ns->records && i < s->fetch->n; i++)
		stores |= (uint8_t)((ns->records->stores[i].state != DAMAGED) << i);
	return stores;
}

bool
scout__records_known(const struct scout__ns *ns)
{
	bool known = true;

	for (uint32_t i = 0; ns->records && i < SCOUT__L2_MAX_ADAPTERS; i++)
		known &= ns->records->stores[i].tried || ns->records->stores[i].due_us == 0;
	return known;
}

bool
scout__records_wait(struct scout_server *s, struct scout__pending_op *pending)
{
	uint64_t end_us = scout__pending_op_answer_by(pending);

	if (scout__records_known(pending->ns) || s->now_us >= end_us)
		return false;
	scout__list_add(&pending->ns->record_waiters, &pending->waiting);
	scout__timer_set(s, &pending->run, end_us);
	return true;
}

bool
scout__records_are_written_now(const struct scout__ns *ns)
{
	bool now = false;

	for (uint32_t i = 0; ns->records && i < SCOUT__L2_MAX_ADAPTERS; i++)
		now |= ns->records->stores[i].state == BEHIND && !ns->records->stores[i].failed;
	return now;
}

uint32_t
scout__records_pending(const struct scout_server *s, const struct scout__ns *ns)
{
	return s->fetch ? s->fetch->n - (uint32_t)__builtin_popcount(scout__records_stores(ns)) : 0;
}

/* ---- time ---- */

/* When @store is looked at next by itself; UINT64_MAX: not at all. */
static uint64_t
next_us(const struct scout__records *records, const struct store *store)
{
	if (store->op)
		return store->tried && (store->state != BEHIND || store->failed) ? UINT64_MAX : store->op->late_us;
	return store->state == READY && records->ns->n_peers == 0 && store->due_us > records->changed_us + AGAIN_US
		       ? UINT64_MAX
		       : store->due_us;
}

void
scout__records_tick(struct scout_server *s)
{
	struct scout__fetch *t = s->fetch;

	if (t->records_at_us > s->now_us)
		return;
	t->records_at_us = 0;
	for (struct scout__list *node = t->records.next; node != &t->records; node = node->next) {
		struct scout__records *records = SCOUT__OWNER(node, struct scout__records, node);

		for (uint32_t i = 0; i < t->n; i++) {
			struct store *store = &records->stores[i];

			if (next_us(records, store) > s->now_us)
				continue;
			if (!store->op) {
				start(s, records, i);
				continue;
			}
			/* It hangs: from here on the namespace goes without this store. */
			store->tried = true;
			store->failed = true;
			scout__pending_ops_wake(s, &records->ns->record_waiters);
			scout__writes_go_on(s);
		}
	}
}

uint64_t
scout__records_next_us(const struct scout_server *s)
{
	struct scout__fetch *t = s->fetch;
	uint64_t at_us = UINT64_MAX;

	if (t->records_at_us)
		return t->records_at_us;
	for (struct scout__list *node = t->records.next; node != &t->records; node = node->next) {
		const struct scout__records *records = SCOUT__OWNER(node, struct scout__records, node);

		for (uint32_t i = 0; i < t->n; i++) {
			uint64_t next = next_us(records, &records->stores[i]);

			if (next < at_us)
				at_us = next;
		}
	}
	t->records_at_us = at_us;
	return at_us;
}
