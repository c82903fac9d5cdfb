/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "fetch.h"
#include "ns.h"
#include "pending_op.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * Which object a shard is, and the side table of a chunk index: what L2 has of an entry (struct scout__expected). The
 * table is chunk_index.owned, one pointer for each entry, free until touched. A record is made when
 * the first shard of an entry is expected, and goes when nothing pins the entry any more (let_go): then the pins in the
 * stores are given back, and loads that have not begun are cancelled. Pins are given back by the digests that were
 * pinned and not by computing them again: the weights version may have become known in between.
 *
 * Bad keys: what failed to load does not count again for bad_key_ms, whatever the store says, or until it is written anew. After an error that
 * may be the store's, as of a lost connection, it is a sixtieth, unless the key had one before in bad_key_ms. A ring in the order of time, since
 * all stay in it equally long, with a map on it; when it is full the oldest is forgotten.
 *
 * Threads: loop.
 */

/* ---- keys ---- */

void
scout__key_of(const struct scout__ns_group *group, uint32_t rank, uint64_t weights, const struct scout__str *tenant,
	      const uint8_t *hash, struct scout__l2_key *ret_key)
{
	scout__l2_key_make(ret_key, &group->fingerprints[rank], weights, group->number,
			   (uint16_t)(group->rank_first + group->ranks[rank]), hash, group->ns->hash_bytes, tenant->p,
			   tenant->len);
}

void
scout__key_of_entry(const struct scout__ns_group *group, uint32_t entry, uint32_t rank, uint64_t weights,
		    uint32_t space, struct scout__l2_key *ret_key)
{
	const struct scout__space *sp = &group->ns->tenants->spaces[space];
	const struct scout__str tenant = {sp->tenant, sp->tenant_len};

	SCOUT_ASSERT(sp->group == group->number);
	scout__key_of(group, rank, weights, &tenant, group->index->entries[entry].hash, ret_key);
}

/* ---- the side table ---- */

SCOUT_ON_LOOP static void
fingerprint(struct scout__ns_group *group)
{
	const struct scout__ns *ns = group->ns;

	for (uint32_t i = 0; group->fingerprints && i < group->index->n_ranks; i++) {
		const struct scout__layout *layout = &group->layouts[group->ranks[i]];
		const struct scout__l2_layout l2 = {
			.name_space = ns->name,
			.name_len = ns->name_len,
			.unit_tokens = ns->groups.group[group->number].unit_tokens,
			.block_tokens = layout->block_tokens,
			.hash_bytes = ns->hash_bytes,
			.kv_ranks = group->kv_ranks,
			.rank = (uint16_t)(group->rank_first + group->ranks[i]),
			.dtype = layout->dtype,
			.n_planes = layout->n_planes,
			.plane_bytes = layout->plane_bytes,
			.layout_tag = layout->layout_tag,
			.generation = ns->generation,
		};

		scout__l2_fingerprint_of(&l2, &group->fingerprints[i]);
	}
}

void
scout__fetch_refingerprint(struct scout__ns *ns)
{
	for (uint32_t i = 0; i < ns->groups.n; i++)
		fingerprint(&ns->by_group[i]);
}

SCOUT_ON_LOOP static bool
make_fingerprints(struct scout__ns_group *group)
{
	group->fingerprints = calloc(group->index->n_ranks, sizeof(*group->fingerprints));
	fingerprint(group);
	return group->fingerprints;
}

void
scout__fetch_open_group(struct scout_server *s, struct scout__ns_group *group)
{
	if (!s->fetch)
		return;
	group->index->user = group;
	group->expected = make_fingerprints(group);
	if (group->expected)
		return;
	s->count.out_of_memory++;
	scout__log(&s->log, SCOUT_LOG_ERROR, "namespace \"%s\", group %u, goes without L2: out of memory",
		   group->ns->name, (unsigned)group->number);
}

void
scout__fetch_close_group(struct scout_server *s, struct scout__ns_group *group)
{
	if (s->fetch)
		(void)scout__writes_forget(s->fetch, group->ns);
	group->expected = false;
	free(group->fingerprints);
	group->fingerprints = NULL;
}

struct scout__expected *
scout__expected_make(struct scout__ns_group *group, uint32_t entry)
{
	struct scout__entry *e = &group->index->entries[entry];
	struct scout__expected *x = group->index->owned[entry];

	if (x)
		return x;
	x = calloc(1, sizeof(*x) + group->index->n_ranks * sizeof(x->shards[0]));
	if (!x)
		return NULL;
	x->space = scout__ns_space_index(group->ns, e->space);
	group->index->owned[entry] = x;
	e->tracked = 1;
	return x;
}

