/* SPDX-License-Identifier: Apache-2.0 */
/* What the command kvscout says of a server whose peers do what the test decides; $KVSCOUT is its path. */
#include "check_main.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <kvscout/hash.h>

#include "groups_rig.h"
#include "l2_folder.h"

#define BLOCK 16u /* tokens: the engine's block, and a chunk of the rig's namespace */
#define TOKENS 100u

static char said[65536]; /* by the last command, on both streams */

static struct rig rig;

static void
rig_teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

/* Run `kvscout COMMAND --endpoint ENDPOINT ARGUMENTS`; returns its exit status. */
static int
run(const char *command, const char *endpoint, const char *arguments)
{
	char line[1024];
	FILE *out;
	size_t n;
	int status;

	(void)snprintf(line, sizeof(line), "\"$KVSCOUT\" %s --endpoint %s %s 2>&1", command, endpoint, arguments);
	out = popen(line, "r"); /* NOLINT: the test's own words */
	ck_assert_ptr_nonnull(out);
	n = fread(said, 1, sizeof(said) - 1, out);
	said[n] = '\0';
	status = pclose(out);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define ASSERT_SAID(part) ck_assert_msg(strstr(said, part) != NULL, "not in the text: \"%s\"; the text: %s", part, said)
#define ASSERT_NOT_SAID(part) ck_assert_msg(strstr(said, part) == NULL, "in the text: \"%s\"; the text: %s", part, said)

/* No line is longer than a terminal of 80 columns. */
static void
assert_narrow(void)
{
	for (const char *line = said; *line; line += strcspn(line, "\n") + 1) {
		unsigned columns = 0;

		for (const char *c = line; *c && *c != '\n'; c++)
			columns += ((unsigned char)*c & 0xc0) != 0x80;
		ck_assert_msg(columns <= 80, "%u columns: %.*s", columns, (int)strcspn(line, "\n"), line);
		if (!strchr(line, '\n'))
			break;
	}
}

/* The hashes of the tokens 1 to TOKENS, as many as there are whole chunks. */
static uint32_t
hash_tokens(uint8_t hashes[][SCOUT_SHA256_BYTES])
{
	struct scout_hasher_config cfg;
	struct scout_hasher *hasher;
	uint32_t tokens[TOKENS];
	size_t n;

	for (uint32_t i = 0; i < TOKENS; i++)
		tokens[i] = i + 1;
	scout_hasher_config_init(&cfg);
	cfg.block_tokens = cfg.chunk_tokens = BLOCK;
	ck_assert_int_eq(scout_hasher_new(&cfg, &hasher), 0);
	ck_assert_int_eq(scout_hash_chunks(hasher, tokens, TOKENS, NULL, hashes[0], TOKENS / BLOCK, &n), 0);
	scout_hasher_free(hasher);
	return (uint32_t)n;
}

/* Store @n chunks of these tokens from the chunk @first on. */
static void
store_tokens(struct wire_peer *worker, uint32_t first, uint32_t n)
{
	uint8_t hashes[TOKENS / BLOCK][SCOUT_SHA256_BYTES], short_ones[TOKENS / BLOCK][16];
	struct wire_reply *reply;
	uint32_t readable;
	uint64_t corr;

	ck_assert_uint_ge(hash_tokens(hashes), first + n);
	for (uint32_t i = 0; i < n; i++)
		memcpy(short_ones[i], hashes[first + i], 16);
	scout__put_store(wire_begin(worker, SCOUT_OP_STORE),
			 &(struct scout__store_msg){.n = n, .hashes = short_ones[0]}, 16);
	corr = wire_end(worker);
	wire_flush(worker);
	reply = wire_wait(worker, corr);
	ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
	wire_reply_free(reply);
	ck_assert_int_eq(wire_store_done(worker, corr, n, n, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, n);
}

static const char *
write_tokens(const char *text)
{
	static char path[64];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/tmp/kvscout-tokens-%d", (int)getpid());
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	if (text)
		(void)fputs(text, file);
	for (uint32_t i = 1; !text && i <= TOKENS; i++)
		(void)fprintf(file, "%s%u", i == 1 ? "[" : ", ", i);
	ck_assert_int_eq(fclose(file), 0);
	return path;
}

static int
lookup(const char *endpoint, const char *more)
{
	char arguments[256];

	(void)snprintf(arguments, sizeof(arguments), "--tokens-file /tmp/kvscout-tokens-%d %s", (int)getpid(), more);
	return run("lookup", endpoint, arguments);
}

CHECKED_FIXTURE(NULL, rig_teardown);

START_TEST(lookup_says_what_is_cached_and_leaves_nothing_behind)
{
	(void)write_tokens(NULL);
	rig_up(&rig, 8);
	ck_assert_int_eq(lookup(rig.endpoint, ""), 5);
	ASSERT_SAID("0 of 100 tokens are cached");
	ASSERT_SAID("--prefix-caching-hash-algo sha256_cbor");
	ASSERT_SAID("the first chunk that is missing: number 0, tokens 0 to 15");
	store_tokens(&rig.worker, 0, 4);
	ck_assert_int_eq(lookup(rig.endpoint, ""), 5);
	ASSERT_SAID("64 of 100 tokens are cached: 4 chunks in memory, 0 in L2 only");
	ASSERT_SAID("the first chunk that is missing: number 4, tokens 64 to 79");
	ASSERT_SAID("the last 4 tokens are no whole chunk of 16");
	/* No promise, no session, no peer, and nothing of what was looked at counts as used. */
	wire_wait_status(&rig.client, "peers", 2);
	wire_wait_status(&rig.client, "sessions", 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "ops.finish"), 0);
	ck_assert_int_eq(lookup(rig.endpoint, "--seed other"), 5);
	ASSERT_SAID("0 of 100 tokens are cached");
	ck_assert_int_eq(lookup(rig.endpoint, "--tenant other --namespace test"), 5);
	ASSERT_SAID("0 of 100 tokens are cached");
	store_tokens(&rig.worker, 4, 2);
	ck_assert_int_eq(lookup(rig.endpoint, "--json"), 0);
	ASSERT_SAID(
		"{\"tokens\": 100, \"cached_tokens\": 96, \"chunk_tokens\": 16, \"l1_chunks\": 6, \"l2_chunks\": 0, "
		"\"reason\": \"hit\"}");
	ck_assert_int_eq(unlink(write_tokens("")), 0);
}
END_TEST

START_TEST(lookup_of_what_cannot_be_looked_up_says_why)
{
	rig_up(&rig, 8);
	rig_store(&rig.worker, 0, 1, 1);
	ck_assert_int_eq(lookup(rig.endpoint, ""), 1);
	ASSERT_SAID("No such file");
	(void)write_tokens("1 2 three");
	ck_assert_int_eq(lookup(rig.endpoint, ""), 1);
	ASSERT_SAID("must hold token numbers of 0..4294967295");
	(void)write_tokens("4294967296");
	ck_assert_int_eq(lookup(rig.endpoint, ""), 1);
	(void)write_tokens("1 2 3");
	ck_assert_int_eq(lookup(rig.endpoint, ""), 0);
	ASSERT_SAID("the last 3 tokens are no whole chunk of 16");
	ck_assert_int_eq(lookup(rig.endpoint, "--namespace none"), 1);
	ASSERT_SAID("no namespace \"none\"");
	ck_assert_uint_eq(wire_status(&rig.client, "namespaces"), 1); /* and there is none now */
	ck_assert_int_eq(lookup(rig.endpoint, "--block-tokens 15"), 1);
	ASSERT_SAID("--block-tokens = 15: must divide the 16 tokens");
	ck_assert_int_eq(run("lookup", rig.endpoint, ""), 2);
	ASSERT_SAID("--tokens-file is missing");
	ck_assert_int_eq(unlink(write_tokens("")), 0);
}
END_TEST

/* A HELLO with other groups would be refused, or would make a namespace without peers anew. */
START_TEST(lookup_asks_with_the_groups_of_the_namespace)
{
	const struct scout__groups groups = {2,
					     {{.policy = SCOUT_POLICY_ALL, .readers = 1, .unit_tokens = 2 * BLOCK},
					      {.policy = SCOUT_POLICY_WINDOW,
					       .readers = 1,
					       .unit_tokens = BLOCK,
					       .span_tokens = 40,
					       .margin_tokens = BLOCK}}};
	struct scout_server_config cfg = rig_config(8);
	struct scout_server *server = rig_start(&cfg);
	struct wire_peer early;
	struct groups_rig world;

	(void)write_tokens(NULL);
	wire_open(&early, scout_server_endpoint(server));
	groups_say(&early, &groups, BLOCK);
	ck_assert_int_eq(wire_hello(&early), SCOUT_WIRE_OK);
	ck_assert_int_eq(lookup(scout_server_endpoint(server), ""), 5);
	ASSERT_SAID("nothing is cached in \"test\" yet");
	wire_close(&early);
	scout_server_stop(server);
	groups_up(&world, 16, &groups, BLOCK);
	groups_store(&world.worker, 0, 0, 2);
	ck_assert_int_eq(lookup(scout_server_endpoint(world.server), ""), 5);
	ASSERT_SAID("0 of 100 tokens are cached");
	ck_assert_uint_eq(wire_status(&world.client, "refused.groups_differ"), UINT64_MAX);
	ck_assert_uint_eq(wire_status(&world.client, "l1.chunks"), 2);
	ck_assert_int_eq(unlink(write_tokens("")), 0);
	groups_down(&world);
}
END_TEST

/* By default a server loads what is in files only for a retrieve. */
START_TEST(lookup_loads_from_files_what_it_was_told_to)
{
	struct scout_server_config cfg = rig_config(16);
	char *folder = l2_folder_make(false), err[256], url[256];

	(void)write_tokens(NULL);
	(void)snprintf(url, sizeof(url), "fs://%s/kv", folder);
	ck_assert_int_eq(scout_server_config_set(&cfg, "l2", url, err, sizeof(err)), 0);
	ck_assert_int_eq(scout_server_config_set(&cfg, "eviction", "lru", err, sizeof(err)), 0);
	rig_up_with(&rig, &cfg);
	store_tokens(&rig.worker, 0, 6);
	wire_wait_status(&rig.client, "l2.writes.done", 6);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 16), 16);
	wire_wait_status(&rig.client, "l2.writes.done", 22);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(lookup(rig.endpoint, ""), 0);
		ASSERT_SAID("96 of 100 tokens are cached: 0 chunks in memory, 6 in L2 only");
	}
	ck_assert_int_eq(lookup(rig.endpoint, "--load"), 0);
	ASSERT_SAID("6 chunks in memory, 0 in L2 only");
	ck_assert_uint_eq(wire_status(&rig.client, "l2.loads.done"), 6);
	ck_assert_int_eq(lookup(rig.endpoint, "--json"), 0);
	ASSERT_SAID("\"l1_chunks\": 6, \"l2_chunks\": 0, ");
	ck_assert_int_eq(unlink(write_tokens("")), 0);
	scout_server_config_fini(&cfg);
	rig_down(&rig);
	l2_folder_remove(folder);
	free(folder);
}
END_TEST

