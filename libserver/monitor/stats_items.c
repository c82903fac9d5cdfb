/* SPDX-License-Identifier: Apache-2.0 */
#include "stats.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/*
 * DESIGN
 *
 * The names of all values. A value has one name: STATUS and /status list it with its number; /metrics makes its family from
 * the name (scout__stats_metric()) and adds a sentence. Names are only ever added: dashboards and alerts hang on them. A row
 * without a sentence is not in /metrics: an epoch and a version of weights are no quantities, and are labels there.
 *
 * What is counted by opcode, refusal, or operation and result comes from arrays and not from rows.
 *
 * Threads: any; nothing here changes.
 */

/* A row for most values: a count without a unit or a label. AT() is the field's place in the table's structure. */
#define GAUGE(name, field, help)                                                                                       \
	{                                                                                                              \
		name, NULL, help, AT(field), SCOUT__GAUGE, 0, false                                                    \
	}
#define COUNTER(name, field, help)                                                                                     \
	{                                                                                                              \
		name, NULL, help, AT(field), SCOUT__COUNTER, 0, false                                                  \
	}

#define AT(field) (uint16_t) offsetof(struct scout__stats, field)

static const struct scout__stats_item server_items[] = {
	GAUGE("epoch", epoch, NULL),
	{"uptime_ms", NULL, "Since the server started.", AT(uptime_ms), SCOUT__GAUGE, 1000, false},
	GAUGE("draining", draining, "1 while the server stops."),
	GAUGE("namespaces", namespaces, "Namespaces that exist; 64 of them are listed one by one."),
	GAUGE("namespaces.limit", namespaces_limit, "max_namespaces."),
	GAUGE("namespaces.abandoned", namespaces_abandoned,
	      "Of the namespaces, those that all peers have left: they make room for new ones."),
	COUNTER("namespaces.reused", count.namespaces_reused, "Abandoned namespaces that made room for a new one."),
	GAUGE("peers", peers, "Clients and workers that are connected or remembered."),
	GAUGE("peers.limit", peers_limit, "max_peers."),
	COUNTER("peers.joined", count.peers_joined, "Peers that were new."),
	COUNTER("peers.left", count.peers_left, "Peers that left, whatever the reason."),
	COUNTER("peers.died", count.peers_died, "Of those that left, the ones whose process died."),
	COUNTER("peers.forgotten", count.peers_forgotten,
		"Of those that left, the ones that had been silent for too long."),
	COUNTER("peers.dropped", count.peers_dropped,
		"Connections that were ended because they did not read their replies."),
	GAUGE("replies.unsent_bytes", replies_unsent_bytes, "Replies that wait in the ROUTER socket for their peers."),
	GAUGE("connections", connections, "Connections of the ROUTER socket."),
	GAUGE("connections.limit", connections_limit, "Connections that it may have; what comes beyond is shut down."),
	COUNTER("connections.refused", count.connections_refused,
		"Connections shut down, at the limit or as they did not complete the greeting."),
	COUNTER("curve.refused", count.curve_refused, "Connections whose CURVE key was not on the list."),
	GAUGE("channels", channels, "Peers with rings in shared memory."),
	GAUGE("channels.backlog_bytes", channels_backlog_bytes, "Answers that wait for room in these rings."),
	GAUGE("leases", leases, "Lease connections."),
	COUNTER("leases.refused", count.leases_refused, "Lease connections that were refused."),
	GAUGE("sessions", sessions, "Requests that are looked up and not finished."),
	GAUGE("sessions.limit", sessions_limit, "max_sessions."),
	GAUGE("sessions.bytes", sessions_bytes, "Memory of all sessions."),
	GAUGE("requests.bytes", requests_bytes,
	      "Memory of sessions, and of operations that wait, with their messages."),
	GAUGE("requests.bytes_limit", requests_bytes_limit, "max_request_bytes."),
	GAUGE("feeds.bytes", feeds_bytes, "Memory of all feeds: the newest events, and what STORE said of chunks."),
	GAUGE("feeds.bytes_limit", feeds_bytes_limit, "2.25 times feed_bytes."),
	COUNTER("frames.received", count.frames_received, "Frames that arrived."),
	COUNTER("frames.sent", count.frames_sent, "Frames that left."),
	COUNTER("frames.received_shm", count.frames_received_shm,
		"Of the frames that arrived, those through shared memory."),
	COUNTER("frames.sent_shm", count.frames_sent_shm, "Of the frames that left, those through shared memory."),
	COUNTER("frames.dropped", count.frames_dropped,
		"Frames that were not of this protocol, and answers that could not be sent."),
	COUNTER("frames.bad", count.frames_bad,
		"Frames of this protocol that were refused as a whole: protocol errors."),
	COUNTER("replies.undone", count.replies_undone,
		"Grants and promises taken back because their answer could not be sent."),
	{"lookups.full", "result", "Lookups answered: all, some or none of the chunks asked for were a hit.",
	 AT(count.lookups_full), SCOUT__COUNTER, 0, false},
	{"lookups.partial", "result", NULL, AT(count.lookups_partial), SCOUT__COUNTER, 0, false},
	{"lookups.none", "result", NULL, AT(count.lookups_none), SCOUT__COUNTER, 0, false},
	COUNTER("lookups.asked_chunks", count.lookups_asked_chunks, "Chunks that lookups asked for."),
	COUNTER("lookups.hit_chunks", count.lookups_hit_chunks, "Chunks that lookups hit, in both tiers."),
	COUNTER("lookups.known_chunks", count.lookups_known_chunks,
		"Chunks that lookups hit, or would have hit if those evicted lately were still there: what about four times the pool would hit."),
	COUNTER("lookups.lost_chunks", count.lookups_lost_chunks,
		"Chunks that lookups asked for, in the pool and yet no hit, because one before them was not; estimated."),
	COUNTER("lookups.limited", count.lookups_limited,
		"Lookups whose hit was cut short by max_promised or a full pool."),
	COUNTER("lookups.kept_recent_chunks", count.lookups_kept_recent_chunks,
		"Chunks beyond max_promised that a lookup ahead kept from being evicted next."),
	COUNTER("lookups.renewed", count.lookups_renewed,
		"Lookups that were asked anew in their session, and answered."),
	{"keys.hit", "result",
	 "Objects that were asked for by themselves: hits, misses, and those that the server could not tell of in time or not promise.",
	 AT(count.keys_hit), SCOUT__COUNTER, 0, false},
	{"keys.miss", "result", NULL, AT(count.keys_miss), SCOUT__COUNTER, 0, false},
	{"keys.later", "result", NULL, AT(count.keys_later), SCOUT__COUNTER, 0, false},
	COUNTER("hints.likely", count.hints_likely, "Requests that ended with the hint that their prompt returns."),
	COUNTER("hints.unlikely", count.hints_unlikely,
		"Requests that ended with the hint that their prompt does not return."),
	{"keeps.accepted", "outcome",
	 "Requests that ended with keep_ms: all is kept; a part, or for a shorter time; nothing, for want of room; nothing, as there was nothing.",
	 AT(count.keeps[SCOUT_OUTCOME_ACCEPTED]), SCOUT__COUNTER, 0, false},
	{"keeps.clipped", "outcome", NULL, AT(count.keeps[SCOUT_OUTCOME_CLIPPED]), SCOUT__COUNTER, 0, false},
	{"keeps.rejected", "outcome", NULL, AT(count.keeps[SCOUT_OUTCOME_REJECTED]), SCOUT__COUNTER, 0, false},
	{"keeps.missing", "outcome", NULL, AT(count.keeps[SCOUT_OUTCOME_MISSING]), SCOUT__COUNTER, 0, false},
	COUNTER("hints.wrong_chunks", l1.hints_wrong_chunks,
		"Chunks of a sample that were hinted not to return, and were touched again."),
	COUNTER("hints.right_chunks", l1.hints_right_chunks,
		"Chunks of a sample that were hinted not to return, and were not touched for 16 capacities."),
	COUNTER("clears", count.clears, "CLEARs that dropped what a namespace had cached."),
	GAUGE("ops.waiting", ops_waiting, "Operations that are read and not answered."),
	COUNTER("ops.unknown", count.ops_unknown, "Operations with an opcode that is not known."),
	COUNTER("ops.expired", count.ops_expired, "Operations whose budget ended on their way here."),
	COUNTER("ops.refused", count.ops_refused,
		"Operations and frames that were refused; kvscout_refused_total has the reasons."),
	GAUGE("holds", holds, "Retrieves and stores that are running, and quarantine."),
	GAUGE("quarantine", quarantine, "Stores of dead workers whose slots are set aside for dead_writer_ms."),
	COUNTER("verify.mismatches", count.verify_mismatches, "Chunks that were compared, and were other KV."),
	COUNTER("bugs.mismatches", count.bugs_mismatches, "Slots that changed under a copy. A bug: must stay 0."),
	COUNTER("out_of_memory", count.out_of_memory, "Allocations that failed."),
	COUNTER("loop.turns", count.loop_turns, "Turns of the loop."),
	COUNTER("loop.steps", count.loop_steps, "Steps of the loop: each does a bounded piece of work."),
	{"loop.longest_us", NULL, "The longest step since the start.", AT(count.loop_longest_us), SCOUT__GAUGE, 1000000,
	 false},
	COUNTER("loop.slow_steps", count.loop_slow_steps, "Steps that took longer than 200 microseconds."),
	GAUGE("l1.bytes_limit", l1.bytes_limit, "l1_bytes."),
	GAUGE("l1.bytes_extents", l1.bytes_extents, "Slots of all extents that there are."),
	GAUGE("l1.bytes_used", l1.bytes_used, "Slots in use."),
	COUNTER("l1.evictions", l1.evictions, "Chunks that left the pool to make room."),
	GAUGE("l1.bytes_promised", l1.bytes_promised, "Chunks pinned by promises to waiting requests."),
	GAUGE("l1.bytes_promised_limit", l1.bytes_promised_limit, "max_promised."),
	GAUGE("l1.bytes_held", l1.bytes_held, "Chunks that running retrieves and stores hold."),
	GAUGE("l1.bytes_index", l1.bytes_index, "Memory of the index, when all slots are used."),
	GAUGE("l1.chunks", l1.chunks, "Chunks in the pool."),
	GAUGE("l1.slots", l1.slots, "Chunks that the extents have room for."),
	GAUGE("l1.extents", l1.extents, "Extents in use."),
	COUNTER("l1.extents_withdrawn", l1.extents_withdrawn, "Extents taken from one namespace for another."),
	GAUGE("l1.extents_leaving", l1.extents_leaving, "Extents that workers have yet to unmap."),
	COUNTER("l1.extents_pinned", l1.extents_pinned,
		"Times that no namespace could give an extent, as all was pinned."),
	GAUGE("l1.bytes_pool", l1.bytes_pool, "Slots of all extents, also of those that are being made."),
	GAUGE("l1.extra_bytes", l1.extra_bytes, "Generation words and rounding, on top of the slots."),
	COUNTER("l1.growth_failures", l1.growth_failures, "Extents that could not be made."),
	GAUGE("l1.growth_errno", l1.growth_errno, "Errno of the newest extent, if it could not be made; else 0."),
	COUNTER("l1.evictions_unneeded", l1.evictions_unneeded,
		"Of the evictions, objects of windows and states that no known request needed."),
	COUNTER("l1.refusals", l1.refusals, "Stores that got no room."),
	COUNTER("l1.promises_refused", l1.promises_refused, "Promises refused by max_promised."),
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats, field)

