/* SPDX-License-Identifier: Apache-2.0 */
#include "stats.h"

#include <ctype.h>
#include <stdio.h>

/*
 * DESIGN
 *
 * The names of all values, for STATUS and /status (a flat list of names and numbers) and for /metrics (families with
 * labels, base units, a sentence each). Names are only ever added: dashboards and alerts hang on them. A row with one
 * name only has a reason: an epoch and a version of weights are no quantities (/metrics has them as labels), and what
 * one side derives from other values is not told twice.
 *
 * What is counted by opcode, refusal, or operation and result comes from arrays and not from rows.
 *
 * Threads: any; nothing here changes.
 */

#define AT(field) (uint16_t) offsetof(struct scout__stats, field)

static const struct scout__stats_item server_items[] = {
	{"epoch", NULL, NULL, NULL, AT(epoch), SCOUT__GAUGE, 0, false},
	{"uptime_ms", "uptime_seconds", NULL, "Since the server started.", AT(uptime_ms), SCOUT__GAUGE, 1000, false},
	{"draining", "draining", NULL, "1 while the server stops.", AT(draining), SCOUT__GAUGE, 0, false},
	{"namespaces", "namespaces", NULL, "Namespaces that exist; 64 of them are listed one by one.", AT(namespaces),
	 SCOUT__GAUGE, 0, false},
	{"namespaces.limit", "namespaces_limit", NULL, "max_namespaces.", AT(namespaces_limit), SCOUT__GAUGE, 0, false},
	{"namespaces.abandoned", "namespaces_abandoned", NULL,
	 "Of the namespaces, those that all peers have left: they make room for new ones.", AT(namespaces_abandoned),
	 SCOUT__GAUGE, 0, false},
	{"namespaces.reused", "namespaces_reused_total", NULL, "Abandoned namespaces that made room for a new one.",
	 AT(count.namespaces_reused), SCOUT__COUNTER, 0, false},
	{"peers", "peers", NULL, "Clients and workers that are connected or remembered.", AT(peers), SCOUT__GAUGE, 0,
	 false},
	{"peers.limit", "peers_limit", NULL, "max_peers.", AT(peers_limit), SCOUT__GAUGE, 0, false},
	{"peers.joined", "peers_joined_total", NULL, "Peers that were new.", AT(count.peers_joined), SCOUT__COUNTER, 0,
	 false},
	{"peers.left", "peers_left_total", NULL, "Peers that left, whatever the reason.", AT(count.peers_left),
	 SCOUT__COUNTER, 0, false},
	{"peers.died", "peers_died_total", NULL, "Of those that left, the ones whose process died.",
	 AT(count.peers_died), SCOUT__COUNTER, 0, false},
	{"peers.forgotten", "peers_forgotten_total", NULL,
	 "Of those that left, the ones that had been silent for too long.", AT(count.peers_forgotten), SCOUT__COUNTER,
	 0, false},
	{"peers.dropped", "peers_dropped_total", NULL,
	 "Connections that were ended because they did not read their replies.", AT(count.peers_dropped),
	 SCOUT__COUNTER, 0, false},
	{"replies.unsent_bytes", "replies_unsent_bytes", NULL,
	 "Replies that wait in the ROUTER socket for their peers.", AT(unsent_bytes), SCOUT__GAUGE, 0, false},
	{"connections", "connections", NULL, "Connections of the ROUTER socket.", AT(connections), SCOUT__GAUGE, 0,
	 false},
	{"connections.limit", "connections_limit", NULL,
	 "Connections that it may have; what comes beyond is shut down.", AT(connections_limit), SCOUT__GAUGE, 0,
	 false},
	{"connections.refused", "connections_refused_total", NULL,
	 "Connections shut down, at the limit or as they did not complete the greeting.", AT(count.conns_refused),
	 SCOUT__COUNTER, 0, false},
	{"curve.refused", "curve_refused_total", NULL, "Connections whose CURVE key was not on the list.",
	 AT(count.curve_refused), SCOUT__COUNTER, 0, false},
	{"channels", "channels", NULL, "Peers with rings in shared memory.", AT(channels), SCOUT__GAUGE, 0, false},
	{"channels.backlog_bytes", "channels_backlog_bytes", NULL, "Answers that wait for room in these rings.",
	 AT(channels_backlog), SCOUT__GAUGE, 0, false},
	{"leases", "leases", NULL, "Lease connections.", AT(leases), SCOUT__GAUGE, 0, false},
	{"leases.refused", "leases_refused_total", NULL, "Lease connections that were refused.",
	 AT(count.leases_refused), SCOUT__COUNTER, 0, false},
	{"sessions", "sessions", NULL, "Requests that are looked up and not finished.", AT(sessions), SCOUT__GAUGE, 0,
	 false},
	{"sessions.limit", "sessions_limit", NULL, "max_sessions.", AT(sessions_limit), SCOUT__GAUGE, 0, false},
	{"sessions.bytes", "sessions_bytes", NULL, "Memory of all sessions.", AT(session_bytes), SCOUT__GAUGE, 0,
	 false},
	{"frames.received", "frames_received_total", NULL, "Frames that arrived.", AT(count.frames_received),
	 SCOUT__COUNTER, 0, false},
	{"frames.sent", "frames_sent_total", NULL, "Frames that left.", AT(count.frames_sent), SCOUT__COUNTER, 0,
	 false},
	{"frames.received_shm", "frames_received_shm_total", NULL,
	 "Of the frames that arrived, those through shared memory.", AT(count.shm_frames_received), SCOUT__COUNTER, 0,
	 false},
	{"frames.sent_shm", "frames_sent_shm_total", NULL, "Of the frames that left, those through shared memory.",
	 AT(count.shm_frames_sent), SCOUT__COUNTER, 0, false},
	{"frames.dropped", "frames_dropped_total", NULL,
	 "Frames that were not of this protocol, and answers that could not be sent.", AT(count.frames_dropped),
	 SCOUT__COUNTER, 0, false},
	{"frames.bad", "frames_bad_total", NULL,
	 "Frames of this protocol that were refused as a whole: protocol errors.", AT(count.frames_bad), SCOUT__COUNTER,
	 0, false},
	{"replies.undone", "replies_undone_total", NULL,
	 "Grants and promises taken back because their answer could not be sent.", AT(count.replies_undone),
	 SCOUT__COUNTER, 0, false},
	{"lookups.full", "lookups_total", "result=\"full\"",
	 "Lookups answered: all, some or none of the chunks asked for were a hit.", AT(count.lookups_full),
	 SCOUT__COUNTER, 0, false},
	{"lookups.partial", "lookups_total", "result=\"partial\"", NULL, AT(count.lookups_partial), SCOUT__COUNTER, 0,
	 false},
	{"lookups.none", "lookups_total", "result=\"none\"", NULL, AT(count.lookups_none), SCOUT__COUNTER, 0, false},
	{"lookups.asked_chunks", "lookup_asked_chunks_total", NULL, "Chunks that lookups asked for.",
	 AT(count.asked_chunks), SCOUT__COUNTER, 0, false},
	{"lookups.hit_chunks", "lookup_hit_chunks_total", NULL, "Chunks that lookups hit, in both tiers.",
	 AT(count.hit_chunks), SCOUT__COUNTER, 0, false},
	{"lookups.lost_chunks", "lookup_lost_chunks_total", NULL,
	 "Chunks that lookups asked for, in the pool and yet no hit, because one before them was not; estimated.",
	 AT(count.lost_chunks), SCOUT__COUNTER, 0, false},
	{"lookups.limited", "lookups_limited_total", NULL,
	 "Lookups whose hit was cut short by max_promised or a full pool.", AT(count.lookups_limited), SCOUT__COUNTER,
	 0, false},
	{"lookups.soon_chunks", "lookup_soon_chunks_total", NULL,
	 "Chunks beyond max_promised that a lookup ahead kept from being evicted next.", AT(count.soon_chunks),
	 SCOUT__COUNTER, 0, false},
	{"lookups.renewed", "lookups_renewed_total", NULL,
	 "Lookups that were asked anew in their session, and answered.", AT(count.lookups_renewed), SCOUT__COUNTER, 0,
	 false},
	{"keys.hit", "lookup_keys_total", "result=\"hit\"",
	 "Objects that were asked for by themselves: hits, misses, and those that the server could not tell of in time or "
	 "not promise.",
	 AT(count.hit_keys), SCOUT__COUNTER, 0, false},
	{"keys.miss", "lookup_keys_total", "result=\"miss\"", NULL, AT(count.miss_keys), SCOUT__COUNTER, 0, false},
	{"keys.later", "lookup_keys_total", "result=\"retry\"", NULL, AT(count.later_keys), SCOUT__COUNTER, 0, false},
	{"hints.likely", "finish_hints_total", "hint=\"likely\"", "Requests that ended with a hint of their caller.",
	 AT(count.hints_likely), SCOUT__COUNTER, 0, false},
	{"hints.unlikely", "finish_hints_total", "hint=\"unlikely\"", NULL, AT(count.hints_unlikely), SCOUT__COUNTER, 0,
	 false},
	{"hints.wrong_chunks", "hinted_chunks_total", "outcome=\"wrong\"",
	 "Chunks of a sample that were hinted not to return: touched again, or not for 16 capacities.",
	 AT(l1.hinted_returned), SCOUT__COUNTER, 0, false},
	{"hints.right_chunks", "hinted_chunks_total", "outcome=\"right\"", NULL, AT(l1.hinted_gone), SCOUT__COUNTER, 0,
	 false},
	{"clears", "clears_total", NULL, "CLEARs that dropped what a namespace had cached.", AT(count.clears),
	 SCOUT__COUNTER, 0, false},
	{"ops.waiting", "operations_waiting", NULL, "Operations that are read and not answered.", AT(pending_ops),
	 SCOUT__GAUGE, 0, false},
	{"ops.unknown", "operations_unknown_total", NULL, "Operations with an opcode that is not known.",
	 AT(count.ops_unknown), SCOUT__COUNTER, 0, false},
	{"ops.expired", "operations_expired_total", NULL, "Operations whose budget ended on their way here.",
	 AT(count.ops_expired), SCOUT__COUNTER, 0, false},
	{"ops.refused", "operations_refused_total", NULL,
	 "Operations and frames that were refused; kvscout_refusals_total has the reasons.", AT(count.ops_refused),
	 SCOUT__COUNTER, 0, false},
	{"holds", "holds", NULL, "Retrieves and stores that are running, and quarantine.", AT(holds), SCOUT__GAUGE, 0,
	 false},
	{"quarantine", "quarantined_holds", NULL,
	 "Stores of dead workers whose slots are set aside for dead_writer_ms.", AT(quarantine), SCOUT__GAUGE, 0,
	 false},
	{"bugs.mismatches", "generation_mismatches_total", NULL, "Slots that changed under a copy. A bug: must stay 0.",
	 AT(count.mismatches), SCOUT__COUNTER, 0, false},
	{"out_of_memory", "out_of_memory_total", NULL, "Allocations that failed.", AT(count.out_of_memory),
	 SCOUT__COUNTER, 0, false},
	{"loop.turns", "loop_turns_total", NULL, "Turns of the loop.", AT(count.turns), SCOUT__COUNTER, 0, false},
	{"loop.steps", "loop_steps_total", NULL, "Steps of the loop: each does a bounded piece of work.",
	 AT(count.steps), SCOUT__COUNTER, 0, false},
	{"loop.longest_us", "loop_longest_step_seconds", NULL, "The longest step since the start.",
	 AT(count.longest_us), SCOUT__GAUGE, 1000000, false},
	{"loop.slow_steps", "loop_slow_steps_total", NULL, "Steps that took longer than 200 microseconds.",
	 AT(count.slow_steps), SCOUT__COUNTER, 0, false},
	{"l1.bytes_limit", "pool_limit_bytes", NULL, "l1_bytes.", AT(l1.limit), SCOUT__GAUGE, 0, false},
	{"l1.bytes_total", "pool_total_bytes", NULL, "Slots of all extents that there are.", AT(l1.total), SCOUT__GAUGE,
	 0, false},
	{"l1.bytes_used", "pool_used_bytes", NULL, "Slots in use.", AT(l1.used), SCOUT__GAUGE, 0, false},
	{NULL, "pool_free_bytes", NULL, "Slots that are not in use.", AT(l1.free), SCOUT__GAUGE, 0, false},
	{"l1.bytes_promised", "promised_bytes", NULL, "Chunks pinned by promises to waiting requests.", AT(l1.promised),
	 SCOUT__GAUGE, 0, false},
	{"l1.bytes_promised_limit", "promised_limit_bytes", NULL, "max_promised.", AT(l1.max_promised), SCOUT__GAUGE, 0,
	 false},
	{"l1.bytes_held", "held_bytes", NULL, "Chunks that running retrieves and stores hold.", AT(l1.held),
	 SCOUT__GAUGE, 0, false},
	{"l1.bytes_index", "index_bytes", NULL, "Memory of the index, when all slots are used.", AT(l1.index),
	 SCOUT__GAUGE, 0, false},
	{"l1.chunks", "chunks", NULL, "Chunks in the pool.", AT(l1.chunks), SCOUT__GAUGE, 0, false},
	{"l1.slots", "slots", NULL, "Chunks that the extents have room for.", AT(l1.slots), SCOUT__GAUGE, 0, false},
	{"l1.extents", "pool_extents", NULL, "Extents in use.", AT(l1.extents), SCOUT__GAUGE, 0, false},
	{"l1.extents_withdrawn", "pool_extents_withdrawn_total", NULL, "Extents taken from one namespace for another.",
	 AT(l1.extents_moved), SCOUT__COUNTER, 0, false},
	{"l1.extents_leaving", "pool_extents_leaving", NULL, "Extents that workers have yet to unmap.",
	 AT(l1.extents_leaving), SCOUT__GAUGE, 0, false},
	{"l1.extents_pinned", "pool_extents_pinned_total", NULL,
	 "Times that no namespace could give an extent, as all was pinned.", AT(l1.rebalance_failed), SCOUT__COUNTER, 0,
	 false},
	{"l1.bytes_pool", "pool_allocated_bytes", NULL, "Slots of all extents, also of those that are being made.",
	 AT(l1.pool), SCOUT__GAUGE, 0, false},
	{"l1.extra_bytes", "pool_extra_bytes", NULL, "Generation words and rounding, on top of the slots.",
	 AT(l1.extra), SCOUT__GAUGE, 0, false},
	{"l1.evictions_unneeded", "evictions_unneeded_total", NULL,
	 "Of the evictions, objects of windows and states that no known request needed.", AT(l1.evictions_unneeded),
	 SCOUT__COUNTER, 0, false},
	{"l1.refusals", "pool_no_room_total", NULL, "Stores that got no room.", AT(l1.refusals), SCOUT__COUNTER, 0,
	 false},
	{"l1.promises_refused", "promises_refused_total", NULL, "Promises refused by max_promised.",
	 AT(l1.promise_limited), SCOUT__COUNTER, 0, false},
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats, field)