START_TEST(peers_are_listed)
{
	static const char long_name[] = "a-namespace-of-many-bytes";
	struct wire_peer other;
	struct wire_grants g;
	char pid[64];

	rig_up_promised(&rig, 8, 4);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 2, &g), SCOUT_WIRE_OK);
	wire_open(&other, rig.endpoint);
	other.hello.name_space = (struct scout__str){long_name, sizeof(long_name) - 1};
	ck_assert_int_eq(wire_hello(&other), SCOUT_WIRE_OK);
	ck_assert_int_eq(run("peers", rig.endpoint, ""), 0);
	assert_narrow();
	(void)snprintf(pid, sizeof(pid), "worker %-7d    0        0     1       0    0 bytes ", (int)getpid());
	ASSERT_SAID(pid);
	ASSERT_SAID("client -          -        1     0       0    0 bytes ");
	ck_assert_int_eq(run("peers", rig.endpoint, "--json"), 0);
	(void)snprintf(pid, sizeof(pid), "\"pid\": %d,", (int)getpid());
	ASSERT_SAID(pid);
	ASSERT_SAID("\"kv_rank\": 0, \"sessions\": 0, \"holds\": 1, \"waiting\": 0, \"unread_bytes\": 0, ");
	ASSERT_SAID("\"kv_rank\": -1, \"sessions\": 1, \"holds\": 0, ");
	free(g.grants);
	wire_close(&other);
}
END_TEST

