/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What restorable_sweep.py asks: a case for each line of standard input, in numbers with blanks between,
 *
 *     HASH_TOKENS SKIP AT_MOST N_GROUPS N_RANKS, for each group POLICY UNIT SPAN MARGIN N, and for each rank N times 0 or 1
 *
 * and the answer in a line: all restorable lengths, the longest first; then, behind a colon, FROM TO of each group for the longest.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "restorable.h"

#define MAX_OBJECTS 4096u

struct sweep_case {
	struct scout__groups groups;
	uint32_t hash_tokens, skip, at_most;
	struct scout__presence presence[SCOUT__GROUPS_MAX];
	uint8_t bits[SCOUT__GROUPS_MAX][MAX_OBJECTS / 8];
};

/* The next number of standard input; the program ends with a fault in it. */
static uint32_t
number(uint32_t max)
{
	unsigned n;

	if (scanf("%u", &n) != 1 || n > max) {
		fprintf(stderr, "a number up to %u is missing\n", (unsigned)max);
		exit(1);
	}
	return n;
}

/* What all ranks have. */
static void
read_presence(uint8_t *bits, uint32_t n, uint32_t n_ranks)
{
	memset(bits, 0xff, MAX_OBJECTS / 8);
	for (uint32_t rank = 0; rank < n_ranks; rank++)
		for (uint32_t i = 0; i < n; i++)
			if (number(1) == 0)
				bits[i / 8] &= (uint8_t) ~(1u << i % 8);
}

static void
read_case(struct sweep_case *c)
{
	uint32_t n_ranks;

	c->skip = number(UINT32_MAX);
	c->at_most = number(UINT32_MAX);
	c->groups.n = number(SCOUT__GROUPS_MAX);
	n_ranks = number(64);
	for (uint32_t g = 0; g < c->groups.n; g++) {
		struct scout__group *group = &c->groups.group[g];

		group->policy = (uint16_t)number(SCOUT__POLICY_LAST);
		group->readers = 1;
		group->unit_tokens = number(UINT32_MAX);
		group->span_tokens = number(UINT32_MAX);
		group->margin_tokens = number(UINT32_MAX);
		c->presence[g] = (struct scout__presence){.bits = c->bits[g], .n = number(MAX_OBJECTS)};
		read_presence(c->bits[g], c->presence[g].n, n_ranks);
	}
}

static void
answer(const struct sweep_case *c)
{
	struct scout__restorable walk;
	struct scout__need need;
	uint32_t longest, length;

	scout__restorable_init(&walk, &c->groups, c->hash_tokens, c->presence, c->skip);
	longest = scout__restorable_next(&walk, c->at_most);
	for (length = longest; length > 0; length = scout__restorable_next(&walk, length - 1))
		printf("%u ", (unsigned)length);
	printf(":");
	for (uint32_t g = 0; g < c->groups.n; g++) {
		if (!scout__need_of(&c->groups.group[g], c->hash_tokens, c->skip, longest, &need))
			abort();
		printf(" %u %u", (unsigned)need.from, (unsigned)need.to);
	}
	printf("\n");
}

int
main(void)
{
	static struct sweep_case c;
	unsigned hash_tokens;

	while (scanf("%u", &hash_tokens) == 1) {
		c.hash_tokens = hash_tokens;
		read_case(&c);
		answer(&c);
	}
	return 0;
}
