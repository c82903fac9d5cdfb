/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "model_parts.h"

/*
 * The model: LOOKUP in a namespace of several groups. Which lengths can be restored is found length by length, object by object
 * and token by token, from the words of GROUPS in protocol.h.
 *
 * An answer's lengths are the longest restorable ones, and what they need is promised: group by group, those with policy all
 * last. What max_promised does not allow counts as absent, and everything is found anew. A lookup ahead promises all that is there, in the
 * order of the prompt, up to the first object that max_promised does not allow.
 */

struct look {
	const struct model_ask *ask;
	struct model_session *s;
	uint32_t floor, known;
	uint32_t diverges_at; /* all groups with policy all have their objects up to here; 0: there are none */
	uint32_t n[MODEL_GROUPS], from[MODEL_GROUPS];
	bool present[MODEL_GROUPS][MODEL_RUN], wanted[MODEL_GROUPS][MODEL_RUN];
	struct model_hit *hit;
};

static bool
token_is_needed(const struct model_group *group, uint32_t length, uint32_t token)
{
	if (token >= length)
		return token < length + group->margin;
	switch (group->policy) {
	case SCOUT_POLICY_WINDOW:
		return token + group->span - 1 >= length;
	case SCOUT_POLICY_LOCAL:
		return token / group->span == length / group->span;
	case SCOUT_POLICY_STATE:
		return token == length - 1;
	default:
		return true;
	}
}

/* Nobody has layers of it: it is there, whatever the prompt. */
static bool
is_vacant(const struct model *m, const struct model_session *s, uint32_t group)
{
	return m->groups[group].vacant && s->ns == 0;
}

/* Whether an object of @group ends at @length keys, if its policy wants that. */
static bool
ends_an_object(const struct model_group *group, uint32_t length)
{
	bool must_end = group->policy == SCOUT_POLICY_ALL || group->policy == SCOUT_POLICY_STATE;

	return !must_end || length % group->stride == 0;
}

bool
model_needs(const struct model *m, const struct model_group *group, uint32_t skip, uint32_t length, uint32_t i)
{
	if (length == 0 || !ends_an_object(group, length) || (i + 1) * group->unit <= skip * m->hash_tokens)
		return false;
	for (uint32_t token = i * group->unit; token < (i + 1) * group->unit; token++) {
		if (token_is_needed(group, length * m->hash_tokens, token))
			return true;
	}
	return false;
}

/* The first object of @group that begins behind everything that @length keys need. */
static uint32_t
end_of(const struct model *m, const struct model_group *group, uint32_t length)
{
	return (length * m->hash_tokens + group->margin) / group->unit + 1;
}

bool
model_keeps(struct model *m, const struct model_session *s, uint32_t skip, uint32_t length)
{
	for (uint32_t g = 0; g < m->n_groups; g++) {
		const struct model_group *group = &m->groups[g];

		if (!ends_an_object(group, length))
			return false;
		for (uint32_t i = 0; !is_vacant(m, s, g) && i < end_of(m, group, length); i++) {
			if (model_needs(m, group, skip, length, i) && !(i < s->of[g].n && s->of[g].kept[i]))
				return false;
		}
	}
	return true;
}

static bool
is_restorable(const struct model *m, const struct look *look, uint32_t length)
{
	for (uint32_t g = 0; g < m->n_groups; g++) {
		const struct model_group *group = &m->groups[g];
		uint32_t known = look->known / group->stride;

		if (!ends_an_object(group, length))
			return false;
		for (uint32_t i = 0; i < end_of(m, group, length); i++) {
			if (model_needs(m, group, look->ask->skip, length, i) &&
			    !(i < look->n[g] && i < known && look->present[g][i]))
				return false;
		}
	}
	return true;
}

