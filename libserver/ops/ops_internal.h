/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "rights.h"
#include "thread.h"

struct scout_server;
struct scout__dest;
struct scout__frame;
struct scout__lookup_reply;
struct scout__ns;
struct scout__ns_group;
struct scout__op;
struct scout__packet;
struct scout__peer;
struct scout__lookup_op;
struct scout__pending_kind;
struct scout__pending_op;
struct scout__session;
struct scout__str;

/* The functions that the files of this room call in each other. */

/* ---- a handler for each operation, in a file of its name; dispatch.c has a row for each ---- */

/* What a handler works on. Gone when it returns, but for the packet, which a pending operation keeps. */
struct scout__request {
	struct scout__peer *peer; /* the sender; NULL: it has not said HELLO, whose handler sets it */
	struct scout__dest *dest; /* where the reply goes */
	struct scout__packet *packet;
	const struct scout__frame *frame;
	const struct scout__op *op;  /* a view into the packet */
	uint64_t waited_us;          /* on its way and in its frame */
	uint64_t deadline_us;        /* when the answer is late; UINT64_MAX: never */
	struct scout__sender sender; /* if scout__require_right() was asked */
};

SCOUT_ON_LOOP void scout__serve_hello(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_ping(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_status(struct scout_server *s, struct scout__request *req);
/* Of operators: the sender need not be a peer. */
SCOUT_ON_LOOP void scout__serve_peers(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_tenants(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_drop(struct scout_server *s, struct scout__request *req);
/* Answered at once, or when everything is given back. RESET: weights.c. */
SCOUT_ON_LOOP void scout__serve_feed(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_finish(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_reset(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_register(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_store_done(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_retrieve_done(struct scout_server *s, struct scout__request *req);
/* With a pending operation. */
SCOUT_ON_LOOP void scout__serve_lookup(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_keys(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_admit(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_clear(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_store(struct scout_server *s, struct scout__request *req);
SCOUT_ON_LOOP void scout__serve_retrieve(struct scout_server *s, struct scout__request *req);

/* ---- lookup_keep_recent.c ---- */

/* A lookup ahead that max_promised has limited: renew some of the chunks after that. True: there are more. */
SCOUT_ON_LOOP bool scout__lookup_keep_recent(struct scout_server *s, struct scout__lookup_op *pending);
/* The same for a lookup of several groups, which goes on at walk.g and walk.i. */
SCOUT_ON_LOOP bool scout__lookup_keep_recent_groups(struct scout_server *s, struct scout__lookup_op *pending);

/* ---- lookup.c and renew.c: a LOOKUP that renews a session ---- */

/* Answer the renewal of @session now, if one runs, with what it has found so far. */
SCOUT_ON_LOOP void scout__renewal_cut(struct scout_server *s, struct scout__session *session);
/*
 * The session of @ticket, which @pending continues: from lookup_op.next (set here), or with several groups from what it
 * promises. NULL and *ret_status, *ret_text when it is refused: then the session is as it was.
 */
SCOUT_ON_LOOP struct scout__session *scout__renew(struct scout_server *s, struct scout__lookup_op *pending,
						  uint64_t ticket, uint16_t *ret_status, const char **ret_text);

/* ---- lookup_groups.c: lookups of several groups ---- */

extern const struct scout__pending_kind scout__lookup_groups_kind;
/* Answer a renewal now, with what it has found so far. */
SCOUT_ON_LOOP void scout__lookup_groups_cut(struct scout_server *s, struct scout__lookup_op *pending);

/* ---- lookup_end.c: what both kinds of lookups have in common ---- */

/* Count an answer: @asked and @hit are lengths without what was skipped. */
SCOUT_ON_LOOP void scout__lookup_count(struct scout_server *s, const struct scout__lookup_op *pending,
				       const struct scout__lookup_reply *m, uint32_t asked, uint32_t hit);
/* Whether the finished answer is held back: then the pending operation sleeps until it is due. */
SCOUT_ON_LOOP bool scout__lookup_is_delayed(struct scout_server *s, struct scout__lookup_op *pending);
/*
 * What is expected, the chunk of @hash, is not there. True: key polling goes on, and @pending sleeps until the next look at
 * it or until the chunk is stored here.
 */
SCOUT_ON_LOOP bool scout__lookup_sleep_until_poll(struct scout_server *s, struct scout__lookup_op *pending,
						  const uint8_t *hash);
/* Of a pending operation's kind. */
SCOUT_ON_LOOP void scout__lookup_take_back(struct scout_server *s, struct scout__pending_op *pending);
SCOUT_ON_LOOP void scout__lookup_end(struct scout_server *s, struct scout__pending_op *pending);

/* ---- require.c: false or NULL when @op was refused ---- */

/* The session of @ticket, which belongs to @peer: workers know tickets, too, and must not end the session. */
SCOUT_ON_LOOP struct scout__session *scout__require_session(struct scout_server *s, struct scout__peer *peer,
							    const struct scout__op *op, uint64_t ticket);

/* The group of this number, if the namespace has it and this worker has registered a table of it. */
SCOUT_ON_LOOP struct scout__ns_group *scout__require_group(struct scout_server *s, struct scout__peer *peer,
							   const struct scout__op *op, uint16_t group);

/* Whether the sender has the right @need in @name_space; NULL: in any. */
SCOUT_ON_LOOP bool scout__require_right(struct scout_server *s, struct scout__request *req, enum scout__right need,
					const struct scout__str *name_space);
/* The namespace of this name, of an operator's question. */
SCOUT_ON_LOOP struct scout__ns *scout__require_namespace(struct scout_server *s, const struct scout__request *req,
							 const struct scout__str *name);
/* Whether max_request_bytes has room for the message, and for what a session remembers of @n objects. */
SCOUT_ON_LOOP bool scout__require_memory(struct scout_server *s, const struct scout__request *req, uint32_t n);

/* ---- weights.c ---- */

/* Whether @peer has said its namespace's weights version, or none. False: @op was refused. */
SCOUT_ON_LOOP bool scout__require_weights(struct scout_server *s, struct scout__peer *peer, const struct scout__op *op);
/* The namespace has another weights version from now on; no-op if it is the same. */
SCOUT_ON_LOOP void scout__weights_change(struct scout_server *s, struct scout__ns *ns, uint64_t weights);
