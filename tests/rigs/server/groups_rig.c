/* SPDX-License-Identifier: Apache-2.0 */
#include "groups_rig.h"

void
groups_say(struct wire_peer *p, const struct scout__groups *groups, uint32_t hash_tokens)
{
	p->hello.groups = *groups;
	p->hello.hash_tokens = hash_tokens;
	p->hello.chunk_tokens = groups->group[0].unit_tokens;
}

static uint32_t
stride_of(const struct wire_peer *p, uint16_t group)
{
	return p->hello.groups.group[group].unit_tokens / p->hello.hash_tokens;
}

void
groups_up_with(struct groups_rig *rig, struct scout_server_config *cfg, const struct scout__groups *groups,
	       uint32_t hash_tokens)
{
	rig->groups = *groups;
	rig->hash_tokens = hash_tokens;
	rig->server = rig_start(cfg);
	wire_open(&rig->worker, scout_server_endpoint(rig->server));
	rig->worker.hello.role = SCOUT_ROLE_WORKER;
	groups_say(&rig->worker, groups, hash_tokens);
	ck_assert_msg(wire_hello(&rig->worker) == SCOUT_WIRE_OK, "%s", rig->worker.text);
	ck_assert_int_eq(wire_lease(&rig->worker), SCOUT_LEASE_OK);
	ck_assert_msg(groups_register(&rig->worker, 0, 0, UINT32_MAX, SHARD_BYTES) == SCOUT_WIRE_OK, "%s",
		      rig->worker.text);
	wire_open(&rig->client, scout_server_endpoint(rig->server));
	groups_say(&rig->client, groups, hash_tokens);
	assert_wire(wire_hello(&rig->client), SCOUT_WIRE_OK);
}

void
groups_up(struct groups_rig *rig, uint32_t objects, const struct scout__groups *groups, uint32_t hash_tokens)
{
	struct scout_server_config cfg = rig_config(objects * groups->n);

	/* Each group grows by extents of its own. */
	cfg.extent_bytes = (uint64_t)objects * SHARD_BYTES;
	groups_up_with(rig, &cfg, groups, hash_tokens);
}

void
groups_down(struct groups_rig *rig)
{
	wire_close(&rig->client);
	wire_close(&rig->worker);
	scout_server_stop(rig->server);
	rig->server = NULL;
}

/* Ends the operation that was begun, and waits; the reply is the caller's. */
static struct wire_reply *
call(struct wire_peer *p, struct scout__op *ret_op)
{
	uint64_t corr = wire_end(p);
	struct wire_reply *reply;

	wire_flush(p);
	reply = wire_wait(p, corr);
	*ret_op = (struct scout__op){.opcode = reply->opcode, .length = reply->length, .body = reply->body};
	return reply;
}

int
groups_register_sizes(struct wire_peer *p, uint16_t kv_rank, uint16_t reader, uint32_t which,
		      const uint64_t *shard_bytes)
{
	struct scout__register_msg m = {.kv_rank = kv_rank, .reader = reader};
	struct scout__writer *w = wire_begin(p, SCOUT_OP_REGISTER);
	struct wire_reply *reply;
	struct scout__op op;
	int status;

	for (uint16_t g = 0; g < p->hello.groups.n; g++)
		m.n_tables = (uint16_t)(m.n_tables + (which >> g & 1));
	scout__put_register(w, &m);
	for (uint16_t g = 0; g < p->hello.groups.n; g++) {
		const struct scout__table_msg table = {
			.group = g, .block_tokens = p->hello.groups.group[g].unit_tokens, .n_planes = 1};

		if (which >> g & 1)
			scout__put_table(w, &table, &shard_bytes[g]);
	}
	reply = call(p, &op);
	status = reply->status;
	if (status == SCOUT_WIRE_OK) {
		struct scout__register_reply answer;
		const char *field;

		ck_assert_int_eq(scout__get_register_reply(&op, &answer, &field), SCOUT_WIRE_OK);
		ck_assert_uint_eq(answer.n_tables, m.n_tables);
	}
	wire_reply_free(reply);
	return status;
}

int
groups_register(struct wire_peer *p, uint16_t kv_rank, uint16_t reader, uint32_t which, uint64_t shard_bytes)
{
	uint64_t of_each[SCOUT_MAX_GROUPS];

	for (uint16_t g = 0; g < SCOUT_MAX_GROUPS; g++)
		of_each[g] = shard_bytes;
	return groups_register_sizes(p, kv_rank, reader, which, of_each);
}

static int
call_grants(struct wire_peer *p, struct wire_grants *ret)
{
	struct scout__op op;
	struct wire_reply *reply = call(p, &op);
	struct scout__grants m;
	const char *field;
	int status = reply->status;

	*ret = (struct wire_grants){.id = 0};
	if (status == SCOUT_WIRE_OK) {
		ck_assert_int_eq(scout__get_grants(&op, &m, &field), SCOUT_WIRE_OK);
		ret->id = m.id;
		ret->n = m.n;
		ret->grants = calloc(m.n + 1u, sizeof(*ret->grants));
		ck_assert_ptr_nonnull(ret->grants);
		for (uint32_t i = 0; i < m.n; i++) {
			ret->grants[i] = scout__grant_at(&m, i);
			ret->n_granted += ret->grants[i].state == SCOUT_GRANT_GRANTED;
		}
		ck_assert_int_eq(ret->id == 0, ret->n_granted == 0);
	}
	wire_reply_free(reply);
	return status;
}

