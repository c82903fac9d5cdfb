/* SPDX-License-Identifier: Apache-2.0 */
#include "stats.h"

#include <ctype.h>
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

#define AT(field) (uint16_t) offsetof(struct scout__stats, field)

static const struct scout__stats_item server_items[] = {
	{"epoch", NULL, NULL, AT(epoch), SCOUT__GAUGE, 0, false},
	{"uptime_ms", NULL, "Since the server started.", AT(uptime_ms), SCOUT__GAUGE, 1000, false},
	{"draining", NULL, "1 while the server stops.", AT(draining), SCOUT__GAUGE, 0, false},
	{"namespaces", NULL, "Namespaces that exist; 64 of them are listed one by one.", AT(namespaces), SCOUT__GAUGE,
	 0, false},
	{"namespaces.limit", NULL, "max_namespaces.", AT(namespaces_limit), SCOUT__GAUGE, 0, false},
	{"namespaces.abandoned", NULL,
	 "Of the namespaces, those that all peers have left: they make room for new ones.", AT(namespaces_abandoned),
	 SCOUT__GAUGE, 0, false},
	{"namespaces.reused", NULL, "Abandoned namespaces that made room for a new one.", AT(count.namespaces_reused),
	 SCOUT__COUNTER, 0, false},
	{"peers", NULL, "Clients and workers that are connected or remembered.", AT(peers), SCOUT__GAUGE, 0, false},
	{"peers.limit", NULL, "max_peers.", AT(peers_limit), SCOUT__GAUGE, 0, false},
	{"peers.joined", NULL, "Peers that were new.", AT(count.peers_joined), SCOUT__COUNTER, 0, false},
	{"peers.left", NULL, "Peers that left, whatever the reason.", AT(count.peers_left), SCOUT__COUNTER, 0, false},
	{"peers.died", NULL, "Of those that left, the ones whose process died.", AT(count.peers_died), SCOUT__COUNTER,
	 0, false},
	{"peers.forgotten", NULL, "Of those that left, the ones that had been silent for too long.",
	 AT(count.peers_forgotten), SCOUT__COUNTER, 0, false},
	{"peers.dropped", NULL, "Connections that were ended because they did not read their replies.",
	 AT(count.peers_dropped), SCOUT__COUNTER, 0, false},
	{"replies.unsent_bytes", NULL, "Replies that wait in the ROUTER socket for their peers.",
	 AT(replies_unsent_bytes), SCOUT__GAUGE, 0, false},
	{"connections", NULL, "Connections of the ROUTER socket.", AT(connections), SCOUT__GAUGE, 0, false},
	{"connections.limit", NULL, "Connections that it may have; what comes beyond is shut down.",
	 AT(connections_limit), SCOUT__GAUGE, 0, false},
	{"connections.refused", NULL, "Connections shut down, at the limit or as they did not complete the greeting.",
	 AT(count.connections_refused), SCOUT__COUNTER, 0, false},
	{"curve.refused", NULL, "Connections whose CURVE key was not on the list.", AT(count.curve_refused),
	 SCOUT__COUNTER, 0, false},
	{"channels", NULL, "Peers with rings in shared memory.", AT(channels), SCOUT__GAUGE, 0, false},
	{"channels.backlog_bytes", NULL, "Answers that wait for room in these rings.", AT(channels_backlog_bytes),
	 SCOUT__GAUGE, 0, false},
	{"leases", NULL, "Lease connections.", AT(leases), SCOUT__GAUGE, 0, false},
	{"leases.refused", NULL, "Lease connections that were refused.", AT(count.leases_refused), SCOUT__COUNTER, 0,
	 false},
	{"sessions", NULL, "Requests that are looked up and not finished.", AT(sessions), SCOUT__GAUGE, 0, false},
	{"sessions.limit", NULL, "max_sessions.", AT(sessions_limit), SCOUT__GAUGE, 0, false},
	{"sessions.bytes", NULL, "Memory of all sessions.", AT(sessions_bytes), SCOUT__GAUGE, 0, false},
	{"requests.bytes", NULL, "Memory of sessions, and of operations that wait, with their messages.",
	 AT(requests_bytes), SCOUT__GAUGE, 0, false},
	{"requests.bytes_limit", NULL, "max_request_bytes.", AT(requests_bytes_limit), SCOUT__GAUGE, 0, false},
	{"frames.received", NULL, "Frames that arrived.", AT(count.frames_received), SCOUT__COUNTER, 0, false},
	{"frames.sent", NULL, "Frames that left.", AT(count.frames_sent), SCOUT__COUNTER, 0, false},
	{"frames.received_shm", NULL, "Of the frames that arrived, those through shared memory.",
	 AT(count.frames_received_shm), SCOUT__COUNTER, 0, false},
	{"frames.sent_shm", NULL, "Of the frames that left, those through shared memory.", AT(count.frames_sent_shm),
	 SCOUT__COUNTER, 0, false},
	{"frames.dropped", NULL, "Frames that were not of this protocol, and answers that could not be sent.",
	 AT(count.frames_dropped), SCOUT__COUNTER, 0, false},
	{"frames.bad", NULL, "Frames of this protocol that were refused as a whole: protocol errors.",
	 AT(count.frames_bad), SCOUT__COUNTER, 0, false},
	{"replies.undone", NULL, "Grants and promises taken back because their answer could not be sent.",
	 AT(count.replies_undone), SCOUT__COUNTER, 0, false},
	{"lookups.full", "result", "Lookups answered: all, some or none of the chunks asked for were a hit.",
	 AT(count.lookups_full), SCOUT__COUNTER, 0, false},
	{"lookups.partial", "result", NULL, AT(count.lookups_partial), SCOUT__COUNTER, 0, false},
	{"lookups.none", "result", NULL, AT(count.lookups_none), SCOUT__COUNTER, 0, false},
	{"lookups.asked_chunks", NULL, "Chunks that lookups asked for.", AT(count.lookups_asked_chunks), SCOUT__COUNTER,
	 0, false},
	{"lookups.hit_chunks", NULL, "Chunks that lookups hit, in both tiers.", AT(count.lookups_hit_chunks),
	 SCOUT__COUNTER, 0, false},
	{"lookups.known_chunks", NULL,
	 "Chunks that lookups hit, or would have hit if those evicted lately were still there: what about four times the pool would hit.",
	 AT(count.lookups_known_chunks), SCOUT__COUNTER, 0, false},
	{"lookups.lost_chunks", NULL,
	 "Chunks that lookups asked for, in the pool and yet no hit, because one before them was not; estimated.",
	 AT(count.lookups_lost_chunks), SCOUT__COUNTER, 0, false},
	{"lookups.limited", NULL, "Lookups whose hit was cut short by max_promised or a full pool.",
	 AT(count.lookups_limited), SCOUT__COUNTER, 0, false},
	{"lookups.kept_recent_chunks", NULL,
	 "Chunks beyond max_promised that a lookup ahead kept from being evicted next.",
	 AT(count.lookups_kept_recent_chunks), SCOUT__COUNTER, 0, false},
	{"lookups.renewed", NULL, "Lookups that were asked anew in their session, and answered.",
	 AT(count.lookups_renewed), SCOUT__COUNTER, 0, false},
	{"keys.hit", "result",
	 "Objects that were asked for by themselves: hits, misses, and those that the server could not tell of in time or not promise.",
	 AT(count.keys_hit), SCOUT__COUNTER, 0, false},
	{"keys.miss", "result", NULL, AT(count.keys_miss), SCOUT__COUNTER, 0, false},
	{"keys.later", "result", NULL, AT(count.keys_later), SCOUT__COUNTER, 0, false},
	{"hints.likely", NULL, "Requests that ended with the hint that their prompt returns.", AT(count.hints_likely),
	 SCOUT__COUNTER, 0, false},
	{"hints.unlikely", NULL, "Requests that ended with the hint that their prompt does not return.",
	 AT(count.hints_unlikely), SCOUT__COUNTER, 0, false},
	{"hints.wrong_chunks", NULL, "Chunks of a sample that were hinted not to return, and were touched again.",
	 AT(l1.hints_wrong_chunks), SCOUT__COUNTER, 0, false},
	{"hints.right_chunks", NULL,
	 "Chunks of a sample that were hinted not to return, and were not touched for 16 capacities.",
	 AT(l1.hints_right_chunks), SCOUT__COUNTER, 0, false},
	{"clears", NULL, "CLEARs that dropped what a namespace had cached.", AT(count.clears), SCOUT__COUNTER, 0,
	 false},
	{"ops.waiting", NULL, "Operations that are read and not answered.", AT(ops_waiting), SCOUT__GAUGE, 0, false},
	{"ops.unknown", NULL, "Operations with an opcode that is not known.", AT(count.ops_unknown), SCOUT__COUNTER, 0,
	 false},
	{"ops.expired", NULL, "Operations whose budget ended on their way here.", AT(count.ops_expired), SCOUT__COUNTER,
	 0, false},
	{"ops.refused", NULL, "Operations and frames that were refused; kvscout_refused_total has the reasons.",
	 AT(count.ops_refused), SCOUT__COUNTER, 0, false},
	{"holds", NULL, "Retrieves and stores that are running, and quarantine.", AT(holds), SCOUT__GAUGE, 0, false},
	{"quarantine", NULL, "Stores of dead workers whose slots are set aside for dead_writer_ms.", AT(quarantine),
	 SCOUT__GAUGE, 0, false},
	{"bugs.mismatches", NULL, "Slots that changed under a copy. A bug: must stay 0.", AT(count.bugs_mismatches),
	 SCOUT__COUNTER, 0, false},
	{"out_of_memory", NULL, "Allocations that failed.", AT(count.out_of_memory), SCOUT__COUNTER, 0, false},
	{"loop.turns", NULL, "Turns of the loop.", AT(count.loop_turns), SCOUT__COUNTER, 0, false},
	{"loop.steps", NULL, "Steps of the loop: each does a bounded piece of work.", AT(count.loop_steps),
	 SCOUT__COUNTER, 0, false},
	{"loop.longest_us", NULL, "The longest step since the start.", AT(count.loop_longest_us), SCOUT__GAUGE, 1000000,
	 false},
	{"loop.slow_steps", NULL, "Steps that took longer than 200 microseconds.", AT(count.loop_slow_steps),
	 SCOUT__COUNTER, 0, false},
	{"l1.bytes_limit", NULL, "l1_bytes.", AT(l1.bytes_limit), SCOUT__GAUGE, 0, false},
	{"l1.bytes_extents", NULL, "Slots of all extents that there are.", AT(l1.bytes_extents), SCOUT__GAUGE, 0,
	 false},
	{"l1.bytes_used", NULL, "Slots in use.", AT(l1.bytes_used), SCOUT__GAUGE, 0, false},
	{"l1.evictions", NULL, "Chunks that left the pool to make room.", AT(l1.evictions), SCOUT__COUNTER, 0, false},
	{"l1.bytes_promised", NULL, "Chunks pinned by promises to waiting requests.", AT(l1.bytes_promised),
	 SCOUT__GAUGE, 0, false},
	{"l1.bytes_promised_limit", NULL, "max_promised.", AT(l1.bytes_promised_limit), SCOUT__GAUGE, 0, false},
	{"l1.bytes_held", NULL, "Chunks that running retrieves and stores hold.", AT(l1.bytes_held), SCOUT__GAUGE, 0,
	 false},
	{"l1.bytes_index", NULL, "Memory of the index, when all slots are used.", AT(l1.bytes_index), SCOUT__GAUGE, 0,
	 false},
	{"l1.chunks", NULL, "Chunks in the pool.", AT(l1.chunks), SCOUT__GAUGE, 0, false},
	{"l1.slots", NULL, "Chunks that the extents have room for.", AT(l1.slots), SCOUT__GAUGE, 0, false},
	{"l1.extents", NULL, "Extents in use.", AT(l1.extents), SCOUT__GAUGE, 0, false},
	{"l1.extents_withdrawn", NULL, "Extents taken from one namespace for another.", AT(l1.extents_withdrawn),
	 SCOUT__COUNTER, 0, false},
	{"l1.extents_leaving", NULL, "Extents that workers have yet to unmap.", AT(l1.extents_leaving), SCOUT__GAUGE, 0,
	 false},
	{"l1.extents_pinned", NULL, "Times that no namespace could give an extent, as all was pinned.",
	 AT(l1.extents_pinned), SCOUT__COUNTER, 0, false},
	{"l1.bytes_pool", NULL, "Slots of all extents, also of those that are being made.", AT(l1.bytes_pool),
	 SCOUT__GAUGE, 0, false},
	{"l1.extra_bytes", NULL, "Generation words and rounding, on top of the slots.", AT(l1.extra_bytes),
	 SCOUT__GAUGE, 0, false},
	{"l1.evictions_unneeded", NULL, "Of the evictions, objects of windows and states that no known request needed.",
	 AT(l1.evictions_unneeded), SCOUT__COUNTER, 0, false},
	{"l1.refusals", NULL, "Stores that got no room.", AT(l1.refusals), SCOUT__COUNTER, 0, false},
	{"l1.promises_refused", NULL, "Promises refused by max_promised.", AT(l1.promises_refused), SCOUT__COUNTER, 0,
	 false},
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats, field)

