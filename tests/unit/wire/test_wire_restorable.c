/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <stdlib.h>
#include <string.h>

#include "restorable.h"

/* Which lengths can be restored: examples by hand for each policy, and random cases against the rule, object by object. */

#define MAX_LENGTH 200u
#define MOST 262144u

static bool
is_set(const uint8_t *bits, uint32_t i)
{
	return bits[i / 8] >> i % 8 & 1;
}

static void
set(uint8_t *bits, uint32_t i)
{
	bits[i / 8] |= (uint8_t)(1u << i % 8);
}

/* "1101" */
static struct scout__presence
presence_of(const char *text, uint8_t *bits)
{
	memset(bits, 0, MAX_LENGTH);
	for (uint32_t i = 0; text[i]; i++)
		if (text[i] == '1')
			set(bits, i);
	return (struct scout__presence){bits, (uint32_t)strlen(text)};
}

static const struct {
	struct scout__group group;
	uint32_t hash_tokens, skip, at_most;
	const char *present;
	uint32_t lengths[8]; /* the longest first, up to 0 */
} examples[] = {
	/* all: the leading run */
	{{SCOUT__POLICY_ALL, 1, 16, 0, 0}, 16, 0, 6, "111011", {3, 2, 1}},
	{{SCOUT__POLICY_ALL, 1, 16, 0, 0}, 16, 0, 2, "111011", {2, 1}},
	{{SCOUT__POLICY_ALL, 1, 16, 0, 0}, 16, 4, 6, "011011", {6, 5, 4, 3, 2, 1}},
	{{SCOUT__POLICY_ALL, 1, 16, 0, 0}, 16, 0, 6, "011111", {0}},
	/* ... in larger units */
	{{SCOUT__POLICY_ALL, 1, 32, 0, 0}, 16, 0, 7, "110", {4, 2}},
	{{SCOUT__POLICY_ALL, 1, 32, 0, 0}, 16, 3, 7, "011", {6, 4, 2}},
	/* ... for draft heads */
	{{SCOUT__POLICY_ALL, 1, 16, 0, 16}, 16, 0, 6, "111011", {2, 1}},
	{{SCOUT__POLICY_ALL, 1, 16, 0, 1}, 16, 0, 6, "111111", {5, 4, 3, 2, 1}},
	/* window: span - 1 tokens */
	{{SCOUT__POLICY_WINDOW, 1, 16, 32, 0}, 16, 0, 6, "001101", {4}},
	{{SCOUT__POLICY_WINDOW, 1, 16, 33, 0}, 16, 0, 6, "001101", {4}},
	{{SCOUT__POLICY_WINDOW, 1, 16, 34, 0}, 16, 0, 6, "001101", {0}},
	{{SCOUT__POLICY_WINDOW, 1, 16, 17, 0}, 16, 0, 6, "001101", {6, 4, 3}},
	{{SCOUT__POLICY_WINDOW, 1, 16, 1, 0}, 16, 0, 3, "000", {3, 2, 1}},
	{{SCOUT__POLICY_WINDOW, 1, 16, 100, 0}, 16, 0, 6, "110101", {2, 1}},
	/* ... that ends inside of an object */
	{{SCOUT__POLICY_WINDOW, 1, 32, 32, 0}, 16, 0, 8, "0110", {6, 5, 4}},
	{{SCOUT__POLICY_WINDOW, 1, 32, 17, 0}, 16, 0, 8, "0110", {6, 5, 4, 3}},
	{{SCOUT__POLICY_WINDOW, 1, 16, 32, 16}, 16, 0, 6, "001110", {4}},
	{{SCOUT__POLICY_WINDOW, 1, 16, 32, 0}, 16, 2, 6, "001101", {4, 3, 2, 1}},
	/* local: what shares a run of span tokens with the next one */
	{{SCOUT__POLICY_LOCAL, 1, 4, 8, 0}, 4, 0, 5, "00101", {5, 4, 3, 2}},
	{{SCOUT__POLICY_LOCAL, 1, 4, 8, 0}, 4, 0, 6, "00000", {6, 4, 2}},
	{{SCOUT__POLICY_LOCAL, 1, 16, 8, 0}, 4, 0, 7, "10", {6, 4, 3, 2, 1}},
	{{SCOUT__POLICY_LOCAL, 1, 4, 8, 4}, 4, 0, 6, "001110", {4, 3, 2}},
	/* state: the one at the end */
	{{SCOUT__POLICY_STATE, 1, 16, 0, 0}, 16, 0, 6, "010010", {5, 2}},
	{{SCOUT__POLICY_STATE, 1, 32, 0, 0}, 16, 0, 7, "0101", {4}},
	{{SCOUT__POLICY_STATE, 1, 16, 0, 0}, 16, 1, 6, "010010", {5, 2, 1}},
};

