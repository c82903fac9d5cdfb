/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "copy_gpu.h"
#include "copy_plan.h"

/* What a run on a GPU has measured so far, and how it is reported. In the reporting process; main thread only. */

struct copy_report {
	const struct copy_options *opt;
	struct copy_gpu_info info;
	bool has_info;
	bool is_quiet;     /* standard output is for JSON */
	bool has_given_up; /* too many measuring processes failed */
	unsigned int n_points;
	struct copy_point points[COPY_MAX_POINTS];
	struct copy_result results[COPY_MAX_POINTS];
	uint64_t begin_us;
	FILE *lines; /* NULL: none */
};

/* One line on standard output, and one of JSON, flushed. */
void copy_report_begin(struct copy_report *report);
void copy_report_point(struct copy_report *report, unsigned int i);
/* The goals, on standard output and in all files. */
void copy_report_end(struct copy_report *report);