static const struct scout__stats_item fetch_items[] = {
	{"l2.adapters", NULL, "Stores of L2.", AT(fetch.adapters), SCOUT__GAUGE, 0, false},
	{"l2.lookups", NULL, "Questions of lookups to L2.", AT(fetch.count.lookups), SCOUT__COUNTER, 0, false},
	{"l2.lookups.late", NULL, "Of these, answered without all of what the stores know.",
	 AT(fetch.count.lookups_late), SCOUT__COUNTER, 0, false},
	{"l2.lookups.skipped", NULL, "Lookups that asked no store, as none was usable.",
	 AT(fetch.count.lookups_skipped), SCOUT__COUNTER, 0, false},
	{"l2.lookups.refused", NULL, "Lookups that asked no store, as there was no memory for the question.",
	 AT(fetch.count.lookups_refused), SCOUT__COUNTER, 0, false},
	{"l2.hit_chunks", NULL, "Chunks of hits that were not in the pool.", AT(fetch.count.hit_chunks), SCOUT__COUNTER,
	 0, false},
	{"l2.loads", NULL, "Shards that were to be loaded.", AT(fetch.count.loads), SCOUT__COUNTER, 0, false},
	{"l2.loads.queued", NULL, "Loads that wait.", AT(fetch.loads_queued), SCOUT__GAUGE, 0, false},
	{"l2.loads.running", NULL, "Loads that run.", AT(fetch.loads_running), SCOUT__GAUGE, 0, false},
	{"l2.loads.done", NULL, "Loads that ended well.", AT(fetch.count.loads_done), SCOUT__COUNTER, 0, false},
	{"l2.loads.failed", NULL, "Loads that failed.", AT(fetch.count.loads_failed), SCOUT__COUNTER, 0, false},
	{"l2.loads.late", NULL, "Loads that made no progress for l2_timeout_ms.", AT(fetch.count.loads_late),
	 SCOUT__COUNTER, 0, false},
	{"l2.loads.cancelled", NULL, "Loads that no request needed any more.", AT(fetch.count.loads_cancelled),
	 SCOUT__COUNTER, 0, false},
	{"l2.writes", NULL, "Shards that were to be written.", AT(fetch.count.writes), SCOUT__COUNTER, 0, false},
	{"l2.writes.waiting", NULL, "Writes that wait or run.", AT(fetch.writes_waiting), SCOUT__GAUGE, 0, false},
	{"l2.writes.bytes", NULL, "Bytes of these.", AT(fetch.writes_bytes), SCOUT__GAUGE, 0, false},
	{"l2.writes.bytes_limit", NULL, "l2_queue_bytes; never more than a quarter of the pool.",
	 AT(fetch.writes_bytes_limit), SCOUT__GAUGE, 0, false},
	{"l2.writes.done", NULL, "Writes that ended well.", AT(fetch.count.writes_done), SCOUT__COUNTER, 0, false},
	{"l2.writes.failed", NULL, "Writes that failed.", AT(fetch.count.writes_failed), SCOUT__COUNTER, 0, false},
	{"l2.writes.dropped", NULL, "Writes given up: too many waited, no store or no memory.",
	 AT(fetch.count.writes_dropped), SCOUT__COUNTER, 0, false},
	{"l2.writes.outdated", NULL, "Writes of chunks that a clear or a reset had made void.",
	 AT(fetch.count.writes_outdated), SCOUT__COUNTER, 0, false},
	{"l2.writes.late", NULL, "Writes that made no progress for l2_timeout_ms.", AT(fetch.count.writes_late),
	 SCOUT__COUNTER, 0, false},
	{"l2.bad_keys", NULL, "Chunks whose load failed and that do not count for bad_key_ms.",
	 AT(fetch.count.bad_keys), SCOUT__COUNTER, 0, false},
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_l2, field)

