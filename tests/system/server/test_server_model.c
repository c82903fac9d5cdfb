/* SPDX-License-Identifier: Apache-2.0 */
#include "model_rig.h"

#include <errno.h>

#include "check_main.h"
#include "model_play.h"

/*
 * DESIGN
 *
 * The whole cache against a naive model of it: a server in this process, real sockets, the wire protocol, eviction lru.
 * Every reply must be what the model says, and after each frame STATUS too. A seed fixes everything that is asked.
 *
 * Each frame carries many operations of one peer, for speed, and is answered before the next one is sent: see
 * model_rig.h.
 *
 * The eviction order is seen from outside: a STORE of what the model says was evicted last is granted a slot only if it
 * was, and evicts the next one. A chain of these compares the whole order (see probe()).
 *
 * KVSCOUT_MODEL_SEED=n runs that seed only; KVSCOUT_MODEL_SEEDS and KVSCOUT_MODEL_OPS set how many, and how many
 * operations each; KVSCOUT_MODEL_STATS=1 prints what happened.
 */

#define SEEDS 50u
#ifdef __SANITIZE_THREAD__
#define OPS 1000u /* it costs twenty times as much */
#else
#define OPS 20000u
#endif

_Static_assert(MODEL_SESSIONS *ENDING + PEER_HOLDS * MODEL_RUN <= INLINE, "a BYE is executed in one turn");

/* ---- what to ask ---- */

/* ---- players ---- */

static struct player *
draw_player(void)
{
	uint32_t i;

	do
		i = draw(PLAYERS);
	while (!players[i].used);
	return &players[i];
}

/* A registered one. */
static struct player *
draw_worker(void)
{
	struct player *p;

	do
		p = draw_player();
	while (m.peers[p->peer].rank < 0);
	return p;
}

/* HELLO and lease of a player whose wire is open. */
static void
greet(struct player *p, const struct model_peer *peer)
{
	static const char *const names[MODEL_NAMESPACES] = {"test", "other"};

	p->wire.hello.role = peer->worker ? SCOUT_ROLE_WORKER : SCOUT_ROLE_CLIENT;
	p->wire.hello.rank_count = p->wire.hello.kv_ranks = (uint16_t)m.ranks;
	p->wire.hello.readers = (uint16_t)m.readers;
	p->wire.hello.heartbeat_ms = 600000;
	p->wire.hello.weights = peer->weights;
	p->wire.hello.name_space = (struct scout__str){names[peer->ns], (uint16_t)strlen(names[peer->ns])};
	ck_assert_int_eq(wire_hello(&p->wire), SCOUT_WIRE_OK);
	if (peer->lease)
		ck_assert_int_eq(wire_lease(&p->wire), SCOUT_LEASE_OK);
}

static void
join(struct player *p, const struct model_peer *peer)
{
	wire_open(&p->wire, endpoint);
	greet(p, peer);
	if (peer->rank >= 0)
		ck_assert_int_eq(wire_register(&p->wire, (uint16_t)peer->rank, (uint16_t)peer->reader, SHARD_BYTES),
				 SCOUT_WIRE_OK);
	p->peer = model_join(&m, peer);
	p->used = true;
}

/* One that is not @p, to watch what becomes of it. */
static struct player *
other_than(const struct player *p)
{
	struct player *other = players;

	while (other == p || !other->used)
		other++;
	return other;
}

/* A goodbye, and somebody of the same kind instead. */
static void
replace(struct player *p)
{
	struct model_peer peer = m.peers[p->peer];

	if (!peer.lease)
		return;
	wire_lease_bye(&p->wire);
	model_bye(&m, p->peer);
	p->used = false;
	wire_wait_status(&other_than(p)->wire, "peers", m.joined - m.left);
	wire_close(&p->wire);
	frame_begin();
	frame_end(other_than(p));
	if (one_in(4))
		peer.reader = draw(m.readers);
	peer.weights = one_in(2) ? m.ns[peer.ns].weights : 0;
	join(p, &peer);
}

/* The connection is lost, and the same peer comes back: it has all that it had. */
static void
reconnect(struct player *p)
{
	struct model_peer *peer = &m.peers[p->peer];
	uint64_t last_corr = p->wire.last_corr;
	uint64_t token = p->wire.hello.token;

	wire_close(&p->wire);
	wire_open(&p->wire, endpoint);
	p->wire.hello.token = token;
	p->wire.last_corr = last_corr;
	if (peer->weights != m.ns[peer->ns].weights)
		peer->weights = 0;
	greet(p, peer);
}

