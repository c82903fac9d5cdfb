/* SPDX-License-Identifier: Apache-2.0 */
#include "model_rig.h"

#include <errno.h>

#include "check_main.h"
#include "model_game.h"

/*
 * DESIGN
 *
 * The whole cache against a naive model of it: a server in this process, real sockets, the wire protocol, eviction lru.
 * Every reply must be what the model says, and after each frame STATUS too. A seed fixes everything that is asked.
 *
 * Each frame carries many operations of one peer, for speed, and is answered before the next one is sent: see
 * model_rig.h.
 *
 * Once with one group, as a model has whose layers are all alike, and once with 2 to MODEL_GROUPS of any policies, units, margins and
 * sizes, where a LOOKUP asks for several lengths, leaves hashes unnamed or asks ahead.
 *
 * The eviction order is seen from outside: a STORE of what the model says was evicted last is granted a slot only if it
 * was, and evicts the next one. A chain of these compares the whole order (see probe()).
 *
 * Of fifteen faults that were planted in promises, holds, renewals and the order of eviction, the short form finds each one that the long
 * form finds, as more games find more than longer ones do.
 *
 * KVSCOUT_MODEL_SEED=n runs that seed only; KVSCOUT_MODEL_SEEDS and KVSCOUT_MODEL_OPS set how many, and how many
 * operations each; KVSCOUT_MODEL_STATS=1 prints what happened. KVSCOUT_LONG=1 is the long form.
 */

struct size {
	uint32_t seeds, ops;
};

/* Of one group, and of several. */
#ifdef __SANITIZE_THREAD__ /* it costs twenty times as much */
static const struct size brief[2] = {{16, 1000}, {32, 500}}, full[2] = {{50, 1000}, {50, 500}};
#else
static const struct size brief[2] = {{16, 6000}, {32, 2500}}, full[2] = {{50, 20000}, {50, 4000}};
#endif

/*
 * RESET, and at once something about what it ends. What that had is given back after its answer, in steps; nothing that
 * depends on them is asked before they are over.
 */
static void
reset(struct player *p)
{
	uint32_t ns = m.peers[p->peer].ns;
	const struct model_session *s = draw_session(p->peer, m.peers[p->peer].worker);
	uint64_t ticket = s ? s->ticket : new_ticket();
	const struct model_hold *h = draw_hold(p->peer);
	struct op done = {.opcode = SCOUT_OP_STORE_DONE};
	struct model_parts parts = {.n = 1};
	struct model_item items[MODEL_ITEMS];
	uint32_t n;

	while (m.groups[parts.of[0].group].vacant)
		parts.of[0].group++;
	parts.of[0].to = m.groups[parts.of[0].group].stride;
	if (h) {
		done = (struct op){.opcode = h->write ? SCOUT_OP_STORE_DONE : SCOUT_OP_RETRIEVE_DONE,
				   .ticket = h->corr};
		if (h->write)
			done.a = done.b = h->n;
	}
	frame_begin();
	(void)add(p, &(struct op){.opcode = SCOUT_OP_RESET, .ticket = m.ns[ns].weights + !one_in(5)}, 0);
	(void)add(p, &(struct op){.opcode = SCOUT_OP_RETRIEVE, .ticket = ticket, .parts = parts}, 0);
	(void)add(p, &(struct op){.opcode = SCOUT_OP_ADMIT, .ticket = ticket, .b = 1}, 0);
	(void)add(p, &(struct op){.opcode = SCOUT_OP_FINISH, .ticket = ticket}, 0);
	(void)add(p, &done, 0);
	frame_exchange(p);
	n = model_status(&m, items);
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(items[i].name, "sessions") == 0 || strcmp(items[i].name, "l1.chunks") == 0)
			wire_wait_status(&p->wire, items[i].name, items[i].value);
	}
	frame_begin();
	frame_end(p);
}

/* ---- the eviction order ---- */

static struct op
store_of_one(uint32_t group, uint32_t tenant, uint32_t key)
{
	return (struct op){
		.opcode = SCOUT_OP_STORE, .group = group, .ask.run = {.tenant = tenant, .n = 1, .keys = {key}}};
}

/*
 * @rounds times: store what was evicted last of @group. The model knows it: had the server evicted another one, this one were
 * still there and got no slot. Each store evicts the next chunk of the order, and is committed.
 */
static void
probe(struct player *p, uint32_t group, uint32_t rounds)
{
	static uint32_t fresh;
	uint64_t evicted = m.evicted[group];

	if (m.peers[p->peer].weights || holds_of(p->peer) >= peer_holds() || m.groups[group].vacant)
		return;
	frame_begin();
	while (rounds-- > 0 && model_evictable(&m, group) > 0) {
		struct op op = m.evicted[group] == evicted
				       ? store_of_one(group, 0, 1000000 + ++fresh)
				       : store_of_one(group, m.evicted_tenant[group], m.evicted_key[group]);
		const struct op *stored = add(p, &op, 0);

		if (stored->grants.n_granted == 0)
			break; /* stored again meanwhile */
		(void)add(p, &(struct op){.opcode = SCOUT_OP_STORE_DONE, .ticket = stored->corr, .a = 1, .b = 1}, 0);
		if (n_ops + 3 <= FRAME_OPS && frame_has_room())
			continue;
		frame_end(p);
		frame_begin();
	}
	frame_end(p);
}

