/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "thread.h"

/*
 * A namespace as the pool sees it: its chunk indexes, what they hold together, and the account of each of its tenants.
 * The owner makes an account for each tenant and says which space numbers belong to it; the chunk indexes count.
 * Loop thread.
 */

#define SCOUT__SHARE_IDLE 16u /* capacities that others ask for until a tenant that asks for nothing counts as idle */

/* Of one tenant. Account 0 is for chunks of spaces without an account, those of older weights among them. */
struct scout__account {
	uint64_t era;           /* l1_ns.era that bytes and n_set_aside are of: both are 0 in a later one */
	uint64_t bytes;         /* of its chunks, in all chunk indexes of the namespace */
	uint64_t asked_at;      /* l1_ns.clock when it last asked for chunks or stored one */
	uint64_t evicted_over;  /* chunks evicted to make room while it had more than its guarantee, or none */
	uint64_t evicted_under; /* while it had no more: idle, or asked for the room itself, or all else was pinned */
	uint32_t n_set_aside;   /* of its chunks, see scout__order_set_aside() */
	uint32_t percent;       /* guaranteed, of the namespace's slots; 0: nothing */
	uint64_t kept_bytes;    /* of its chunks, the owner's count: sessions that have ended keep them */
	bool is_other;          /* percent is what each tenant without an own share gets at most */
};

struct scout__l1_ns {
	struct scout__account *accounts; /* NULL until there is one */
	uint32_t n_accounts, cap_accounts;
	uint64_t era;         /* counts what has outdated all accounts at once */
	uint32_t *account_of; /* of the spaces from first_space on */
	uint32_t first_space, n_spaces, cap_spaces;
	uint32_t n_indexes;
	uint32_t n_groups;      /* as many chunk indexes it will have: set before the first; 0: one */
	uint64_t slot_bytes;    /* of all slots of its chunk indexes */
	uint64_t clock;         /* bytes of the chunks that were asked for */
	uint32_t n_set_aside;   /* of all accounts */
	uint32_t n_guaranteed;  /* accounts with a percentage: 0 turns the shares off */
	uint32_t named_percent; /* sum over the accounts that have their own */
	uint32_t n_others;      /* accounts without their own that have chunks */
	uint32_t pool_percent;  /* its share of the pool; 0: an equal part of what is left */
	uint64_t counted;       /* of rebalance_rule.c */
	uint64_t described;     /* bytes of descriptions in its chunk indexes */
	bool watched;           /* the owner is told of hits: see l1.hit_changed. Set by the owner */
};

SCOUT_ON_LOOP void scout__l1_ns_init(struct scout__l1_ns *ns, uint32_t first_space);
/* Every chunk index is gone already. */
SCOUT_ON_ANY void scout__l1_ns_fini(struct scout__l1_ns *ns);

/* A new account, guaranteed nothing. Returns its number, or 0 without memory. */
SCOUT_ON_LOOP uint32_t scout__account_new(struct scout__l1_ns *ns);
/* Guarantee @percent; @is_other: the tenant is one of those that have no share of their own. */
SCOUT_ON_LOOP void scout__account_guarantee(struct scout__l1_ns *ns, uint32_t account, uint32_t percent, bool is_other);
/* Chunks of the next space number, @space, belong to @account. False: no memory. */
SCOUT_ON_LOOP bool scout__account_space(struct scout__l1_ns *ns, uint32_t space, uint32_t account);
/* What all spaces below @space have cached, @bytes, is of older weights: it moves to account 0. */
SCOUT_ON_LOOP void scout__accounts_outdate(struct scout__l1_ns *ns, uint32_t space, uint64_t bytes);
/* Of the chunks of an account. */
static inline SCOUT_ON_LOOP uint64_t
scout__account_bytes(const struct scout__l1_ns *ns, const struct scout__account *account)
{
	return account->era == ns->era ? account->bytes : 0;
}

/* What the account is guaranteed now. */
SCOUT_ON_LOOP uint64_t scout__account_bytes_guaranteed(const struct scout__l1_ns *ns,
						       const struct scout__account *account);
/* Whether its share is lent out: since it last asked for anything, lookups of others have asked for SCOUT__SHARE_IDLE times the capacity. */
static inline SCOUT_ON_LOOP bool
scout__account_is_idle(const struct scout__l1_ns *ns, const struct scout__account *account)
{
	return ns->clock - account->asked_at > SCOUT__SHARE_IDLE * ns->slot_bytes;
}
/*
 * Whether the guarantee of @space's tenant keeps a chunk of @bytes from being evicted for a chunk of @asker's: evicting
 * it would leave the tenant less than that, or it makes room for its own within that.
 */
SCOUT_ON_LOOP bool scout__share_protects(const struct scout__l1_ns *ns, uint32_t space, uint32_t asker, uint64_t bytes);

/* ---- for the chunk indexes ---- */

static inline SCOUT_ON_LOOP struct scout__account *
scout__account_at(const struct scout__l1_ns *ns, uint32_t space)
{
	uint32_t i = space - ns->first_space;

	return &ns->accounts[i < ns->n_spaces ? ns->account_of[i] : 0];
}

/* A chunk comes, and goes. @ns may be NULL. */
static inline SCOUT_ON_LOOP void
scout__share_add(struct scout__l1_ns *ns, uint32_t space, uint64_t bytes)
{
	struct scout__account *account;

	if (!ns || !ns->accounts)
		return;
	account = scout__account_at(ns, space);
	ns->n_others += account->is_other && account->bytes == 0;
	account->bytes += bytes;
	account->asked_at = ns->clock;
}
static inline SCOUT_ON_LOOP void
scout__share_sub(struct scout__l1_ns *ns, uint32_t space, uint64_t bytes)
{
	struct scout__account *account;

	if (!ns || !ns->accounts)
		return;
	account = scout__account_at(ns, space);
	account->bytes -= bytes;
	ns->n_others -= account->is_other && account->bytes == 0;
}
/* A chunk is set aside (1), or is no more (-1). Of a namespace with accounts. */
static inline SCOUT_ON_LOOP void
scout__share_set_aside(struct scout__l1_ns *ns, uint32_t space, int32_t change)
{
	ns->n_set_aside += (uint32_t)change;
	scout__account_at(ns, space)->n_set_aside += (uint32_t)change;
}
/* A lookup of @space's tenant asks for chunks of so many bytes. */
static inline SCOUT_ON_LOOP void
scout__share_asked(struct scout__l1_ns *ns, uint32_t space, uint64_t bytes)
{
	if (!ns || !ns->accounts)
		return;
	ns->clock += bytes;
	scout__account_at(ns, space)->asked_at = ns->clock;
}