static const struct scout__stats_item l2_items[] = {
	{"ready", NULL, "1 when the store was reached, and its catalogue is complete.", AT(ready), SCOUT__GAUGE, 0,
	 false},
	{"breaker.reads", "side", "0: works. 1: switched off. 2: being tried again.", AT(reads_breaker), SCOUT__GAUGE,
	 0, false},
	{"breaker.writes", "side", NULL, AT(writes_breaker), SCOUT__GAUGE, 0, false},
	{"reads_switched_off", NULL, "Times that reading was switched off after failures in a row.",
	 AT(count.opened[0]), SCOUT__COUNTER, 0, false},
	{"writes_switched_off", NULL, "Times that writing was switched off after failures in a row.",
	 AT(count.opened[1]), SCOUT__COUNTER, 0, false},
	{"running", NULL, "Operations that the store has.", AT(running), SCOUT__GAUGE, 0, false},
	{"late", NULL, "Operations that ended after their deadline.", AT(count.late), SCOUT__COUNTER, 0, false},
	{"keys_asked", NULL, "Keys in existence questions.", AT(count.keys_asked), SCOUT__COUNTER, 0, false},
	{"keys_found", NULL, "Of these, those that were there.", AT(count.keys_found), SCOUT__COUNTER, 0, false},
	{"bytes_loaded", NULL, "Bytes loaded.", AT(count.bytes_loaded), SCOUT__COUNTER, 0, false},
	{"bytes_stored", NULL, "Bytes stored.", AT(count.bytes_stored), SCOUT__COUNTER, 0, false},
	{"objects", NULL, "Objects in the store, as far as it knows.", AT(gauges.objects), SCOUT__GAUGE, 0, true},
	{"bytes", NULL, "Bytes of these.", AT(gauges.bytes), SCOUT__GAUGE, 0, true},
	{"bytes_limit", NULL, "max_bytes of the store.", AT(gauges.max_bytes), SCOUT__GAUGE, 0, true},
	{"evictions", NULL, "Objects removed to make room.", AT(gauges.evictions), SCOUT__COUNTER, 0, false},
	{"pinned", NULL, "Objects that waiting requests were promised.", AT(gauges.pinned), SCOUT__GAUGE, 0, false},
	{"recovered", NULL, "Objects taken over at the start.", AT(gauges.recovered), SCOUT__GAUGE, 0, false},
	{"leftovers", NULL, "Remains of a crash, removed at the start.", AT(gauges.leftover), SCOUT__GAUGE, 0, false},
	{"reconnects", NULL, "Connections made anew.", AT(gauges.reconnects), SCOUT__COUNTER, 0, false},
	{"moved", NULL, "Answers of a cluster that sent an operation to the node that has the slot now.",
	 AT(gauges.moved), SCOUT__COUNTER, 0, false},
	{"asked", NULL, "Answers of a cluster that sent one operation to another node.", AT(gauges.asked),
	 SCOUT__COUNTER, 0, false},
	{"login_refused", NULL, "Connections that the store did not let in: user or password.",
	 AT(gauges.login_refused), SCOUT__COUNTER, 0, false},
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_ns, field)

