/* SPDX-License-Identifier: Apache-2.0 */
#include "msg_recode.h"

#include "msg_golden.h"

#define RECODE(what, type, get, put)                                                                                   \
	static int recode_##what(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w,             \
				 const char **ret_field)                                                               \
	{                                                                                                              \
		type m;                                                                                                \
		int status = get;                                                                                      \
                                                                                                                       \
		(void)hash_bytes;                                                                                      \
		if (status == SCOUT_WIRE_OK)                                                                           \
			put;                                                                                           \
		return status;                                                                                         \
	}
/* Bodies that are one structure, one with hashes, and one number. */
#define STRUCTURE(what, type) RECODE(what, struct type, scout__get_##what(op, &m, ret_field), scout__put_##what(w, &m))
#define HASHES(what, type)                                                                                             \
	RECODE(what, struct type, scout__get_##what(op, hash_bytes, &m, ret_field),                                    \
	       scout__put_##what(w, &m, hash_bytes))
#define NUMBER(what, type) RECODE(what, type, scout__get_##what(op, &m, ret_field), scout__put_##what(w, m))

STRUCTURE(hello, scout__hello)
STRUCTURE(hello_reply, scout__hello_reply)
STRUCTURE(clear_reply, scout__clear_reply)
HASHES(lookup, scout__lookup_msg)
STRUCTURE(lookup_reply, scout__lookup_reply)
HASHES(keys, scout__keys_msg)
STRUCTURE(keys_reply, scout__keys_reply)
STRUCTURE(admit, scout__admit_msg)
NUMBER(admit_reply, uint32_t)
STRUCTURE(finish, scout__finish_msg)
STRUCTURE(finish_reply, scout__finish_reply)
NUMBER(one_u64, uint64_t)
STRUCTURE(register_reply, scout__register_reply)
STRUCTURE(store_done, scout__store_done_msg)
NUMBER(store_done_reply, uint32_t)
STRUCTURE(retrieve, scout__retrieve_msg)
STRUCTURE(retrieve_done, scout__retrieve_done_msg)
NUMBER(peers, uint32_t)
RECODE(tenants, struct scout__str, scout__get_tenants(op, &m, ret_field), scout__put_tenants(w, &m))
STRUCTURE(drop, scout__drop_msg)
STRUCTURE(drop_reply, scout__drop_reply)
STRUCTURE(feed, scout__feed_msg)

static int
recode_store(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w, const char **ret_field)
{
	struct scout__store_msg m;
	int status = scout__get_store(op, hash_bytes, &m, ret_field);

	if (status != SCOUT_WIRE_OK)
		return status;
	scout__put_store(w, &m, hash_bytes);
	for (uint32_t i = 0; m.described && i < m.n; i++) {
		uint16_t len;
		const char *p = scout__get_str(&m.descriptions, &len);

		scout__put_str(w, p, len);
	}
	return status;
}

static int
recode_feed_reply(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w, const char **ret_field)
{
	struct scout__feed_reply m;
	struct scout__feed_event event;
	int status = scout__get_feed_reply(op, hash_bytes, &m, ret_field);

	if (status != SCOUT_WIRE_OK)
		return status;
	scout__put_feed_head(w, &m);
	while (m.n-- > 0 && scout__get_feed_event(&m.events, hash_bytes, &event))
		scout__put_feed_event(w, &event, hash_bytes);
	return status;
}

static int
recode_empty(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w, const char **ret_field)
{
	(void)hash_bytes;
	(void)w;
	return scout__get_empty(op, ret_field);
}

static int
recode_text(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w, const char **ret_field)
{
	struct scout__str text;
	int status = scout__get_text(op, &text);

	(void)hash_bytes;
	*ret_field = "length"; /* the only thing that can be wrong with it */
	if (status == SCOUT_WIRE_OK)
		scout__put_str(w, text.p, text.len);
	return status;
}

static int
recode_register(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w, const char **ret_field)
{
	static uint64_t planes[SCOUT_MAX_PLANES];
	struct scout__register_msg m;
	int status = scout__get_register(op, &m, ret_field);

	(void)hash_bytes;
	if (status != SCOUT_WIRE_OK)
		return status;
	scout__put_register(w, &m);
	for (uint32_t t = 0; t < m.n_tables; t++) {
		for (uint32_t i = 0; i < m.tables[t].n_planes; i++)
			planes[i] = scout__plane_bytes(&m.tables[t], i);
		scout__put_table(w, &m.tables[t], planes);
	}
	return status;
}

static int
recode_grants(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w, const char **ret_field)
{
	struct scout__grants m;
	int status = scout__get_grants(op, &m, ret_field);

	(void)hash_bytes;
	if (status != SCOUT_WIRE_OK)
		return status;
	scout__put_grants_head(w, m.id, m.n);
	for (uint32_t i = 0; i < m.n; i++) {
		struct scout__grant g = scout__grant_at(&m, i);

		/* A state of a later version is hidden from the caller, so it cannot be encoded again. */
		if (g.state == 0)
			scout__put_bytes(w, m.grants + (size_t)i * SCOUT_GRANT_BYTES, SCOUT_GRANT_BYTES);
		else
			scout__put_grant(w, &g);
	}
	return status;
}

static int
recode_status(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w, const char **ret_field)
{
	struct scout__reader items;
	struct scout__str name;
	uint64_t value;
	uint32_t n;
	int status = scout__get_status(op, &n, &items, ret_field);

	(void)hash_bytes;
	if (status != SCOUT_WIRE_OK)
		return status;
	scout__put_u32(w, n);
	while (scout__get_status_item(&items, &name, &value)) {
		scout__put_str(w, name.p, name.len);
		scout__put_u64(w, value);
	}
	return status;
}

/* Replies that are a list. */
#define LIST(what, item)                                                                                               \
	static int recode_##what##_reply(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w,     \
					 const char **ret_field)                                                       \
	{                                                                                                              \
		struct scout__list_reply m;                                                                            \
		struct scout__##item one;                                                                              \
		int status = scout__get_##what##_reply(op, &m, ret_field);                                             \
                                                                                                                       \
		(void)hash_bytes;                                                                                      \
		if (status != SCOUT_WIRE_OK)                                                                           \
			return status;                                                                                 \
		scout__put_list_head(w, m.head, m.n);                                                                  \
		while (m.n-- > 0 && scout__get_##item(&m.items, &one))                                                 \
			scout__put_##item(w, &one);                                                                    \
		return status;                                                                                         \
	}
LIST(peers, peer_item)
LIST(tenants, tenant_item)

#define BODY(op, kind, recode, golden)                                                                                 \
	{                                                                                                              \
#op " " #kind, SCOUT_OP_##op, SCOUT_KIND_##kind, recode, golden, sizeof(golden)                        \
	}
#define EMPTY(op, kind)                                                                                                \
	{                                                                                                              \
#op " " #kind, SCOUT_OP_##op, SCOUT_KIND_##kind, recode_empty, (const uint8_t *)"", 0                  \
	}
const struct msg_codec msg_codecs[] = {
	BODY(HELLO, REQUEST, recode_hello, golden_hello),
	BODY(HELLO, REPLY, recode_hello_reply, golden_hello_reply),
	EMPTY(PING, REQUEST),
	EMPTY(PING, REPLY),
	BODY(LOOKUP, REQUEST, recode_lookup, golden_lookup),
	BODY(LOOKUP, REPLY, recode_lookup_reply, golden_lookup_reply),
	BODY(ADMIT, REQUEST, recode_admit, golden_admit),
	BODY(ADMIT, REPLY, recode_admit_reply, golden_admit_reply),
	BODY(FINISH, REQUEST, recode_finish, golden_finish),
	BODY(FINISH, REPLY, recode_finish_reply, golden_finish_reply),
	BODY(RESET, REQUEST, recode_one_u64, golden_reset),
	EMPTY(RESET, REPLY),
	BODY(CLEAR, REQUEST, recode_one_u64, golden_clear),
	BODY(CLEAR, REPLY, recode_clear_reply, golden_clear_reply),
	BODY(REGISTER, REQUEST, recode_register, golden_register),
	BODY(REGISTER, REPLY, recode_register_reply, golden_register_reply),
	BODY(STORE, REQUEST, recode_store, golden_store),
	BODY(STORE, REPLY, recode_grants, golden_store_reply),
	BODY(STORE_DONE, REQUEST, recode_store_done, golden_store_done),
	BODY(STORE_DONE, REPLY, recode_store_done_reply, golden_store_done_reply),
	BODY(RETRIEVE, REQUEST, recode_retrieve, golden_retrieve),
	BODY(RETRIEVE, REPLY, recode_grants, golden_retrieve_reply),
	BODY(RETRIEVE_DONE, REQUEST, recode_retrieve_done, golden_retrieve_done),
	EMPTY(RETRIEVE_DONE, REPLY),
	EMPTY(STATUS, REQUEST),
	BODY(STATUS, REPLY, recode_status, golden_status_reply),
	BODY(ERROR, REPLY, recode_text, golden_error),
	BODY(KEYS, REQUEST, recode_keys, golden_keys),
	BODY(KEYS, REPLY, recode_keys_reply, golden_keys_reply),
	BODY(PEERS, REQUEST, recode_peers, golden_peers),
	BODY(PEERS, REPLY, recode_peers_reply, golden_peers_reply),
	BODY(TENANTS, REQUEST, recode_tenants, golden_tenants),
	BODY(TENANTS, REPLY, recode_tenants_reply, golden_tenants_reply),
	BODY(DROP, REQUEST, recode_drop, golden_drop),
	BODY(DROP, REPLY, recode_drop_reply, golden_drop_reply),
	BODY(FEED, REQUEST, recode_feed, golden_feed),
	BODY(FEED, REPLY, recode_feed_reply, golden_feed_reply),
};
_Static_assert(sizeof(msg_codecs) / sizeof(msg_codecs[0]) == N_MSG_CODECS, "a new operation needs its codecs here");

const struct msg_codec *
codec_of(uint8_t opcode, uint8_t kind)
{
	for (int i = 0; i < N_MSG_CODECS; i++) {
		if (msg_codecs[i].opcode == opcode && msg_codecs[i].kind == kind)
			return &msg_codecs[i];
	}
	return NULL;
}
