/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces of several groups: which lengths LOOKUP finds, what it promises, and what RETRIEVE and ADMIT make of it. */
#include "check_main.h"
#include "groups_rig.h"
#include "random.h"

#define PAGE 16u /* tokens between two hashes */

static const struct scout__group all = {SCOUT_POLICY_ALL, 1, PAGE, 0, 0};
static const struct scout__group window = {SCOUT_POLICY_WINDOW, 1, PAGE, 2 * PAGE + 1, 0}; /* two objects */

static struct groups_rig rig;

static void
teardown(void)
{
	if (rig.server)
		groups_down(&rig);
}

static struct groups_answer
look(uint64_t ticket, uint32_t n, uint32_t skip, uint16_t more)
{
	const struct scout__lookup_msg m = {.ticket = ticket, .n = n, .skip = skip, .more = more};
	struct groups_answer answer;

	ck_assert_msg(groups_lookup(&rig.client, &m, &answer) == SCOUT_WIRE_OK, "%s", rig.client.text);
	return answer;
}

static uint64_t
promised(void)
{
	return wire_status(&rig.client, "l1.bytes_promised") / SHARD_BYTES;
}

/* A full group and a window: the prompt of 10 has all of the first, and objects 3 and 4 of the other. */
static void
up_window(void)
{
	const struct scout__groups groups = {2, {all, window}};

	groups_up(&rig, 16, &groups, PAGE);
	groups_store(&rig.worker, 0, 0, 10);
	groups_store(&rig.worker, 1, 3, 5);
}

CHECKED_FIXTURE(NULL, teardown);

