/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: what copies cost a kernel that runs beside them, and what they achieve meanwhile.
 *
 * A load is enqueued in units (a matrix product, a pass over memory, one persistent kernel, a graph), so many that
 * they run for some 80 ms, with an event between any two: so each unit has a time of its own. In each round every way
 * has its turn: the load alone, the load with copies back to back beside it, and the copies alone for as long. A
 * unit's time is given by minimum, median and maximum; slower is the whole load beside copies against the mean of the
 * load alone before and after.
 *
 * Only copies that ended while the load ran count for its GB/s, so a copy that waits for the load to end shows as 0.
 * The bytes of the last copy are verified.
 */
#include "copy_measure.h"

#include <stdlib.h>

#include "clock.h"

#define MAX_UNITS 200u
#define MAX_ROUNDS 5u
#define PARTS 4u /* copies beside a load are shorter: they are counted whole */
#define HUNG_MS 20000u

struct copy_beside {
	struct copy_world *w;
	const struct copy_point *point;
	void *load, *stream;
	void *marks[MAX_UNITS + 1];
	unsigned int n_units;
	double unit_ms[MAX_UNITS]; /* of the last run */
};

static void
check(const struct copy_beside *b, int rc, const char *what)
{
	copy_check_cuda(b->w, rc, what);
}

static void
enqueue_load(struct copy_beside *b)
{
	const struct copy_gpu *gpu = b->w->gpu;

	check(b, gpu->api->event_record(b->marks[0], b->stream), "an event of the load");
	for (unsigned int i = 0; i < b->n_units; i++) {
		check(b, gpu->load_launch(b->load, b->stream), "launching the load");
		check(b, gpu->api->event_record(b->marks[i + 1], b->stream), "an event of the load");
	}
}

static bool
is_over(const struct copy_beside *b)
{
	int rc = b->w->gpu->api->event_query(b->marks[b->n_units]);

	if (rc == SCOUT__CUDA_NOT_READY)
		return false;
	check(b, rc, "the load");
	return true;
}

/* When it is over: the time of each unit, and of all. */
static double
read_times(struct copy_beside *b)
{
	float ms = 0;

	for (unsigned int i = 0; i < b->n_units; i++) {
		check(b, b->w->gpu->elapsed_ms(&ms, b->marks[i], b->marks[i + 1]), "the time of the load");
		b->unit_ms[i] = (double)ms;
	}
	check(b, b->w->gpu->elapsed_ms(&ms, b->marks[0], b->marks[b->n_units]), "the time of the load");
	return (double)ms;
}

static void
give_up(struct copy_beside *b)
{
	b->w->gpu->load_stop(b->load);
	copy_die(EXIT_WRONG, "the load did not end in %u s", HUNG_MS / 1000);
}

static double
run_alone(struct copy_beside *b)
{
	uint64_t until_us = scout__now_us() + HUNG_MS * UINT64_C(1000);

	enqueue_load(b);
	while (!is_over(b))
		if (scout__now_us() > until_us)
			give_up(b);
	return read_times(b);
}

/* Copies beside the load. Returns its milliseconds, and the GB/s of what was copied while it ran. */
static double
run_beside(struct copy_beside *b, unsigned int way, double *ret_gbps)
{
	uint64_t begin_ns, end_ns, bytes = 0, more, until_us = scout__now_us() + HUNG_MS * UINT64_C(1000);

	enqueue_load(b);
	begin_ns = scout__now_ns();
	end_ns = begin_ns;
	for (;;) {
		more = copy_world_copy(b->w, way, b->point->course, false);
		if (is_over(b))
			break;
		bytes += more;
		end_ns = scout__now_ns();
		if (scout__now_us() > until_us)
			give_up(b);
	}
	*ret_gbps = end_ns > begin_ns ? (double)bytes / (double)(end_ns - begin_ns) : 0;
	return read_times(b);
}

/* The same copies without the load. */
static double
copy_alone(struct copy_beside *b, unsigned int way)
{
	uint64_t begin_ns = scout__now_ns(), now_ns = begin_ns, bytes = 0;

	while ((double)(now_ns - begin_ns) < b->w->load_size.window_ms * 1e6 / 4 || bytes == 0) {
		bytes += copy_world_copy(b->w, way, b->point->course, false);
		now_ns = scout__now_ns();
		now_ns += now_ns == begin_ns;
	}
	return (double)bytes / (double)(now_ns - begin_ns);
}

