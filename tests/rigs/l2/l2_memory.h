/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "l2.h"

/*
 * An L2 in memory, for tests of the server: "memory://NAME". Its objects belong to the process and outlive the server,
 * as those of a disk do. One thread executes operations in their order; a test may stop it at any kind of operation,
 * have operations fail, and hide objects, as a store does whose other writers are late. Any thread may call these.
 *
 * A program that is linked with it has this adapter beside the real ones.
 */

struct l2_memory;

struct l2_memory *l2_memory(const char *name);

/* Operations of this kind are taken and not ended, until they are resumed. */
void l2_memory_pause(struct l2_memory *m, enum scout__l2_what what);
void l2_memory_resume(struct l2_memory *m, enum scout__l2_what what);
/* The next @n of this kind end like that. A LOAD that fails has scribbled over half of the slot. */
void l2_memory_fail(struct l2_memory *m, enum scout__l2_what what, unsigned n, enum scout__l2_result result);
/* Operations of this kind take so long each, one after the other, and move all the while. 0: no time. */
void l2_memory_slow(struct l2_memory *m, enum scout__l2_what what, unsigned ms);
/* From now on it does not stop: what is paused stays with it for ever. */
void l2_memory_hang(struct l2_memory *m);

/* How many of this kind were given to it. */
unsigned l2_memory_count(struct l2_memory *m, enum scout__l2_what what);
/* Wait until that many were. */
void l2_memory_wait(struct l2_memory *m, enum scout__l2_what what, unsigned n);
unsigned l2_memory_objects(struct l2_memory *m);
/* STOREs that say what they come after, and it was there. */
unsigned l2_memory_following(struct l2_memory *m);
/* Pins that were not given back. */
unsigned l2_memory_pins(struct l2_memory *m);
/* Wait until there are none. */
void l2_memory_wait_unpinned(struct l2_memory *m);

/* What lookups asked for, all of them and the most in one step of the server's loop. */
struct l2_memory_asked {
	uint64_t questions, keys, most_keys;
	uint64_t chains; /* questions about a chain */
};
struct l2_memory_asked l2_memory_asked(struct l2_memory *m);

/* Objects by the order in which they were stored, from 0. */
void l2_memory_hide_all(struct l2_memory *m);
void l2_memory_show(struct l2_memory *m, unsigned i);
/* It is gone, also if it is pinned. */
void l2_memory_delete(struct l2_memory *m, unsigned i);
