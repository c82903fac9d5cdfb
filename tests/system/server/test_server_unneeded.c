/* SPDX-License-Identifier: Apache-2.0 */
/* What a window, a local or a state group needs no more leaves first; what the policy says is for the rest. */
#include "check_main.h"
#include "groups_rig.h"

#define PAGE 16u /* tokens between two hashes */
#define LONGEST 64u

static const struct scout__group all = {SCOUT_POLICY_ALL, 1, PAGE, 0, 0};
static const struct scout__group window = {SCOUT_POLICY_WINDOW, 1, PAGE, 2 * PAGE + 1, 0}; /* two objects */
static const struct scout__group state = {SCOUT_POLICY_STATE, 1, 2 * PAGE, 0, 0};

/* A prompt of @n hashes: the first @common are those of all prompts, the others are those of prompt @number. */
struct prompt {
	uint32_t number, common, n;
};

static struct groups_rig rig;

static void
teardown(void)
{
	if (rig.server)
		groups_down(&rig);
}

static void
put_hash(const struct prompt *prompt, uint32_t i, uint8_t *ret)
{
	uint64_t number = i < prompt->common ? 0 : prompt->number;

	wire_hash(ret, rig.client.hello.hash_bytes, 1 + number * 1000 + i);
}

static uint32_t
look(uint64_t ticket, const struct prompt *prompt)
{
	uint8_t hashes[LONGEST * SCOUT_MAX_HASH];
	struct scout__lookup_msg m = {.ticket = ticket, .n = prompt->n, .hashes = hashes};
	struct wire_peer *p = &rig.client;
	struct scout__lookup_reply answer;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	uint64_t corr;

	for (uint32_t i = 0; i < prompt->n; i++)
		put_hash(prompt, i, hashes + (size_t)i * p->hello.hash_bytes);
	scout__put_lookup(wire_begin(p, SCOUT_OP_LOOKUP), &m, p->hello.hash_bytes);
	corr = wire_end(p);
	wire_flush(p);
	reply = wire_wait(p, corr);
	ck_assert_msg(reply->status == SCOUT_WIRE_OK, "%s", p->text);
	op = (struct scout__op){.opcode = reply->opcode, .length = reply->length, .body = reply->body};
	ck_assert_int_eq(scout__get_lookup_reply(&op, &answer, &field), SCOUT_WIRE_OK);
	wire_reply_free(reply);
	return answer.hit;
}

/* Store the objects of @group that end in [@from, @to) of the prompt. */
static void
store(uint64_t ticket, const struct prompt *prompt, uint16_t group, uint32_t from, uint32_t to)
{
	uint32_t stride = rig.groups.group[group].unit_tokens / PAGE, readable;
	uint8_t hashes[LONGEST * SCOUT_MAX_HASH];
	struct scout__store_msg m = {.ticket = ticket, .group = group, .hashes = hashes};
	struct wire_peer *p = &rig.worker;
	struct wire_reply *reply;
	struct scout__grants grants;
	struct scout__op op;
	const char *field;
	uint32_t granted = 0;
	uint64_t corr;

	for (uint32_t i = from / stride; i < to / stride; i++)
		put_hash(prompt, (i + 1) * stride - 1, hashes + (size_t)m.n++ * p->hello.hash_bytes);
	if (m.n == 0)
		return;
	scout__put_store(wire_begin(p, SCOUT_OP_STORE), &m, p->hello.hash_bytes);
	corr = wire_end(p);
	wire_flush(p);
	reply = wire_wait(p, corr);
	ck_assert_msg(reply->status == SCOUT_WIRE_OK, "%s", p->text);
	op = (struct scout__op){.opcode = reply->opcode, .length = reply->length, .body = reply->body};
	ck_assert_int_eq(scout__get_grants(&op, &grants, &field), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < grants.n; i++)
		granted += scout__grant_at(&grants, i).state == SCOUT_GRANT_GRANTED;
	corr = grants.id;
	wire_reply_free(reply);
	if (corr)
		ck_assert_int_eq(wire_store_done(p, corr, granted, granted, &readable), SCOUT_WIRE_OK);
}

/* A request from LOOKUP to FINISH, which stores what was no hit. Returns the hit. */
static uint32_t
request(uint64_t ticket, const struct prompt *prompt)
{
	uint32_t hit = look(ticket, prompt);

	for (uint16_t g = 0; g < rig.groups.n; g++)
		store(ticket, prompt, g, hit, prompt->n);
	rig_finish(&rig.client, ticket);
	return hit;
}