/* ---- a run ---- */

/* Some workers, or all, retrieve what a lookup was about, and some are done with it. */
static void
retrieve_together(uint64_t ticket, uint32_t n)
{
	struct op op = {.opcode = SCOUT_OP_RETRIEVE, .ticket = ticket};
	bool by_all = one_in(2);

	for (uint32_t g = 0; g < m.n_groups; g++) {
		if (m.groups[g].vacant)
			continue;
		op.parts.of[op.parts.n].group = g;
		op.parts.of[op.parts.n++].to = n - n % m.groups[g].stride;
	}
	for (uint32_t i = 0; i < PLAYERS; i++) {
		struct player *p = &players[i];
		const struct op *done;

		if (!p->used || m.peers[p->peer].rank < 0 || holds_of(p->peer) >= peer_holds() ||
		    !(by_all || one_in(3)))
			continue;
		frame_begin();
		done = add(p, &op, 0);
		if (done->status == SCOUT_WIRE_OK && done->grants.id && one_in(2))
			(void)add(p, &(struct op){.opcode = SCOUT_OP_RETRIEVE_DONE, .ticket = done->corr}, 0);
		frame_end(p);
	}
}

/* A worker of that rank stores the objects of a group that a prompt has: the first ones, or where not all are needed the last. */
static void
store_prompt(const struct model_run *run, uint32_t group, uint32_t rank)
{
	uint32_t stride = m.groups[group].stride, n = run->n / stride, most = m.groups[group].capacity / 2;
	bool from_start = m.groups[group].policy == SCOUT_POLICY_ALL;
	struct op op = {.opcode = SCOUT_OP_STORE, .group = group, .ask.run.tenant = run->tenant};
	const struct op *done;
	struct player *p;

	most = most < STORE_RUN ? most : STORE_RUN;
	if (from_start && n > most)
		n = most;
	for (uint32_t i = n > most ? n - most : 0; i < n; i++)
		op.ask.run.keys[op.ask.run.n++] = run->keys[(i + 1) * stride - 1];
	if (op.ask.run.n == 0)
		return;
	do
		p = draw_worker();
	while (m.peers[p->peer].rank != (int32_t)rank);
	frame_begin();
	done = add(p, &op, 0);
	if (done->status == SCOUT_WIRE_OK && done->grants.id)
		(void)add(p,
			  &(struct op){.opcode = SCOUT_OP_STORE_DONE,
				       .ticket = done->corr,
				       .a = done->grants.n_granted,
				       .b = done->grants.n_granted},
			  0);
	frame_end(p);
}

/* All ranks store the same chunks, so that they become a hit; a client looks them up, workers retrieve them. */
static void
store_together(void)
{
	struct op op = {.opcode = SCOUT_OP_LOOKUP, .ticket = new_ticket()};
	struct player *p = &players[draw(2)];

	draw_run(&op.ask.run, STORE_RUN + (m.n_groups > 1 && one_in(3) ? STORE_RUN : 0));
	for (uint32_t group = 0; group < m.n_groups; group++) {
		for (uint32_t rank = 0; !m.groups[group].vacant && rank < m.ranks; rank++)
			store_prompt(&op.ask.run, group, rank);
	}
	frame_begin();
	(void)add(p, &op, 0);
	frame_end(p);
	retrieve_together(op.ticket, op.ask.run.n);
}

static void
step(void)
{
	struct player *p = draw_player();
	uint32_t n;

	if (one_in(20))
		focus = draw(prompts);
	if (one_in(150)) {
		replace(p);
	} else if (one_in(200)) {
		reconnect(p);
	} else if (one_in(m.peers[p->peer].weights == m.ns[m.peers[p->peer].ns].weights ? 100 : 10)) {
		hello_again(p);
	} else if (one_in(150)) {
		reset(p);
	} else if (one_in(80)) {
		n = draw(m.n_groups);
		probe(draw_worker(), n, 1 + draw(m.groups[n].capacity + 1));
	} else if (one_in(m.n_groups == 1 ? 8 : 3)) {
		store_together();
	} else {
		frame_begin();
		for (n = 1 + draw(1 + draw(FRAME_OPS - 2)); n > 0 && frame_has_room(); n--) {
			if (m.peers[p->peer].rank >= 0)
				ask_as_worker(p);
			else
				ask_as_client(p);
		}
		frame_end(p);
	}
}

