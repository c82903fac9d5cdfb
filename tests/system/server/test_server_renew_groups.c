/* SPDX-License-Identifier: Apache-2.0 */
/* Namespaces of several groups: a session that is renewed says what can be restored, also after an ADMIT that left it nothing. */
#include "check_main.h"
#include "groups_rig.h"

#define PAGE 16u /* tokens between two hashes */

static const struct scout__group all = {SCOUT_POLICY_ALL, 1, PAGE, 0, 0};
static const struct scout__group window = {SCOUT_POLICY_WINDOW, 1, PAGE, 2 * PAGE + 1, 0}; /* two objects */

/* A full group and a window, and all objects of a prompt of 10. */
static void
up_window(struct groups_rig *rig)
{
	const struct scout__groups groups = {2, {all, window}};

	groups_up(rig, 16, &groups, PAGE);
	groups_store(&rig->worker, 0, 0, 10);
	groups_store(&rig->worker, 1, 0, 10);
}

static struct groups_answer
ask(struct groups_rig *rig, const struct scout__lookup_msg *m)
{
	struct groups_answer answer;

	ck_assert_msg(groups_lookup(&rig->client, m, &answer) == SCOUT_WIRE_OK, "%s", rig->client.text);
	return answer;
}

static uint64_t
promised(struct groups_rig *rig)
{
	return wire_status(&rig->client, "l1.bytes_promised") / SHARD_BYTES;
}

/* The window of 10 was promised, so that of 8 is not: what is left restores nothing, and a renewal promises 10 anew. */
START_TEST(after_an_admit_of_a_length_that_was_not_promised_nothing_counts_but_what_is_there)
{
	struct scout__lookup_msg m = {.ticket = 9, .n = 10};
	struct groups_answer answer;
	struct groups_rig rig;
	uint32_t kept;

	up_window(&rig);
	ck_assert_uint_eq(ask(&rig, &m).hit, 10);
	ck_assert_uint_eq(promised(&rig), 12);
	ck_assert_int_eq(wire_admit(&rig.client, 9, 0, 8, &kept), SCOUT_WIRE_OK);
	ck_assert_uint_eq(kept, 8);
	m.flags = SCOUT_LOOKUP_RENEW;
	m.beyond = 5;
	answer = ask(&rig, &m);
	ck_assert_uint_eq(answer.hit, 5);
	ck_assert_uint_eq(promised(&rig), 8 + 2);
	rig_finish(&rig.client, 9);
	ck_assert_uint_eq(promised(&rig), 0);
	groups_down(&rig);
}
END_TEST

START_TEST(what_the_gpu_had_is_no_hit_of_a_renewal_that_skips_less)
{
	struct scout__lookup_msg m = {.ticket = 9, .n = 10, .skip = 10};
	const struct scout__groups groups = {2, {all, window}};
	struct groups_rig rig;

	groups_up(&rig, 16, &groups, PAGE);
	ck_assert_uint_eq(ask(&rig, &m).hit, 10);
	m.flags = SCOUT_LOOKUP_RENEW;
	m.skip = 4;
	ck_assert_uint_eq(ask(&rig, &m).hit, 4);
	groups_down(&rig);
}
END_TEST

/* Nothing of the prompt was there, and the renewal skips what was never looked at: a RETRIEVE of that, and the end, find nothing. */
START_TEST(a_renewal_may_skip_what_was_never_looked_at)
{
	struct scout__retrieve_msg parts = {.n_parts = 2, .parts = {{0, 0, 200}, {1, 0, 200}}};
	struct scout__lookup_msg m = {.n = 200};
	const struct scout__groups groups = {2, {all, window}};
	struct wire_grants g;
	struct groups_rig rig;

	groups_up(&rig, 16, &groups, PAGE);
	for (uint64_t ticket = 1; ticket <= 8; ticket++) {
		m.ticket = parts.ticket = ticket;
		m.flags = m.skip = 0;
		ck_assert_uint_eq(ask(&rig, &m).hit, 0);
		m.flags = SCOUT_LOOKUP_RENEW;
		m.skip = 190;
		ck_assert_uint_eq(ask(&rig, &m).hit, 190);
		ck_assert_int_eq(groups_retrieve(&rig.worker, &parts, &g), SCOUT_WIRE_OK);
		ck_assert_uint_eq(g.n_granted, 0);
		free(g.grants);
	}
	for (uint64_t ticket = 1; ticket <= 8; ticket++)
		rig_finish(&rig.client, ticket);
	groups_down(&rig);
}
END_TEST

/* The session has 10; a renewal may ask for no more than 6, and hears of that, too. */
START_TEST(further_lengths_of_a_renewal_begin_below_what_it_has)
{
	struct scout__lookup_msg m = {.ticket = 9, .n = 10};
	struct groups_answer answer;
	struct groups_rig rig;

	up_window(&rig);
	ck_assert_uint_eq(ask(&rig, &m).hit, 10);
	m.flags = SCOUT_LOOKUP_RENEW;
	m.beyond = 4;
	m.more = 2;
	answer = ask(&rig, &m);
	ck_assert_uint_eq(answer.hit, 10);
	ck_assert_uint_eq(answer.n_more, 2);
	ck_assert_uint_eq(answer.more[0], 6);
	ck_assert_uint_eq(answer.more[1], 5);
	groups_down(&rig);
}
END_TEST