static const struct scout__stats_item fetch_items[] = {
	{"l2.adapters", "l2_adapters", NULL, "Stores of L2.", AT(fetch.adapters), SCOUT__GAUGE, 0, false},
	{"l2.lookups", "l2_lookups_total", NULL, "Questions of lookups to L2.", AT(fetch.count.asks), SCOUT__COUNTER, 0,
	 false},
	{"l2.lookups.late", "l2_lookups_late_total", NULL, "Of these, answered without all of what the stores know.",
	 AT(fetch.count.asks_late), SCOUT__COUNTER, 0, false},
	{"l2.lookups.skipped", "l2_lookups_skipped_total", NULL, "Lookups that asked no store, as none was usable.",
	 AT(fetch.count.asks_skipped), SCOUT__COUNTER, 0, false},
	{"l2.lookups.refused", "l2_lookups_refused_total", NULL,
	 "Lookups that asked no store, as there was no memory for the question.", AT(fetch.count.asks_refused),
	 SCOUT__COUNTER, 0, false},
	{"l2.hit_chunks", "l2_hit_chunks_total", NULL, "Chunks of hits that were not in the pool.",
	 AT(fetch.count.hit_chunks), SCOUT__COUNTER, 0, false},
	{"l2.loads", "l2_loads_total", NULL, "Shards that were to be loaded.", AT(fetch.count.loads), SCOUT__COUNTER, 0,
	 false},
	{"l2.loads.queued", "l2_loads_queued", NULL, "Loads that wait.", AT(fetch.loads_queued), SCOUT__GAUGE, 0,
	 false},
	{"l2.loads.running", "l2_loads_running", NULL, "Loads that run.", AT(fetch.loads_running), SCOUT__GAUGE, 0,
	 false},
	{"l2.loads.done", "l2_loads_ended_total", "result=\"done\"", "Loads that ended.", AT(fetch.count.loaded),
	 SCOUT__COUNTER, 0, false},
	{"l2.loads.failed", "l2_loads_ended_total", "result=\"failed\"", NULL, AT(fetch.count.loads_failed),
	 SCOUT__COUNTER, 0, false},
	{"l2.loads.late", "l2_loads_late_total", NULL, "Loads that made no progress for l2_timeout_ms.",
	 AT(fetch.count.loads_late), SCOUT__COUNTER, 0, false},
	{"l2.loads.cancelled", "l2_loads_cancelled_total", NULL, "Loads that no request needed any more.",
	 AT(fetch.count.loads_cancelled), SCOUT__COUNTER, 0, false},
	{"l2.writes", "l2_writes_total", NULL, "Shards that were to be written.", AT(fetch.count.writes_queued),
	 SCOUT__COUNTER, 0, false},
	{"l2.writes.waiting", "l2_writes_waiting", NULL, "Writes that wait or run.", AT(fetch.writes_waiting),
	 SCOUT__GAUGE, 0, false},
	{"l2.writes.bytes", "l2_writes_waiting_bytes", NULL, "Bytes of these.", AT(fetch.write_bytes), SCOUT__GAUGE, 0,
	 false},
	{"l2.writes.bytes_limit", "l2_writes_limit_bytes", NULL,
	 "l2_queue_bytes; never more than a quarter of the pool.", AT(fetch.max_write_bytes), SCOUT__GAUGE, 0, false},
	{"l2.writes.done", "l2_writes_ended_total", "result=\"done\"", "Writes that ended.", AT(fetch.count.written),
	 SCOUT__COUNTER, 0, false},
	{"l2.writes.failed", "l2_writes_ended_total", "result=\"failed\"", NULL, AT(fetch.count.writes_failed),
	 SCOUT__COUNTER, 0, false},
	{"l2.writes.dropped", "l2_writes_ended_total", "result=\"dropped\"", NULL, AT(fetch.count.writes_dropped),
	 SCOUT__COUNTER, 0, false},
	{"l2.writes.outdated", "l2_writes_ended_total", "result=\"outdated\"", NULL, AT(fetch.count.writes_outdated),
	 SCOUT__COUNTER, 0, false},
	{"l2.writes.late", "l2_writes_late_total", NULL, "Writes that made no progress for l2_timeout_ms.",
	 AT(fetch.count.writes_late), SCOUT__COUNTER, 0, false},
	{"l2.bad_keys", "l2_bad_keys_total", NULL, "Chunks whose load failed and that do not count for bad_key_ms.",
	 AT(fetch.count.bad_keys), SCOUT__COUNTER, 0, false},
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_l2, field)

