/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_CLIENT_FEED_H
#define KVSCOUT_CLIENT_FEED_H

/*
 * The feed: what became a hit in the client's namespace, and what stopped being one. Programs that tell a router where KV is read it.
 * Comes with <kvscout/client.h>, whose words and rules hold here too.
 *
 * Keep a set of (tenant, group, hash, medium) and apply the events in their order: then it holds what lookups find, some
 * milliseconds late. An event may say again what is known already. In L2 the set is what was written there: what a store
 * evicts by itself has no event.
 *
 * After START_OVER, an object with a description comes after what its store or session had before it in the prompt. Later, an object
 * may come back after others that follow it: to pass events on in order, let descriptions say what comes before, and wait for that.
 */

#include <stddef.h>
#include <stdint.h>

#include <kvscout/client_sized.h>
#include <kvscout/error.h>
#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

struct scout_client;

enum scout_feed_kind {
	/* Forget everything: what is a hit now follows as STORED events (host memory only), then what changes. At the
	   start, after a restart of the server, and when the caller did not read for too long. */
	SCOUT_FEED_START_OVER = 0,
	SCOUT_FEED_STORED = 1,  /* all KV ranks have it on @medium */
	SCOUT_FEED_REMOVED = 2, /* it is gone from @medium */
	SCOUT_FEED_CLEARED = 3, /* everything in the namespace is gone, on all media */
	SCOUT_FEED_DROPPED = 4, /* everything of @tenant is gone, on all media */
	/* After START_OVER, once: what was there has been told, and what changed meanwhile. */
	SCOUT_FEED_CAUGHT_UP = 5
};

enum scout_feed_medium {
	SCOUT_FEED_L1 = 1, /* host memory */
	SCOUT_FEED_L2 = 2
};

/* Pointers are into the client's memory, and valid until the next scout_feed() or scout_client_free(). */
struct scout_feed_event {
	int kind;           /* enum scout_feed_kind; the fields below are of the kinds that name them */
	int medium;         /* STORED, REMOVED: enum scout_feed_medium; else 0 */
	uint32_t group;     /* STORED, REMOVED */
	const void *hash;   /* STORED, REMOVED: hash_bytes bytes, at the end of the object; else NULL */
	const char *tenant; /* STORED, REMOVED, DROPPED: not terminated */
	size_t tenant_len;
	const void *description; /* STORED: what the worker that stored it said of it */
	size_t description_len;  /* 0: the server has none */
};

/**
 * Take the next events, and ask the server for more in the background: about once in a step of an engine, or by a timer.
 *
 * @ret_events  room for @max events.
 *
 * Thread:   the caller's.
 * Blocks:   never. No lock; no system call but one ring for each request, and inside a step not even that.
 * Returns:  the number of events, 0: none now; or SCOUT_ERR_INVALID (no pointer, max 0), SCOUT_ERR_UNSUPPORTED (structure
 *           size; several endpoints; a server of an older release), SCOUT_ERR_FORKED, SCOUT_ERR_NOMEM, or what went wrong
 *           with the last request, as for a lookup: later calls ask again, and lose nothing.
 */
static inline SCOUT_MUST_CHECK int
scout_feed(struct scout_client *client, struct scout_feed_event *ret_events, size_t max)
{
	return scout_feed_sized(client, ret_events, sizeof(*ret_events), max);
}

#ifdef __cplusplus
}
#endif

#endif
