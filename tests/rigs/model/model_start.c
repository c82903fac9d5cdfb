/* SPDX-License-Identifier: Apache-2.0 */
#include "model_game.h"

#define EXTENTS 10u /* a pool has 8 at least, and each group may have an extent of half of its equal part */

_Static_assert(EXTENTS >= 2 * MODEL_GROUPS, "the extents of all groups are of the size that is configured");

struct wire_peer rest_of_pool;

/* The start of a run: a server, its groups and players are drawn, and the memory is filled. */

/*
 * Store until the pool has grown to its end: from then on no STORE waits for it. Each of these is alone in its frame,
 * because waiting it lets others pass.
 */
static void
fill(struct player *p, uint32_t group, uint32_t first, uint32_t end)
{
	struct op op = {.opcode = SCOUT_OP_STORE, .group = group};
	uint64_t corr;

	for (; first < end; first += op.ask.run.n) {
		op.ask.run.n = end - first < STORE_RUN ? end - first : STORE_RUN;
		for (uint32_t i = 0; i < op.ask.run.n; i++)
			op.ask.run.keys[i] = first + i;
		frame_begin();
		corr = add(p, &op, 0)->corr;
		frame_exchange(p);
		frame_begin();
		(void)add(p,
			  &(struct op){
				  .opcode = SCOUT_OP_STORE_DONE, .ticket = corr, .a = op.ask.run.n, .b = op.ask.run.n},
			  0);
		frame_exchange(p);
	}
}

static void
fill_all(struct player *p)
{
	uint64_t n_slots = m.other_chunks;

	for (uint32_t g = 0; g < m.n_groups; g++) {
		if (!m.groups[g].vacant)
			fill(p, g, 0, m.groups[g].capacity);
		n_slots += m.groups[g].capacity;
	}
	wire_wait_status(&p->wire, "l1.slots", n_slots);
	frame_begin();
	frame_end(p);
}

/*
 * A namespace of one worker, which fills the @n extents that groups have not got. So each of them has one, which none can take
 * from it: memory moves to the group that has more use for it, and that is not the model's.
 */
