/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of what every peer sends and gets: texts of errors, HELLO, the state of clears, STATUS. See msg_internal.h. Any thread. */
#include "msg_internal.h"

_Static_assert(SCOUT__GROUPS_MAX == SCOUT_MAX_GROUPS, "all groups of the protocol fit");
_Static_assert(SCOUT__POLICY_WINDOW == SCOUT_POLICY_WINDOW && SCOUT__POLICY_LOCAL == SCOUT_POLICY_LOCAL &&
		       SCOUT__POLICY_STATE == SCOUT_POLICY_STATE && SCOUT__POLICY_LAST == SCOUT_POLICY_LAST,
	       "policies have the numbers of the protocol");

void
scout__put_text(struct scout__writer *w, const char *text)
{
	scout__put_str(w, text, strlen(text));
}

int
scout__get_text(const struct scout__op *op, struct scout__str *ret_text)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__str text;
	const char *field;
	int status;

	scout__get_view(&r, &text);
	status = scout__body_judge(&r, 0, NULL, &field);
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
	scout__put_u32(w, m->hash_tokens);
	scout__put_u64(w, m->weights);
	put_clear_state(w, &m->clear);
	scout__put_secret(w, &m->secret);
	scout__put_str(w, m->name_space.p, m->name_space.len);
	scout__put_u16(w, (uint16_t)m->groups.n);
	scout__put_u16(w, 0);
	for (uint32_t i = 0; i < m->groups.n; i++) {
		scout__put_u16(w, m->groups.group[i].policy);
		scout__put_u16(w, m->groups.group[i].readers);
		scout__put_u32(w, m->groups.group[i].unit_tokens);
		scout__put_u32(w, m->groups.group[i].span_tokens);
		scout__put_u32(w, m->groups.group[i].margin_tokens);
	}
}

static const char *
group_bad_field(const struct scout__group *group, uint32_t hash_tokens)
{
	bool has_span = group->policy == SCOUT_POLICY_WINDOW || group->policy == SCOUT_POLICY_LOCAL;

	if (group->policy > SCOUT_POLICY_LAST)
		return "policy";
	if (group->readers == 0 || group->readers > SCOUT_MAX_READERS)
		return "readers";
	if (group->unit_tokens == 0 || group->unit_tokens % hash_tokens != 0)
		return "unit_tokens";
	return has_span != (group->span_tokens > 0) ? "span_tokens" : NULL;
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
	if (m->hash_tokens == 0)
		return "hash_tokens";
	if (m->name_space.len == 0 || !scout__is_name(&m->name_space))
		return "namespace";
	for (uint32_t i = 0; i < m->groups.n; i++) {
		const char *bad = group_bad_field(&m->groups.group[i], m->hash_tokens);

		if (bad)
			return bad;
	}
	return clear_state_bad_field(&m->clear, SCOUT_MAX_HEARD_STAMP);
}

int
scout__get_hello(const struct scout__op *op, struct scout__hello *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__hello m;
	uint32_t reserved;
	int status;

	m.groups.n = 0;
	m.token = scout__get_u64(&r);
	m.role = scout__get_u16(&r);
	m.hash_bytes = scout__get_u16(&r);
	m.chunk_tokens = scout__get_u32(&r);
	m.rank_first = scout__get_u16(&r);
	m.rank_count = scout__get_u16(&r);
	m.kv_ranks = scout__get_u16(&r);
	m.readers = scout__get_u16(&r);
	m.heartbeat_ms = scout__get_u32(&r);
	m.hash_tokens = scout__get_u32(&r);
	m.weights = scout__get_u64(&r);
	get_clear_state(&r, &m.clear);
	scout__get_secret(&r, &m.secret);
	scout__get_view(&r, &m.name_space);
	m.groups.n = scout__get_u16(&r);
	reserved = scout__get_u16(&r);
	if (!r.bad && m.groups.n == 0)
		return scout__body_fault(SCOUT_WIRE_RANGE, "n_groups", ret_field);
	if (!r.bad && m.groups.n > SCOUT_MAX_GROUPS)
		return scout__body_fault(SCOUT_WIRE_GROUP_LIMIT, "n_groups", ret_field);
	for (uint32_t i = 0; i < m.groups.n && !r.bad; i++) {
		m.groups.group[i].policy = scout__get_u16(&r);
		m.groups.group[i].readers = scout__get_u16(&r);
		m.groups.group[i].unit_tokens = scout__get_u32(&r);
		m.groups.group[i].span_tokens = scout__get_u32(&r);
		m.groups.group[i].margin_tokens = scout__get_u32(&r);
	}
	status = scout__body_judge(&r, reserved, r.bad ? NULL : hello_bad_field(&m), ret_field);
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
	scout__put_secret(w, &m->secret);
	scout__put_u64(w, m->id);
	scout__put_str(w, m->software.p, m->software.len);
	scout__put_str(w, m->lease_path.p, m->lease_path.len);
}

int
scout__get_hello_reply(const struct scout__op *op, struct scout__hello_reply *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__hello_reply m;
	const char *bad_field;
	int status;

	m.credits = scout__get_u32(&r);
	m.max_frame = scout__get_u32(&r);
	m.weights = scout__get_u64(&r);
	get_clear_state(&r, &m.clear);
	scout__get_secret(&r, &m.secret);
	m.id = scout__get_u64(&r);
	scout__get_view(&r, &m.software);
	scout__get_view(&r, &m.lease_path);
	bad_field = clear_state_bad_field(&m.clear, SCOUT_MAX_STAMP);
	if (scout__secret_equal(&m.secret, &(struct scout__secret){{0}}))
		bad_field = "secret";
	status = scout__body_judge(&r, 0, bad_field, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
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
	struct scout__reader r = scout__body_of(op);
	struct scout__clear_reply m;
	const char *bad_field;
	int status;

	get_clear_state(&r, &m.clear);
	m.stores = scout__get_u32(&r);
	m.pending = scout__get_u32(&r);
	bad_field = clear_state_bad_field(&m.clear, SCOUT_MAX_STAMP);
	if (!bad_field && m.pending > m.stores)
		bad_field = "pending";
	status = scout__body_judge(&r, 0, bad_field, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

int
scout__get_empty(const struct scout__op *op, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);

	return scout__body_judge(&r, 0, NULL, ret_field);
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
	struct scout__reader r = scout__body_of(op), items;
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
	status = scout__body_judge(&r, 0, NULL, ret_field);
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
	scout__get_view(items, &name);
	value = scout__get_u64(items);
	if (items->bad)
		return false;
	*ret_name = name;
	*ret_value = value;
	return true;
}
