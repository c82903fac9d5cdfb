/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include <kvscout/client.h>

#include "check_main.h"
#include "groups_rig.h"
#include "model.h"
#include "model_parts.h"
#include "waiting.h"
#include "random.h"

/*
 * DESIGN
 *
 * Generated models and prompts, from the client's question to the worker's pages: one to three servers, one to four KV ranks on
 * them, up to five groups of any policies, units and margins, ranks without layers of a group, and for each prompt some objects that
 * one rank or another has not stored. The answer must be what the rules of protocol.h say, worked out length by length and token by
 * token (model_groups.c); each length that it names can be admitted, all others cannot, and then each worker of each server
 * is granted all objects that a restore reads.
 *
 * KVSCOUT_SWEEP_SEEDS sets how many models there are (ASKS questions each).
 */

#define SEEDS 40u
#define PROMPTS 30u
#define ASKS (5u * PROMPTS)
#define MAX_SERVERS 3u
#define MAX_HASHES 16u

struct node {
	struct scout_server *server;
	struct wire_peer workers[MODEL_RANKS];
	char endpoint[128];
};

static struct model m; /* of which the groups are used */
static struct scout__groups groups;
static struct node nodes[MAX_SERVERS];
static uint32_t n_nodes, n_ranks, each; /* ranks of a server */
static uint32_t tables[MODEL_RANKS];    /* bits of the groups that a rank has layers of */
static struct scout_client *client;
static bool is_run;
static bool stored[PROMPTS][MODEL_GROUPS][MODEL_RANKS][MAX_HASHES];
static uint64_t random_state;
static uint32_t seed, n_cases, n_hits;

static uint32_t
draw(uint32_t below)
{
	return (uint32_t)((xorshift(&random_state) >> 20) % below);
}

static bool
one_in(uint32_t n)
{
	return draw(n) == 0;
}

static uint64_t
key_of(uint32_t prompt, uint32_t hash)
{
	return 1 + prompt * UINT64_C(1000) + hash;
}

/* ---- the model that is served ---- */

static void
draw_group(uint32_t g)
{
	struct model_group *group = &m.groups[g];

	*group = (struct model_group){.policy = one_in(3) ? SCOUT_POLICY_ALL : draw(4), .stride = 1};
	if (one_in(2))
		group->stride += draw(4);
	group->unit = group->stride * m.hash_tokens;
	if (group->policy == SCOUT_POLICY_WINDOW || group->policy == SCOUT_POLICY_LOCAL)
		group->span = 1 + draw(6 * m.hash_tokens);
	if (one_in(4))
		group->margin = one_in(2) ? group->unit : draw(2 * group->unit);
	groups.group[g] = (struct scout__group){(uint16_t)group->policy, 1, group->unit, group->span, group->margin};
	is_run = is_run && group->policy == SCOUT_POLICY_ALL;
}

static void
draw_model(void)
{
	n_nodes = 1 + draw(MAX_SERVERS);
	each = 1 + draw(MODEL_RANKS / n_nodes);
	n_ranks = n_nodes * each;
	memset(&m, 0, sizeof(m));
	m.hash_tokens = 1 + draw(4);
	m.n_groups = groups.n = 1 + draw(MODEL_GROUPS);
	is_run = true;
	for (uint32_t g = 0; g < m.n_groups; g++)
		draw_group(g);
	for (uint32_t rank = 0; rank < n_ranks; rank++) {
		tables[rank] = (1u << m.n_groups) - 1;
		if (one_in(3))
			tables[rank] &= ~(1u << draw(m.n_groups));
		if (tables[rank] == 0)
			tables[rank] = 1;
	}
}

static void
start_node(uint32_t i)
{
	struct scout_server_config cfg = rig_config(8192 * each);
	struct node *node = &nodes[i];

	cfg.extent_bytes = UINT64_C(256) * each * SHARD_BYTES;
	node->server = rig_start(&cfg);
	scout_server_config_fini(&cfg);
	(void)snprintf(node->endpoint, sizeof(node->endpoint), "%s", scout_server_endpoint(node->server));
	for (uint32_t k = 0; k < each; k++) {
		struct wire_peer *p = &node->workers[k];

		wire_open(p, node->endpoint);
		p->hello.role = SCOUT_ROLE_WORKER;
		p->hello.heartbeat_ms = 600000;
		p->hello.rank_first = (uint16_t)(i * each);
		p->hello.rank_count = (uint16_t)each;
		p->hello.kv_ranks = (uint16_t)n_ranks;
		groups_say(p, &groups, m.hash_tokens);
		ck_assert_msg(wire_hello(p) == SCOUT_WIRE_OK, "%s", p->text);
		ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
		ck_assert_msg(groups_register(p, (uint16_t)(i * each + k), 0, tables[i * each + k], SHARD_BYTES) ==
				      SCOUT_WIRE_OK,
			      "%s", p->text);
	}
}

