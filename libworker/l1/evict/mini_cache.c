/* SPDX-License-Identifier: Apache-2.0 */
#include "mini_cache.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "segmented.h"

/*
 * DESIGN
 *
 * Purpose: choose share and cut of the segmented order while it runs, and never be much worse than LRU.
 *
 * Keys are sampled and not conversations. That needs no notion of a conversation, and is right because in every
 * candidate a chunk outlives those behind it (it is read at least as often, touched later and less deep), so the
 * leading run that a lookup counts is what a simulation of single keys counts; and its variance is smaller, because
 * each conversation is in the sample with a part of its chunks.
 *
 * All candidates see the same keys, so the difference to LRU has much less noise than the ratios themselves. It is
 * noted period by period, with forgetting, which gives a mean and its standard error. A candidate is chosen when its
 * gain exceeds twice that error and a little, and stays until another one's gain is clearly larger. One that lost to
 * LRU recently, or much in the last period, counts as a loser, whatever it gained before. So where nothing is to be
 * gained, LRU stays.
 *
 * A read that hit in the chunk index may miss in a simulation; there the session would have stored the chunk, so it
 * does that.
 *
 * Memory: each simulation has nodes for as many keys as it holds and as many ghosts, queues of them, and a chained
 * table over both. The sample has 512 to 1023 entries of the chunk index up to 524287 entries, above that one in 512.
 *
 * Rejected: sampling conversations by their first chunk (many share it, and nothing else is known of them when a chunk
 * is stored); changing the share step by step as ARC does (loses to LRU where the gradient misleads it).
 *
 * Threads: loop.
 */

/* Plain LRU is the first. Cuts that are too deep for the prompts do nothing, so the others are spread widely. */
static const struct scout__evict_args candidates[] = {
	{.share = 100},
	{.share = 75},
	{.share = 50},
	{.share = 30},
	{.share = 10},
	{.share = 100, .cut = 16},
	{.share = 100, .cut = 4},
	{.share = 50, .cut = 16},
	{.share = 50, .cut = 4},
	{.share = 30, .cut = 8},
};

#define N_SIMS (sizeof(candidates) / sizeof(candidates[0]))
#define MIN_SAMPLE 512u
#define MAX_SHIFT 9u
/* A decision every so many sampled uses: four for each turnover of a cache that hits nothing. */
#define PERIOD(cap) ((cap) / 4 + 1)
#define MEMORY 48.0    /* periods that the means are over */
#define RECENT 8.0     /* likewise, for the recent one */
#define MAX_LOSS 0.03  /* of the uses of the last period: worse than LRU by that, and it is out */
#define DOUBT 2.0      /* standard errors that a gain must exceed */
#define MIN_GAIN 0.002 /* of all uses: what a change must promise */

struct element {
	struct scout__node node;
	uint32_t print;
	uint32_t chain; /* the next one in the same bucket */
};

struct sim {
	struct scout__segmented order;
	struct element *elements;
	uint32_t *buckets; /* first element, plus 1 */
	uint32_t n_used;   /* elements that were ever used */
	uint32_t hits;     /* in this period */
	double mean;       /* of the gain on LRU in a period, in parts of its uses; with forgetting */
	double square;     /* likewise, of its square */
	double recent;     /* likewise, but over the last few periods */
	double last;       /* of the last one */
};

struct scout__shadow {
	uint32_t shift;
	uint32_t cap; /* elements of a simulation that are not ghosts */
	uint32_t max_cap;
	uint32_t n_elements; /* of each simulation: max_cap and their ghosts */
	uint32_t bucket_mask;
	uint32_t uses;  /* in this period */
	double periods; /* so many the means are over, at most MEMORY */
	uint32_t choice;
	uint64_t bytes; /* of the block behind all simulations */
	char *block;
	struct sim sims[N_SIMS];
};

static uint64_t
sim_bytes(const struct scout__shadow *shadow)
{
	return (uint64_t)shadow->n_elements * sizeof(struct element) +
	       ((uint64_t)shadow->bucket_mask + 1) * sizeof(uint32_t);
}

