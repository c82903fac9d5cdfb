/* SPDX-License-Identifier: Apache-2.0 */
#include "bank_private.h"

/*
 * DESIGN
 *
 * Purpose: what keeps a chunk in memory, and what happens when nothing does any more.
 *
 * Everything that pins goes through scout__entry_pin(), everything that lets go through scout__entry_unpin(); so an
 * entry is in the policy's order exactly when it is in use and both counts are 0. Counts never wrap: what would
 * overflow is refused.
 *
 * Threads: loop.
 */

void
scout__entry_held(struct scout__bank *bank, uint32_t entry)
{
	if (bank->entries[entry].holds++ == 0)
		bank->held_bytes += bank->chunk_bytes;
}

void
scout__entry_unheld(struct scout__bank *bank, uint32_t entry)
{
	if (--bank->entries[entry].holds == 0)
		bank->held_bytes -= bank->chunk_bytes;
}

/* ---- the order of eviction: what is temporary first, then what the policy says ---- */

void
scout__order_insert(struct scout__bank *bank, uint32_t entry)
{
	struct scout__entry *e = &bank->entries[entry];

	e->in_order = 1;
	if (e->temporary) {
		scout__queues_append(&bank->temporary, 0, entry);
		return;
	}
	bank->l1->policy->insert(bank->policy_state, entry, e->stored ? SCOUT__INSERT_UNPINNED : SCOUT__INSERT_CREATED);
	e->stored = 1;
}

void
scout__order_remove(struct scout__bank *bank, uint32_t entry, enum scout__remove why)
{
	struct scout__entry *e = &bank->entries[entry];

	e->in_order = 0;
	if (e->temporary)
		scout__queues_unlink(&bank->temporary, entry);
	else
		bank->l1->policy->remove(bank->policy_state, entry, why);
}

uint32_t
scout__order_victim(struct scout__bank *bank)
{
	uint32_t entry = scout__queues_head(&bank->temporary, 0);

	return entry != SCOUT__NO_ENTRY ? entry : bank->l1->policy->victim(bank->policy_state);
}

void
scout__order_load_ahead(struct scout__bank *bank)
{
	uint32_t entry = scout__queues_head(&bank->temporary, 0);

	if (entry == SCOUT__NO_ENTRY)
		entry = bank->l1->policy->soon(bank->policy_state);
	/* The queues have loaded the entry itself. */
	if (entry != SCOUT__NO_ENTRY)
		scout__bank_prefetch(bank, bank->entries[entry].space, bank->entries[entry].hash);
}

void
scout__entry_pin(struct scout__bank *bank, uint32_t entry)
{
	if (bank->entries[entry].in_order)
		scout__order_remove(bank, entry, SCOUT__REMOVE_PINNED);
}

void
scout__entry_unpin(struct scout__bank *bank, uint32_t entry)
{
	struct scout__entry *e = &bank->entries[entry];

	if (scout__entry_is_pinned(e))
		return;
	if (e->tracked)
		bank->l1->let_go(bank, entry);
	SCOUT_ASSERT(e->expected == 0);
	if (e->spoiled && e->saving)
		return; /* until it is saved */
	if (e->readable == 0 || e->spoiled)
		scout__entry_discard(bank, entry);
	else
		scout__order_insert(bank, entry);
}

bool
scout__bank_promise(struct scout__bank *bank, uint32_t entry)
{
	struct scout__entry *e = &bank->entries[entry];
	struct scout__l1 *l1 = bank->l1;
	uint32_t units = bank->n_ranks * bank->readers;

	SCOUT_ASSERT(e->in_use);
	if (e->promises > UINT32_MAX - units)
		goto refused;
	if (e->promises == 0) {
		if (l1->promised_bytes > l1->max_promised || l1->max_promised - l1->promised_bytes < bank->chunk_bytes)
			goto refused;
		l1->promised_bytes += bank->chunk_bytes;
		bank->promised_bytes += bank->chunk_bytes;
		scout__entry_pin(bank, entry);
	}
	e->promises += units;
	return true;

refused:
	l1->promise_limited++;
	return false;
}

void
scout__bank_unpromise(struct scout__bank *bank, uint32_t entry, uint32_t units)
{
	struct scout__entry *e = &bank->entries[entry];

	SCOUT_ASSERT(e->in_use && units <= e->promises);
	if (units == 0)
		return;
	e->promises -= units;
	if (e->promises > 0)
		return;
	bank->l1->promised_bytes -= bank->chunk_bytes;
	bank->promised_bytes -= bank->chunk_bytes;
	scout__entry_unpin(bank, entry);
}

bool
scout__bank_hold(struct scout__bank *bank, uint32_t entry, uint32_t rank)
{
	struct scout__entry *e = &bank->entries[entry];

	SCOUT_ASSERT(rank < bank->n_ranks);
	if (!e->in_use || e->spoiled || bank->shard_state[scout__shard_at(bank, entry, rank)] != SCOUT__SHARD_READABLE)
		return false;
	if (e->holds == UINT16_MAX)
		return false;
	scout__entry_pin(bank, entry);
	scout__entry_held(bank, entry);
	return true;
}

void
scout__bank_unhold(struct scout__bank *bank, uint32_t entry, bool last_reader)
{
	struct scout__entry *e = &bank->entries[entry];

	SCOUT_ASSERT(e->in_use && e->holds > 0);
	if (last_reader && !e->temporary)
		bank->l1->policy->read_finished(bank->policy_state, entry);
	scout__entry_unheld(bank, entry);
	scout__entry_unpin(bank, entry);
}

void
scout__bank_touch(struct scout__bank *bank, uint32_t entry, enum scout__access how, uint32_t depth)
{
	if (bank->entries[entry].in_order && !bank->entries[entry].temporary)
		bank->l1->policy->accessed(bank->policy_state, entry, how, depth);
}

bool
scout__bank_drop(struct scout__bank *bank, uint32_t entry)
{
	const struct scout__entry *e = &bank->entries[entry];

	SCOUT_ASSERT(e->in_use);
	if (scout__entry_is_pinned(e) || e->saving)
		return false;
	scout__entry_discard(bank, entry);
	return true;
}

void
scout__bank_spoil(struct scout__bank *bank, uint32_t entry)
{
	if (!scout__bank_drop(bank, entry))
		bank->entries[entry].spoiled = 1;
}
