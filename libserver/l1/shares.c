/* SPDX-License-Identifier: Apache-2.0 */
#include "shares.h"

#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "grow_array.h"
#include "lazy.h"

/*
 * DESIGN
 *
 * Purpose: a tenant that floods the pool costs its neighbours nothing that they were guaranteed.
 *
 * A tenant is guaranteed a percentage of the namespace's slots. While it has no more than that, chunks of others are
 * evicted and not its own: when the policy names one of them, the chunk index sets it aside (chunk_index_pins.c) and
 * the policy names the next. What is set aside goes first as soon as its tenant is above its guarantee. So each tenant
 * loses its own chunks in the policy's order; no tenant needs a queue, and a chunk is set aside at most once for each
 * time that it is used.
 *
 * Nothing is kept free: what a tenant does not use, others use until it asks. A tenant that has asked for nothing
 * during SHARE_IDLE capacities lends out its share, chunks and all; its next lookup or store ends that.
 *
 * Tenants without a share of their own have none, or `others` percent each, as far as the named ones leave room: with
 * too many of them, each has an equal part of what is left.
 *
 * Rejected: to send what is above the share to a queue that goes first (SPARE of hdc.c). Its head competes by the index
 * of its class, so a chunk of a flood that was just stored beats what the neighbour used an hour ago; and made strictly
 * first, it leaves the flooding tenant the oldest chunks of its own, because those stay where they were.
 *
 * Threads: loop.
 */

void
scout__l1_ns_init(struct scout__l1_ns *ns, uint32_t first_space)
{
	memset(ns, 0, sizeof(*ns));
	ns->first_space = first_space;
}

void
scout__l1_ns_fini(struct scout__l1_ns *ns)
{
	SCOUT_ASSERT(ns->n_indexes == 0);
	scout__lazy_free(ns->accounts, ns->cap_accounts * sizeof(*ns->accounts));
	free(ns->account_of);
}

uint32_t
scout__account_new(struct scout__l1_ns *ns)
{
	if (ns->n_accounts == ns->cap_accounts) {
		uint32_t cap = ns->cap_accounts ? ns->cap_accounts * 2 : 16;
		struct scout__account *accounts =
			scout__grow_array(ns->accounts, ns->cap_accounts * sizeof(*accounts), cap * sizeof(*accounts));

		if (!accounts)
			return 0;
		ns->n_accounts = ns->n_accounts ? ns->n_accounts : 1;
		ns->accounts = accounts;
		ns->cap_accounts = cap;
	}
	ns->accounts[ns->n_accounts] = (struct scout__account){.asked_at = ns->clock};
	return ns->n_accounts++;
}

void
scout__account_guarantee(struct scout__l1_ns *ns, uint32_t account, uint32_t percent, bool is_other)
{
	struct scout__account *a = &ns->accounts[account];

	ns->n_guaranteed += (percent > 0) - (a->percent > 0);
	ns->named_percent -= a->is_other ? 0 : a->percent;
	ns->named_percent += is_other ? 0 : percent;
	ns->n_others -= a->is_other && scout__account_bytes(ns, a) > 0;
	ns->n_others += is_other && scout__account_bytes(ns, a) > 0;
	a->percent = percent;
	a->is_other = is_other;
}

bool
scout__account_space(struct scout__l1_ns *ns, uint32_t space, uint32_t account)
{
	struct scout__account *a = &ns->accounts[account];

	SCOUT_ASSERT(space == ns->first_space + ns->n_spaces);
	if (ns->n_spaces == ns->cap_spaces) {
		uint32_t cap = ns->cap_spaces ? ns->cap_spaces * 2 : 16;
		uint32_t *account_of = realloc(ns->account_of, cap * sizeof(*account_of));

		if (!account_of)
			return false;
		ns->account_of = account_of;
		ns->cap_spaces = cap;
	}
	if (a->era != ns->era)
		a->bytes = a->n_set_aside = 0;
	a->era = ns->era;
	ns->account_of[ns->n_spaces++] = account;
	return true;
}

void
scout__accounts_outdate(struct scout__l1_ns *ns, uint32_t space, uint64_t bytes)
{
	/* Not one by one: there may be tens of thousands. */
	ns->era++;
	if (ns->n_accounts) {
		ns->accounts[0].bytes = bytes;
		ns->accounts[0].n_set_aside = ns->n_set_aside;
	}
	ns->n_others = 0;
	ns->first_space = space;
	ns->n_spaces = 0;
}

uint64_t
scout__account_bytes_guaranteed(const struct scout__l1_ns *ns, const struct scout__account *account)
{
	uint32_t left, n;

	if (!account->is_other)
		return ns->slot_bytes / 100 * account->percent;
	left = ns->named_percent < 100 ? 100 - ns->named_percent : 0;
	/* One without chunks is about to be one more of them. */
	n = ns->n_others + (scout__account_bytes(ns, account) == 0);
	if ((uint64_t)account->percent * n <= left)
		return ns->slot_bytes / 100 * account->percent;
	return ns->slot_bytes / 100 * left / n;
}

bool
scout__share_protects(const struct scout__l1_ns *ns, uint32_t space, uint32_t asker, uint64_t bytes)
{
	const struct scout__account *account = scout__account_at(ns, space);
	uint64_t guaranteed;

	if (account->percent == 0 || scout__account_is_idle(ns, account))
		return false;
	guaranteed = scout__account_bytes_guaranteed(ns, account);
	if (account == scout__account_at(ns, asker))
		return account->bytes + bytes <= guaranteed;
	return account->bytes < guaranteed + bytes;
}
