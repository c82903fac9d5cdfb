/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: one point of the sweep. All ways take turns within each round, in an order that
 * rotates, so that what else goes on in the machine meets all of them alike; ratios are taken within a round. The
 * first round warms up and does not count, but for a way that is very slow: it has its turn once or twice.
 */
#include "copy_measure.h"

#include "clock.h"

#define SLOW_NS UINT64_C(1500000000) /* what one way may take at one point before it sits rounds out */

unsigned int
copy_rounds(const struct copy_options *opt)
{
	if (opt->has_repeat)
		return (unsigned int)opt->repeat;
	return opt->quick ? 3 : 5;
}

struct copy_rounds {
	double gbps[COPY_N_WAYS][COPY_MAX_REPEAT];
	double ratio[COPY_N_WAYS][COPY_MAX_REPEAT];
	unsigned int n[COPY_N_WAYS];
	uint64_t spent_ns[COPY_N_WAYS];
};

/* GB/s */
static double
run_one(struct copy_world *w, unsigned int way, const struct copy_point *point, bool by_cpu, uint64_t *spent_ns,
	struct copy_result *result)
{
	uint64_t begin_ns, end_ns, bytes;

	copy_world_prepare(w, way, point->course);
	begin_ns = scout__now_ns();
	bytes = copy_world_copy(w, way, point->course, point->layered);
	end_ns = scout__now_ns();
	end_ns += end_ns == begin_ns;
	*spent_ns += end_ns - begin_ns;
	result->wrong_bytes += copy_world_verify(w, way, point->course, by_cpu);
	result->verified_bytes += bytes;
	return (double)bytes / (double)(end_ns - begin_ns);
}

static void
run_round(struct copy_world *w, const struct copy_point *point, unsigned int round, struct copy_rounds *rounds,
	  struct copy_result *result)
{
	double gbps[COPY_N_WAYS] = {0};

	for (unsigned int k = 0; k < COPY_N_WAYS; k++) {
		unsigned int way = (k + round) % COPY_N_WAYS;

		if (!copy_is_wanted(w->opt, point, way) || (rounds->n[way] > 0 && rounds->spent_ns[way] > SLOW_NS))
			continue;
		gbps[way] = run_one(w, way, point, round == 0, &rounds->spent_ns[way], result);
	}
	for (unsigned int way = 0; way < COPY_N_WAYS; way++) {
		unsigned int n = rounds->n[way];

		if (gbps[way] <= 0 || (round == 0 && rounds->spent_ns[way] <= SLOW_NS))
			continue;
		rounds->gbps[way][n] = gbps[way];
		rounds->ratio[way][n] = gbps[way] / gbps[COPY_CONTIGUOUS];
		rounds->n[way]++;
	}
}

void
copy_measure_point(struct copy_world *w, const struct copy_point *point, struct copy_result *result)
{
	static struct copy_rounds rounds;

	rounds = (struct copy_rounds){.n = {0}};
	for (unsigned int round = 0; round <= copy_rounds(w->opt); round++)
		run_round(w, point, round, &rounds, result);
	for (unsigned int way = 0; way < COPY_N_WAYS; way++) {
		struct copy_way_result *got = &result->ways[way];

		got->n = rounds.n[way];
		got->ran = got->n > 0;
		if (!got->ran)
			continue;
		got->gbps = spread_of(rounds.gbps[way], got->n);
		got->ratio = spread_of(rounds.ratio[way], got->n);
	}
}