static const struct scout__stats_item ns_items[] = {
	{"peers", NULL, "Clients and workers of the namespace.", AT(peers), SCOUT__GAUGE, 0, false},
	{"sessions", NULL, "Requests that are looked up and not finished.", AT(sessions), SCOUT__GAUGE, 0, false},
	{"holds", NULL, "Retrieves and stores that are running.", AT(holds), SCOUT__GAUGE, 0, false},
	{"weights", NULL, NULL, AT(weights), SCOUT__GAUGE, 0, false},
	{"tenants", NULL, "Tenants that something is stored of.", AT(tenants), SCOUT__GAUGE, 0, false},
	{"chunks", NULL, "Chunks in the pool.", AT(chunks), SCOUT__GAUGE, 0, false},
	{"slots", NULL, "Chunks that its extents have room for.", AT(slots), SCOUT__GAUGE, 0, false},
	{"bytes", NULL, "Slots in use.", AT(bytes), SCOUT__GAUGE, 0, false},
	{"bytes_promised", NULL, "Chunks pinned by promises.", AT(bytes_promised), SCOUT__GAUGE, 0, false},
	{"bytes_held", NULL, "Chunks that running retrieves and stores hold.", AT(bytes_held), SCOUT__GAUGE, 0, false},
	{"bytes_extents", NULL, "Slots of its extents.", AT(bytes_extents), SCOUT__GAUGE, 0, false},
	{"lookups", NULL, "Lookups answered.", AT(lookups), SCOUT__COUNTER, 0, false},
	{"asked_chunks", NULL, "Chunks that lookups asked for.", AT(asked_chunks), SCOUT__COUNTER, 0, false},
	{"hit_chunks", NULL, "Chunks that lookups hit, in both tiers.", AT(hit_chunks), SCOUT__COUNTER, 0, false},
	{"asked_tokens", NULL, "Tokens of the chunks that lookups asked for.", AT(asked_tokens), SCOUT__COUNTER, 0,
	 false},
	{"hit_tokens", NULL, "Tokens of the chunks that lookups hit.", AT(hit_tokens), SCOUT__COUNTER, 0, false},
	{"bytes_guaranteed", NULL, "What namespace_share gives it of the pool; 0: an equal part of what is left.",
	 AT(bytes_guaranteed), SCOUT__GAUGE, 0, false},
	{"chunks_set_aside", NULL,
	 "Chunks that would have been evicted if the share of their tenant did not keep them.", AT(chunks_set_aside),
	 SCOUT__GAUGE, 0, false},
	{"chunk_tokens", NULL, NULL, AT(chunk_tokens), SCOUT__GAUGE, 0, false},
	{"hash_tokens", NULL, NULL, AT(hash_tokens), SCOUT__GAUGE, 0, false},
	{"hash_bytes", NULL, NULL, AT(hash_bytes), SCOUT__GAUGE, 0, false},
	{"kv_ranks", NULL, NULL, AT(kv_ranks), SCOUT__GAUGE, 0, false},
	{"rank_first", NULL, NULL, AT(rank_first), SCOUT__GAUGE, 0, false},
	{"rank_count", NULL, NULL, AT(rank_count), SCOUT__GAUGE, 0, false},
	{"readers", NULL, NULL, AT(readers), SCOUT__GAUGE, 0, false},
	{"groups", NULL, NULL, AT(groups), SCOUT__GAUGE, 0, false},
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_group, field)

