/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>

#include "check_main.h"
#include "groups_rig.h"
#include "oom.h"

/*
 * As test_server_oom_serving.c, for a namespace of several groups: each allocation of a server fails in turn, from the REGISTER of
 * its tables on. What it answers stays true: of a length that it said, a worker gets all objects, or is refused. Afterwards
 * nothing is left behind, and a new round works as ever.
 */

#define PAGE 16u           /* tokens between two hashes */
#define N 40u              /* hashes of the prompt */
#define PATIENCE_US 50000u /* with a reply that may never come, since an allocation has failed */
#define MOST 600u
#define GROWERS 4u /* one of so many rounds in which the pool could not grow waits until it has grown */

static unsigned round_number;
/*
 * While allocations fail a reply may never come. Afterwards each is waited for: what a lost one has granted would stay granted, for
 * its worker is there.
 */
static bool is_patient;
static const struct scout__groups groups = {3,
					    {{SCOUT_POLICY_ALL, 1, 2 * PAGE, 0, 0},
					     {SCOUT_POLICY_WINDOW, 1, PAGE, 4 * PAGE + 1, PAGE},
					     {SCOUT_POLICY_STATE, 1, 4 * PAGE, 0, 0}}};

/* The reply to the operation that wire_begin() began; NULL: none came in time, or a refusal. To be freed. */
static struct wire_reply *
try_end(struct wire_peer *p)
{
	uint64_t end_us = scout__now_us() + PATIENCE_US, last_us = wait_begin(), corr = wire_end(p);
	struct wire_reply *reply;

	wire_flush(p);
	while (!wire_has(p, corr)) {
		ck_assert_msg(scout__now_us() < last_us, "allocation %u: no reply", round_number);
		if (is_patient || !oom_failed())
			end_us = scout__now_us() + PATIENCE_US;
		else if (scout__now_us() > end_us)
			return NULL;
		(void)sched_yield();
	}
	reply = wire_wait(p, corr);
	if (reply->status == SCOUT_WIRE_OK)
		return reply;
	wire_reply_free(reply);
	return NULL;
}

static bool
try_any(struct wire_peer *p)
{
	struct wire_reply *reply = try_end(p);

	if (reply)
		wire_reply_free(reply);
	return reply;
}

static void
put_hashes(uint8_t *hashes, uint32_t n, uint32_t stride)
{
	for (uint32_t i = 0; i < n; i++)
		wire_hash(hashes + (size_t)i * 16, 16, (uint64_t)(i + 1) * stride);
}

static bool
try_register(struct wire_peer *p)
{
	const uint64_t shard_bytes = SHARD_BYTES;
	struct scout__writer *w = wire_begin(p, SCOUT_OP_REGISTER);

	scout__put_register(w, &(struct scout__register_msg){.n_tables = 3});
	for (uint16_t g = 0; g < 3; g++) {
		const struct scout__table_msg table = {.group = g,
						       .block_tokens = groups.group[g].unit_tokens,
						       .n_planes = 1,
						       .layout_tag = {"NHD", 3}};

		scout__put_table(w, &table, &shard_bytes);
	}
	return try_any(p);
}

/* All objects of a group. */
static void
try_store(struct wire_peer *p, uint64_t ticket, uint16_t g)
{
	uint32_t stride = groups.group[g].unit_tokens / PAGE, n = N / stride, granted = 0;
	uint8_t hashes[N * 16];
	struct scout__store_msg m = {.ticket = ticket, .n = n, .group = g, .hashes = hashes};
	struct scout__grants grants;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	uint64_t id;

	put_hashes(hashes, n, stride);
	scout__put_store(wire_begin(p, SCOUT_OP_STORE), &m, 16);
	reply = try_end(p);
	if (!reply)
		return;
	op = (struct scout__op){.opcode = reply->opcode, .length = reply->length, .body = reply->body};
	ck_assert_int_eq(scout__get_grants(&op, &grants, &field), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < grants.n; i++)
		granted += scout__grant_at(&grants, i).state == SCOUT_GRANT_GRANTED;
	id = grants.id;
	wire_reply_free(reply);
	if (id == 0)
		return;
	scout__put_store_done(wire_begin(p, SCOUT_OP_STORE_DONE),
			      &(struct scout__store_done_msg){id, granted, granted});
	(void)try_any(p);
}