START_TEST(verify_says_what_comparisons_found)
{
	const uint8_t found[4] = {SCOUT_FOUND_COMPARED, SCOUT_FOUND_COMPARED | 2, 0,
				  SCOUT_FOUND_COMPARED | SCOUT_FOUND_DIFFERS | SCOUT_FOUND_BOUNDS};
	struct wire_grants g;
	char by[64];

	rig_up_promised(&rig, 8, 4);
	ck_assert_int_eq(run("verify", rig.endpoint, "--namespace test"), 0);
	ck_assert_str_eq(said, "namespace  test\ncompared   0 hits, 0 chunks; of these 0 are other KV\n");
	ck_assert_int_eq(wire_retrieve(&rig.worker, 9, 0, 4, &g), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_found(&rig.worker, g.id, found, 4), SCOUT_WIRE_OK);
	ck_assert_int_eq(run("verify", rig.endpoint, ""), 0);
	assert_narrow();
	ASSERT_SAID(
		"compared   1 hits, 3 chunks; of these 1 are other KV\nerror      0                        1    33.3 %\n");
	ASSERT_SAID("           up to 0.003              1    33.3 %\n");
	ASSERT_SAID("           more than 1              1    33.3 %\n");
	(void)snprintf(by, sizeof(by), "stored by  %016" PRIx64 "         3 chunks, 1 other KV\n", rig.worker.id);
	ASSERT_SAID(by);
	ck_assert_int_eq(run("status", rig.endpoint, ""), 0);
	ASSERT_SAID("attention  1 compared chunks were other KV; see kvscout verify\n");
	ck_assert_int_eq(run("verify", rig.endpoint, "--namespace tes"), 1);
	ASSERT_SAID("lists no namespace of this name");
	free(g.grants);
}
END_TEST

