/* SPDX-License-Identifier: Apache-2.0 */
#include "msg.h"

#include "utf8.h"

/*
 * DESIGN
 *
 * One put and one get for each body of <kvscout/protocol.h>. A get reads every field first and judges afterwards, in
 * this order: is the body exactly as long as its fields say ("length"), are the reserved fields 0 ("reserved"), is
 * each field in its range (its name). Only a count that sizes what follows is judged earlier: nothing is measured
 * with a wrong one. The result is written only if all of that holds, so a caller never sees half a message. What
 * depends on the server's state - whether a ticket lives, whether a KV rank is held here - is judged by the server.
 *
 * A put writes what it is given; ranges are the receiver's business. Running out of room latches in the writer.
 *
 * Rejected: a table of field descriptions with one interpreter. The code would be shorter, but the compiler could no
 * longer see the types, and a third of the bodies have arrays whose length depends on another field.
 *
 * Threads: none. Everything here works on the caller's memory.
 */

static struct scout__reader
body_of(const struct scout__op *op)
{
	return scout__reader(op->body, op->length);
}

static void
get_view(struct scout__reader *r, struct scout__str *str)
{
	str->p = scout__get_str(r, &str->len);
}

static int
fault(int status, const char *field, const char **ret_field)
{
	*ret_field = field;
	return status;
}

/* The end of every get: @bad_field is the name of a field outside its range, or NULL. */
static int
judge(const struct scout__reader *r, uint32_t reserved, const char *bad_field, const char **ret_field)
{
	if (!scout__reader_done(r))
		return fault(SCOUT_WIRE_BAD_BODY, "length", ret_field);
	if (reserved != 0)
		return fault(SCOUT_WIRE_BAD_BODY, "reserved", ret_field);
	if (bad_field)
		return fault(SCOUT_WIRE_RANGE, bad_field, ret_field);
	return SCOUT_WIRE_OK;
}

static bool
is_name(const struct scout__str *str)
{
	return str->len <= SCOUT_MAX_NAME && scout__utf8_is_name(str->p, str->len);
}

void
scout__put_text(struct scout__writer *w, const char *text)
{
	scout__put_str(w, text, strlen(text));
}

int
scout__get_text(const struct scout__op *op, struct scout__str *ret_text)
{
	struct scout__reader r = body_of(op);
	struct scout__str text;
	const char *field;
	int status;

	get_view(&r, &text);
	status = judge(&r, 0, NULL, &field);
	if (status == SCOUT_WIRE_OK)
		*ret_text = text;
	return status;
}

static void
put_clear_state(struct scout__writer *w, const struct scout__clear_state *m)
{
	scout__put_u64(w, m->joined);
	scout__put_u64(w, m->generation);
	scout__put_u64(w, m->cleared);
}

static void
get_clear_state(struct scout__reader *r, struct scout__clear_state *ret)
{
	ret->joined = scout__get_u64(r);
	ret->generation = scout__get_u64(r);
	ret->cleared = scout__get_u64(r);
}

/* The field that is wrong, or NULL. */
static const char *
clear_state_bad_field(const struct scout__clear_state *m, uint64_t max)
{
	if (m->joined > max)
		return "joined";
	if ((m->generation == 0) != (m->cleared == 0) || m->generation == SCOUT_GENERATION_ANY)
		return "generation";
	if (m->cleared > max)
		return "cleared";
	return NULL;
}

void
scout__put_hello(struct scout__writer *w, const struct scout__hello *m)
{
	scout__put_u64(w, m->token);
	scout__put_u16(w, m->role);
	scout__put_u16(w, m->hash_bytes);
	scout__put_u32(w, m->chunk_tokens);
	scout__put_u16(w, m->rank_first);
	scout__put_u16(w, m->rank_count);
	scout__put_u16(w, m->kv_ranks);
	scout__put_u16(w, m->readers);
	scout__put_u32(w, m->heartbeat_ms);
	scout__put_u32(w, 0);
	scout__put_u64(w, m->weights);
	put_clear_state(w, &m->clear);
	scout__put_str(w, m->name_space.p, m->name_space.len);
}