/* The namespace has room for @objects of each group. */
static void
up(uint32_t objects, const struct scout__group *second, const char *eviction)
{
	const struct scout__groups groups = {2, {all, *second}};
	struct scout_server_config cfg = rig_config(objects * groups.n);

	cfg.extent_bytes = (uint64_t)objects * SHARD_BYTES;
	cfg.eviction = eviction;
	groups_up_with(&rig, &cfg, &groups, PAGE);
}

static const char *const policies[] = {"lru", "hdc", "s3fifo"};

/*
 * Store objects of other prompts in a group until @n have left. Each is all that its request stored, so each is
 * needed. Returns how many of those that left were unneeded.
 */
static uint64_t
press_on(uint16_t group, uint32_t n)
{
	static uint32_t number;
	uint64_t evictions = wire_status(&rig.client, "l1.evictions");
	uint64_t unneeded = wire_status(&rig.client, "l1.evictions_unneeded");
	uint32_t stride = rig.groups.group[group].unit_tokens / PAGE;

	for (uint32_t i = 0; wire_status(&rig.client, "l1.evictions") < evictions + n; i++) {
		const struct prompt other = {++number + 100, 0, stride};

		ck_assert_uint_lt(i, 200);
		ck_assert_uint_eq(look(1000 + number, &other), 0);
		store(1000 + number, &other, group, 0, stride);
		rig_finish(&rig.client, 1000 + number);
	}
	return wire_status(&rig.client, "l1.evictions_unneeded") - unneeded;
}

static uint64_t
press(uint32_t n)
{
	return press_on(1, n);
}

CHECKED_FIXTURE(NULL, teardown);

/* Of a prompt of 10 hashes a keep pins all objects of the first group, and the last four of the window: two lengths. */
START_LOOP_TEST(a_keep_pins_what_the_next_turn_needs_of_each_group, 0, 3)
{
	struct scout__finish_msg m = {.keep_ms = 600000};
	struct scout__finish_reply reply;

	up(40, &window, policies[_i]);
	for (m.ticket = 1; m.ticket <= 2; m.ticket++) {
		const struct prompt prompt = {(uint32_t)m.ticket, 0, 10};

		ck_assert_uint_eq(look(m.ticket, &prompt), 0);
		store(m.ticket, &prompt, 0, 0, 10);
		store(m.ticket, &prompt, 1, 0, 10);
		assert_wire(wire_finish(&rig.client, &m, &reply), SCOUT_WIRE_OK);
		/* A quarter of the pool of 80 objects may be kept: for the second prompt there is too little, so nothing is. */
		ck_assert_uint_eq(reply.outcome, m.ticket == 1 ? SCOUT_OUTCOME_ACCEPTED : SCOUT_OUTCOME_REJECTED);
		ck_assert_uint_eq(reply.kept, m.ticket == 1 ? 10 : 0);
		ck_assert_uint_eq(wire_status(&rig.client, "ns.test.bytes_kept"), 14 * SHARD_BYTES);
	}
	for (uint32_t i = 0; i < 30; i++)
		ck_assert_uint_eq(request(10 + i, &(struct prompt){10 + i, 0, 8}), 0);
	ck_assert_uint_eq(look(3, &(struct prompt){1, 0, 12}), 10);
	ck_assert_uint_eq(look(4, &(struct prompt){2, 0, 12}), 0);
}
END_TEST

START_LOOP_TEST(what_a_prompt_leaves_behind_goes_first, 0, 3)
{
	up(20, &window, policies[_i]);
	ck_assert_uint_eq(request(1, &(struct prompt){1, 0, 10}), 0);
	/* Two of ten objects are needed at the end of the prompt, and two more if a request leaves it before that. */
	ck_assert_uint_eq(press(6), 6);
	ck_assert_uint_eq(look(2, &(struct prompt){1, 0, 14}), 10);
	ck_assert_uint_eq(look(3, &(struct prompt){1, 0, 8}), 8);
}
END_TEST

START_LOOP_TEST(a_conversation_leaves_its_history_behind, 0, 3)
{
	up(40, &window, policies[_i]);
	for (uint32_t turn = 1; turn <= 7; turn++)
		ck_assert_uint_eq(request(turn, &(struct prompt){1, 0, 5 * turn}), 5 * (turn - 1));
	/* The last four stay, and of each turn before the two in front of those that the next hit needed. */
	ck_assert_uint_eq(press(35 - 4 - 6 * 2), 35 - 4 - 6 * 2);
	ck_assert_uint_eq(look(100, &(struct prompt){1, 0, 38}), 35);
}
END_TEST