START_TEST(a_pool_that_cannot_grow_is_told_as_that)
{
	struct rlimit limit;

	rig_up(&rig, 16);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = SHARD_BYTES;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_uint_lt(rig_store(&rig.worker, 0, 1, 8), 8);
	limit.rlim_cur = limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_assert_int_eq(run("status", rig.endpoint, ""), 0);
	ASSERT_SAID("attention  the pool cannot grow beyond ");
	ASSERT_SAID(": File too large\n");
	ASSERT_SAID("stores got no room: the pool cannot grow\n");
}
END_TEST

START_TEST(status_and_top_say_what_happened)
{
	rig_up(&rig, 16);
	ck_assert_int_eq(run("status", rig.endpoint, ""), 0);
	ASSERT_SAID("lookups    none\n");
	ASSERT_SAID("attention  nothing\n");
	rig.worker.tenant = (struct scout__str){"chat", 4};
	rig_store(&rig.worker, 0, 1, 3);
	rig.worker.tenant = (struct scout__str){"", 0};
	rig_store(&rig.worker, 0, 1, 1);
	for (int i = 0; i < 3; i++)
		(void)rig_peek(&rig.client, 1, 4);
	ck_assert_uint_eq(rig_hit(&rig.client, 9, 1, 1), 1);
	ck_assert_int_eq(run("status", rig.endpoint, ""), 0);
	assert_narrow();
	ASSERT_SAID("25.0 % all cached, 75.0 % in part, 0.0 % not\n");
	ASSERT_SAID("hit ratio  30.8 % of the chunks asked for: 30.8 % in memory, 0.0 % in L2 only\n");
	ASSERT_SAID("pool       16.0 KiB of 64.0 KiB used (25.0 %), 4 chunks\n");
	ASSERT_SAID("peers      2 of ");
	ASSERT_SAID("1 requests live");
	ASSERT_SAID(
		"namespace  test\n           peers 2, tenants 2; 16.0 KiB (25.0 % of the pool)\n           hits 30.8 % of at most 30.8 %\n");
	assert_wire(wire_finish(&rig.client, &(struct scout__finish_msg){.ticket = 9, .keep_ms = 600000},
				&(struct scout__finish_reply){0}),
		    SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_hit(&rig.client, 9 + 1, 1, 1), 1);
	ck_assert_int_eq(run("status", rig.endpoint, ""), 0);
	ASSERT_SAID("           kept for requests that come back: 4.0 KiB\n");
	ck_assert_int_eq(run("status", rig.endpoint, "--watch 0.1 --count 2"), 0);
	ASSERT_SAID("latency    half within ");
	ASSERT_SAID("\n\nserver "); /* the second sheet: since the first one */
	ck_assert_ptr_nonnull(strstr(strstr(said, "\n\n"), "lookups    none\n"));
	ck_assert_int_eq(run("status", rig.endpoint, "--json"), 0);
	ASSERT_SAID("\"lookups.partial\": 3, ");
	ASSERT_SAID("\"ns.test.chunks\": 4, ");
	ck_assert_int_eq(run("top", rig.endpoint, "--count 2 --interval 0.1"), 0);
	assert_narrow();
	ASSERT_SAID("numbers since the start\n");
	ASSERT_SAID("numbers of the last 1");
	ASSERT_SAID("  chat                             12.0 KiB   18.8 %\n");
	ASSERT_SAID("  (no tenant)                       4.0 KiB    6.2 %\n");
	ASSERT_SAID("test                               16.0 KiB   25.0 %");
	ASSERT_SAID("   HITS  AT MOST\n");
	ASSERT_SAID("\nclient ");
	ASSERT_SAID("\nworker ");
}
END_TEST

