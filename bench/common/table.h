/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/* Numbers as a person reads them. The text of a call lives in @buf. */
#define TABLE_TEXT 32

/* "850 ns", "12.3 us", "1.24 ms", "2.50 s" */
const char *table_ns(uint64_t ns, char buf[TABLE_TEXT]);
/* "12 B", "4.1 KiB", "1.25 GiB" */
const char *table_bytes(uint64_t bytes, char buf[TABLE_TEXT]);
