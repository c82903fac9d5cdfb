/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation as one call of a bare peer. */
#include "wire_peer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "wire_peer_internal.h"

/* Ends the operation in the making, alone in its frame, and waits. When 0 is returned, @ret_op is the reply, until the next call. */
static int
call(struct wire_peer *p, struct scout__op *ret_op)
{
	uint8_t opcode = p->out.buf[p->op_at];
	uint64_t corr = wire_end(p);

	wire_flush(p);
	if (p->answer)
		wire_reply_free(p->answer);
	p->answer = wire_wait(p, corr);
	MUST(p->answer->opcode == opcode);
	*ret_op = (struct scout__op){
		.opcode = opcode, .kind = SCOUT_KIND_REPLY, .length = p->answer->length, .body = p->answer->body};
	return p->answer->status;
}

void
wire_as(struct wire_peer *p, const struct scout__hello *hello)
{
	p->hello.token = hello->token;
	p->hello.secret = hello->secret;
}

int
wire_hello(struct wire_peer *p)
{
	struct scout__hello hello = p->hello;
	struct scout__hello_reply m;
	struct scout__op op;
	const char *field;
	int status;

	if (hello.groups.n == 0)
		scout__hello_one_group(&hello);
	scout__put_hello(wire_begin(p, SCOUT_OP_HELLO), &hello);
	status = call(p, &op);
	if (status)
		return status;
	MUST(scout__get_hello_reply(&op, &m, &field) == SCOUT_WIRE_OK);
	MUST(m.lease_path.len < sizeof(p->lease_path));
	memcpy(p->lease_path, m.lease_path.p, m.lease_path.len);
	p->lease_path[m.lease_path.len] = '\0';
	p->epoch = p->answer->epoch;
	p->weights = m.weights;
	p->id = m.id;
	p->hello.secret = m.secret;
	p->clear = m.clear;
	p->credits = m.credits;
	MUST(m.max_frame == SCOUT_MAX_FRAME && m.software.len > 0);
	return 0;
}

static int
call_empty(struct wire_peer *p)
{
	struct scout__op op;
	const char *field;
	int status = call(p, &op);

	MUST(status || scout__get_empty(&op, &field) == SCOUT_WIRE_OK);
	return status;
}

int
wire_ping(struct wire_peer *p)
{
	(void)wire_begin(p, SCOUT_OP_PING);
	return call_empty(p);
}

int
wire_finish(struct wire_peer *p, const struct scout__finish_msg *m, struct scout__finish_reply *ret)
{
	struct scout__op op;
	const char *field;
	int status;

	scout__put_finish(wire_begin(p, SCOUT_OP_FINISH), m);
	status = call(p, &op);
	MUST(status || scout__get_finish_reply(&op, ret, &field) == SCOUT_WIRE_OK);
	MUST(status || m->keep_ms || (ret->kept == 0 && ret->outcome == SCOUT_OUTCOME_NONE));
	return status;
}

int
wire_simple(struct wire_peer *p, uint8_t opcode, uint64_t word)
{
	struct scout__finish_reply m;

	if (opcode != SCOUT_OP_FINISH) {
		scout__put_one_u64(wire_begin(p, opcode), word);
		return call_empty(p);
	}
	return wire_finish(p, &(struct scout__finish_msg){.ticket = word}, &m);
}

int
wire_clear(struct wire_peer *p, uint64_t generation, struct scout__clear_reply *ret)
{
	struct scout__op op;
	const char *field;
	int status;

	scout__put_one_u64(wire_begin(p, SCOUT_OP_CLEAR), generation);
	status = call(p, &op);
	if (status)
		return status;
	MUST(scout__get_clear_reply(&op, ret, &field) == SCOUT_WIRE_OK);
	p->clear = ret->clear;
	return 0;
}

static uint8_t *
make_hashes(const struct wire_peer *p, uint64_t first_key, uint32_t n)
{
	uint8_t *hashes = malloc((size_t)n * p->hello.hash_bytes);

	MUST(hashes);
	for (uint32_t i = 0; i < n; i++)
		wire_hash(hashes + (size_t)i * p->hello.hash_bytes, p->hello.hash_bytes, first_key + i);
	return hashes;
}

static void
begin_lookup(struct wire_peer *p, const struct scout__lookup_msg *m, uint64_t first_key)
{
	struct scout__lookup_msg with = *m;
	uint8_t *hashes = make_hashes(p, first_key, m->n);

	with.hashes = hashes;
	if (!with.tenant.len)
		with.tenant = p->tenant;
	scout__put_lookup(wire_begin(p, SCOUT_OP_LOOKUP), &with, p->hello.hash_bytes);
	free(hashes);
}