/* The lengths of the answer. */
static void
find_lengths(const struct model *m, struct look *look)
{
	const struct model_ask *ask = look->ask;
	struct model_hit *hit = look->hit;
	uint32_t most = ask->run.n - ask->beyond, length = most < look->known ? most : look->known;

	while (!is_restorable(m, look, length))
		length--;
	hit->hit = length > ask->skip ? length : ask->skip;
	hit->hit = hit->hit > look->floor ? hit->hit : look->floor;
	hit->n_more = 0;
	for (length = hit->hit; length > ask->skip && hit->n_more < ask->more;) {
		if (--length > ask->skip && length <= most && is_restorable(m, look, length))
			hit->more[hit->n_more++] = length;
	}
}

static void
want(const struct model *m, struct look *look, uint32_t length)
{
	for (uint32_t g = 0; g < m->n_groups; g++) {
		for (uint32_t i = look->from[g]; !is_vacant(m, look->s, g) && i < look->n[g]; i++)
			look->wanted[g][i] |= model_needs(m, &m->groups[g], look->ask->skip, length, i);
	}
}

static void
evaluate(const struct model *m, struct look *look)
{
	const struct model_ask *ask = look->ask;

	find_lengths(m, look);
	memset(look->wanted, 0, sizeof(look->wanted));
	if (!ask->ahead && look->hit->hit > ask->skip)
		want(m, look, look->hit->hit);
	for (uint32_t i = 0; i < look->hit->n_more; i++)
		want(m, look, look->hit->more[i]);
	for (uint32_t g = 0; g < m->n_groups; g++) {
		for (uint32_t i = look->from[g]; !is_vacant(m, look->s, g) && i < look->n[g]; i++) {
			if (ask->ahead && look->present[g][i] && i < look->known / m->groups[g].stride)
				look->wanted[g][i] = true;
			if (ask->renews && look->s->of[g].kept[i])
				look->wanted[g][i] = true;
		}
	}
}

/* What is there is looked at, and remembered where the GPU has it, too: to be touched. */
static void
scan(struct model *m, struct look *look)
{
	const struct model_run *run = &look->ask->run;

	for (uint32_t g = 0; g < m->n_groups; g++) {
		const struct model_group *group = &m->groups[g];
		struct model_kept *k = &look->s->of[g];
		uint32_t i = group->policy == SCOUT_POLICY_ALL ? look->ask->first / group->stride : look->from[g];

		for (; i < look->n[g]; i++) {
			const struct model_chunk *c = NULL;

			if (look->s->ns == 0)
				c = model_find_key(m, g, run->tenant, run->keys[(i + 1) * group->stride - 1]);
			if (i < look->from[g] && i < k->from && c)
				k->serials[i] = c->serial;
			look->present[g][i] =
				i >= look->from[g] && c && !c->spoiled && model_shards(c, MODEL_READABLE) == m->ranks;
		}
		if (is_vacant(m, look->s, g))
			memset(look->present[g], true, sizeof(look->present[g]));
	}
}

/* Whatever is promised and not wanted is given back. */
static void
drop(struct model *m, struct look *look)
{
	for (uint32_t g = 0; g < m->n_groups; g++) {
		struct model_kept *k = &look->s->of[g];

		for (uint32_t i = look->from[g]; i < look->n[g]; i++) {
			if (!k->kept[i] || look->wanted[g][i])
				continue;
			model_withdraw(m, k, i);
			k->serials[i] = 0;
		}
	}
}

/* How far the prompt was stored, whatever the other groups have of it. */
static uint32_t
find_divergence(const struct model *m, const struct look *look)
{
	uint32_t diverges_at = UINT32_MAX;

	for (uint32_t g = 0; g < m->n_groups; g++) {
		uint32_t i = look->from[g];

		if (m->groups[g].policy != SCOUT_POLICY_ALL)
			continue;
		while (i < look->n[g] && look->present[g][i])
			i++;
		diverges_at = diverges_at < i * m->groups[g].stride ? diverges_at : i * m->groups[g].stride;
	}
	return diverges_at == UINT32_MAX ? 0 : diverges_at;
}

