/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of one namespace and the memory of the pool: what each of them gets, and what stays of a request that waits. */
#include "check_main.h"
#include "groups_rig.h"

#define PAGE 16u /* tokens between two hashes */

static const struct scout__group all = {SCOUT_POLICY_ALL, 1, PAGE, 0, 0};
static const struct scout__group window = {SCOUT_POLICY_WINDOW, 1, PAGE, 2 * PAGE + 1, 0}; /* two objects */

static struct groups_answer
look(struct groups_rig *rig, uint64_t ticket, uint32_t n, uint32_t skip)
{
	const struct scout__lookup_msg m = {.ticket = ticket, .n = n, .skip = skip};
	struct groups_answer answer;

	ck_assert_msg(groups_lookup(&rig->client, &m, &answer) == SCOUT_WIRE_OK, "%s", rig->client.text);
	return answer;
}

static struct scout__groups
many_groups(uint32_t n)
{
	struct scout__groups groups = {.n = n};

	for (uint32_t g = 0; g < n; g++)
		groups.group[g] = g == 0 ? all : window;
	return groups;
}

/* An extent is at most an eighth of the pool: there would be no ninth one. */
START_LOOP_TEST(each_of_many_groups_gets_room, 2, 33)
{
	const uint32_t n = (uint32_t)_i;
	const struct scout__groups groups = many_groups(n);
	struct scout_server_config cfg = rig_config(2 * n);
	struct groups_rig rig;

	groups_up_with(&rig, &cfg, &groups, PAGE);
	for (uint16_t g = 0; g < n; g++)
		groups_store(&rig.worker, g, 0, 1);
	ck_assert_uint_eq(look(&rig, 1, 1, 0).hit, 1);
	rig_finish(&rig.client, 1);
	/* And keeps it, whatever the others store. */
	for (uint32_t i = 10; i < 60; i++)
		groups_store(&rig.worker, (uint16_t)(i % n), i, i + 1);
	for (uint16_t g = 0; g < n; g++)
		groups_store(&rig.worker, g, 100, 101);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.refusals"), 0);
	groups_down(&rig);
}
END_TEST

START_TEST(a_pool_that_is_too_small_for_its_groups_is_refused)
{
	const struct scout__groups groups = many_groups(12);
	struct scout_server_config cfg = rig_config(23);
	struct scout_server *server = rig_start(&cfg);
	struct wire_peer worker;

	wire_open(&worker, scout_server_endpoint(server));
	worker.hello.role = SCOUT_ROLE_WORKER;
	groups_say(&worker, &groups, PAGE);
	ck_assert_int_eq(wire_hello(&worker), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&worker), SCOUT_LEASE_OK);
	ck_assert_int_eq(groups_register(&worker, 0, 0, UINT32_MAX, SHARD_BYTES), SCOUT_WIRE_NO_ROOM);
	ck_assert_msg(strstr(worker.text, "12 groups takes 49152 bytes") && strstr(worker.text, "l1_bytes is 94208"),
		      "%s", worker.text);
	wire_close(&worker);
	scout_server_stop(server);
}
END_TEST

/* Of a request that waits, what max_promised does not reach becomes the newest in each group. */
START_TEST(what_waits_beyond_max_promised_counts_as_used_in_each_group)
{
	const struct scout__groups groups = {2, {all, window}};
	const struct scout__lookup_msg m = {.ticket = 1, .n = 10, .flags = SCOUT_LOOKUP_AHEAD};
	struct scout_server_config cfg = rig_config(64);
	struct groups_rig rig;
	uint64_t corr;

	cfg.eviction = "lru";
	cfg.max_promised = 8 * SHARD_BYTES;
	groups_up_with(&rig, &cfg, &groups, PAGE);
	groups_store(&rig.worker, 0, 0, 10);
	groups_store(&rig.worker, 1, 8, 10);
	groups_store(&rig.worker, 1, 100, 130);
	corr = wire_add_lookup(&rig.client, &m, 1);
	wire_flush(&rig.client);
	wire_reply_free(wire_wait(&rig.client, corr));
	/* All of the first group but the promised ones, and the window of 10. */
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 8 * SHARD_BYTES);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.kept_recent_chunks"), 2 + 2);
	for (uint32_t i = 200; wire_status(&rig.client, "l1.evictions") < 4; i++)
		groups_store(&rig.worker, 1, i, i + 1);
	rig_finish(&rig.client, 1);
	ck_assert_uint_eq(look(&rig, 2, 10, 8).hit, 10);
	groups_down(&rig);
}
END_TEST

/* lookups.lost_chunks tells that the window, and not the full group, made the hit shorter. */
START_TEST(what_a_missing_window_loses_is_counted)
{
	const struct scout__groups groups = {2, {all, window}};
	struct groups_rig rig;

	groups_up(&rig, 16, &groups, PAGE);
	groups_store(&rig.worker, 0, 0, 8);
	groups_store(&rig.worker, 1, 2, 4);
	ck_assert_uint_eq(look(&rig, 1, 10, 0).hit, 4);
	ck_assert_uint_eq(wire_status(&rig.client, "lookups.lost_chunks"), 4);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.known_chunks"), 8);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.ceiling_chunks"), 8);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.group.0.hit_objects"), 4);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.group.1.hit_objects"), 2);
	for (uint32_t g = 0; g < 2; g++) {
		const struct scout__group *group = &rig.client.hello.groups.group[g];
		char name[64];

		(void)snprintf(name, sizeof(name), "ns.test.group.%u.policy", (unsigned)g);
		ck_assert_uint_eq(wire_status(&rig.client, name), group->policy);
		(void)snprintf(name, sizeof(name), "ns.test.group.%u.unit_tokens", (unsigned)g);
		ck_assert_uint_eq(wire_status(&rig.client, name), group->unit_tokens);
		(void)snprintf(name, sizeof(name), "ns.test.group.%u.span_tokens", (unsigned)g);
		ck_assert_uint_eq(wire_status(&rig.client, name), group->span_tokens);
	}
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.group.0.objects"), 8);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.group.1.bytes"), 2 * SHARD_BYTES);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.group.1.evictions"), 0);
	groups_down(&rig);
}
END_TEST
