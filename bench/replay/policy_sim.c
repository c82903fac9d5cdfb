/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Hit ratios of eviction policies in seconds: the real chunk index with the real policies, slots of 64 bytes, no
 * server and no KV bytes. One session after the other does what the server does for it: the lookup promises the
 * leading run of readable chunks, the retrieve holds them and gives the promise back, the store reserves the rest
 * until there is no room but for what the session itself has used, commits, and the finish touches what was stored and
 * then what was found, each from last to first. Unlike a server under load, sessions do not overlap; --queue lets
 * requests wait and be looked up ahead, and --window adds a group (policy_window.c). The floor is the first policy of --eviction, "lru" unless another is given.
 *
 * Threads: main, which is the loop; the pool's thread that makes extents.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chunk_index.h"
#include "cli.h"
#include "clock.h"
#include "oracle.h"
#include "policy_keep.h"
#include "policy_load.h"
#include "policy_queue.h"
#include "policy_window.h"
#include "say.h"
#include "trace.h"

#define SLOT_BYTES 64u
#define MAX_LIST 24u
#define LIST_BYTES 1024u

/* --window and --unneeded */
static uint64_t window_blocks;
static struct policy_window window = {.unneeded = true};

/* --queue, --promised and --ahead */
static uint64_t queue_length, queue_promised = 50;
static enum policy_ahead queue_ahead = POLICY_AHEAD_TOUCH;
static uint64_t keep_percent;

struct policy_sim {
	struct scout__l1 l1;
	struct scout__chunk_index *index;
	uint8_t *hashes; /* of one request */
	uint32_t *found;
	uint32_t *stored; /* entries that the session stored, or found present while storing */
	bool *present;
	uint64_t n_sessions;
	struct scout__user user; /* the session's STORE */
	uint64_t hits;
	uint64_t asked;
	uint64_t lost; /* asked for, cached, and no hit: something before them was not */
};

/* In percent of what was asked for. */
struct sim_result {
	double hits;
	double lost;
};

static SCOUT_ON_LOOP void
wait_for_extent(struct policy_sim *sim)
{
	struct pollfd ready = {.fd = sim->l1.pool.ready_fd, .events = POLLIN};
	struct scout__extent *extent;

	if (poll(&ready, 1, 60000) <= 0)
		die("no extent came");
	while ((extent = scout__pool_ready(&sim->l1.pool)))
		if (!scout__index_grow(sim->index, extent))
			die("growing failed");
}

static SCOUT_ON_LOOP uint32_t
look_up(struct policy_sim *sim, uint32_t n)
{
	uint32_t found = scout__index_find_run(sim->index, 1, sim->hashes, n, sim->found);
	uint32_t hit = 0;

	while (hit < found && scout__index_is_hit(sim->index, sim->found[hit]) &&
	       scout__index_promise(sim->index, sim->found[hit]))
		hit++;
	return hit;
}

static SCOUT_ON_LOOP void
retrieve(struct policy_sim *sim, uint32_t hit)
{
	for (uint32_t i = 0; i < hit; i++) {
		if (!scout__index_hold(sim->index, sim->found[i], 0))
			die("a promised chunk is not readable");
		scout__index_used(sim->index, sim->found[i], sim->n_sessions);
		scout__index_unpromise(sim->index, sim->found[i], 1);
	}
	for (uint32_t i = 0; i < hit; i++)
		scout__index_unhold(sim->index, sim->found[i]);
}

static SCOUT_ON_LOOP enum scout__reserve
reserve(struct policy_sim *sim, uint32_t i, uint32_t *ret_entry)
{
	const uint8_t *hash = sim->hashes + (size_t)i * TRACE_HASH_BYTES;
	enum scout__reserve got;

	while ((got = scout__index_reserve(sim->index, 1, hash, 0, &sim->user, ret_entry)) == SCOUT__RESERVE_WAIT)
		wait_for_extent(sim);
	if (got == SCOUT__RESERVE_GRANTED)
		scout__index_used(sim->index, *ret_entry, sim->n_sessions);
	return got;
}

