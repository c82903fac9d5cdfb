/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of what a worker sends and gets: REGISTER, STORE, RETRIEVE and their grants. See msg_internal.h. Any thread. */
#include "msg_internal.h"

void
scout__put_register(struct scout__writer *w, const struct scout__register_msg *m)
{
	scout__put_u16(w, m->kv_rank);
	scout__put_u16(w, m->reader);
	scout__put_u16(w, m->numa);
	scout__put_u16(w, m->n_tables);
}

void
scout__put_table(struct scout__writer *w, const struct scout__table_msg *m, const uint64_t *plane_bytes)
{
	scout__put_u16(w, m->group);
	scout__put_u16(w, m->dtype);
	scout__put_u32(w, m->block_tokens);
	scout__put_u32(w, m->n_planes);
	scout__put_str(w, m->layout_tag.p, m->layout_tag.len);
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
	for (uint32_t i = 0; i < m->n_tables; i++) {
		const struct scout__table_msg *table = &m->tables[i];

		if (i > 0 && table->group <= table[-1].group)
			return "group";
		if (table->dtype > SCOUT_DTYPE_LAST)
			return "dtype";
		if (table->block_tokens == 0)
			return "block_tokens";
		if (!scout__is_name(&table->layout_tag))
			return "layout_tag";
	}
	return NULL;
}

/* False: n_planes is out of range, for this table or for all together (@left). */
static bool
get_table(struct scout__reader *r, struct scout__table_msg *ret, uint32_t *left)
{
	ret->group = scout__get_u16(r);
	ret->dtype = scout__get_u16(r);
	ret->block_tokens = scout__get_u32(r);
	ret->n_planes = scout__get_u32(r);
	scout__get_view(r, &ret->layout_tag);
	if (!r->bad && (ret->n_planes == 0 || ret->n_planes > *left))
		return false;
	*left -= r->bad ? 0 : ret->n_planes;
	ret->plane_bytes = scout__get_bytes(r, (size_t)ret->n_planes * sizeof(uint64_t));
	return true;
}