int
scout__shadow_new(uint32_t max_entries, struct scout__shadow **ret_shadow)
{
	struct scout__shadow *shadow = calloc(1, sizeof(*shadow));
	uint32_t buckets = 16;
	void *block;

	if (!shadow)
		return SCOUT_ERR_NOMEM;
	while (shadow->shift < MAX_SHIFT && max_entries >> (shadow->shift + 1) >= MIN_SAMPLE)
		shadow->shift++;
	shadow->cap = shadow->max_cap = (max_entries >> shadow->shift) + 1;
	shadow->n_elements = shadow->max_cap * 2 + shadow->max_cap / 4;
	while (buckets < shadow->n_elements)
		buckets *= 2;
	shadow->bucket_mask = buckets - 1;
	shadow->bytes = sim_bytes(shadow) * N_SIMS;
	/* Zeroes that cost nothing until they are used. */
	block = mmap(NULL, shadow->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (block == MAP_FAILED) {
		free(shadow);
		return SCOUT_ERR_NOMEM;
	}
	shadow->block = block;
	for (uint32_t i = 0; i < N_SIMS; i++) {
		struct sim *sim = &shadow->sims[i];

		sim->elements = (struct element *)(void *)(shadow->block + sim_bytes(shadow) * i);
		sim->buckets = (uint32_t *)(void *)(sim->elements + shadow->n_elements);
		if (scout__queues_init(&sim->order.queues, &sim->elements[0].node, sizeof(sim->elements[0]),
				       shadow->n_elements)) {
			scout__shadow_free(shadow);
			return SCOUT_ERR_NOMEM;
		}
		sim->order.args = candidates[i];
	}
	*ret_shadow = shadow;
	return 0;
}

void
scout__shadow_free(struct scout__shadow *shadow)
{
	if (!shadow)
		return;
	for (uint32_t i = 0; i < N_SIMS; i++)
		scout__queues_fini(&shadow->sims[i].order.queues);
	(void)munmap(shadow->block, shadow->bytes);
	free(shadow);
}

bool
scout__shadow_samples(const struct scout__shadow *shadow, uint64_t print)
{
	return print >> 32 << (32 - shadow->shift) << 32 == 0;
}

/* ---- one simulation ---- */

/* The word that leads to the element of @print, or the 0 at the end of its chain. */
static uint32_t *
find(const struct scout__shadow *shadow, const struct sim *sim, uint32_t print)
{
	uint32_t *at = &sim->buckets[print & shadow->bucket_mask];

	while (*at && sim->elements[*at - 1].print != print)
		at = &sim->elements[*at - 1].chain;
	return at;
}

/* Make the next victim a ghost. */
static void
evict(struct sim *sim)
{
	uint32_t victim = scout__segmented_victim(&sim->order);

	scout__queues_unlink(&sim->order.queues, victim);
	scout__queues_append(&sim->order.queues, SCOUT__GHOST, victim);
	sim->order.live--;
}

/* An element that is in no list and no chain. */
static uint32_t
element_take(const struct scout__shadow *shadow, struct sim *sim)
{
	uint32_t i = scout__queues_head(&sim->order.queues, SCOUT__GHOST);
	uint32_t *at;

	if (sim->n_used < shadow->n_elements && sim->order.queues.n[SCOUT__GHOST] < shadow->cap + shadow->cap / 4)
		return sim->n_used++;
	SCOUT_ASSERT(i != SCOUT__NO_ENTRY);
	at = find(shadow, sim, sim->elements[i].print);
	*at = sim->elements[i].chain;
	scout__queues_unlink(&sim->order.queues, i);
	return i;
}

/* @print is used and was not in the cache: it comes in, protected when it is a ghost. */
static uint32_t
sim_store(const struct scout__shadow *shadow, struct sim *sim, uint32_t print)
{
	uint32_t *at = find(shadow, sim, print);
	uint32_t queue = SCOUT__PROBATION;
	uint32_t i;

	if (*at) {
		i = *at - 1;
		scout__queues_unlink(&sim->order.queues, i);
		queue = SCOUT__PROTECTED;
	}
	/* Two at most, for when the chunk index lost entries to another namespace: it adjusts little by little. */
	for (uint32_t n = 0; n < 2 && sim->order.live >= shadow->cap; n++)
		evict(sim);
	if (queue == SCOUT__PROBATION) {
		i = element_take(shadow, sim);
		at = find(shadow, sim, print);
		sim->elements[i].print = print;
		sim->elements[i].chain = 0;
		*at = i + 1;
	}
	scout__segmented_put(&sim->order, queue, i);
	sim->order.live++;
	return i;
}

static bool
is_resident(const struct sim *sim, uint32_t link)
{
	return link && sim->elements[link - 1].node.queue != SCOUT__GHOST;
}

static void
sim_accessed(const struct scout__shadow *shadow, struct sim *sim, uint32_t print, enum scout__access how,
	     uint32_t depth)
{
	uint32_t link = *find(shadow, sim, print);

	if (is_resident(sim, link)) {
		sim->hits += how == SCOUT__ACCESS_READ;
		scout__segmented_accessed(&sim->order, link - 1, how, depth);
	} else if (how == SCOUT__ACCESS_READ) {
		scout__segmented_accessed(&sim->order, sim_store(shadow, sim, print), SCOUT__ACCESS_STORED, depth);
	}
}

/* ---- the choice ---- */

/* What candidate @i surely gains on LRU, in parts of all uses: the mean less what chance may have done. */
static double
sure_gain(const struct scout__shadow *shadow, uint32_t i)
{
	const struct sim *sim = &shadow->sims[i];
	double variance = sim->square - sim->mean * sim->mean;
	double deviation = sqrt(variance > 0 ? variance : 0); /* of a period */

	/* The workload has changed: what it has gained before does not count. */
	if (sim->recent < 0 || sim->last < -MAX_LOSS)
		return -1;
	return sim->mean - DOUBT * deviation / sqrt(shadow->periods);
}

static void
note_period(struct scout__shadow *shadow, struct sim *sim, uint32_t lru_hits)
{
	double gain = ((double)sim->hits - lru_hits) / shadow->uses;

	sim->mean += (gain - sim->mean) / shadow->periods;
	sim->square += (gain * gain - sim->square) / shadow->periods;
	sim->last = gain;
	sim->recent += (gain - sim->recent) / (shadow->periods < RECENT ? shadow->periods : RECENT);
	sim->hits = 0;
}

static void
decide(struct scout__shadow *shadow)
{
	uint32_t lru_hits = shadow->sims[0].hits;
	uint32_t best = 0;
	double best_gain = MIN_GAIN;

	if (shadow->periods < MEMORY)
		shadow->periods++;
	for (uint32_t i = 0; i < N_SIMS; i++)
		note_period(shadow, &shadow->sims[i], lru_hits);
	shadow->uses = 0;
	/* Who is chosen stays while it gains anything, unless another one gains clearly more. */
	if (shadow->choice) {
		double gain = sure_gain(shadow, shadow->choice);

		if (gain > 0) {
			best = shadow->choice;
			best_gain = gain + MIN_GAIN;
		}
	}
	for (uint32_t i = 1; i < N_SIMS; i++) {
		double gain = sure_gain(shadow, i);

		if (gain > best_gain) {
			best_gain = gain;
			best = i;
		}
	}
	shadow->choice = best;
}

static void
count_use(struct scout__shadow *shadow)
{
	if (++shadow->uses >= PERIOD(shadow->cap))
		decide(shadow);
}

void
scout__shadow_created(struct scout__shadow *shadow, uint64_t print)
{
	uint32_t key = (uint32_t)print;

	for (uint32_t i = 0; i < N_SIMS; i++) {
		struct sim *sim = &shadow->sims[i];

		if (is_resident(sim, *find(shadow, sim, key))) {
			/* Only the chunk index had evicted it. */
			sim->hits++;
			scout__segmented_accessed(&sim->order, *find(shadow, sim, key) - 1, SCOUT__ACCESS_READ, 0);
		} else {
			(void)sim_store(shadow, sim, key);
		}
	}
	count_use(shadow);
}

void
scout__shadow_accessed(struct scout__shadow *shadow, uint64_t print, enum scout__access how, uint32_t depth)
{
	for (uint32_t i = 0; i < N_SIMS; i++)
		sim_accessed(shadow, &shadow->sims[i], (uint32_t)print, how, depth);
	if (how == SCOUT__ACCESS_READ)
		count_use(shadow);
}

void
scout__shadow_full(struct scout__shadow *shadow, uint32_t live)
{
	uint32_t cap = live >> shadow->shift;

	if (cap == 0)
		cap = 1;
	shadow->cap = cap < shadow->max_cap ? cap : shadow->max_cap;
}

struct scout__evict_args
scout__shadow_choice(const struct scout__shadow *shadow)
{
	return candidates[shadow->choice];
}

uint64_t
scout__shadow_bytes(const struct scout__shadow *shadow)
{
	return sizeof(*shadow) + shadow->bytes + scout__queues_bytes(&shadow->sims[0].order.queues) * N_SIMS;
}

static void
check_sim(const struct scout__shadow *shadow, const struct sim *sim)
{
	const uint32_t *n = sim->order.queues.n;
	uint32_t chained = 0;

	scout__queues_check(&sim->order.queues);
	SCOUT_ASSERT(n[SCOUT__SPARE] + n[SCOUT__PROBATION] + n[SCOUT__PROTECTED] == sim->order.live);
	SCOUT_ASSERT(sim->order.live + n[SCOUT__GHOST] == sim->n_used);
	SCOUT_ASSERT(sim->n_used <= shadow->n_elements);
	for (uint32_t b = 0; b <= shadow->bucket_mask; b++) {
		for (uint32_t at = sim->buckets[b]; at; at = sim->elements[at - 1].chain) {
			SCOUT_ASSERT((sim->elements[at - 1].print & shadow->bucket_mask) == b);
			chained++;
		}
	}
	SCOUT_ASSERT(chained == sim->n_used);
}

void
scout__shadow_check(const struct scout__shadow *shadow)
{
	for (uint32_t i = 0; i < N_SIMS; i++)
		check_sim(shadow, &shadow->sims[i]);
}