static const struct scout__stats_item l2_items[] = {
	{"ready", "l2_ready", NULL, "1 when the store was reached, and its catalogue is complete.", AT(ready),
	 SCOUT__GAUGE, 0, false},
	{"reads_off", NULL, NULL, NULL, AT(reads_off), SCOUT__GAUGE, 0, false},
	{"writes_off", NULL, NULL, NULL, AT(writes_off), SCOUT__GAUGE, 0, false},
	{NULL, "l2_breaker_state", "side=\"reads\"", "0: works. 1: switched off. 2: being tried again.",
	 AT(reads_breaker), SCOUT__GAUGE, 0, false},
	{NULL, "l2_breaker_state", "side=\"writes\"", NULL, AT(writes_breaker), SCOUT__GAUGE, 0, false},
	{"reads_switched_off", "l2_switched_off_total", "side=\"reads\"",
	 "Times that the store was switched off after failures in a row.", AT(count.opened[0]), SCOUT__COUNTER, 0,
	 false},
	{"writes_switched_off", "l2_switched_off_total", "side=\"writes\"", NULL, AT(count.opened[1]), SCOUT__COUNTER,
	 0, false},
	{NULL, "l2_operations_running", NULL, "Operations that the store has.", AT(running), SCOUT__GAUGE, 0, false},
	{"late", "l2_late_total", NULL, "Operations that ended after their deadline.", AT(count.late), SCOUT__COUNTER,
	 0, false},
	{"keys_asked", "l2_keys_asked_total", NULL, "Keys in existence questions.", AT(count.keys_asked),
	 SCOUT__COUNTER, 0, false},
	{"keys_found", "l2_keys_found_total", NULL, "Of these, those that were there.", AT(count.keys_found),
	 SCOUT__COUNTER, 0, false},
	{"bytes_loaded", "l2_loaded_bytes_total", NULL, "Bytes loaded.", AT(count.bytes_loaded), SCOUT__COUNTER, 0,
	 false},
	{"bytes_stored", "l2_stored_bytes_total", NULL, "Bytes stored.", AT(count.bytes_stored), SCOUT__COUNTER, 0,
	 false},
	{"objects", "l2_objects", NULL, "Objects in the store, as far as it knows.", AT(gauges.objects), SCOUT__GAUGE,
	 0, true},
	{"bytes", "l2_bytes", NULL, "Bytes of these.", AT(gauges.bytes), SCOUT__GAUGE, 0, true},
	{"bytes_limit", "l2_limit_bytes", NULL, "max_bytes of the store.", AT(gauges.max_bytes), SCOUT__GAUGE, 0, true},
	{"evictions", "l2_evictions_total", NULL, "Objects removed to make room.", AT(gauges.evictions), SCOUT__COUNTER,
	 0, false},
	{"pinned", "l2_pinned_objects", NULL, "Objects that waiting requests were promised.", AT(gauges.pinned),
	 SCOUT__GAUGE, 0, false},
	{"recovered", "l2_recovered_objects", NULL, "Objects taken over at the start.", AT(gauges.recovered),
	 SCOUT__GAUGE, 0, false},
	{"leftovers", "l2_leftovers", NULL, "Remains of a crash, removed at the start.", AT(gauges.leftover),
	 SCOUT__GAUGE, 0, false},
	{"reconnects", "l2_reconnects_total", NULL, "Connections made anew.", AT(gauges.reconnects), SCOUT__COUNTER, 0,
	 false},
	{"moved", "l2_redirections_total", "kind=\"moved\"",
	 "Answers of a cluster that sent an operation to another node.", AT(gauges.moved), SCOUT__COUNTER, 0, false},
	{"asked", "l2_redirections_total", "kind=\"ask\"", NULL, AT(gauges.asked), SCOUT__COUNTER, 0, false},
	{"login_refused", "l2_logins_refused_total", NULL,
	 "Connections that the store did not let in: user or password.", AT(gauges.login_refused), SCOUT__COUNTER, 0,
	 false},
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_ns, field)