static void
take_the_rest(uint32_t n, uint64_t extent_bytes)
{
	struct wire_peer *p = &rest_of_pool;

	wire_open(p, endpoint);
	p->hello.role = SCOUT_ROLE_WORKER;
	p->hello.heartbeat_ms = 600000;
	p->hello.name_space = (struct scout__str){"rest", 4};
	assert_wire(wire_hello(p), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
	assert_wire(wire_register(p, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	m.other_peers = 1;
	m.joined++;
	m.other_bytes = n * extent_bytes;
	m.other_chunks = m.other_bytes / SHARD_BYTES;
	for (uint64_t key = 0; key < m.other_chunks; key += STORE_RUN) {
		uint64_t left = m.other_chunks - key;

		(void)rig_store(p, 0, key, (uint32_t)(left < STORE_RUN ? left : STORE_RUN));
		m.ops[SCOUT_OP_STORE]++;
		m.ops[SCOUT_OP_STORE_DONE]++;
	}
}

static void
draw_model_group(uint32_t g)
{
	static const uint32_t strides[] = {1, 1, 1, 2, 2, 3, 4};
	struct model_group *group = &m.groups[g];

	*group = (struct model_group){.policy = g == 0 && !one_in(4) ? SCOUT_POLICY_ALL : draw(4),
				      .stride = strides[draw(7)],
				      .shard_bytes = one_in(3) ? 2 * SHARD_BYTES : SHARD_BYTES,
				      .vacant = g > 0 && one_in(8)};
	group->unit = group->stride * m.hash_tokens;
	if (group->policy == SCOUT_POLICY_WINDOW || group->policy == SCOUT_POLICY_LOCAL)
		group->span = 1 + draw(one_in(2) ? 3 * m.hash_tokens : 12 * m.hash_tokens);
	if (one_in(5))
		group->margin = one_in(2) ? group->unit : draw(2 * group->unit);
}

/* Several groups; each that is stored has an extent of @extent small shards. */
static void
draw_groups(uint32_t n, uint32_t extent)
{
	for (uint32_t g = 0; g < n; g++) {
		draw_model_group(g);
		if (!m.groups[g].vacant)
			m.groups[g].capacity = extent * SHARD_BYTES / m.groups[g].shard_bytes;
	}
}

static uint32_t
n_stored_groups(void)
{
	uint32_t n = 0;

	for (uint32_t g = 0; g < m.n_groups; g++)
		n += !m.groups[g].vacant;
	return n;
}

/* One group of a model whose layers are all alike, or several. */
static void
make_groups(uint32_t n, uint32_t capacity, uint32_t extent)
{
	m.n_groups = n;
	m.hash_tokens = n == 1 ? 16 : 1 + draw(4);
	m.groups[0] = (struct model_group){
		.policy = SCOUT_POLICY_ALL, .stride = 1, .unit = 16, .shard_bytes = SHARD_BYTES, .capacity = capacity};
	if (n > 1)
		draw_groups(n, extent);
	groups = (struct scout__groups){.n = n};
	for (uint32_t g = 0; g < n; g++)
		groups.group[g] = (struct scout__group){.policy = (uint16_t)m.groups[g].policy,
							.readers = (uint16_t)m.readers,
							.unit_tokens = m.groups[g].unit,
							.span_tokens = m.groups[g].span,
							.margin_tokens = m.groups[g].margin};
}

/* Sessions that may be open: a BYE ends all of them in one turn. */
static uint32_t
draw_sessions(void)
{
	uint32_t most = (INLINE - PEER_HOLDS * MODEL_RUN) / ending();

	return 4 + draw((most < MODEL_SESSIONS ? most : MODEL_SESSIONS) - 3);
}

void
start(uint32_t n_groups)
{
	uint32_t capacity = 8 + (one_in(2) ? draw(24) : draw(193));
	uint32_t extent = 2 * (4 + draw(21));
	uint32_t ranks = 1 + draw(MODEL_RANKS);
	uint32_t readers = 1 + draw(one_in(2) ? 2 : MODEL_READERS);
	/* Each reader of each rank, if these are not too many. */
	uint32_t n_workers = ranks * readers <= 8 ? ranks * readers + draw(2) : ranks + draw(5);
	uint32_t promised = n_groups == 1 ? 1 + draw(one_in(2) ? 8 : capacity)
					  : 2 * n_groups + draw(n_groups * (one_in(2) ? 8 : extent));
	struct scout_server_config cfg;
	char err[128], share[32];

	if (n_groups > 1 && one_in(3))
		promised *= 3 * MODEL_KEEP_PART; /* a client may keep as much as the others promise */
	model_init(&m, (uint64_t)promised * ranks * SHARD_BYTES, ranks, readers, 1);
	make_groups(n_groups, capacity, extent);
	m.max_sessions = draw_sessions();
	cfg = rig_config(capacity * ranks);
	if (n_groups > 1) {
		cfg.extent_bytes = (uint64_t)extent * ranks * SHARD_BYTES;
		cfg.l1_bytes = EXTENTS * cfg.extent_bytes;
		/* What the model's namespace has, or a little less: it takes nothing from the other one. */
		(void)snprintf(share, sizeof(share), "rest:%u%%",
			       (100 * (EXTENTS - n_stored_groups()) + EXTENTS - 1) / EXTENTS);
		ck_assert_int_eq(scout_server_config_set(&cfg, "namespace_share", share, err, sizeof(err)), 0);
	}
	depth = 1 + draw(one_in(2) ? 4 : 30);
	prompts = 1 + capacity * (1 + draw(3)) / depth;
	ck_assert_int_eq(scout_server_config_set(&cfg, "eviction", "lru", err, sizeof(err)), 0);
	cfg.max_promised = m.max_promised;
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
	if (n_groups > 1)
		take_the_rest(EXTENTS - n_stored_groups(), (uint64_t)extent * ranks * SHARD_BYTES);
	fill_all(&players[4]);
}