/* The hit, in hashes; UINT32_MAX: no answer. */
static uint32_t
try_lookup(struct wire_peer *p, const struct scout__lookup_msg *said)
{
	struct scout__lookup_msg m = *said;
	struct scout__ahead_groups answer;
	uint8_t hashes[N * 16];
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	int status;

	put_hashes(hashes, N, 1);
	m.n = N - m.first;
	m.hashes = hashes + (size_t)m.first * 16;
	scout__put_lookup(wire_begin(p, SCOUT_OP_LOOKUP), &m, 16);
	reply = try_end(p);
	if (!reply)
		return UINT32_MAX;
	op = (struct scout__op){.opcode = reply->opcode, .length = reply->length, .body = reply->body};
	if (m.flags & SCOUT_LOOKUP_AHEAD)
		status = scout__get_ahead_groups(&op, &groups, PAGE, &answer, &field);
	else
		status = scout__get_lookup_reply(&op, &answer.lookup, &field);
	ck_assert_int_eq(status, SCOUT_WIRE_OK);
	wire_reply_free(reply);
	return answer.lookup.hit;
}

/* What @length needs of each group behind @skip is granted as a whole, or the retrieve is refused. */
static void
try_retrieve(struct wire_peer *p, uint64_t ticket, uint32_t skip, uint32_t length)
{
	uint32_t of_window = length < skip + 4 ? skip : length - 4;
	struct scout__retrieve_msg m = {
		.ticket = ticket,
		.n_parts = 3,
		.parts = {{0, skip - skip % 2, length}, {1, of_window, length}, {2, length - 4, length}}};
	struct scout__grants grants;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	uint64_t id;

	scout__put_retrieve(wire_begin(p, SCOUT_OP_RETRIEVE), &m);
	reply = try_end(p);
	if (!reply)
		return;
	op = (struct scout__op){.opcode = reply->opcode, .length = reply->length, .body = reply->body};
	ck_assert_int_eq(scout__get_grants(&op, &grants, &field), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < grants.n; i++)
		ck_assert_msg(scout__grant_at(&grants, i).state == SCOUT_GRANT_GRANTED,
			      "allocation %u: object %u of %u of ticket %u, length %u", round_number, i, grants.n,
			      (unsigned)ticket, length);
	id = grants.id;
	wire_reply_free(reply);
	scout__put_retrieve_done(wire_begin(p, SCOUT_OP_RETRIEVE_DONE), &(struct scout__retrieve_done_msg){id, 0});
	(void)try_any(p);
}

static void
try_keys(struct wire_peer *p, uint64_t ticket)
{
	struct scout__keys_msg m = {.ticket = ticket, .n = 6, .n_parts = 2, .parts = {{1, 4}, {2, 2}}};
	uint8_t hashes[6 * 16];

	put_hashes(hashes, 4, 1);
	put_hashes(hashes + (size_t)4 * 16, 2, 4);
	m.hashes = hashes;
	scout__put_keys(wire_begin(p, SCOUT_OP_KEYS), &m, 16);
	(void)try_any(p);
}

static void
try_finish(struct wire_peer *p, uint64_t ticket)
{
	scout__put_finish(wire_begin(p, SCOUT_OP_FINISH), &(struct scout__finish_msg){.ticket = ticket});
	(void)try_any(p);
}