/* Store [hit, n), as many leading ones as there is room for. Returns how many were stored or are there. */
static SCOUT_ON_LOOP uint32_t
store(struct policy_sim *sim, uint32_t hit, uint32_t n)
{
	uint32_t stored = 0;

	sim->user = scout__index_user(sim->index, sim->n_sessions);
	sim->user.skips = UINT32_MAX;
	for (uint32_t i = hit; i < n; i++, stored++) {
		enum scout__reserve got = reserve(sim, i, &sim->stored[stored]);

		if (got == SCOUT__RESERVE_NO_ROOM)
			break;
		sim->present[stored] = got == SCOUT__RESERVE_PRESENT;
	}
	for (uint32_t i = 0; i < stored; i++)
		if (!sim->present[i])
			(void)scout__index_commit(sim->index, sim->stored[i], 0);
	return stored;
}

static SCOUT_ON_LOOP void
session(struct policy_sim *sim, const uint64_t *ids, uint32_t n, bool hinted)
{
	uint32_t hit;
	uint32_t stored;
	uint32_t known;
	struct scout__touch touch = {.hinted = hinted};

	sim->n_sessions++;
	for (uint32_t i = 0; i < n; i++)
		trace_hash(ids[i], sim->hashes + (size_t)i * TRACE_HASH_BYTES);
	scout__index_asked(sim->index, 0, n);
	hit = look_up(sim, n);
	known = scout__index_known_run(sim->index, 1, sim->hashes, hit, n);
	touch.kind = scout__touch_kind((uint64_t)(n - known) * TRACE_BLOCK_TOKENS);
	retrieve(sim, hit);
	stored = store(sim, hit, n);
	/* An entry of the hit may have been evicted by the store; then another chunk may have its slot. */
	for (uint32_t i = stored; i-- > 0;) {
		touch.how = sim->present[i] ? SCOUT__ACCESS_READ : SCOUT__ACCESS_STORED;
		sim->lost += sim->present[i];
		scout__index_touch(sim->index, sim->stored[i], &touch);
	}
	touch.how = SCOUT__ACCESS_READ;
	for (uint32_t i = hit; i-- > 0;)
		if (scout__index_find(sim->index, 1, sim->hashes + (size_t)i * TRACE_HASH_BYTES) == sim->found[i])
			scout__index_touch(sim->index, sim->found[i], &touch);
	sim->hits += hit;
	sim->asked += n;
}

static SCOUT_ON_LOOP struct sim_result
run(const struct policy_load *load, const struct oracle_hints *hints, const char *eviction, uint64_t blocks)
{
	struct scout__log log = {0};
	const uint64_t shard_bytes = SLOT_BYTES;
	struct policy_sim sim = {.hits = 0};
	struct policy_queue queue;
	struct policy_keep *keep;
	size_t longest = 1;
	char err[512];

	for (size_t i = 0; i < load->n_requests; i++)
		if (load->first[i + 1] - load->first[i] > longest)
			longest = load->first[i + 1] - load->first[i];
	sim.hashes = malloc(longest * TRACE_HASH_BYTES);
	sim.found = malloc(longest * sizeof(*sim.found));
	sim.stored = malloc(longest * sizeof(*sim.stored));
	sim.present = malloc(longest * sizeof(*sim.present));
	if (!sim.hashes || !sim.found || !sim.stored || !sim.present)
		die("out of memory");
	if (scout__l1_init(&sim.l1, blocks * SLOT_BYTES, UINT64_C(64) << 20, UINT64_MAX, eviction, &log, err,
			   sizeof(err)))
		die("%s", err);
	if (scout__index_new(&sim.l1, NULL, &shard_bytes, NULL, 1, 1, TRACE_HASH_BYTES, &sim.index))
		die("no chunk index");
	policy_queue_init(&queue, load, sim.index, queue_length, blocks * queue_promised / 100, queue_ahead);
	keep = load->ms ? policy_keep_new(load, sim.index, blocks * keep_percent / 100) : NULL;
	for (size_t i = 0; i < load->n_requests; i++) {
		policy_queue_serve(&queue, i);
		policy_keep_begin(keep, i);
		session(&sim, load->ids + load->first[i], (uint32_t)(load->first[i + 1] - load->first[i]),
			hints->n && hints->flagged[i]);
		policy_keep_end(keep, i, sim.hashes, (uint32_t)(load->first[i + 1] - load->first[i]));
	}
	policy_keep_free(keep);
	policy_queue_fini(&queue);
	scout__index_check(sim.index);
	scout__index_free(sim.index);
	scout__l1_fini(&sim.l1);
	free(sim.hashes);
	free(sim.found);
	free(sim.stored);
	free(sim.present);
	if (sim.asked == 0)
		return (struct sim_result){0, 0};
	return (struct sim_result){100.0 * (double)sim.hits / (double)sim.asked,
				   100.0 * (double)sim.lost / (double)sim.asked};
}

