/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of what a client sends and gets: LOOKUP, ADMIT, FINISH, RESET, CLEAR. See msg_internal.h. Any thread. */
#include "msg_internal.h"

void
scout__put_lookup(struct scout__writer *w, const struct scout__lookup_msg *m, unsigned hash_bytes)
{
	scout__put_u64(w, m->ticket);
	scout__put_u32(w, m->n);
	scout__put_u32(w, m->first);
	scout__put_u32(w, m->beyond);
	scout__put_u32(w, m->skip);
	scout__put_u32(w, m->expect);
	scout__put_u32(w, m->poll_timeout_ms);
	scout__put_u32(w, m->poll_interval_ms);
	scout__put_u16(w, m->more);
	scout__put_u16(w, m->flags);
	scout__put_str(w, m->tenant.p, m->tenant.len);
	scout__put_hashes(w, m->hashes, m->n, hash_bytes);
}

static const char *
lookup_bad_field(const struct scout__lookup_msg *m)
{
	uint32_t end = m->first + m->n - m->beyond; /* the longest length that counts */

	if (m->ticket == 0)
		return "ticket";
	if (m->flags & SCOUT_LOOKUP_RENEW && m->flags & SCOUT_LOOKUP_AHEAD)
		return "flags";
	if (m->skip < m->first || m->skip > end || (m->skip != m->first && m->flags & SCOUT_LOOKUP_AHEAD))
		return "skip";
	if (m->expect > end || (m->expect && m->flags & SCOUT_LOOKUP_RENEW))
		return "expect";
	if (m->poll_timeout_ms > SCOUT_MAX_POLL_MS)
		return "poll_timeout_ms";
	if (m->more >= SCOUT_MAX_LENGTHS)
		return "more";
	if (!scout__is_name(&m->tenant))
		return "tenant";
	return NULL;
}

int
scout__get_lookup(const struct scout__op *op, unsigned hash_bytes, struct scout__lookup_msg *ret,
		  const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__lookup_msg m;
	int status;

	m.ticket = scout__get_u64(&r);
	m.n = scout__get_u32(&r);
	m.first = scout__get_u32(&r);
	m.beyond = scout__get_u32(&r);
	m.skip = scout__get_u32(&r);
	m.expect = scout__get_u32(&r);
	m.poll_timeout_ms = scout__get_u32(&r);
	m.poll_interval_ms = scout__get_u32(&r);
	m.more = scout__get_u16(&r);
	m.flags = scout__get_u16(&r);
	scout__get_view(&r, &m.tenant);
	if (!r.bad && !scout__is_chunk_count(m.n))
		return scout__body_fault(SCOUT_WIRE_RANGE, "n", ret_field);
	if (!r.bad && m.first > SCOUT_MAX_CHUNKS - m.n)
		return scout__body_fault(SCOUT_WIRE_RANGE, "first", ret_field);
	if (!r.bad && m.beyond > m.n)
		return scout__body_fault(SCOUT_WIRE_RANGE, "beyond", ret_field);
	m.hashes = scout__get_bytes(&r, (size_t)m.n * hash_bytes);
	status = scout__body_judge(&r, m.flags & ~(unsigned)SCOUT_LOOKUP_FLAGS, lookup_bad_field(&m), ret_field);
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
	scout__put_u32(w, m->n_more);
	scout__put_bytes(w, m->more, (size_t)m->n_more * sizeof(uint32_t));
}

uint32_t
scout__more_at(const struct scout__lookup_reply *m, uint32_t i)
{
	return scout__load_u32(m->more + (size_t)i * sizeof(uint32_t));
}

static const char *
lookup_reply_bad_field(const struct scout__lookup_reply *m)
{
	/* Objects of all groups; with a margin there may be more objects than the hit has. */
	uint32_t most = m->hit ? SCOUT_MAX_GROUPS * SCOUT_MAX_CHUNKS : 0;

	if (m->hit > SCOUT_MAX_CHUNKS)
		return "hit";
	if (m->l1 > most)
		return "l1";
	if (m->l2 > most)
		return "l2";
	if (m->limited > 1)
		return "limited";
	for (uint32_t i = 0, before = m->hit; i < m->n_more; i++) {
		uint32_t length = scout__more_at(m, i);

		if (length == 0 || length >= before)
			return "more";
		before = length;
	}
	return NULL;
}

/* The fields that the reply has with and without AHEAD. The lengths are checked once the reply is complete. */
static int
get_lookup_reply(struct scout__reader *r, struct scout__lookup_reply *ret, const char **ret_field)
{
	ret->hit = scout__get_u32(r);
	ret->l1 = scout__get_u32(r);
	ret->l2 = scout__get_u32(r);
	ret->limited = scout__get_u32(r);
	ret->n_more = scout__get_u32(r);
	if (!r->bad && ret->n_more >= SCOUT_MAX_LENGTHS)
		return scout__body_fault(SCOUT_WIRE_RANGE, "n_more", ret_field);
	ret->more = scout__get_bytes(r, (size_t)ret->n_more * sizeof(uint32_t));
	return SCOUT_WIRE_OK;
}

