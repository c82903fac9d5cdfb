/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "feed_ring.h"
#include "pool.h"

struct scout_server;
struct scout__chunk_index;
struct scout__ns;
struct scout__ns_group;
struct scout__str;
struct scout__writer;

/* The feed of one namespace, while somebody reads it: see feed.c. */
struct scout__feed {
	struct scout__chore chore; /* its end */
	uint64_t id;               /* random: a reader of another feed, or of an earlier one, has lost events */
	uint64_t read_us;          /* when it was read last */
	uint32_t walk;             /* the last one, see ops/feed.c */
	struct scout__feed_ring ring;
};

/* The feed of @ns, which is made if there is none: events are kept from now on. NULL: no memory, or others have it all. */
SCOUT_ON_LOOP struct scout__feed *scout__feed_of(struct scout_server *s, struct scout__ns *ns);
/* The namespace is over, or nobody reads the feed any more. */
SCOUT_ON_LOOP void scout__feed_end(struct scout_server *s, struct scout__ns *ns);
/* End it if its last reader has gone. */
SCOUT_ON_LOOP void scout__feed_tick(struct scout_server *s, struct scout__ns *ns);

/* For struct scout__l1.hit_changed. */
SCOUT_ON_LOOP void scout__feed_hit_changed(struct scout__chunk_index *index, uint32_t entry, bool is_hit);
/* All ranks of @entry, a hit, are in L2 now. */
SCOUT_ON_LOOP void scout__feed_saved(struct scout__ns_group *group, uint32_t entry);
/* All that @ns had is over. */
SCOUT_ON_LOOP void scout__feed_cleared(struct scout__ns *ns);
/* All that the tenant had in @ns is over. */
SCOUT_ON_LOOP void scout__feed_dropped(struct scout__ns *ns, const struct scout__str *tenant);

/*
 * Put the STORED event of @entry, if lookups find it. Returns whether it was put.
 */
SCOUT_ON_LOOP bool scout__feed_put_hit(struct scout__ns_group *group, uint32_t entry, struct scout__writer *w);