START_LOOP_TEST(each_policy_allows_its_lengths, 0, sizeof(examples) / sizeof(examples[0]))
{
	uint8_t bits[MAX_LENGTH];
	struct scout__groups groups = {.n = 1, .group[0] = examples[_i].group};
	struct scout__presence presence = presence_of(examples[_i].present, bits);
	struct scout__restorable walk;
	uint32_t length = examples[_i].at_most + 1;

	scout__restorable_init(&walk, &groups, examples[_i].hash_tokens, &presence, examples[_i].skip);
	for (unsigned k = 0; length > 0; k++) {
		length = scout__restorable_next(&walk, length - 1);
		ck_assert_uint_eq(length, examples[_i].lengths[k]);
	}
}
END_TEST

START_TEST(a_need_is_what_the_gpu_lacks)
{
	struct scout__group window = {SCOUT__POLICY_WINDOW, 1, 16, 64, 0}, all = {SCOUT__POLICY_ALL, 1, 32, 0, 0};
	struct scout__need need;

	ck_assert(scout__need_of(&window, 16, 0, 10, &need));
	ck_assert(need.from == 6 && need.to == 10);
	ck_assert(scout__need_of(&window, 16, 8, 10, &need));
	ck_assert(need.from == 8 && need.to == 10);
	ck_assert(scout__need_of(&window, 16, 10, 10, &need));
	ck_assert(need.from == 0 && need.to == 0);
	ck_assert(scout__need_of(&all, 16, 3, 8, &need)); /* the GPU has half of the second */
	ck_assert(need.from == 1 && need.to == 4);
	ck_assert(!scout__need_of(&all, 16, 0, 7, &need));
	ck_assert(scout__need_of(&all, 16, 0, 0, &need));
	ck_assert(need.from == 0 && need.to == 0);
}
END_TEST

/* ---- the rule by itself, token by token ---- */

struct random_case {
	struct scout__groups groups;
	uint32_t hash_tokens, skip, at_most;
	struct scout__presence presence[4];
	uint8_t bits[4][MAX_LENGTH];
};

static bool
needs_token(const struct scout__group *group, uint64_t length, uint64_t token)
{
	if (token >= length)
		return token < length + group->margin_tokens;
	switch (group->policy) {
	case SCOUT__POLICY_WINDOW:
		return token + group->span_tokens > length;
	case SCOUT__POLICY_LOCAL:
		return token / group->span_tokens == length / group->span_tokens;
	case SCOUT__POLICY_STATE:
		return token + 1 == length;
	default:
		return true;
	}
}

static bool
group_allows(const struct random_case *c, uint32_t g, uint32_t length)
{
	const struct scout__group *group = &c->groups.group[g];
	uint64_t tokens = (uint64_t)length * c->hash_tokens, unit = group->unit_tokens;

	if ((group->policy == SCOUT__POLICY_ALL || group->policy == SCOUT__POLICY_STATE) && tokens % unit != 0)
		return false;
	for (uint64_t token = 0; token < tokens + group->margin_tokens; token++) {
		uint64_t object = token / unit;

		if (needs_token(group, tokens, token) && (object + 1) * unit > (uint64_t)c->skip * c->hash_tokens &&
		    (object >= c->presence[g].n || !is_set(c->bits[g], (uint32_t)object)))
			return false;
	}
	return true;
}

