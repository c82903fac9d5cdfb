/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "l2.h"

/*
 * Stores in shared libraries, as the rooms above see them: plugin:///path/lib.so?options, and s3://bucket/prefix?options.
 * See plugin.c for its design.
 */

extern const struct scout__l2_adapter scout__l2_plugin;
extern const struct scout__l2_adapter scout__l2_s3;
