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

#define N_MINIS (sizeof(candidates) / sizeof(candidates[0]))
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

struct mini_cache {
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

struct scout__mini_caches {
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
	struct mini_cache caches[N_MINIS];
};

static uint64_t
mini_bytes(const struct scout__mini_caches *minis)
{
	return (uint64_t)minis->n_elements * sizeof(struct element) +
	       ((uint64_t)minis->bucket_mask + 1) * sizeof(uint32_t);
}

int
scout__mini_cache_new(uint32_t max_entries, struct scout__mini_caches **ret_minis)
{
	struct scout__mini_caches *minis = calloc(1, sizeof(*minis));
	uint32_t buckets = 16;
	void *block;

	if (!minis)
		return SCOUT_ERR_NOMEM;
	while (minis->shift < MAX_SHIFT && max_entries >> (minis->shift + 1) >= MIN_SAMPLE)
		minis->shift++;
	minis->cap = minis->max_cap = (max_entries >> minis->shift) + 1;
	minis->n_elements = minis->max_cap * 2 + minis->max_cap / 4;
	while (buckets < minis->n_elements)
		buckets *= 2;
	minis->bucket_mask = buckets - 1;
	minis->bytes = mini_bytes(minis) * N_MINIS;
	/* Zeroes that cost nothing until they are used. */
	block = mmap(NULL, minis->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (block == MAP_FAILED) {
		free(minis);
		return SCOUT_ERR_NOMEM;
	}
	minis->block = block;
	for (uint32_t i = 0; i < N_MINIS; i++) {
		struct mini_cache *mini = &minis->caches[i];

		mini->elements = (struct element *)(void *)(minis->block + mini_bytes(minis) * i);
		mini->buckets = (uint32_t *)(void *)(mini->elements + minis->n_elements);
		if (scout__chunked_queue_init(&mini->order.queues, &mini->elements[0].node, sizeof(mini->elements[0]),
					      minis->n_elements)) {
			scout__mini_cache_free(minis);
			return SCOUT_ERR_NOMEM;
		}
		mini->order.args = candidates[i];
	}
	*ret_minis = minis;
	return 0;
}

void
scout__mini_cache_free(struct scout__mini_caches *minis)
{
	if (!minis)
		return;
	for (uint32_t i = 0; i < N_MINIS; i++)
		scout__chunked_queue_fini(&minis->caches[i].order.queues);
	(void)munmap(minis->block, minis->bytes);
	free(minis);
}

bool
scout__mini_cache_samples(const struct scout__mini_caches *minis, uint64_t print)
{
	return print >> 32 << (32 - minis->shift) << 32 == 0;
}

/* ---- one simulation ---- */

/* The word that leads to the element of @print, or the 0 at the end of its chain. */
static uint32_t *
find(const struct scout__mini_caches *minis, const struct mini_cache *mini, uint32_t print)
{
	uint32_t *at = &mini->buckets[print & minis->bucket_mask];

	while (*at && mini->elements[*at - 1].print != print)
		at = &mini->elements[*at - 1].chain;
	return at;
}

/* Make the next victim a ghost. */
static void
evict(struct mini_cache *mini)
{
	uint32_t victim = scout__segmented_victim(&mini->order);

	scout__chunked_queue_unlink(&mini->order.queues, victim);
	scout__chunked_queue_append(&mini->order.queues, SCOUT__GHOST, victim);
	mini->order.live--;
}

/* An element that is in no list and no chain. */
static uint32_t
element_take(const struct scout__mini_caches *minis, struct mini_cache *mini)
{
	uint32_t i = scout__chunked_queue_head(&mini->order.queues, SCOUT__GHOST);
	uint32_t *at;

	if (mini->n_used < minis->n_elements && mini->order.queues.n[SCOUT__GHOST] < minis->cap + minis->cap / 4)
		return mini->n_used++;
	SCOUT_ASSERT(i != SCOUT__NO_ENTRY);
	at = find(minis, mini, mini->elements[i].print);
	*at = mini->elements[i].chain;
	scout__chunked_queue_unlink(&mini->order.queues, i);
	return i;
}

/* @print is used and was not in the cache: it comes in, protected when it is a ghost. */
static uint32_t
mini_store(const struct scout__mini_caches *minis, struct mini_cache *mini, uint32_t print)
{
	uint32_t *at = find(minis, mini, print);
	uint32_t queue = SCOUT__PROBATION;
	uint32_t i;

	if (*at) {
		i = *at - 1;
		scout__chunked_queue_unlink(&mini->order.queues, i);
		queue = SCOUT__PROTECTED;
	}
	/* Two at most, for when the chunk index lost entries to another namespace: it adjusts little by little. */
	for (uint32_t n = 0; n < 2 && mini->order.live >= minis->cap; n++)
		evict(mini);
	if (queue == SCOUT__PROBATION) {
		i = element_take(minis, mini);
		at = find(minis, mini, print);
		mini->elements[i].print = print;
		mini->elements[i].chain = 0;
		*at = i + 1;
	}
	scout__segmented_put(&mini->order, queue, i);
	mini->order.live++;
	return i;
}

static bool
is_resident(const struct mini_cache *mini, uint32_t link)
{
	return link && mini->elements[link - 1].node.queue != SCOUT__GHOST;
}

static void
mini_accessed(const struct scout__mini_caches *minis, struct mini_cache *mini, uint32_t print, enum scout__access how,
	      uint32_t depth)
{
	uint32_t link = *find(minis, mini, print);

	if (is_resident(mini, link)) {
		mini->hits += how == SCOUT__ACCESS_READ;
		scout__segmented_accessed(&mini->order, link - 1, how, depth);
	} else if (how == SCOUT__ACCESS_READ) {
		scout__segmented_accessed(&mini->order, mini_store(minis, mini, print), SCOUT__ACCESS_STORED, depth);
	}
}

/* ---- the choice ---- */

/* What candidate @i surely gains on LRU, in parts of all uses: the mean less what chance may have done. */
static double
sure_gain(const struct scout__mini_caches *minis, uint32_t i)
{
	const struct mini_cache *mini = &minis->caches[i];
	double variance = mini->square - mini->mean * mini->mean;
	double deviation = sqrt(variance > 0 ? variance : 0); /* of a period */

	/* The workload has changed: what it has gained before does not count. */
	if (mini->recent < 0 || mini->last < -MAX_LOSS)
		return -1;
	return mini->mean - DOUBT * deviation / sqrt(minis->periods);
}

static void
note_period(struct scout__mini_caches *minis, struct mini_cache *mini, uint32_t lru_hits)
{
	double gain = ((double)mini->hits - lru_hits) / minis->uses;

	mini->mean += (gain - mini->mean) / minis->periods;
	mini->square += (gain * gain - mini->square) / minis->periods;
	mini->last = gain;
	mini->recent += (gain - mini->recent) / (minis->periods < RECENT ? minis->periods : RECENT);
	mini->hits = 0;
}

static void
decide(struct scout__mini_caches *minis)
{
	uint32_t lru_hits = minis->caches[0].hits;
	uint32_t best = 0;
	double best_gain = MIN_GAIN;

	if (minis->periods < MEMORY)
		minis->periods++;
	for (uint32_t i = 0; i < N_MINIS; i++)
		note_period(minis, &minis->caches[i], lru_hits);
	minis->uses = 0;
	/* The chosen candidate stays while it gains anything, unless another one gains clearly more. */
	if (minis->choice) {
		double gain = sure_gain(minis, minis->choice);

		if (gain > 0) {
			best = minis->choice;
			best_gain = gain + MIN_GAIN;
		}
	}
	for (uint32_t i = 1; i < N_MINIS; i++) {
		double gain = sure_gain(minis, i);

		if (gain > best_gain) {
			best_gain = gain;
			best = i;
		}
	}
	minis->choice = best;
}

static void
count_use(struct scout__mini_caches *minis)
{
	if (++minis->uses >= PERIOD(minis->cap))
		decide(minis);
}

void
scout__mini_cache_created(struct scout__mini_caches *minis, uint64_t print)
{
	uint32_t key = (uint32_t)print;

	for (uint32_t i = 0; i < N_MINIS; i++) {
		struct mini_cache *mini = &minis->caches[i];

		if (is_resident(mini, *find(minis, mini, key))) {
			/* Only the chunk index had evicted it. */
			mini->hits++;
			scout__segmented_accessed(&mini->order, *find(minis, mini, key) - 1, SCOUT__ACCESS_READ, 0);
		} else {
			(void)mini_store(minis, mini, key);
		}
	}
	count_use(minis);
}

void
scout__mini_cache_accessed(struct scout__mini_caches *minis, uint64_t print, enum scout__access how, uint32_t depth)
{
	for (uint32_t i = 0; i < N_MINIS; i++)
		mini_accessed(minis, &minis->caches[i], (uint32_t)print, how, depth);
	if (how == SCOUT__ACCESS_READ)
		count_use(minis);
}

void
scout__mini_cache_full(struct scout__mini_caches *minis, uint32_t live)
{
	uint32_t cap = live >> minis->shift;

	if (cap == 0)
		cap = 1;
	minis->cap = cap < minis->max_cap ? cap : minis->max_cap;
}

struct scout__evict_args
scout__mini_cache_choice(const struct scout__mini_caches *minis)
{
	return candidates[minis->choice];
}

uint64_t
scout__mini_cache_bytes(const struct scout__mini_caches *minis)
{
	return sizeof(*minis) + minis->bytes + scout__chunked_queue_bytes(&minis->caches[0].order.queues) * N_MINIS;
}

static void
check_mini(const struct scout__mini_caches *minis, const struct mini_cache *mini)
{
	const uint32_t *n = mini->order.queues.n;
	uint32_t chained = 0;

	scout__chunked_queue_check(&mini->order.queues);
	SCOUT_ASSERT(n[SCOUT__SPARE] + n[SCOUT__PROBATION] + n[SCOUT__PROTECTED] == mini->order.live);
	SCOUT_ASSERT(mini->order.live + n[SCOUT__GHOST] == mini->n_used);
	SCOUT_ASSERT(mini->n_used <= minis->n_elements);
	for (uint32_t b = 0; b <= minis->bucket_mask; b++) {
		for (uint32_t at = mini->buckets[b]; at; at = mini->elements[at - 1].chain) {
			SCOUT_ASSERT((mini->elements[at - 1].print & minis->bucket_mask) == b);
			chained++;
		}
	}
	SCOUT_ASSERT(chained == mini->n_used);
}

void
scout__mini_cache_check(const struct scout__mini_caches *minis)
{
	for (uint32_t i = 0; i < N_MINIS; i++)
		check_mini(minis, &minis->caches[i]);
}
