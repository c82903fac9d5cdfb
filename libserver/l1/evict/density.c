/* SPDX-License-Identifier: Apache-2.0 */
#include "density.h"

#include <math.h>
#include <string.h>

/*
 * DESIGN
 *
 * Purpose: turn "how often, and after how long, were chunks of this class touched again" into one number for each class
 * and age that says what a slot is worth.
 *
 * For a chunk that has reached age k without a touch, and that would be kept until age T at most, let R(T) be the
 * probability of a touch by then and E(T) the expected time until the touch or T. R(T) / E(T) is hits for each unit of
 * a slot's time; the index is its largest value over T. That is the index of a stopping problem (Gittins, "Bandit
 * processes and dynamic allocation indices", 1979), and for T without a bound the hit density of LHD (Beckmann, Chen
 * and Cidon, NSDI 2018).
 *
 * Hazard h[k]: touches for each unit of time that a chunk spends in bucket k. Survival in a bucket is exp(-h w), w its
 * width. With S[k] the probability to survive to the start of k and M[k] the expected time spent before it, from age
 * 0 on, R / E = (S[k] - S[T]) / (M[T] - M[k]): the steepest chord from point k of the curve S over M to a later point.
 * The end points of those chords are the lower convex hull of the points after k, built from the right, so one class
 * costs one exponential for each bucket, and not one for each pair.
 *
 * Little is known of a class at first. So its hazards are the pooled hazards of all classes, times one factor for the
 * class, and its own counts weigh more as they grow: PRIOR expected touches for the factor and for each bucket.
 *
 * The index of a class with more touches is never below that of a class with fewer, with equal other bits. A chunk
 * after another one is touched at most as often and as lately; so the chunk at the head of a prompt outlives those
 * after it, even if chance gave its class a low index.
 *
 * Rejected: one hazard for each class without pooling (rare classes are noise), the index without that order (17 %
 * hits where 23 are possible: what is cached after a gap is of no use).
 *
 * Threads: loop.
 */

#define PRIOR 20.0f
#define FORGET 0.95f    /* factor for the counts, at each relearning */
#define FORGOTTEN 1e-3f /* records of a class: fewer are none, before the counts become too small for fast floats */

void
scout__density_init(struct scout__density *density)
{
	memset(density, 0, sizeof(*density));
	for (uint32_t k = 1; k <= SCOUT__AGES; k++)
		density->edges[k] = exp2f((float)(k - 1) / 4);
	for (uint32_t class = 0; class < SCOUT__CLASSES; class ++)
		for (uint32_t k = 0; k < SCOUT__AGES; k++)
			density->index[class][k] = 1 / (density->edges[k] + density->edges[k + 1]);
}

uint32_t
scout__density_age(float units)
{
	uint32_t bits, rest, k;

	if (units < 1)
		return 0;
	memcpy(&bits, &units, sizeof(bits));
	rest = bits & 0x7fffff;
	/* The exponent counts octaves, the mantissa tells the quarter: 2^0.25, 2^0.5 and 2^0.75, less 1, times 2^23. */
	k = ((bits >> 23) - 127) * 4 + 1 + (rest >= 1587112) + (rest >= 3474676) + (rest >= 5719378);
	return k < SCOUT__AGES ? k : SCOUT__AGES - 1;
}

void
scout__density_ended(struct scout__density *density, uint32_t class, float units, bool touched)
{
	struct scout__reuse_counts *counts = &density->counts[class];
	uint32_t k = scout__density_age(units);

	counts->hits[k] += touched;
	counts->ended[k] += 1;
	counts->within[k] += units - density->edges[k];
}

/* ---- from hazards to the index ---- */

/*
 * For each bucket, the part that gets to its start, and the expected time from there on. In doubles, with the time
 * summed from the end: even a part of a millionth has chords.
 */
struct curve {
	double left[SCOUT__AGES + 1];
	double time[SCOUT__AGES + 1];
};

static double
slope(const struct curve *c, uint32_t from, uint32_t to)
{
	double time = c->time[from] - c->time[to];

	return time > 0 ? (c->left[from] - c->left[to]) / time : 0;
}

static void
survive(const struct scout__density *density, const float *hazard, struct curve *ret_curve)
{
	struct curve *c = ret_curve;

	c->left[0] = 1;
	for (uint32_t k = 0; k < SCOUT__AGES; k++) {
		double width = density->edges[k + 1] - density->edges[k];
		double h = hazard[k];
		double die = h > 0 ? -expm1(-h * width) : 0;

		c->left[k + 1] = c->left[k] * (1 - die);
		c->time[k] = c->left[k] * (h > 0 ? die / h : width);
	}
	c->time[SCOUT__AGES] = 0;
	for (uint32_t k = SCOUT__AGES; k-- > 0;)
		c->time[k] += c->time[k + 1];
}

/* The index of each age for a class with this @hazard. */
static void
best_densities(const struct scout__density *density, const float *hazard, float *ret_index)
{
	uint32_t hull[SCOUT__AGES + 1]; /* the last one is the next point */
	uint32_t n = 0;
	struct curve c;

	survive(density, hazard, &c);
	hull[n++] = SCOUT__AGES;
	for (uint32_t k = SCOUT__AGES; k-- > 0;) {
		while (n > 1 && slope(&c, k, hull[n - 1]) <= slope(&c, k, hull[n - 2]))
			n--;
		ret_index[k] = (float)slope(&c, k, hull[n - 1]);
		hull[n++] = k;
	}
}