static const struct scout__stats_item fetch_items[] = {
	GAUGE("l2.adapters", fetch.adapters, "Stores of L2."),
	COUNTER("l2.lookups", fetch.count.lookups, "Questions of lookups to L2."),
	COUNTER("l2.lookups.late", fetch.count.lookups_late, "Of these, answered without all of what the stores know."),
	COUNTER("l2.lookups.skipped", fetch.count.lookups_skipped, "Lookups that asked no store, as none was usable."),
	COUNTER("l2.lookups.refused", fetch.count.lookups_refused,
		"Lookups that asked no store, as there was no memory for the question."),
	COUNTER("l2.hit_chunks", fetch.count.hit_chunks, "Chunks of hits that were not in the pool."),
	COUNTER("l2.loads", fetch.count.loads, "Shards that were to be loaded."),
	GAUGE("l2.loads.queued", fetch.loads_queued, "Loads that wait."),
	GAUGE("l2.loads.running", fetch.loads_running, "Loads that run."),
	COUNTER("l2.loads.done", fetch.count.loads_done, "Loads that ended well."),
	COUNTER("l2.loads.failed", fetch.count.loads_failed, "Loads that failed."),
	COUNTER("l2.loads.late", fetch.count.loads_late, "Loads that made no progress for l2_timeout_ms."),
	COUNTER("l2.loads.cancelled", fetch.count.loads_cancelled, "Loads that no request needed any more."),
	COUNTER("l2.writes", fetch.count.writes, "Shards that were to be written."),
	GAUGE("l2.writes.waiting", fetch.writes_waiting, "Writes that wait, also for a store that is off, or run."),
	GAUGE("l2.writes.bytes", fetch.writes_bytes, "Bytes of these that keep their slots."),
	GAUGE("l2.writes.bytes_limit", fetch.writes_bytes_limit,
	      "l2_queue_bytes; never more than a quarter of the pool."),
	COUNTER("l2.writes.done", fetch.count.writes_done, "Writes that ended well."),
	COUNTER("l2.writes.failed", fetch.count.writes_failed, "Writes that no store took."),
	COUNTER("l2.writes.dropped", fetch.count.writes_dropped,
		"Writes given up: too many waited, the pool replaced the chunk, or no memory."),
	COUNTER("l2.writes.outdated", fetch.count.writes_outdated,
		"Writes of chunks that a clear or a reset had made void."),
	COUNTER("l2.writes.late", fetch.count.writes_late,
		"Writes that made no progress for timeout_ms of their store."),
	COUNTER("l2.bad_keys", fetch.count.bad_keys, "Chunks whose load failed and that do not count for bad_key_ms."),
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_l2, field)

