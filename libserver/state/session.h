/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "chunk_index.h"
#include "deferred_reply.h"
#include "list.h"
#include "ns.h"
#include "run_queue.h"
#include "thread.h"

struct scout_server;
struct scout__ns;
struct scout__ns_group;
struct scout__peer;
struct scout__pending_op;

#define SCOUT__LENGTHS 2u /* lengths at the end of a prompt whose objects are needed */

/* What a session keeps of one group. Objects are counted from the start of the prompt. */
struct scout__kept {
	struct scout__ns_group *group;
	uint32_t hit;                  /* objects that have handles; so far, while the lookup is not answered */
	uint32_t n_holes;              /* kept objects that were not there: the lookup went on after them */
	uint32_t kept_from, kept_to;   /* objects whose units are promised, but for those that a bitmap marks as used */
	struct scout__handle *handles; /* `hit` handles */
	uint32_t cap_handles;
	uint8_t kind;                 /* scout__touch_kind(), of the lookup */
	uint8_t behind;               /* for struct scout__touch, while the session ends */
	struct scout__handle *stored; /* in the order of the stores; top bit of entry: not stored by this session */
	uint32_t n_stored, cap_stored;
	uint64_t **used_rows; /* [rank * readers + reader] -> bits of objects; NULL until a RETRIEVE */
	uint16_t *used_count; /* bits of each object in all rows */
	uint32_t n_used;      /* objects that the bits and counts have room for */
	/* For session_touch.c. */
	uint32_t needs;         /* objects that one length needs, at most; UINT32_MAX: all before it */
	uint64_t diverges_hash; /* beginning of the hash where the prompt left what others have stored; 0: unknown */
	uint32_t diverges_at;   /* the stored object with that hash, plus 1; 0: none */
	uint32_t n_behind;      /* while the session ends: objects after the next one */
	/* For keep.c: places among what it found and then stored. */
	uint32_t n_found;             /* `hit` when the session ended */
	uint32_t keep_from, keep_end; /* what is promised again, but for handles without an entry */
	uint32_t keep_to;             /* the first place that could not be, or keep_end */
};

/* What the server holds for one ticket. */
struct scout__session {
	struct scout__run_item run; /* giving back, after the end */
	struct scout__list of_peer;
	struct scout__list of_ns;
	struct scout__peer *peer; /* NULL when it has ended and the peer is gone */
	struct scout__ns *ns;
	uint64_t ticket;
	uint64_t serial;
	uint64_t weights_gen;
	uint32_t number;
	bool ended;
	bool touch;                            /* ended by FINISH */
	bool hinted;                           /* FINISH said that nothing will continue the request */
	struct scout__pending_op *lookup;      /* while it is not answered */
	struct scout__deferred_reply deferred; /* FINISH */
	uint64_t promised_bytes;               /* also in peer.promised_bytes, until it ends */
	uint64_t bytes;                        /* memory of it, also in peer.session_bytes, until it ends */
	uint32_t n;                            /* hashes that the client asked for */
	uint32_t skip;
	uint32_t l2;             /* objects of the hit that were not in the pool when they were found */
	uint32_t n_admits;       /* ADMITs that are not answered */
	uint32_t length;         /* lookup_groups.c: length in hashes whose needs are all promised; 0: none */
	bool is_ahead;           /* what it promises makes no length until an ADMIT */
	bool by_key;             /* of KEYS: its objects belong to no prompt */
	struct {                 /* of what outlives it, see keep.c */
		uint64_t due_us; /* 0: nothing */
		uint64_t bytes, peer_id, tail;
		uint32_t peer, account; /* who has the charge; account 0: none */
		uint32_t n;             /* objects */
		uint8_t outcome;        /* SCOUT_OUTCOME_* */
		bool has_tail;          /* state.keeps.by_tail has `tail` */
	} keep;
	uint32_t n_groups;
	struct scout__kept of[]; /* each group of the namespace */
};

#define SCOUT__STORED_PRESENT 0x80000000u

/* Living sessions only: not one that has ended and is still giving back. */
SCOUT_ON_LOOP struct scout__session *scout__session_find(struct scout_server *s, const struct scout__ns *ns,
							 uint64_t ticket);
