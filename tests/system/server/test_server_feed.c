/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include "clear_rig.h"
#include "l2_folder.h"

/* FEED: a reader that applies pages and events knows what lookups find. */

#define KEYS 64u

/* A reader and what it knows: for each key the media that have it, and its description. */
struct reader {
	struct wire_peer *p;
	struct scout__feed_msg next;
	uint8_t media[KEYS + 2]; /* bit SCOUT_MEDIUM_* */
	char said[KEYS + 2][64]; /* the beginning of the description */
	uint32_t length[KEYS + 2];
	uint32_t n_stored, n_removed, n_cleared, n_dropped, n_lost;
};

static uint64_t
key_of(const struct wire_peer *p, const uint8_t *hash)
{
	uint8_t want[SCOUT_MAX_HASH];

	for (uint64_t key = 1; key <= KEYS + 1; key++) {
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
		return;
	}
	key = key_of(r->p, e->hash);
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

/* One request. Returns the flags of the reply. */
static uint32_t
pull(struct reader *r)
{
	struct scout__feed_reply m;
	struct scout__feed_event e;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field = "";
	uint32_t n = 0;

	scout__put_feed(wire_begin(r->p, SCOUT_OP_FEED), &r->next);
	op.corr = wire_end(r->p);
	wire_flush(r->p);
	reply = wire_wait(r->p, op.corr);
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
store_described(struct wire_peer *p, uint64_t key, const char *text)
{
	uint8_t hash[SCOUT_MAX_HASH];
	struct scout__store_msg m = {.n = 1, .hashes = hash, .described = true};
	struct scout__writer *w = wire_begin(p, SCOUT_OP_STORE);
	struct scout__grants grants;
	struct wire_reply *reply;
	struct scout__op op;
	const char *field;
	uint32_t readable;
	uint64_t corr;

	wire_hash(hash, p->hello.hash_bytes, key);
	scout__put_store(w, &m, p->hello.hash_bytes);
	scout__put_str(w, text, strlen(text));
	corr = wire_end(p);
	wire_flush(p);
	reply = wire_wait(p, corr);
	assert_wire(reply->status, SCOUT_WIRE_OK);
	op = (struct scout__op){.opcode = SCOUT_OP_STORE, .body = reply->body, .length = reply->length};
	ck_assert_int_eq(scout__get_grants(&op, &grants, &field), SCOUT_WIRE_OK);
	if (grants.id)
		assert_wire(wire_store_done(p, grants.id, 1, 1, &readable), SCOUT_WIRE_OK);
	wire_reply_free(reply);
}

START_TEST(a_reader_knows_what_lookups_find_through_evictions_and_clears)
{
	struct rig rig;
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
	rig_down(&rig);
}
END_TEST

START_TEST(descriptions_reach_readers_that_come_early_or_late)
{
	struct rig rig;
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
	rig_down(&rig);
}
END_TEST

START_TEST(descriptions_beyond_feed_bytes_are_not_kept)
{
	struct scout_server_config cfg = rig_config(KEYS);
	struct reader r = {.n_lost = 0};
	char text[1001];
	struct rig rig;
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
	rig_down(&rig);
}
END_TEST

START_TEST(a_reader_that_is_too_slow_is_told_and_starts_over)
{
	struct scout_server_config cfg = rig_config(8);
	struct reader r = {.n_lost = 0};
	struct rig rig;

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
	rig_down(&rig);
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
	struct rig rig;

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
	rig_down(&rig);
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

Suite *
suite_of_this_file(void)
{
	Suite *s = suite_create("server_feed");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, a_reader_knows_what_lookups_find_through_evictions_and_clears);
	tcase_add_test(t, descriptions_reach_readers_that_come_early_or_late);
	tcase_add_test(t, descriptions_beyond_feed_bytes_are_not_kept);
	tcase_add_test(t, a_reader_that_is_too_slow_is_told_and_starts_over);
	tcase_add_test(t, a_key_is_stored_when_all_ranks_have_it);
	tcase_add_test(t, after_a_restart_old_numbers_are_lost);
	tcase_add_test(t, what_is_written_to_l2_is_stored_there_and_stays_when_memory_evicts_it);
	suite_add_tcase(s, t);
	return s;
}
