/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <stdint.h>
#include <stdio.h>

/* Bytes of this process that are its own and in memory. */
uint64_t anonymous_bytes(void);
