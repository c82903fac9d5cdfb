/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "group.h"

/*
 * The lengths from which a prompt can go on, given the objects of its groups that are there: the rules of GROUPS in protocol.h,
 * for servers and for clients that know presence object by object. Pure functions: any thread, no allocation.
 *
 * Lengths are counted in hashes from the start of the prompt, objects of a group in its units.
 */

/* Objects [from, to) of one group; from = to: none. */
struct scout__need {
	uint32_t from, to;
};

/*
 * The objects of @group that a prompt of @length needs, if its first @skip hashes are on the GPU already: objects that end
 * within them are not needed. False: no object of this group ends at @length, and its policy requires that.
 */
bool scout__need_of(const struct scout__group *group, uint32_t hash_tokens, uint32_t skip, uint32_t length,
		    struct scout__need *ret);

/* Which objects of one group are there, on all ranks. */
struct scout__presence {
	const uint8_t *bits; /* one for each object, the lowest of the first byte first; NULL: n is 0 */
	uint32_t n;          /* how many objects the bits cover; there are none after these */
};

/* A walk from the longest length to the shortest. It looks at nothing twice: n lengths cost about one pass. */
struct scout__restorable {
	const struct scout__groups *groups;
	const struct scout__presence *presence; /* by group */
	uint32_t hash_tokens;
	uint32_t skip;                              /* objects that end up to here are present */
	struct scout__need seen[SCOUT__GROUPS_MAX]; /* all of these are present */
	uint32_t length;                            /* no longer one is restorable */
	uint32_t g, agreed; /* the group that is asked next, and how many before it allow the length */
};

/* @groups and @presence are borrowed for the walk. */
void scout__restorable_init(struct scout__restorable *walk, const struct scout__groups *groups, uint32_t hash_tokens,
			    const struct scout__presence *presence, uint32_t skip);
/*
 * Lower walk.length to the longest length that is restorable, 0: none. Each look at one group takes one off *@looks; false: none is
 * left, and the walk goes on with the next call. Before the next search, set walk.length to less than the last result.
 */
bool scout__restorable_find(struct scout__restorable *walk, uint32_t *looks);
/* The longest restorable length up to @at_most, which is below all lengths returned before; 0: none. In one go. */
uint32_t scout__restorable_next(struct scout__restorable *walk, uint32_t at_most);
