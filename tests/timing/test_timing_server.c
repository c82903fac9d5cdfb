/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "given_time.h"
#include "groups_rig.h"
#include "server_rig.h"

/* What the server promises to do in time. It runs in this process, so the delays of its threads count out, too. */

/* S6, S1: the budget of a lookup bounds its answer, whatever else the server waits for. */
START_TEST(a_lookup_is_answered_when_its_budget_ends)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_reply m;
	struct given_time t;
	struct rig rig;

	cfg.reply_delay_us = 60000000;
	rig_up_with(&rig, &cfg);
	rig.client.budget_us = 50000;
	given_time_begin(&t);
	ck_assert_int_eq(wire_lookup(&rig.client, 1, 1, 1, 0, &m), SCOUT_WIRE_OK);
	(void)given_time_within(&t, 500000, "the answer to a lookup of 50 ms");
	rig_down(&rig);
}
END_TEST

START_TEST(stop_with_running_operations_is_bounded)
{
	struct scout_server_config cfg = rig_config(8);
	struct scout__lookup_msg m = {.ticket = 9, .n = 4};
	struct given_time t;
	struct rig rig;
	uint64_t id;

	cfg.reply_delay_us = 60000000;
	rig_up_with(&rig, &cfg);
	rig_store(&rig.worker, 0, 1, 4);
	rig_granted(&rig.worker, 0, 11, 4, &id);
	(void)wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	ck_assert_int_eq(wire_ping(&rig.client), SCOUT_WIRE_OK);
	given_time_begin(&t);
	scout_server_stop(rig.server);
	(void)given_time_within(&t, 5000000, "the stop of a server with a lookup, a store and a hold");
	wire_close(&rig.client);
	wire_close(&rig.worker);
}
END_TEST

/* What was sent to the others leaves; for this one the server waits 0.2 s. */
START_TEST(a_peer_that_does_not_read_does_not_hold_a_stop)
{
	struct wire_peer deaf;
	struct given_time t;
	struct rig rig;

	rig_up(&rig, 8);
	wire_open_hwm(&deaf, rig.endpoint, 1);
	ck_assert_int_eq(wire_hello(&deaf), SCOUT_WIRE_OK);
	do {
		(void)wire_begin(&deaf, SCOUT_OP_STATUS);
		(void)wire_end(&deaf);
		wire_flush(&deaf);
	} while (wire_status(&rig.client, "replies.unsent_bytes") < 65536);
	given_time_begin(&t);
	scout_server_stop(rig.server);
	(void)given_time_within(&t, 2000000, "the stop of a server with a peer that does not read");
	wire_close(&deaf);
	wire_close(&rig.client);
	wire_close(&rig.worker);
}
END_TEST

/* ---- a ping beside a long lookup ---- */

#define LONG_LOOKUP 262000u
#define PINGS_MAX 65536u
#define PING_P99_US 3000u
#define PING_LONGEST_US 30000u
#define ROUNDS 3

/* What the pings of a round took, the shortest first. */
struct pings {
	uint32_t n;
	struct given_time_result took[PINGS_MAX];
};

/* Ping, at least once, until the reply to @corr is there. */
static void
ping_beside(struct wire_peer *client, uint64_t corr, struct wire_peer *peer, struct pings *ret)
{
	ret->n = 0;
	do {
		struct given_time t;

		given_time_begin(&t);
		assert_wire(wire_ping(peer), SCOUT_WIRE_OK);
		ret->took[ret->n++] = given_time_end(&t);
	} while (!wire_has(client, corr) && ret->n < PINGS_MAX);
}

static int
compare_given(const void *a, const void *b)
{
	const struct given_time_result *x = a, *y = b;
	uint64_t x_us = x->elapsed_us - x->delay_us, y_us = y->elapsed_us - y->delay_us;

	return (x_us > y_us) - (x_us < y_us);
}