static const struct scout__stats_item ns_items[] = {
	{"peers", "namespace_peers", NULL, "Clients and workers of the namespace.", AT(peers), SCOUT__GAUGE, 0, false},
	{"sessions", "namespace_sessions", NULL, "Requests that are looked up and not finished.", AT(sessions),
	 SCOUT__GAUGE, 0, false},
	{"holds", "namespace_holds", NULL, "Retrieves and stores that are running.", AT(holds), SCOUT__GAUGE, 0, false},
	{"weights", NULL, NULL, NULL, AT(weights), SCOUT__GAUGE, 0, false},
	{"tenants", "namespace_tenants", NULL, "Tenants that something is stored of.", AT(tenants), SCOUT__GAUGE, 0,
	 false},
	{"chunks", "namespace_chunks", NULL, "Chunks in the pool.", AT(chunks), SCOUT__GAUGE, 0, false},
	{"slots", "namespace_slots", NULL, "Chunks that its extents have room for.", AT(slots), SCOUT__GAUGE, 0, false},
	{"bytes", "namespace_used_bytes", NULL, "Slots in use.", AT(bytes), SCOUT__GAUGE, 0, false},
	{"bytes_promised", "namespace_promised_bytes", NULL, "Chunks pinned by promises.", AT(bytes_promised),
	 SCOUT__GAUGE, 0, false},
	{"bytes_held", "namespace_held_bytes", NULL, "Chunks that running retrieves and stores hold.", AT(bytes_held),
	 SCOUT__GAUGE, 0, false},
	{"bytes_total", "namespace_total_bytes", NULL, "Slots of its extents.", AT(bytes_total), SCOUT__GAUGE, 0,
	 false},
	{"lookups", "namespace_lookups_total", NULL, "Lookups answered.", AT(lookups), SCOUT__COUNTER, 0, false},
	{"asked_chunks", "namespace_lookup_asked_chunks_total", NULL, "Chunks that lookups asked for.",
	 AT(asked_chunks), SCOUT__COUNTER, 0, false},
	{"hit_chunks", "namespace_lookup_hit_chunks_total", NULL, "Chunks that lookups hit, in both tiers.",
	 AT(hit_chunks), SCOUT__COUNTER, 0, false},
	{"asked_tokens", "namespace_lookup_asked_tokens_total", NULL, "Tokens of the chunks that lookups asked for.",
	 AT(asked_tokens), SCOUT__COUNTER, 0, false},
	{"hit_tokens", "namespace_lookup_hit_tokens_total", NULL, "Tokens of the chunks that lookups hit.",
	 AT(hit_tokens), SCOUT__COUNTER, 0, false},
	{"bytes_guaranteed", "namespace_guaranteed_bytes", NULL,
	 "What namespace_share gives it of the pool; 0: an equal part of what is left.", AT(bytes_guaranteed),
	 SCOUT__GAUGE, 0, false},
	{"chunks_set_aside", "namespace_set_aside_chunks", NULL,
	 "Chunks that would have been evicted if the share of their tenant did not keep them.", AT(set_aside),
	 SCOUT__GAUGE, 0, false},
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_group, field)

