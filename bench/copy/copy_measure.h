/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_BENCH_COPY_MEASURE_H
#define KVSCOUT_BENCH_COPY_MEASURE_H

#include "copy_gpu_world.h"

/* Measure one point of a world that is set up for it; fills all of @result but its status. */
void copy_measure_point(struct copy_world *w, const struct copy_point *point, struct copy_result *result);
/* ... with a kernel beside the copies (copy_beside.c). */
void copy_measure_beside(struct copy_world *w, const struct copy_point *point, struct copy_result *result);

/* Rounds that --repeat, --quick or neither ask for. */
unsigned int copy_rounds(const struct copy_options *opt);

#endif
