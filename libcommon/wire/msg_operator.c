/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of the operations of operators: PEERS, TENANTS, DROP. See msg_internal.h. Any thread. */
#include "msg_internal.h"

void
scout__put_peers(struct scout__writer *w, uint32_t first)
{
	scout__put_u32(w, first);
	scout__put_u32(w, 0);
}

int
scout__get_peers(const struct scout__op *op, uint32_t *ret_first, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	uint32_t first = scout__get_u32(&r);
	uint32_t reserved = scout__get_u32(&r);
	int status = scout__body_judge(&r, reserved, NULL, ret_field);

	if (status == SCOUT_WIRE_OK)
		*ret_first = first;
	return status;
}

void
scout__put_list_head(struct scout__writer *w, uint32_t head, uint32_t n)
{
	scout__put_u32(w, head);
	scout__put_u32(w, n);
}

/* @read_item reads one item and returns the name of a wrong field of it, or NULL. */
static int
get_list(const struct scout__op *op, const char *(*read_item)(struct scout__reader *r), struct scout__list_reply *ret,
	 const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__list_reply m = {.head = scout__get_u32(&r)};
	const char *bad = NULL;
	int status;

	m.n = scout__get_u32(&r);
	if (!r.bad && m.n > SCOUT_MAX_LISTED)
		return scout__body_fault(SCOUT_WIRE_RANGE, "n", ret_field);
	m.items = r;
	for (uint32_t i = 0; i < m.n && !r.bad; i++) {
		const char *field = read_item(&r);

		if (!bad)
			bad = field;
	}
	status = scout__body_judge(&r, 0, bad, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_peer_item(struct scout__writer *w, const struct scout__peer_item *m)
{
	scout__put_u64(w, m->id);
	scout__put_u16(w, m->role);
	scout__put_u16(w, m->kv_rank);
	scout__put_u32(w, m->pid);
	scout__put_u64(w, m->unread_bytes);
	scout__put_u32(w, m->silent_ms);
	scout__put_u32(w, m->waiting);
	scout__put_u32(w, m->sessions);
	scout__put_u32(w, m->holds);
	scout__put_str(w, m->name_space.p, m->name_space.len);
}

bool
scout__get_peer_item(struct scout__reader *r, struct scout__peer_item *ret)
{
	struct scout__peer_item m = {.id = scout__get_u64(r)};

	m.role = scout__get_u16(r);
	m.kv_rank = scout__get_u16(r);
	m.pid = scout__get_u32(r);
	m.unread_bytes = scout__get_u64(r);
	m.silent_ms = scout__get_u32(r);
	m.waiting = scout__get_u32(r);
	m.sessions = scout__get_u32(r);
	m.holds = scout__get_u32(r);
	scout__get_view(r, &m.name_space);
	if (r->bad)
		return false;
	*ret = m;
	return true;
}

static const char *
read_peer_item(struct scout__reader *r)
{
	struct scout__peer_item m;

	if (!scout__get_peer_item(r, &m))
		return NULL;
	if (m.role != SCOUT_ROLE_CLIENT && m.role != SCOUT_ROLE_WORKER)
		return "role";
	if (m.kv_rank > SCOUT_MAX_RANKS)
		return "kv_rank";
	return m.name_space.len == 0 || !scout__is_name(&m.name_space) ? "namespace" : NULL;
}

int
scout__get_peers_reply(const struct scout__op *op, struct scout__list_reply *ret, const char **ret_field)
{
	return get_list(op, read_peer_item, ret, ret_field);
}

void
scout__put_tenants(struct scout__writer *w, const struct scout__str *name_space)
{
	scout__put_str(w, name_space->p, name_space->len);
}

int
scout__get_tenants(const struct scout__op *op, struct scout__str *ret_name_space, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__str name;
	int status;

	scout__get_view(&r, &name);
	status = scout__body_judge(&r, 0, name.len == 0 || !scout__is_name(&name) ? "namespace" : NULL, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret_name_space = name;
	return status;
}

void
scout__put_tenant_item(struct scout__writer *w, const struct scout__tenant_item *m)
{
	scout__put_u64(w, m->bytes);
	scout__put_str(w, m->tenant.p, m->tenant.len);
}

bool
scout__get_tenant_item(struct scout__reader *r, struct scout__tenant_item *ret)
{
	struct scout__tenant_item m = {.bytes = scout__get_u64(r)};

	scout__get_view(r, &m.tenant);
	if (r->bad)
		return false;
	*ret = m;
	return true;
}

static const char *
read_tenant_item(struct scout__reader *r)
{
	struct scout__tenant_item m;

	return scout__get_tenant_item(r, &m) && !scout__is_name(&m.tenant) ? "tenant" : NULL;
}

int
scout__get_tenants_reply(const struct scout__op *op, struct scout__list_reply *ret, const char **ret_field)
{
	return get_list(op, read_tenant_item, ret, ret_field);
}

void
scout__put_drop(struct scout__writer *w, const struct scout__drop_msg *m)
{
	scout__put_u64(w, m->generation);
	scout__put_u32(w, m->flags);
	scout__put_u32(w, 0);
	scout__put_str(w, m->name_space.p, m->name_space.len);
	scout__put_str(w, m->tenant.p, m->tenant.len);
}

static const char *
drop_bad_field(const struct scout__drop_msg *m)
{
	if (m->generation == 0 || m->generation == SCOUT_GENERATION_ANY)
		return "generation";
	if (m->name_space.len == 0 || !scout__is_name(&m->name_space))
		return "namespace";
	return !scout__is_name(&m->tenant) || (m->tenant.len > 0 && m->flags == 0) ? "tenant" : NULL;
}

int
scout__get_drop(const struct scout__op *op, struct scout__drop_msg *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__drop_msg m = {.generation = scout__get_u64(&r)};
	uint32_t reserved;
	int status;

	m.flags = scout__get_u32(&r);
	reserved = scout__get_u32(&r) | (m.flags & ~SCOUT_DROP_TENANT);
	scout__get_view(&r, &m.name_space);
	scout__get_view(&r, &m.tenant);
	status = scout__body_judge(&r, reserved, drop_bad_field(&m), ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}

void
scout__put_drop_reply(struct scout__writer *w, const struct scout__drop_reply *m)
{
	scout__put_u64(w, m->bytes);
	scout__put_u32(w, m->stores);
	scout__put_u32(w, m->pending);
}

int
scout__get_drop_reply(const struct scout__op *op, struct scout__drop_reply *ret, const char **ret_field)
{
	struct scout__reader r = scout__body_of(op);
	struct scout__drop_reply m = {.bytes = scout__get_u64(&r)};
	int status;

	m.stores = scout__get_u32(&r);
	m.pending = scout__get_u32(&r);
	status = scout__body_judge(&r, 0, m.pending > m.stores ? "pending" : NULL, ret_field);
	if (status == SCOUT_WIRE_OK)
		*ret = m;
	return status;
}