/* Each way to ask, and what follows from the answer. */
static void
serve_all(struct wire_peer *client, struct wire_peer *worker)
{
	struct scout__lookup_msg asks[] = {{.ticket = 1, .more = 3},
					   {.ticket = 2, .first = 3, .skip = 5, .beyond = 2},
					   {.ticket = 3, .flags = SCOUT_LOOKUP_AHEAD},
					   {.ticket = 4, .more = 1}};

	for (uint16_t g = 0; g < 3; g++)
		try_store(worker, 0, g);
	for (size_t i = 0; i < sizeof(asks) / sizeof(asks[0]); i++) {
		uint32_t hit = try_lookup(client, &asks[i]);

		ck_assert(hit == UINT32_MAX || (hit % 4 == 0 && hit <= N) || hit == asks[i].skip);
		if (asks[i].flags & SCOUT_LOOKUP_AHEAD) {
			scout__put_admit(wire_begin(client, SCOUT_OP_ADMIT), &(struct scout__admit_msg){3, 0, hit});
			(void)try_any(client);
		}
		asks[i].flags = SCOUT_LOOKUP_RENEW;
		if (i % 2 == 0)
			(void)try_lookup(client, &asks[i]);
		if (hit != UINT32_MAX && hit > asks[i].skip)
			try_retrieve(worker, asks[i].ticket, asks[i].skip, hit);
		try_store(worker, asks[i].ticket, 1);
	}
	try_keys(client, 5);
	for (uint64_t ticket = 1; ticket <= 5; ticket++)
		try_finish(client, ticket);
}

static void
join(struct wire_peer *p, const struct scout_server *server, uint16_t role)
{
	wire_open(p, scout_server_endpoint(server));
	p->hello.role = role;
	groups_say(p, &groups, PAGE);
	ck_assert_msg(wire_hello(p) == SCOUT_WIRE_OK, "%s", p->text);
	if (role == SCOUT_ROLE_WORKER)
		ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
}

/* A pool that could not grow tries that again after a second, whichever allocation it was. */
static bool
waits_for_growing(void)
{
	static unsigned n;

	return n++ % GROWERS == 0 || is_long();
}

/* Whether one allocation failed. */
static bool
round_with(unsigned n)
{
	struct scout_server_config cfg = rig_config(512);
	struct wire_peer client, worker;
	struct scout_server *server;
	uint64_t ticket = 100;
	bool failed;

	cfg.extent_bytes = 64 * SHARD_BYTES;
	cfg.max_sessions = 16;
	cfg.max_peers = 8;
	server = rig_start(&cfg);
	scout_server_config_fini(&cfg);
	join(&client, server, SCOUT_ROLE_CLIENT);
	join(&worker, server, SCOUT_ROLE_WORKER);
	round_number = n;
	is_patient = false;
	oom_arm(n, OOM_SERVER);
	if (try_register(&worker))
		serve_all(&client, &worker);
	failed = oom_disarm();
	is_patient = true;
	wire_lease_bye(&worker);
	wire_close(&worker);
	wire_close(&client);
	/* As if nothing had been. */
	join(&client, server, SCOUT_ROLE_CLIENT);
	join(&worker, server, SCOUT_ROLE_WORKER);
	ck_assert(try_register(&worker));
	wire_wait_status(&client, "holds", 0);
	wait_until(try_lookup(&client, &(struct scout__lookup_msg){.ticket = ticket, .beyond = 2}) == N - 4) {
		try_finish(&client, ticket++);
		if (ticket == 102 && !waits_for_growing())
			break; /* what was stored a moment ago is not there: there is no room */
		for (uint16_t g = 0; g < 3; g++)
			try_store(&worker, 0, g);
	}
	wire_close(&worker);
	wire_close(&client);
	scout_server_stop(server);
	return failed;
}

START_TEST(a_server_of_groups_goes_on_whichever_allocation_fails)
{
	unsigned n = 1;

	while (round_with(n))
		ck_assert_uint_lt(++n, MOST);
	ck_assert_uint_gt(n, 30);
}
END_TEST
