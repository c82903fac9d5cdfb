/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What the server does for a request of a model with two groups, on the real chunk indexes and policies: the hit is the longest
 * length up to which the first group has everything, and the second one its last blocks. Each block that is no hit is stored in
 * both groups, as an engine does that computes a prompt block by block. The groups share the pool: extents move between them.
 *
 * The rule of what is unneeded is that of session_touch.c, where all numbers are known: a request's blocks of the window are those
 * that its hit was promised and those that it stored, in their order in the prompt. Its test is against the server itself
 * (test_server_unneeded.c); here it is what makes the difference between two runs.
 *
 * Threads: main, which is the loop; the pool's thread that makes extents.
 */
#include "policy_window.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "chunk_index.h"
#include "clock.h"
#include "say.h"
#include "trace.h"

#define SLOT_BYTES 64u
#define SLICE 512u
#define GROUPS 2u
#define SHARED 2u

struct group {
	struct scout__chunk_index *index;
	struct scout__handle *blocks; /* of the request: what it found or stored; entry NO_ENTRY: nothing */
	bool *present;                /* another one had stored it */
	uint32_t from, to;            /* of these, what the request has */
};

struct sim {
	struct scout__l1 l1;
	struct scout__l1_ns ns;
	struct group groups[GROUPS]; /* all, window */
	const struct policy_window *window;
	uint8_t *hashes;
	uint32_t *found;
	uint64_t n_sessions;
	struct scout__log log;
};

static SCOUT_ON_LOOP struct scout__chunk_index *
owner_of(struct sim *sim, const void *owner)
{
	return owner == sim->groups[0].index ? sim->groups[0].index : sim->groups[1].index;
}

static SCOUT_ON_LOOP void
take_extents(struct sim *sim)
{
	struct scout__extent *extent;

	while ((extent = scout__pool_ready(&sim->l1.pool)))
		if (!scout__index_grow(owner_of(sim, extent->owner), extent))
			die("growing failed");
}

/* No worker maps anything here: what is taken from one group is free for the other one at once. */
static SCOUT_ON_LOOP void
rebalance(struct sim *sim)
{
	struct scout__extent *extent;
	struct scout__chunk_index *index;

	while (scout__rebalance_is_due(&sim->l1)) {
		enum scout__rebalance_result what =
			scout__rebalance_step(&sim->l1, SLICE, scout__now_us(), &extent, &index);

		if (what == SCOUT__REBALANCE_TAKEN)
			scout__rebalance_freed(&sim->l1, extent);
		else if (what != SCOUT__REBALANCE_MORE)
			break;
	}
}

static SCOUT_ON_LOOP void
wait_for_room(struct sim *sim, const struct group *group)
{
	struct pollfd ready = {.fd = sim->l1.pool.ready_fd, .events = POLLIN};

	rebalance(sim);
	if (group->index->growth.n && poll(&ready, 1, 60000) <= 0)
		die("no extent came");
	take_extents(sim);
}

static const uint8_t *
hash_of(const struct sim *sim, uint32_t i)
{
	return sim->hashes + (size_t)i * TRACE_HASH_BYTES;
}

/* ---- lookup ---- */

/* The longest length up to @n that both groups can restore. */
static SCOUT_ON_LOOP uint32_t
longest(const struct sim *sim, uint32_t n)
{
	uint32_t run = 0, best = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t entry = scout__index_find(sim->groups[1].index, 1, hash_of(sim, i));

		run = entry != SCOUT__NO_ENTRY ? run + 1 : 0;
		if (run >= sim->window->blocks || run == i + 1)
			best = i + 1;
	}
	return best;
}

/* Promise what a length needs of a group, and give it back as a retrieve does. */
static SCOUT_ON_LOOP void
use(struct sim *sim, struct group *group, uint32_t from, uint32_t to)
{
	for (uint32_t i = from; i < to; i++) {
		uint32_t entry = scout__index_find(group->index, 1, hash_of(sim, i));

		if (entry == SCOUT__NO_ENTRY || !scout__index_promise(group->index, entry))
			die("a block of the hit cannot be promised");
		scout__index_used(group->index, entry, sim->n_sessions);
		group->blocks[i] = scout__index_handle(group->index, entry);
		group->present[i] = false;
	}
	for (uint32_t i = from; i < to; i++)
		scout__index_unpromise(group->index, group->blocks[i].entry, 1);
	group->from = from;
	group->to = to;
}

/* ---- store ---- */

static SCOUT_ON_LOOP void
store(struct sim *sim, struct group *group, uint32_t n)
{
	struct scout__user user = scout__index_user(group->index, sim->n_sessions);
	uint32_t first = group->to;

	user.skips = UINT32_MAX;
	for (; group->to < n; group->to++) {
		uint32_t i = group->to, entry;
		enum scout__reserve got;

		while ((got = scout__index_reserve(group->index, 1, hash_of(sim, i), 0, &user, &entry)) ==
		       SCOUT__RESERVE_WAIT)
			wait_for_room(sim, group);
		if (got == SCOUT__RESERVE_NO_ROOM)
			break;
		scout__index_used(group->index, entry, sim->n_sessions);
		group->blocks[i] = scout__index_handle(group->index, entry);
		group->present[i] = got == SCOUT__RESERVE_PRESENT;
	}
	for (uint32_t i = first; i < group->to; i++)
		if (!group->present[i])
			(void)scout__index_commit(group->index, group->blocks[i].entry, 0);
	rebalance(sim);
	take_extents(sim);
}

/* ---- finish ---- */

