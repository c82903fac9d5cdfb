/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include "clear_rig.h"
#include "l2_folder.h"

/* FEED: a reader that applies pages and events knows what lookups find. */

#define KEYS 64u
#define CHAIN 256u
#define LAST_KEY 600u

/* The key before each key in its prompt; 0: none. */
static uint64_t parents[LAST_KEY + 1];

/* A reader and what it knows: for each key the media that have it, and its description. */
struct reader {
	struct wire_peer *p;
	struct scout__feed_msg next;
	uint8_t media[LAST_KEY + 1]; /* bit SCOUT_MEDIUM_* */
	bool kept[LAST_KEY + 1];     /* by a router that drops for good what follows a block that it does not know */
	char said[LAST_KEY + 1][64]; /* the beginning of the description */
	uint32_t length[LAST_KEY + 1];
	uint32_t n_stored, n_removed, n_cleared, n_dropped, n_lost;
};

static struct rig rig;

static void
rig_teardown(void)
{
	if (rig.server)
		rig_down(&rig);
}

static uint64_t
key_of(const struct wire_peer *p, const uint8_t *hash)
{
	uint8_t want[SCOUT_MAX_HASH];

	for (uint64_t key = 1; key <= LAST_KEY; key++) {
		wire_hash(want, p->hello.hash_bytes, key);
		if (memcmp(want, hash, p->hello.hash_bytes) == 0)
			return key;
	}
	ck_abort_msg("an event of a key that nobody stored");
	return 0;
}

static void
apply(struct reader *r, const struct scout__feed_event *e)
{
	uint64_t key;

	if (e->kind == SCOUT_EVENT_CLEARED || e->kind == SCOUT_EVENT_DROPPED) {
		r->n_cleared += e->kind == SCOUT_EVENT_CLEARED;
		r->n_dropped += e->kind == SCOUT_EVENT_DROPPED;
		memset(r->media, 0, sizeof(r->media));
		memset(r->kept, 0, sizeof(r->kept));
		return;
	}
	key = key_of(r->p, e->hash);
	r->kept[key] = e->kind == SCOUT_EVENT_STORED && (r->kept[key] || parents[key] == 0 || r->kept[parents[key]]);
	if (e->kind == SCOUT_EVENT_STORED) {
		r->n_stored++;
		r->media[key] |= (uint8_t)(1u << e->medium);
		(void)snprintf(r->said[key], sizeof(r->said[key]), "%.*s", (int)e->description.len,
			       (const char *)e->description.p);
		r->length[key] = (uint32_t)e->description.len;
	} else {
		r->n_removed++;
		ck_assert(r->media[key] & 1u << e->medium); /* it was told before */
		r->media[key] &= (uint8_t) ~(1u << e->medium);
	}
}

/* The reply to one request, which may be refused. */
static struct wire_reply *
reply_to(struct wire_peer *p, const struct scout__feed_msg *next)
{
	uint64_t corr;

	scout__put_feed(wire_begin(p, SCOUT_OP_FEED), next);
	corr = wire_end(p);
	wire_flush(p);
	return wire_wait(p, corr);
}

/* One request. Returns the flags of the reply. */
static uint32_t
pull(struct reader *r)
{
	struct scout__feed_reply m;
	struct scout__feed_event e;
	struct wire_reply *reply = reply_to(r->p, &r->next);
	struct scout__op op;
	const char *field = "";
	uint32_t n = 0;

	assert_wire(reply->status, SCOUT_WIRE_OK);
	op = (struct scout__op){.opcode = SCOUT_OP_FEED, .body = reply->body, .length = reply->length};
	ck_assert_int_eq(scout__get_feed_reply(&op, r->p->hello.hash_bytes, &m, &field), SCOUT_WIRE_OK);
	while (n < m.n && scout__get_feed_event(&m.events, r->p->hello.hash_bytes, &e)) {
		apply(r, &e);
		n++;
	}
	ck_assert_uint_eq(n, m.n);
	wire_reply_free(reply);
	if (m.flags & SCOUT_FEED_LOST) {
		*r = (struct reader){.p = r->p, .n_lost = r->n_lost + 1};
		return m.flags;
	}
	/* The sequence of the first page holds until the walk is over. */
	if (r->next.feed && r->next.cursor)
		ck_assert_uint_eq(m.next.sequence, r->next.sequence);
	r->next = m.next;
	return m.flags;
}