START_TEST(a_window_ends_where_its_objects_are)
{
	struct groups_answer answer;
	uint32_t kept;

	up_window();
	answer = look(9, 10, 0, 3);
	/* At 5 the window has 3 and 4. A length of 4 needs 2 and 3 of it. */
	ck_assert_uint_eq(answer.hit, 5);
	ck_assert_uint_eq(answer.l1, 5 + 2);
	ck_assert_uint_eq(answer.l2, 0);
	ck_assert_uint_eq(answer.n_more, 0);
	ck_assert_uint_eq(promised(), 7);
	/* What the GPU has counts as present: at 4, object 2 is there, and 3 is in the pool. */
	answer = look(10, 10, 3, 3);
	ck_assert_uint_eq(answer.hit, 5);
	ck_assert_uint_eq(answer.l1, 2 + 2);
	ck_assert_uint_eq(answer.n_more, 1);
	ck_assert_uint_eq(answer.more[0], 4);
	ck_assert_int_eq(wire_admit(&rig.client, 10, 3, 4, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 2);
	rig_finish(&rig.client, 10);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(promised(), 0);
}
END_TEST

START_TEST(a_restore_takes_all_groups_in_one_hold)
{
	struct scout__retrieve_msg m = {.ticket = 9, .n_parts = 2, .parts = {{0, 0, 5}, {1, 3, 5}}};
	struct wire_grants g, bad;

	up_window();
	ck_assert_uint_eq(look(9, 10, 0, 0).hit, 5);
	ck_assert_int_eq(groups_retrieve(&rig.worker, &m, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n, 7);
	ck_assert_uint_eq(g.n_granted, 7);
	for (uint32_t i = 0; i < g.n; i++)
		ck_assert_uint_eq(wire_generation(&rig.worker, &g.grants[i]), g.grants[i].generation);
	ck_assert_uint_eq(promised(), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_held"), 7 * SHARD_BYTES);
	/* The same objects of both groups, and one that the second group does not have. */
	m.parts[1].from = 2;
	ck_assert_int_eq(groups_retrieve(&rig.worker, &m, &bad), SCOUT_WIRE_OK);
	ck_assert_uint_eq(bad.n, 8);
	ck_assert_int_eq(bad.grants[5].state, SCOUT_GRANT_MISSING);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, bad.id, 0), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_held"), 0);
	free(bad.grants);
	free(g.grants);
	m.parts[1].to = 11;
	ck_assert_int_eq(groups_retrieve(&rig.worker, &m, &bad), SCOUT_WIRE_RANGE);
	ck_assert_msg(strstr(rig.worker.text, "group 1") && strstr(rig.worker.text, "has 10"), "%s", rig.worker.text);
}
END_TEST

/* What the protocol says of a RETRIEVE of what its session does not promise. */
START_TEST(of_a_window_only_what_the_answer_needs_can_be_retrieved)
{
	const struct scout__groups groups = {2, {all, window}};
	const struct scout__retrieve_msg parts[] = {
		{.ticket = 9, .n_parts = 2, .parts = {{0, 0, 4}, {1, 6, 10}}},
		{.ticket = 10, .n_parts = 2, .parts = {{0, 0, 10}, {1, 8, 10}}},
	};
	struct wire_grants g;
	uint32_t kept;

	groups_up(&rig, 16, &groups, PAGE);
	groups_store(&rig.worker, 0, 0, 10);
	groups_store(&rig.worker, 1, 0, 10);
	for (uint64_t ticket = 9; ticket < 11; ticket++)
		ck_assert_uint_eq(look(ticket, 10, 0, 0).hit, 10);
	/* The first four of the full group were given back and are there. Objects 6 and 7 of the window nothing needed. */
	ck_assert_int_eq(wire_admit(&rig.client, 9, 4, 10, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 6 + 2);
	ck_assert_int_eq(groups_retrieve(&rig.worker, &parts[0], &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n, 8);
	for (uint32_t i = 0; i < g.n; i++)
		ck_assert_int_eq(g.grants[i].state, i == 4 || i == 5 ? SCOUT_GRANT_MISSING : SCOUT_GRANT_GRANTED);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	/* All is given back: the window too, and of that it is for good. */
	ck_assert_int_eq(wire_admit(&rig.client, 10, 0, 0, &kept), SCOUT_WIRE_OK);
	ck_assert_int_eq(groups_retrieve(&rig.worker, &parts[1], &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n, 12);
	for (uint32_t i = 0; i < g.n; i++)
		ck_assert_int_eq(g.grants[i].state, i >= 10 ? SCOUT_GRANT_MISSING : SCOUT_GRANT_GRANTED);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
}
END_TEST

START_TEST(max_promised_makes_the_length_shorter)
{
	const struct scout__groups groups = {2, {all, window}};
	struct scout_server_config cfg = rig_config(64);
	struct groups_answer answer;

	cfg.extent_bytes = 16 * SHARD_BYTES;
	cfg.max_promised = 8 * SHARD_BYTES;
	groups_up_with(&rig, &cfg, &groups, PAGE);
	groups_store(&rig.worker, 0, 0, 10);
	groups_store(&rig.worker, 1, 0, 10);
	/* Six objects of the first group, and the two of the window before the length. */
	answer = look(9, 10, 0, 0);
	ck_assert_uint_eq(answer.hit, 6);
	ck_assert_uint_eq(answer.limited, 1);
	ck_assert_uint_eq(promised(), 8);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(promised(), 0);
}
END_TEST

START_TEST(a_length_that_nothing_restores_is_no_hit)
{
	const struct scout__groups groups = {2, {all, {SCOUT_POLICY_STATE, 1, 4 * PAGE, 0, 0}}};
	struct groups_answer answer;
	uint32_t kept;

	groups_up(&rig, 16, &groups, PAGE);
	groups_store(&rig.worker, 0, 0, 10);
	answer = look(9, 10, 0, 4);
	ck_assert_uint_eq(answer.hit, 0);
	ck_assert_uint_eq(answer.l1, 0);
	ck_assert_uint_eq(promised(), 0);
	groups_store(&rig.worker, 1, 0, 2); /* states at 4 and 8 */
	answer = look(10, 10, 0, 4);
	ck_assert_uint_eq(answer.hit, 8);
	ck_assert_uint_eq(answer.l1, 8 + 1);
	ck_assert_uint_eq(answer.n_more, 1);
	ck_assert_uint_eq(answer.more[0], 4);
	/* No object of the second group ends at 6: of no group is anything kept of it. */
	ck_assert_int_eq(wire_admit(&rig.client, 10, 0, 4, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 4 + 1);
	ck_assert_int_eq(wire_admit(&rig.client, 10, 0, 0, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 0);
	ck_assert_uint_eq(promised(), 0);
}
END_TEST

START_TEST(hashes_before_first_are_not_named_and_those_beyond_do_not_count)
{
	const struct scout__groups groups = {1, {{SCOUT_POLICY_ALL, 1, PAGE, 0, PAGE}}};
	struct scout__lookup_msg m = {.ticket = 9, .first = 2, .n = 6, .skip = 2, .beyond = 1};
	struct groups_answer answer;

	groups_up(&rig, 16, &groups, PAGE);
	groups_store(&rig.worker, 0, 2, 8);
	ck_assert_int_eq(groups_lookup(&rig.client, &m, &answer), SCOUT_WIRE_OK);
	/* A margin of one object: 7 needs the object behind it, too. */
	ck_assert_uint_eq(answer.hit, 7);
	ck_assert_uint_eq(answer.l1, 6);
	m.ticket = 10;
	m.beyond = 0;
	ck_assert_int_eq(groups_lookup(&rig.client, &m, &answer), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, 7);
	m.ticket = 11;
	m.beyond = 4;
	ck_assert_int_eq(groups_lookup(&rig.client, &m, &answer), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, 4);
}
END_TEST

START_TEST(a_margin_may_need_more_than_the_hit_has)
{
	const struct scout__groups groups = {1, {{SCOUT_POLICY_ALL, 1, PAGE, 0, 40 * PAGE}}};
	const struct scout__lookup_msg m = {.ticket = 9, .n = 41, .beyond = 40};
	struct groups_answer answer;

	groups_up(&rig, 64, &groups, PAGE);
	groups_store(&rig.worker, 0, 0, 41);
	ck_assert_int_eq(groups_lookup(&rig.client, &m, &answer), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, 1);
	ck_assert_uint_eq(answer.l1, 41);
}
END_TEST

START_TEST(a_renewal_finds_what_was_stored_since)
{
	struct scout__lookup_msg m = {.ticket = 9, .n = 10};
	struct groups_answer answer;

	up_window();
	ck_assert_uint_eq(look(9, 10, 0, 0).hit, 5);
	m.flags = SCOUT_LOOKUP_RENEW;
	ck_assert_int_eq(groups_lookup(&rig.client, &m, &answer), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, 5);
	ck_assert_uint_eq(promised(), 7);
	groups_store(&rig.worker, 1, 6, 8);
	ck_assert_int_eq(groups_lookup(&rig.client, &m, &answer), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, 8);
	ck_assert_uint_eq(answer.l1, 8 + 2);
	/* What was promised before stays promised. */
	ck_assert_uint_eq(promised(), 8 + 4);
	m.n = 9;
	ck_assert_int_eq(groups_lookup(&rig.client, &m, &answer), SCOUT_WIRE_RANGE);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(promised(), 0);
}
END_TEST

START_TEST(an_expected_length_is_waited_for)
{
	struct scout__lookup_msg m = {
		.ticket = 9, .n = 10, .expect = 8, .poll_timeout_ms = 30000, .poll_interval_ms = 10};
	struct scout__lookup_reply answer;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	uint64_t corr;

	up_window();
	corr = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	wire_wait_status(&rig.worker, "l1.bytes_promised", 7 * SHARD_BYTES);
	ck_assert(!wire_has(&rig.client, corr));
	groups_store(&rig.worker, 1, 6, 8);
	reply = wire_wait(&rig.client, corr);
	op = (struct scout__op){.length = reply->length, .body = reply->body};
	ck_assert_int_eq(scout__get_lookup_reply(&op, &answer, &field), SCOUT_WIRE_OK);
	ck_assert_uint_eq(answer.hit, 8);
	wire_reply_free(reply);
	/* The window of 5 is given back: no length of the answer needs it. */
	ck_assert_uint_eq(promised(), 8 + 2);
}
END_TEST

START_TEST(a_lookup_ahead_says_what_there_is_of_each_group)
{
	const struct scout__lookup_msg m = {.ticket = 9, .n = 10, .flags = SCOUT_LOOKUP_AHEAD};
	struct wire_reply *reply;
	uint64_t corr;
	uint32_t kept;

	up_window();
	corr = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	reply = wire_wait(&rig.client, corr);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
	ck_assert_uint_eq(reply->length, SCOUT__LOOKUP_REPLY_BYTES + 8 + 2 * (2 + 2));
	ck_assert_uint_eq(reply->body[0], 5); /* the hit */
	ck_assert_uint_eq(reply->body[SCOUT__LOOKUP_REPLY_BYTES], 10);
	ck_assert_mem_eq(reply->body + SCOUT__LOOKUP_REPLY_BYTES + 8, "\xff\x03\0\0\x18\0\0\0", 8);
	wire_reply_free(reply);
	ck_assert_uint_eq(promised(), 12);
	/* The GPU has 4: the window of 5 needs object 3, which is there, and 4. */
	ck_assert_int_eq(wire_admit(&rig.client, 9, 4, 5, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 2);
	ck_assert_uint_eq(promised(), 2);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(promised(), 0);
}
END_TEST

START_TEST(a_clear_drops_all_groups)
{
	struct scout__clear_reply clear;

	up_window();
	ck_assert_uint_eq(look(9, 10, 0, 0).hit, 5);
	ck_assert_int_eq(wire_clear(&rig.client, 77, &clear), SCOUT_WIRE_OK);
	wire_wait_status(&rig.client, "l1.chunks", 0);
	ck_assert_uint_eq(look(10, 10, 0, 0).hit, 0);
	ck_assert_uint_eq(promised(), 0);
}
END_TEST

/* ---- workers that have other parts of the groups ---- */

START_TEST(a_worker_stores_only_groups_that_it_registered)
{
	const struct scout__groups groups = {2, {all, window}};
	struct scout_server_config cfg = rig_config(64);
	struct wire_peer second, client;
	struct wire_grants g;

	rig.hash_tokens = PAGE;
	cfg.extent_bytes = 16 * SHARD_BYTES;
	rig.server = rig_start(&cfg);
	for (int i = 0; i < 2; i++) { /* rank 0 has both groups, rank 1 the first only */
		struct wire_peer *p = i ? &second : &rig.worker;

		wire_open(p, scout_server_endpoint(rig.server));
		p->hello.role = SCOUT_ROLE_WORKER;
		p->hello.rank_count = p->hello.kv_ranks = 2;
		groups_say(p, &groups, PAGE);
		ck_assert_int_eq(wire_hello(p), SCOUT_WIRE_OK);
		ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
		ck_assert_int_eq(groups_register(p, (uint16_t)i, 0, i ? 1 : 3, SHARD_BYTES), SCOUT_WIRE_OK);
	}
	ck_assert_int_eq(groups_store_of(&second, 0, 1, 0, 1, &g), SCOUT_WIRE_GROUP);
	ck_assert_msg(strstr(second.text, "group = 1") != NULL, "%s", second.text);
	/* With a table that its rank did not have, it is another layout. */
	ck_assert_int_eq(groups_register(&second, 1, 0, 3, SHARD_BYTES), SCOUT_WIRE_SHARD_BYTES);
	ck_assert_msg(strstr(second.text, "has a table of group 1") != NULL, "%s", second.text);
	wire_open(&client, scout_server_endpoint(rig.server));
	client.hello.rank_count = client.hello.kv_ranks = 2;
	groups_say(&client, &groups, PAGE);
	ck_assert_int_eq(wire_hello(&client), SCOUT_WIRE_OK);
	rig.client = client;
	groups_store(&rig.worker, 0, 0, 4);
	groups_store(&rig.worker, 1, 0, 4);
	ck_assert_uint_eq(look(9, 4, 0, 0).hit, 0); /* rank 1 has not stored its shards */
	groups_store(&second, 0, 0, 4);
	ck_assert_uint_eq(look(10, 4, 0, 0).hit, 4);
	wire_close(&second);
}
END_TEST

START_TEST(readers_of_a_group_share_its_shard)
{
	/* Two workers; the second group has one shard that both read. */
	const struct scout__groups groups = {2, {all, {SCOUT_POLICY_ALL, 2, PAGE, 0, 0}}};
	const struct scout__retrieve_msg m = {.ticket = 9, .n_parts = 1, .parts = {{1, 0, 4}}};
	struct scout_server_config cfg = rig_config(64);
	struct wire_peer second;
	struct wire_grants g[2];

	rig.hash_tokens = PAGE;
	cfg.extent_bytes = 16 * SHARD_BYTES;
	rig.server = rig_start(&cfg);
	for (int i = 0; i < 3; i++) {
		struct wire_peer *p = i == 0 ? &rig.worker : i == 1 ? &second : &rig.client;

		wire_open(p, scout_server_endpoint(rig.server));
		p->hello.role = i < 2 ? SCOUT_ROLE_WORKER : SCOUT_ROLE_CLIENT;
		p->hello.rank_count = p->hello.kv_ranks = 2;
		groups_say(p, &groups, PAGE);
		ck_assert_msg(wire_hello(p) == SCOUT_WIRE_OK, "%s", p->text);
		if (i == 2)
			break;
		ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
		ck_assert_int_eq(groups_register(p, (uint16_t)i, 0, 3, SHARD_BYTES), SCOUT_WIRE_OK);
	}
	groups_store(&rig.worker, 0, 0, 4);
	groups_store(&second, 0, 0, 4);
	groups_store(&second, 1, 0, 4);
	ck_assert_uint_eq(look(9, 4, 0, 0).hit, 4);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(groups_retrieve(i ? &second : &rig.worker, &m, &g[i]), SCOUT_WIRE_OK);
		ck_assert_uint_eq(g[i].n_granted, 4);
	}
	ck_assert_uint_eq(g[0].grants[0].offset, g[1].grants[0].offset);
	/* Both readers have used their units: four chunks of the first group are left, two shards each. */
	ck_assert_uint_eq(promised(), 8);
	free(g[0].grants);
	free(g[1].grants);
	wire_close(&second);
}
END_TEST

/* ---- against the text of the protocol, token by token ---- */

#define N_HASHES 24u
#define OBJECTS 32u

/* Whether @token is one that a prompt of @length tokens needs of @group. */
static bool
is_needed(const struct scout__group *group, uint32_t token, uint32_t length)
{
	if (token >= length)
		return token < length + group->margin_tokens;
	switch (group->policy) {
	case SCOUT_POLICY_WINDOW:
		return token + group->span_tokens - 1 >= length;
	case SCOUT_POLICY_LOCAL:
		return token / group->span_tokens == length / group->span_tokens;
	case SCOUT_POLICY_STATE:
		return token + 1 == length;
	default:
		return true;
	}
}

/* How many objects a prompt of @length hashes needs; -1: it cannot be restored. @has: a bit for each object. */
static int
needs(const struct scout__groups *groups, const uint32_t *has, uint32_t skip, uint32_t length)
{
	uint32_t tokens = length * PAGE;
	int n = 0;

	for (uint32_t g = 0; g < groups->n; g++) {
		const struct scout__group *group = &groups->group[g];
		bool is_aligned = group->policy == SCOUT_POLICY_ALL || group->policy == SCOUT_POLICY_STATE;
		uint32_t seen = 0;

		if (is_aligned && tokens % group->unit_tokens)
			return -1;
		for (uint32_t t = 0; t < tokens + group->margin_tokens; t++) {
			uint32_t i = t / group->unit_tokens;

			if (!is_needed(group, t, tokens) || (i + 1) * group->unit_tokens <= skip * PAGE)
				continue;
			if (!(has[g] >> i & 1))
				return -1;
			seen |= 1u << i;
		}
		n += __builtin_popcount(seen);
	}
	return n;
}

static struct scout__groups
draw_groups(uint64_t *seed)
{
	struct scout__groups groups = {.n = 1 + (uint32_t)(xorshift(seed) % 4)};

	for (uint32_t g = 0; g < groups.n; g++) {
		struct scout__group *group = &groups.group[g];

		group->policy = (uint16_t)(xorshift(seed) % 4);
		group->readers = 1;
		group->unit_tokens = PAGE << xorshift(seed) % 3;
		if (group->policy == SCOUT_POLICY_WINDOW || group->policy == SCOUT_POLICY_LOCAL)
			group->span_tokens = 2 + (uint32_t)(xorshift(seed) % (6 * PAGE));
		group->margin_tokens = xorshift(seed) % 3 ? 0 : group->unit_tokens;
	}
	return groups;
}

/* One question, compared with needs(). */
static void
compare(const uint32_t *has, uint64_t ticket, uint64_t *seed)
{
	struct scout__lookup_msg m = {.ticket = ticket, .n = N_HASHES, .beyond = (uint32_t)(xorshift(seed) % 5)};
	uint32_t length = N_HASHES - m.beyond, n_more = 0, kept, at;
	struct groups_answer answer;

	m.skip = xorshift(seed) % 2 ? (uint32_t)(xorshift(seed) % (length + 1)) : 0;
	m.more = (uint16_t)(xorshift(seed) % 6);
	if (m.skip && xorshift(seed) % 2) {
		m.first = (uint32_t)(xorshift(seed) % (m.skip + 1));
		m.n -= m.first;
	}
	ck_assert_msg(groups_lookup(&rig.client, &m, &answer) == SCOUT_WIRE_OK, "%s", rig.client.text);
	while (length > m.skip && needs(&rig.groups, has, m.skip, length) < 0)
		length--;
	ck_assert_uint_eq(answer.hit, length);
	ck_assert_uint_eq(answer.l1, length > m.skip ? (uint32_t)needs(&rig.groups, has, m.skip, length) : 0);
	for (at = length; at > m.skip + 1 && n_more < m.more;) {
		if (needs(&rig.groups, has, m.skip, --at) < 0)
			continue;
		ck_assert_uint_lt(n_more, answer.n_more);
		ck_assert_uint_eq(answer.more[n_more], at);
		n_more++;
	}
	ck_assert_uint_eq(answer.n_more, n_more);
	/* The shortest of the lengths is one that can be admitted. */
	if (n_more)
		length = answer.more[n_more - 1];
	if (length > m.skip) {
		ck_assert_int_eq(wire_admit(&rig.client, ticket, m.skip, length, &kept), SCOUT_WIRE_OK);
		ck_assert_uint_eq(kept, (uint32_t)needs(&rig.groups, has, m.skip, length));
		ck_assert_uint_eq(promised(), kept);
	}
	rig_finish(&rig.client, ticket);
	ck_assert_uint_eq(promised(), 0);
}

START_LOOP_TEST(lengths_are_those_of_the_protocol, 0, 10)
{
	uint64_t seed = UINT64_C(88172645463325252) + (uint64_t)_i * 7919;

	for (uint32_t round = 0; round < 8; round++) {
		struct scout__groups groups = draw_groups(&seed);
		uint32_t has[SCOUT_MAX_GROUPS] = {0};

		groups_up(&rig, OBJECTS, &groups, PAGE);
		for (uint32_t g = 0; g < groups.n; g++)
			for (uint32_t i = 0; i < N_HASHES * PAGE / groups.group[g].unit_tokens; i++)
				if (xorshift(&seed) % 8) {
					has[g] |= 1u << i;
					groups_store(&rig.worker, (uint16_t)g, i, i + 1);
				}
		for (uint64_t ticket = 1; ticket <= 25; ticket++)
			compare(has, ticket, &seed);
		groups_down(&rig);
	}
}
END_TEST
