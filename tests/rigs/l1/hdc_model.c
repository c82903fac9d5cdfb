/* SPDX-License-Identifier: Apache-2.0 */
#include "hdc_model.h"

#include <math.h>

struct hdc_model_entry {
	bool exists, ordered;
	uint32_t key;
	uint32_t touches, class, queue;
	uint64_t time; /* of the clock */
	uint64_t turn; /* of the moves: the order in a queue */
};

static struct {
	uint32_t n;
	uint64_t clock;
	uint64_t moves;
	uint32_t live;
	struct hdc_model_entry entries[HDC_MODEL_MAX];
	struct scout__ghost ghost; /* has tests of its own, as have the next two */
	struct scout__history history;
	struct scout__density density; /* what was counted; the index is taken over when it was learned */
	double lru_only, own_only, all;
	uint64_t holds_until, look_at;
	uint32_t hold_length;
} model;

const struct scout__hdc *
hdc_model_policy(void)
{
	return rig_state;
}

static uint64_t
print_of(uint32_t key)
{
	struct scout__entry e;

	rig_set_key(&e, key);
	return scout__fingerprint(&e);
}

static float
model_unit(void)
{
	return model.n > 256 ? (float)model.n / 256 : 1;
}

static uint32_t
model_class(uint32_t touches, uint32_t kind, uint32_t hinted)
{
	uint32_t group = touches >= 5 ? 3 : touches >= 3 ? 2 : touches == 2 ? 1 : 0;

	return hinted * 16 + kind * 4 + group;
}

static float
model_index(const struct hdc_model_entry *m)
{
	float units = (float)(model.clock - m->time) * (1 / model_unit());

	if (model.holds_until)
		return -(float)(model.clock - m->time);
	return model.density.index[m->class][scout__density_age(units)];
}

/* The oldest entry of each queue; of those the one with the least index, of equal ones the oldest, then by queue. */
static uint32_t
model_victim(float *ret_index)
{
	uint32_t best = SCOUT__NO_ENTRY;

	for (uint32_t queue = 0; queue < SCOUT__HDC_QUEUES; queue++) {
		uint32_t head = SCOUT__NO_ENTRY;

		for (uint32_t i = 0; i < model.n; i++)
			if (model.entries[i].ordered && model.entries[i].queue == queue &&
			    (head == SCOUT__NO_ENTRY || model.entries[i].turn < model.entries[head].turn))
				head = i;
		if (head == SCOUT__NO_ENTRY)
			continue;
		if (best == SCOUT__NO_ENTRY || model_index(&model.entries[head]) < model_index(&model.entries[best]) ||
		    (model_index(&model.entries[head]) == model_index(&model.entries[best]) &&
		     model.entries[head].time < model.entries[best].time))
			best = head;
	}
	if (best != SCOUT__NO_ENTRY)
		*ret_index = model_index(&model.entries[best]);
	return best;
}

static void
model_put(uint32_t i, uint32_t queue)
{
	model.entries[i].ordered = true;
	model.entries[i].queue = queue;
	model.entries[i].time = model.clock;
	model.entries[i].turn = ++model.moves;
}

static void
model_expire(void)
{
	uint32_t limit = 16 * model.n;
	struct scout__past past;

	for (int n = 0; n < 2; n++)
		if (scout__history_expire(&model.history, (uint32_t)model.clock, limit,
					  scout__history_is_full(&model.history), &past))
			scout__density_ended(&model.density, past.class,
					     fminf((float)(model.clock - past.time), (float)limit) * (1 / model_unit()),
					     false);
}

static void
model_learn(uint32_t key, uint32_t class, bool hits)
{
	uint32_t limit = 16 * model.n;
	struct scout__past past;
	uint64_t age;

	model_expire();
	scout__history_touch(&model.history, print_of(key), class, (uint32_t)model.clock, &past);
	age = model.clock - past.time;
	if (past.known)
		scout__density_ended(&model.density, past.class, fminf((float)age, (float)limit) * (1 / model_unit()),
				     age <= limit);
	model.all++;
	model.lru_only += past.in_lru && !hits;
	model.own_only += hits && !past.in_lru;
}

/* All at once what the policy does in slices. */
static void
model_relearn(void)
{
	struct scout__past past;

	scout__density_begin(&model.density);
	for (uint32_t i = 0; i < model.history.n_ever; i++)
		if (scout__history_at(&model.history, i, &past))
			scout__density_open(&model.density, past.class,
					    (float)(model.clock - past.time) * (1 / model_unit()));
	scout__density_pool(&model.density);
	for (uint32_t class = 0; class < SCOUT__CLASSES; class ++)
		scout__density_learn(&model.density, class);
	while (hdc_model_policy()->relearning != SCOUT__RELEARN_IDLE)
		scout__hdc_slice(rig_state);
}

static void
model_guard(void)
{
	double lead = model.lru_only - model.own_only;

	if (model.holds_until && model.clock >= model.holds_until) {
		model.holds_until = 0;
		model.lru_only = model.own_only = model.all = 0;
		model.look_at = model.clock + model.n / 4 + 1;
	} else if (!model.holds_until && model.clock >= model.look_at) {
		model.look_at = model.clock + model.n / 4 + 1;
		if (lead > 6 * sqrt(model.lru_only + model.own_only) && lead > 0.003 * model.all) {
			model.holds_until = model.clock + (uint64_t)model.n * model.hold_length;
			if (model.hold_length < 64)
				model.hold_length *= 2;
		}
		model.lru_only *= 0.93;
		model.own_only *= 0.93;
		model.all *= 0.93;
	}
}

