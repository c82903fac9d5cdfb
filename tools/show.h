/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Numbers as people read them. The texts lie in @buf, which the functions return. Any thread. */

#define SHOWN 64
#define SHOW_LONG 4096u /* a URL or a name that need not be cut */

/* "12.3 GiB", "512 bytes" */
const char *show_bytes(char buf[SHOWN], double bytes);
/* "1,234,567" */
const char *show_count(char buf[SHOWN], uint64_t n);
/* "1,234/s", "0.4/s" */
const char *show_rate(char buf[SHOWN], double n, double seconds);
/* "12.5 %" of @whole; "-" when @whole is 0 */
const char *show_percent(char buf[SHOWN], double part, double whole);
/* "3 d 4 h", "12 min 5 s", "350 ms" */
const char *show_time(char buf[SHOWN], uint64_t ms);
/* "25 us", "2.5 ms", "10 s" */
const char *show_us(char buf[SHOWN], uint32_t us);
/* What @of_80 columns are on this terminal, of which a wider one has more; SHOW_LONG where standard output is none. */
unsigned show_width(unsigned of_80);
/*
 * What peers chose, unprintable bytes replaced. A name of more than @width characters loses its middle: what tells two
 * engines of one model apart is at its end.
 */
const char *show_name(char *buf, size_t len, const char *name, unsigned width);