/* Of each other group, the last object that a length there would need, if it is longer than the hit. */
static void
note_divergence(const struct model *m, struct look *look)
{
	const struct model_ask *ask = look->ask;
	uint32_t most = ask->run.n - ask->beyond, at = look->diverges_at < most ? look->diverges_at : most;

	for (uint32_t g = 0; g < m->n_groups; g++) {
		const struct model_group *group = &m->groups[g];
		uint32_t length = group->policy == SCOUT_POLICY_STATE ? at - at % group->stride : at;
		struct model_kept *k = &look->s->of[g];

		if (group->policy == SCOUT_POLICY_ALL || length <= look->hit->hit || is_vacant(m, look->s, g))
			continue;
		for (uint32_t i = look->from[g]; i < look->n[g]; i++) {
			if (!model_needs(m, group, ask->skip, length, i))
				continue;
			k->parts = i >= ask->first / group->stride;
			k->diverges_key = ask->run.keys[(i + 1) * group->stride - 1];
		}
	}
}

/* What is wanted, and there, and not promised: false if it cannot be, and counts as absent from now on. */
static bool
take(struct model *m, struct look *look, uint32_t g, uint32_t i)
{
	const struct model_run *run = &look->ask->run;
	uint32_t stride = m->groups[g].stride;

	if (!look->wanted[g][i] || !look->present[g][i] || look->s->of[g].kept[i])
		return true;
	if (model_promise(m, look->s, g, i, model_find_key(m, g, run->tenant, run->keys[(i + 1) * stride - 1])))
		return true;
	look->hit->limited = 1;
	look->present[g][i] = false;
	if (look->ask->ahead)
		look->known = (i + 1) * stride - 1;
	return false;
}

static bool
take_by_group(struct model *m, struct look *look)
{
	for (uint32_t pass = 0; pass < 2; pass++) {
		for (uint32_t g = 0; g < m->n_groups; g++) {
			if ((m->groups[g].policy == SCOUT_POLICY_ALL) != (pass == 1))
				continue;
			for (uint32_t i = 0; i < look->n[g]; i++) {
				if (!take(m, look, g, i))
					return false;
			}
		}
	}
	return true;
}

static bool
take_by_position(struct model *m, struct look *look)
{
	for (uint32_t length = look->ask->skip + 1; length <= look->known; length++) {
		for (uint32_t g = 0; g < m->n_groups; g++) {
			if (length % m->groups[g].stride == 0 && !take(m, look, g, length / m->groups[g].stride - 1))
				return false;
		}
	}
	return true;
}

/*
 * A lookup ahead that max_promised cut: what is behind, up to where the prompt was stored, counts as used just now. The head of it
 * last.
 */
static void
use_soon(struct model *m, const struct look *look)
{
	const struct model_run *run = &look->ask->run;
	uint32_t most = run->n - look->ask->beyond, at = look->diverges_at < most ? look->diverges_at : most;

	for (uint32_t g = 0; g < m->n_groups && look->s->ns == 0; g++) {
		const struct model_group *group = &m->groups[g];
		uint32_t length = group->policy == SCOUT_POLICY_STATE ? at - at % group->stride : at;
		bool is_all = group->policy == SCOUT_POLICY_ALL;

		for (uint32_t i = look->n[g]; i-- > look->known / group->stride;) {
			bool is_used = is_all ? i < look->diverges_at / group->stride
					      : i >= look->from[g] && model_needs(m, group, look->ask->skip, length, i);
			struct model_chunk *c =
				model_find_key(m, g, run->tenant, run->keys[(i + 1) * group->stride - 1]);

			if (!is_used || !c || model_is_pinned(c))
				continue;
			model_use(c);
			c->time = ++m->clock;
		}
	}
}

/* Room for what may be promised: all objects behind those that the GPU has. What was given back there is forgotten. */
static void
open_group(const struct look *look, struct model_kept *k, uint32_t g)
{
	uint32_t from = look->from[g], n = look->n[g];

	if (k->from == k->to) {
		for (uint32_t i = k->n; i < from; i++)
			k->serials[i] = 0;
		k->from = k->to = from;
	}
	for (uint32_t i = from; i < k->from; i++)
		k->serials[i] = 0;
	for (uint32_t i = k->to; i < n; i++)
		k->serials[i] = 0;
	k->from = from < k->from ? from : k->from;
	k->to = k->n = n;
}