static const struct scout__stats_item l2_items[] = {
	GAUGE("state", state, "0: starting. 1: works. 2: failing. 3: off, and tried again by itself."),
	{"state_since_ms", NULL, "When this state began, in Unix time.", AT(state_since_ms), SCOUT__GAUGE, 1000, false},
	{"next_try_ms", NULL, "Until a store that is off is tried again.", AT(next_try_ms), SCOUT__GAUGE, 1000, false},
	GAUGE("ready", ready, "1 while the store is there and read: it works, or its writes alone do not."),
	{"breaker.reads", "side", "0: works. 1: switched off. 2: being tried again, also while its records fail.",
	 AT(reads_breaker), SCOUT__GAUGE, 0, false},
	{"breaker.writes", "side", NULL, AT(writes_breaker), SCOUT__GAUGE, 0, false},
	COUNTER("reads_switched_off", count.opened[0], "Times that reading was switched off after failures in a row."),
	COUNTER("writes_switched_off", count.opened[1], "Times that writing was switched off after failures in a row."),
	GAUGE("running", running, "Operations that the store has."),
	COUNTER("late", count.late, "Operations that ended after their deadline."),
	COUNTER("keys_asked", count.keys_asked, "Keys in existence questions."),
	COUNTER("keys_found", count.keys_found, "Of these, those that were there."),
	COUNTER("bytes_loaded", count.bytes_loaded, "Bytes loaded."),
	COUNTER("bytes_stored", count.bytes_stored, "Bytes stored."),
	{"objects", NULL, "Objects in the store, as far as it knows.", AT(gauges.objects), SCOUT__GAUGE, 0, true},
	{"bytes", NULL, "Bytes of these.", AT(gauges.bytes), SCOUT__GAUGE, 0, true},
	{"bytes_limit", NULL, "max_bytes of the store.", AT(gauges.max_bytes), SCOUT__GAUGE, 0, true},
	COUNTER("evictions", gauges.evictions, "Objects removed to make room."),
	GAUGE("pinned", gauges.pinned, "Objects that waiting requests were promised."),
	GAUGE("recovered", gauges.recovered, "Objects taken over at the start."),
	GAUGE("leftovers", gauges.leftover, "Remains of a crash, removed at the start."),
	COUNTER("reconnects", gauges.reconnects, "Connections made anew."),
	COUNTER("moved", gauges.moved,
		"Answers of a cluster that sent an operation to the node that has the slot now."),
	COUNTER("asked", gauges.asked, "Answers of a cluster that sent one operation to another node."),
	COUNTER("login_refused", gauges.login_refused, "Connections that the store did not let in: user or password."),
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_ns, field)

