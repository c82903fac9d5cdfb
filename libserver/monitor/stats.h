/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "counters.h"
#include "fetch.h"
#include "l2.h"
#include "ns.h"
#include "thread.h"

struct scout_server;
struct scout__sender;

/*
 * All that the server tells about itself, as one block of plain values. The loop fills it in some microseconds, and
 * from then on any thread that has it can read it: STATUS, /status and /metrics are three ways to write the same block.
 *
 * What is told under which name stands once, in the tables of stats_items.c: a value that is in one of the three and
 * not in the others is so on purpose.
 *
 * A new value needs, in this order:
 *   counted: its field                    core/counters.h; s->count.NAME++ where it happens
 *   anything else: its field              below, and the line in stats.c that fills it in; of an adapter: l2_gauges in l2.h
 *   one row                               stats_items.c. From then on STATUS, /status and /metrics tell it
 *   that it counts                        wire_status() in the test of what it counts; test_monitor_metrics.c compares
 *                                         STATUS and /metrics
 *   what operators should look at         docs/metrics.md, by hand: the page explains values, and does not list all
 */

#define SCOUT__STATS_NS 64u      /* namespaces beyond these are not told one by one */
#define SCOUT__STATS_TENANTS 64u /* tenants with a share of their own beyond these are not told */
#define SCOUT__STATS_GROUPS 128u
#define SCOUT__STATS_URL 160u /* of a URL in a name */

struct scout__stats_l1 {
	uint64_t bytes_limit, bytes_extents, bytes_used, bytes_promised, bytes_promised_limit, bytes_held, bytes_index;
	uint64_t bytes_pool, extra_bytes, growth_failures, growth_errno;
	uint64_t chunks, slots, extents, extents_withdrawn, extents_leaving, extents_pinned;
	uint64_t evictions, evictions_unneeded, refusals, promises_refused;
	uint64_t hints_wrong_chunks, hints_right_chunks;
};

struct scout__stats_fetch {
	struct scout__fetch_counters count;
	uint64_t adapters;
	uint64_t loads_queued, loads_running;
	uint64_t writes_waiting, writes_bytes, writes_bytes_limit;
};

/* One adapter of L2. */
struct scout__stats_l2 {
	char url[SCOUT__STATS_URL + 1];
	const char *scheme; /* static */
	struct scout__l2_counters count;
	struct scout__l2_gauges gauges;
	char words[SCOUT__L2_WHY_BYTES];             /* why it does not work; "": it does */
	uint64_t state, state_since_ms, next_try_ms; /* struct scout__l2_health */
	uint64_t ready, running;
	uint64_t reads_breaker, writes_breaker; /* enum scout__l2_breaker */
};

struct scout__stats_ns {
	char name[SCOUT_MAX_NAME + 1];
	uint64_t name_len;
	uint64_t peers, sessions, holds, weights, tenants;
	uint64_t chunks, slots, bytes, bytes_promised, bytes_kept, bytes_held, bytes_extents;
	struct scout__ns_counters count;
	uint64_t ceiling_sample; /* UINT64_MAX, as count.ceiling_chunks: it has no sample */
	uint64_t bytes_guaranteed, chunks_set_aside;
	/* As its first HELLO said: what a client needs to ask with. */
	uint64_t chunk_tokens, hash_tokens, hash_bytes, kv_ranks, rank_first, rank_count, readers, groups;
};

/* A group of a namespace that has several. */
struct scout__stats_group {
	uint32_t ns;     /* in scout__stats.ns */
	uint32_t number; /* its place in the key `group` */
	uint64_t bytes, bytes_extents, objects, unneeded, evictions, hit_objects;
	uint64_t policy, readers, unit_tokens, span_tokens, margin_tokens;
};

/* A tenant that tenant_share names, in a namespace where it has stored something. */
struct scout__stats_tenant {
	uint32_t ns; /* in scout__stats.ns */
	char name[SCOUT_MAX_NAME + 1];
	uint64_t name_len;
	uint64_t bytes, bytes_guaranteed, evicted_over_share, evicted_under_share, idle;
};

