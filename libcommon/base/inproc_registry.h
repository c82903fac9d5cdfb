/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_BASE_INPROC_REGISTRY_H
#define SCOUT_BASE_INPROC_REGISTRY_H

#include <stdint.h>

struct scout__inproc;

/* The servers of this process that listen on inproc://NAME. */
struct scout__registry {
	struct scout__inproc *first; /* G:lock */
	uint64_t serial;             /* G:lock; of the last start of a server */
};

/*
 * The one registry of the process, locked. Any thread. libkvscout-client has it; libkvscout-worker links against these two functions, in the
 * version node KVSCOUT_PRIVATE_0, which changes with the layout of what is above and of struct scout__inproc.
 */
__attribute__((visibility("default"))) struct scout__registry *scout__registry_lock(void);
__attribute__((visibility("default"))) void scout__registry_unlock(void);

#endif
