/* SPDX-License-Identifier: Apache-2.0 */
#include "operator.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/hash.h>

#include "clock.h"
#include "say.h"
#include "show.h"
#include "snapshot.h"

/*
 * DESIGN
 *
 * kvscout lookup: an ordinary client asks an ordinary lookup, so the answer is what an engine would get.
 *
 * Its HELLO has to repeat the parameters of the namespace, or the server would make a namespace that all peers have left
 * anew. STATUS tells them. So a namespace that does not exist, or of which this server holds only some KV ranks, is not
 * asked for.
 *
 * Nothing stays behind: the client leaves without a finish, which gives the promises back and counts nothing as used. With
 * --load, questions that wait for what L2 brings are finished, so that what came counts as used just now.
 *
 * Threads: main; the client's background thread.
 */

#define TOKENS_MAX (UINT64_C(1) << 26) /* SCOUT_MAX_CHUNKS chunks of the usual size */
#define TIMEOUT_MS 10000u
#define LOAD_US UINT64_C(60000000)
#define LOAD_LOOK_MS 20

struct prompt {
	struct operator op;
	const char *name_space, *tokens_file, *tenant, *salt, *seed, *dialect;
	uint64_t block_tokens;
	bool json, load;
	uint32_t *tokens;
	size_t n_tokens;
	uint32_t chunk_tokens, hash_tokens, hash_bytes;
};

/* ---- the tokens ---- */

/* The next number; blanks, commas and brackets separate them. 0, EOF, or -2 after saying what is allowed. */
static int
next_token(FILE *file, const char *path, uint32_t *ret)
{
	uint64_t token;
	int c;

	do
		c = getc(file);
	while (c != EOF && strchr(" \t\r\n,[]", c));
	if (c == EOF)
		return EOF;
	for (token = 0; c >= '0' && c <= '9' && token <= UINT32_MAX; c = getc(file))
		token = token * 10 + (uint64_t)(c - '0');
	if (token <= UINT32_MAX && (c == EOF || strchr(" \t\r\n,[]", c))) {
		*ret = (uint32_t)token;
		return 0;
	}
	complain("%s: must hold token numbers of 0..4294967295 with blanks, commas or brackets between them", path);
	return -2;
}

static int
read_tokens(struct prompt *q)
{
	FILE *file = strcmp(q->tokens_file, "-") == 0 ? stdin : fopen(q->tokens_file, "r");
	char error[SAY_ERROR];
	int rc;

	if (!file) {
		complain("%s: %s", q->tokens_file, say_error(error, errno));
		return EXIT_FAILED;
	}
	for (;;) {
		uint32_t token;

		rc = next_token(file, q->tokens_file, &token);
		if (rc)
			break;
		if ((q->n_tokens & (q->n_tokens - 1)) == 0) { /* at each power of two */
			q->tokens = realloc(q->tokens, (q->n_tokens ? q->n_tokens * 2 : 1) * sizeof(*q->tokens));
			if (!q->tokens)
				die("out of memory");
		}
		q->tokens[q->n_tokens++] = token;
		if (q->n_tokens > TOKENS_MAX) {
			complain("%s: more than %" PRIu64 " tokens", q->tokens_file, TOKENS_MAX);
			rc = -2;
			break;
		}
	}
	if (rc == EOF && ferror(file)) {
		complain("%s: %s", q->tokens_file, say_error(error, errno));
		rc = -2;
	}
	if (file != stdin)
		(void)fclose(file);
	return rc == EOF ? 0 : EXIT_FAILED;
}

/* ---- the namespace ---- */

static void
add_groups(const struct snapshot *s, const char *name, char *text, size_t len)
{
	static const char *const policies[] = {"all", "window", "local", "state"};
	uint64_t n = snapshot_ns(s, name, "groups");
	size_t at = 0;

	for (uint64_t g = 0; n > 1 && g < n && at < len; g++) {
		char row[64];
		uint64_t values[5];
		static const char *const fields[] = {"policy", "readers", "unit_tokens", "span_tokens",
						     "margin_tokens"};

		for (int i = 0; i < 5; i++) {
			(void)snprintf(row, sizeof(row), "group.%" PRIu64 ".%s", g, fields[i]);
			values[i] = snapshot_ns(s, name, row);
		}
		at += (size_t)snprintf(text + at, len - at, "%s%s", g ? " " : "", policies[values[0] & 3]);
		if (at < len && values[3])
			at += (size_t)snprintf(text + at, len - at, ":%" PRIu64, values[3]);
		if (at < len)
			at += (size_t)snprintf(text + at, len - at,
					       ",unit=%" PRIu64 ",margin=%" PRIu64 ",readers=%" PRIu64, values[2],
					       values[4], values[1]);
	}
}

