/* SPDX-License-Identifier: Apache-2.0 */
#include "group_walk.h"

#include <stdlib.h>
#include <string.h>

#include "fetch.h"
#include "msg.h"
#include "ns.h"
#include "restorable.h"
#include "run_queue.h"
#include "server_core.h"
#include "session.h"

/*
 * DESIGN
 *
 * What a lookup of several groups knows: for each group a bit for each object, whether it is there, whether it is in L2
 * only, and whether the lengths of the answer need it. Which lengths these bits allow, restorable.c says, for the client
 * as for the server.
 *
 * Objects of all groups have one number as well: base of the group plus object. A question to L2 is about them all.
 *
 * The session keeps of each group the range [from, n), with holes where nothing is promised (scout__kept.n_holes): so an
 * object is promised or given back by itself, in any order, and the session may end at any time.
 *
 * Where no worker of this server has layers of a group, the group has no chunk index: all of it counts as present, and
 * there is nothing to promise.
 *
 * KEYS (keys.c) has objects without a prompt around them: of each group those of its part, in the order of the request.
 *
 * Threads: loop.
 */

#define GATHER 64u /* hashes that are looked for at once, when they do not lie one behind the other */

bool
scout__many_is_vacant(const struct scout__ns_group *group)
{
	return group->ns->complete && !group->index;
}

/* ---- making it ---- */

/* Bits and handles of one group. False: no memory. */
SCOUT_ON_LOOP static bool
make_group(struct scout__many_group *mg)
{
	size_t bytes = ((size_t)mg->n + 7) / 8;

	mg->seen = malloc(mg->n * sizeof(*mg->seen) + 3 * bytes + 1);
	if (!mg->seen)
		return false;
	memset(mg->seen, 0xff, mg->n * sizeof(*mg->seen)); /* entry SCOUT__NO_ENTRY */
	mg->present = (uint8_t *)(mg->seen + mg->n);
	mg->in_l2 = mg->present + bytes;
	mg->wanted = mg->in_l2 + bytes;
	memset(mg->present, scout__many_is_vacant(mg->group) ? 0xff : 0, bytes);
	memset(mg->in_l2, 0, 2 * bytes);
	return true;
}

/* For all groups of the namespace, with nothing in it. NULL: no memory. */
SCOUT_ON_LOOP static struct scout__many *
many_alloc(const struct scout__ns *ns)
{
	struct scout__many *many = calloc(1, sizeof(*many) + ns->groups.n * sizeof(many->of[0]));

	if (many)
		many->n_groups = ns->groups.n;
	return many;
}

struct scout__many *
scout__many_new(const struct scout_server *s, const struct scout__pending_op *pending,
		const struct scout__lookup_msg *m)
{
	struct scout__ns *ns = pending->ns;
	struct scout__many *many = many_alloc(ns);
	bool made = true;

	if (!many)
		return NULL;
	many->first = m->first;
	many->skip = m->skip;
	many->total = m->first + m->n;
	many->at_most = many->total - m->beyond;
	many->known = many->total;
	many->want_more = m->more;
	for (uint32_t g = 0; made && g < ns->groups.n; g++) {
		struct scout__many_group *mg = &many->of[g];

		mg->group = &ns->by_group[g];
		mg->base = many->n_objects;
		mg->named = m->first / mg->group->stride;
		mg->from = m->skip / mg->group->stride;
		mg->n = many->total / mg->group->stride;
		mg->space = scout__ns_space(s, ns, &m->tenant, (uint16_t)g);
		many->n_objects += mg->n;
		made = make_group(mg);
	}
	if (made)
		return many;
	scout__many_free(many);
	return NULL;
}

struct scout__many *
scout__many_new_keys(const struct scout_server *s, const struct scout__pending_op *pending,
		     const struct scout__keys_msg *m)
{
	struct scout__ns *ns = pending->ns;
	struct scout__many *many = many_alloc(ns);
	bool made = true;

	if (!many)
		return NULL;
	many->by_key = true;
	for (uint32_t g = 0, part = 0; made && g < ns->groups.n; g++) {
		struct scout__many_group *mg = &many->of[g];

		mg->group = &ns->by_group[g];
		mg->base = many->n_objects;
		mg->space = scout__ns_space(s, ns, &m->tenant, (uint16_t)g);
		if (part < m->n_parts && m->parts[part].group == g)
			mg->n = m->parts[part++].n;
		many->n_objects += mg->n;
		made = make_group(mg);
	}
	if (made)
		return many;
	scout__many_free(many);
	return NULL;
}

void
scout__many_free(struct scout__many *many)
{
	for (uint32_t g = 0; many && g < many->n_groups; g++)
		free(many->of[g].seen);
	free(many);
}

