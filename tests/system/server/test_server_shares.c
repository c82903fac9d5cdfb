/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include "server_rig.h"

/*
 * Fair shares in a server: one tenant floods the pool with prompts that never come back, and its neighbour, whose prompts
 * fit its share, keeps its hit ratio. Under every policy, with the shares from the configuration and from a call.
 */

#define CHUNKS 400u
#define PROMPT 4u
#define PROMPTS 45u /* 180 chunks: less than half of the pool */
#define FLOOD 32u   /* chunks that are stored between two prompts of the neighbour */
#define ROUNDS 600u

static const char *const policies[] = {"hdc", "lru", "s3fifo"};
#define POLICIES 3

static struct rig rig;
static uint64_t last_ticket;
static uint64_t next_new; /* key of a prompt that was never asked for */
static uint32_t flood_keep_ms;

static void
up(const char *policy, const char *tenant_share)
{
	struct scout_server_config cfg = rig_config(CHUNKS);

	cfg.eviction = policy;
	cfg.tenant_share = tenant_share;
	cfg.max_promised = cfg.l1_bytes / 2; /* the default */
	rig_up_with(&rig, &cfg);
	last_ticket = 0;
	next_new = 1000000;
	flood_keep_ms = 0;
}

/* A request: look up, store what is missing, finish. Returns the hit. */
static uint32_t
request(const char *tenant, uint64_t first_key, uint32_t n)
{
	uint64_t ticket = ++last_ticket;
	uint32_t hit;

	rig.client.tenant = rig.worker.tenant = (struct scout__str){tenant, (uint16_t)strlen(tenant)};
	hit = rig_hit(&rig.client, ticket, first_key, n);
	if (hit < n)
		(void)rig_store(&rig.worker, ticket, first_key + hit, n - hit);
	if (*tenant == 'b' && flood_keep_ms) {
		struct scout__finish_msg m = {.ticket = ticket, .keep_ms = flood_keep_ms};
		struct scout__finish_reply reply;

		assert_wire(wire_finish(&rig.client, &m, &reply), SCOUT_WIRE_OK);
	} else {
		rig_finish(&rig.client, ticket);
	}
	return hit;
}

/* Percent of the chunks that tenant a asked for and hit, while tenant b stores @flood chunks between its prompts. */
static double
hit_percent(uint32_t flood)
{
	uint32_t seed = 7, hit = 0;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		double u;

		seed = seed * 1664525u + 1013904223u;
		u = (double)(seed >> 8) / (1 << 24);
		/* A few are asked for often, most rarely: density 1 / (3 x^(2/3)). */
		hit += request("a", (uint64_t)(u * u * u * PROMPTS) * PROMPT + 1, PROMPT);
		if (flood) {
			(void)request("b", next_new, flood);
			next_new += flood;
		}
	}
	return 100.0 * hit / (ROUNDS * PROMPT);
}

/* Another client is there, so that the liar has half of what may be kept: a sixteenth of the pool. */
START_LOOP_TEST(a_tenant_that_keeps_everything_costs_its_neighbour_little, 0, POLICIES)
{
	struct wire_peer other;
	double honest, lied;

	up(policies[_i], NULL);
	honest = hit_percent(FLOOD);
	rig_down(&rig);
	up(policies[_i], NULL);
	rig_client(&other, rig.endpoint);
	flood_keep_ms = UINT32_MAX;
	lied = hit_percent(FLOOD);
	printf("# %s: %.2f %% beside an honest flood, %.2f %% beside a liar\n", policies[_i], honest, lied);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.bytes_kept"), CHUNKS / 16 * SHARD_BYTES);
	ck_assert_double_ge(lied, 0.95 * honest);
	wire_close(&other);
	rig_down(&rig);
}
END_TEST

START_LOOP_TEST(a_flooding_tenant_costs_its_neighbour_at_most_one_point, 0, POLICIES)
{
	double alone, shared, without;

	up(policies[_i], NULL);
	alone = hit_percent(0);
	rig_down(&rig);
	up(policies[_i], "a:50%");
	shared = hit_percent(FLOOD);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.tenants"), 2);
	rig_down(&rig);
	up(policies[_i], NULL);
	without = hit_percent(FLOOD);
	rig_down(&rig);
	printf("# %s: alone %.2f %%, beside a flood with a share %.2f %%, without %.2f %%\n", policies[_i], alone,
	       shared, without);
	ck_assert(alone > 80);
	ck_assert(shared >= alone - 1);
	/* There is something to protect it from. */
	ck_assert(without < alone - 10);
}
END_TEST