START_TEST(status_says_what_more_memory_would_hit)
{
	rig_up(&rig, 16);
	rig_store(&rig.worker, 0, 1, 16);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 20), 16);
	ck_assert_int_eq(run("status", rig.endpoint, ""), 0);
	ck_assert_ptr_null(strstr(said, "with four times the memory"));
	for (uint64_t key = 101; key <= 132; key += 4)
		rig_store(&rig.worker, 0, key, 4);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 20), 0);
	ck_assert_int_eq(run("status", rig.endpoint, ""), 0);
	assert_narrow();
	ASSERT_SAID("hit ratio  40.0 % of the chunks asked for: 40.0 % in memory, 0.0 % in L2 only\n");
	ASSERT_SAID("           with four times the memory: 80.0 % or more\n");
	ASSERT_SAID("           hits 40.0 % of at most 80.0 %; four times the memory: 80.0 % or more\n");
}
END_TEST

/* As run(), on a terminal of @rows lines; returns how many lines the command has written. */
static unsigned
run_on_terminal(unsigned short rows, const char *command, const char *endpoint, const char *arguments)
{
	const struct winsize size = {.ws_row = rows, .ws_col = 80};
	int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), held;
	size_t len = 0, lines = 0;
	char to[512];
	ssize_t n;

	ck_assert_int_ge(terminal, 0);
	ck_assert_int_eq(grantpt(terminal), 0);
	ck_assert_int_eq(unlockpt(terminal), 0);
	held = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC); /* NOLINT: one thread */
	ck_assert_int_ge(held, 0);
	ck_assert_int_eq(ioctl(terminal, TIOCSWINSZ, &size), 0);
	(void)snprintf(to, sizeof(to), "%s >%s", arguments, ptsname(terminal)); /* NOLINT */
	ck_assert_int_eq(run(command, endpoint, to), 0);
	(void)close(held); /* so that reading ends with an error after the last byte */
	while ((n = read(terminal, said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	for (const char *c = said; *c; c++)
		lines += *c == '\n';
	(void)close(terminal);
	return (unsigned)lines;
}

START_TEST(top_keeps_to_the_lines_of_a_terminal)
{
	static char names[8][64];
	struct wire_peer peers[8];

	rig_up(&rig, 16);
	for (int i = 0; i < 8; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "organisation/a-long-name-of-a-model/vllm/0123456789abcde%d",
			       i);
		wire_open(&peers[i], rig.endpoint);
		peers[i].hello.name_space = (struct scout__str){names[i], (uint16_t)strlen(names[i])};
		ck_assert_int_eq(wire_hello(&peers[i]), SCOUT_WIRE_OK);
	}
	ck_assert_int_eq(setenv("TERM", "dumb", 1), 0);
	ck_assert_uint_eq(run_on_terminal(20, "top", rig.endpoint, "--count 1"), 19);
	ASSERT_SAID("and 7 more\r\n");
	ck_assert_uint_le(run_on_terminal(24, "top", rig.endpoint, "--count 1"), 23);
	ASSERT_SAID("and 5 more namespaces\r\n");
	ASSERT_NOT_SAID("\033[1m");
	/* In colour, with how it went; a tall one has room for all, the peers in the order of their ids. */
	ck_assert_int_eq(setenv("TERM", "xterm", 1), 0);
	ck_assert_int_eq(setenv("LC_ALL", "C.UTF-8", 1), 0);
	(void)rig_peek(&rig.client, 1, 4);
	ck_assert_uint_eq(run_on_terminal(20, "top", rig.endpoint, "--count 1"), 19);
	ck_assert_uint_le(run_on_terminal(60, "top", rig.endpoint, "--count 2 --interval 0.1"), 2 * 59);
	ASSERT_SAID("\033[1m");
	ASSERT_SAID("  lookups                              \u2588\r\n"); /* the only screen so far */
	ASSERT_SAID("\npool \u2591");
	ASSERT_NOT_SAID("more namespaces");
	ASSERT_NOT_SAID("\nand ");
	ck_assert_int_eq(setenv("LC_ALL", "C", 1), 0);
	ck_assert_int_eq(setenv("NO_COLOR", "1", 1), 0);
	ck_assert_uint_eq(run_on_terminal(20, "top", rig.endpoint, "--count 1"), 19);
	ASSERT_NOT_SAID("\033[1m");
	/* Cut in the middle: engines of one model differ at the end. */
	ck_assert_int_eq(run("top", rig.endpoint, "--count 1"), 0);
	assert_narrow();
	ASSERT_SAID("organisation/a-~123456789abcde0 ");
	ck_assert_int_eq(run("peers", rig.endpoint, ""), 0);
	assert_narrow();
	ASSERT_SAID("  organi~abcde7\n");
	for (int i = 0; i < 8; i++)
		wire_close(&peers[i]);
}
END_TEST

START_TEST(clear_drops_a_tenant_or_all)
{
	rig_up(&rig, 16);
	rig_store(&rig.worker, 0, 1, 1);
	rig.worker.tenant = (struct scout__str){"chat", 4};
	rig_store(&rig.worker, 0, 1, 3);
	ck_assert_int_eq(run("clear", rig.endpoint, ""), 2);
	ASSERT_SAID("--namespace is missing");
	ck_assert_int_eq(run("clear", rig.endpoint, "--namespace none"), 1);
	ASSERT_SAID("this server has no namespace \"none\"");
	ck_assert_int_eq(run("clear", rig.endpoint, "--namespace test --tenant chat"), 0);
	ASSERT_SAID("dropped 12.0 KiB from memory\n");
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 1), 1);
	ck_assert_int_eq(run("clear", rig.endpoint, "--namespace test --no_tenant"), 0);
	ck_assert_uint_eq(rig_peek(&rig.client, 1, 1), 0);
	rig_store(&rig.worker, 0, 1, 2);
	ck_assert_int_eq(run("clear", rig.endpoint, "--namespace=test"), 0);
	ASSERT_SAID("dropped 8.0 KiB from memory\n");
	wire_wait_status(&rig.client, "l1.chunks", 0);
}
END_TEST