/* The range [from, n) of @kept, with holes where nothing was promised before. */
SCOUT_ON_LOOP static void
open_group(struct scout__kept *kept, struct scout__many_group *mg)
{
	if (kept->kept_from == kept->kept_to) {
		/* A renewal may skip what its session has never looked at. */
		if (kept->hit < mg->from)
			memset(kept->handles + kept->hit, 0xff, (mg->from - kept->hit) * sizeof(kept->handles[0]));
		kept->kept_from = kept->kept_to = kept->hit = mg->from;
	}
	for (uint32_t i = mg->from; i < kept->kept_from; i++)
		kept->handles[i] = (struct scout__handle){SCOUT__NO_ENTRY, 0};
	for (uint32_t i = kept->kept_from; i < kept->kept_to; i++)
		mg->n_promised += kept->handles[i].entry != SCOUT__NO_ENTRY;
	if (mg->from < kept->kept_from) {
		kept->n_holes += kept->kept_from - mg->from;
		kept->kept_from = mg->from;
	}
	memset(kept->handles + kept->kept_to, 0xff, (mg->n - kept->kept_to) * sizeof(kept->handles[0]));
	kept->n_holes += mg->n - kept->kept_to;
	kept->hit = kept->kept_to = mg->n;
}

bool
scout__many_open(struct scout_server *s, struct scout__pending_op *pending)
{
	struct scout__session *session = pending->session;
	struct scout__many *many = pending->many;

	for (uint32_t g = 0; g < many->n_groups; g++)
		if (!scout__kept_resize(s, &session->of[g], many->of[g].n))
			return false;
	for (uint32_t g = 0; g < many->n_groups; g++) {
		struct scout__kept *kept = &session->of[g];

		if (many->of[g].n == 0)
			continue;
		/* Below the skipped part nothing is looked at, but for the objects that the end of the session touches. */
		if (!pending->renews)
			memset(kept->handles, 0xff, many->of[g].n * sizeof(kept->handles[0]));
		open_group(kept, &many->of[g]);
	}
	return true;
}

/* ---- objects ---- */

bool
scout__many_has(const struct scout__pending_op *pending, uint32_t g, uint32_t i)
{
	const struct scout__kept *kept = &pending->session->of[g];

	return i >= kept->kept_from && i < kept->kept_to && kept->handles[i].entry != SCOUT__NO_ENTRY;
}

const uint8_t *
scout__many_hash(const struct scout__pending_op *pending, uint32_t g, uint32_t i)
{
	const struct scout__many *many = pending->many;
	size_t at = many->by_key ? (size_t)many->of[g].base + i
				 : (size_t)(i + 1) * many->of[g].group->stride - 1 - many->first;

	return pending->hashes + at * pending->ns->hash_bytes;
}

struct scout__object
scout__many_object(const struct scout__pending_op *pending, uint32_t number)
{
	const struct scout__many *many = pending->many;
	uint32_t g = many->n_groups - 1, i;
	const struct scout__many_group *mg;

	while (many->of[g].base > number)
		g--;
	mg = &many->of[g];
	i = number - mg->base;
	return (struct scout__object){
		.group = mg->group,
		.hash = i >= mg->named ? scout__many_hash(pending, g, i) : NULL,
		.space = mg->space,
		.is_asked_for = i >= mg->from && !scout__bit(mg->present, i) && mg->group->expected,
	};
}

uint64_t
scout__many_count_shards(const struct scout__many *many)
{
	uint64_t n = 0;

	for (uint32_t g = 0; g < many->n_groups; g++)
		if (many->of[g].group->index)
			n += (uint64_t)(many->of[g].n - many->of[g].from) * many->of[g].group->index->n_ranks;
	return n;
}

/* ---- the pool ---- */

/* The hashes of @n objects from @i on, one behind the other. */
SCOUT_ON_LOOP static const uint8_t *
gather(const struct scout__pending_op *pending, uint32_t g, uint32_t i, uint32_t n, uint8_t *room)
{
	size_t hash_bytes = pending->ns->hash_bytes;

	if (pending->many->of[g].group->stride == 1 || pending->many->by_key)
		return scout__many_hash(pending, g, i);
	for (uint32_t k = 0; k < n; k++)
		memcpy(room + k * hash_bytes, scout__many_hash(pending, g, i + k), hash_bytes);
	return room;
}

/* The pool has object @i, or expects it. */
SCOUT_ON_LOOP static void
note_found(struct scout__pending_op *pending, uint32_t g, uint32_t i, uint32_t entry)
{
	struct scout__many_group *mg = &pending->many->of[g];
	struct scout__chunk_index *index = mg->group->index;

	mg->seen[i] = scout__index_handle(index, entry);
	if (i < mg->from) { /* to be touched at the end of the session */
		if (i < pending->session->of[g].kept_from)
			pending->session->of[g].handles[i] = mg->seen[i];
		return;
	}
	if (!scout__index_counts(index, entry))
		return;
	scout__bit_set(mg->present, i);
	if (!scout__index_is_hit(index, entry))
		scout__bit_set(mg->in_l2, i);
}