/* What is known of a group ends with what is promised. */
static void
close_group(const struct look *look, struct model_kept *k, uint32_t g)
{
	uint32_t low = look->n[g], high = look->from[g];

	for (uint32_t i = 0; i < look->n[g]; i++) {
		if (!look->wanted[g][i])
			continue;
		low = low < i ? low : i;
		high = i + 1;
	}
	low = low > high ? high : low;
	low = low > k->from ? low : k->from;
	high = high > low ? high : low;
	k->from = k->from < look->from[g] ? k->from : low;
	k->n = k->to = high;
}

static void
count(const struct model *m, struct look *look)
{
	struct model_hit *hit = look->hit;

	for (uint32_t g = 0; hit->hit > look->ask->skip && g < m->n_groups; g++) {
		for (uint32_t i = look->from[g]; !is_vacant(m, look->s, g) && i < look->n[g]; i++)
			hit->l1 += model_needs(m, &m->groups[g], look->ask->skip, hit->hit, i);
	}
	for (uint32_t g = 0; g < m->n_groups; g++) {
		for (uint32_t i = look->from[g]; i < look->known / m->groups[g].stride; i++)
			hit->present[g][i] = look->s->of[g].kept[i] || is_vacant(m, look->s, g);
	}
	hit->known = look->known;
}

void
model_walk_groups(struct model *m, struct model_session *s, const struct model_ask *ask, struct model_hit *ret)
{
	struct look look = {.ask = ask, .s = s, .known = ask->run.n, .hit = ret};
	bool all_taken;

	if (ask->renews && s->hit > s->skip)
		look.floor = s->hit;
	*ret = (struct model_hit){.hit = 0};
	for (uint32_t g = 0; g < m->n_groups; g++) {
		look.from[g] = ask->skip / m->groups[g].stride;
		look.n[g] = ask->run.n / m->groups[g].stride;
		open_group(&look, &s->of[g], g);
	}
	scan(m, &look);
	look.diverges_at = find_divergence(m, &look);
	do {
		evaluate(m, &look);
		drop(m, &look);
		all_taken = (ask->ahead ? take_by_position : take_by_group)(m, &look);
	} while (!all_taken);
	if (ask->ahead && ret->limited)
		use_soon(m, &look);
	for (uint32_t g = 0; g < m->n_groups; g++)
		close_group(&look, &s->of[g], g);
	count(m, &look);
	if (!ask->renews)
		note_divergence(m, &look);
	s->hit = ret->hit;
	s->skip = ask->skip;
	s->is_ahead = ask->ahead;
}

/* The last object that @s promises of group @g is that of @ask. */
static bool
is_same_object(struct model *m, const struct model_session *s, const struct model_ask *ask, uint32_t g)
{
	uint32_t stride = m->groups[g].stride;
	const struct model_kept *k = &s->of[g];
	const struct model_chunk *c;
	uint32_t i = k->to;

	while (i > k->from && !k->kept[i - 1])
		i--;
	if (i == k->from)
		return true;
	c = model_find_serial(m, k->serials[i - 1]);
	MUST(c);
	return c->tenant == ask->run.tenant && i - 1 >= ask->first / stride && c->key == ask->run.keys[i * stride - 1];
}

int
model_may_renew(struct model *m, const struct model_session *s, const struct model_ask *ask)
{
	if (s->is_ahead)
		return SCOUT_WIRE_STATE;
	if (ask->run.n != s->n)
		return SCOUT_WIRE_RANGE;
	if (s->hit > s->skip && (ask->skip < s->skip || ask->skip > s->hit))
		return SCOUT_WIRE_RANGE;
	for (uint32_t g = 0; g < m->n_groups; g++) {
		if (!is_same_object(m, s, ask, g))
			return SCOUT_WIRE_RANGE;
	}
	return 0;
}
