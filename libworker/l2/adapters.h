/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L2_ADAPTERS_H
#define SCOUT_L2_ADAPTERS_H

#include "l2.h"

/*
 * What there is, up to a NULL. It has an object file of its own (adapters.c) that defines nothing else: a program that is
 * linked from the archives and defines it itself has its own table instead, which is how tests put theirs in.
 */
extern const struct scout__l2_adapter *const scout__l2_adapters[];

#endif
