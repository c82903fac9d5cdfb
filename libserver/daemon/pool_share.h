/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "memory.h"

/*
 * The pool of a server that an engine started, if no key sets its size: the smaller of 25 % of the available memory and
 * 50 % of what the cgroup leaves, and at least POOL_SHARE_MIN. @text receives a sentence that says which size and why.
 */
#define SCOUT__POOL_SHARE_MIN (UINT64_C(64) << 20)

uint64_t scout__pool_share(const struct scout__memory *memory, char *text, size_t len);
