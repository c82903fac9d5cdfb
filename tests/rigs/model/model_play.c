/* SPDX-License-Identifier: Apache-2.0 */
#include "model_play.h"
#include "random.h"

struct player players[PLAYERS];

struct scout_server *server;

const char *endpoint;

uint64_t last_ticket;

uint64_t random_state;

uint32_t prompts, depth;

uint32_t focus;

uint32_t
draw(uint32_t below)
{
	return (uint32_t)((xorshift(&random_state) >> 20) % below);
}

bool
one_in(uint32_t n)
{
	return draw(n) == 0;
}

uint32_t
key_of(uint32_t prompt, uint32_t i)
{
	return i < prompt * 5 % depth ? (prompt % 3) * 1000 + i : (prompt + 3) * 1000 + i;
}

void
draw_run(struct model_run *run, uint32_t max)
{
	uint32_t prompt = one_in(3) ? draw(prompts) : focus;
	uint32_t first = one_in(6) ? draw(depth) : 0;

	run->tenant = one_in(5) ? draw(MODEL_TENANTS) : 0;
	run->n = 1 + draw(max);
	for (uint32_t i = 0; i < run->n; i++)
		run->keys[i] = key_of(prompt, first + i);
	if (one_in(30))
		run->keys[draw(run->n)] = run->keys[draw(run->n)];
}

uint32_t
draw_group(void)
{
	return one_in(100) ? m.n_groups : draw(m.n_groups);
}

void
draw_objects(struct model_run *run, uint32_t group, uint32_t max)
{
	uint32_t stride = group < m.n_groups ? m.groups[group].stride : 1;
	uint32_t behind = one_in(3) ? draw(1 + depth / stride) : 0;

	draw_run(run, max);
	if (stride == 1 && behind == 0)
		return;
	for (uint32_t i = 0; i < run->n; i++)
		run->keys[i] = key_of(focus, (behind + i + 1) * stride - 1);
}

const struct model_session *
draw_session(uint32_t peer, bool of_anybody)
{
	uint32_t first = draw(MODEL_SESSIONS);
	const struct model_session *found = NULL;

	if (one_in(25))
		return NULL;
	of_anybody = of_anybody || one_in(12);
	for (uint32_t i = 0; i < MODEL_SESSIONS; i++) {
		const struct model_session *s = &m.sessions[(first + i) % MODEL_SESSIONS];

		if (!s->used || (!of_anybody && s->peer != peer) || (s->is_kept && !one_in(10)))
			continue;
		found = s;
		if (s->hit > 0 || one_in(3))
			break; /* those that hit are worth more */
	}
	return found;
}

uint32_t
holds_of(uint32_t peer)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_HOLDS; i++)
		n += m.holds[i].used && m.holds[i].peer == peer;
	return n;
}

uint32_t
peer_holds(void)
{
	return PEER_HOLDS / m.n_groups;
}

const struct model_hold *
draw_hold(uint32_t peer)
{
	uint32_t first = draw(MODEL_HOLDS);
	bool of_anybody = one_in(20);

	for (uint32_t i = 0; i < MODEL_HOLDS; i++) {
		const struct model_hold *h = &m.holds[(first + i) % MODEL_HOLDS];

		if (h->used && (of_anybody || h->peer == peer))
			return h;
	}
	return NULL;
}

uint64_t
new_ticket(void)
{
	return ++last_ticket * UINT64_C(0x9e3779b97f4a7c15);
}

/* What several groups have besides: lengths, and a part of the prompt that is not named. */
static void
draw_lengths(struct model_ask *ask)
{
	if (one_in(2))
		ask->more = draw(5);
	if (one_in(4))
		ask->beyond = draw(4) % ask->run.n;
	if (ask->skip > ask->run.n - ask->beyond)
		ask->skip = ask->run.n - ask->beyond;
	if (one_in(3))
		ask->first = draw(ask->skip + 1);
	if (ask->first == ask->run.n)
		ask->first--;
	if (one_in(6) && !ask->renews) {
		ask->ahead = true;
		ask->skip = ask->first;
	}
}

