/* SPDX-License-Identifier: Apache-2.0 */
/* What kvscout-copy plans to measure on a GPU, and how it judges what it has measured. */
#include <string.h>

#include "copy_plan.h"
#include "check_main.h"

static struct copy_point points[COPY_MAX_POINTS];
static struct copy_result results[COPY_MAX_POINTS];
static struct copy_goal goals[COPY_MAX_GOALS];

static struct copy_options
sweep(void)
{
	return (struct copy_options){.direction = "both", .method = "memcpy", .sweep = true};
}

/* A result of method auto. */
static struct copy_result
measured(double ratio)
{
	struct copy_result result = {.status = COPY_MEASURED};

	result.ways[COPY_AUTO].ran = true;
	result.ways[COPY_AUTO].ratio.p50 = ratio;
	return result;
}

static enum copy_verdict
judged(uint64_t piece, struct copy_result result)
{
	struct copy_point point = {.piece_bytes = piece, .groups = 1};

	return copy_judge(&point, &result, COPY_AUTO);
}

START_TEST(a_copy_passes_at_95_percent)
{
	ck_assert_int_eq(judged(4096, measured(0.95)), COPY_PASS);
	ck_assert_int_eq(judged(4096, measured(0.9499)), COPY_FAIL);
	ck_assert_int_eq(judged(2048, measured(1.2)), COPY_PASS);
	/* Smaller pieces are measured for information. */
	ck_assert_int_eq(judged(1024, measured(0.3)), COPY_NO_GOAL);
}
END_TEST

START_TEST(what_failed_or_is_wrong_fails_at_any_size)
{
	struct copy_result result = measured(1);

	result.wrong_bytes = 1;
	ck_assert_int_eq(judged(256, result), COPY_FAIL);
	ck_assert_int_eq(judged(4096, result), COPY_FAIL);
	result = (struct copy_result){.status = COPY_FAILED};
	ck_assert_int_eq(judged(4096, result), COPY_FAIL);
	result.status = COPY_UNAVAILABLE;
	ck_assert_int_eq(judged(4096, result), COPY_INCOMPLETE);
	result.status = COPY_NOT_MEASURED;
	ck_assert_int_eq(judged(4096, result), COPY_INCOMPLETE);
}
END_TEST

/* The goal of that name. */
static const struct copy_goal *
goal_of(unsigned int n, const char *name)
{
	for (unsigned int i = 0; i < n; i++)
		if (strcmp(goals[i].name, name) == 0)
			return &goals[i];
	ck_abort_msg("no goal %s", name);
}

START_TEST(a_goal_is_as_good_as_its_worst_point)
{
	struct copy_options opt = sweep();
	unsigned int n_points = copy_plan(&opt, points), n;

	for (unsigned int i = 0; i < n_points; i++)
		results[i] = measured(points[i].piece_bytes == 8192 && points[i].course == COPY_D2H ? 0.9 : 0.97);
	n = copy_goals(points, results, n_points, COPY_AUTO, goals);
	ck_assert_uint_eq(n, 9);
	ck_assert_int_eq(goal_of(n, "h2d")->verdict, COPY_PASS);
	ck_assert_int_eq(goal_of(n, "d2h")->verdict, COPY_FAIL);
	ck_assert_uint_eq(goal_of(n, "d2h")->worst_piece, 8192);
	ck_assert_double_eq(goal_of(n, "d2h")->worst, 0.9);
	/* 2 KiB to 2 MiB. */
	ck_assert_uint_eq(goal_of(n, "h2d")->n_points, 11);
	ck_assert_uint_eq(goal_of(n, "h2d")->n_measured, 11);
}
END_TEST

START_TEST(a_goal_without_all_of_its_points_is_incomplete)
{
	struct copy_options opt = sweep();
	unsigned int n_points = copy_plan(&opt, points), n;

	for (unsigned int i = 0; i < n_points; i++)
		results[i] = i < 3 ? measured(0.97) : (struct copy_result){.status = COPY_NOT_MEASURED};
	n = copy_goals(points, results, n_points, COPY_AUTO, goals);
	for (unsigned int i = 0; i < n; i++)
		ck_assert_int_eq(goals[i].verdict, COPY_INCOMPLETE);
	ck_assert_uint_eq(goal_of(n, "h2d")->n_measured, 1);
	/* One that failed fails the goal, whatever is missing. */
	results[0] = (struct copy_result){.status = COPY_FAILED};
	n = copy_goals(points, results, n_points, COPY_AUTO, goals);
	ck_assert_int_eq(goal_of(n, "h2d")->verdict, COPY_FAIL);
}
END_TEST

START_TEST(a_sweep_measures_every_size_once_and_what_matters_first)
{
	struct copy_options opt = sweep();
	unsigned int n = copy_plan(&opt, points), n_plain = 0;

	ck_assert_uint_lt(n, COPY_MAX_POINTS);
	ck_assert_uint_eq(points[0].piece_bytes, 16384);
	for (unsigned int i = 0; i < n; i++) {
		n_plain += !points[i].layered && !points[i].only_auto;
		for (unsigned int k = 0; k < i; k++)
			ck_assert(!copy_same_setup(&points[i], &points[k]) || points[i].course != points[k].course ||
				  points[i].layered != points[k].layered);
		/* The goal's own sizes come before the smaller ones. */
		ck_assert(i > 30 || points[i].piece_bytes >= COPY_GOAL_PIECE);
	}
	ck_assert_uint_eq(n_plain, 14 * 3);
	opt.quick = true;
	ck_assert_uint_lt(copy_plan(&opt, points), n);
}
END_TEST

START_TEST(options_narrow_the_plan)
{
	struct copy_options opt = sweep();
	unsigned int n;

	opt.direction = "d2h";
	n = copy_plan(&opt, points);
	for (unsigned int i = 0; i < n; i++)
		ck_assert_int_eq(points[i].course, COPY_D2H);
	opt = (struct copy_options){.direction = "both",
				    .method = "batch",
				    .has_method = true,
				    .piece_bytes = 1000,
				    .has_piece_bytes = true};
	opt.groups = 3;
	n = copy_plan(&opt, points);
	ck_assert_uint_eq(n, 6);
	for (unsigned int i = 0; i < n; i++) {
		ck_assert_uint_eq(points[i].piece_bytes, 1000);
		ck_assert_uint_eq(points[i].groups, 3);
		ck_assert(copy_is_wanted(&opt, &points[i], COPY_CONTIGUOUS));
		ck_assert(copy_is_wanted(&opt, &points[i], COPY_BATCH));
		ck_assert(!copy_is_wanted(&opt, &points[i], COPY_AUTO));
	}
	ck_assert_int_eq(copy_goal_way(&opt), COPY_BATCH);
}
END_TEST
