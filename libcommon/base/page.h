/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>
#include <unistd.h>

/* Bytes of a page of this machine: a power of two, 4,096 to 65,536. No system call. Any thread. */
static inline uint64_t
scout__page_bytes(void)
{
	return (uint64_t)sysconf(_SC_PAGESIZE);
}
