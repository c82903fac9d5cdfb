/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "msg.h"

/* A frame in a heap block of exactly its size, to be changed. */

/* A frame in a block of its own. */
struct frame {
	uint8_t *bytes;
	size_t len;
};

/* The first @keep bytes of @golden, then @extra zeroes. */
struct frame copy_of(const uint8_t *golden, size_t keep, size_t extra);
void set(struct frame *f, size_t offset, unsigned width, uint64_t value);