uint64_t
wire_add_lookup(struct wire_peer *p, const struct scout__lookup_msg *m, uint64_t first_key)
{
	begin_lookup(p, m, first_key);
	return wire_end(p);
}

static int
lookup(struct wire_peer *p, struct scout__lookup_msg m, uint64_t first_key, struct scout__lookup_reply *ret)
{
	struct scout__op op;
	const char *field;
	int status;

	begin_lookup(p, &m, first_key);
	status = call(p, &op);
	MUST(status || scout__get_lookup_reply(&op, ret, &field) == SCOUT_WIRE_OK);
	return status;
}

int
wire_lookup(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, uint32_t skip,
	    struct scout__lookup_reply *ret)
{
	return lookup(p, (struct scout__lookup_msg){.ticket = ticket, .n = n, .skip = skip}, first_key, ret);
}

int
wire_renew(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, uint32_t skip,
	   struct scout__lookup_reply *ret)
{
	struct scout__lookup_msg m = {.ticket = ticket, .n = n, .skip = skip, .flags = SCOUT_LOOKUP_RENEW};

	return lookup(p, m, first_key, ret);
}

int
wire_ahead(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, struct scout__ahead_reply *ret,
	   uint8_t *ret_present)
{
	const struct scout__lookup_msg m = {.ticket = ticket, .n = n, .flags = SCOUT_LOOKUP_AHEAD};
	struct scout__op op;
	const char *field;
	int status;

	begin_lookup(p, &m, first_key);
	status = call(p, &op);
	if (status)
		return status;
	MUST(scout__get_ahead_reply(&op, ret, &field) == SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < ret->known; i++)
		ret_present[i] = (uint8_t)((ret->present[i / 8] >> i % 8 & 1) + (ret->in_l2[i / 8] >> i % 8 & 1));
	ret->present = ret->in_l2 = NULL;
	return 0;
}

int
wire_admit(struct wire_peer *p, uint64_t ticket, uint32_t from, uint32_t to, uint32_t *ret_kept)
{
	struct scout__op op;
	const char *field;
	int status;

	scout__put_admit(wire_begin(p, SCOUT_OP_ADMIT), &(struct scout__admit_msg){ticket, from, to});
	status = call(p, &op);
	MUST(status || scout__get_admit_reply(&op, ret_kept, &field) == SCOUT_WIRE_OK);
	return status;
}

int
wire_register(struct wire_peer *p, uint16_t kv_rank, uint16_t reader, uint64_t shard_bytes)
{
	struct scout__register_msg m = {.kv_rank = kv_rank, .reader = reader, .n_tables = 1};
	struct scout__table_msg table = {.block_tokens = p->hello.chunk_tokens, .n_planes = 1};
	struct scout__writer *w;
	struct scout__register_reply answer;
	struct scout__op op;
	const char *field;
	int status;

	w = wire_begin(p, SCOUT_OP_REGISTER);
	scout__put_register(w, &m);
	scout__put_table(w, &table, &shard_bytes);
	status = call(p, &op);
	if (status)
		return status;
	MUST(scout__get_register_reply(&op, &answer, &field) == SCOUT_WIRE_OK);
	MUST(answer.n_tables == 1 && answer.tables[0].shard_bytes == shard_bytes);
	MUST(answer.tables[0].slot_stride >= shard_bytes);
	return 0;
}

static int
call_grants(struct wire_peer *p, struct wire_grants *ret)
{
	struct scout__grants m;
	struct scout__op op;
	const char *field;
	int status = call(p, &op);

	if (status)
		return status;
	MUST(scout__get_grants(&op, &m, &field) == SCOUT_WIRE_OK);
	ret->id = m.id;
	ret->n = m.n;
	ret->n_granted = 0;
	ret->grants = calloc(m.n + 1u, sizeof(*ret->grants));
	MUST(ret->grants);
	for (uint32_t i = 0; i < m.n; i++) {
		ret->grants[i] = scout__grant_at(&m, i);
		ret->n_granted += ret->grants[i].state == SCOUT_GRANT_GRANTED;
	}
	MUST((ret->id == 0) == (ret->n_granted == 0));
	return 0;
}

static void
begin_store(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n)
{
	struct scout__store_msg m = {.ticket = ticket, .n = n, .tenant = p->tenant};
	uint8_t *hashes = make_hashes(p, first_key, n);

	m.hashes = hashes;
	scout__put_store(wire_begin(p, SCOUT_OP_STORE), &m, p->hello.hash_bytes);
	free(hashes);
}

