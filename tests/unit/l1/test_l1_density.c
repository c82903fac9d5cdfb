/* SPDX-License-Identifier: Apache-2.0 */
#include "density.h"

#include <math.h>

#include "policy_rig.h"

#include "check_main.h"

/* density.c against its definition, written down as it stands. */

static struct scout__density density;

static double
edge(uint32_t k)
{
	return k == 0 ? 0 : pow(2, (k - 1) / 4.0);
}

static bool
is_near(double a, double b, double tolerance)
{
	return fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b)) + 1e-12;
}

START_TEST(density_ages_fall_into_buckets_of_a_quarter_octave)
{
	for (uint32_t k = 0; k < SCOUT__AGES; k++) {
		ck_assert_uint_eq(scout__density_age((float)(edge(k) * 1.0001)), k);
		ck_assert_uint_eq(scout__density_age((float)(edge(k + 1) * 0.9999)), k);
	}
	ck_assert_uint_eq(scout__density_age(0), 0);
	ck_assert_uint_eq(scout__density_age(1), 1);
	ck_assert_uint_eq(scout__density_age(1e30f), SCOUT__AGES - 1);
}
END_TEST

START_TEST(density_orders_as_lru_until_it_has_learned)
{
	scout__density_init(&density);
	for (uint32_t class = 0; class < SCOUT__CLASSES; class ++) {
		for (uint32_t k = 0; k < SCOUT__AGES; k++) {
			ck_assert(is_near(density.index[class][k], 1 / (edge(k) + edge(k + 1)), 1e-5));
			ck_assert(k == 0 || density.index[class][k] < density.index[class][k - 1]);
		}
	}
}
END_TEST

/* ---- the definition ---- */

struct seen {
	uint32_t class;
	double units;
	bool ended;
	bool touched;
};

#define MAX_SEEN 40000u

static struct seen seen[MAX_SEEN];
static uint32_t n_seen;
static double hits[SCOUT__CLASSES][SCOUT__AGES];
static double exposure[SCOUT__CLASSES][SCOUT__AGES];
static double naive_index[SCOUT__CLASSES][SCOUT__AGES];

static void
see(uint32_t class, double units, bool ended, bool touched)
{
	ck_assert_uint_lt(n_seen, MAX_SEEN);
	seen[n_seen++] = (struct seen){class, units, ended, touched};
	if (ended)
		scout__density_ended(&density, class, (float)units, touched);
}

static void
count_naively(void)
{
	memset(hits, 0, sizeof(hits));
	memset(exposure, 0, sizeof(exposure));
	for (uint32_t i = 0; i < n_seen; i++) {
		const struct seen *s = &seen[i];

		for (uint32_t k = 0; k < SCOUT__AGES; k++) {
			double from = edge(k), to = k == SCOUT__AGES - 1 ? 1e30 : edge(k + 1);

			if (s->units >= to)
				exposure[s->class][k] += to - from;
			else if (s->units >= from)
				exposure[s->class][k] += s->units - from;
			hits[s->class][k] += s->touched && s->units >= from && s->units < to;
		}
	}
}

/* max over T of P(reuse in k..T) / E[time in k..T], each T on its own. */
static double
best_ratio(const double *hazard, uint32_t k)
{
	double best = 0, alive = 1, time = 0;

	for (uint32_t to = k; to < SCOUT__AGES; to++) {
		double width = edge(to + 1) - edge(to);
		double stay = exp(-hazard[to] * width);

		time += alive * (hazard[to] > 0 ? (1 - stay) / hazard[to] : width);
		alive *= stay;
		if (time > 0)
			best = fmax(best, (1 - alive) / time);
	}
	return best;
}

static void
learn_naively(void)
{
	double p[SCOUT__AGES];

	count_naively();
	for (uint32_t k = 0; k < SCOUT__AGES; k++) {
		double all_hits = 0, all_exposure = 0;

		for (uint32_t class = 0; class < SCOUT__CLASSES; class ++) {
			all_hits += hits[class][k];
			all_exposure += exposure[class][k];
		}
		p[k] = all_exposure > 0 ? all_hits / all_exposure : 0;
	}
	for (uint32_t class = 0; class < SCOUT__CLASSES; class ++) {
		double own = 20, expected = 20, hazard[SCOUT__AGES];

		for (uint32_t k = 0; k < SCOUT__AGES; k++) {
			own += hits[class][k];
			expected += exposure[class][k] * p[k];
		}
		for (uint32_t k = 0; k < SCOUT__AGES; k++)
			hazard[k] =
				p[k] > 0 ? (hits[class][k] + 20) / (exposure[class][k] + 20 / (p[k] * own / expected))
					 : 0;
		for (uint32_t k = 0; k < SCOUT__AGES; k++) {
			naive_index[class][k] = best_ratio(hazard, k);
			if (class % SCOUT__TOUCH_CLASSES)
				naive_index[class][k] = fmax(naive_index[class][k], naive_index[class - 1][k]);
		}
	}
}

