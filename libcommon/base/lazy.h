/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * Memory for tables and rings that are as large as a limit allows and mostly stay empty: zeros, and a page costs nothing
 * until it is touched. Never in huge pages, for then the first touch of a table would cost 2 MiB.
 *
 * Any thread. scout__lazy_free() is given the size that scout__lazy_alloc() was given; NULL is ignored. It also frees other mappings.
 */
void *scout__lazy_alloc(size_t bytes); /* page-aligned; NULL: out of memory, or bytes is 0 */
void scout__lazy_free(void *memory, size_t bytes);