static int
set(struct scout_client_config *cfg, const char *key, const char *value)
{
	char err[512];

	if (scout_client_config_set(cfg, key, value, err, sizeof(err)) == 0)
		return 0;
	complain("%s", err);
	return EXIT_FAILED;
}

static int
choose_namespace(struct prompt *q, const struct snapshot *s)
{
	uint32_t i = 0;

	if (!q->name_space && s->n_ns == 1)
		q->name_space = s->ns[0];
	if (!q->name_space && s->n_ns > 1) {
		complain("the server has %u namespaces: --namespace says which; kvscout status lists them",
			 (unsigned)s->n_ns);
		return EXIT_USAGE;
	}
	while (q->name_space && i < s->n_ns && strcmp(s->ns[i], q->name_space) != 0)
		i++;
	if (i < s->n_ns)
		return 0;
	complain("the server has no namespace%s%s%s", q->name_space ? " \"" : ": no engine has connected yet",
		 q->name_space ? q->name_space : "", q->name_space ? "\"; kvscout status lists those that it has" : "");
	return EXIT_FAILED;
}

/* What the namespace is made of, for the client. */
static int
configure(struct prompt *q, const struct snapshot *s, struct scout_client_config *cfg)
{
	uint64_t ranks = snapshot_ns(s, q->name_space, "kv_ranks");
	char groups[4096] = "";
	int rc;

	if (snapshot_ns(s, q->name_space, "rank_count") != ranks) {
		complain("this server holds %" PRIu64 " of the %" PRIu64 " KV ranks of \"%s\": a lookup needs them all",
			 snapshot_ns(s, q->name_space, "rank_count"), ranks, q->name_space);
		return EXIT_FAILED;
	}
	if (snapshot_ns(s, q->name_space, "groups") > 1 && !snapshot_ns(s, q->name_space, "group.0.unit_tokens")) {
		complain("nothing is cached in \"%s\" yet", q->name_space);
		return EXIT_NOT_CACHED;
	}
	q->chunk_tokens = cfg->chunk_tokens = (uint32_t)snapshot_ns(s, q->name_space, "chunk_tokens");
	q->hash_tokens = cfg->hash_tokens = (uint32_t)snapshot_ns(s, q->name_space, "hash_tokens");
	q->hash_bytes = cfg->hash_bytes = (uint32_t)snapshot_ns(s, q->name_space, "hash_bytes");
	if (q->chunk_tokens == 0 || q->hash_tokens == 0 || q->hash_bytes < 16 || q->hash_bytes > SCOUT_SHA256_BYTES) {
		complain("the server tells numbers of \"%s\" that no namespace has: chunk_tokens %u, hash_tokens %u, "
			 "hash_bytes %u",
			 q->name_space, (unsigned)q->chunk_tokens, (unsigned)q->hash_tokens, (unsigned)q->hash_bytes);
		return EXIT_FAILED;
	}
	cfg->kv_ranks = (uint32_t)ranks;
	cfg->readers = (uint32_t)snapshot_ns(s, q->name_space, "readers");
	cfg->lookup_timeout_ms = TIMEOUT_MS;
	add_groups(s, q->name_space, groups, sizeof(groups));
	rc = set(cfg, "namespace", q->name_space);
	if (rc == 0)
		rc = set(cfg, "endpoint", q->op.client.endpoint);
	if (rc == 0 && groups[0])
		rc = set(cfg, "group", groups);
	if (rc == 0 && q->op.curve_server_key) {
		rc = set(cfg, "curve_secret_file", q->op.curve_secret_file);
		if (rc == 0)
			rc = set(cfg, "curve_server_key", q->op.curve_server_key);
	} else if (rc == 0 && q->op.curve_secret_file) {
		complain("a lookup needs a key of its own and --curve-server-key");
		rc = EXIT_USAGE;
	}
	return rc;
}

/* ---- the question ---- */

