/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "copy_tool.h"

/*
 * What kvscout-copy measures on a GPU: the points in the order of their importance, the result of each, and the goals
 * that they answer. Plain data and pure functions; no CUDA.
 */

enum copy_way {
	COPY_CONTIGUOUS,
	COPY_STAGED,
	COPY_BATCH,
	COPY_AUTO,
	COPY_N_WAYS
};

enum copy_course {
	COPY_H2D,
	COPY_D2H,
	COPY_BOTH,
	COPY_N_COURSES
};

/* What the slots lie in: sealed memfds, of pages of 4 KiB or 2 MiB, or spread over a large one. */
enum copy_slots {
	COPY_MEMFD,
	COPY_HUGE,
	COPY_WIDE,
	COPY_N_SLOTS
};

#define COPY_MAX_POINTS 256u

struct copy_point {
	uint64_t piece_bytes; /* of the first group */
	enum copy_course course;
	enum copy_slots slots;
	uint32_t groups;
	bool layered;
	bool only_auto;  /* by plan: other memory, groups */
	bool is_reduced; /* the other methods are left out, because one of them broke the point */
};

struct copy_way_result {
	bool ran;
	uint32_t n; /* rounds */
	struct spread gbps;
	struct spread ratio; /* to contiguous in the same round */
};

enum copy_status {
	COPY_NOT_MEASURED = 0, /* no time was left, or it was not reached */
	COPY_MEASURED,
	COPY_UNAVAILABLE, /* the machine lacks something: text */
	COPY_FAILED       /* text */
};

struct copy_result {
	enum copy_status status;
	char text[200];
	uint64_t total_bytes; /* of one copy */
	uint64_t pool_bytes;  /* that the pages are spread over */
	uint64_t slot_region_bytes;
	uint64_t verified_bytes, wrong_bytes;
	struct copy_way_result ways[COPY_N_WAYS];
};

enum copy_verdict {
	COPY_NO_GOAL = 0, /* the point is measured for information */
	COPY_PASS,
	COPY_FAIL,
	COPY_INCOMPLETE /* of a goal: nothing failed, but not all of its points are measured */
};

struct copy_goal {
	const char *name;
	enum copy_verdict verdict;
	unsigned int n_measured, n_points;
	double worst;         /* ratio; of the measured ones */
	uint64_t worst_piece; /* where; 0: nothing measured */
};

#define COPY_MAX_GOALS 16u
#define COPY_GOAL_PIECE 2048u /* the goals are for pieces of at least so many bytes */
#define COPY_GOAL_RATIO 0.95

extern const char *const copy_way_names[COPY_N_WAYS];
extern const char *const copy_course_names[COPY_N_COURSES];
extern const char *const copy_slots_names[COPY_N_SLOTS];

/* Fill @points, most important first; points of one layout stand together. Returns their number. */
unsigned int copy_plan(const struct copy_options *opt, struct copy_point points[COPY_MAX_POINTS]);
/* Whether two points need the same engines and slots. */
bool copy_same_setup(const struct copy_point *a, const struct copy_point *b);
/* Whether a way is measured at a point. */
bool copy_is_wanted(const struct copy_options *opt, const struct copy_point *point, unsigned int way);
/* The way that the goals are for: auto, or the one that --method names. */
enum copy_way copy_goal_way(const struct copy_options *opt);

/* How a measured point answers its goal. */
enum copy_verdict copy_judge(const struct copy_point *point, const struct copy_result *result, enum copy_way way);
const char *copy_verdict_name(enum copy_verdict verdict);
/* All goals that have points. Returns their number. */
unsigned int copy_goals(const struct copy_point *points, const struct copy_result *results, unsigned int n_points,
			enum copy_way way, struct copy_goal goals[COPY_MAX_GOALS]);
/* "93.1 % at 4 KiB", "" */
void copy_goal_text(const struct copy_goal *goal, char *buf, size_t len);
/* "layers", "4 groups", "huge pages", "" */
void copy_extras_text(const struct copy_point *point, char *buf, size_t len);