static struct sim_result
run_optimum(const struct policy_load *load, uint64_t blocks)
{
	uint64_t hits = oracle_optimum(load, blocks);

	return (struct sim_result){load->n_ids ? 100.0 * (double)hits / (double)load->n_ids : 0, 0};
}

/*
 * A row for each size. Of each policy the hits; of all but the first, the points gained on it; and what was cached, but
 * no hit because of a gap before it.
 */
static SCOUT_ON_LOOP void
table(const char *name, const struct policy_load *load, const struct oracle_hints *hints, const uint64_t *blocks,
      size_t n_blocks, const char *const *policies, size_t n_policies)
{
	say("# %s: %zu requests, %zu blocks asked for; in %%: hits (gain on the first policy) lost behind a gap\n%-10s %8s",
	    name, load->n_requests, load->n_ids, "", "blocks");
	for (size_t p = 0; p < n_policies; p++)
		say(p ? " %20s" : " %12s", policies[p]);
	say("\n");
	for (size_t b = 0; b < n_blocks; b++) {
		double first = 0;

		say("%-10s %8" PRIu64, name, blocks[b]);
		for (size_t p = 0; p < n_policies; p++) {
			struct sim_result result =
				strcmp(policies[p], "optimum") == 0 ? run_optimum(load, blocks[b])
				: window.blocks > 0 ? (struct sim_result){.hits = policy_window_run(load, policies[p],
												    blocks[b], &window)}
						    : run(load, hints, policies[p], blocks[b]);

			if (p == 0) {
				first = result.hits;
				say(" %7.2f %4.2f", result.hits, result.lost);
			} else {
				say(" %7.2f (%+5.2f) %4.2f", result.hits, result.hits - first, result.lost);
			}
		}
		say("\n");
	}
}

/* The parts of @text between commas; they lie in @buf. */
static size_t
split(const char *text, char buf[LIST_BYTES], const char **ret_parts)
{
	char *rest = buf, *part;
	size_t n = 0;

	if (snprintf(buf, LIST_BYTES, "%s", text) >= (int)LIST_BYTES)
		die("a list is longer than %u bytes", LIST_BYTES);
	while ((part = strsep(&rest, ",")))
		if (*part && n < MAX_LIST)
			ret_parts[n++] = part;
	return n;
}