static void
ask(uint32_t n)
{
	bool was_idle = hdc_model_policy()->relearning == SCOUT__RELEARN_IDLE;

	ck_assert(was_idle);
	model.clock += n;
	rig_ops->asked(rig_state, n);
	if (hdc_model_policy()->relearning != SCOUT__RELEARN_IDLE)
		model_relearn();
	model_guard();
	ck_assert_int_eq(hdc_model_policy()->guard.holds_until != 0, model.holds_until != 0);
	ck_assert_mem_eq(hdc_model_policy()->density->index, model.density.index, sizeof(model.density.index));
}

static void
create(uint32_t i, uint32_t key)
{
	struct hdc_model_entry *m = &model.entries[i];

	*m = (struct hdc_model_entry){.exists = true, .key = key};
	model.live++;
	(void)scout__ghost_take(&model.ghost, print_of(key), 3 * (uint64_t)model.n, &m->touches);
	m->class = model_class(m->touches, 0, 0);
	model_put(i, m->class);
	rig_create(i, key);
}

static void
drop(uint32_t i)
{
	struct hdc_model_entry *m = &model.entries[i];

	m->exists = m->ordered = false;
	model.live--;
	scout__ghost_add(&model.ghost, print_of(m->key), m->touches);
	rig_drop(i);
}

static uint32_t
evict(void)
{
	float index;
	uint32_t victim = model_victim(&index);

	ck_assert_uint_eq(rig_ops->victim(rig_state), victim);
	ck_assert_uint_ne(victim, SCOUT__NO_ENTRY);
	drop(victim);
	return victim;
}

static bool
is_newest(uint32_t i)
{
	for (uint32_t other = 0; other < model.n; other++)
		if (model.entries[other].ordered && model.entries[other].queue == model.entries[i].queue &&
		    model.entries[other].turn > model.entries[i].turn)
			return false;
	return true;
}

static void
touch(uint32_t i, struct scout__touch *touch)
{
	struct hdc_model_entry *m = &model.entries[i];
	uint32_t queue;
	float least;

	m->touches += m->touches < 5;
	if (m->touches < touch->behind)
		m->touches = touch->behind;
	m->class = model_class(m->touches, touch->kind, touch->hinted);
	model_learn(m->key, m->class, touch->how == SCOUT__ACCESS_READ);
	queue = m->class;
	if (!model.holds_until && model.live >= model.n - model.n / 16 && model_victim(&least) != SCOUT__NO_ENTRY &&
	    2 * model.density.index[m->class][0] < least)
		queue = SCOUT__SPARE_QUEUE;
	if (!(m->queue == queue && m->time == model.clock && is_newest(i)))
		model_put(i, queue);
	rig_ops->accessed(rig_state, i, touch);
	ck_assert_uint_eq(rig_entries[i].node.queue, queue);
	ck_assert_uint_eq(touch->behind, m->touches);
}

static uint32_t
entry_of(uint32_t key)
{
	for (uint32_t i = 0; i < model.n; i++)
		if (model.entries[i].exists && model.entries[i].key == key)
			return i;
	return SCOUT__NO_ENTRY;
}

static uint32_t
free_entry(void)
{
	for (uint32_t i = 0; i < model.n; i++)
		if (!model.entries[i].exists)
			return i;
	return evict();
}

uint32_t
hdc_model_session(uint32_t from, uint32_t n, uint32_t kind, uint32_t hinted)
{
	struct scout__touch one = {.kind = kind, .hinted = hinted};
	enum scout__access how[HDC_MODEL_CHUNKS];
	uint32_t hits = 0;

	ask(n);
	for (uint32_t at = 0; at < n; at++) {
		uint32_t i = entry_of(from + at);

		how[at] = i == SCOUT__NO_ENTRY ? SCOUT__ACCESS_STORED : SCOUT__ACCESS_READ;
		hits += i != SCOUT__NO_ENTRY;
		if (i == SCOUT__NO_ENTRY) {
			create(free_entry(), from + at);
		} else if (rig_draw(2)) {
			rig_pin(i);
			model.entries[i].ordered = false;
			rig_unpin(i);
			model_put(i, model.entries[i].queue);
		}
	}
	for (uint32_t at = n; at-- > 0;) {
		uint32_t i = entry_of(from + at);

		one.how = how[at];
		if (i != SCOUT__NO_ENTRY && rig_draw(50))
			touch(i, &one);
	}
	return hits;
}

void
hdc_model_open(uint32_t n)
{
	memset(&model, 0, sizeof(model));
	model.n = n;
	model.hold_length = 1;
	model.look_at = 2 * n;
	ck_assert_int_eq(scout__ghost_init(&model.ghost, n), 0);
	ck_assert_int_eq(scout__history_init(&model.history, n), 0);
	scout__density_init(&model.density);
	rig_open("hdc", n);
}

void
hdc_model_close(void)
{
	rig_ops->check(rig_state, model.live);
	scout__ghost_fini(&model.ghost);
	scout__history_fini(&model.history);
	rig_close();
}

bool
hdc_model_guarded(void)
{
	return model.holds_until != 0;
}

void
hdc_model_check(void)
{
	rig_ops->check(rig_state, model.live);
}