static const struct scout__stats_item ns_items[] = {
	GAUGE("peers", peers, "Clients and workers of the namespace."),
	GAUGE("sessions", sessions, "Requests that are looked up and not finished."),
	GAUGE("holds", holds, "Retrieves and stores that are running."),
	GAUGE("weights", weights, NULL),
	GAUGE("tenants", tenants, "Tenants that something is stored of."),
	GAUGE("chunks", chunks, "Chunks in the pool."),
	GAUGE("slots", slots, "Chunks that its extents have room for."),
	GAUGE("bytes", bytes, "Slots in use."),
	GAUGE("bytes_promised", bytes_promised, "Chunks pinned by promises."),
	GAUGE("bytes_kept", bytes_kept, "Chunks that requests keep after their end, counted once for each of them."),
	GAUGE("bytes_held", bytes_held, "Chunks that running retrieves and stores hold."),
	GAUGE("bytes_extents", bytes_extents, "Slots of its extents."),
	COUNTER("lookups", count.lookups, "Lookups answered."),
	COUNTER("asked_chunks", count.asked_chunks, "Chunks that lookups asked for."),
	COUNTER("hit_chunks", count.hit_chunks, "Chunks that lookups hit, in both tiers."),
	COUNTER("known_chunks", count.known_chunks,
		"Chunks that about four times the pool would hit; see kvscout_lookups_known_chunks_total."),
	{"ceiling_chunks", NULL,
	 "Chunks that a cache without end would hit: the hits, and what was stored since the start or the last clear; estimated.",
	 AT(count.ceiling_chunks), SCOUT__COUNTER, 0, true},
	{"ceiling_sample", NULL, "One chunk in so many is followed for that estimate; 1: it is exact.",
	 AT(ceiling_sample), SCOUT__GAUGE, 0, true},
	COUNTER("asked_tokens", count.asked_tokens, "Tokens of the chunks that lookups asked for."),
	COUNTER("hit_tokens", count.hit_tokens, "Tokens of the chunks that lookups hit."),
	COUNTER("verify.hits", count.verified_hits, "Hits that a worker compared with what it computed itself."),
	GAUGE("bytes_guaranteed", bytes_guaranteed,
	      "What namespace_share gives it of the pool; 0: an equal part of what is left."),
	GAUGE("chunks_set_aside", chunks_set_aside,
	      "Chunks that would have been evicted if the share of their tenant did not keep them."),
	GAUGE("chunk_tokens", chunk_tokens, NULL),
	GAUGE("hash_tokens", hash_tokens, NULL),
	GAUGE("hash_bytes", hash_bytes, NULL),
	GAUGE("kv_ranks", kv_ranks, NULL),
	GAUGE("rank_first", rank_first, NULL),
	GAUGE("rank_count", rank_count, NULL),
	GAUGE("readers", readers, NULL),
	GAUGE("groups", groups, NULL),
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_group, field)