/* A server that answers with what no server has. */
struct hostile {
	const char *ns; /* the name of its one namespace */
	uint32_t hash_bytes, n_peers,
		n_more; /* peers on a page, and by how much each page says that the next one begins later */
	char endpoint[64];
	void *ctx, *sock;
	pthread_t thread;
};

static uint32_t
put_hostile_status(const struct hostile *h, struct scout__writer *w)
{
	static const char *const of_namespace[] = {"peers",      "sessions",   "bytes",        "lookups",
						   "kv_ranks",   "rank_count", "chunk_tokens", "hash_tokens",
						   "hash_bytes", "groups"};
	static const char *const huge[] = {"l2.adapters", "uptime_ms", "lookups", "l2.0.bytes_loaded", "peers.died"};
	char name[256];
	uint32_t n = 0;

	for (; n < 10; n++) {
		(void)snprintf(name, sizeof(name), "ns.%s.%s", h->ns, of_namespace[n]);
		scout__put_status_item(w, name, n == 8 ? h->hash_bytes : n == 4 || n == 5);
	}
	(void)snprintf(name, sizeof(name), "ns.%s.verify.by.\033[2J\xc2\x9b[1m3456789.mismatches", h->ns);
	scout__put_status_item(w, name, 0);
	for (uint32_t i = 0; i < 5; i++, n++)
		scout__put_status_item(w, huge[i], UINT64_MAX);
	scout__put_status_item(w,
			       "l2.0.url.\033[2J\xc2\x9b"
			       "2J",
			       0);
	return n + 2;
}

