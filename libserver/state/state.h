/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "chunk_index.h"
#include "list.h"
#include "map.h"
#include "peer_share.h"
#include "reply.h"
#include "run_queue.h"
#include "share_list.h"
#include "stale_tickets.h"
#include "thread.h"
#include "watch.h"

struct scout_server;
struct scout_server_config;
struct scout__hold;
struct scout__ns;
struct scout__ns_group;
struct scout__peer;
struct scout__session;

#define SCOUT__MAX_GRANT_BYTES (UINT64_C(1) << 28) /* all grant lists that are being built */

/*
 * Tells the room above that looks after L2 (fetch.h) what happens to namespaces: so this room knows nothing of L2.
 */
struct scout__state_hooks {
	/* A worker has stored the shard of @rank of the chunk index, for the prompt of @ticket: of its chunks the first one comes first. */
	void (*committed)(struct scout_server *s, struct scout__ns_group *group, uint32_t entry, uint32_t rank,
			  uint64_t ticket);
	/* A new weights version or a clear has ended what a namespace had cached. */
	void (*outdated)(struct scout_server *s);
	/* The namespace was cleared: ns.generation is new. */
	void (*cleared)(struct scout_server *s, struct scout__ns *ns);
	/* The @n slots of the group's chunk index from @first on, which may be promised already, have got memory. */
	void (*slots_came)(struct scout_server *s, struct scout__ns_group *group, uint32_t first, uint32_t n);
	/* The chunk index of the group is about to be freed. */
	void (*index_closed)(struct scout_server *s, struct scout__ns_group *group);
	/* The namespace is over, or about to get another name or other parameters. */
	void (*closed)(struct scout__ns *ns);
};

/*
 * What the server remembers: namespaces, peers, and what was promised and granted to them. The loop owns all of it.
 *
 * Who owns whom:
 *
 *   server ─ namespaces ─ chunk index (l1), spaces, layouts
 *          ─ peers ─ sessions (what lookups promised), holds (what retrieves read and stores write), pending operations (read, and
 *                    are not answered yet), lease (unix socket), pidfd
 */
struct scout__state {
	const struct scout__state_hooks *hooks; /* const after start */
	struct scout__l1 l1;
	bool l1_ready;
	struct scout__watch pool_ready;
	struct scout__ns **ns; /* max_namespaces places */
	uint32_t n_ns;
	uint32_t ceiling_left; /* bytes that samples of namespaces may still take */

	struct scout__peer **peers; /* max_peers slots */
	uint32_t *free_peers;
	uint32_t n_free_peers;
	struct scout__map by_identity, by_token;
	struct scout__map by_source; /* how many of the peers are of it */
	uint64_t next_tick_us;
	uint64_t last_tick_us;
	uint32_t tick_ns;   /* place of the last namespace that a tick looked at */
	uint32_t tick_peer; /* slot of the first peer that the next tick looks at */
	struct {
		pid_t pid; /* the process that died last, while the line about it is not written */
		uint32_t n_peers, n_holds;
		uint64_t at_us;
		char first[SCOUT__WHO_BYTES];
	} dead;
	uint32_t n_pending_ops;
	uint64_t grant_bytes; /* of grant lists that are being built */

	struct scout__peer_shares shares;
	char refusal[192]; /* text of the last refusal that names a share */

	struct scout__session **sessions; /* n_session_places */
	uint32_t n_session_places;
	uint32_t *free_sessions;
	uint32_t n_free_sessions;
	struct scout__map by_ticket;
	uint32_t n_releasing; /* sessions that ended and have something left to give back */
	uint64_t next_serial;
	uint64_t session_bytes; /* of all sessions: handles, bitmaps and what they stored */
	uint64_t request_bytes; /* see request_bytes.h */
	uint64_t feed_bytes;    /* of the feeds, without descriptions: see feed.c */
	uint64_t first_stamp;   /* stamp of the start, see clears.c */
	struct scout__stale_tickets stale_tickets;

	struct {
		struct scout__map by_tail; /* session of each keep, by its last object */
		uint64_t bytes;
		uint32_t n;
	} keeps; /* see keep.c */

	struct scout__hold **holds; /* SCOUT__MAX_HOLDS slots */
	uint32_t *free_holds;
	uint32_t n_free_holds;
	struct scout__map by_hold;
	struct scout__list quarantine; /* holds, by due_us */
	uint32_t n_quarantine;

	struct scout__list withdrawn; /* extents that workers have yet to unmap, see withdraw.c */
	uint32_t n_withdrawn;
	struct scout__run_item rebalance; /* takes extents from one namespace for another */

	struct scout__share_list tenant_shares, namespace_shares;
	struct scout__run_item reshare; /* gives all tenants the percentages of new lists; how far it is */
	uint32_t reshare_ns, reshare_space;
};

/* For @s, without tables. The caller frees it. NULL: no memory. */
SCOUT_ON_LOOP struct scout__state *scout__state_new(struct scout_server *s, const struct scout__state_hooks *hooks);
/* Make tables for as much as @cfg allows. Returns 0 or SCOUT_ERR_NOMEM; scout__state_free_tables() in both cases. */
int scout__state_make_tables(struct scout__state *state, const struct scout_server_config *cfg);
SCOUT_ON_LOOP void scout__state_free_tables(struct scout__state *state);