static void
start_client(void)
{
	static const char *const names[] = {"all", "window", "local", "state"};
	struct scout_client_config cfg;
	char endpoints[512] = "", text[512] = "", err[512] = "";
	size_t at = 0;

	for (uint32_t i = 0; i < n_nodes; i++)
		at += (size_t)snprintf(endpoints + at, sizeof(endpoints) - at, "%s%s", i ? " " : "", nodes[i].endpoint);
	at = 0;
	for (uint32_t g = 0; g < m.n_groups; g++) {
		const struct model_group *group = &m.groups[g];

		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s", g ? " " : "", names[group->policy]);
		if (group->span)
			at += (size_t)snprintf(text + at, sizeof(text) - at, ":%u", group->span);
		at += (size_t)snprintf(text + at, sizeof(text) - at, ",unit=%u,margin=%u", group->unit, group->margin);
	}
	scout_client_config_init(&cfg);
	cfg.endpoint = endpoints;
	cfg.name_space = "test";
	cfg.group = text;
	cfg.kv_ranks = n_ranks;
	cfg.chunk_tokens = m.groups[0].unit;
	cfg.hash_tokens = m.hash_tokens;
	cfg.hash_bytes = 16;
	cfg.lookup_timeout_ms = 60000;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s: %s", text, err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
}

/* What a rank has of one group of a prompt; some are missing. */
static void
store_some(uint32_t prompt, uint32_t g, uint32_t rank, uint32_t lost)
{
	struct wire_peer *p = &nodes[rank / each].workers[rank % each];
	struct scout__store_msg store = {.group = (uint16_t)g};
	uint32_t stride = m.groups[g].stride;
	uint8_t hashes[MAX_HASHES * 16];
	struct wire_grants grants;
	uint64_t corr;
	struct wire_reply *reply;
	struct scout__op op;
	struct scout__grants list;
	const char *field;

	for (uint32_t i = 0; i < MAX_HASHES / stride; i++) {
		if (lost > 0 && one_in(lost))
			continue;
		stored[prompt][g][rank][i] = true;
		wire_hash(hashes + (size_t)store.n++ * 16, 16, key_of(prompt, (i + 1) * stride - 1));
	}
	if (store.n == 0)
		return;
	store.hashes = hashes;
	scout__put_store(wire_begin(p, SCOUT_OP_STORE), &store, 16);
	corr = wire_end(p);
	wire_flush(p);
	reply = wire_wait(p, corr);
	ck_assert_msg(reply->status == SCOUT_WIRE_OK, "%s", p->text);
	op = (struct scout__op){.opcode = reply->opcode, .length = reply->length, .body = reply->body};
	ck_assert_int_eq(scout__get_grants(&op, &list, &field), SCOUT_WIRE_OK);
	grants.id = list.id;
	for (uint32_t i = 0; i < list.n; i++)
		ck_assert_int_eq(scout__grant_at(&list, i).state, SCOUT_GRANT_GRANTED);
	wire_reply_free(reply);
	ck_assert_int_eq(wire_store_done(p, grants.id, store.n, store.n, &(uint32_t){0}), SCOUT_WIRE_OK);
}

static void
store_prompts(void)
{
	memset(stored, 0, sizeof(stored));
	for (uint32_t prompt = 0; prompt < PROMPTS; prompt++) {
		for (uint32_t g = 0; g < m.n_groups; g++) {
			/* Whole, but for what few ranks lost; or in shreds. */
			uint32_t lost = one_in(3) ? 0 : one_in(2) ? 30 : 4;

			for (uint32_t rank = 0; rank < n_ranks; rank++) {
				if (tables[rank] >> g & 1)
					store_some(prompt, g, rank, lost);
			}
		}
	}
}

/* ---- what the answer must be ---- */

/* A question about a prompt, in hashes. */
struct question {
	uint32_t prompt, total, at_most, skip, first;
	uint64_t prompt_tokens;
};

/* The prompt's hashes name the object, and each rank that has layers of the group has stored it. */
static bool
is_present(const struct question *q, uint32_t g, uint32_t i)
{
	if (i >= q->total / m.groups[g].stride)
		return false;
	for (uint32_t rank = 0; rank < n_ranks; rank++) {
		if ((tables[rank] >> g & 1) && !stored[q->prompt][g][rank][i])
			return false;
	}
	return true;
}