/* A session for @n hashes, with room for the handles of as many objects of each group. NULL and *ret_status, *ret_text when it is refused. */
SCOUT_ON_LOOP struct scout__session *scout__session_new(struct scout_server *s, struct scout__peer *peer,
							uint64_t ticket, uint32_t n, uint16_t *ret_status,
							const char **ret_text);
/* Make room for @n handles, and give what is beyond back to the heap. False: no memory. */
SCOUT_ON_LOOP bool scout__kept_resize(struct scout_server *s, struct scout__kept *kept, uint32_t n);
/* @n more objects of @kept are promised, each taken from the share (scout__index_take_share()); or, if @n is negative, less. */
SCOUT_ON_LOOP void scout__kept_promised(struct scout__kept *kept, int n);
/* Give back the first or the last object that is promised; there must be one. */
SCOUT_ON_LOOP void scout__kept_drop_first(struct scout__kept *kept);
SCOUT_ON_LOOP void scout__kept_drop_last(struct scout__kept *kept);
/* Object @i, promised or next to be looked at, is not there. Only while the lookup is not answered. */
SCOUT_ON_LOOP void scout__kept_hole(struct scout__kept *kept, uint32_t i);
/* End @session: unreachable now, promises given back in steps. @touch: its chunks count as used. */
SCOUT_ON_LOOP void scout__session_end(struct scout_server *s, struct scout__session *session, bool touch);
/* The answer that promised it did not leave: end it, if it lives. */
SCOUT_ON_LOOP void scout__session_undo(struct scout_server *s, uint64_t ticket);
#define SCOUT__OUTCOME_UNIT (1u << 28) /* in the number of a reply to FINISH, above what is kept */
/* @session continues requests that are kept, and takes over or says that nothing continues them: end the older keeps. */
SCOUT_ON_LOOP void scout__session_end_older(struct scout_server *s, const struct scout__session *session);
/* End at most @left keeps that a clear or new weights ended, or of @all. True: there may be more. */
SCOUT_ON_LOOP bool scout__sessions_unkeep(struct scout_server *s, struct scout__ns *ns, bool all, uint32_t left);
/* A worker retrieves object @i: mark its unit as used. The caller takes its hold first. */
SCOUT_ON_LOOP void scout__kept_use(struct scout_server *s, struct scout__kept *kept, uint32_t i, uint32_t row);
/* ---- session_touch.c: what the end of a request says about its objects ---- */

/* scout__kept.needs */
uint32_t scout__kept_needs(const struct scout__ns_group *group);
/*
 * Groups with policy all have all objects up to the end of another object of this group, the one with @hash, and the
 * hit is shorter.
 */
SCOUT_ON_LOOP void scout__kept_parts(struct scout__kept *kept, const uint8_t *hash);
SCOUT_ON_LOOP bool scout__kept_diverges_at(const struct scout__kept *kept, uint32_t entry);
/* An ADMIT gave object @i back: unless a group needs all before a length, this request does not need it. */
SCOUT_ON_LOOP void scout__kept_forget(struct scout__kept *kept, uint32_t i);
/*
 * The session ends with FINISH, and its group has kept.needs: judge the object @handle, which the session stored as its
 * @i-th, or found. Call these from the last object to the first, and for stored objects before found ones.
 */
SCOUT_ON_LOOP void scout__touch_stored(const struct scout__session *session, struct scout__kept *kept, uint32_t i,
				       struct scout__handle handle, bool present);
SCOUT_ON_LOOP void scout__touch_found(const struct scout__session *session, struct scout__kept *kept,
				      struct scout__handle handle);
/* The end of the session uses an object. */
static inline SCOUT_ON_LOOP void
scout__kept_touch(const struct scout__session *session, struct scout__kept *kept, struct scout__handle handle,
		  enum scout__access how)
{
	/* Objects of KEYS follow from nothing: none comes after another one. */
	struct scout__touch touch = {.how = how,
				     .kind = kept->kind,
				     .hinted = session->hinted,
				     .behind = session->by_key ? 0 : kept->behind};

	scout__index_touch(kept->group->index, handle.entry, &touch);
	kept->behind = (uint8_t)touch.behind;
}

/* Remember what the session stores, to touch it at the end. @present: another session stored it. */
SCOUT_ON_LOOP void scout__kept_stored(struct scout_server *s, struct scout__kept *kept, struct scout__handle handle,
				      bool present);