/* ---- relearning ---- */

void
scout__density_begin(struct scout__density *density)
{
	memset(density->open, 0, sizeof(density->open));
	memset(density->open_within, 0, sizeof(density->open_within));
}

void
scout__density_open(struct scout__density *density, uint32_t class, float units)
{
	uint32_t k = scout__density_age(units);

	density->open[class][k] += 1;
	density->open_within[class][k] += units - density->edges[k];
}

/* Units that records of @class spent in each bucket. */
static void
exposure_of(const struct scout__density *density, uint32_t class, float *ret_exposure)
{
	const struct scout__reuse_counts *counts = &density->counts[class];
	float beyond = 0; /* records that got further than this bucket */

	memset(ret_exposure, 0, SCOUT__AGES * sizeof(*ret_exposure));
	if (!density->was_seen[class])
		return;
	for (uint32_t k = SCOUT__AGES; k-- > 0;) {
		ret_exposure[k] = beyond * (density->edges[k + 1] - density->edges[k]) + counts->within[k] +
				  density->open_within[class][k];
		beyond += counts->ended[k] + density->open[class][k];
	}
}

/* Note whether there is anything to learn about @class, and forget counts that are hardly anything. */
static void
see(struct scout__density *density, uint32_t class)
{
	struct scout__reuse_counts *counts = &density->counts[class];
	float records = 0, open = 0;

	for (uint32_t k = 0; k < SCOUT__AGES; k++) {
		records += counts->ended[k];
		open += density->open[class][k];
	}
	if (records < FORGOTTEN)
		memset(counts, 0, sizeof(*counts));
	density->was_seen[class] = records >= FORGOTTEN || open > 0;
}

void
scout__density_pool(struct scout__density *density)
{
	float hits[SCOUT__AGES] = {0};
	float exposure[SCOUT__AGES] = {0};
	float own[SCOUT__AGES];

	for (uint32_t class = 0; class < SCOUT__CLASSES; class ++) {
		see(density, class);
		if (!density->was_seen[class])
			continue;
		exposure_of(density, class, own);
		for (uint32_t k = 0; k < SCOUT__AGES; k++) {
			hits[k] += density->counts[class].hits[k];
			exposure[k] += own[k];
		}
	}
	for (uint32_t k = 0; k < SCOUT__AGES; k++)
		density->pooled[k] = exposure[k] > 0 ? hits[k] / exposure[k] : 0;
	best_densities(density, density->pooled, density->pooled_index);
}

static void
hazards_of(const struct scout__density *density, uint32_t class, float *ret_hazard)
{
	const struct scout__reuse_counts *counts = &density->counts[class];
	float exposure[SCOUT__AGES];
	float hits = 0, expected = 0, factor;

	exposure_of(density, class, exposure);
	for (uint32_t k = 0; k < SCOUT__AGES; k++) {
		hits += counts->hits[k];
		expected += exposure[k] * density->pooled[k];
	}
	factor = (hits + PRIOR) / (expected + PRIOR);
	for (uint32_t k = 0; k < SCOUT__AGES; k++) {
		float p = density->pooled[k];

		ret_hazard[k] = p > 0 ? (counts->hits[k] + PRIOR) / (exposure[k] + PRIOR / (p * factor)) : 0;
	}
}

void
scout__density_learn(struct scout__density *density, uint32_t class)
{
	const float *fewer = class % SCOUT__TOUCH_CLASSES ? density->index[class - 1] : NULL;
	struct scout__reuse_counts *counts = &density->counts[class];
	float *index = density->index[class];
	float hazard[SCOUT__AGES];

	if (density->was_seen[class]) {
		hazards_of(density, class, hazard);
		best_densities(density, hazard, index);
	} else {
		memcpy(index, density->pooled_index, sizeof(density->pooled_index));
	}
	for (uint32_t k = 0; fewer && k < SCOUT__AGES; k++)
		if (index[k] < fewer[k])
			index[k] = fewer[k];
	for (uint32_t k = 0; density->was_seen[class] && k < SCOUT__AGES; k++) {
		counts->hits[k] *= FORGET;
		counts->ended[k] *= FORGET;
		counts->within[k] *= FORGET;
	}
}

/* ---- another unit ---- */

static void
shift(float *row, int steps, float scale)
{
	float moved[SCOUT__AGES] = {0};

	for (int k = 0; k < (int)SCOUT__AGES; k++) {
		int to = k - steps;

		/* The first buckets all go into the first one; what is too old for the last bucket stays in it. */
		to = to < 0 ? 0 : to;
		to = to < (int)SCOUT__AGES ? to : (int)SCOUT__AGES - 1;
		moved[to] += row[k] * scale;
	}
	memcpy(row, moved, sizeof(moved));
}

void
scout__density_rescale(struct scout__density *density, int steps)
{
	float scale = exp2f((float)-steps / 4);

	for (uint32_t class = 0; class < SCOUT__CLASSES; class ++) {
		float *index = density->index[class];
		float moved[SCOUT__AGES];

		shift(density->counts[class].hits, steps, 1);
		shift(density->counts[class].ended, steps, 1);
		shift(density->counts[class].within, steps, scale);
		for (int k = 0; k < (int)SCOUT__AGES; k++) {
			int from = k + steps;

			from = from < 0 ? 0 : from;
			from = from < (int)SCOUT__AGES ? from : (int)SCOUT__AGES - 1;
			moved[k] = index[from] / scale;
		}
		memcpy(index, moved, sizeof(moved));
	}
}