static bool
is_restorable(const struct question *q, uint32_t length)
{
	for (uint32_t g = 0; g < m.n_groups; g++) {
		const struct model_group *group = &m.groups[g];
		bool must_end = group->policy == SCOUT_POLICY_ALL || group->policy == SCOUT_POLICY_STATE;

		if (must_end && length % group->stride != 0)
			return false;
		for (uint32_t i = 0; i < 4 * MAX_HASHES; i++) {
			if (model_needs(&m, group, q->skip, length, i) && !is_present(q, g, i))
				return false;
		}
	}
	return true;
}

/* The longest first, all behind what the GPU has; without one, that. */
static uint32_t
expected_lengths(const struct question *q, uint32_t want, uint32_t *ret)
{
	uint32_t n = 0;

	for (uint32_t length = q->at_most; length > q->skip && n < want; length--) {
		/* A run that ends with the prompt is one token shorter, which may be a length, too. */
		bool is_first = n == 1 && (uint64_t)length * m.hash_tokens >= q->prompt_tokens - 1;

		if (!is_first && is_restorable(q, length))
			ret[n++] = length;
	}
	if (n == 0)
		ret[n++] = q->skip;
	return n;
}

/* ---- questions ---- */

static void
differ(const struct question *q, const char *what, uint64_t got, uint64_t expected)
{
	(void)fprintf(stderr, "%u servers of %u ranks, %u tokens a hash\n", n_nodes, each, m.hash_tokens);
	for (uint32_t g = 0; g < m.n_groups; g++) {
		(void)fprintf(stderr, "group %u: policy %u unit %u span %u margin %u, objects", g, m.groups[g].policy,
			      m.groups[g].unit, m.groups[g].span, m.groups[g].margin);
		for (uint32_t i = 0; i < q->total / m.groups[g].stride; i++)
			(void)fprintf(stderr, " %d", is_present(q, g, i));
		(void)fprintf(stderr, "\n");
	}
	ck_abort_msg("seed %u, prompt %u of %u hashes, at most %u, %u on the GPU, from %u: %s is %llu, must be %llu",
		     seed, q->prompt, q->total, q->at_most, q->skip, q->first, what, (unsigned long long)got,
		     (unsigned long long)expected);
}

/* Each worker is granted each object that a restore of [q->skip, @length) reads. */
static void
retrieve_all(const struct question *q, uint64_t ticket, uint32_t length)
{
	for (uint32_t rank = 0; rank < n_ranks; rank++) {
		struct wire_peer *p = &nodes[rank / each].workers[rank % each];
		struct scout__retrieve_msg parts = {.ticket = ticket};
		struct wire_grants grants;

		for (uint32_t g = 0; g < m.n_groups; g++) {
			uint32_t stride = m.groups[g].stride, from = MAX_HASHES, to = 0;

			for (uint32_t i = 0; i < q->total / stride; i++) {
				if (!model_needs(&m, &m.groups[g], q->skip, length, i))
					continue;
				from = from < i ? from : i;
				to = i + 1;
			}
			if (from >= to || !(tables[rank] >> g & 1))
				continue;
			parts.parts[parts.n_parts].group = (uint16_t)g;
			parts.parts[parts.n_parts].from = from * stride;
			parts.parts[parts.n_parts++].to = to * stride;
		}
		if (parts.n_parts == 0)
			continue;
		ck_assert_msg(groups_retrieve(p, &parts, &grants) == SCOUT_WIRE_OK, "%s", p->text);
		if (grants.n_granted != grants.n)
			differ(q, "number of objects that a worker gets", grants.n_granted, grants.n);
		ck_assert_int_eq(wire_retrieve_done(p, grants.id, 0), SCOUT_WIRE_OK);
		free(grants.grants);
	}
}

/* Admit some length: one that the answer names, or any other, which is refused unless every shorter one can be had. */
static void
admit(const struct question *q, const char *id, const struct scout_hit *hit, const uint32_t *lengths, uint32_t n)
{
	uint32_t length = one_in(3) ? q->skip + 1 + draw(MAX_HASHES) : lengths[draw(n)];
	bool is_told = false;
	int rc;

	if (lengths[0] <= q->skip) /* nothing but what the GPU has */
		return;
	for (uint32_t i = 0; i < n; i++)
		is_told = is_told || lengths[i] == length;
	if (length > lengths[0])
		length = lengths[0];
	is_told = is_told || length == lengths[0];
	rc = scout_admit(client, id, (int64_t)q->skip * m.hash_tokens, (int64_t)length * m.hash_tokens);
	if (is_run || is_told)
		ck_assert_int_eq(rc, 0);
	else
		ck_assert_int_eq(rc, SCOUT_ERR_NOT_RESTORABLE);
	if (rc == 0 && is_told)
		retrieve_all(q, hit->ticket, length);
}