static const struct scout__stats_item group_items[] = {
	GAUGE("bytes", bytes, "Slots in use by a group of a namespace that has several."),
	GAUGE("bytes_extents", bytes_extents, "Slots of its extents."),
	GAUGE("objects", objects, "Its objects in the pool."),
	GAUGE("unneeded", unneeded, "Of these, what no known request needs: they leave first."),
	COUNTER("evictions", evictions, "Its objects that left the pool to make room."),
	COUNTER("hit_objects", hit_objects, "Its objects that the hits of lookups needed."),
	GAUGE("policy", policy, NULL),
	GAUGE("readers", readers, NULL),
	GAUGE("unit_tokens", unit_tokens, NULL),
	GAUGE("span_tokens", span_tokens, NULL),
	GAUGE("margin_tokens", margin_tokens, NULL),
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_tenant, field)

static const struct scout__stats_item tenant_items[] = {
	GAUGE("bytes", bytes, "Chunks of a tenant that tenant_share names."),
	GAUGE("bytes_guaranteed", bytes_guaranteed, "What its share guarantees it now."),
	COUNTER("evicted_over_share", evicted_over_share,
		"Its chunks that made room while it had more than its share."),
	COUNTER("evicted_under_share", evicted_under_share,
		"Its chunks that made room while it had no more than its share: it was idle, asked for the room itself, or all else was pinned."),
	GAUGE("idle", idle,
	      "1 while its share is lent out: others have asked for 16 times the memory since it asked for anything."),
};

#undef AT

#define TABLE(items, prefix)                                                                                           \
	{                                                                                                              \
		items, sizeof(items) / sizeof((items)[0]), prefix                                                      \
	}

