/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "copy_gpu_world.h"

/* Measure one point of a world that is set up for it; fills all of @result but its status. */
void copy_measure_point(struct copy_world *w, const struct copy_point *point, struct copy_result *result);

/* Rounds that --repeat, --quick or neither ask for. */
unsigned int copy_rounds(const struct copy_options *opt);