/* What @x knows of a shard is over; its state is the caller's. */
SCOUT_ON_LOOP static void
forget_shard(struct scout_server *s, struct scout__expected_shard *shard)
{
	if (shard->load && !shard->load->running)
		scout__load_cancel(s, shard->load);
	if (shard->pinned)
		scout__fetch_unpin(s, shard->digest, shard->pinned);
	shard->pinned = 0;
}

void
scout__expected_replaced(struct scout_server *s, struct scout__ns_group *group, uint32_t entry, uint32_t rank)
{
	struct scout__expected *x = scout__expected_of(group, entry);

	if (x && !(x->shards[rank].load && x->shards[rank].load->running))
		forget_shard(s, &x->shards[rank]);
}

void
scout__expected_let_go(struct scout__chunk_index *index, uint32_t entry)
{
	struct scout_server *s = index->l1->user;
	struct scout__ns_group *group = index->user;
	struct scout__expected *x = group->index->owned[entry];

	for (uint32_t rank = 0; rank < index->n_ranks; rank++) {
		/* A load that runs holds the entry. */
		SCOUT_ASSERT(!x->shards[rank].load || !x->shards[rank].load->running);
		forget_shard(s, &x->shards[rank]);
		if (scout__index_state(index, entry, rank) == SCOUT__SHARD_EXPECTED)
			scout__index_unexpect_shard(index, entry, rank);
	}
	index->owned[entry] = NULL;
	index->entries[entry].tracked = 0;
	free(x);
	scout__chunk_wake(s, group->ns, index->entries[entry].hash);
}

/* ---- bad keys ---- */

/* Of bad_key_ms: half a second by default. The breaker switches a store off that goes on failing. */
#define STORE_S_PART 60u

static uint64_t
bad_name(struct scout__l2_digest digest)
{
	return digest.lo ^ (digest.hi << 32 | digest.hi >> 32);
}

/* Its place in the ring, or SCOUT__MAP_NONE. */
SCOUT_ON_LOOP static uint32_t
bad_at(const struct scout__fetch *t, struct scout__l2_digest digest)
{
	uint32_t at = t->n_bad ? scout__map_get(&t->bad_map, bad_name(digest)) : SCOUT__MAP_NONE;

	return at != SCOUT__MAP_NONE && scout__same_digest(t->bad[at].digest, digest) ? at : SCOUT__MAP_NONE;
}

SCOUT_ON_LOOP static void
forget_oldest(struct scout__fetch *t)
{
	const struct scout__bad_key *bad = &t->bad[t->bad_first];
	uint64_t name = bad_name(bad->digest);

	/* It may have become bad again since: then the map names its younger place. */
	if (scout__map_get(&t->bad_map, name) == t->bad_first)
		(void)scout__map_del(&t->bad_map, name);
	t->bad_first = (t->bad_first + 1) % SCOUT__BAD_KEYS;
	t->n_bad--;
}

void
scout__bad_add(struct scout_server *s, struct scout__l2_digest digest, bool is_store_s)
{
	struct scout__fetch *t = s->fetch;
	uint64_t bad_us;
	uint32_t at;

	while (t->n_bad > 0 && (t->n_bad == SCOUT__BAD_KEYS || t->bad[t->bad_first].since_us + t->bad_us <= s->now_us))
		forget_oldest(t);
	bad_us = is_store_s && bad_at(t, digest) == SCOUT__MAP_NONE ? t->bad_us / STORE_S_PART : t->bad_us;
	at = (t->bad_first + t->n_bad) % SCOUT__BAD_KEYS;
	t->bad[at] = (struct scout__bad_key){digest, s->now_us, s->now_us + bad_us};
	if (scout__map_put(&t->bad_map, bad_name(digest), at))
		t->n_bad++;
	t->count.bad_keys++;
}

void
scout__bad_end(struct scout_server *s, struct scout__l2_digest digest)
{
	/* Its place in the ring goes with its time. */
	if (bad_at(s->fetch, digest) != SCOUT__MAP_NONE)
		(void)scout__map_del(&s->fetch->bad_map, bad_name(digest));
}

bool
scout__bad_is(const struct scout_server *s, struct scout__l2_digest digest)
{
	uint32_t at = bad_at(s->fetch, digest);

	return at != SCOUT__MAP_NONE && s->fetch->bad[at].until_us > s->now_us;
}