static void
catch_up(struct reader *r)
{
	do {
		if (!(pull(r) & (SCOUT_FEED_MORE | SCOUT_FEED_LOST)))
			return;
	} while (true);
}

/* Lookups find exactly what the reader knows to be in host memory. */
static void
check_against_lookups(struct reader *r)
{
	catch_up(r);
	for (uint64_t key = 1; key <= KEYS; key++)
		ck_assert_uint_eq(rig_peek(r->p, key, 1), r->media[key] >> SCOUT_MEDIUM_L1 & 1);
}

static void
store_prompt(struct wire_peer *p, uint64_t ticket, const uint64_t *keys, uint32_t n, const char *text)
{
	uint8_t hashes[CHAIN * SCOUT_MAX_HASH];
	struct scout__store_msg m = {.ticket = ticket, .n = n, .hashes = hashes, .described = true};
	struct scout__writer *w = wire_begin(p, SCOUT_OP_STORE);
	struct scout__grants grants;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	uint32_t readable, n_granted = 0;
	uint64_t corr;

	for (uint32_t i = 0; i < n; i++)
		wire_hash(hashes + i * p->hello.hash_bytes, p->hello.hash_bytes, keys[i]);
	scout__put_store(w, &m, p->hello.hash_bytes);
	for (uint32_t i = 0; i < n; i++)
		scout__put_str(w, text, strlen(text));
	corr = wire_end(p);
	wire_flush(p);
	reply = wire_wait(p, corr);
	assert_wire(reply->status, SCOUT_WIRE_OK);
	op = (struct scout__op){.opcode = SCOUT_OP_STORE, .body = reply->body, .length = reply->length};
	ck_assert_int_eq(scout__get_grants(&op, &grants, &field), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < n; i++)
		n_granted += scout__grant_at(&grants, i).state == SCOUT_GRANT_GRANTED;
	if (grants.id)
		assert_wire(wire_store_done(p, grants.id, n_granted, n_granted, &readable), SCOUT_WIRE_OK);
	wire_reply_free(reply);
}

#define store_described(p, key, text) store_prompt(p, 0, &(uint64_t){key}, 1, text)

CASE_TIMEOUT(60);

CHECKED_FIXTURE(NULL, rig_teardown);

START_TEST(a_reader_knows_what_lookups_find_through_evictions_and_clears)
{
	struct reader early = {.n_lost = 0}, late = {.n_lost = 0};

	rig_up(&rig, 16);
	early.p = late.p = &rig.client;
	catch_up(&early);
	ck_assert_uint_eq(early.n_stored, 0);
	srand(7);
	for (uint32_t i = 0; i < 400; i++) {
		uint64_t key = 1 + (unsigned)rand() % KEYS;

		if (i % 150 == 149) {
			(void)clear_by(&rig.client, CLEAR_X + i);
			(void)clear_by(&rig.worker, CLEAR_X + i);
		}
		(void)rig_store(&rig.worker, 0, key, 1);
		if (i % 20 == 0)
			check_against_lookups(&early);
	}
	check_against_lookups(&early);
	check_against_lookups(&late);
	ck_assert_uint_gt(early.n_removed, 100);
	ck_assert_uint_eq(early.n_cleared, 2);
	ck_assert_uint_eq(late.n_stored, 16); /* only what is there */
	ck_assert_uint_eq(early.n_lost + late.n_lost, 0);
	ck_assert_mem_eq(early.media, late.media, sizeof(early.media));
}
END_TEST

START_TEST(descriptions_reach_readers_that_come_early_or_late)
{
	struct reader early = {.n_lost = 0}, late = {.n_lost = 0};

	rig_up(&rig, 4);
	early.p = &rig.client;
	late.p = &rig.worker;
	catch_up(&early);
	store_described(&rig.worker, 1, "one");
	store_described(&rig.worker, 2, "");
	store_described(&rig.worker, 1, "not the first");
	check_against_lookups(&early);
	catch_up(&late);
	ck_assert_str_eq(early.said[1], "one");
	ck_assert_str_eq(early.said[2], "");
	ck_assert_str_eq(late.said[1], "one");
	/* An evicted object takes its description along: stored again, it has none. */
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 10, 4), 4);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 1), 1);
	catch_up(&late);
	ck_assert_str_eq(late.said[1], "");
}
END_TEST