const struct scout__stats_table scout__stats_server = TABLE(server_items, "");
const struct scout__stats_table scout__stats_fetch = TABLE(fetch_items, "");
const struct scout__stats_table scout__stats_l2 = TABLE(l2_items, "l2_");
const struct scout__stats_table scout__stats_ns = TABLE(ns_items, "namespace_");
const struct scout__stats_table scout__stats_group = TABLE(group_items, "group_");
const struct scout__stats_table scout__stats_tenant = TABLE(tenant_items, "tenant_");

#undef TABLE

_Static_assert(offsetof(struct scout__stats, ns) <= UINT16_MAX, "offsets fit");

static void
copy_lower(const char *from, char *to, size_t len)
{
	(void)snprintf(to, len, "%s", from);
	for (; *to; to++)
		*to = (char)tolower((unsigned char)*to);
}

void
scout__stats_op_name(unsigned opcode, char *ret_name, size_t len)
{
	copy_lower(scout__op_name(opcode), ret_name, len);
}

void
scout__stats_refusal_name(unsigned status, char *ret_name, size_t len)
{
	copy_lower(status == SCOUT_WIRE_OK ? "other" : scout__wire_name(status), ret_name, len);
}

/* ---- the names of /metrics ---- */

void
scout__stats_metric(const struct scout__stats_table *table, const struct scout__stats_item *item,
		    char ret_family[SCOUT__METRIC_BYTES], char ret_label[SCOUT__METRIC_BYTES])
{
	const char *value = item->label ? strrchr(item->name, '.') : NULL;
	size_t name = value ? (size_t)(value - item->name) : strlen(item->name);
	const char *unit = item->per_unit ? "_seconds" : "", *total = item->kind == SCOUT__COUNTER ? "_total" : "";

	if (item->per_unit)
		name -= 3; /* _us, _ms */
	(void)snprintf(ret_family, SCOUT__METRIC_BYTES, "%s%.*s%s%s", table->prefix, (int)name, item->name, unit,
		       total);
	for (char *c = ret_family; *c; c++)
		*c = *c == '.' ? '_' : *c;
	ret_label[0] = '\0';
	if (value)
		(void)snprintf(ret_label, SCOUT__METRIC_BYTES, "%s=\"%s\"", item->label, value + 1);
}

/* ---- the names of STATUS ---- */

struct list {
	scout__stats_fn fn;
	void *user;
	uint32_t n;
};

static void
put(struct list *list, const char *name, uint64_t value)
{
	list->fn(list->user, name, value);
	list->n++;
}

static void
put_rows(struct list *list, const struct scout__stats_table *table, const char *prefix, const void *of)
{
	char name[2 * SCOUT_MAX_NAME + 64];
	size_t len = (size_t)snprintf(name, sizeof(name), "%s", prefix);

	for (size_t i = 0; i < table->n; i++) {
		const struct scout__stats_item *item = &table->items[i];
		uint64_t value = scout__stats_value(item, of);

		if (item->unknown_is_max && value == UINT64_MAX)
			continue;
		(void)snprintf(name + len, sizeof(name) - len, "%s", item->name);
		put(list, name, value);
	}
}

static void
put_ops(struct list *list, const struct scout__counters *count)
{
	char name[64] = "ops.";

	for (unsigned i = 1; i <= SCOUT_OP_LAST; i++) {
		if (i == SCOUT_OP_ERROR)
			continue;
		scout__stats_op_name(i, name + 4, sizeof(name) - 4);
		put(list, name, count->ops[i]);
	}
}

/* Of /metrics' histogram: how many took longer than the bound before this one, and not longer than this. */
static void
put_times(struct list *list, const char *prefix, const struct scout__latency *times)
{
	char name[64];

	for (unsigned i = 0; i < SCOUT__LATENCY_BOUNDS; i++) {
		(void)snprintf(name, sizeof(name), "%s%u", prefix, (unsigned)scout__latency_bounds_us[i]);
		put(list, name, times->counts[i]);
	}
	(void)snprintf(name, sizeof(name), "%slonger", prefix);
	put(list, name, times->counts[SCOUT__LATENCY_BOUNDS]);
}