static void
put_hostile_peers(const struct hostile *h, struct scout__writer *w, uint32_t head)
{
	struct scout__peer_item item = {.role = SCOUT_ROLE_WORKER, .name_space = {h->ns, (uint16_t)strlen(h->ns)}};

	scout__put_list_head(w, head + h->n_more, h->n_peers);
	for (uint32_t i = 0; i < h->n_peers; i++)
		scout__put_peer_item(w, &item);
}

static void
answer_hostile(struct hostile *h, const void *data, size_t len, const zmq_msg_t *from)
{
	static uint8_t frame[1 << 20];
	struct scout__writer w = {.buf = frame, .cap = sizeof(frame)};
	struct scout__reader ops = scout__frame_ops(data, len);
	struct scout__op op;
	const char *field;
	uint32_t head = 0;
	size_t at, n_at;

	if (!scout__frame_next(&ops, &op))
		abort();
	scout__frame_begin(&w);
	at = scout__op_begin(&w, op.opcode, SCOUT_KIND_REPLY, SCOUT_WIRE_OK, op.corr, 0);
	if (op.opcode == SCOUT_OP_STATUS) {
		n_at = w.len;
		scout__put_u32(&w, 0);
		frame[n_at] = (uint8_t)put_hostile_status(h, &w);
	} else if (op.opcode == SCOUT_OP_PEERS) {
		(void)scout__get_peers(&op, &head, &field);
		put_hostile_peers(h, &w, head);
	} else {
		scout__put_list_head(&w, UINT32_MAX, 0);
	}
	scout__op_end(&w, at);
	scout__frame_end(&w, 1, 7, 0);
	(void)zmq_send(h->sock, zmq_msg_data((zmq_msg_t *)(uintptr_t)from), zmq_msg_size(from), ZMQ_SNDMORE);
	(void)zmq_send(h->sock, frame, w.len, 0);
}

