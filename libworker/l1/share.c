/* SPDX-License-Identifier: Apache-2.0 */
#include "bank_private.h"
#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: a namespace that filled the pool does not starve another one.
 *
 * The rule. A bank's fair share is l1_bytes divided by the banks that hold or want memory and have somebody to use it. When the
 * pool is used up, a bank that one more extent would lift above its share evicts its own; one below it takes an extent
 * from the bank that is most above its share, and evicts its own or waits while that is on its way. Banks that nobody
 * uses have no share and lose first, and a bank that holds nothing may take from any.
 *
 * Since taking needs room for a whole extent below the share, and lifts nobody above it, two banks at their share do not
 * take from each other in turns.
 *
 * How. share_step() does it in slices: LOOK at the extents of the donor, from the one with its next victim on, for FOUND
 * of them without a pinned entry, and choose the one with the fewest entries in use; DRAIN it: drop its entries, take
 * its slots off the free list. If an entry was pinned meanwhile, UNDO: the slots are given back and another bank is
 * looked at. A drained extent is out of its bank; the server sees that the workers unmap it, then calls
 * share_freed(). Until then its bytes are in use: l1_bytes holds at every moment.
 *
 * A worker that does not answer delays the return of what it has mapped. Nothing more is taken from that donor meanwhile,
 * and after LATE_US another one is asked instead.
 *
 * Rejected: slots of a common size (a chunk of two megabytes and one of three would waste each other's memory), moving
 * entries to empty an extent (workers have their addresses), a quota for each namespace (idle memory).
 *
 * Threads: loop.
 */

#define FOUND 4u
#define LATE_US UINT64_C(1000000)
#define AGAIN_US UINT64_C(100000) /* at the soonest, after nothing was to be had */

enum {
	PHASE_NONE = 0,
	PHASE_LOOK,
	PHASE_DRAIN,
	PHASE_UNDO
};

void
scout__share_join(struct scout__bank *bank)
{
	bank->serial = ++bank->l1->last_serial;
	bank->next = bank->l1->banks;
	bank->l1->banks = bank;
}

static struct scout__bank *
bank_of(const struct scout__l1 *l1, uint64_t serial)
{
	struct scout__bank *bank = l1->banks;

	while (bank && bank->serial != serial)
		bank = bank->next;
	return bank;
}

void
scout__share_settled(struct scout__bank *bank)
{
	bank->l1->n_needy -= bank->needy;
	bank->needy = false;
}

/* The extent that is being drained stays: its slots may be used again. */
static void
begin_to_undo(struct scout__l1 *l1)
{
	struct scout__bank *donor = l1->retire.donor;
	uint32_t fresh = donor->leaving->slots - donor->leaving->fresh;

	donor->n_fresh += fresh;
	donor->n_free += fresh;
	l1->retire.best = donor->leaving;
	l1->retire.look_at = donor->leaving->first;
	l1->retire.phase = PHASE_UNDO;
	donor->leaving = NULL;
	donor->looked = true;
}

void
scout__share_leave(struct scout__bank *bank)
{
	struct scout__l1 *l1 = bank->l1;
	struct scout__bank **at = &l1->banks;

	scout__share_settled(bank);
	if (l1->retire.phase != PHASE_NONE && l1->retire.donor == bank)
		l1->retire.phase = PHASE_NONE;
	if (l1->retire.phase == PHASE_DRAIN && l1->retire.needy == bank)
		begin_to_undo(l1);
	if (l1->retire.needy == bank)
		l1->retire.needy = NULL;
	while (*at != bank)
		at = &(*at)->next;
	*at = bank->next;
}

static uint64_t
held(const struct scout__bank *bank)
{
	return bank->n_slots * bank->chunk_bytes;
}

static uint64_t
extent_bytes(const struct scout__bank *bank)
{
	return scout__pool_extent_slots(&bank->l1->pool, bank->chunk_bytes) * bank->chunk_bytes;
}

/* The fair share of a bank, @bank counted in. */
static uint64_t
share(const struct scout__bank *bank)
{
	uint64_t n = 1;

	for (const struct scout__bank *other = bank->l1->banks; other; other = other->next)
		n += other != bank && !other->idle && (other->n_slots > 0 || other->growing || other->needy);
	return bank->l1->pool.l1_bytes / n;
}

static bool
has_room_below_share(const struct scout__bank *bank, uint64_t fair)
{
	return held(bank) == 0 || held(bank) + extent_bytes(bank) <= fair;
}

bool
scout__share_allows(const struct scout__bank *bank)
{
	if (bank->l1->n_needy == 0 || bank->needy)
		return true;
	return has_room_below_share(bank, share(bank));
}

/* Whether @needy may take from @other at all. */
static bool
may_give(const struct scout__bank *other, const struct scout__bank *needy, uint64_t fair)
{
	if (other == needy || other->n_extents == 0)
		return false;
	if (other->idle || held(needy) == 0)
		return true;
	return held(other) > fair && has_room_below_share(needy, fair);
}

/* Whether @a is to lose before @b. */
static bool
loses_first(const struct scout__bank *a, const struct scout__bank *b)
{
	if (a->idle != b->idle)
		return a->idle;
	return held(a) > held(b);
}

/* From whom @needy takes: NULL if there is nobody, or nobody now (*ret_later). */
static struct scout__bank *
find_donor(const struct scout__bank *needy, bool *ret_later)
{
	uint64_t fair = share(needy);
	struct scout__bank *best = NULL;

	*ret_later = false;
	for (struct scout__bank *other = needy->l1->banks; other; other = other->next) {
		if (!may_give(other, needy, fair) || other->looked)
			continue;
		if (other->n_going > 0)
			*ret_later = true;
		else if (!best || loses_first(other, best))
			best = other;
	}
	return best;
}

static bool
pool_has_room(const struct scout__bank *bank)
{
	const struct scout__pool *pool = &bank->l1->pool;

	return pool->l1_bytes - pool->used_bytes >= bank->chunk_bytes;
}

bool
scout__share_ask(struct scout__bank *bank)
{
	bool later;

	if (bank->needy)
		return true;
	if (!bank->l1->banks->next || bank->growing || !bank->grown_out)
		return false;
	/* There is room, or was: it is tried again soon, or the machine has no memory but what others hold. */
	if (pool_has_room(bank) && !bank->regrow_us)
		return false;
	if (bank->ask_again_us && scout__now_us() < bank->ask_again_us)
		return false;
	if (!find_donor(bank, &later) && !later)
		return false;
	bank->needy = true;
	bank->l1->n_needy++;
	return true;
}

/* ---- taking an extent ---- */

/* An extent of @donor that was never used: at most the newest is one, as it came ahead of its use. */
static struct scout__extent *
find_unused(const struct scout__bank *donor)
{
	struct scout__extent *newest = donor->by_age[donor->n_extents - 1];

	return newest->fresh == 0 ? newest : NULL;
}

static void
begin_to_drain(struct scout__l1 *l1, struct scout__extent *extent)
{
	struct scout__bank *donor = l1->retire.donor;

	donor->leaving = extent;
	donor->n_fresh -= extent->slots - extent->fresh;
	donor->n_free -= extent->slots - extent->fresh;
	l1->retire.look_at = extent->first;
	l1->retire.phase = PHASE_DRAIN;
}

static SCOUT_ON_LOOP void
begin_to_look(struct scout__l1 *l1, struct scout__bank *needy, struct scout__bank *donor)
{
	struct scout__retire *r = &l1->retire;
	uint32_t victim = scout__order_victim(donor);
	struct scout__extent *unused = find_unused(donor);

	*r = (struct scout__retire){.phase = PHASE_LOOK, .needy = needy, .donor = donor};
	if (unused) {
		begin_to_drain(l1, unused);
		return;
	}
	r->look_from = victim == SCOUT__NO_ENTRY ? 0 : scout__bank_extent_from(donor, victim)->first;
	r->look_at = r->look_from;
}

/* Up to @entries of @extent from look_at on. Returns how many were looked at. */
static SCOUT_ON_LOOP uint32_t
look_at_extent(struct scout__retire *r, const struct scout__extent *extent, uint32_t entries)
{
	const struct scout__bank *bank = r->donor;
	uint32_t end = extent->first + extent->fresh;
	uint32_t seen = 0;

	if (r->look_at < extent->first)
		r->look_at = extent->first;
	for (; r->look_at < end && seen < entries && !r->pinned; r->look_at++) {
		const struct scout__entry *e = &bank->entries[r->look_at];

		r->in_use += e->in_use;
		r->pinned = e->in_use && (scout__entry_is_pinned(e) || e->saving);
		seen++;
	}
	if (r->look_at < end && !r->pinned)
		return seen;
	if (!r->pinned) {
		r->n_found++;
		if (!r->best || r->in_use < r->best_in_use) {
			r->best = scout__bank_extent_from(bank, extent->first);
			r->best_in_use = r->in_use;
		}
	}
	r->look_at = extent->first + extent->slots;
	r->in_use = 0;
	r->pinned = false;
	return seen + 1;
}

static SCOUT_ON_LOOP void
look(struct scout__l1 *l1, uint32_t entries)
{
	struct scout__retire *r = &l1->retire;
	uint32_t seen = 0;

	while (seen < entries && r->n_found < FOUND && !(r->best && r->best_in_use == 0)) {
		const struct scout__extent *extent = scout__bank_extent_from(r->donor, r->look_at);

		if (!extent && !r->wrapped) {
			r->wrapped = true;
			r->look_at = 0;
			continue;
		}
		if (!extent || (r->wrapped && extent->first >= r->look_from))
			break;
		seen += look_at_extent(r, extent, entries - seen);
	}
	if (seen >= entries && r->n_found < FOUND && !(r->best && r->best_in_use == 0))
		return;
	if (r->best) {
		begin_to_drain(l1, r->best);
		return;
	}
	r->donor->looked = true;
	r->phase = PHASE_NONE;
}

/* True: the extent is out of its bank. */
static SCOUT_ON_LOOP bool
drain(struct scout__l1 *l1, uint32_t entries)
{
	struct scout__retire *r = &l1->retire;
	struct scout__bank *donor = r->donor;
	struct scout__extent *extent = donor->leaving;
	uint32_t end = extent->first + extent->fresh;

	for (; r->look_at < end && entries > 0; r->look_at++, entries--) {
		const struct scout__entry *e = &donor->entries[r->look_at];

		if (e->is_free) {
			scout__slot_unlist(donor, r->look_at);
		} else if (e->in_use && (scout__entry_is_pinned(e) || e->saving)) {
			begin_to_undo(l1);
			return false;
		} else if (e->in_use) {
			scout__entry_discard(donor, r->look_at);
			l1->evictions++;
		}
	}
	if (r->look_at < end)
		return false;
	donor->leaving = NULL;
	scout__bank_extent_remove(donor, extent);
	return true;
}

static SCOUT_ON_LOOP void
undo(struct scout__l1 *l1, uint32_t entries)
{
	struct scout__retire *r = &l1->retire;
	uint32_t end = r->best->first + r->best->fresh;

	for (; r->look_at < end && entries > 0; r->look_at++, entries--) {
		const struct scout__entry *e = &r->donor->entries[r->look_at];

		if (!e->in_use && !e->is_free)
			scout__slot_put(r->donor, r->look_at);
	}
	if (r->look_at >= end)
		r->phase = PHASE_NONE;
}

static void
note_taken(struct scout__l1 *l1, struct scout__extent *extent, uint64_t now_us)
{
	struct scout__retire *r = &l1->retire;

	extent->taken_from = r->donor->serial;
	extent->taken_for = r->needy->serial;
	r->donor->n_going++;
	r->needy->n_coming++;
	r->needy->coming_us = now_us;
	r->phase = PHASE_NONE;
	l1->extents_retired++;
}

/* Nothing is being taken: begin, if a bank waits and there is a donor. */
static SCOUT_ON_LOOP enum scout__retire_result
begin(struct scout__l1 *l1, uint64_t now_us, struct scout__bank **ret_needy)
{
	struct scout__bank *needy, *donor;
	bool later;

	for (needy = l1->banks; needy; needy = needy->next) {
		if (!needy->needy || needy->growing)
			continue;
		if (needy->n_coming > 0 && now_us - needy->coming_us < LATE_US)
			continue;
		if (pool_has_room(needy) && !needy->regrow_us) {
			scout__bank_ask(needy);
			continue;
		}
		if (needy->round_us == 0)
			needy->round_us = now_us;
		donor = find_donor(needy, &later);
		if (donor) {
			begin_to_look(l1, needy, donor);
			return SCOUT__RETIRE_MORE;
		}
		for (struct scout__bank *bank = l1->banks; bank; bank = bank->next)
			bank->looked = false;
		if (later || needy->n_coming > 0) {
			needy->round_us = 0;
			continue;
		}
		/* Looking at everything again takes its time: no more than a tenth of the loop's. */
		needy->ask_again_us = now_us + AGAIN_US + 10 * (now_us - needy->round_us);
		needy->round_us = 0;
		scout__share_settled(needy);
		l1->retire_failed++;
		*ret_needy = needy;
		return SCOUT__RETIRE_NOTHING;
	}
	return SCOUT__RETIRE_IDLE;
}

enum scout__retire_result
scout__share_step(struct scout__l1 *l1, uint32_t entries, uint64_t now_us, struct scout__extent **ret_extent,
		  struct scout__bank **ret_bank)
{
	struct scout__retire *r = &l1->retire;

	switch (r->phase) {
	case PHASE_LOOK:
		/* It may have got room elsewhere. */
		if (!r->needy || !r->needy->needy)
			r->phase = PHASE_NONE;
		else
			look(l1, entries);
		return SCOUT__RETIRE_MORE;
	case PHASE_DRAIN: {
		struct scout__extent *extent = r->donor->leaving;

		if (!drain(l1, entries / 2))
			return SCOUT__RETIRE_MORE;
		note_taken(l1, extent, now_us);
		*ret_extent = extent;
		*ret_bank = r->donor;
		return SCOUT__RETIRE_TAKEN;
	}
	case PHASE_UNDO:
		undo(l1, entries);
		return SCOUT__RETIRE_MORE;
	default:
		return begin(l1, now_us, ret_bank);
	}
}

void
scout__share_freed(struct scout__l1 *l1, struct scout__extent *extent)
{
	struct scout__bank *donor = bank_of(l1, extent->taken_from);
	struct scout__bank *needy = bank_of(l1, extent->taken_for);

	if (donor)
		donor->n_going--;
	if (needy)
		needy->n_coming--;
	scout__extent_free(&l1->pool, extent);
	if (needy && needy->needy)
		scout__bank_ask(needy);
	for (struct scout__bank *bank = l1->banks; bank; bank = bank->next)
		if (bank->needy)
			scout__bank_ask(bank);
}
