/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: what a GPU has to show, judged from the results.
 *
 * Pieces of 2 KiB and more move at 95 % of one contiguous copy of the same bytes in the same round, by the median of the
 * rounds. A point with wrong bytes fails.
 */
#include <stdio.h>

#include "copy_plan.h"

enum copy_verdict
copy_judge(const struct copy_point *point, const struct copy_result *result, enum copy_way way)
{
	const struct copy_way_result *got = &result->ways[way];

	if (result->status == COPY_FAILED || (result->status == COPY_MEASURED && result->wrong_bytes > 0))
		return COPY_FAIL;
	if (point->piece_bytes < COPY_GOAL_PIECE)
		return COPY_NO_GOAL;
	if (result->status != COPY_MEASURED || !got->ran)
		return COPY_INCOMPLETE;
	return got->ratio.p50 >= COPY_GOAL_RATIO ? COPY_PASS : COPY_FAIL;
}

static const struct {
	const char *name;
	struct copy_point like;
} table[] = {
	{"h2d", {.course = COPY_H2D, .groups = 1}},
	{"d2h", {.course = COPY_D2H, .groups = 1}},
	{"both ways at once", {.course = COPY_BOTH, .groups = 1}},
	{"h2d, layer by layer", {.course = COPY_H2D, .groups = 1, .layered = true}},
	{"d2h, layer by layer", {.course = COPY_D2H, .groups = 1, .layered = true}},
	{"both ways at once, layer by layer", {.course = COPY_BOTH, .groups = 1, .layered = true}},
	{"slots in huge pages", {.slots = COPY_HUGE, .groups = 1}},
	{"slots spread over 16 GiB", {.slots = COPY_WIDE, .groups = 1}},
	{"several groups", {.groups = 2}},
};

/* Whether a point belongs to row @i of the table. */
static bool
belongs(unsigned int i, const struct copy_point *point)
{
	const struct copy_point *like = &table[i].like;

	if (point->piece_bytes < COPY_GOAL_PIECE)
		return false;
	if (like->groups > 1 || point->groups > 1)
		return like->groups > 1 && point->groups > 1;
	if (point->slots != like->slots)
		return false;
	return like->slots != COPY_MEMFD || (point->course == like->course && point->layered == like->layered);
}

static void
note_worst(struct copy_goal *goal, const struct copy_point *point, const struct copy_way_result *got)
{
	if (goal->worst_piece != 0 && got->ratio.p50 >= goal->worst)
		return;
	goal->worst = got->ratio.p50;
	goal->worst_piece = point->piece_bytes;
}

static void
judge_row(unsigned int row, const struct copy_point *points, const struct copy_result *results, unsigned int n_points,
	  enum copy_way way, struct copy_goal *goal)
{
	bool any_failed = false;

	*goal = (struct copy_goal){.name = table[row].name};
	for (unsigned int i = 0; i < n_points; i++) {
		if (!belongs(row, &points[i]))
			continue;
		goal->n_points++;
		any_failed |= copy_judge(&points[i], &results[i], way) == COPY_FAIL;
		if (results[i].status != COPY_MEASURED || !results[i].ways[way].ran)
			continue;
		goal->n_measured++;
		note_worst(goal, &points[i], &results[i].ways[way]);
	}
	goal->verdict = goal->n_measured == goal->n_points ? COPY_PASS : COPY_INCOMPLETE;
	if (any_failed)
		goal->verdict = COPY_FAIL;
}

unsigned int
copy_goals(const struct copy_point *points, const struct copy_result *results, unsigned int n_points, enum copy_way way,
	   struct copy_goal goals[COPY_MAX_GOALS])
{
	unsigned int n = 0;

	_Static_assert(sizeof(table) / sizeof(table[0]) <= COPY_MAX_GOALS, "room for all goals");
	for (unsigned int row = 0; row < sizeof(table) / sizeof(table[0]); row++) {
		judge_row(row, points, results, n_points, way, &goals[n]);
		if (goals[n].n_points > 0)
			n++;
	}
	return n;
}

const char *
copy_verdict_name(enum copy_verdict verdict)
{
	static const char *const names[] = {"-", "PASS", "FAIL", "INCOMPLETE"};

	return names[verdict];
}

void
copy_goal_text(const struct copy_goal *goal, char *buf, size_t len)
{
	char size[32];

	buf[0] = 0;
	if (goal->worst_piece == 0)
		return;
	copy_size_text(size, sizeof(size), goal->worst_piece);
	(void)snprintf(buf, len, "%.1f %% at %s", goal->worst * 100, size);
}
