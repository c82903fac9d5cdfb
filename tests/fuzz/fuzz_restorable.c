/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "fuzz.h"
#include "restorable.h"

/*
 * DESIGN
 *
 * Which lengths can be restored, of groups and maps that a peer has said: numbers up to their limits, maps of any length. The walk jumps
 * over lengths, and remembers what it saw; each length that it returns or passes is looked at once more, object by object. The maps lie
 * in heap blocks of exactly their size, so that the address sanitizer sees a read one byte too far.
 */

#define MAX_GROUPS 6u
#define MAX_LENGTH 200u

struct input {
	const uint8_t *data;
	size_t left;
};

static uint32_t
take(struct input *in, unsigned bytes)
{
	uint32_t value = 0;

	for (; bytes > 0 && in->left > 0; bytes--, in->left--)
		value = value << 8 | *in->data++;
	return value;
}

static void
take_group(struct input *in, struct scout__group *group, uint32_t hash_tokens)
{
	uint32_t times = 1 + take(in, 1) % 8;

	*group = (struct scout__group){.policy = (uint16_t)(take(in, 1) % (SCOUT__POLICY_LAST + 1)),
				       .readers = 1,
				       .unit_tokens = hash_tokens * times,
				       .margin_tokens = take(in, take(in, 1) % 5)};
	if (group->policy == SCOUT__POLICY_WINDOW || group->policy == SCOUT__POLICY_LOCAL)
		group->span_tokens = 1 + take(in, take(in, 1) % 5) % UINT32_MAX;
}

static bool
has_all(const struct scout__presence *presence, const struct scout__need *need)
{
	for (uint32_t i = need->from; i < need->to; i++) {
		if (i >= presence->n || !(presence->bits[i / 8] >> i % 8 & 1))
			return false;
	}
	return true;
}

static bool
is_restorable(const struct scout__restorable *walk, uint32_t length)
{
	for (uint32_t g = 0; g < walk->groups->n; g++) {
		struct scout__need need;

		if (!scout__need_of(&walk->groups->group[g], walk->hash_tokens, walk->skip, length, &need))
			return false;
		MUST(need.from <= need.to);
		if (!has_all(&walk->presence[g], &need))
			return false;
	}
	return true;
}

static void
walk_all(struct scout__restorable *walk, uint32_t at_most)
{
	uint32_t above = at_most + 1;

	while (above > 1) {
		uint32_t length = scout__restorable_next(walk, above - 1);

		MUST(length < above);
		for (uint32_t passed = above - 1; passed > length; passed--)
			MUST(!is_restorable(walk, passed));
		MUST(length == 0 || is_restorable(walk, length));
		if (length == 0)
			return;
		above = length;
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	uint32_t hash_tokens = 1 + take(&in, take(&in, 1) % 4) % (1u << 20);
	uint32_t at_most = take(&in, 1) % (MAX_LENGTH + 1), skip = take(&in, 1) % (at_most + 1);
	struct scout__presence presence[MAX_GROUPS] = {{NULL, 0}};
	struct scout__groups groups = {.n = 1 + take(&in, 1) % MAX_GROUPS};
	struct scout__restorable walk;

	for (uint32_t g = 0; g < groups.n; g++)
		take_group(&in, &groups.group[g], hash_tokens);
	for (uint32_t g = 0; g < groups.n; g++) {
		size_t bytes = take(&in, 1) % 32;
		uint8_t *bits = bytes ? malloc(bytes) : NULL;

		MUST(bits || bytes == 0);
		for (size_t i = 0; i < bytes; i++)
			bits[i] = in.left ? (uint8_t)take(&in, 1) : 0xff;
		presence[g].bits = bits;
		presence[g].n = (uint32_t)(bytes * 8) - (bytes ? take(&in, 1) % 8 : 0);
	}
	scout__restorable_init(&walk, &groups, hash_tokens, presence, skip);
	walk_all(&walk, at_most);
	for (uint32_t g = 0; g < groups.n; g++)
		free((void *)(uintptr_t)presence[g].bits);
	return 0;
}