static void
ask_lookup(struct player *p)
{
	struct op op = {.opcode = SCOUT_OP_LOOKUP};
	const struct model_session *used = one_in(40) ? draw_session(p->peer, true) : NULL;

	op.ticket = used ? used->ticket : new_ticket();
	draw_run(&op.ask.run, MODEL_RUN);
	op.ask.skip = one_in(3) ? draw(op.ask.run.n + 1) : 0;
	if (m.n_groups > 1 || m.groups[0].policy != SCOUT_POLICY_ALL)
		draw_lengths(&op.ask);
	(void)add(p, &op, 0);
}

static void
ask_renewal(struct player *p)
{
	const struct model_session *s = draw_session(p->peer, one_in(20));
	struct op op = {.opcode = SCOUT_OP_LOOKUP, .ask.renews = true, .ticket = s ? s->ticket : new_ticket()};
	const struct model_kept *k = s ? &s->of[0] : NULL;

	if (s && !one_in(15))
		op.ask = s->ask;
	else
		draw_run(&op.ask.run, MODEL_RUN);
	op.ask.renews = true;
	op.ask.ahead = false;
	if (m.n_groups > 1) {
		op.ask.skip = s ? s->skip : 0;
	} else {
		op.ask.skip = 0;
		while (s && op.ask.skip < s->hit && !k->kept[op.ask.skip])
			op.ask.skip++;
	}
	if (one_in(6))
		op.ask.skip = draw(op.ask.run.n + 1);
	if (op.ask.skip > op.ask.run.n)
		op.ask.skip = op.ask.run.n;
	if (!model_is_run(&m, &op.ask)) {
		op.ask.first = op.ask.beyond = 0;
		draw_lengths(&op.ask);
		op.ask.ahead = false;
	}
	(void)add(p, &op, 0);
}

static void
ask_admit(struct player *p)
{
	const struct model_session *s = draw_session(p->peer, false);
	uint32_t hit = s ? s->hit : 0;
	struct op op = {.opcode = SCOUT_OP_ADMIT, .ticket = s ? s->ticket : new_ticket()};

	op.a = one_in(2) ? 0 : draw(hit + 3);
	op.b = one_in(2) ? hit : draw(hit + 3);
	(void)add(p, &op, 0);
}

static void
ask_finish(struct player *p)
{
	const struct model_session *s = draw_session(p->peer, false);

	struct op op = {.opcode = SCOUT_OP_FINISH, .ticket = s ? s->ticket : new_ticket()};

	if (one_in(3))
		op.wish.keep_ms = one_in(3) ? 1 : one_in(10) ? SCOUT_MAX_KEEP_MS + 1 : SCOUT_MAX_KEEP_MS;
	op.wish.over = one_in(8);
	(void)add(p, &op, 0);
}

/* Mostly a new correlation id; sometimes that of a store or retrieve that is not done. */
static uint64_t
draw_corr(struct player *p)
{
	const struct model_hold *h;

	if (!one_in(60))
		return 0;
	h = draw_hold(p->peer);
	if (!h)
		return 0;
	for (uint32_t i = 0; i < n_ops; i++) {
		if (ops[i].corr == h->corr)
			return 0; /* it is of this frame, and its reply could not be told apart */
	}
	return h->corr;
}

static void
ask_store(struct player *p)
{
	struct op op = {.opcode = SCOUT_OP_STORE};
	const struct model_session *s = draw_session(p->peer, true);

	op.group = draw_group();
	draw_objects(&op.ask.run, op.group, STORE_RUN);
	if (s && s->n_stored + op.ask.run.n <= MODEL_STORED)
		op.ticket = s->ticket;
	(void)add(p, &op, draw_corr(p));
}

/* A range of one group, of a session that hits @hit. */
static void
draw_part(struct model_parts *parts, uint32_t group, uint32_t hit)
{
	uint32_t stride = one_in(30) ? 1 : m.groups[group].stride;
	uint32_t from = one_in(2) ? 0 : draw(hit + 1), to = one_in(2) ? hit : draw(hit + 1);

	if (one_in(15))
		to = draw(MODEL_RUN + 1);
	from -= from % stride;
	to -= to % stride;
	if (from > to && !one_in(20)) {
		uint32_t was = to;

		to = from;
		from = was;
	}
	parts->of[parts->n].group = group;
	parts->of[parts->n].from = from;
	parts->of[parts->n++].to = to;
}

