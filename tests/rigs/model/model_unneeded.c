/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>

#include "model_parts.h"

/*
 * The model: what is unneeded (docs/eviction.md, "Windows and states"). Of a group with policy all, each object is touched
 * when its request ends. Of the others only what a length needs: the last ones (as many as two lengths need), and those
 * of a beginning that prompts share. The rest goes before everything else, unless another request has stored it
 * meanwhile. So does what lost the object of policy all that ends with it.
 */

static uint32_t
objects(const struct model_group *g, uint32_t tokens)
{
	return (tokens + g->unit - 1) / g->unit;
}

static uint32_t
needs_of(const struct model_group *g)
{
	switch (g->policy) {
	case SCOUT_POLICY_WINDOW:
	case SCOUT_POLICY_LOCAL:
		return objects(g, g->span - 1) + objects(g, g->margin) + (g->stride > 1);
	case SCOUT_POLICY_STATE:
		return 1 + objects(g, g->margin);
	default:
		return MODEL_ALL;
	}
}

struct model_end
model_end_of(const struct model *m, const struct model_session *s, uint32_t group)
{
	struct model_end end = {.needs = needs_of(&m->groups[group])};
	uint32_t n = 0;

	for (uint32_t i = 0; s->of[group].parts && i < s->n_stored; i++) {
		if (s->stored[i].group != group)
			continue;
		n++;
		if (s->stored[i].key == s->of[group].diverges_key)
			end.diverges_at = n;
	}
	return end;
}

static void
touch(struct model *m, struct model_chunk *c)
{
	model_use(c);
	c->time = ++m->clock;
}

void
model_unneeded(struct model *m, struct model_chunk *c)
{
	if (c->unneeded || c->spoiled || c->promises)
		return;
	c->unneeded = true;
	c->time = ++m->clock;
}

static void
need(struct model_chunk *c)
{
	c->needed += c->needed < 3;
}

/* What two lengths need that share nothing. */
static bool
is_near_the_end(struct model_end *end)
{
	return end->n_behind++ < UINT64_C(2) * end->needs;
}

void
model_end_stored(struct model *m, struct model_end *end, uint32_t i, uint32_t serial, bool present)
{
	bool is_shared = i < end->diverges_at && end->diverges_at - i <= end->needs;
	bool is_last = is_near_the_end(end);
	struct model_chunk *c = model_find_serial(m, serial);

	if (!c)
		return;
	if (is_shared)
		need(c);
	if (is_shared || is_last)
		touch(m, c);
	else if (!present)
		model_unneeded(m, c);
}

void
model_end_found(struct model *m, struct model_end *end, uint32_t serial)
{
	struct model_chunk *c = model_find_serial(m, serial);
	bool is_last;

	if (!c)
		return;
	is_last = is_near_the_end(end);
	need(c);
	if (is_last || c->needed >= 2)
		touch(m, c);
	else
		model_unneeded(m, c);
}