START_TEST(descriptions_beyond_feed_bytes_are_not_kept)
{
	struct scout_server_config cfg = rig_config(KEYS);
	struct reader r = {.n_lost = 0};
	char text[1001];
	uint32_t kept = 0;

	cfg.feed_bytes = 16384;
	rig_up_with(&rig, &cfg);
	r.p = &rig.client;
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	for (int round = 0; round < 20; round++) { /* what a cleared one had is free again */
		for (uint64_t key = 1; key <= KEYS; key++)
			store_described(&rig.worker, key, text);
		catch_up(&r);
		kept = 0;
		for (uint64_t key = 1; key <= KEYS; key++) {
			ck_assert(r.length[key] == 0 || r.length[key] == sizeof(text) - 1);
			kept += r.length[key] > 0;
		}
		ck_assert_uint_ge(kept, 12);
		ck_assert_uint_le(kept, 16384 / (sizeof(text) - 1));
		(void)clear_by(&rig.worker, CLEAR_X + (unsigned)round);
	}
}
END_TEST

START_TEST(a_reader_that_is_too_slow_is_told_and_starts_over)
{
	struct scout_server_config cfg = rig_config(8);
	struct reader r = {.n_lost = 0};

	cfg.feed_bytes = 16384;
	rig_up_with(&rig, &cfg);
	r.p = &rig.client;
	catch_up(&r);
	for (uint32_t i = 0; i < 300; i++)
		ck_assert_uint_eq(rig_store(&rig.worker, 0, 1 + i % KEYS, 1), 1);
	ck_assert_uint_eq(pull(&r), SCOUT_FEED_LOST);
	check_against_lookups(&r);
	ck_assert_uint_eq(r.n_lost, 1);
	ck_assert_uint_eq(r.n_stored, 8);
}
END_TEST

START_TEST(a_key_is_stored_when_all_ranks_have_it)
{
	struct scout_server_config cfg = rig_config(16);
	struct scout_server *server = rig_start(&cfg);
	struct reader r = {.n_lost = 0};
	struct wire_peer a, b;

	rig_worker_unregistered(&a, scout_server_endpoint(server), 2, 1);
	assert_wire(wire_register(&a, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	rig_worker_unregistered(&b, scout_server_endpoint(server), 2, 1);
	assert_wire(wire_register(&b, 1, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	r.p = &a;
	catch_up(&r);
	ck_assert_uint_eq(rig_store(&a, 0, 1, 2), 0);
	catch_up(&r);
	ck_assert_uint_eq(r.n_stored, 0);
	ck_assert_uint_eq(rig_store(&b, 0, 1, 1), 1);
	catch_up(&r);
	ck_assert_uint_eq(r.n_stored, 1);
	ck_assert_uint_eq(r.media[1], 1u << SCOUT_MEDIUM_L1);
	wire_close(&a);
	wire_close(&b);
	scout_server_stop(server);
}
END_TEST

START_TEST(after_a_restart_old_numbers_are_lost)
{
	struct scout_server_config cfg = rig_config(8);
	struct reader r = {.n_lost = 0};

	rig_up_with(&rig, &cfg);
	r.p = &rig.client;
	catch_up(&r);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 2), 2);
	catch_up(&r);
	rig_down(&rig);
	rig_up_with(&rig, &cfg);
	/* The new server has as many events: only the feed's own name tells. */
	catch_up(&(struct reader){.p = &rig.worker});
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 3, 2), 2);
	ck_assert_uint_eq(pull(&r), SCOUT_FEED_LOST);
	check_against_lookups(&r);
	ck_assert_uint_eq(r.media[1], 0);
}
END_TEST

/* The only worker comes back with another layout: all chunks vanish without an event. */
START_TEST(a_namespace_that_is_made_anew_has_a_feed_that_starts_over)
{
	struct reader r = {.n_lost = 0};

	rig_up(&rig, 8);
	r.p = &rig.client;
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 4), 4);
	catch_up(&r);
	ck_assert_uint_eq(r.n_stored, 4);
	assert_wire(wire_register(&rig.worker, 0, 0, SHARD_BYTES / 2), SCOUT_WIRE_OK);
	ck_assert_uint_eq(pull(&r), SCOUT_FEED_LOST);
	catch_up(&r);
	for (uint64_t key = 1; key <= 4; key++)
		ck_assert_uint_eq(r.media[key], 0);
}
END_TEST

