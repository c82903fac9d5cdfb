/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* What single threads of this process cost. Any thread. */

/* The thread whose name begins so (of several, any one); 0: none. */
int thread_cpu_find(const char *name);
/* How long it has run; UINT64_MAX: that cannot be read. */
uint64_t thread_cpu_ns(int tid);
