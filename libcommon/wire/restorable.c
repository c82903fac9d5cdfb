/* SPDX-License-Identifier: Apache-2.0 */
#include "restorable.h"

#include <string.h>

/*
 * DESIGN
 *
 * Every policy needs one run of tokens that ends at the length (all: from the start; window: span - 1 tokens; local: the tokens
 * that share the run of span tokens with the next one; state: the last token), and the margin after it; a group needs the objects
 * in which these tokens lie. `all` and `state` also want an object to end at the length.
 *
 * This is what the managers of vLLM look for (vllm/v1/core/single_type_kv_cache_manager.py): FullAttentionManager drops the last
 * block of a hit for draft heads, which is a margin of one block; SlidingWindowManager wants cdiv(window - 1, block) blocks at an
 * aligned end, and one more for draft heads; ChunkedLocalAttentionManager counts blocks before the run of the next token as
 * there; MambaManager wants the one block at the end. HybridKVCacheCoordinator (kv_cache_coordinator.py) lowers the length until
 * all groups agree, and so does scout__restorable_next().
 *
 * When the length falls, both ends of a group's run can only fall. So a missing object rules out every length whose run reaches
 * it: the walk jumps to the lengths that end before the object, and an object that was seen present is not looked at twice.
 */

static uint32_t
saturated(uint64_t n)
{
	return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

/* The first of the tokens that @group needs before @tokens, which is not 0. */
static uint64_t
begin_of(const struct scout__group *group, uint64_t tokens)
{
	switch (group->policy) {
	case SCOUT__POLICY_WINDOW:
		return tokens > group->span_tokens - 1 ? tokens - (group->span_tokens - 1) : 0;
	case SCOUT__POLICY_LOCAL:
		return tokens - tokens % group->span_tokens;
	case SCOUT__POLICY_STATE:
		return tokens - 1;
	default:
		return 0;
	}
}

static bool
ends_with_an_object(const struct scout__group *group)
{
	return group->policy == SCOUT__POLICY_ALL || group->policy == SCOUT__POLICY_STATE;
}

/* The objects that end within the first @skip hashes. */
static uint32_t
skipped(const struct scout__group *group, uint32_t hash_tokens, uint32_t skip)
{
	return (uint32_t)((uint64_t)skip * hash_tokens / group->unit_tokens);
}

bool
scout__need_of(const struct scout__group *group, uint32_t hash_tokens, uint32_t skip, uint32_t length,
	       struct scout__need *ret)
{
	uint64_t tokens = (uint64_t)length * hash_tokens, unit = group->unit_tokens, begin, end;
	uint32_t behind = skipped(group, hash_tokens, skip), from, to;

	if (ends_with_an_object(group) && tokens % unit != 0)
		return false;
	begin = tokens > 0 ? begin_of(group, tokens) : 0;
	end = tokens + group->margin_tokens;
	*ret = (struct scout__need){0, 0};
	if (tokens == 0 || begin == end)
		return true;
	from = saturated(begin / unit);
	to = saturated((end + unit - 1) / unit);
	from = from > behind ? from : behind;
	if (from < to)
		*ret = (struct scout__need){from, to};
	return true;
}

void
scout__restorable_init(struct scout__restorable *walk, const struct scout__groups *groups, uint32_t hash_tokens,
		       const struct scout__presence *presence, uint32_t skip)
{
	*walk = (struct scout__restorable){
		.groups = groups, .presence = presence, .hash_tokens = hash_tokens, .skip = skip};
}

static bool
are_set(const uint8_t *bytes, size_t n)
{
	static const uint8_t ones[8] = {255, 255, 255, 255, 255, 255, 255, 255};

	return memcmp(bytes, ones, n) == 0;
}

/* The last missing object of [@from, @end); @end: none is missing. */
static uint32_t
last_missing(const uint8_t *bits, uint32_t from, uint32_t end)
{
	uint32_t to = end;

	while (to > from) {
		if (to % 8 == 0 && to - from >= 64 && are_set(bits + to / 8 - 8, 8))
			to -= 64;
		else if (to % 8 == 0 && to - from >= 8 && are_set(bits + to / 8 - 1, 1))
			to -= 8;
		else if (bits[(to - 1) / 8] >> (to - 1) % 8 & 1)
			to--;
		else
			return to - 1;
	}
	return end;
}

/* The first missing object of [@from, @to); @to: none is missing. */
static uint32_t
first_missing(const uint8_t *bits, uint32_t from, uint32_t to)
{
	while (from < to) {
		if (from % 8 == 0 && to - from >= 64 && are_set(bits + from / 8, 8))
			from += 64;
		else if (bits[from / 8] >> from % 8 & 1)
			from++;
		else
			return from;
	}
	return to;
}

/* Whether all of @need is there; else *ret_missing is an object that is missing: the one that rules out most lengths. */
static bool
look(struct scout__restorable *walk, uint32_t g, const struct scout__need *need, uint32_t *ret_missing)
{
	const struct scout__presence *presence = &walk->presence[g];
	struct scout__need *seen = &walk->seen[g];
	uint32_t to = need->to, missing;

	if (need->from == need->to)
		return true;
	if (need->to > presence->n) {
		*ret_missing = presence->n > need->from ? presence->n : need->from;
		return false;
	}
	if (seen->from < seen->to && to <= seen->to)
		to = to < seen->from ? to : seen->from;
	/* The run of a group with policy all begins at the same object for each length. */
	missing = walk->groups->group[g].policy == SCOUT__POLICY_ALL ? first_missing(presence->bits, need->from, to)
								     : last_missing(presence->bits, need->from, to);
	if (missing < to) {
		*seen = (struct scout__need){0, 0};
		*ret_missing = missing;
		return false;
	}
	if (to == need->to) /* no object of it was seen before */
		seen->to = need->to;
	seen->from = need->from < to ? need->from : seen->from;
	return true;
}

/* The next length below @length, whose run has @missing in it, that group @g may allow. */
static uint32_t
below_missing(const struct scout__restorable *walk, uint32_t g, uint32_t length, uint32_t missing)
{
	const struct scout__group *group = &walk->groups->group[g];
	uint32_t behind = skipped(group, walk->hash_tokens, walk->skip);
	const uint8_t *bits = walk->presence[g].bits;
	uint64_t end, tokens = (uint64_t)length * walk->hash_tokens, below;

	/* States are few: the next one that is there may be far. */
	while (group->policy == SCOUT__POLICY_STATE && group->margin_tokens == 0 && missing > behind &&
	       missing <= walk->presence[g].n && !(bits[(missing - 1) / 8] >> (missing - 1) % 8 & 1))
		missing -= missing % 8 == 0 && missing - behind >= 8 && bits[missing / 8 - 1] == 0 ? 8 : 1;
	end = (uint64_t)missing * group->unit_tokens;
	below = end > group->margin_tokens ? end - group->margin_tokens : 0;
	/* Without a margin, a length that begins a run of local attention needs nothing, even in the middle of an object. */
	if (group->policy == SCOUT__POLICY_LOCAL && group->margin_tokens == 0 && begin_of(group, tokens) > below)
		below = begin_of(group, tokens);
	return (uint32_t)(below / walk->hash_tokens);
}

bool
scout__restorable_find(struct scout__restorable *walk, uint32_t *looks)
{
	while (walk->agreed < walk->groups->n && walk->length > 0) {
		const struct scout__group *group = &walk->groups->group[walk->g];
		uint32_t stride = ends_with_an_object(group) ? group->unit_tokens / walk->hash_tokens : 1, missing = 0;
		uint32_t odd = walk->length % stride;
		struct scout__need need;

		if (*looks == 0)
			return false;
		--*looks;
		if (odd == 0 && scout__need_of(group, walk->hash_tokens, walk->skip, walk->length, &need) &&
		    look(walk, walk->g, &need, &missing)) {
			walk->agreed++;
			walk->g = (walk->g + 1) % walk->groups->n;
			continue;
		}
		walk->length = odd ? walk->length - odd : below_missing(walk, walk->g, walk->length, missing);
		walk->agreed = 0;
	}
	walk->agreed = 0;
	return true;
}

uint32_t
scout__restorable_next(struct scout__restorable *walk, uint32_t at_most)
{
	uint32_t looks = UINT32_MAX;

	walk->length = at_most;
	(void)scout__restorable_find(walk, &looks);
	return walk->length;
}
