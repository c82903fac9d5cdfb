/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "tier2.h"

/*
 * DESIGN
 *
 * STATUS: what the server counts, by name. Everything here is read, nothing is walked but the namespaces, so it may be asked
 * every second. Names are only ever added.
 *
 * Threads: loop.
 */

#define NS_ITEMS_MAX 64u /* namespaces beyond these are not listed one by one */
#define BODY_BYTES (8192u + SCOUT__TIER2_STATUS_BYTES + NS_ITEMS_MAX * 11u * 320u)

struct list {
	struct scout__writer *w;
	uint32_t n;
};

SCOUT_ON_LOOP static void
put(struct list *list, const char *name, uint64_t value)
{
	scout__put_status_item(list->w, name, value);
	list->n++;
}

SCOUT_ON_LOOP static void
put_ops(const struct scout_server *s, struct list *list)
{
	char name[64];

	for (unsigned i = 1; i < SCOUT_OP_ERROR; i++) {
		(void)snprintf(name, sizeof(name), "ops.%s", scout__op_name(i));
		for (char *p = name; *p; p++)
			*p = (char)tolower((unsigned char)*p);
		put(list, name, s->count.ops[i]);
	}
	put(list, "ops.unknown", s->count.ops_unknown);
	put(list, "ops.expired", s->count.ops_expired);
	put(list, "ops.refused", s->count.ops_refused);
	put(list, "ops.waiting", s->n_tasks);
}

SCOUT_ON_LOOP static void
put_server(const struct scout_server *s, struct list *list)
{
	put(list, "epoch", s->epoch);
	put(list, "uptime_ms", (s->now_us - s->start_us) / 1000);
	put(list, "namespaces", s->n_ns);
	put(list, "peers", s->cfg.max_peers - s->n_free_peers);
	put(list, "peers.joined", s->count.peers_joined);
	put(list, "peers.left", s->count.peers_left);
	put(list, "peers.died", s->count.peers_died);
	put(list, "peers.forgotten", s->count.peers_forgotten);
	put(list, "connections", s->n_conns);
	put(list, "connections.limit", s->conns_limit);
	put(list, "connections.refused", s->count.conns_refused);
	put(list, "curve.refused", s->count.curve_refused);
	put(list, "leases", s->n_leases);
	put(list, "leases.refused", s->count.leases_refused);
	put(list, "sessions", s->cfg.max_sessions - s->n_free_sessions);
	put(list, "sessions.bytes", s->session_bytes);
	put(list, "frames.received", s->count.frames_received);
	put(list, "frames.sent", s->count.frames_sent);
	put(list, "frames.dropped", s->count.frames_dropped);
	put(list, "frames.bad", s->count.frames_bad);
	put(list, "replies.undone", s->count.replies_undone);
	put(list, "lookups.asked_chunks", s->count.asked_chunks);
	put(list, "lookups.hit_chunks", s->count.hit_chunks);
	put(list, "lookups.limited", s->count.lookups_limited);
	put(list, "holds", SCOUT__MAX_HOLDS - s->n_free_holds);
	put(list, "quarantine", s->n_quarantine);
	put(list, "bugs.mismatches", s->count.mismatches);
	put(list, "out_of_memory", s->count.out_of_memory);
	put(list, "loop.longest_us", s->count.longest_us);
}

struct l1_sums {
	uint64_t used, total, held, chunks, slots, index, extents;
};

SCOUT_ON_LOOP static void
put_l1(const struct scout_server *s, struct list *list, const struct l1_sums *sums)
{
	put(list, "l1.bytes_limit", s->cfg.l1_bytes);
	put(list, "l1.bytes_total", sums->total);
	put(list, "l1.bytes_used", sums->used);
	put(list, "l1.bytes_promised", s->l1.promised_bytes);
	put(list, "l1.bytes_held", sums->held);
	put(list, "l1.bytes_index", sums->index);
	put(list, "l1.chunks", sums->chunks);
	put(list, "l1.slots", sums->slots);
	put(list, "l1.extents", sums->extents);
	put(list, "l1.extents_withdrawn", s->l1.extents_retired);
	put(list, "l1.extents_leaving", s->n_withdrawn);
	put(list, "l1.extents_pinned", s->l1.retire_failed);
	put(list, "l1.bytes_pool", s->l1.pool.used_bytes);
	put(list, "l1.extra_bytes", s->l1.pool.extra_bytes);
	put(list, "l1.evictions", s->l1.evictions);
	put(list, "l1.refusals", s->l1.refusals);
	put(list, "l1.promises_refused", s->l1.promise_limited);
}

SCOUT_ON_LOOP static void
put_ns(const struct scout__ns *ns, struct list *list)
{
	const struct {
		const char *name;
		uint64_t value;
	} items[] = {
		{"peers", ns->n_peers},
		{"sessions", ns->n_sessions},
		{"holds", ns->n_holds},
		{"weights", ns->weights},
		{"tenants", ns->n_spaces},
		{"chunks", ns->bank ? ns->bank->n_entries : 0},
		{"slots", ns->bank ? ns->bank->n_slots : 0},
		{"bytes", ns->bank ? scout__bank_used_bytes(ns->bank) : 0},
		{"bytes_promised", ns->bank ? ns->bank->promised_bytes : 0},
		{"bytes_held", ns->bank ? ns->bank->held_bytes : 0},
		{"bytes_total", ns->bank ? scout__bank_total_bytes(ns->bank) : 0},
	};
	char name[SCOUT_MAX_NAME + 32];

	for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
		(void)snprintf(name, sizeof(name), "ns.%s.%s", ns->name, items[i].name);
		put(list, name, items[i].value);
	}
}

SCOUT_ON_LOOP static struct l1_sums
sum_l1(const struct scout_server *s)
{
	struct l1_sums sums = {0};

	for (uint32_t i = 0; i < s->n_ns; i++) {
		const struct scout__bank *bank = s->ns[i]->bank;

		if (!bank)
			continue;
		sums.used += scout__bank_used_bytes(bank);
		sums.total += scout__bank_total_bytes(bank);
		sums.index += scout__bank_index_bytes(bank);
		sums.held += bank->held_bytes;
		sums.chunks += bank->n_entries;
		sums.slots += bank->n_slots;
		sums.extents += bank->n_extents;
	}
	return sums;
}

void
scout__status(struct scout_server *s, struct scout__dest *dest, const struct scout__op *op)
{
	struct l1_sums sums = sum_l1(s);
	const char *field = "";
	struct list list = {.n = 0};
	size_t at, op_at;
	int status = scout__get_empty(op, &field);

	if (status) {
		scout__refuse(s, dest, op->opcode, op->corr, (uint16_t)status, "STATUS: %s is wrong", field);
		return;
	}
	list.w = scout__reply_begin(s, dest, op->opcode, SCOUT_WIRE_OK, op->corr, BODY_BYTES, &op_at);
	if (!list.w)
		return;
	at = list.w->len;
	scout__put_u32(list.w, 0);
	put_server(s, &list);
	put_ops(s, &list);
	put_l1(s, &list, &sums);
	list.n += scout__tier2_status(s, list.w);
	for (uint32_t i = 0; i < s->n_ns && i < NS_ITEMS_MAX; i++)
		put_ns(s->ns[i], &list);
	scout__patch_u32(list.w, at, list.n);
	scout__reply_end(s, dest, op_at);
}