/* End all that is open, then compare the whole order. */
static void
finish(void)
{
	for (uint32_t i = 0; i < PLAYERS; i++) {
		bool more = players[i].used;

		while (more) {
			frame_begin();
			while (more && frame_has_room())
				more = ask_end(&players[i]);
			frame_end(&players[i]);
		}
	}
	for (uint32_t i = 0; i < PLAYERS; i++) {
		for (uint32_t g = 0; players[i].used && m.peers[players[i].peer].rank >= 0 && g < m.n_groups; g++)
			probe(&players[i], g, 2 * m.groups[g].capacity);
	}
	for (uint32_t i = 0; i < PLAYERS; i++) {
		if (players[i].used)
			wire_close(&players[i].wire);
	}
	if (m.other_peers)
		wire_close(&rest_of_pool);
	scout_server_stop(server);
}

static uint32_t
number_from(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);
	char *end = NULL;
	unsigned long value;

	if (!text)
		return otherwise;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || end == text || *end || value > UINT32_MAX) {
		(void)fprintf(stderr, "%s: \"%s\" is no number\n", name, text);
		exit(EXIT_FAILURE);
	}
	return (uint32_t)value;
}

static struct size
size_of_games(unsigned several)
{
	return is_long() ? full[several] : brief[several];
}

static void
play(uint32_t number, uint32_t n_groups)
{
	/* Without fork the process has had other seeds. */
	memset(places, 0, sizeof(places));
	memset(slots, 0, sizeof(slots));
	memset(players, 0, sizeof(players));
	n_done = n_reordered = last_ticket = 0;
	seed = number;
	random_state = UINT64_C(0x9e3779b97f4a7c15) * (seed + UINT64_C(1)) + n_groups - 1;
	start(n_groups);
	while (n_done < limit)
		step();
	finish();
	if (getenv("KVSCOUT_MODEL_STATS"))
		(void)fprintf(
			stderr,
			"seed %u: %llu ops, %u groups, %llu bytes promised, %u ranks, %u readers: asked %llu hit %llu limited %llu "
			"evicted %llu refused %llu stores, %llu ops; peers %llu; reordered %llu frames\n",
			seed, (unsigned long long)n_done, m.n_groups, (unsigned long long)m.max_promised, m.ranks,
			m.readers, (unsigned long long)m.asked, (unsigned long long)m.hits,
			(unsigned long long)m.limited, (unsigned long long)m.evictions, (unsigned long long)m.refusals,
			(unsigned long long)m.refused, (unsigned long long)m.joined, (unsigned long long)n_reordered);
	/* The run was worth something. */
	ck_assert_uint_gt(m.evictions, 0);
}

/* The loop's number is the seed. */
START_TEST(the_server_agrees_with_the_model)
{
	limit = number_from("KVSCOUT_MODEL_OPS", size_of_games(0).ops);
	play((uint32_t)_i, 1);
}
END_TEST

START_TEST(the_server_agrees_with_the_model_over_groups)
{
	limit = number_from("KVSCOUT_MODEL_OPS", size_of_games(1).ops);
	play((uint32_t)_i, 2 + (uint32_t)_i % (MODEL_GROUPS - 1));
}
END_TEST

/*
 * A reader that has used its promise, and is done, leaves the chunk to be evicted. The end of the session then names a
 * slot that is free, or another chunk's.
 */
START_TEST(a_session_ends_after_what_it_promised_was_read_and_evicted)
{
	struct wire_grants g;
	struct rig rig;
	uint64_t id;

	rig_up(&rig, 1);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 1), 1);
	ck_assert_uint_eq(rig_hit(&rig.client, 11, 1, 1), 1);
	ck_assert_int_eq(wire_retrieve(&rig.worker, 11, 0, 1, &g), SCOUT_WIRE_OK);
	free(g.grants);
	ck_assert_int_eq(wire_retrieve_done(&rig.worker, g.id, 0), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_granted(&rig.worker, 0, 2, 1, &id), 1);
	ck_assert_int_eq(wire_store_done(&rig.worker, id, 1, 0, &(uint32_t){0}), SCOUT_WIRE_OK);
	rig_finish(&rig.client, 11);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.bytes_promised"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.chunks"), 0);
	rig_down(&rig);
}
END_TEST

static void
add_games(Suite *suite, const char *name, const TTest *test, unsigned several)
{
	uint32_t only = number_from("KVSCOUT_MODEL_SEED", 0);
	uint32_t seeds = number_from("KVSCOUT_MODEL_SEEDS", size_of_games(several).seeds);
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 60 + number_from("KVSCOUT_MODEL_OPS", size_of_games(several).ops) / 500.0);
	tcase_add_loop_test(tc, test, only ? (int)only : 1, only ? (int)only + 1 : (int)seeds + 1);
	suite_add_tcase(suite, tc);
}

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("server_model");
	TCase *tc = tcase_create("found");

	add_games(suite, "model", the_server_agrees_with_the_model, 0);
	add_games(suite, "groups", the_server_agrees_with_the_model_over_groups, 1);
	tcase_add_test(tc, a_session_ends_after_what_it_promised_was_read_and_evicted);
	suite_add_tcase(suite, tc);
	return suite;
}