uint64_t
wire_add_store(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n)
{
	begin_store(p, ticket, first_key, n);
	return wire_end(p);
}

uint64_t
wire_add_plain(struct wire_peer *p, uint8_t opcode, uint64_t number)
{
	struct scout__writer *w = wire_begin(p, opcode);

	if (opcode == SCOUT_OP_PEERS)
		scout__put_peers(w, 0);
	else if (opcode == SCOUT_OP_TENANTS)
		scout__put_tenants(w, &p->hello.name_space);
	else if (opcode == SCOUT_OP_DROP)
		scout__put_drop(w, &(struct scout__drop_msg){number, 0, p->hello.name_space, {"", 0}});
	else if (opcode == SCOUT_OP_FEED)
		scout__put_feed(w, &(struct scout__feed_msg){.feed = 0});
	else if (opcode != SCOUT_OP_STATUS)
		scout__put_one_u64(w, number);
	return wire_end(p);
}

int
wire_store(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, struct wire_grants *ret)
{
	begin_store(p, ticket, first_key, n);
	return call_grants(p, ret);
}

int
wire_store_done(struct wire_peer *p, uint64_t id, uint32_t n, uint32_t committed, uint32_t *ret_readable)
{
	struct scout__op op;
	const char *field;
	int status;

	scout__put_store_done(wire_begin(p, SCOUT_OP_STORE_DONE), &(struct scout__store_done_msg){id, n, committed});
	status = call(p, &op);
	MUST(status || scout__get_store_done_reply(&op, ret_readable, &field) == SCOUT_WIRE_OK);
	return status;
}

int
wire_retrieve(struct wire_peer *p, uint64_t ticket, uint32_t from, uint32_t to, struct wire_grants *ret)
{
	struct scout__retrieve_msg m = scout__retrieve_of(ticket, from, to);

	scout__put_retrieve(wire_begin(p, SCOUT_OP_RETRIEVE), &m);
	return call_grants(p, ret);
}

int
wire_retrieve_done(struct wire_peer *p, uint64_t id, uint32_t mismatches)
{
	scout__put_retrieve_done(wire_begin(p, SCOUT_OP_RETRIEVE_DONE),
				 &(struct scout__retrieve_done_msg){id, mismatches});
	return call_empty(p);
}

int
wire_found(struct wire_peer *p, uint64_t id, const uint8_t *found, uint32_t n)
{
	scout__put_retrieve_done(wire_begin(p, SCOUT_OP_RETRIEVE_DONE),
				 &(struct scout__retrieve_done_msg){id, 0, n, found});
	return call_empty(p);
}

uint64_t
wire_ask_status(struct wire_peer *p)
{
	uint64_t corr;

	(void)wire_begin(p, SCOUT_OP_STATUS);
	corr = wire_end(p);
	wire_flush(p);
	return corr;
}

uint64_t
wire_read_status(struct wire_peer *p, uint64_t corr, const char *name)
{
	uint64_t value, found = UINT64_MAX;
	struct wire_reply *reply = wire_wait(p, corr);
	struct scout__op op = {
		.opcode = reply->opcode, .kind = SCOUT_KIND_REPLY, .length = reply->length, .body = reply->body};
	struct scout__reader items;
	struct scout__str item;
	const char *field;
	uint32_t n;

	MUST(reply->opcode == SCOUT_OP_STATUS && reply->status == SCOUT_WIRE_OK);
	MUST(scout__get_status(&op, &n, &items, &field) == SCOUT_WIRE_OK);
	while (n-- > 0) {
		MUST(scout__get_status_item(&items, &item, &value));
		if (item.len == strlen(name) && memcmp(item.p, name, item.len) == 0)
			found = value;
	}
	wire_reply_free(reply);
	return found;
}

uint64_t
wire_status(struct wire_peer *p, const char *name)
{
	return wire_read_status(p, wire_ask_status(p), name);
}

void
wire_wait_status(struct wire_peer *p, const char *name, uint64_t value)
{
	uint64_t end_us = wait_begin(), now;
	char text[200];

	while ((now = wire_status(p, name)) != value) {
		if (scout__now_us() < end_us)
			continue;
		(void)snprintf(text, sizeof(text), "%s is %" PRIu64 ", should become %" PRIu64, name, now, value);
		wire_die(text, __FILE__, __LINE__);
	}
}