/* It has the place of another namespace, and hashes of another length. */
START_TEST(a_namespace_that_is_used_again_has_nothing_of_the_feed_before)
{
	struct scout_server_config cfg = rig_config(8);
	struct reader r = {.n_lost = 0};
	struct wire_peer worker, other;
	struct scout_server *server;

	cfg.max_namespaces = 1;
	server = rig_start(&cfg);
	rig_worker(&worker, scout_server_endpoint(server));
	r.p = &worker;
	catch_up(&r);
	store_described(&worker, 1, "the tokens of a prompt");
	catch_up(&r);
	ck_assert_uint_eq(r.n_stored, 1);
	wire_open(&other, scout_server_endpoint(server));
	other.hello.name_space = (struct scout__str){"other", 5};
	other.hello.hash_bytes = 16;
	wire_lease_bye(&worker);
	wire_wait_status(&other, "namespaces.abandoned", 1);
	assert_wire(wire_hello(&other), SCOUT_WIRE_OK);
	r.p = &other;
	ck_assert_uint_eq(pull(&r), SCOUT_FEED_LOST); /* with the id of the feed before */
	catch_up(&r);
	r.next.sequence = 1; /* whatever is in the ring */
	catch_up(&r);
	ck_assert_uint_eq(r.n_stored + r.n_cleared, 0);
	wire_close(&other);
	wire_close(&worker);
	scout_server_stop(server);
}
END_TEST

/* The hits that lookups can reach from the beginnings of their prompts; the others are of no use to a router. */
static uint32_t
n_reachable(const struct reader *r)
{
	uint32_t n = 0;

	for (uint64_t key = 1, at; key <= LAST_KEY; key++) {
		for (at = key; at && r->media[at]; at = parents[at])
			;
		n += at == 0;
		ck_assert_int_eq(at == 0, r->kept[key]);
	}
	return n;
}

/* Prompts of 8: the first 3 are those of 5 prompts. */
START_TEST(a_new_reader_is_told_parents_first_whatever_was_stored_and_evicted)
{
	uint32_t n = 0;

	rig_up(&rig, 100);
	srand(7);
	for (uint32_t round = 0; round < 400; round++) {
		uint32_t prompt = (uint32_t)rand() % 40;
		struct reader late = {.p = &rig.client};
		uint64_t keys[8];

		for (uint32_t i = 0; i < 8; i++) {
			keys[i] = i < 3 ? 1 + prompt / 5 * 3 + i : 100 + prompt * 5 + i - 3;
			parents[keys[i]] = i ? keys[i - 1] : 0;
		}
		store_prompt(&rig.worker, 0, keys, 8, "its tokens");
		if (round % 10)
			continue;
		catch_up(&late);
		n += n_reachable(&late);
	}
	ck_assert_uint_gt(n, 40 * 50);
}
END_TEST

/* A prompt takes the slots of one that left from its end: its first object has the last of them. */
START_TEST(a_prompt_of_256_comes_in_its_order_across_pages_and_readers_and_stores)
{
	struct scout_server_config cfg = rig_config(CHAIN);
	struct reader readers[3] = {{.n_lost = 0}};
	uint64_t keys[CHAIN];
	struct scout__lookup_reply hit;
	char text[401] = {0};

	memset(text, 'x', sizeof(text) - 1);
	cfg.eviction = "lru";
	rig_up_with(&rig, &cfg);
	for (uint32_t i = 0; i < CHAIN; i++) {
		keys[i] = 1 + i;
		parents[keys[i]] = i;
	}
	ck_assert_uint_eq(rig_store(&rig.worker, 0, LAST_KEY - CHAIN, CHAIN), CHAIN);
	assert_wire(wire_lookup(&rig.client, 5, 1, CHAIN, 0, &hit), SCOUT_WIRE_OK);
	for (uint32_t i = 0; i < CHAIN; i += 64) /* as an engine does: step by step, in one session */
		store_prompt(&rig.worker, 5, keys + i, 64, text);
	for (uint32_t turn = 0; turn < 18; turn++) {
		readers[turn % 3].p = &rig.client;
		(void)pull(&readers[turn % 3]);
	}
	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_uint_eq(readers[i].n_stored, CHAIN);
		ck_assert_uint_eq(n_reachable(&readers[i]), CHAIN);
	}
	/* A reader that stays behind while others begin starts over, and misses nothing. */
	readers[0] = (struct reader){.p = &rig.client};
	for (uint32_t i = 0; i < 33; i++)
		(void)pull(i ? &(struct reader){.p = &rig.worker} : &readers[0]);
	catch_up(&readers[0]);
	ck_assert_uint_eq(readers[0].n_lost, 1);
	ck_assert_uint_eq(n_reachable(&readers[0]), CHAIN);
}
END_TEST