int
scout__get_lookup_reply(const struct scout__op *op, struct scout__lookup_reply *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__lookup_reply m;
	int status = get_lookup_reply(&r, &m, ret_field);

	if (status != SCOUT_WIRE_OK)
		return status;
	status = scout__body_judge(&r, 0, r.bad ? NULL : lookup_reply_bad_field(&m), ret_field);
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

/* The part of an AHEAD reply before its bits. @ret_bad: a wrong field of the lookup's part, NULL: none. */
static int
get_ahead_head(struct scout__reader *r, struct scout__lookup_reply *lookup, uint32_t *known, uint32_t *reserved,
	       const char **ret_bad, const char **ret_field)
{
	int status = get_lookup_reply(r, lookup, ret_field);

	if (status != SCOUT_WIRE_OK)
		return status;
	*known = scout__get_u32(r);
	*reserved = scout__get_u32(r);
	*ret_bad = r->bad ? NULL : lookup_reply_bad_field(lookup);
	if (!r->bad && (*known > SCOUT_MAX_CHUNKS || *known < lookup->hit))
		return scout__body_fault(SCOUT_WIRE_RANGE, "known", ret_field);
	return SCOUT_WIRE_OK;
}

int
scout__get_ahead_reply(const struct scout__op *op, struct scout__ahead_reply *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__ahead_reply m;
	const char *bad;
	uint32_t reserved;
	int status = get_ahead_head(&r, &m.lookup, &m.known, &reserved, &bad, ret_field);

	if (status != SCOUT_WIRE_OK)
		return status;
	m.present = scout__get_bytes(&r, ((size_t)m.known + 7) / 8);
	m.in_l2 = scout__get_bytes(&r, ((size_t)m.known + 7) / 8);
	status = scout__body_judge(&r, reserved, bad, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

int
scout__get_ahead_groups(const struct scout__op *op, const struct scout__groups *groups, uint32_t hash_tokens,
			struct scout__ahead_groups *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__ahead_groups m;
	const char *bad;
	uint32_t reserved;
	int status = get_ahead_head(&r, &m.lookup, &m.known, &reserved, &bad, ret_field);

	if (status != SCOUT_WIRE_OK)
		return status;
	for (uint32_t g = 0; g < groups->n; g++) {
		uint64_t n = (uint64_t)m.known * hash_tokens / groups->group[g].unit_tokens;

		m.of[g].n = r.bad ? 0 : (uint32_t)n;
		m.of[g].present = scout__get_bytes(&r, ((size_t)m.of[g].n + 7) / 8);
		m.of[g].in_l2 = scout__get_bytes(&r, ((size_t)m.of[g].n + 7) / 8);
	}
	status = scout__body_judge(&r, reserved, bad, ret_field);
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
	struct scout__reader r = scout__body_of(op);
	struct scout__admit_msg m;
	int status;

	m.ticket = scout__get_u64(&r);
	m.from = scout__get_u32(&r);
	m.to = scout__get_u32(&r);
	status = scout__body_judge(&r, 0, NULL, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_admit_reply(struct scout__writer *w, uint32_t kept)
{
	scout__put_count(w, kept);
}

int
scout__get_admit_reply(const struct scout__op *op, uint32_t *ret_kept, const char **ret_field)
{
	return scout__get_count(op, "kept", ret_kept, ret_field);
}

void
scout__put_finish(struct scout__writer *w, const struct scout__finish_msg *m)
{
	scout__put_u64(w, m->ticket);
	scout__put_u32(w, m->hint);
	scout__put_u32(w, m->keep_ms);
}

int
scout__get_finish(const struct scout__op *op, struct scout__finish_msg *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__finish_msg m;
	int status;

	m.ticket = scout__get_u64(&r);
	m.hint = scout__get_u32(&r);
	m.keep_ms = scout__get_u32(&r);
	status = scout__body_judge(&r, 0, m.hint > SCOUT_FINISH_UNLIKELY ? "hint" : NULL, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_finish_reply(struct scout__writer *w, const struct scout__finish_reply *m)
{
	scout__put_u32(w, m->kept);
	scout__put_u32(w, m->outcome);
}

int
scout__get_finish_reply(const struct scout__op *op, struct scout__finish_reply *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__finish_reply m = {scout__get_u32(&r), 0};
	int status;

	m.outcome = scout__get_u32(&r);
	status = scout__body_judge(&r, 0,
				   m.kept > SCOUT_MAX_CHUNKS        ? "kept"
				   : m.outcome > SCOUT_OUTCOME_LAST ? "outcome"
								    : NULL,
				   ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_one_u64(struct scout__writer *w, uint64_t v)
{
	scout__put_u64(w, v);
}

int
scout__get_one_u64(const struct scout__op *op, uint64_t *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	uint64_t v = scout__get_u64(&r);
	const char *bad_field = NULL;
	int status;

	if (v == 0 && op->opcode == SCOUT_OP_RESET)
		bad_field = "weights";
	if (v == 0 && op->opcode == SCOUT_OP_CLEAR)
		bad_field = "generation";
	status = scout__body_judge(&r, 0, bad_field, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = v;
	return status;
}