/* The chunk hashes, hash_bytes each; *ret_n of them. NULL after saying why. */
static uint8_t *
hash(const struct prompt *q, size_t *ret_n)
{
	struct scout_hasher_config cfg;
	struct scout_hash_extra extra;
	struct scout_hasher *hasher;
	size_t most = q->n_tokens / q->hash_tokens;
	uint8_t *hashes = malloc(most * SCOUT_SHA256_BYTES + 1);
	int rc;

	scout_hasher_config_init(&cfg);
	cfg.seed = q->seed;
	cfg.dialect = q->dialect;
	cfg.block_tokens = (uint32_t)q->block_tokens;
	cfg.chunk_tokens = q->hash_tokens;
	scout_hash_extra_init(&extra);
	extra.cache_salt = q->salt;
	rc = scout_hasher_new(&cfg, &hasher);
	if (rc == SCOUT_ERR_CONFIG_RANGE)
		complain("--block-tokens = %" PRIu64 ": must divide the %u tokens of a hash of this namespace",
			 q->block_tokens, (unsigned)q->hash_tokens);
	else if (rc)
		complain("the tokens cannot be hashed: %s", scout_strerror(rc));
	if (rc == 0) {
		rc = hashes ? scout_hash_chunks(hasher, q->tokens, q->n_tokens, &extra, hashes, most, ret_n)
			    : SCOUT_ERR_NOMEM;
		if (rc)
			complain("the tokens cannot be hashed: %s", scout_strerror(rc));
		scout_hasher_free(hasher);
	}
	if (rc) {
		free(hashes);
		return NULL;
	}
	for (size_t i = 1; i < *ret_n; i++)
		memmove(hashes + i * q->hash_bytes, hashes + i * SCOUT_SHA256_BYTES, q->hash_bytes);
	return hashes;
}

static int
report(const struct prompt *q, const struct scout_hit *hit)
{
	uint64_t whole = q->n_tokens / q->chunk_tokens * q->chunk_tokens;
	char asked[SHOWN], tokens[SHOWN], l1[SHOWN], l2[SHOWN], first[SHOWN];

	if (q->json) {
		say("{\"tokens\": %zu, \"cached_tokens\": %" PRIu64
		    ", \"chunk_tokens\": %u, \"l1_chunks\": %u, \"l2_chunks\": %u, "
		    "\"reason\": \"%s\"}\n",
		    q->n_tokens, hit->tokens, (unsigned)q->chunk_tokens, (unsigned)hit->l1_chunks,
		    (unsigned)hit->l2_chunks, scout_reason_name(hit->reason));
	} else {
		say("%s of %s tokens are cached: %s chunks in memory, %s in L2 only\n", show_count(tokens, hit->tokens),
		    show_count(asked, q->n_tokens), show_count(l1, hit->l1_chunks), show_count(l2, hit->l2_chunks));
		if (hit->reason == SCOUT_REASON_LIMITED)
			say("the rest was not looked at: max_promised is reached\n");
		else if (hit->tokens < whole)
			say("the first chunk that is missing: number %s, tokens %s to %s\n",
			    show_count(first, hit->tokens / q->chunk_tokens), show_count(l1, hit->tokens),
			    show_count(l2, hit->tokens + q->chunk_tokens - 1));
		if (whole < q->n_tokens)
			say("the last %zu tokens are no whole chunk of %u, and are never cached\n",
			    (size_t)(q->n_tokens - whole), (unsigned)q->chunk_tokens);
	}
	if (hit->tokens == 0 && whole > 0 && !q->json)
		say("if engines should have stored it: do they run with --prefix-caching-hash-algo sha256_cbor, this --block-tokens\n"
		    "and this PYTHONHASHSEED (--seed)? With sha256 or xxhash the answer is always 0\n");
	return hit->tokens >= whole ? EXIT_DONE : EXIT_NOT_CACHED;
}

/* Ask once; with --load until nothing of the hit is in L2 only. Each question but the last holds what it found. */
static int
wait_lookup(struct scout_client *client, const struct prompt *q, struct scout_query *query, struct scout_hit *ret)
{
	uint64_t end_us = scout__now_us() + LOAD_US;
	char id[32];

	for (unsigned i = 0;; i++) {
		int rc;

		(void)snprintf(id, sizeof(id), "kvscout lookup %u", i);
		query->id = id;
		query->flags = q->load && i == 0 ? SCOUT_QUERY_LOAD : 0;
		rc = scout_wait_lookup(client, query, ret);
		if (rc || ret->error || !q->load || ret->l2_chunks == 0 || scout__now_us() >= end_us)
			return rc;
		if (i > 0)
			(void)scout_finish(client, id);
		(void)poll(NULL, 0, LOAD_LOOK_MS);
	}
}