/* A beginning of 6 that all prompts share: the second prompt makes it known, and from then on it stays. */
START_LOOP_TEST(a_beginning_that_prompts_share_stays, 0, 3)
{
	up(24, &window, policies[_i]);
	ck_assert_uint_eq(request(1, &(struct prompt){1, 6, 12}), 0);
	ck_assert_uint_eq(press(8), 8);
	/* The first group has 6 of this prompt, the window nothing. */
	ck_assert_uint_eq(request(2, &(struct prompt){2, 6, 12}), 0);
	ck_assert_uint_eq(press(6), 6); /* but 4 and 5, 8 to 11 */
	ck_assert_uint_eq(request(3, &(struct prompt){3, 6, 11}), 6);
	ck_assert_uint_eq(press(1), 1); /* 6 of the third prompt */
	ck_assert_uint_eq(look(4, &(struct prompt){2, 6, 14}), 12);
	ck_assert_uint_eq(look(5, &(struct prompt){3, 6, 14}), 11);
	ck_assert_uint_eq(look(6, &(struct prompt){4, 6, 14}), 6);
}
END_TEST

/* A window at a length that the first group has lost restores nothing. */
START_TEST(a_window_goes_with_the_full_group)
{
	up(20, &window, "lru");
	/* Both groups are full, of 20 each. */
	for (uint32_t i = 0; i < 60; i++)
		(void)request(10 + i, &(struct prompt){10 + i, 0, 1});
	ck_assert_uint_eq(request(1, &(struct prompt){1, 0, 2}), 0);
	ck_assert_uint_eq(request(2, &(struct prompt){2, 0, 2}), 0);
	ck_assert_uint_eq(look(3, &(struct prompt){1, 0, 4}), 2);
	rig_finish(&rig.client, 3);
	/* With the 16 older ones, those of the second prompt leave the first group. */
	ck_assert_uint_eq(press_on(0, 16 + 2), 0);
	ck_assert_uint_eq(press(2), 2);
	ck_assert_uint_eq(look(4, &(struct prompt){1, 0, 4}), 2);
}
END_TEST

START_LOOP_TEST(the_state_at_the_end_stays, 0, 3)
{
	up(24, &state, policies[_i]);
	ck_assert_uint_eq(request(1, &(struct prompt){1, 0, 21}), 0);
	ck_assert_uint_eq(press(8), 8);
	ck_assert_uint_eq(look(2, &(struct prompt){1, 0, 24}), 20);
	ck_assert_uint_eq(look(3, &(struct prompt){1, 0, 19}), 18);
}
END_TEST

START_LOOP_TEST(a_promise_takes_back_what_is_unneeded, 0, 3)
{
	up(16, &window, policies[_i]);
	ck_assert_uint_eq(request(1, &(struct prompt){1, 0, 10}), 0);
	ck_assert_uint_eq(look(2, &(struct prompt){1, 0, 4}), 4);
	rig_finish(&rig.client, 2);
	ck_assert_uint_eq(press(4), 4); /* but 2 and 3, 6 to 9 */
	ck_assert_uint_eq(look(3, &(struct prompt){1, 0, 4}), 4);
	ck_assert_uint_eq(look(4, &(struct prompt){1, 0, 12}), 10);
}
END_TEST

/* What an ADMIT gave back was not needed, and a session that ends without FINISH says nothing. */
START_LOOP_TEST(an_admit_says_what_is_needed, 0, 3)
{
	uint32_t kept;

	up(16, &window, policies[_i]);
	ck_assert_uint_eq(request(1, &(struct prompt){1, 0, 10}), 0);
	for (uint64_t ticket = 2; ticket < 4; ticket++) {
		ck_assert_uint_eq(look(ticket, &(struct prompt){1, 0, 6}), 6);
		ck_assert_int_eq(wire_admit(&rig.client, ticket, 0, 0, &kept), SCOUT_WIRE_OK);
		rig_finish(&rig.client, ticket);
	}
	/* Promised for a moment, 4 and 5 are in the order again: 0 to 3 are unneeded. */
	ck_assert_uint_eq(press(4), 4);
	ck_assert_uint_eq(look(4, &(struct prompt){1, 0, 12}), 10);
}
END_TEST
