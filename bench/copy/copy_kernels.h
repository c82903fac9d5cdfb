/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "copy_pattern.h"

/*
 * What the kernels of kvscout-copy and their launches (copy_cuda.c) agree on.
 *
 *   copy_flat        words [first, first + n) in plain memory; counters of wrong bytes lie in GPU memory and are added to
 *   copy_pages       words [first, end) of the items' pages
 */
#define COPY_DATA_THREADS 256u
#define COPY_DATA_BLOCKS 2048u
