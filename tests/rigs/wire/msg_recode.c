/* SPDX-License-Identifier: Apache-2.0 */
#include "msg_recode.h"

/* Bodies that are one structure, for which get and put need nothing else. */
#define RECODE(what, type)                                                                                             \
	static int recode_##what(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w,             \
				 const char **ret_field)                                                               \
	{                                                                                                              \
		struct type m;                                                                                         \
		int status = scout__get_##what(op, &m, ret_field);                                                     \
                                                                                                                       \
		(void)hash_bytes;                                                                                      \
		if (status == SCOUT_WIRE_OK)                                                                           \
			scout__put_##what(w, &m);                                                                      \
		return status;                                                                                         \
	}
RECODE(hello, scout__hello)
RECODE(hello_reply, scout__hello_reply)
RECODE(clear_reply, scout__clear_reply)
RECODE(lookup_reply, scout__lookup_reply)
RECODE(keys_reply, scout__keys_reply)
RECODE(admit, scout__admit_msg)
RECODE(finish, scout__finish_msg)
RECODE(register_reply, scout__register_reply)
RECODE(store_done, scout__store_done_msg)
RECODE(retrieve, scout__retrieve_msg)
RECODE(retrieve_done, scout__retrieve_done_msg)
#undef RECODE

/* Bodies with hashes. */
#define RECODE(what, type)                                                                                             \
	static int recode_##what(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w,             \
				 const char **ret_field)                                                               \
	{                                                                                                              \
		struct type m;                                                                                         \
		int status = scout__get_##what(op, hash_bytes, &m, ret_field);                                         \
                                                                                                                       \
		if (status == SCOUT_WIRE_OK)                                                                           \
			scout__put_##what(w, &m, hash_bytes);                                                          \
		return status;                                                                                         \
	}
RECODE(lookup, scout__lookup_msg)
RECODE(store, scout__store_msg)
RECODE(keys, scout__keys_msg)
#undef RECODE

/* Bodies that are one number. */
#define RECODE(what, type)                                                                                             \
	static int recode_##what(const struct scout__op *op, unsigned hash_bytes, struct scout__writer *w,             \
				 const char **ret_field)                                                               \
	{                                                                                                              \
		type v;                                                                                                \
		int status = scout__get_##what(op, &v, ret_field);                                                     \
                                                                                                                       \
		(void)hash_bytes;                                                                                      \
		if (status == SCOUT_WIRE_OK)                                                                           \
			scout__put_##what(w, v);                                                                       \
		return status;                                                                                         \
	}
RECODE(admit_reply, uint32_t)
RECODE(store_done_reply, uint32_t)
RECODE(one_u64, uint64_t)
#undef RECODE

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

const struct msg_codec msg_codecs[] = {
	{"HELLO request", SCOUT_OP_HELLO, SCOUT_KIND_REQUEST, recode_hello},
	{"HELLO reply", SCOUT_OP_HELLO, SCOUT_KIND_REPLY, recode_hello_reply},
	{"PING request", SCOUT_OP_PING, SCOUT_KIND_REQUEST, recode_empty},
	{"PING reply", SCOUT_OP_PING, SCOUT_KIND_REPLY, recode_empty},
	{"LOOKUP request", SCOUT_OP_LOOKUP, SCOUT_KIND_REQUEST, recode_lookup},
	{"LOOKUP reply", SCOUT_OP_LOOKUP, SCOUT_KIND_REPLY, recode_lookup_reply},
	{"ADMIT request", SCOUT_OP_ADMIT, SCOUT_KIND_REQUEST, recode_admit},
	{"ADMIT reply", SCOUT_OP_ADMIT, SCOUT_KIND_REPLY, recode_admit_reply},
	{"FINISH request", SCOUT_OP_FINISH, SCOUT_KIND_REQUEST, recode_finish},
	{"FINISH reply", SCOUT_OP_FINISH, SCOUT_KIND_REPLY, recode_empty},
	{"RESET request", SCOUT_OP_RESET, SCOUT_KIND_REQUEST, recode_one_u64},
	{"RESET reply", SCOUT_OP_RESET, SCOUT_KIND_REPLY, recode_empty},
	{"CLEAR request", SCOUT_OP_CLEAR, SCOUT_KIND_REQUEST, recode_one_u64},
	{"CLEAR reply", SCOUT_OP_CLEAR, SCOUT_KIND_REPLY, recode_clear_reply},
	{"REGISTER request", SCOUT_OP_REGISTER, SCOUT_KIND_REQUEST, recode_register},
	{"REGISTER reply", SCOUT_OP_REGISTER, SCOUT_KIND_REPLY, recode_register_reply},
	{"STORE request", SCOUT_OP_STORE, SCOUT_KIND_REQUEST, recode_store},
	{"STORE reply", SCOUT_OP_STORE, SCOUT_KIND_REPLY, recode_grants},
	{"STORE_DONE request", SCOUT_OP_STORE_DONE, SCOUT_KIND_REQUEST, recode_store_done},
	{"STORE_DONE reply", SCOUT_OP_STORE_DONE, SCOUT_KIND_REPLY, recode_store_done_reply},
	{"RETRIEVE request", SCOUT_OP_RETRIEVE, SCOUT_KIND_REQUEST, recode_retrieve},
	{"RETRIEVE reply", SCOUT_OP_RETRIEVE, SCOUT_KIND_REPLY, recode_grants},
	{"RETRIEVE_DONE request", SCOUT_OP_RETRIEVE_DONE, SCOUT_KIND_REQUEST, recode_retrieve_done},
	{"RETRIEVE_DONE reply", SCOUT_OP_RETRIEVE_DONE, SCOUT_KIND_REPLY, recode_empty},
	{"STATUS request", SCOUT_OP_STATUS, SCOUT_KIND_REQUEST, recode_empty},
	{"STATUS reply", SCOUT_OP_STATUS, SCOUT_KIND_REPLY, recode_status},
	{"ERROR reply", SCOUT_OP_ERROR, SCOUT_KIND_REPLY, recode_text},
	{"KEYS request", SCOUT_OP_KEYS, SCOUT_KIND_REQUEST, recode_keys},
	{"KEYS reply", SCOUT_OP_KEYS, SCOUT_KIND_REPLY, recode_keys_reply},
};
_Static_assert(sizeof(msg_codecs) / sizeof(msg_codecs[0]) == N_MSG_CODECS, "a new operation needs its codecs here");