START_TEST(shares_change_while_the_server_runs)
{
	char err[256] = "";
	uint32_t hit = 0;

	up("lru", "b:50%");
	for (uint32_t i = 0; i < 25; i++)
		(void)request("a", i * PROMPT + 1, PROMPT);
	ck_assert_int_eq(scout_server_set(rig.server, "tenant_share", "a:25%", err, sizeof(err)), 0);
	/* The loop has taken it; the guarantee grows with the pool. */
	while (wire_status(&rig.client, "ns.test.tenant.a.bytes_guaranteed") == UINT64_MAX)
		;
	for (uint32_t i = 0; i < 50; i++, next_new += FLOOD)
		(void)request("b", next_new, FLOOD);
	for (uint32_t i = 0; i < 25; i++)
		hit += request("a", i * PROMPT + 1, PROMPT);
	ck_assert_uint_eq(hit, 100);
	wire_wait_status(&rig.client, "ns.test.tenant.a.bytes_guaranteed", CHUNKS / 4 * SHARD_BYTES);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.tenant.a.bytes"), 100 * SHARD_BYTES);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.tenant.a.evicted_over_share"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.tenant.a.evicted_under_share"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "ns.test.tenant.a.idle"), 0);
	ck_assert_int_eq(scout_server_set(rig.server, "tenant_share", "", err, sizeof(err)), 0);
	wire_wait_status(&rig.client, "ns.test.tenant.a.bytes_guaranteed", UINT64_MAX);
	for (uint32_t i = 0; i < 50; i++, next_new += FLOOD)
		(void)request("b", next_new, FLOOD);
	ck_assert_uint_eq(request("a", 1, PROMPT), 0);
	rig_down(&rig);
}
END_TEST

static void
expect_refusal(const char *key, const char *value, int code, const char *text)
{
	struct scout_server_config cfg;
	struct scout_server *server = NULL;
	char err[512] = "";

	ck_assert_int_eq(scout_server_set(rig.server, key, value, err, sizeof(err)), code);
	ck_assert_msg(strstr(err, text), "%s", err);
	/* The configuration says the same, be it when the key is set or at the start. */
	scout_server_config_init(&cfg);
	err[0] = '\0';
	if (scout_server_config_set(&cfg, key, value, err, sizeof(err)) == 0)
		ck_assert_int_eq(scout_server_start(&cfg, &server, err, sizeof(err)), code);
	ck_assert_msg(strstr(err, text), "%s", err);
	scout_server_config_fini(&cfg);
}

START_TEST(wrong_shares_are_refused_with_a_sentence)
{
	char err[512] = "", longest[SCOUT_MAX_NAME + 8];

	up("lru", NULL);
	(void)snprintf(longest, sizeof(longest), "%0*d:10%%", SCOUT_MAX_NAME + 1, 0);
	expect_refusal("tenant_share", longest, SCOUT_ERR_CONFIG_SYNTAX, "no request can have this name");
	ck_assert_int_eq(scout_server_set(rig.server, "tenant_share", longest + 1, err, sizeof(err)), 0);
	expect_refusal("tenant_share", "a\x01:10%", SCOUT_ERR_CONFIG_SYNTAX, "no request can have this name");
	expect_refusal("namespace_share", "\xff:10%", SCOUT_ERR_CONFIG_SYNTAX, "no request can have this name");
	expect_refusal("tenant_share", "a", SCOUT_ERR_CONFIG_SYNTAX, "\"a\": must be NAME:PERCENT%");
	expect_refusal("tenant_share", "a:20", SCOUT_ERR_CONFIG_SYNTAX, "must be NAME:PERCENT%");
	expect_refusal("tenant_share", "a:0%", SCOUT_ERR_CONFIG_SYNTAX, "a whole number from 1 to 100");
	expect_refusal("tenant_share", "a:101%", SCOUT_ERR_CONFIG_SYNTAX, "a whole number from 1 to 100");
	expect_refusal("tenant_share", "a:2.5%", SCOUT_ERR_CONFIG_SYNTAX, "a whole number from 1 to 100");
	expect_refusal("tenant_share", "a:60% b:50%", SCOUT_ERR_CONFIG_RANGE, "add up to 110%: must be 100% or less");
	expect_refusal("tenant_share", "a:10% b:5% a:20%", SCOUT_ERR_CONFIG_RANGE,
		       "\"a:20%\": the name already has a share");
	expect_refusal("tenant_share", "*:10% *:5%", SCOUT_ERR_CONFIG_RANGE, "the name already has a share");
	expect_refusal("namespace_share", "*:10%", SCOUT_ERR_CONFIG_SYNTAX, "must name a namespace");
	expect_refusal("namespace_share", ":10%", SCOUT_ERR_CONFIG_SYNTAX, "must name a namespace");
	/* What is together 100 % is right, with * beside it, without a tenant's name, and with a colon in it. */
	ck_assert_int_eq(scout_server_set(rig.server, "tenant_share", "a:b:60% :40% *:5%", err, sizeof(err)), 0);
	ck_assert_int_eq(scout_server_set(rig.server, "l1_bytes", "5", err, sizeof(err)), SCOUT_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(err, "l1_bytes cannot be changed while the server runs"));
	ck_assert_int_eq(scout_server_set(NULL, "tenant_share", "", err, sizeof(err)), SCOUT_ERR_INVALID);
	rig_down(&rig);
}
END_TEST

START_TEST(requests_without_a_tenant_and_tenants_without_an_item_have_their_shares)
{
	uint32_t hit = 0;

	up("lru", ":20% *:20%");
	for (uint32_t i = 0; i < 20; i++) {
		(void)request("", i * PROMPT + 1, PROMPT);
		(void)request("other", i * PROMPT + 1, PROMPT);
	}
	for (uint32_t i = 0; i < 50; i++, next_new += FLOOD)
		(void)request("flood", next_new, FLOOD);
	for (uint32_t i = 0; i < 20; i++)
		hit += request("", i * PROMPT + 1, PROMPT) + request("other", i * PROMPT + 1, PROMPT);
	ck_assert_uint_eq(hit, 2 * 20 * PROMPT);
	rig_down(&rig);
}
END_TEST
