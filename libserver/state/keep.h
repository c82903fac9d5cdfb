/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "chunk_index.h"
#include "session.h"
#include "thread.h"

/* Promises that outlive their session: how much is kept, and for whom (keep.c). */

/* FINISH asks to keep what @session has for @keep_ms: decide how much of it, before the session ends. */
SCOUT_ON_LOOP void scout__keep_begin(struct scout_server *s, struct scout__session *session, uint32_t keep_ms);
/* The end of the session has given back *@handle, at place @at among what it found and then stored: promise it anew if it is kept. */
SCOUT_ON_LOOP void scout__keep_one(struct scout__session *session, struct scout__kept *kept, uint32_t at,
				   struct scout__handle *handle);
/* What the reply to FINISH says: hashes that are kept, or keys. */
SCOUT_ON_LOOP uint32_t scout__keep_length(const struct scout__session *session);
/* What @session keeps is charged (1), or no more (-1). */
SCOUT_ON_LOOP void scout__keep_charge(struct scout_server *s, struct scout__session *session, int change);
/* The last object that is kept; its entry may be SCOUT__NO_ENTRY. */
SCOUT_ON_LOOP struct scout__handle scout__keep_tail(const struct scout__kept *kept);
/*
 * The next keep whose last object is among the last ones of what @session has in its first group; NULL: none is left. *@looked: how many of
 * these were looked at, 0 at first.
 */
SCOUT_ON_LOOP struct scout__session *scout__keep_find(const struct scout_server *s,
						      const struct scout__session *session, uint32_t *looked);

/* The handle at place @at; its entry may be SCOUT__NO_ENTRY. */
static inline SCOUT_ON_LOOP struct scout__handle
scout__keep_handle(const struct scout__kept *kept, uint32_t n_found, uint32_t at)
{
	struct scout__handle handle = at < n_found ? kept->handles[at] : kept->stored[at - n_found];

	if (handle.entry != SCOUT__NO_ENTRY)
		handle.entry &= ~SCOUT__STORED_PRESENT;
	return handle;
}

/* Of state.keeps.by_tail. */
static inline SCOUT_ON_LOOP uint64_t
scout__keep_key(const struct scout__kept *kept, struct scout__handle last)
{
	return ((uint64_t)last.entry << 32 | last.gen) ^ (uint64_t)(uintptr_t)kept->group;
}