static const char *
hello_bad_field(const struct scout__hello *m)
{
	if (m->token == 0)
		return "token";
	if (m->role != SCOUT_ROLE_CLIENT && m->role != SCOUT_ROLE_WORKER)
		return "role";
	if (m->hash_bytes < SCOUT_MIN_HASH || m->hash_bytes > SCOUT_MAX_HASH)
		return "hash_bytes";
	if (m->chunk_tokens == 0)
		return "chunk_tokens";
	if (m->kv_ranks == 0 || m->kv_ranks > SCOUT_MAX_RANKS)
		return "kv_ranks";
	if (m->rank_count == 0 || m->rank_count > m->kv_ranks)
		return "rank_count";
	if (m->rank_first > m->kv_ranks - m->rank_count)
		return "rank_first";
	if (m->readers == 0 || m->readers > SCOUT_MAX_READERS)
		return "readers";
	if (m->name_space.len == 0 || !is_name(&m->name_space))
		return "namespace";
	return clear_state_bad_field(&m->clear, SCOUT_MAX_HEARD_STAMP);
}

int
scout__get_hello(const struct scout__op *op, struct scout__hello *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__hello m;
	uint32_t reserved;
	int status;

	m.token = scout__get_u64(&r);
	m.role = scout__get_u16(&r);
	m.hash_bytes = scout__get_u16(&r);
	m.chunk_tokens = scout__get_u32(&r);
	m.rank_first = scout__get_u16(&r);
	m.rank_count = scout__get_u16(&r);
	m.kv_ranks = scout__get_u16(&r);
	m.readers = scout__get_u16(&r);
	m.heartbeat_ms = scout__get_u32(&r);
	reserved = scout__get_u32(&r);
	m.weights = scout__get_u64(&r);
	get_clear_state(&r, &m.clear);
	get_view(&r, &m.name_space);
	status = judge(&r, reserved, hello_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_hello_reply(struct scout__writer *w, const struct scout__hello_reply *m)
{
	scout__put_u32(w, m->credits);
	scout__put_u32(w, m->max_frame);
	scout__put_u64(w, m->weights);
	put_clear_state(w, &m->clear);
	scout__put_str(w, m->software.p, m->software.len);
	scout__put_str(w, m->lease_path.p, m->lease_path.len);
}

int
scout__get_hello_reply(const struct scout__op *op, struct scout__hello_reply *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__hello_reply m;
	int status;

	m.credits = scout__get_u32(&r);
	m.max_frame = scout__get_u32(&r);
	m.weights = scout__get_u64(&r);
	get_clear_state(&r, &m.clear);
	get_view(&r, &m.software);
	get_view(&r, &m.lease_path);
	status = judge(&r, 0, clear_state_bad_field(&m.clear, SCOUT_MAX_STAMP), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

static bool
is_chunk_count(uint32_t n)
{
	return n >= 1 && n <= SCOUT_MAX_CHUNKS;
}

static void
put_hashes(struct scout__writer *w, const uint8_t *hashes, uint32_t n, unsigned hash_bytes)
{
	if (hashes)
		scout__put_bytes(w, hashes, (size_t)n * hash_bytes);
}

void
scout__put_lookup(struct scout__writer *w, const struct scout__lookup_msg *m, unsigned hash_bytes)
{
	scout__put_u64(w, m->ticket);
	scout__put_u32(w, m->n);
	scout__put_u32(w, m->skip);
	scout__put_u32(w, m->expect);
	scout__put_u32(w, m->poll_timeout_ms);
	scout__put_u32(w, m->poll_interval_ms);
	scout__put_u16(w, m->group);
	scout__put_u16(w, m->flags);
	scout__put_str(w, m->tenant.p, m->tenant.len);
	put_hashes(w, m->hashes, m->n, hash_bytes);
}

static const char *
lookup_bad_field(const struct scout__lookup_msg *m)
{
	if (m->ticket == 0)
		return "ticket";
	if (m->flags == (SCOUT_LOOKUP_RENEW | SCOUT_LOOKUP_AHEAD))
		return "flags";
	if (m->skip > m->n || (m->skip && m->flags & SCOUT_LOOKUP_AHEAD))
		return "skip";
	if (m->expect > m->n || (m->expect && m->flags & SCOUT_LOOKUP_RENEW))
		return "expect";
	if (m->group != 0)
		return "group";
	if (!is_name(&m->tenant))
		return "tenant";
	return NULL;
}

int
scout__get_lookup(const struct scout__op *op, unsigned hash_bytes, struct scout__lookup_msg *ret,
		  const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__lookup_msg m;
	int status;

	m.ticket = scout__get_u64(&r);
	m.n = scout__get_u32(&r);
	m.skip = scout__get_u32(&r);
	m.expect = scout__get_u32(&r);
	m.poll_timeout_ms = scout__get_u32(&r);
	m.poll_interval_ms = scout__get_u32(&r);
	m.group = scout__get_u16(&r);
	m.flags = scout__get_u16(&r);
	get_view(&r, &m.tenant);
	if (!r.bad && !is_chunk_count(m.n))
		return fault(SCOUT_WIRE_RANGE, "n", ret_field);
	m.hashes = scout__get_bytes(&r, (size_t)m.n * hash_bytes);
	status = judge(&r, m.flags & ~(unsigned)SCOUT_LOOKUP_FLAGS, lookup_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_lookup_reply(struct scout__writer *w, const struct scout__lookup_reply *m)
{
	scout__put_u32(w, m->hit);
	scout__put_u32(w, m->l1);
	scout__put_u32(w, m->l2);
	scout__put_u32(w, m->limited);
}

static const char *
lookup_reply_bad_field(const struct scout__lookup_reply *m)
{
	if (m->hit > SCOUT_MAX_CHUNKS)
		return "hit";
	if (m->l1 > m->hit)
		return "l1";
	if (m->l2 > m->hit)
		return "l2";
	if (m->limited > 1)
		return "limited";
	return NULL;
}

int
scout__get_lookup_reply(const struct scout__op *op, struct scout__lookup_reply *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__lookup_reply m;
	int status;

	m.hit = scout__get_u32(&r);
	m.l1 = scout__get_u32(&r);
	m.l2 = scout__get_u32(&r);
	m.limited = scout__get_u32(&r);
	status = judge(&r, 0, lookup_reply_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_ahead_reply(struct scout__writer *w, const struct scout__ahead_reply *m)
{
	size_t bytes = ((size_t)m->known + 7) / 8;

	scout__put_lookup_reply(w, &m->lookup);
	scout__put_u32(w, m->known);
	scout__put_u32(w, 0);
	scout__put_bytes(w, m->present, bytes);
	scout__put_bytes(w, m->in_l2, bytes);
}

int
scout__get_ahead_reply(const struct scout__op *op, struct scout__ahead_reply *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__ahead_reply m;
	const char *bad;
	uint32_t reserved;
	int status;

	m.lookup.hit = scout__get_u32(&r);
	m.lookup.l1 = scout__get_u32(&r);
	m.lookup.l2 = scout__get_u32(&r);
	m.lookup.limited = scout__get_u32(&r);
	m.known = scout__get_u32(&r);
	reserved = scout__get_u32(&r);
	bad = lookup_reply_bad_field(&m.lookup);
	if (!r.bad && (m.known > SCOUT_MAX_CHUNKS || m.known < m.lookup.hit))
		return fault(SCOUT_WIRE_RANGE, "known", ret_field);
	m.present = scout__get_bytes(&r, ((size_t)m.known + 7) / 8);
	m.in_l2 = scout__get_bytes(&r, ((size_t)m.known + 7) / 8);
	status = judge(&r, reserved, bad, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_admit(struct scout__writer *w, const struct scout__admit_msg *m)
{
	scout__put_u64(w, m->ticket);
	scout__put_u32(w, m->from);
	scout__put_u32(w, m->to);
}

int
scout__get_admit(const struct scout__op *op, struct scout__admit_msg *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__admit_msg m;
	int status;

	m.ticket = scout__get_u64(&r);
	m.from = scout__get_u32(&r);
	m.to = scout__get_u32(&r);
	status = judge(&r, 0, NULL, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

/* The replies that are a count of chunks and a reserved word. */
static void
put_count(struct scout__writer *w, uint32_t n)
{
	scout__put_u32(w, n);
	scout__put_u32(w, 0);
}

static int
get_count(const struct scout__op *op, const char *name, uint32_t *ret_n, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	uint32_t n = scout__get_u32(&r);
	uint32_t reserved = scout__get_u32(&r);
	int status = judge(&r, reserved, n > SCOUT_MAX_CHUNKS ? name : NULL, ret_field);

	if (status == SCOUT_WIRE_OK)
		*ret_n = n;
	return status;
}

void
scout__put_admit_reply(struct scout__writer *w, uint32_t kept)
{
	put_count(w, kept);
}

int
scout__get_admit_reply(const struct scout__op *op, uint32_t *ret_kept, const char **ret_field)
{
	return get_count(op, "kept", ret_kept, ret_field);
}

void
scout__put_one_u64(struct scout__writer *w, uint64_t v)
{
	scout__put_u64(w, v);
}

int
scout__get_one_u64(const struct scout__op *op, uint64_t *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	uint64_t v = scout__get_u64(&r);
	const char *bad_field = NULL;
	int status;

	if (v == 0 && op->opcode == SCOUT_OP_RESET)
		bad_field = "weights";
	if (v == 0 && op->opcode == SCOUT_OP_CLEAR)
		bad_field = "generation";
	status = judge(&r, 0, bad_field, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = v;
	return status;
}

void
scout__put_clear_reply(struct scout__writer *w, const struct scout__clear_reply *m)
{
	put_clear_state(w, &m->clear);
	scout__put_u32(w, m->stores);
	scout__put_u32(w, m->pending);
}

int
scout__get_clear_reply(const struct scout__op *op, struct scout__clear_reply *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__clear_reply m;
	const char *bad_field;
	int status;

	get_clear_state(&r, &m.clear);
	m.stores = scout__get_u32(&r);
	m.pending = scout__get_u32(&r);
	bad_field = clear_state_bad_field(&m.clear, SCOUT_MAX_STAMP);
	if (!bad_field && m.pending > m.stores)
		bad_field = "pending";
	status = judge(&r, 0, bad_field, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

int
scout__get_empty(const struct scout__op *op, const char **ret_field)
{
	struct scout__reader r = body_of(op);

	return judge(&r, 0, NULL, ret_field);
}

void
scout__put_register(struct scout__writer *w, const struct scout__register_msg *m, const uint64_t *plane_bytes)
{
	scout__put_u16(w, m->kv_rank);
	scout__put_u16(w, m->reader);
	scout__put_u32(w, m->block_tokens);
	scout__put_u16(w, m->dtype);
	scout__put_u16(w, m->numa);
	scout__put_u32(w, m->n_planes);
	for (uint32_t i = 0; i < m->n_planes; i++)
		scout__put_u64(w, plane_bytes[i]);
}

static const char *
register_bad_field(const struct scout__register_msg *m)
{
	if (m->kv_rank >= SCOUT_MAX_RANKS)
		return "kv_rank";
	if (m->reader >= SCOUT_MAX_READERS)
		return "reader";
	if (m->block_tokens == 0)
		return "block_tokens";
	if (m->dtype > SCOUT_DTYPE_LAST)
		return "dtype";
	return NULL;
}

int
scout__get_register(const struct scout__op *op, struct scout__register_msg *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__register_msg m;
	int status;

	m.kv_rank = scout__get_u16(&r);
	m.reader = scout__get_u16(&r);
	m.block_tokens = scout__get_u32(&r);
	m.dtype = scout__get_u16(&r);
	m.numa = scout__get_u16(&r);
	m.n_planes = scout__get_u32(&r);
	if (!r.bad && (m.n_planes == 0 || m.n_planes > SCOUT_MAX_PLANES))
		return fault(SCOUT_WIRE_RANGE, "n_planes", ret_field);
	m.plane_bytes = scout__get_bytes(&r, (size_t)m.n_planes * sizeof(uint64_t));
	status = judge(&r, 0, register_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

uint64_t
scout__plane_bytes(const struct scout__register_msg *m, uint32_t plane)
{
	return scout__load_u64(m->plane_bytes + (size_t)plane * sizeof(uint64_t));
}

void
scout__put_register_reply(struct scout__writer *w, const struct scout__register_reply *m)
{
	scout__put_u64(w, m->shard_bytes);
	scout__put_u64(w, m->slot_stride);
	scout__put_u32(w, m->segments);
	scout__put_u32(w, 0);
}

int
scout__get_register_reply(const struct scout__op *op, struct scout__register_reply *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__register_reply m;
	uint32_t reserved;
	int status;

	m.shard_bytes = scout__get_u64(&r);
	m.slot_stride = scout__get_u64(&r);
	m.segments = scout__get_u32(&r);
	reserved = scout__get_u32(&r);
	status = judge(&r, reserved, NULL, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_store(struct scout__writer *w, const struct scout__store_msg *m, unsigned hash_bytes)
{
	scout__put_u64(w, m->ticket);
	scout__put_u32(w, m->n);
	scout__put_u16(w, m->group);
	scout__put_u16(w, 0);
	scout__put_str(w, m->tenant.p, m->tenant.len);
	put_hashes(w, m->hashes, m->n, hash_bytes);
}

static const char *
store_bad_field(const struct scout__store_msg *m)
{
	if (m->group != 0)
		return "group";
	if (!is_name(&m->tenant))
		return "tenant";
	return NULL;
}

int
scout__get_store(const struct scout__op *op, unsigned hash_bytes, struct scout__store_msg *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__store_msg m;
	uint16_t reserved;
	int status;

	m.ticket = scout__get_u64(&r);
	m.n = scout__get_u32(&r);
	m.group = scout__get_u16(&r);
	reserved = scout__get_u16(&r);
	get_view(&r, &m.tenant);
	if (!r.bad && !is_chunk_count(m.n))
		return fault(SCOUT_WIRE_RANGE, "n", ret_field);
	m.hashes = scout__get_bytes(&r, (size_t)m.n * hash_bytes);
	status = judge(&r, reserved, store_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_grant(struct scout__writer *w, const struct scout__grant *g)
{
	scout__put_u32(w, g->segment);
	scout__put_u16(w, g->state);
	scout__put_u16(w, 0);
	scout__put_u64(w, g->offset);
	scout__put_u64(w, g->generation);
}

void
scout__put_grants_head(struct scout__writer *w, uint64_t id, uint32_t n)
{
	scout__put_u64(w, id);
	scout__put_u32(w, n);
	scout__put_u32(w, 0);
}

static struct scout__grant
get_grant(struct scout__reader *r, uint32_t *reserved)
{
	struct scout__grant g;

	g.segment = scout__get_u32(r);
	g.state = scout__get_u16(r);
	*reserved |= scout__get_u16(r);
	g.offset = scout__get_u64(r);
	g.generation = scout__get_u64(r);
	return g;
}

/* A state that this version does not know may use the fields as it likes: see scout__grant_at(). */
static const char *
grant_bad_field(const struct scout__grant *g)
{
	if (g->state != SCOUT_GRANT_PRESENT && g->state != SCOUT_GRANT_NO_ROOM && g->state != SCOUT_GRANT_MISSING)
		return NULL;
	if (g->segment != 0)
		return "segment";
	if (g->offset != 0)
		return "offset";
	return g->generation != 0 ? "generation" : NULL;
}

int
scout__get_grants(const struct scout__op *op, struct scout__grants *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op), grants;
	const char *bad_field = NULL;
	struct scout__grants m;
	uint32_t reserved;
	int status;

	m.id = scout__get_u64(&r);
	m.n = scout__get_u32(&r);
	reserved = scout__get_u32(&r);
	if (!r.bad && m.n > SCOUT_MAX_CHUNKS)
		return fault(SCOUT_WIRE_RANGE, "n", ret_field);
	m.grants = scout__get_bytes(&r, (size_t)m.n * SCOUT_GRANT_BYTES);
	grants = scout__reader(m.grants, r.bad ? 0 : (size_t)m.n * SCOUT_GRANT_BYTES);
	while (grants.left > 0 && !bad_field) {
		struct scout__grant g = get_grant(&grants, &reserved);

		bad_field = grant_bad_field(&g);
	}
	status = judge(&r, reserved, bad_field, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

struct scout__grant
scout__grant_at(const struct scout__grants *m, uint32_t i)
{
	struct scout__reader r = scout__reader(m->grants + (size_t)i * SCOUT_GRANT_BYTES, SCOUT_GRANT_BYTES);
	uint32_t reserved = 0;
	struct scout__grant g = get_grant(&r, &reserved);

	if (g.state < SCOUT_GRANT_GRANTED || g.state > SCOUT_GRANT_MISSING)
		return (struct scout__grant){0};
	return g;
}

void
scout__put_store_done(struct scout__writer *w, const struct scout__store_done_msg *m)
{
	scout__put_u64(w, m->store_id);
	scout__put_u32(w, m->n);
	scout__put_u32(w, m->committed);
}

static const char *
store_done_bad_field(const struct scout__store_done_msg *m)
{
	if (m->n != 0 && !is_chunk_count(m->n))
		return "n";
	return m->committed > m->n ? "committed" : NULL;
}

int
scout__get_store_done(const struct scout__op *op, struct scout__store_done_msg *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__store_done_msg m;
	int status;

	m.store_id = scout__get_u64(&r);
	m.n = scout__get_u32(&r);
	m.committed = scout__get_u32(&r);
	status = judge(&r, 0, store_done_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_store_done_reply(struct scout__writer *w, uint32_t readable)
{
	put_count(w, readable);
}

int
scout__get_store_done_reply(const struct scout__op *op, uint32_t *ret_readable, const char **ret_field)
{
	return get_count(op, "readable", ret_readable, ret_field);
}

void
scout__put_retrieve(struct scout__writer *w, const struct scout__retrieve_msg *m)
{
	scout__put_u64(w, m->ticket);
	scout__put_u32(w, m->from);
	scout__put_u32(w, m->to);
}

/* The reply has to - from grants: that must not be negative, nor more than a reply can carry. */
static const char *
retrieve_bad_field(const struct scout__retrieve_msg *m)
{
	if (m->from > m->to)
		return "from";
	return m->to > SCOUT_MAX_CHUNKS ? "to" : NULL;
}

int
scout__get_retrieve(const struct scout__op *op, struct scout__retrieve_msg *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__retrieve_msg m;
	int status;

	m.ticket = scout__get_u64(&r);
	m.from = scout__get_u32(&r);
	m.to = scout__get_u32(&r);
	status = judge(&r, 0, retrieve_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_retrieve_done(struct scout__writer *w, const struct scout__retrieve_done_msg *m)
{
	scout__put_u64(w, m->retrieve_id);
	scout__put_u32(w, m->mismatches);
	scout__put_u32(w, 0);
}

int
scout__get_retrieve_done(const struct scout__op *op, struct scout__retrieve_done_msg *ret, const char **ret_field)
{
	struct scout__reader r = body_of(op);
	struct scout__retrieve_done_msg m;
	uint32_t reserved;
	int status;

	m.retrieve_id = scout__get_u64(&r);
	m.mismatches = scout__get_u32(&r);
	reserved = scout__get_u32(&r);
	status = judge(&r, reserved, NULL, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_status_item(struct scout__writer *w, const char *name, uint64_t value)
{
	scout__put_str(w, name, strlen(name));
	scout__put_u64(w, value);
}

int
scout__get_status(const struct scout__op *op, uint32_t *ret_n, struct scout__reader *ret_items, const char **ret_field)
{
	struct scout__reader r = body_of(op), items;
	uint32_t n = scout__get_u32(&r);
	struct scout__str name;
	uint64_t value;
	uint32_t seen = 0;
	int status;

	items = r;
	/* Every turn consumes bytes or ends, however large n is. */
	while (seen < n && scout__get_status_item(&r, &name, &value))
		seen++;
	if (seen < n)
		r.bad = true;
	status = judge(&r, 0, NULL, ret_field);
	if (status != SCOUT_WIRE_OK)
		return status;
	*ret_n = n;
	*ret_items = items;
	return SCOUT_WIRE_OK;
}

bool
scout__get_status_item(struct scout__reader *items, struct scout__str *ret_name, uint64_t *ret_value)
{
	struct scout__str name;
	uint64_t value;

	if (items->left == 0)
		return false;
	get_view(items, &name);
	value = scout__get_u64(items);
	if (items->bad)
		return false;
	*ret_name = name;
	*ret_value = value;
	return true;
}
