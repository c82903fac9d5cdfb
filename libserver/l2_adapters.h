/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "l2.h"

/*
 * The adapters of L2 in this build, up to a NULL: the server's start hands them to scout__l2_new(), which knows none by itself.
 * The object file of l2_adapters.c defines nothing else, so a program that links the server's archive and defines this
 * array itself runs the server on its own adapters. Tests do. l2.h lists what a new adapter needs.
 */
extern const struct scout__l2_adapter *const scout__l2_adapters[];
