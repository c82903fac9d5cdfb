/* SPDX-License-Identifier: Apache-2.0 */
#include "policy_rig.h"

struct scout__entry rig_entries[RIG_MAX_ENTRIES];

const struct scout__evict_ops *rig_ops;

void *rig_state;

uint64_t rig_random;

void
rig_open(const char *text, uint32_t n)
{
	struct scout__evict_args args;
	char err[512];

	rig_ops = scout__evict_parse(text, &args, err, sizeof(err));
	ck_assert_msg(rig_ops != NULL, "%s", err);
	memset(rig_entries, 0, sizeof(rig_entries));
	ck_assert_int_eq(rig_ops->open(&rig_state, n, &args), 0);
	ck_assert_int_eq(rig_ops->reserve(rig_state, rig_entries, n), 0);
}

void
rig_close(void)
{
	if (rig_state)
		rig_ops->close(rig_state);
	rig_state = NULL;
}

uint64_t
rig_draw(uint64_t below)
{
	uint64_t x;

	rig_random += UINT64_C(0x9e3779b97f4a7c15);
	x = rig_random;
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return (x ^ x >> 31) % below;
}

void
rig_set_key(struct scout__entry *entry, uint32_t key)
{
	*entry = (struct scout__entry){.space = 1, .in_use = 1};
	memcpy(entry->hash, &key, sizeof(key));
}

void
rig_create(uint32_t entry, uint32_t key)
{
	rig_set_key(&rig_entries[entry], key);
	rig_entries[entry].in_order = 1;
	rig_ops->insert(rig_state, entry, SCOUT__INSERT_CREATED);
}

void
rig_pin(uint32_t entry)
{
	rig_ops->remove(rig_state, entry, SCOUT__REMOVE_PINNED);
	rig_entries[entry].in_order = 0;
}

void
rig_unpin(uint32_t entry)
{
	rig_entries[entry].in_order = 1;
	rig_ops->insert(rig_state, entry, SCOUT__INSERT_UNPINNED);
}

void
rig_drop(uint32_t entry)
{
	rig_ops->remove(rig_state, entry, SCOUT__REMOVE_GONE);
	rig_entries[entry].in_order = 0;
	rig_entries[entry].in_use = 0;
}

void
rig_read(uint32_t entry)
{
	rig_ops->accessed(rig_state, entry, &(struct scout__touch){.how = SCOUT__ACCESS_READ});
}

void
rig_stored(uint32_t entry)
{
	rig_ops->accessed(rig_state, entry, &(struct scout__touch){.how = SCOUT__ACCESS_STORED});
}

void
rig_expect(const uint32_t *expected, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		rig_ops->check(rig_state, n - i);
		ck_assert_uint_eq(rig_ops->victim(rig_state), expected[i]);
		ck_assert_uint_eq(rig_ops->victim(rig_state), expected[i]);
		rig_drop(expected[i]);
	}
	rig_ops->check(rig_state, 0);
	ck_assert_uint_eq(rig_ops->victim(rig_state), SCOUT__NO_ENTRY);
}