/* Whether the request still needs block @i of the window, which it has stored (from @hit on) or found. */
static SCOUT_ON_LOOP bool
is_needed(const struct sim *sim, const struct group *group, uint32_t i, uint32_t hit, uint32_t diverges_at)
{
	uint32_t needs = sim->window->blocks;
	bool is_last = group->to - i <= 2 * needs,
	     is_divergence = i >= hit && i < diverges_at && diverges_at - i <= needs;

	if (i >= hit && !is_divergence)
		return is_last;
	return scout__index_needed(group->index, group->blocks[i].entry) >= SHARED || is_divergence || is_last;
}

static SCOUT_ON_LOOP void
finish(const struct sim *sim, const struct group *group, uint32_t hit, uint32_t diverges_at, uint32_t kind)
{
	bool by_rule = group == &sim->groups[1] && sim->window->unneeded;
	struct scout__touch touch = {.kind = kind};

	for (uint32_t i = group->to; i-- > group->from;) {
		if (!scout__index_valid(group->index, group->blocks[i]))
			continue;
		touch.how = i < hit || group->present[i] ? SCOUT__ACCESS_READ : SCOUT__ACCESS_STORED;
		if (!by_rule || is_needed(sim, group, i, hit, diverges_at))
			scout__index_touch(group->index, group->blocks[i].entry, &touch);
		else if (!group->present[i])
			scout__index_unneeded(group->index, group->blocks[i].entry);
	}
}

/* Returns the hit. */
static SCOUT_ON_LOOP uint32_t
request(struct sim *sim, const uint64_t *ids, uint32_t n)
{
	struct group *all = &sim->groups[0], *window = &sim->groups[1];
	uint32_t run, hit, known, kind;

	sim->n_sessions++;
	for (uint32_t i = 0; i < n; i++)
		trace_hash(ids[i], sim->hashes + (size_t)i * TRACE_HASH_BYTES);
	run = scout__index_find_run(all->index, 1, sim->hashes, n, sim->found);
	hit = longest(sim, run);
	known = scout__index_known_run(all->index, 1, sim->hashes, hit, n);
	kind = scout__touch_kind((uint64_t)(n - known) * TRACE_BLOCK_TOKENS);
	scout__index_asked(all->index, 1, n);
	scout__index_asked(window->index, 1, n);
	use(sim, all, 0, hit);
	use(sim, window, hit > sim->window->blocks ? hit - sim->window->blocks : 0, hit);
	store(sim, all, n);
	store(sim, window, n);
	finish(sim, window, hit, run, kind);
	finish(sim, all, hit, run, kind);
	return hit;
}

/* ---- the run ---- */

/* No length needs a block of the window any more whose block of the first group has gone. */
static SCOUT_ON_LOOP void
lose_window(struct scout__chunk_index *index, uint32_t entry)
{
	struct sim *sim = index->l1->user;
	uint32_t lost;

	if (index != sim->groups[0].index)
		return;
	lost = scout__index_find(sim->groups[1].index, 1, index->entries[entry].hash);
	if (lost != SCOUT__NO_ENTRY)
		scout__index_unneeded(sim->groups[1].index, lost);
}

static SCOUT_ON_LOOP void
open_sim(struct sim *sim, const char *eviction, uint64_t objects, size_t longest_request)
{
	const uint64_t shard_bytes = SLOT_BYTES;
	char err[512];

	if (scout__l1_init(&sim->l1, objects * SLOT_BYTES, objects * SLOT_BYTES / 64, UINT64_MAX, eviction, &sim->log,
			   err, sizeof(err)))
		die("%s", err);
	sim->l1.user = sim;
	if (sim->window->unneeded)
		sim->l1.evicted = lose_window;
	scout__l1_ns_init(&sim->ns, 1);
	sim->ns.n_groups = GROUPS;
	sim->hashes = malloc(longest_request * TRACE_HASH_BYTES);
	sim->found = malloc(longest_request * sizeof(*sim->found));
	for (uint32_t g = 0; g < GROUPS; g++) {
		struct group *group = &sim->groups[g];

		group->blocks = malloc(longest_request * sizeof(*group->blocks));
		group->present = malloc(longest_request * sizeof(*group->present));
		if (!sim->hashes || !sim->found || !group->blocks || !group->present ||
		    scout__index_new(&sim->l1, &sim->ns, &shard_bytes, NULL, 1, 1, TRACE_HASH_BYTES, &group->index))
			die("out of memory");
	}
}

static SCOUT_ON_LOOP void
close_sim(struct sim *sim)
{
	for (uint32_t g = 0; g < GROUPS; g++) {
		scout__index_check(sim->groups[g].index);
		scout__index_free(sim->groups[g].index);
		free(sim->groups[g].blocks);
		free(sim->groups[g].present);
	}
	scout__l1_ns_fini(&sim->ns);
	scout__l1_fini(&sim->l1);
	free(sim->hashes);
	free(sim->found);
}

SCOUT_ON_LOOP double
policy_window_run(const struct policy_load *load, const char *eviction, uint64_t objects,
		  const struct policy_window *window)
{
	struct sim sim = {.window = window};
	uint64_t hits = 0, asked = 0;
	size_t longest_request = 1;

	for (size_t i = 0; i < load->n_requests; i++)
		if (load->first[i + 1] - load->first[i] > longest_request)
			longest_request = load->first[i + 1] - load->first[i];
	open_sim(&sim, eviction, objects, longest_request);
	for (size_t i = 0; i < load->n_requests; i++) {
		uint32_t n = (uint32_t)(load->first[i + 1] - load->first[i]);

		hits += request(&sim, load->ids + load->first[i], n);
		asked += n;
	}
	close_sim(&sim);
	return asked ? 100.0 * (double)hits / (double)asked : 0;
}
