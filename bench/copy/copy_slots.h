/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "copy_plan.h"

/*
 * Map a sealed memfd of at least @want bytes, as the pool's memory is. Returns NULL where the machine lacks the
 * memory, with a sentence in @text.
 */
uint8_t *copy_slots_map(enum copy_slots slots, uint64_t want, uint64_t *ret_bytes, char *text, size_t len);
void copy_slots_unmap(uint8_t *base, uint64_t bytes);