static void
ask_retrieve(struct player *p)
{
	const struct model_session *s = draw_session(p->peer, true);
	struct op op = {.opcode = SCOUT_OP_RETRIEVE, .ticket = s ? s->ticket : new_ticket()};
	bool of_all = one_in(2);

	for (uint32_t group = 0; group < m.n_groups; group++) {
		if ((m.groups[group].vacant && !one_in(60)) || (group + 1 < m.n_groups && !of_all && one_in(2)))
			continue;
		draw_part(&op.parts, group, s ? s->hit : 0);
	}
	if (op.parts.n > 0)
		(void)add(p, &op, draw_corr(p));
}

static void
ask_done(struct player *p)
{
	const struct model_hold *h = draw_hold(p->peer);
	uint64_t id = h ? h->corr : p->wire.last_corr + 1000 - draw(2000);
	bool write = one_in(30) ? one_in(2) : h && h->write;
	struct op op = {.opcode = write ? SCOUT_OP_STORE_DONE : SCOUT_OP_RETRIEVE_DONE, .ticket = id};
	uint64_t again;

	if (write) {
		op.a = h && !one_in(20) ? h->n : draw(STORE_RUN);
		op.b = one_in(3) ? draw(op.a + 1) : op.a;
		if (one_in(50))
			op.b = op.a + 1;
	} else {
		op.a = one_in(100);
	}
	again = add(p, &op, 0)->status == SCOUT_WIRE_OK && one_in(12);
	if (again)
		(void)add(p, &op, 0);
}

static uint32_t
sessions_of(uint32_t peer, bool of_anybody)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < MODEL_SESSIONS; i++)
		n += m.sessions[i].used && (of_anybody || (!m.sessions[i].is_kept && m.sessions[i].peer == peer));
	return n;
}

void
ask_as_client(struct player *p)
{
	bool none = sessions_of(p->peer, false) == 0 && !one_in(8);
	bool full = sessions_of(p->peer, true) == m.max_sessions && !one_in(8);
	uint32_t what = draw(100);

	if (what < 3)
		ask_store(p);
	else if (what < 5)
		ask_retrieve(p);
	else if (what < 7)
		ask_done(p);
	else if ((what < 40 && !full) || none)
		ask_lookup(p);
	else if (what < 55)
		ask_renewal(p);
	else if (what < 72)
		ask_admit(p);
	else
		ask_finish(p);
}

void
ask_as_worker(struct player *p)
{
	uint32_t holds = holds_of(p->peer);
	bool none = holds == 0 && !one_in(8);
	uint32_t what = draw(100);

	if (what < 2)
		ask_lookup(p);
	else if (what < 5)
		ask_finish(p);
	else if (what < 7)
		ask_admit(p);
	else if (holds == peer_holds() || (what >= 60 && !none))
		ask_done(p);
	else if (what % 2)
		ask_store(p);
	else
		ask_retrieve(p);
}

bool
ask_end(struct player *p)
{
	struct op op = {.opcode = 0};

	for (uint32_t i = 0; i < MODEL_SESSIONS && !op.opcode; i++) {
		if (m.sessions[i].used && !m.sessions[i].is_kept && m.sessions[i].peer == p->peer)
			op = (struct op){.opcode = SCOUT_OP_FINISH, .ticket = m.sessions[i].ticket};
	}
	for (uint32_t i = 0; i < MODEL_HOLDS && !op.opcode; i++) {
		const struct model_hold *h = &m.holds[i];

		if (h->used && h->peer == p->peer)
			op = (struct op){.opcode = h->write ? SCOUT_OP_STORE_DONE : SCOUT_OP_RETRIEVE_DONE,
					 .ticket = h->corr,
					 .a = h->write ? h->n : 0};
	}
	if (!op.opcode)
		return false;
	(void)add(p, &op, 0);
	return true;
}