int
scout__get_register(const struct scout__op *op, struct scout__register_msg *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__register_msg m;
	uint32_t left = SCOUT_MAX_PLANES;
	int status;

	m.kv_rank = scout__get_u16(&r);
	m.reader = scout__get_u16(&r);
	m.numa = scout__get_u16(&r);
	m.n_tables = scout__get_u16(&r);
	if (!r.bad && (m.n_tables == 0 || m.n_tables > SCOUT_MAX_GROUPS))
		return scout__body_fault(SCOUT_WIRE_RANGE, "n_tables", ret_field);
	for (uint32_t i = 0; i < m.n_tables && !r.bad; i++)
		if (!get_table(&r, &m.tables[i], &left))
			return scout__body_fault(SCOUT_WIRE_RANGE, "n_planes", ret_field);
	status = scout__body_judge(&r, 0, r.bad ? NULL : register_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

uint64_t
scout__plane_bytes(const struct scout__table_msg *m, uint32_t plane)
{
	return scout__load_u64(m->plane_bytes + (size_t)plane * sizeof(uint64_t));
}

void
scout__put_register_reply(struct scout__writer *w, const struct scout__register_reply *m)
{
	scout__put_u32(w, m->segments);
	scout__put_u16(w, m->n_tables);
	scout__put_u16(w, 0);
	for (uint32_t i = 0; i < m->n_tables; i++) {
		scout__put_u64(w, m->tables[i].shard_bytes);
		scout__put_u64(w, m->tables[i].slot_stride);
	}
}

int
scout__get_register_reply(const struct scout__op *op, struct scout__register_reply *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__register_reply m;
	uint32_t reserved;
	int status;

	m.segments = scout__get_u32(&r);
	m.n_tables = scout__get_u16(&r);
	reserved = scout__get_u16(&r);
	if (!r.bad && (m.n_tables == 0 || m.n_tables > SCOUT_MAX_GROUPS))
		return scout__body_fault(SCOUT_WIRE_RANGE, "n_tables", ret_field);
	for (uint32_t i = 0; i < m.n_tables && !r.bad; i++) {
		m.tables[i].shard_bytes = scout__get_u64(&r);
		m.tables[i].slot_stride = scout__get_u64(&r);
	}
	status = scout__body_judge(&r, reserved, NULL, ret_field);
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
	scout__put_u16(w, m->described ? SCOUT_STORE_DESCRIBED : 0);
	scout__put_str(w, m->tenant.p, m->tenant.len);
	scout__put_hashes(w, m->hashes, m->n, hash_bytes);
}

/* Move @r past @n descriptions. Returns the name of the field that is out of range, or NULL. */
static const char *
read_descriptions(struct scout__reader *r, uint32_t n)
{
	const char *bad = NULL;
	uint16_t len;

	for (uint32_t i = 0; i < n && !r->bad; i++) {
		(void)scout__get_str(r, &len);
		if (len > SCOUT_MAX_DESCRIPTION)
			bad = "description";
	}
	return bad;
}

static const char *
store_bad_field(const struct scout__store_msg *m)
{
	if (!scout__is_name(&m->tenant))
		return "tenant";
	return NULL;
}

int
scout__get_store(const struct scout__op *op, unsigned hash_bytes, struct scout__store_msg *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__store_msg m;
	const char *bad, *bad_description = NULL;
	uint16_t flags;
	int status;

	m.ticket = scout__get_u64(&r);
	m.n = scout__get_u32(&r);
	m.group = scout__get_u16(&r);
	flags = scout__get_u16(&r);
	m.described = flags & SCOUT_STORE_DESCRIBED;
	scout__get_view(&r, &m.tenant);
	if (!r.bad && !scout__is_chunk_count(m.n))
		return scout__body_fault(SCOUT_WIRE_RANGE, "n", ret_field);
	m.hashes = scout__get_bytes(&r, (size_t)m.n * hash_bytes);
	m.descriptions = r;
	if (m.described)
		bad_description = read_descriptions(&r, m.n);
	bad = store_bad_field(&m);
	status = scout__body_judge(&r, flags & ~SCOUT_STORE_DESCRIBED, bad ? bad : bad_description, ret_field);
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
	struct scout__reader r = scout__body_of(op), grants;
	const char *bad_field = NULL;
	struct scout__grants m;
	uint32_t reserved;
	int status;

	m.id = scout__get_u64(&r);
	m.n = scout__get_u32(&r);
	reserved = scout__get_u32(&r);
	if (!r.bad && m.n > SCOUT_MAX_CHUNKS)
		return scout__body_fault(SCOUT_WIRE_RANGE, "n", ret_field);
	m.grants = scout__get_bytes(&r, (size_t)m.n * SCOUT_GRANT_BYTES);
	grants = scout__reader_of(m.grants, r.bad ? 0 : (size_t)m.n * SCOUT_GRANT_BYTES);
	while (grants.left > 0 && !bad_field) {
		struct scout__grant g = get_grant(&grants, &reserved);

		bad_field = grant_bad_field(&g);
	}
	status = scout__body_judge(&r, reserved, bad_field, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

struct scout__grant
scout__grant_at(const struct scout__grants *m, uint32_t i)
{
	struct scout__reader r = scout__reader_of(m->grants + (size_t)i * SCOUT_GRANT_BYTES, SCOUT_GRANT_BYTES);
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
	if (m->n != 0 && !scout__is_chunk_count(m->n))
		return "n";
	return m->committed > m->n ? "committed" : NULL;
}

int
scout__get_store_done(const struct scout__op *op, struct scout__store_done_msg *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__store_done_msg m;
	int status;

	m.store_id = scout__get_u64(&r);
	m.n = scout__get_u32(&r);
	m.committed = scout__get_u32(&r);
	status = scout__body_judge(&r, 0, store_done_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_store_done_reply(struct scout__writer *w, uint32_t readable)
{
	scout__put_count(w, readable);
}

int
scout__get_store_done_reply(const struct scout__op *op, uint32_t *ret_readable, const char **ret_field)
{
	return scout__get_count(op, "readable", ret_readable, ret_field);
}

void
scout__put_retrieve(struct scout__writer *w, const struct scout__retrieve_msg *m)
{
	scout__put_u64(w, m->ticket);
	scout__put_u16(w, m->n_parts);
	scout__put_u16(w, 0);
	for (uint32_t i = 0; i < m->n_parts; i++) {
		scout__put_u16(w, m->parts[i].group);
		scout__put_u16(w, 0);
		scout__put_u32(w, m->parts[i].from);
		scout__put_u32(w, m->parts[i].to);
	}
}

/* The reply has at most one grant for each hash: no part may be negative, and all parts together must fit into a reply. */
static const char *
retrieve_bad_field(const struct scout__retrieve_msg *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->n_parts; i++) {
		if (i > 0 && m->parts[i].group <= m->parts[i - 1].group)
			return "group";
		if (m->parts[i].from > m->parts[i].to)
			return "from";
		if (m->parts[i].to > SCOUT_MAX_CHUNKS)
			return "to";
		n += m->parts[i].to - m->parts[i].from;
		if (n > SCOUT_MAX_CHUNKS)
			return "to";
	}
	return NULL;
}

int
scout__get_retrieve(const struct scout__op *op, struct scout__retrieve_msg *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__retrieve_msg m;
	uint32_t reserved;
	int status;

	m.ticket = scout__get_u64(&r);
	m.n_parts = scout__get_u16(&r);
	reserved = scout__get_u16(&r);
	if (!r.bad && (m.n_parts == 0 || m.n_parts > SCOUT_MAX_GROUPS))
		return scout__body_fault(SCOUT_WIRE_RANGE, "n_parts", ret_field);
	for (uint32_t i = 0; i < m.n_parts && !r.bad; i++) {
		m.parts[i].group = scout__get_u16(&r);
		reserved |= scout__get_u16(&r);
		m.parts[i].from = scout__get_u32(&r);
		m.parts[i].to = scout__get_u32(&r);
	}
	status = scout__body_judge(&r, reserved, r.bad ? NULL : retrieve_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_retrieve_done(struct scout__writer *w, const struct scout__retrieve_done_msg *m)
{
	scout__put_u64(w, m->retrieve_id);
	scout__put_u32(w, m->mismatches);
	scout__put_u32(w, m->n);
	scout__put_bytes(w, m->found, m->n);
}

int
scout__get_retrieve_done(const struct scout__op *op, struct scout__retrieve_done_msg *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__retrieve_done_msg m;
	int status;

	m.retrieve_id = scout__get_u64(&r);
	m.mismatches = scout__get_u32(&r);
	m.n = scout__get_u32(&r);
	m.found = scout__get_bytes(&r, m.n);
	status = scout__body_judge(&r, 0, NULL, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}
