/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "deferred_reply.h"
#include "list.h"
#include "run_queue.h"
#include "thread.h"

struct scout_server;
struct scout__ns;
struct scout__ns_group;
struct scout__peer;

#define SCOUT__MAX_HOLDS 262144u /* retrieves and stores that are not done, of all workers */

enum scout__hold_kind {
	SCOUT__HOLD_READ = 1,
	SCOUT__HOLD_WRITE
};

enum scout__hold_ending {
	SCOUT__END_NONE = 0,
	SCOUT__END_RELEASE,    /* reading is over */
	SCOUT__END_COMMIT,     /* writing is over: the first n_commit are complete, the rest is given up; 0: all */
	SCOUT__END_QUARANTINE, /* the writer died */
	SCOUT__END_EXPIRED     /* the quarantine is over */
};

/* The part of a hold that belongs to one group. */
struct scout__hold_part {
	struct scout__ns_group *group;
	uint32_t rank;     /* of its chunk index */
	uint32_t row;      /* RETRIEVE: this worker's row of promises, by rank and reader */
	uint32_t first;    /* its first entry in the hold; UINT32_MAX: none granted yet */
	uint32_t from, to; /* RETRIEVE: objects of the session */
};

/* What one RETRIEVE or STORE was granted. */
struct scout__hold {
	struct scout__run_item run;   /* giving back, after the end */
	struct scout__list of_worker; /* later: state.quarantine */
	struct scout__peer *worker;   /* NULL when that is gone */
	struct scout__ns *ns;
	uint64_t id;   /* in state.by_hold: of (worker, corr) */
	uint64_t corr; /* of the operation that asked: the worker's name for the hold */
	uint64_t weights_gen;
	uint64_t due_us; /* quarantine */
	uint64_t bytes;  /* also in worker.held_bytes, until it ends */
	uint64_t ticket; /* of a STORE; its own id if that has none */
	uint32_t number;
	uint8_t kind;
	uint8_t end;
	bool told;                             /* the worker was answered: it may be copying */
	bool spoiled;                          /* it saw slots change under its copy */
	uint8_t *found;                        /* RETRIEVE_DONE: of each entry; NULL: it compared nothing */
	struct scout__deferred_reply deferred; /* STORE_DONE, RETRIEVE_DONE */
	uint32_t n_commit, n_readable;
	uint32_t next;
	uint32_t n;
	uint32_t *entries; /* after the parts */
	uint32_t part;     /* the part that is being granted, or given back */
	uint32_t n_parts;
	struct scout__hold_part parts[]; /* in the order of their groups */
};

/* Room for @n entries of @n_parts groups, which the caller fills in. NULL: no memory or too many. */
SCOUT_ON_LOOP struct scout__hold *scout__hold_new(struct scout_server *s, struct scout__peer *worker, uint8_t kind,
						  uint32_t n, uint32_t n_parts, uint64_t corr);
/* The part that is being granted. */
static inline struct scout__hold_part *
scout__hold_now(struct scout__hold *hold)
{
	return &hold->parts[hold->part];
}
/* Grant the next entry of this part. Inline: once for each object of a RETRIEVE or STORE. */
static inline SCOUT_ON_LOOP void
scout__hold_put(struct scout__hold *hold, uint32_t entry)
{
	struct scout__hold_part *part = scout__hold_now(hold);

	if (part->first == UINT32_MAX)
		part->first = hold->n;
	hold->entries[hold->n++] = entry;
}
/* Whether a living hold of this worker has the name. */
SCOUT_ON_LOOP bool scout__hold_name_taken(struct scout_server *s, const struct scout__peer *worker, uint64_t corr);
/* The living hold of this worker for the operation @corr, or NULL. */
SCOUT_ON_LOOP struct scout__hold *scout__hold_find(struct scout_server *s, const struct scout__peer *worker,
						   uint64_t corr, uint8_t kind);
SCOUT_ON_LOOP void scout__hold_end(struct scout_server *s, struct scout__hold *hold, enum scout__hold_ending how,
				   uint32_t n_commit);
/* End a hold that the worker never learned of, so no copy runs. */
SCOUT_ON_LOOP void scout__hold_undo(struct scout_server *s, struct scout__hold *hold);

/* The same by hold.id, if it lives. What a STORE or RETRIEVE granted is taken back so. */
SCOUT_ON_LOOP void scout__hold_take_back(struct scout_server *s, uint64_t id);
SCOUT_ON_LOOP void scout__quarantine_run(struct scout_server *s);