static const struct scout__stats_item group_items[] = {
	{"bytes", NULL, "Slots in use by a group of a namespace that has several.", AT(bytes), SCOUT__GAUGE, 0, false},
	{"bytes_extents", NULL, "Slots of its extents.", AT(bytes_extents), SCOUT__GAUGE, 0, false},
	{"objects", NULL, "Its objects in the pool.", AT(objects), SCOUT__GAUGE, 0, false},
	{"unneeded", NULL, "Of these, what no known request needs: they leave first.", AT(unneeded), SCOUT__GAUGE, 0,
	 false},
	{"evictions", NULL, "Its objects that left the pool to make room.", AT(evictions), SCOUT__COUNTER, 0, false},
	{"hit_objects", NULL, "Its objects that the hits of lookups needed.", AT(hit_objects), SCOUT__COUNTER, 0,
	 false},
	{"policy", NULL, NULL, AT(policy), SCOUT__GAUGE, 0, false},
	{"readers", NULL, NULL, AT(readers), SCOUT__GAUGE, 0, false},
	{"unit_tokens", NULL, NULL, AT(unit_tokens), SCOUT__GAUGE, 0, false},
	{"span_tokens", NULL, NULL, AT(span_tokens), SCOUT__GAUGE, 0, false},
	{"margin_tokens", NULL, NULL, AT(margin_tokens), SCOUT__GAUGE, 0, false},
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_tenant, field)

static const struct scout__stats_item tenant_items[] = {
	{"bytes", NULL, "Chunks of a tenant that tenant_share names.", AT(bytes), SCOUT__GAUGE, 0, false},
	{"bytes_guaranteed", NULL, "What its share guarantees it now.", AT(bytes_guaranteed), SCOUT__GAUGE, 0, false},
	{"evicted_over_share", NULL, "Its chunks that made room while it had more than its share.",
	 AT(evicted_over_share), SCOUT__COUNTER, 0, false},
	{"evicted_under_share", NULL,
	 "Its chunks that made room while it had no more than its share: it was idle, asked for the room itself, or all else was pinned.",
	 AT(evicted_under_share), SCOUT__COUNTER, 0, false},
	{"idle", NULL,
	 "1 while its share is lent out: others have asked for 16 times the memory since it asked for anything.",
	 AT(idle), SCOUT__GAUGE, 0, false},
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

	for (unsigned what = SCOUT__L2_EXISTS; what <= SCOUT__L2_REMOVE; what++) {
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
	(void)snprintf(prefix, sizeof(prefix), "l2.%u.", (unsigned)i);
	put_rows(list, &scout__stats_l2, prefix, a);
	put_results(list, prefix, &a->count);
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