static void
draw(struct random_case *c, unsigned *seed)
{
	memset(c, 0, sizeof(*c));
	c->groups.n = 1 + (uint32_t)rand_r(seed) % 4;
	c->hash_tokens = 1 + (uint32_t)rand_r(seed) % 4;
	c->at_most = (uint32_t)rand_r(seed) % 100;
	c->skip = rand_r(seed) % 3 ? 0 : (uint32_t)rand_r(seed) % (c->at_most + 1);
	for (uint32_t g = 0; g < c->groups.n; g++) {
		struct scout__group *group = &c->groups.group[g];
		int rare = 1 + rand_r(seed) % 40;

		group->policy = (uint16_t)(rand_r(seed) % 4);
		group->unit_tokens = c->hash_tokens * (1 + (uint32_t)rand_r(seed) % 4);
		if (group->policy == SCOUT__POLICY_WINDOW || group->policy == SCOUT__POLICY_LOCAL)
			group->span_tokens = 1 + (uint32_t)rand_r(seed) % 60;
		group->margin_tokens = rand_r(seed) % 3 ? 0 : (uint32_t)rand_r(seed) % 12;
		c->presence[g] = (struct scout__presence){c->bits[g], (uint32_t)rand_r(seed) % 130};
		for (uint32_t i = 0; i < MAX_LENGTH * 8; i++)
			if (rand_r(seed) % rare)
				set(c->bits[g], i);
	}
}

/* Find walk.length in steps of at most @looks looks. Returns their number. */
static uint32_t
find_in_steps(struct scout__restorable *walk, uint32_t looks)
{
	uint32_t n = 1;

	for (uint32_t left = looks; !scout__restorable_find(walk, &left); left = looks)
		n++;
	return n;
}

/* With nothing there, and with two groups that exclude each other's lengths. */
START_LOOP_TEST(a_long_walk_takes_steps_and_a_state_is_found_at_once, 0, 2)
{
	static uint8_t bits[2][MOST / 8];
	const struct scout__presence presence[2] = {{bits[0], MOST}, {bits[1], MOST}};
	struct scout__group state = {SCOUT__POLICY_STATE, 1, 16, 0, 0};
	struct scout__groups groups = {.n = _i ? 2 : 1, .group = {state, state}};
	struct scout__restorable walk;

	memset(bits[0], _i ? 0x55 : 0, sizeof(bits[0]));
	memset(bits[1], 0xaa, sizeof(bits[1]));
	scout__restorable_init(&walk, &groups, 16, presence, 0);
	walk.length = MOST;
	ck_assert_uint_ge(find_in_steps(&walk, 4096), _i ? MOST / 4096 : 1);
	ck_assert_uint_eq(walk.length, 0);
	walk.length = MOST;
	ck_assert(_i || find_in_steps(&walk, 2) == 1);
}
END_TEST

START_LOOP_TEST(the_walk_finds_what_the_rule_allows, 0, 20)
{
	unsigned seed = (unsigned)_i + 1, found = 0;
	struct random_case c;

	for (unsigned n = 0; n < 500; n++) {
		struct scout__restorable walk, steps;
		uint32_t next;

		draw(&c, &seed);
		scout__restorable_init(&walk, &c.groups, c.hash_tokens, c.presence, c.skip);
		scout__restorable_init(&steps, &c.groups, c.hash_tokens, c.presence, c.skip);
		steps.length = c.at_most;
		next = scout__restorable_next(&walk, c.at_most);
		for (uint32_t length = c.at_most; length > 0; length--) {
			bool allowed = true;

			for (uint32_t g = 0; g < c.groups.n; g++)
				allowed = allowed && group_allows(&c, g, length);
			ck_assert_msg(allowed == (next == length), "case %u: length %u, next %u", n, length, next);
			if (allowed) {
				(void)find_in_steps(&steps, 1 + n % 3);
				ck_assert_uint_eq(steps.length--, length);
				next = scout__restorable_next(&walk, length - 1);
			}
			found += allowed;
		}
		ck_assert_uint_eq(next, 0);
	}
	ck_assert_uint_gt(found, 500);
}
END_TEST

START_TEST(a_margin_beyond_all_numbers_is_never_there)
{
	uint8_t bits[MAX_LENGTH];
	struct scout__groups groups = {.n = 1, .group[0] = {SCOUT__POLICY_ALL, 1, 1, 0, UINT32_MAX}};
	struct scout__presence presence = presence_of("1111", bits);
	struct scout__restorable walk;

	scout__restorable_init(&walk, &groups, 1, &presence, 0);
	ck_assert_uint_eq(scout__restorable_next(&walk, 4), 0);
}
END_TEST
