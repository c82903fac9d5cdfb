/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * What a number depends on: the build and the machine. Nothing here fails: what cannot be found out is "unknown",
 * because a measurement without it is still a measurement.
 */

#define MACHINE_TEXT 256

/* Returns @buf. */
const char *machine_cpu(char buf[MACHINE_TEXT]);
const char *machine_kernel(char buf[MACHINE_TEXT]);
/* "2026-11-22T15:34:29Z" */
const char *machine_time(char buf[MACHINE_TEXT]);
const char *machine_revision(void);
const char *machine_build_type(void);
