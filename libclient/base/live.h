/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_BASE_LIVE_H
#define SCOUT_BASE_LIVE_H

#include <stdbool.h>

/*
 * The objects that were made and not freed yet, so that freeing one twice does nothing the second time, also when two threads do
 * it at once. A member of the object; its address is all that is compared, so a pointer that is no longer good may be
 * asked for. Any thread; a forked child has its own copy of the list.
 */
struct scout__live {
	struct scout__live *next; /* G: the list's lock */
};

void scout__live_add(struct scout__live *node);
/* True for exactly one caller after each _add(): it may free the object. */
bool scout__live_take(const struct scout__live *node);

#endif