static int
ask(const struct prompt *q, const struct scout_client_config *cfg)
{
	struct scout_client *client;
	struct scout_query query = {0};
	struct scout_hit hit;
	char err[512] = "";
	uint8_t *hashes;
	int rc;

	hashes = hash(q, &query.n);
	if (!hashes)
		return EXIT_FAILED;
	rc = scout_client_new(cfg, &client, err, sizeof(err));
	if (rc) {
		complain("%s", err);
		free(hashes);
		return EXIT_FAILED;
	}
	query.hashes = hashes;
	query.hash_len = q->hash_bytes;
	query.prompt_tokens = q->n_tokens + 1; /* an engine computes the last token in any case */
	query.tenant = q->tenant;
	rc = scout_client_wait_ready(client, TIMEOUT_MS, err, sizeof(err));
	if (rc)
		complain("%s", err);
	else if ((rc = wait_lookup(client, q, &query, &hit)) != 0)
		complain("the lookup failed: %s", scout_strerror(rc));
	else if (hit.error)
		complain("no answer: %s (%s)", scout_reason_name(hit.reason), scout_strerror(hit.error));
	if (rc || hit.error)
		rc = rc == SCOUT_ERR_UNREACHABLE || rc == SCOUT_ERR_TIMEOUT ? EXIT_NO_SERVER : EXIT_FAILED;
	else
		rc = report(q, &hit);
	scout_client_free(client);
	free(hashes);
	return rc;
}

static int
look(struct prompt *q, const struct cli *cli)
{
	struct scout_client_config cfg;
	struct snapshot s;
	int status = operator_open(&q->op, cli);

	if (status == 0)
		status = snapshot_take(&q->op, &s);
	if (status)
		return status;
	scout_client_config_init(&cfg);
	status = choose_namespace(q, &s);
	if (status == 0)
		status = configure(q, &s, &cfg);
	if (status == 0)
		status = ask(q, &cfg);
	scout_client_config_fini(&cfg);
	snapshot_free(&s);
	return status;
}

int
cmd_lookup(int argc, char **argv)
{
	struct prompt q = {.op = OPERATOR_DEFAULTS, .block_tokens = SCOUT_HASH_BLOCK_TOKENS_DEFAULT};
	const struct cli_option options[] = {
		OPERATOR_OPTIONS(&q.op),
		CLI_TEXT("tokens-file", "FILE|-", &q.tokens_file, "token numbers of the prompt; a JSON array will do"),
		CLI_TEXT("namespace", "NAME", &q.name_space, "needed if the server has several"),
		CLI_TEXT("tenant", "NAME", &q.tenant, "the request's tenant"),
		CLI_TEXT("salt", "TEXT", &q.salt, "its cache_salt, which is hashed with the tokens"),
		CLI_NUMBER("block-tokens", &q.block_tokens, 1, SCOUT_HASH_BLOCK_TOKENS_MAX, "the engine's block size"),
		CLI_TEXT("seed", "TEXT", &q.seed, "PYTHONHASHSEED of the engine, if it is set"),
		CLI_TEXT("dialect", "NAME", &q.dialect, "vllm-0.30 for vLLM up to 0.30; default vllm-0.31"),
		CLI_SWITCH("json", &q.json, "as an object"),
		CLI_SWITCH("load", &q.load, "first load what is in L2 only into memory, for at most a minute"),
	};
	const struct cli cli = {
		.tool = "kvscout lookup",
		.about =
			"Says how many leading tokens of a prompt are cached, where, and which chunk is the first that is not.",
		.options = options,
		.n = N_OPERATOR_OPTIONS + 9,
		.notes =
			"Hashes tokens as vLLM does with --prefix-caching-hash-algo sha256_cbor, which is what the engine has to use\n"
			"for this answer to be right. With kvscout's connector, the tenant of a salt is named by the first 32 hex digits\n"
			"of its SHA-256: printf %s SALT | sha256sum | cut -c-32. Counts nothing as used. Exit status 0: all whole chunks are cached; 5: not all.\n",
	};
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	if (!q.tokens_file)
		return cli_usage_error(&cli, "--tokens-file is missing");
	status = read_tokens(&q);
	if (status == 0)
		status = look(&q, &cli);
	operator_close(&q.op);
	free(q.tokens);
	return status;
}
