/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: which points are measured, and in which order.
 *
 * A GPU may be there for minutes only, so what matters most comes first: the usual pieces in each direction, then
 * copies by layers, other memory and groups, then the rest of the sizes.
 * Points that share a layout stand together, because a new layout opens the engines anew and pins their slots.
 */
#include <stdio.h>
#include <string.h>

#include "copy_plan.h"

const char *const copy_way_names[COPY_N_WAYS] = {"contiguous", "staged", "batch", "auto"};
const char *const copy_course_names[COPY_N_COURSES] = {"h2d", "d2h", "both"};
const char *const copy_slots_names[COPY_N_SLOTS] = {"memfd", "huge pages", "memfd of 16 GiB"};

/* Above this a slot has one or two planes: no layers to speak of. */
#define LARGEST_LAYERED (256u << 10)

struct plan_builder {
	const struct copy_options *opt;
	struct copy_point *points;
	unsigned int n;
};

static bool
is_planned(const struct plan_builder *plan, const struct copy_point *point)
{
	for (unsigned int i = 0; i < plan->n; i++)
		if (copy_same_setup(&plan->points[i], point) && plan->points[i].course == point->course &&
		    plan->points[i].layered == point->layered)
			return true;
	return false;
}

static void
add(struct plan_builder *plan, struct copy_point point)
{
	const struct copy_options *opt = plan->opt;

	if (opt->has_piece_bytes && !opt->sweep)
		point.piece_bytes = opt->piece_bytes;
	if (opt->groups && point.groups == 1)
		point.groups = (uint32_t)opt->groups;
	if (strcmp(opt->direction, "both") != 0 && strcmp(opt->direction, copy_course_names[point.course]) != 0)
		return;
	if (point.layered && point.piece_bytes > LARGEST_LAYERED)
		return;
	if (plan->n < COPY_MAX_POINTS && !is_planned(plan, &point))
		plan->points[plan->n++] = point;
}

static void
add_courses(struct plan_builder *plan, struct copy_point point)
{
	for (unsigned int course = 0; course < COPY_N_COURSES; course++) {
		point.course = (enum copy_course)course;
		add(plan, point);
	}
}

/* Everything about one piece size in the usual memory. */
static void
add_size(struct plan_builder *plan, uint64_t piece, bool layers)
{
	struct copy_point point = {.piece_bytes = piece, .groups = 1};

	add_courses(plan, point);
	point.layered = true;
	if (layers)
		add_courses(plan, point);
}

unsigned int
copy_plan(const struct copy_options *opt, struct copy_point points[COPY_MAX_POINTS])
{
	struct plan_builder plan = {.opt = opt, .points = points};
	struct copy_point special = {.piece_bytes = 16 << 10, .only_auto = true, .groups = 1};

	if (!opt->sweep) {
		add_size(&plan, opt->piece_bytes, true);
		return plan.n;
	}
	add_size(&plan, 16 << 10, true);
	add_size(&plan, 2 << 10, true);
	add_size(&plan, 64 << 10, true);
	special.slots = COPY_HUGE;
	add_courses(&plan, special);
	special.slots = COPY_MEMFD;
	special.groups = COPY_MAX_GROUPS;
	add_courses(&plan, special);
	add_size(&plan, 4 << 10, true);
	add_size(&plan, 2 << 20, false);
	special.slots = COPY_WIDE;
	special.groups = 1;
	if (!opt->quick)
		add_courses(&plan, special);
	for (uint64_t piece = COPY_GOAL_PIECE; piece <= COPY_LARGEST_PIECE; piece *= 2)
		add_size(&plan, piece, !opt->quick);
	/* No goal is for these, and some methods take long. */
	for (uint64_t piece = COPY_SMALLEST_PIECE; piece < COPY_GOAL_PIECE; piece *= 2)
		add_size(&plan, piece, false);
	return plan.n;
}

bool
copy_same_setup(const struct copy_point *a, const struct copy_point *b)
{
	return a->piece_bytes == b->piece_bytes && a->slots == b->slots && a->groups == b->groups &&
	       a->only_auto == b->only_auto && a->is_reduced == b->is_reduced;
}

enum copy_way
copy_goal_way(const struct copy_options *opt)
{
	for (unsigned int w = COPY_STAGED; w < COPY_N_WAYS; w++)
		if (opt->has_method && strcmp(opt->method, copy_way_names[w]) == 0)
			return (enum copy_way)w;
	return COPY_AUTO;
}

bool
copy_is_wanted(const struct copy_options *opt, const struct copy_point *point, unsigned int way)
{
	if (way == COPY_CONTIGUOUS || way == (unsigned int)copy_goal_way(opt))
		return true;
	return !opt->has_method && !point->only_auto && !point->is_reduced;
}

void
copy_extras_text(const struct copy_point *point, char *buf, size_t len)
{
	char groups[32] = "";

	if (point->groups > 1)
		(void)snprintf(groups, sizeof(groups), ", %u groups", point->groups);
	(void)snprintf(buf, len, "%s%s%s%s", point->layered ? ", by layers" : "", groups,
		       point->slots == COPY_MEMFD ? "" : ", ",
		       point->slots == COPY_MEMFD ? "" : copy_slots_names[point->slots]);
}