/* HELLO again: some other version of the weights, that of now, or none. */
static void
hello_again(struct player *p)
{
	const struct model_peer *peer = &m.peers[p->peer];
	uint64_t weights = one_in(10) ? 999 : one_in(2) ? m.ns[peer->ns].weights : 0;
	int expected = model_hello(&m, p->peer, weights);

	p->wire.hello.weights = weights;
	ck_assert_int_eq(wire_hello(&p->wire), expected);
}

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
	struct model_item items[MODEL_ITEMS];
	uint32_t n;

	if (h) {
		done = (struct op){.opcode = h->write ? SCOUT_OP_STORE_DONE : SCOUT_OP_RETRIEVE_DONE,
				   .ticket = h->corr};
		if (h->write)
			done.a = done.b = h->n;
	}
	frame_begin();
	(void)add(p, &(struct op){.opcode = SCOUT_OP_RESET, .ticket = m.ns[ns].weights + !one_in(5)}, 0);
	(void)add(p, &(struct op){.opcode = SCOUT_OP_RETRIEVE, .ticket = ticket, .b = 1}, 0);
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
store_of_one(uint32_t tenant, uint32_t key)
{
	return (struct op){.opcode = SCOUT_OP_STORE, .run = {.tenant = tenant, .n = 1, .keys = {key}}};
}

/*
 * @rounds times: store what was evicted last. The model knows it: had the server evicted another one, this one were
 * still there and got no slot. Each store evicts the next chunk of the order, and is committed.
 */