/* What has not happened yet is not listed. */
static void
put_refusals(struct list *list, const struct scout__counters *count)
{
	char name[64] = "refused.";

	for (unsigned i = 0; i <= SCOUT_WIRE_LAST; i++) {
		if (count->refused[i] == 0)
			continue;
		scout__stats_refusal_name(i, name + 8, sizeof(name) - 8);
		put(list, name, count->refused[i]);
	}
}

/* What nobody has seen yet is not listed, but for the usual results. */
static void
put_results(struct list *list, const char *prefix, const struct scout__l2_counters *c)
{
	char name[64];

	for (unsigned what = SCOUT__L2_EXISTS; what < SCOUT__L2_WHATS; what++) {
		for (unsigned result = 0; result < SCOUT__L2_RESULTS; result++) {
			if (result != SCOUT__L2_OK && c->results[what][result] == 0)
				continue;
			(void)snprintf(name, sizeof(name), "%s%s.%s", prefix, scout__l2_what_name((uint8_t)what),
				       scout__l2_result_name((uint8_t)result));
			put(list, name, c->results[what][result]);
		}
	}
}

static void
put_adapter(struct list *list, uint32_t i, const struct scout__stats_l2 *a)
{
	char name[SCOUT__STATS_URL + 32], prefix[32];

	(void)snprintf(name, sizeof(name), "l2.%u.url %s", (unsigned)i, a->url);
	put(list, name, 1);
	if (a->words[0]) {
		(void)snprintf(name, sizeof(name), "l2.%u.words %s", (unsigned)i, a->words);
		put(list, name, 1);
	}
	(void)snprintf(prefix, sizeof(prefix), "l2.%u.", (unsigned)i);
	put_rows(list, &scout__stats_l2, prefix, a);
	put_results(list, prefix, &a->count);
}

/* What was not found is not listed. */
static void
put_verified(struct list *list, const struct scout__stats_ns *ns)
{
	static const char *const found[] = {
		"error_ppm.0",      "error_ppm.1000",   "error_ppm.3000",    "error_ppm.10000", "error_ppm.30000",
		"error_ppm.100000", "error_ppm.300000", "error_ppm.1000000", "error_ppm.more",  "mismatches"};
	char n[SCOUT_MAX_NAME + 64];

	for (const struct scout__storer *by = ns->count.by; by < ns->count.by + SCOUT__STORERS; by++) {
		for (uint32_t i = 0; i < SCOUT_FOUND_BOUNDS + 2; i++) {
			if (by->chunks[i] == 0)
				continue;
			(void)snprintf(n, sizeof(n), "ns.%s.verify.by.%016" PRIx64 ".%s", ns->name, by->id, found[i]);
			put(list, n, by->chunks[i]);
		}
	}
}

uint32_t
scout__stats_each(const struct scout__stats *stats, scout__stats_fn fn, void *user)
{
	struct list list = {fn, user, 0};
	char prefix[2 * SCOUT_MAX_NAME + 24];

	put_rows(&list, &scout__stats_server, "", stats);
	put_ops(&list, &stats->count);
	put_times(&list, "lookups.time_us.", &stats->count.lookup_time);
	put_refusals(&list, &stats->count);
	if (stats->has_fetch)
		put_rows(&list, &scout__stats_fetch, "", stats);
	for (uint32_t i = 0; i < stats->n_l2; i++)
		put_adapter(&list, i, &stats->l2[i]);
	for (uint32_t i = 0; i < stats->n_ns; i++) {
		(void)snprintf(prefix, sizeof(prefix), "ns.%s.", stats->ns[i].name);
		put_rows(&list, &scout__stats_ns, prefix, &stats->ns[i]);
		put_verified(&list, &stats->ns[i]);
	}
	for (uint32_t i = 0; i < stats->n_groups; i++) {
		const struct scout__stats_group *group = &stats->groups[i];

		(void)snprintf(prefix, sizeof(prefix), "ns.%s.group.%u.", stats->ns[group->ns].name,
			       (unsigned)group->number);
		put_rows(&list, &scout__stats_group, prefix, group);
	}
	for (uint32_t i = 0; i < stats->n_tenants; i++) {
		const struct scout__stats_tenant *tenant = &stats->tenants[i];

		(void)snprintf(prefix, sizeof(prefix), "ns.%s.tenant.%s.", stats->ns[tenant->ns].name, tenant->name);
		put_rows(&list, &scout__stats_tenant, prefix, tenant);
	}
	return list.n;
}
