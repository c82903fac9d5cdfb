/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check_main.h"
#include "client_internal.h"
#include "random.h"

/* The table of live requests against an array of flags, while it grows, shrinks and is emptied. No courier. */

#define IDS 20000u
#define TURNS 400000u

static struct scout_client *client;
static uint32_t slot_of[IDS]; /* SCOUT__NO_SLOT: not live */
static uint64_t seed = 88172645463325252u;

static uint32_t
random_below(uint32_t n)
{
	return (uint32_t)(xorshift(&seed) >> 32) % n;
}

static size_t
name_of(char id[16], uint32_t i)
{
	return (size_t)snprintf(id, 16, "req-%u", i);
}

static void
up(void)
{
	client = aligned_alloc(_Alignof(struct scout_client), sizeof(*client));
	ck_assert_ptr_nonnull(client);
	memset(client, 0, sizeof(*client));
	client->n_links = 1;
	client->cfg.max_lookups = IDS / 2;
	client->n_slots = IDS;
	ck_assert_int_eq(scout__table_init(client), 0);
	ck_assert_int_eq(scout__ring_init(&client->freed, 16), 0);
	for (uint32_t i = 0; i < IDS; i++)
		slot_of[i] = SCOUT__NO_SLOT;
}

static void
down(void)
{
	scout__ring_fini(&client->freed);
	scout__table_fini(client);
	free(client);
}

static void
add(uint32_t i)
{
	char id[16];
	size_t len = name_of(id, i);

	slot_of[i] = scout__table_add(client, id, len, scout__id_hash(id, len));
}

static void
forget(uint32_t i)
{
	scout__table_forget(client, slot_of[i]);
	scout__table_release(client, slot_of[i]);
	slot_of[i] = SCOUT__NO_SLOT;
}

static void
is_as_it_should(uint32_t i)
{
	char id[16];
	size_t len = name_of(id, i);

	ck_assert_uint_eq(scout__table_find(client, id, len, scout__id_hash(id, len)), slot_of[i]);
}

CHECKED_FIXTURE(up, down);

START_TEST(every_live_request_is_found_and_no_other)
{
	uint32_t most = 0;

	for (uint32_t turn = 0; turn < TURNS; turn++) {
		uint32_t i = random_below(IDS);
		/* Waves: for a while more come, then more go. */
		bool comes = random_below(100) < (turn / 40000 % 2 ? 20u : 80u);

		is_as_it_should(i);
		if (slot_of[i] == SCOUT__NO_SLOT && comes)
			add(i);
		else if (slot_of[i] != SCOUT__NO_SLOT && !comes)
			forget(i);
		is_as_it_should(i);
		is_as_it_should(random_below(IDS));
		ck_assert_uint_le(client->n_live, client->cfg.max_lookups);
		ck_assert_uint_le(client->n_live, client->n_buckets);
		ck_assert(client->n_buckets <= 64 || client->n_buckets <= 2 * client->n_live + 2);
		most = client->n_buckets > most ? client->n_buckets : most;
	}
	ck_assert_uint_gt(most, 4096);
	for (uint32_t i = 0; i < IDS; i++)
		is_as_it_should(i);
}
END_TEST

START_TEST(all_can_be_forgotten_while_the_table_shrinks)
{
	uint32_t bucket = UINT32_MAX, i, n = 0;

	for (i = 0; i < client->cfg.max_lookups; i++)
		add(i);
	ck_assert_uint_eq(client->n_live, client->cfg.max_lookups);
	while ((i = scout__table_any(client, &bucket)) != SCOUT__NO_SLOT) {
		scout__table_forget(client, i);
		scout__table_release(client, i);
		n++;
	}
	ck_assert_uint_eq(n, client->cfg.max_lookups);
	ck_assert_uint_eq(client->n_live, 0);
	ck_assert_uint_eq(client->n_buckets, 64);
	for (i = 0; i < IDS; i++) {
		slot_of[i] = SCOUT__NO_SLOT;
		is_as_it_should(i);
	}
}
END_TEST