struct beside_samples {
	double gbps[MAX_ROUNDS], ratio[MAX_ROUNDS], slower[MAX_ROUNDS];
	double alone_ms[COPY_MAX_REPEAT], beside_ms[COPY_MAX_REPEAT];
	unsigned int n, n_alone, n_beside;
};

static void
keep_units(const struct copy_beside *b, double *values, unsigned int *n)
{
	for (unsigned int i = 0; i < b->n_units && *n < COPY_MAX_REPEAT; i++)
		values[(*n)++] = b->unit_ms[i];
}

static void
run_way(struct copy_beside *b, unsigned int way, struct beside_samples *s, struct copy_result *result)
{
	double before, beside, after, gbps;

	copy_world_prepare(b->w, way, b->point->course);
	before = run_alone(b);
	keep_units(b, s->alone_ms, &s->n_alone);
	beside = run_beside(b, way, &gbps);
	keep_units(b, s->beside_ms, &s->n_beside);
	/* In the rounds that copied nothing while the load ran, too: the last copy has ended. */
	result->wrong_bytes += copy_world_verify(b->w, way, b->point->course, s->n == 0);
	result->verified_bytes += copy_world_bytes(b->w, b->point->course);
	after = run_alone(b);
	keep_units(b, s->alone_ms, &s->n_alone);
	s->gbps[s->n] = gbps;
	s->ratio[s->n] = gbps / copy_alone(b, way);
	s->slower[s->n] = (beside / ((before + after) / 2) - 1) * 100;
	s->n++;
}

static void
begin(struct copy_beside *b)
{
	const struct copy_gpu *gpu = b->w->gpu;
	double ms;

	b->stream = b->w->work;
	for (unsigned int i = 0; i <= MAX_UNITS; i++)
		check(b, gpu->timer_new(&b->marks[i]), "an event");
	check(b, gpu->load_new(b->point->load, &b->w->load_size, b->stream, &b->load), "making the load");
	for (unsigned int way = 0; way < COPY_N_WAYS; way++)
		if (copy_is_wanted(b->w->opt, b->point, way))
			(void)copy_world_copy(b->w, way, b->point->course, false);
	b->n_units = 1;
	(void)run_alone(b); /* loads the kernel */
	/* Twice: the first window raises the clocks of an idle GPU. */
	for (unsigned int pass = 0; pass < 2; pass++) {
		ms = run_alone(b) / b->n_units;
		b->n_units = ms > b->w->load_size.window_ms / MAX_UNITS ? (unsigned int)(b->w->load_size.window_ms / ms)
									: MAX_UNITS;
		b->n_units = b->n_units < 1 ? 1 : b->n_units;
	}
	(void)run_alone(b);
}

static void
end(struct copy_beside *b)
{
	for (unsigned int i = 0; i <= MAX_UNITS; i++)
		b->w->gpu->api->event_free(b->marks[i]);
	b->w->gpu->load_free(b->load);
}

static void
summarize(const struct beside_samples *s, struct copy_way_result *got)
{
	got->ran = s->n > 0;
	got->n = s->n;
	if (!got->ran)
		return;
	got->gbps = spread_of(s->gbps, s->n);
	got->ratio = spread_of(s->ratio, s->n);
	got->slower = spread_of(s->slower, s->n);
	got->alone_ms = spread_of(s->alone_ms, s->n_alone);
	got->beside_ms = spread_of(s->beside_ms, s->n_beside);
}

void
copy_measure_beside(struct copy_world *w, const struct copy_point *point, struct copy_result *result)
{
	static struct beside_samples samples[COPY_N_WAYS];
	static struct copy_beside b;
	unsigned int rounds = copy_rounds(w->opt);

	b = (struct copy_beside){.w = w, .point = point};
	for (unsigned int way = 0; way < COPY_N_WAYS; way++)
		samples[way] = (struct beside_samples){.n = 0};
	w->part = PARTS;
	begin(&b);
	for (unsigned int round = 0; round < rounds && round < MAX_ROUNDS; round++) {
		for (unsigned int k = 0; k < COPY_N_WAYS; k++) {
			unsigned int way = (k + round) % COPY_N_WAYS;

			if (copy_is_wanted(w->opt, point, way))
				run_way(&b, way, &samples[way], result);
		}
	}
	end(&b);
	w->part = 1;
	for (unsigned int way = 0; way < COPY_N_WAYS; way++)
		summarize(&samples[way], &result->ways[way]);
}