static void *
hostile_main(void *arg)
{
	struct hostile *h = arg;
	zmq_msg_t from, frame;

	for (;;) {
		(void)zmq_msg_init(&from);
		(void)zmq_msg_init(&frame);
		if (zmq_msg_recv(&from, h->sock, 0) < 0 || zmq_msg_recv(&frame, h->sock, 0) < 0)
			return NULL;
		answer_hostile(h, zmq_msg_data(&frame), zmq_msg_size(&frame), &from);
		(void)zmq_msg_close(&from);
		(void)zmq_msg_close(&frame);
	}
}

static void
hostile_up(struct hostile *h)
{
	(void)snprintf(h->endpoint, sizeof(h->endpoint), "ipc:///tmp/kvscout-hostile-%d.sock", (int)getpid());
	h->ctx = zmq_ctx_new();
	h->sock = zmq_socket(h->ctx, ZMQ_ROUTER);
	ck_assert_int_eq(zmq_bind(h->sock, h->endpoint), 0);
	ck_assert_int_eq(pthread_create(&h->thread, NULL, hostile_main, h), 0);
}

static void
hostile_down(struct hostile *h)
{
	ck_assert_int_eq(zmq_ctx_shutdown(h->ctx), 0);
	ck_assert_int_eq(pthread_join(h->thread, NULL), 0);
	(void)zmq_close(h->sock);
	(void)zmq_ctx_term(h->ctx);
	(void)unlink(h->endpoint + strlen("ipc://"));
}

#define UNSEEN                                                                                                         \
	"a\033[31mb\xc2\x9b"                                                                                           \
	"32mc\xe2\x80\xae"                                                                                             \
	"d\xe2\x80\x8b"                                                                                                \
	"e"

/* No byte of a name that speaks to a terminal. */
static void
assert_clean(void)
{
	for (const char *c = said; *c; c++)
		ck_assert_msg(*c == '\n' || (unsigned char)*c >= ' ', "a control character: %s", said);
	ck_assert_ptr_null(strstr(said, "\xc2\x9b"));
	ck_assert_ptr_null(strstr(said, "\xe2\x80\xae"));
	ck_assert_ptr_null(strstr(said, "\xe2\x80\x8b"));
}

START_TEST(a_hostile_server_harms_no_terminal_and_no_command)
{
	struct hostile h = {.ns = UNSEEN};

	(void)write_tokens(NULL);
	hostile_up(&h);
	ck_assert_int_eq(run("status", h.endpoint, ""), 0);
	assert_clean();
	ck_assert_int_eq(run("top", h.endpoint, "--count 2 --interval 0.1"), 0);
	assert_clean();
	ASSERT_SAID("a?[31mb?32mc?d?e");
	ck_assert_int_eq(run("verify", h.endpoint, ""), 0);
	assert_clean();
	ASSERT_SAID("?[2J?[1m3456789          0 chunks");
	ck_assert_int_eq(lookup(h.endpoint, ""), 1); /* chunk_tokens is 0 */
	assert_clean();
	ASSERT_SAID("that no namespace has: chunk_tokens 0, hash_tokens 0, hash_bytes 0");
	h.n_peers = 1;
	ck_assert_int_eq(run("peers", h.endpoint, ""), 1); /* its namespace has a name that none may have */
	assert_clean();
	hostile_down(&h);
}
END_TEST

START_TEST(a_list_of_peers_without_end_is_refused)
{
	struct hostile full = {.ns = "a", .n_peers = 10000, .n_more = 1}, empty = {.ns = "a", .n_more = 1};

	hostile_up(&full);
	ck_assert_int_eq(run("peers", full.endpoint, ""), 1);
	ASSERT_SAID("the answer to PEERS makes no sense");
	hostile_down(&full);
	hostile_up(&empty);
	ck_assert_int_eq(run("top", empty.endpoint, "--count 1"), 1);
	ASSERT_SAID("the answer to PEERS makes no sense");
	hostile_down(&empty);
}
END_TEST