static void
learn(void)
{
	scout__density_begin(&density);
	for (uint32_t i = 0; i < n_seen; i++)
		if (!seen[i].ended)
			scout__density_open(&density, seen[i].class, (float)seen[i].units);
	scout__density_pool(&density);
	for (uint32_t class = 0; class < SCOUT__CLASSES; class ++)
		scout__density_learn(&density, class);
}

static double
draw_age(double top)
{
	/* Never on an edge, where a float may fall into the next bucket. */
	return 1.0001 * pow(2, (double)rig_draw(1000) / 1000 * top);
}

/* Classes that differ in how often, how soon and how steadily they come back; some are never seen. */
static void
see_many(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t class = (uint32_t)rig_draw(SCOUT__CLASSES);
		bool touched = rig_draw(10) < class % 8;

		if (class % 7 == 3)
			continue;
		see(class, touched ? draw_age(2 + class % 5 * 2) : draw_age(11.9), rig_draw(4) > 0, false);
		if (touched)
			see(class, draw_age(2 + class % 5 * 2), true, true);
	}
}

START_LOOP_TEST(density_index_is_that_of_the_definition, 0, 10)
{
	rig_random = (uint64_t)_i;
	scout__density_init(&density);
	see_many(_i == 0 ? 0 : 30u << _i);
	learn_naively();
	learn();
	for (uint32_t class = 0; class < SCOUT__CLASSES; class ++)
		for (uint32_t k = 0; k < SCOUT__AGES; k++)
			ck_assert_msg(is_near(density.index[class][k], naive_index[class][k], 2e-3),
				      "class %u age %u: %g, and by definition %g", class, k,
				      (double)density.index[class][k], naive_index[class][k]);
}
END_TEST

START_TEST(density_index_never_falls_with_touches)
{
	scout__density_init(&density);
	/* One touch comes back always, more of them never. */
	for (uint32_t i = 0; i < 2000; i++) {
		see(0, 3, true, true);
		for (uint32_t class = 1; class < SCOUT__TOUCH_CLASSES; class ++)
			see(class, 3000, true, false);
	}
	learn();
	for (uint32_t class = 1; class < SCOUT__TOUCH_CLASSES; class ++)
		for (uint32_t k = 0; k < SCOUT__AGES; k++)
			ck_assert(density.index[class][k] >= density.index[class - 1][k]);
	/* Another kind is not held up by it. */
	ck_assert(density.index[SCOUT__TOUCH_CLASSES][5] < density.index[0][5]);
}
END_TEST

START_TEST(density_follows_a_change_of_the_load)
{
	scout__density_init(&density);
	for (uint32_t i = 0; i < 500; i++)
		see(4, 3, true, true);
	learn();
	n_seen = 0;
	/* What came back does not any more: after some relearnings it is worth next to nothing. */
	ck_assert(density.index[4][1] > 0.05f);
	for (uint32_t round = 0; round < 60; round++) {
		for (uint32_t i = 0; i < 200; i++)
			see(4, 3000, true, false);
		learn();
		n_seen = 0;
	}
	ck_assert(density.index[4][1] < 0.01f);
}
END_TEST

/* Counts that shrink for ever would end as floats that processors are slow with. */
START_TEST(density_forgets_a_class_that_comes_no_more)
{
	scout__density_init(&density);
	n_seen = 0;
	for (uint32_t i = 0; i < 500; i++)
		see(4, 3, true, true);
	for (uint32_t round = 0; round < 400; round++) {
		n_seen = 0;
		see(9, 5, true, true);
		learn();
	}
	ck_assert(!density.was_seen[4] && density.was_seen[9]);
	for (uint32_t k = 0; k < SCOUT__AGES; k++)
		ck_assert(density.counts[4].hits[k] == 0 && density.counts[4].ended[k] == 0);
	n_seen = 0;
}
END_TEST

START_TEST(density_keeps_what_it_knows_when_the_unit_changes)
{
	static struct scout__density before;

	rig_random = 5;
	scout__density_init(&density);
	see_many(3000);
	learn();
	before = density;
	/* Twice as long: what was 4 buckets further is here now, with twice the hits for each unit. */
	scout__density_rescale(&density, 4);
	for (uint32_t class = 0; class < SCOUT__CLASSES; class ++) {
		for (uint32_t k = 1; k + 5 < SCOUT__AGES; k++) {
			ck_assert(is_near(density.index[class][k], 2 * before.index[class][k + 4], 1e-5));
			ck_assert(is_near(density.counts[class].hits[k], before.counts[class].hits[k + 4], 1e-5));
			ck_assert(
				is_near(density.counts[class].within[k], before.counts[class].within[k + 4] / 2, 1e-5));
		}
	}
	scout__density_rescale(&density, -4);
	for (uint32_t class = 0; class < SCOUT__CLASSES; class ++)
		for (uint32_t k = 6; k + 5 < SCOUT__AGES; k++)
			ck_assert(is_near(density.index[class][k], before.index[class][k], 1e-5));
}
END_TEST