/* Look for objects [@i, @i + @n). */
SCOUT_ON_LOOP static void
scan(struct scout__pending_op *pending, uint32_t g, uint32_t i, uint32_t n)
{
	const struct scout__many_group *mg = &pending->many->of[g];
	uint8_t room[GATHER * SCOUT_MAX_HASH];
	const uint8_t *hashes = gather(pending, g, i, n, room);
	uint32_t entries[GATHER];

	for (uint32_t at = 0; at < n; at++) { /* behind a run is one that is not there */
		uint32_t found = scout__index_find_run(mg->group->index, mg->space,
						       hashes + (size_t)at * pending->ns->hash_bytes, n - at, entries);

		for (uint32_t k = 0; k < found; k++)
			note_found(pending, g, i + at + k, entries[k]);
		at += found;
	}
}

/* With which object looking begins. */
SCOUT_ON_LOOP static uint32_t
begin_of(const struct scout__many_group *mg)
{
	bool is_run = mg->group->ns->groups.group[mg->group->number].policy == SCOUT_POLICY_ALL;

	return is_run ? mg->named : mg->from;
}

uint32_t
scout__many_scan(struct scout_server *s, struct scout__pending_op *pending, uint32_t left)
{
	struct scout__many *many = pending->many;

	while (left > 0 && many->g < many->n_groups) {
		struct scout__many_group *mg = &many->of[many->g];
		uint32_t n;

		if (many->i < begin_of(mg))
			many->i = begin_of(mg);
		if (!mg->space)
			mg->space = scout__ns_space(s, pending->ns, &pending->tenant, mg->group->number);
		if (many->i >= mg->n || !mg->space || !mg->group->index) {
			many->g++;
			many->i = 0;
			continue;
		}
		n = mg->n - many->i < GATHER ? mg->n - many->i : GATHER;
		n = n < left ? n : left;
		scan(pending, many->g, many->i, n);
		many->i += n;
		left -= n;
	}
	return left;
}

uint32_t
scout__many_take_found(struct scout_server *s, struct scout__pending_op *pending, uint32_t left)
{
	struct scout__many *many = pending->many;

	while (left > 0 && many->g < many->n_groups) {
		struct scout__many_group *mg = &many->of[many->g];

		if (many->i < mg->from)
			many->i = mg->from;
		if (many->i >= mg->n || !mg->group->expected) {
			many->g++;
			many->i = 0;
			continue;
		}
		if (!scout__bit(mg->present, many->i) && scout__ask_found(s, pending, mg->base + many->i)) {
			scout__bit_set(mg->present, many->i);
			scout__bit_set(mg->in_l2, many->i);
		}
		many->i++;
		left--;
	}
	return left;
}

/* ---- lengths ---- */

struct scout__need
scout__many_need(const struct scout__many *many, const struct scout__many_group *mg, uint32_t length)
{
	const struct scout__ns *ns = mg->group->ns;
	struct scout__need need = {0, 0};

	if (scout__many_is_vacant(mg->group) ||
	    !scout__need_of(&ns->groups.group[mg->group->number], ns->hash_tokens, many->skip, length, &need))
		return (struct scout__need){0, 0};
	need.from = need.from > mg->from ? need.from : mg->from;
	need.to = need.to < mg->n ? need.to : mg->n;
	return need.from < need.to ? need : (struct scout__need){0, 0};
}

/* What @length needs is wanted. */
SCOUT_ON_LOOP static void
want(const struct scout__many *many, struct scout__many_group *mg, uint32_t length)
{
	struct scout__need need = scout__many_need(many, mg, length);

	if (need.from == need.to)
		return;
	for (uint32_t i = need.from; i < need.to; i++)
		scout__bit_set(mg->wanted, i);
	mg->low = mg->low < need.from ? mg->low : need.from;
	mg->high = mg->high > need.to ? mg->high : need.to;
}

/* What the session promises already, or for a lookup ahead all that is there, is wanted, whatever the lengths need. */
SCOUT_ON_LOOP static void
want_besides(const struct scout__pending_op *pending, uint32_t g)
{
	const struct scout__many *many = pending->many;
	struct scout__many_group *mg = &pending->many->of[g];
	uint32_t end = many->known / mg->group->stride;

	if (scout__many_is_vacant(mg->group))
		return;
	for (uint32_t i = mg->from; i < mg->n; i++) {
		bool is_wanted = pending->ahead ? i < end && scout__bit(mg->present, i)
						: pending->renews && scout__many_has(pending, g, i);

		if (!is_wanted)
			continue;
		scout__bit_set(mg->wanted, i);
		mg->low = mg->low < i ? mg->low : i;
		mg->high = mg->high > i ? mg->high : i + 1;
	}
}

