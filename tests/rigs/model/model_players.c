/* SPDX-License-Identifier: Apache-2.0 */
#include "model_game.h"

/* The players of the model: peers that come, go and come back. */

struct player *
draw_player(void)
{
	uint32_t i;

	do
		i = draw(PLAYERS);
	while (!players[i].used);
	return &players[i];
}

struct player *
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
	groups_say(&p->wire, &groups, m.hash_tokens);
	p->wire.hello.name_space = (struct scout__str){names[peer->ns], (uint16_t)strlen(names[peer->ns])};
	assert_wire(wire_hello(&p->wire), SCOUT_WIRE_OK);
	if (peer->lease)
		ck_assert_int_eq(wire_lease(&p->wire), SCOUT_LEASE_OK);
}

void
join(struct player *p, const struct model_peer *peer)
{
	uint64_t shard_bytes[MODEL_GROUPS];
	uint32_t which = 0;

	wire_open(&p->wire, endpoint);
	greet(p, peer);
	for (uint32_t g = 0; g < m.n_groups; g++) {
		which |= (uint32_t)!m.groups[g].vacant << g;
		shard_bytes[g] = m.groups[g].shard_bytes;
	}
	if (peer->rank >= 0)
		ck_assert_int_eq(groups_register_sizes(&p->wire, (uint16_t)peer->rank, (uint16_t)peer->reader, which,
						       shard_bytes),
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

void
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

void
reconnect(struct player *p)
{
	struct model_peer *peer = &m.peers[p->peer];
	uint64_t last_corr = p->wire.last_corr;
	struct scout__hello was = p->wire.hello;

	wire_close(&p->wire);
	wire_open(&p->wire, endpoint);
	wire_as(&p->wire, &was);
	p->wire.last_corr = last_corr;
	if (peer->weights != m.ns[peer->ns].weights)
		peer->weights = 0;
	greet(p, peer);
}

void
hello_again(struct player *p)
{
	const struct model_peer *peer = &m.peers[p->peer];
	uint64_t weights = one_in(10) ? 999 : one_in(2) ? m.ns[peer->ns].weights : 0;
	int expected = model_hello(&m, p->peer, weights);

	p->wire.hello.weights = weights;
	ck_assert_int_eq(wire_hello(&p->wire), expected);
}