struct scout__stats {
	uint64_t taken_us; /* the loop's clock */
	uint64_t epoch, uptime_ms, draining;
	uint64_t namespaces, namespaces_limit, namespaces_abandoned;
	uint64_t peers, peers_limit, connections, connections_limit, channels, leases;
	uint64_t channels_backlog_bytes, replies_unsent_bytes;
	uint64_t sessions, sessions_limit, sessions_bytes, requests_bytes, requests_bytes_limit, feeds_bytes,
		feeds_bytes_limit, ops_waiting, holds, quarantine;
	struct scout__counters count;
	struct scout__stats_l1 l1;
	struct scout__stats_fetch fetch;
	bool has_fetch;
	uint32_t n_l2;
	struct scout__stats_l2 l2[SCOUT__L2_MAX_ADAPTERS];
	uint32_t n_ns; /* that are listed */
	struct scout__stats_ns ns[SCOUT__STATS_NS];
	uint32_t n_groups; /* that are listed */
	struct scout__stats_group groups[SCOUT__STATS_GROUPS];
	uint32_t n_tenants; /* that are listed */
	struct scout__stats_tenant tenants[SCOUT__STATS_TENANTS];
};

/* ---- stats.c ---- */

/* Fill @ret for @reader (NULL: for all); walks nothing but the namespaces. Also on the starting thread, before the loop. */
SCOUT_ON_LOOP void scout__stats_take(const struct scout_server *s, const struct scout__sender *reader,
				     struct scout__stats *ret);

/* ---- stats_items.c ---- */

enum scout__stats_kind {
	SCOUT__COUNTER = 1, /* only grows while the server lives */
	SCOUT__GAUGE,
	SCOUT__HISTOGRAM
};

/* One value: what it is called, and where it is. */
struct scout__stats_item {
	const char *name; /* in STATUS; of an adapter or namespace without its "l2.N." or "ns.NAME." */
	const char *
		label; /* the label of /metrics whose value is the end of the name; NULL: none. Such rows follow each other */
	const char *help;    /* for /metrics, of the first row with a label; NULL and no label: not in /metrics */
	uint16_t offset;     /* of the uint64_t, in its structure */
	uint8_t kind;        /* enum scout__stats_kind */
	uint32_t per_unit;   /* a name that ends in _ms or _us: how many of them are a second; else 0 */
	bool unknown_is_max; /* UINT64_MAX: it is not known and not told */
};

struct scout__stats_table {
	const struct scout__stats_item *items;
	size_t n;
	const char *prefix; /* in /metrics */
};

extern const struct scout__stats_table scout__stats_server; /* of struct scout__stats */
extern const struct scout__stats_table scout__stats_fetch;  /* likewise; only with a L2 */
extern const struct scout__stats_table scout__stats_l2;     /* of struct scout__stats_l2 */
extern const struct scout__stats_table scout__stats_ns;     /* of struct scout__stats_ns */
extern const struct scout__stats_table scout__stats_group;  /* of struct scout__stats_group */
extern const struct scout__stats_table scout__stats_tenant; /* of struct scout__stats_tenant */

static inline uint64_t
scout__stats_value(const struct scout__stats_item *item, const void *of)
{
	return *(const uint64_t *)(const void *)((const char *)of + item->offset);
}

#define SCOUT__METRIC_BYTES 96u

/* What /metrics makes of "lookups.full", without "kvscout_": the family "lookups_total", the label "result=\"full\"" or "". */
SCOUT_ON_ANY void scout__stats_metric(const struct scout__stats_table *table, const struct scout__stats_item *item,
				      char ret_family[SCOUT__METRIC_BYTES], char ret_label[SCOUT__METRIC_BYTES]);

/* "lookup" for SCOUT_OP_LOOKUP, "no_hello" for SCOUT_WIRE_NO_HELLO. */
SCOUT_ON_ANY void scout__stats_op_name(unsigned opcode, char *ret_name, size_t len);
SCOUT_ON_ANY void scout__stats_refusal_name(unsigned status, char *ret_name, size_t len);

/* Each value by the name that STATUS has for it; returns their number. */
typedef void (*scout__stats_fn)(void *user, const char *name, uint64_t value);
SCOUT_ON_ANY uint32_t scout__stats_each(const struct scout__stats *stats, scout__stats_fn fn, void *user);
