/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of KEYS. See msg_internal.h. Any thread. */
#include "msg_internal.h"

void
scout__put_keys(struct scout__writer *w, const struct scout__keys_msg *m, unsigned hash_bytes)
{
	scout__put_u64(w, m->ticket);
	scout__put_u16(w, m->n_parts);
	scout__put_u16(w, 0);
	scout__put_str(w, m->tenant.p, m->tenant.len);
	for (uint32_t i = 0; i < m->n_parts; i++) {
		scout__put_u16(w, m->parts[i].group);
		scout__put_u16(w, 0);
		scout__put_u32(w, m->parts[i].n);
	}
	scout__put_hashes(w, m->hashes, m->n, hash_bytes);
}

/*
 * Reads the parts and their sum. Returns NULL, or the wrong field's name: fields after it cannot be found then.
 */
static const char *
get_parts(struct scout__reader *r, struct scout__keys_msg *m, uint32_t *reserved)
{
	m->n = 0;
	for (uint32_t i = 0; i < m->n_parts && !r->bad; i++) {
		m->parts[i].group = scout__get_u16(r);
		*reserved |= scout__get_u16(r);
		m->parts[i].n = scout__get_u32(r);
		if (r->bad)
			break;
		if (i > 0 && m->parts[i].group <= m->parts[i - 1].group)
			return "group";
		if (m->parts[i].n == 0 || m->parts[i].n > SCOUT_MAX_KEYS - m->n)
			return "n";
		m->n += m->parts[i].n;
	}
	return NULL;
}

int
scout__get_keys(const struct scout__op *op, unsigned hash_bytes, struct scout__keys_msg *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__keys_msg m;
	const char *bad;
	uint32_t reserved;
	int status;

	m.ticket = scout__get_u64(&r);
	m.n_parts = scout__get_u16(&r);
	reserved = scout__get_u16(&r);
	scout__get_view(&r, &m.tenant);
	if (!r.bad && (m.n_parts == 0 || m.n_parts > SCOUT_MAX_GROUPS))
		return scout__body_fault(SCOUT_WIRE_RANGE, "n_parts", ret_field);
	bad = r.bad ? NULL : get_parts(&r, &m, &reserved);
	if (bad)
		return scout__body_fault(SCOUT_WIRE_RANGE, bad, ret_field);
	m.hashes = r.bad ? NULL : scout__get_bytes(&r, (size_t)m.n * hash_bytes);
	if (!r.bad && m.ticket == 0)
		bad = "ticket";
	else if (!r.bad && !scout__is_name(&m.tenant))
		bad = "tenant";
	status = scout__body_judge(&r, reserved, bad, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_keys_reply(struct scout__writer *w, const struct scout__keys_reply *m)
{
	size_t bytes = ((size_t)m->n + 7) / 8;

	scout__put_u32(w, m->n);
	scout__put_u32(w, m->l1);
	scout__put_u32(w, m->l2);
	scout__put_u32(w, m->limited);
	scout__put_bytes(w, m->hit, bytes);
	scout__put_bytes(w, m->later, bytes);
}

static const char *
keys_reply_bad_field(const struct scout__keys_reply *m)
{
	uint32_t n_hits = 0;
	size_t bytes = ((size_t)m->n + 7) / 8;
	unsigned behind = m->n % 8 ? 0xffu << m->n % 8 & 0xffu : 0; /* bits of the last byte that stand for no key */

	for (size_t i = 0; i < bytes; i++) {
		n_hits += (uint32_t)__builtin_popcount(m->hit[i]);
		if (m->hit[i] & m->later[i])
			return "later";
	}
	if (m->hit[bytes - 1] & behind)
		return "hits";
	if (m->later[bytes - 1] & behind)
		return "later";
	if (m->l1 > n_hits)
		return "l1";
	if (m->l2 > n_hits - m->l1)
		return "l2";
	return m->limited > 1 ? "limited" : NULL;
}

int
scout__get_keys_reply(const struct scout__op *op, struct scout__keys_reply *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__keys_reply m;
	int status;

	m.n = scout__get_u32(&r);
	m.l1 = scout__get_u32(&r);
	m.l2 = scout__get_u32(&r);
	m.limited = scout__get_u32(&r);
	if (!r.bad && (m.n == 0 || m.n > SCOUT_MAX_KEYS))
		return scout__body_fault(SCOUT_WIRE_RANGE, "n", ret_field);
	m.hit = scout__get_bytes(&r, ((size_t)m.n + 7) / 8);
	m.later = scout__get_bytes(&r, ((size_t)m.n + 7) / 8);
	status = scout__body_judge(&r, 0, r.bad ? NULL : keys_reply_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}