static const struct scout__stats_item group_items[] = {
	{"bytes", "group_used_bytes", NULL, "Slots in use by a group of a namespace that has several.", AT(bytes),
	 SCOUT__GAUGE, 0, false},
	{"bytes_total", "group_total_bytes", NULL, "Slots of its extents.", AT(bytes_total), SCOUT__GAUGE, 0, false},
	{"objects", "group_objects", NULL, "Its objects in the pool.", AT(objects), SCOUT__GAUGE, 0, false},
	{"unneeded", "group_unneeded_objects", NULL, "Of these, what no known request needs: they leave first.",
	 AT(unneeded), SCOUT__GAUGE, 0, false},
	{"evictions", "group_evictions_total", NULL, "Its objects that left the pool to make room.", AT(evictions),
	 SCOUT__COUNTER, 0, false},
	{"hit_objects", "group_hit_objects_total", NULL, "Its objects that the hits of lookups needed.",
	 AT(hit_objects), SCOUT__COUNTER, 0, false},
};

#undef AT

#define AT(field) (uint16_t) offsetof(struct scout__stats_tenant, field)

static const struct scout__stats_item tenant_items[] = {
	{"bytes", "tenant_used_bytes", NULL, "Chunks of a tenant that tenant_share names.", AT(bytes), SCOUT__GAUGE, 0,
	 false},
	{"bytes_guaranteed", "tenant_guaranteed_bytes", NULL, "What its share guarantees it now.", AT(bytes_guaranteed),
	 SCOUT__GAUGE, 0, false},
	{"evicted_over_share", "tenant_evictions_total", "share=\"over\"",
	 "Its chunks that made room: while it had more than its share, or no more (it was idle, asked for the room itself, "
	 "or all else was pinned).",
	 AT(evicted_over), SCOUT__COUNTER, 0, false},
	{"evicted_under_share", "tenant_evictions_total", "share=\"under\"", NULL, AT(evicted_under), SCOUT__COUNTER, 0,
	 false},
	{"idle", "tenant_idle", NULL,
	 "1 while its share is lent out: others have asked for 16 times the memory since it asked for anything.",
	 AT(idle), SCOUT__GAUGE, 0, false},
};

#undef AT

#define TABLE(items)                                                                                                   \
	{                                                                                                              \
		items, sizeof(items) / sizeof((items)[0])                                                              \
	}

const struct scout__stats_table scout__stats_server = TABLE(server_items);
const struct scout__stats_table scout__stats_fetch = TABLE(fetch_items);
const struct scout__stats_table scout__stats_l2 = TABLE(l2_items);
const struct scout__stats_table scout__stats_ns = TABLE(ns_items);
const struct scout__stats_table scout__stats_group = TABLE(group_items);
const struct scout__stats_table scout__stats_tenant = TABLE(tenant_items);

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

		if (!item->status || (item->unknown_is_max && value == UINT64_MAX))
			continue;
		(void)snprintf(name + len, sizeof(name) - len, "%s", item->status);
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
	put(&list, "l1.evictions", stats->l1.evictions);
	put_ops(&list, &stats->count);
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