static void
probe(struct player *p, uint32_t rounds)
{
	static uint32_t fresh;
	uint64_t evictions = m.evictions;

	if (m.peers[p->peer].weights || holds_of(p->peer) >= PEER_HOLDS)
		return;
	frame_begin();
	while (rounds-- > 0 && model_evictable(&m) > 0) {
		struct op op = m.evictions == evictions ? store_of_one(0, 1000000 + ++fresh)
							: store_of_one(m.evicted_tenant, m.evicted_key);
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
	bool by_all = one_in(2);

	for (uint32_t i = 0; i < PLAYERS; i++) {
		struct player *p = &players[i];
		const struct op *done;

		if (!p->used || m.peers[p->peer].rank < 0 || holds_of(p->peer) >= PEER_HOLDS || !(by_all || one_in(3)))
			continue;
		frame_begin();
		done = add(p, &(struct op){.opcode = SCOUT_OP_RETRIEVE, .ticket = ticket, .b = n}, 0);
		if (done->status == SCOUT_WIRE_OK && done->grants.id && one_in(2))
			(void)add(p, &(struct op){.opcode = SCOUT_OP_RETRIEVE_DONE, .ticket = done->corr}, 0);
		frame_end(p);
	}
}

/* All ranks store the same chunks, so that they become a hit; a client looks them up, workers retrieve them. */
static void
store_together(void)
{
	struct op op = {.opcode = SCOUT_OP_STORE};
	const struct op *done;
	struct player *p;

	draw_run(&op.run, STORE_RUN < m.capacity / 2 ? STORE_RUN : m.capacity / 2);
	for (uint32_t rank = 0; rank < m.ranks; rank++) {
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
	op.opcode = SCOUT_OP_LOOKUP;
	op.ticket = new_ticket();
	p = &players[draw(2)];
	frame_begin();
	(void)add(p, &op, 0);
	frame_end(p);
	retrieve_together(op.ticket, op.run.n);
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
		probe(draw_worker(), 1 + draw(m.capacity));
	} else if (one_in(8)) {
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

/*
 * Store until the pool has grown to its end: from then on no STORE waits for it. Each of these is alone in its frame,
 * because waiting it lets others pass.
 */
static void
fill(struct player *p)
{
	struct op op = {.opcode = SCOUT_OP_STORE};
	uint64_t corr;

	for (uint32_t first = 0; first < m.capacity; first += op.run.n) {
		op.run.n = m.capacity - first < STORE_RUN ? m.capacity - first : STORE_RUN;
		for (uint32_t i = 0; i < op.run.n; i++)
			op.run.keys[i] = first + i;
		frame_begin();
		corr = add(p, &op, 0)->corr;
		frame_exchange(p);
		frame_begin();
		(void)add(p, &(struct op){.opcode = SCOUT_OP_STORE_DONE, .ticket = corr, .a = op.run.n, .b = op.run.n},
			  0);
		frame_exchange(p);
	}
	wire_wait_status(&p->wire, "l1.slots", m.capacity);
	frame_begin();
	frame_end(p);
}

static void
start(void)
{
	uint32_t capacity = 8 + (one_in(2) ? draw(24) : draw(193));
	uint32_t ranks = 1 + draw(MODEL_RANKS);
	struct scout_server_config cfg = rig_config(capacity * ranks);
	uint32_t readers = 1 + draw(one_in(2) ? 2 : MODEL_READERS);
	/* Each reader of each rank, if these are not too many. */
	uint32_t n_workers = ranks * readers <= 8 ? ranks * readers + draw(2) : ranks + draw(5);
	char err[128];

	model_init(&m, capacity, 1 + draw(one_in(2) ? 8 : capacity), ranks, readers, 4 + draw(MODEL_SESSIONS - 3));
	depth = 1 + draw(one_in(2) ? 4 : 30);
	prompts = 1 + capacity * (1 + draw(3)) / depth;
	ck_assert_int_eq(scout_server_config_set(&cfg, "eviction", "lru", err, sizeof(err)), 0);
	cfg.max_promised = (uint64_t)m.max_promised * ranks * SHARD_BYTES;
	cfg.max_sessions = m.max_sessions;
	server = rig_start(&cfg);
	scout_server_config_fini(&cfg);
	endpoint = scout_server_endpoint(server);
	m.ns[0].weights = WEIGHTS;
	m.ns[1].weights = WEIGHTS;
	join(&players[0], &(struct model_peer){.rank = -1, .weights = WEIGHTS});
	join(&players[1], &(struct model_peer){.rank = -1, .lease = true});
	join(&players[2], &(struct model_peer){.rank = -1, .ns = 1, .weights = WEIGHTS, .lease = true});
	join(&players[3], &(struct model_peer){.rank = -1, .worker = true, .lease = true});
	for (uint32_t i = 0; i < n_workers; i++)
		join(&players[4 + i], &(struct model_peer){.worker = true,
							   .lease = true,
							   .rank = (int32_t)(i % ranks),
							   .reader = i / ranks % readers,
							   .weights = one_in(4) ? WEIGHTS : 0});
	fill(&players[4]);
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
		if (players[i].used && m.peers[players[i].peer].rank >= 0)
			probe(&players[i], 2 * m.capacity);
	}
	for (uint32_t i = 0; i < PLAYERS; i++) {
		if (players[i].used)
			wire_close(&players[i].wire);
	}
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

/* The loop's number is the seed. */
START_TEST(the_server_agrees_with_the_model)
{
	/* Without fork the process has had other seeds. */
	memset(places, 0, sizeof(places));
	memset(slots, 0, sizeof(slots));
	memset(players, 0, sizeof(players));
	n_done = n_reordered = last_ticket = 0;
	seed = (uint32_t)_i;
	random_state = UINT64_C(0x9e3779b97f4a7c15) * (seed + UINT64_C(1));
	start();
	while (n_done < limit)
		step();
	finish();
	if (getenv("KVSCOUT_MODEL_STATS"))
		(void)fprintf(
			stderr,
			"seed %u: %llu ops, pool %u, %u promised, %u ranks, %u readers: asked %llu hit %llu limited %llu "
			"evicted %llu refused %llu stores, %llu ops; peers %llu; reordered %llu frames\n",
			seed, (unsigned long long)n_done, m.capacity, m.max_promised, m.ranks, m.readers,
			(unsigned long long)m.asked, (unsigned long long)m.hits, (unsigned long long)m.limited,
			(unsigned long long)m.evictions, (unsigned long long)m.refusals, (unsigned long long)m.refused,
			(unsigned long long)m.joined, (unsigned long long)n_reordered);
	/* The run was worth something. */
	ck_assert_uint_gt(m.evictions, 0);
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

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("server_model");
	TCase *tc = tcase_create("model");
	uint32_t seeds = number_from("KVSCOUT_MODEL_SEEDS", SEEDS);
	uint32_t only = number_from("KVSCOUT_MODEL_SEED", 0);

	limit = number_from("KVSCOUT_MODEL_OPS", OPS);
	tcase_set_timeout(tc, 60 + limit / 500.0);
	tcase_add_loop_test(tc, the_server_agrees_with_the_model, only ? (int)only : 1,
			    only ? (int)only + 1 : (int)seeds + 1);
	suite_add_tcase(suite, tc);
	tc = tcase_create("found");
	tcase_add_test(tc, a_session_ends_after_what_it_promised_was_read_and_evicted);
	suite_add_tcase(suite, tc);
	return suite;
}