int
groups_store_of(struct wire_peer *p, uint64_t ticket, uint16_t group, uint32_t from, uint32_t to,
		struct wire_grants *ret)
{
	unsigned hash_bytes = p->hello.hash_bytes;
	struct scout__store_msg m = {.ticket = ticket, .n = to - from, .group = group, .tenant = p->tenant};
	uint32_t stride = group < p->hello.groups.n ? stride_of(p, group) : 1;
	uint8_t *hashes = malloc((size_t)m.n * hash_bytes);

	ck_assert_ptr_nonnull(hashes);
	for (uint32_t i = 0; i < m.n; i++)
		wire_hash(hashes + (size_t)i * hash_bytes, hash_bytes, (uint64_t)(from + i + 1) * stride);
	m.hashes = hashes;
	scout__put_store(wire_begin(p, SCOUT_OP_STORE), &m, hash_bytes);
	free(hashes);
	return call_grants(p, ret);
}

void
groups_store(struct wire_peer *p, uint16_t group, uint32_t from, uint32_t to)
{
	struct wire_grants g;
	uint32_t readable;

	ck_assert_msg(groups_store_of(p, 0, group, from, to, &g) == SCOUT_WIRE_OK, "%s", p->text);
	for (uint32_t i = 0; i < g.n; i++)
		ck_assert_int_ne(g.grants[i].state, SCOUT_GRANT_NO_ROOM);
	if (g.id)
		assert_wire(wire_store_done(p, g.id, g.n_granted, g.n_granted, &readable), SCOUT_WIRE_OK);
	free(g.grants);
}

int
groups_lookup_answer(struct wire_peer *p, uint64_t corr, struct groups_answer *ret)
{
	struct scout__lookup_reply answer;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	int status;

	reply = wire_wait(p, corr);
	status = reply->status;
	op = (struct scout__op){.opcode = reply->opcode, .length = reply->length, .body = reply->body};
	if (status == SCOUT_WIRE_OK) {
		ck_assert_int_eq(scout__get_lookup_reply(&op, &answer, &field), SCOUT_WIRE_OK);
		*ret = (struct groups_answer){answer.hit, answer.l1, answer.l2, answer.limited, answer.n_more, {0}};
		for (uint32_t i = 0; i < answer.n_more; i++)
			ret->more[i] = scout__more_at(&answer, i);
	}
	wire_reply_free(reply);
	return status;
}

int
groups_lookup(struct wire_peer *p, const struct scout__lookup_msg *m, struct groups_answer *ret)
{
	uint64_t corr = wire_add_lookup(p, m, 1 + m->first);

	wire_flush(p);
	return groups_lookup_answer(p, corr, ret);
}

int
groups_retrieve(struct wire_peer *p, const struct scout__retrieve_msg *m, struct wire_grants *ret)
{
	scout__put_retrieve(wire_begin(p, SCOUT_OP_RETRIEVE), m);
	return call_grants(p, ret);
}

int
groups_keys(struct wire_peer *p, uint64_t ticket, const struct groups_key *keys, uint32_t n, struct groups_told *ret)
{
	unsigned hash_bytes = p->hello.hash_bytes;
	struct scout__keys_msg m = {.ticket = ticket, .n = n, .tenant = p->tenant};
	uint8_t hashes[sizeof(ret->what) * SCOUT_MAX_HASH];
	struct scout__keys_reply answer;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	int status;

	ck_assert_uint_le(n, sizeof(ret->what));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t stride = keys[i].group < p->hello.groups.n ? stride_of(p, keys[i].group) : 1;

		if (i == 0 || keys[i].group != keys[i - 1].group)
			m.parts[m.n_parts++].group = keys[i].group;
		m.parts[m.n_parts - 1].n++;
		wire_hash(hashes + (size_t)i * hash_bytes, hash_bytes, (uint64_t)(keys[i].object + 1) * stride);
	}
	m.hashes = hashes;
	scout__put_keys(wire_begin(p, SCOUT_OP_KEYS), &m, hash_bytes);
	reply = call(p, &op);
	status = reply->status;
	if (status == SCOUT_WIRE_OK) {
		ck_assert_int_eq(scout__get_keys_reply(&op, &answer, &field), SCOUT_WIRE_OK);
		ck_assert_uint_eq(answer.n, n);
		*ret = (struct groups_told){answer.l1, answer.l2, answer.limited, {0}};
		for (uint32_t i = 0; i < n; i++)
			ret->what[i] =
				(uint8_t)((answer.hit[i / 8] >> i % 8 & 1) | (answer.later[i / 8] >> i % 8 & 1) << 1);
	}
	wire_reply_free(reply);
	return status;
}
