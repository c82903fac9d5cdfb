/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * @p has @old mapped bytes, and gets @bytes: those that are new are zero and cost nothing until touched. Whole pages move by
 * their page tables, without a copy. @old 0: a new array. Returns where it is now, or NULL, then @p is as before; making it
 * smaller does not fail. munmap() frees it. Any thread.
 */
void *scout__grow_array(void *p, uint64_t old, uint64_t bytes);