static void
ask(uint32_t number)
{
	uint32_t expected[MAX_HASHES + 1], n, want = one_in(2) ? 1 : 1 + draw(5);
	struct question q = {.prompt = draw(PROMPTS), .total = 1 + draw(MAX_HASHES)};
	uint8_t hashes[MAX_HASHES * 16];
	uint64_t lengths[MAX_HASHES + 1], tokens;
	struct scout_query query;
	struct scout_hit hit;
	char id[32];
	int got;

	(void)snprintf(id, sizeof(id), "r%u", number);
	for (uint32_t i = 0; i < q.total; i++)
		wire_hash(hashes + (size_t)i * 16, 16, key_of(q.prompt, i));
	query = (struct scout_query){.id = id,
				     .hash_len = 16,
				     .prompt_tokens =
					     (uint64_t)q.total * m.hash_tokens + draw(m.hash_tokens) + one_in(2),
				     .computed_tokens = one_in(2) ? 0 : draw(q.total * m.hash_tokens + 1),
				     .want_lengths = want};
	q.prompt_tokens = query.prompt_tokens;
	q.at_most = is_run ? q.total : (uint32_t)((query.prompt_tokens - 1) / m.hash_tokens);
	q.at_most = q.at_most < q.total ? q.at_most : q.total;
	q.skip = (uint32_t)(query.computed_tokens / m.hash_tokens);
	q.skip = q.skip < q.at_most ? q.skip : q.at_most;
	q.first = one_in(3) ? draw(q.skip + 1) : 0;
	q.first = q.first < q.total ? q.first : q.total - 1;
	query.from_token = (uint64_t)q.first * m.hash_tokens;
	query.hashes = hashes + (size_t)q.first * 16;
	query.n = q.total - q.first;
	if (one_in(3))
		ck_assert_int_eq(scout_lookup_ahead(client, &query), 0);
	/* Without an answer for half a second a server is taken for gone: on a busy machine, ask again when it is back. */
	wait_until(scout_wait_lookup(client, &query, &hit) == 0 && hit.error != SCOUT_ERR_UNREACHABLE) {
		ck_assert_int_eq(scout_finish(client, id), 0);
		ck_assert_int_eq(scout_client_wait_ready(client, wait_limit_ms(), NULL, 0), 0);
	}
	if (hit.error)
		differ(&q, "error", (uint64_t)-hit.error, 0);
	n = expected_lengths(&q, want, expected);
	tokens = (uint64_t)expected[0] * m.hash_tokens;
	if (tokens >= query.prompt_tokens)
		tokens = query.prompt_tokens - 1;
	if (hit.tokens != tokens)
		differ(&q, "the hit", hit.tokens, tokens);
	got = scout_lookup_lengths(client, id, lengths, want);
	if (got != (tokens > 0 ? (int)n : 0))
		differ(&q, "the number of lengths", (uint64_t)got, n);
	for (int i = 1; i < got; i++) {
		if (lengths[i] != (uint64_t)expected[i] * m.hash_tokens)
			differ(&q, "a length", lengths[i], (uint64_t)expected[i] * m.hash_tokens);
	}
	n_hits += expected[0] > q.skip;
	n_cases++;
	admit(&q, id, &hit, expected, n);
	(void)scout_finish(client, id);
}

static uint32_t
number_of_seeds(void)
{
	const char *text = getenv("KVSCOUT_SWEEP_SEEDS");

	return text ? (uint32_t)strtoul(text, NULL, 10) : SEEDS;
}

/* The loop's number is the seed. */
START_LOOP_TEST(answers_are_true_over_all_servers_ranks_and_groups, 1, number_of_seeds() + 1)
{
	seed = (uint32_t)_i;
	random_state = UINT64_C(0x9e3779b97f4a7c15) * (seed + UINT64_C(1));
	n_cases = n_hits = 0;
	draw_model();
	for (uint32_t i = 0; i < n_nodes; i++)
		start_node(i);
	start_client();
	store_prompts();
	while (n_cases < ASKS)
		ask(n_cases);
	for (uint32_t i = 0; i < n_nodes; i++) {
		wire_wait_status(&nodes[i].workers[0], "l1.bytes_promised", 0);
		wire_wait_status(&nodes[i].workers[0], "sessions", 0);
	}
	if (getenv("KVSCOUT_MODEL_STATS"))
		(void)fprintf(stderr, "seed %u: %u servers, %u ranks, %u groups, %u cases, %u hits\n", seed, n_nodes,
			      n_ranks, m.n_groups, n_cases, n_hits);
	scout_client_free(client);
	for (uint32_t i = 0; i < n_nodes; i++) {
		for (uint32_t k = 0; k < each; k++)
			wire_close(&nodes[i].workers[k]);
		scout_server_stop(nodes[i].server);
	}
}
END_TEST
