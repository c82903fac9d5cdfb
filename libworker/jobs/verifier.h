/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <semaphore.h>

#include <kvscout/worker.h>

#include "mappings.h"

struct scout__job;

/* What a verifier compares: the blocks of one chunk that have an id, which lie in its scratch, with a slot. */
struct scout__verifier_task {
	const struct scout__copy_layout *layout;
	uint32_t dtype;
	const int64_t *ids;
	const uint8_t *slot;
};

/* Compares chunks on a thread of its own, one at a time. See the DESIGN comment of verifier.c. */
struct scout__verifier {
	struct scout__job *job; /* courier: the job whose chunks are compared now; NULL */
	uint8_t *scratch;       /* courier: memory for one chunk; NULL: none yet */
	uint64_t bytes;         /* courier: of it */
	bool runs;              /* courier: a comparison was started and not taken */
	bool has_thread;        /* courier: so the semaphores are there, too */
	int fd;                 /* const with the thread: what a comparison raises when it is over */
	pthread_t thread;       /* const with the thread */
	sem_t todo, done;       /* courier -> thread, thread -> courier: hand over what follows */
	bool stop;
	struct scout__verifier_task task;
	struct scout_verified result; /* the fields of the comparison */
};

/*
 * Make the thread, and scratch of @bytes that the copy engine of @mappings knows, unless they are there. 0, SCOUT_ERR_NOMEM,
 * SCOUT_ERR_SYSTEM or the engine's error.
 */
int scout__verifier_prepare(struct scout__verifier *v, const struct scout__mappings *mappings, uint64_t bytes)
	SCOUT_ON_COURIER;
void scout__verifier_start(struct scout__verifier *v, const struct scout__verifier_task *task) SCOUT_ON_COURIER;
/* Whether the comparison that was started is over; @wait: wait until it is. Then `result` is there, once. */
bool scout__verifier_take(struct scout__verifier *v, bool wait) SCOUT_ON_COURIER;
/* Give the scratch back. No batch and no comparison uses it. */
void scout__verifier_forget(struct scout__verifier *v, const struct scout__mappings *mappings);
/* End the thread, too. Also of one that is zero. */
void scout__verifier_fini(struct scout__verifier *v, const struct scout__mappings *mappings);