int
main(int argc, char **argv)
{
	static const char *const ahead_words[] = {"none", "promise", "touch", NULL}; /* by enum policy_ahead */
	static const char *const unneeded_words[] = {"off", "on", NULL};
	unsigned int ahead = POLICY_AHEAD_TOUCH, unneeded = 1;
	const char *trace = NULL, *hint_text = NULL,
		   *workload_list = "scan,zipf,chat,agents,uniform,loop,shift,documents,twice,phases";
	const char *size_list = "100,500,2000,5859,10000,20000,50000", *policy_list = "lru,hdc";
	const char *sizes[MAX_LIST], *policies[MAX_LIST], *workloads[MAX_LIST];
	char text[3][LIST_BYTES];
	uint64_t blocks[MAX_LIST], requests = 12000, seed = 1;
	size_t n_sizes, n_policies, n_workloads;
	const struct cli_option options[] = {
		CLI_TEXT("trace", "FILE", &trace, "Mooncake trace (JSON lines), instead of --workload"),
		CLI_TEXT("workload", "NAME,...", &workload_list, "synthetic ones"),
		CLI_TEXT("blocks", "N,...", &size_list, "cache sizes"),
		CLI_TEXT("eviction", "POLICY,...", &policy_list,
			 "policies, or optimum; the others are compared to the first"),
		CLI_TEXT("hints", "oracle:RECALL,FALSE_ALARMS", &hint_text,
			 "flag so many percent of the requests that nothing continues, and of the others"),
		CLI_NUMBER("queue", &queue_length, 0, 100000, "requests that wait before each one; 0: none"),
		CLI_NUMBER("promised", &queue_promised, 0, 100, "percent of the blocks that these may be promised"),
		CLI_WORDS("ahead", &ahead, ahead_words,
			  "what a lookup ahead of each waiting request does: nothing, promise its blocks within "
			  "--promised, or renew the rest as well"),
		CLI_NUMBER(
			"keep", &keep_percent, 0, 100,
			"percent of the blocks that requests of a trace may keep until their next turn, if that comes "
			"within a minute"),
		CLI_NUMBER("window", &window_blocks, 0, 100000,
			   "a second group, of which a length needs so many blocks; --blocks is for both. 0: none"),
		CLI_WORDS("unneeded", &unneeded, unneeded_words, "what a window leaves behind goes first"),
		CLI_NUMBER("requests", &requests, 1, 10000000, "of a synthetic workload"),
		CLI_NUMBER("seed", &seed, 0, UINT64_MAX, "of a synthetic workload"),
	};
	const struct cli cli = {
		.tool = "policy_sim",
		.about = "Hit ratios of eviction policies on a trace or on synthetic workloads, in seconds.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
	};
	struct policy_load load = {0};
	struct oracle_hints hints = {0};
	double recall = 0, false_alarms = 0;
	char err[256];
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	n_sizes = split(size_list, text[0], sizes);
	n_policies = split(policy_list, text[1], policies);
	n_workloads = split(workload_list, text[2], workloads);
	for (size_t i = 0; i < n_sizes; i++) {
		const struct cli_option size = CLI_NUMBER("blocks", &blocks[i], 1, 1000000, "");

		if (cli_set(&size, sizes[i], err, sizeof(err)) != 0)
			return cli_usage_error(&cli, "%s", err);
	}
	if (hint_text && !oracle_parse(hint_text, &recall, &false_alarms))
		return cli_usage_error(&cli, "--hints: \"%s\" is not oracle:RECALL,FALSE_ALARMS, each 0 to 100",
				       hint_text);
	if (window_blocks > 0 && (queue_length > 0 || hint_text))
		return cli_usage_error(&cli, "--window goes with neither --queue nor --hints");
	window = (struct policy_window){.blocks = (uint32_t)window_blocks, .unneeded = unneeded == 1};
	queue_ahead = (enum policy_ahead)ahead;
	scout__enter_loop();
	if (trace) {
		load_trace(&load, trace);
		if (hint_text)
			oracle_hints_make(&load, recall, false_alarms, seed, &hints);
		table("trace", &load, &hints, blocks, n_sizes, policies, n_policies);
		oracle_hints_free(&hints);
		load_free(&load);
		return EXIT_SUCCESS;
	}
	for (size_t i = 0; i < n_workloads; i++) {
		if (!load_synthetic(&load, workloads[i], seed, (uint32_t)requests))
			return cli_usage_error(&cli, "--workload: \"%s\" is not known, see --help", workloads[i]);
		if (hint_text)
			oracle_hints_make(&load, recall, false_alarms, seed, &hints);
		table(workloads[i], &load, &hints, blocks, n_sizes, policies, n_policies);
		oracle_hints_free(&hints);
		load_free(&load);
	}
	return EXIT_SUCCESS;
}