/* S6: no step of a lookup is long, however long the prompt is and in however many groups. The best of several rounds counts. */
START_TEST(a_ping_beside_the_longest_lookup_waits_for_a_step_of_it)
{
	struct given_time_result p99 = {.elapsed_us = UINT64_MAX}, longest = p99;
	struct scout__groups groups = {.n = SCOUT_MAX_GROUPS};
	static struct pings pings;
	struct groups_rig rig;
	struct wire_peer peer;

	for (uint16_t g = 0; g < groups.n; g++)
		groups.group[g] = (struct scout__group){SCOUT_POLICY_ALL, 1, 16, 0, 0};
	groups_up(&rig, 256, &groups, 16);
	for (uint16_t g = 0; g < groups.n; g++)
		groups_store(&rig.worker, g, 0, 32);
	wire_open(&peer, scout_server_endpoint(rig.server));
	groups_say(&peer, &groups, 16);
	assert_wire(wire_hello(&peer), SCOUT_WIRE_OK);
	for (uint64_t ticket = 1; ticket <= ROUNDS; ticket++) {
		struct scout__lookup_msg m = {.ticket = ticket, .n = LONG_LOOKUP};
		uint64_t corr = wire_add_lookup(&rig.client, &m, 1);

		wire_flush(&rig.client);
		ping_beside(&rig.client, corr, &peer, &pings);
		wire_reply_free(wire_wait(&rig.client, corr));
		rig_finish(&rig.client, ticket);
		ck_assert_uint_ge(pings.n, 10);
		qsort(pings.took, pings.n, sizeof(pings.took[0]), compare_given);
		if (ticket == 1 || compare_given(&pings.took[pings.n * 99 / 100], &p99) < 0)
			p99 = pings.took[pings.n * 99 / 100];
		if (ticket == 1 || compare_given(&pings.took[pings.n - 1], &longest) < 0)
			longest = pings.took[pings.n - 1];
	}
	(void)given_time_judge(p99, PING_P99_US, "99 of 100 pings beside a lookup of 262000 hashes in 32 groups");
	(void)given_time_judge(longest, PING_LONGEST_US, "the longest of these pings");
	wire_close(&peer);
	groups_down(&rig);
}
END_TEST

/* ---- a ping beside a flood ---- */

#define FLOOD_TENANTS 4096u
#define FLOOD_LONGEST_US 8000u

static const uint8_t floods[] = {SCOUT_OP_DROP, SCOUT_OP_RESET, SCOUT_OP_CLEAR, SCOUT_OP_FEED};

/* S6: what a frame of the most operations costs a neighbour is a few steps. The best of several rounds counts. */
START_LOOP_TEST(a_ping_beside_a_flood_waits_for_a_step_of_it, 0, sizeof(floods))
{
	struct given_time_result longest = {.elapsed_us = UINT64_MAX};
	static struct pings pings;
	struct wire_peer peer;
	struct rig rig;

	rig_up(&rig, FLOOD_TENANTS);
	for (unsigned i = 0; i < FLOOD_TENANTS; i++) {
		char tenant[8];

		rig.worker.tenant = (struct scout__str){tenant, (uint16_t)snprintf(tenant, sizeof(tenant), "%u", i)};
		(void)rig_store(&rig.worker, 0, 1, 1);
	}
	rig_client(&peer, rig.endpoint);
	ck_assert(wire_lease(&peer) == SCOUT_LEASE_OK && wire_channel(&peer));
	for (uint64_t round = 0; round < ROUNDS; round++) {
		for (uint32_t i = 1; i <= SCOUT_MAX_OPS; i++)
			(void)wire_add_plain(&rig.client, floods[_i], (round << 32) + i);
		wire_flush(&rig.client);
		ping_beside(&rig.client, rig.client.last_corr, &peer, &pings);
		qsort(pings.took, pings.n, sizeof(pings.took[0]), compare_given);
		if (round == 0 || compare_given(&pings.took[pings.n - 1], &longest) < 0)
			longest = pings.took[pings.n - 1];
	}
	(void)given_time_judge(longest, FLOOD_LONGEST_US, scout__op_name(floods[_i]));
	wire_close(&peer);
	rig_down(&rig);
}
END_TEST