START_TEST(all_feeds_have_one_limit_and_rings_are_freed_with_their_last_readers)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer peers[32], watcher;
	uint64_t limit, kept = 0;
	struct scout_server *server;
	char text[4001] = {0}, name[8];
	uint32_t n_read = 0;

	memset(text, 'x', sizeof(text) - 1);
	cfg.l1_bytes *= 64;
	cfg.feed_bytes = 131072;
	server = rig_start(&cfg);
	wire_open(&watcher, scout_server_endpoint(server));
	limit = wire_status(&watcher, "feeds.bytes_limit");
	for (uint32_t i = 0; i < 32; i++) {
		struct wire_reply *reply;

		kept -= wire_status(&watcher, "feeds.bytes");
		(void)snprintf(name, sizeof(name), "ns%u", i);
		wire_open(&peers[i], scout_server_endpoint(server));
		peers[i].hello.name_space = (struct scout__str){name, (uint16_t)strlen(name)};
		peers[i].hello.role = SCOUT_ROLE_WORKER;
		assert_wire(wire_hello(&peers[i]), SCOUT_WIRE_OK);
		ck_assert_int_eq(wire_lease(&peers[i]), SCOUT_LEASE_OK);
		assert_wire(wire_register(&peers[i], 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
		for (uint64_t key = 1; key <= 8; key++)
			store_described(&peers[i], key, text);
		kept += wire_status(&watcher, "feeds.bytes");
		reply = reply_to(&peers[i], &(struct scout__feed_msg){.feed = 0});
		n_read += reply->status == SCOUT_WIRE_OK;
		wire_reply_free(reply);
		ck_assert_uint_le(wire_status(&watcher, "feeds.bytes"), limit);
	}
	ck_assert(n_read >= 5 && n_read < 32);
	for (uint32_t i = 0; i < 32; i++)
		wire_lease_bye(&peers[i]);
	wire_wait_status(&watcher, "feeds.bytes", kept);
	for (uint32_t i = 0; i < 32; i++)
		wire_close(&peers[i]);
	wire_close(&watcher);
	scout_server_stop(server);
}
END_TEST

START_TEST(what_is_written_to_l2_is_stored_there_and_stays_when_memory_evicts_it)
{
	char *folder = l2_folder_make(false), url[300];
	struct reader r = {.n_lost = 0};
	struct scout__lookup_reply hit;
	struct node node;

	(void)snprintf(url, sizeof(url), "fs://%s", folder);
	node_up(&node, url);
	r.p = &node.rig.client;
	catch_up(&r);
	node_write(&node, 1);
	catch_up(&r);
	ck_assert_uint_eq(r.media[1], 1u << SCOUT_MEDIUM_L1 | 1u << SCOUT_MEDIUM_L2);
	(void)clear_by(&node.rig.client, CLEAR_X);
	catch_up(&r);
	ck_assert_uint_eq(r.media[1], 0);
	(void)clear_by(&node.rig.worker, CLEAR_X);
	/* One more than the pool has room for: the first is in L2 alone, until a load brings it back. */
	for (uint64_t key = 1; key <= KEYS; key++)
		node_write(&node, key);
	node_write(&node, KEYS + 1);
	catch_up(&r);
	ck_assert_uint_eq(r.n_removed, 1);
	ck_assert_uint_eq(r.media[1], 1u << SCOUT_MEDIUM_L2);
	assert_wire(wire_lookup(&node.rig.client, 5, 1, 1, 0, &hit), SCOUT_WIRE_OK);
	ck_assert_uint_eq(hit.hit, 1);
	node_read(&node, 5, 1, 1);
	catch_up(&r);
	ck_assert_uint_eq(r.media[1], 1u << SCOUT_MEDIUM_L1 | 1u << SCOUT_MEDIUM_L2);
	rig_down(&node.rig);
	l2_folder_remove(folder);
	free(folder);
}
END_TEST