SCOUT_ON_LOOP static void
find_lengths(struct scout__pending_op *pending)
{
	struct scout__many *many = pending->many;
	struct scout__presence presence[SCOUT__GROUPS_MAX];
	struct scout__restorable walk;
	uint32_t most = many->at_most < many->known ? many->at_most : many->known, length;

	for (uint32_t g = 0; g < many->n_groups; g++) {
		uint32_t end = many->known / many->of[g].group->stride;

		presence[g] = (struct scout__presence){many->of[g].present, end < many->of[g].n ? end : many->of[g].n};
	}
	scout__restorable_init(&walk, &pending->ns->groups, pending->ns->hash_tokens, presence, many->skip);
	length = scout__restorable_next(&walk, most);
	/* What the GPU has is a hit without it. */
	many->hit = length > many->skip ? length : many->skip;
	many->hit = many->hit > many->floor ? many->hit : many->floor;
	many->n_more = 0;
	while (many->n_more < many->want_more && length > many->skip) {
		if (length < many->hit)
			many->more[many->n_more++] = length;
		length = scout__restorable_next(&walk, length - 1);
	}
}

/* KEYS: all that is there is wanted. */
SCOUT_ON_LOOP static void
want_keys(struct scout__pending_op *pending)
{
	for (uint32_t g = 0; g < pending->many->n_groups; g++) {
		struct scout__many_group *mg = &pending->many->of[g];

		mg->low = 0;
		mg->high = scout__many_is_vacant(mg->group) ? 0 : mg->n;
		memcpy(mg->wanted, mg->present, ((size_t)mg->n + 7) / 8);
	}
}

/* The first object of [from, n) that is missing. */
static uint32_t
first_missing(const struct scout__many_group *mg)
{
	uint32_t i = mg->from;

	while (i < mg->n && scout__bit(mg->present, i))
		i += i % 8 == 0 && mg->present[i / 8] == 0xff ? 8 : 1;
	return i < mg->n ? i : mg->n;
}

/* How far all groups with policy all reach. What is present only becomes less, but for what L2 has. */
SCOUT_ON_LOOP static void
find_parting(struct scout__many *many, const struct scout__groups *groups)
{
	uint32_t parting = UINT32_MAX;

	for (uint32_t g = 0; g < many->n_groups; g++) {
		const struct scout__many_group *mg = &many->of[g];
		uint32_t to;

		if (groups->group[g].policy != SCOUT_POLICY_ALL)
			continue;
		to = first_missing(mg) * mg->group->stride;
		parting = to < parting ? to : parting;
	}
	if (parting != UINT32_MAX && parting > many->parting)
		many->parting = parting;
}

void
scout__many_evaluate(struct scout__pending_op *pending)
{
	struct scout__many *many = pending->many;

	if (many->by_key) {
		want_keys(pending);
		return;
	}
	find_lengths(pending);
	find_parting(many, &pending->ns->groups);
	for (uint32_t g = 0; g < many->n_groups; g++) {
		struct scout__many_group *mg = &many->of[g];

		memset(mg->wanted, 0, ((size_t)mg->n + 7) / 8);
		mg->low = mg->n;
		mg->high = mg->from;
		if (!pending->ahead && many->hit > many->skip)
			want(many, mg, many->hit);
		for (uint32_t i = 0; i < many->n_more; i++)
			want(many, mg, many->more[i]);
		if (pending->ahead || pending->renews)
			want_besides(pending, g);
		if (mg->low > mg->high)
			mg->low = mg->high;
	}
}

void
scout__many_settle(struct scout__pending_op *pending)
{
	struct scout__many *many = pending->many;

	for (uint32_t g = 0; g < many->n_groups; g++) {
		struct scout__many_group *mg = &many->of[g];

		for (uint32_t i = mg->from; !scout__many_is_vacant(mg->group) && i < mg->n; i++) {
			scout__bit_clear(mg->present, i);
			if (scout__many_has(pending, g, i))
				scout__bit_set(mg->present, i);
		}
	}
	find_lengths(pending);
}

uint32_t
scout__many_count(const struct scout__pending_op *pending, uint32_t *ret_l2)
{
	const struct scout__many *many = pending->many;
	uint32_t n = 0, l2 = 0;

	for (uint32_t g = 0; many->hit > many->skip && g < many->n_groups; g++) {
		const struct scout__many_group *mg = &many->of[g];
		struct scout__need need = scout__many_need(many, mg, many->hit);

		n += need.to - need.from;
		for (uint32_t i = need.from; i < need.to; i++)
			l2 += scout__bit(mg->in_l2, i);
	}
	*ret_l2 = l2;
	return n;
}
