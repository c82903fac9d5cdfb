/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L2_PLUGIN_H
#define SCOUT_L2_PLUGIN_H

#include "l2.h"

/* Stores in shared libraries, as the rooms above see them: plugin:///path/lib.so?options. See plugin.c for its design. */

extern const struct scout__l2_adapter scout__l2_plugin;

#endif
