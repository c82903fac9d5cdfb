/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "given_time.h"

#include <inttypes.h>

#include "l2_fault.h"
#include "l2_folder.h"
#include "own_use.h"
#include "server_rig.h"

/*
 * L2 on files at the sizes of real KV, on a disk that is slow and well: each piece comes after some milliseconds, each
 * object takes long, all together much longer than l2_timeout_ms. Nothing may be lost, and nothing held against the
 * store. That takes five seconds a case: l2_timeout_ms several times over, and half a gigabyte written and read.
 */

#define MIB (UINT64_C(1) << 20)

struct sizes {
	uint64_t shard_bytes;
	uint32_t pool_chunks;
	uint32_t timeout_ms;
	bool grows; /* the pool has extents as a user's has them, or of extent_chunks; else it is one */
	uint32_t extent_chunks;
	const char *options; /* of the URL */
	char *folder;
	char url[512];
	struct scout_server_config cfg;
	struct rig rig;
	struct l2_fault_control *control;
};

static void
server_up(struct sizes *z)
{
	z->rig.server = rig_start(&z->cfg);
	z->rig.endpoint = scout_server_endpoint(z->rig.server);
	rig_client(&z->rig.client, z->rig.endpoint);
	rig_worker_unregistered(&z->rig.worker, z->rig.endpoint, 1, 1);
	ck_assert_int_eq(wire_register(&z->rig.worker, 0, 0, z->shard_bytes), SCOUT_WIRE_OK);
	/* What the folder has is known. */
	wire_wait_status(&z->rig.client, "l2.0.ready", 1);
	/* As a worker's transfer_timeout_ms. */
	z->rig.worker.budget_us = 30000000;
}

static void
up(struct sizes *z)
{
	char path[160];

	z->folder = l2_folder_make(true); /* in memory: this is about our own delays */
	(void)snprintf(path, sizeof(path), "%s/control", z->folder);
	z->control = l2_fault_map(path);
	(void)snprintf(z->url, sizeof(z->url), "fault+fs://%s/l2?control=%s%s", z->folder, path, z->options);
	scout_server_config_init(&z->cfg);
	z->cfg.l1_bytes = z->pool_chunks * z->shard_bytes;
	z->cfg.extent_bytes = z->grows ? z->extent_chunks * z->shard_bytes : z->cfg.l1_bytes;
	z->cfg.max_promised = z->cfg.l1_bytes;
	z->cfg.l2 = z->url;
	z->cfg.l2_timeout_ms = z->timeout_ms;
	z->cfg.l2_lookup_timeout_ms = z->timeout_ms;
	z->cfg.l2_queue_bytes = z->cfg.l1_bytes;
	server_up(z);
}

static void
server_down(struct sizes *z)
{
	rig_down(&z->rig);
}

static void
down(struct sizes *z)
{
	server_down(z);
	l2_folder_remove(z->folder);
	free(z->folder);
}

static uint64_t
word_at(uint64_t key, uint64_t i)
{
	return (key << 32 | i) * UINT64_C(0x9e3779b97f4a7c15);
}

static void
store(struct sizes *z, uint64_t first_key, uint32_t n)
{
	struct wire_grants g;
	uint32_t readable;

	ck_assert_int_eq(wire_store(&z->rig.worker, 0, first_key, n, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, n);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t *slot = (uint64_t *)(void *)wire_slot(&z->rig.worker, &g.grants[i]);

		for (uint64_t j = 0; j < z->shard_bytes / 8; j++)
			slot[j] = word_at(first_key + i, j);
	}
	ck_assert_int_eq(wire_store_done(&z->rig.worker, g.id, n, n, &readable), SCOUT_WIRE_OK);
	free(g.grants);
}

/* Keys 1 to @n are in L2, and the pool is empty. The queue has room for a quarter of the pool. */
static void
fill(struct sizes *z, uint32_t n)
{
	uint32_t part = z->pool_chunks / 4;

	for (uint32_t done = 0; done < n; done += part) {
		store(z, done + 1, n - done < part ? n - done : part);
		wire_wait_status(&z->rig.client, "l2.writes.waiting", 0);
	}
	server_down(z);
	server_up(z);
}

static uint64_t
ask_to_retrieve(struct sizes *z, uint64_t ticket, uint32_t n)
{
	const struct scout__retrieve_msg m = scout__retrieve_of(ticket, 0, n);
	uint64_t corr;

	scout__put_retrieve(wire_begin(&z->rig.worker, SCOUT_OP_RETRIEVE), &m);
	corr = wire_end(&z->rig.worker);
	wire_flush(&z->rig.worker);
	return corr;
}

static bool
is_right(struct sizes *z, const struct scout__grant *grant, uint64_t key)
{
	const uint64_t *slot = (const uint64_t *)(const void *)wire_slot(&z->rig.worker, grant);

	for (uint64_t j = 0; j < z->shard_bytes / 8; j++)
		if (slot[j] != word_at(key, j))
			return false;
	return true;
}

/* Of the reply about @n chunks, the first @want were granted, and are what was stored as key 1 and those after it. */
static void
check_granted(struct sizes *z, uint64_t corr, uint32_t n, uint32_t want)
{
	struct wire_reply *reply = wire_wait(&z->rig.worker, corr);
	struct scout__reader r = {.p = reply->body, .left = reply->length};
	uint32_t granted = 0;

	ck_assert_int_eq(reply->status, SCOUT_WIRE_OK);
	(void)scout__get_u64(&r);
	ck_assert_uint_eq(scout__get_u32(&r), n);
	(void)scout__get_u32(&r);
	for (uint32_t i = 0; i < n; i++) {
		struct scout__grant grant = {.segment = scout__get_u32(&r)};

		grant.state = scout__get_u16(&r);
		(void)scout__get_u16(&r);
		grant.offset = scout__get_u64(&r);
		grant.generation = scout__get_u64(&r);
		granted += grant.state == SCOUT_GRANT_GRANTED;
		ck_assert_int_eq(grant.state, i < want ? SCOUT_GRANT_GRANTED : SCOUT_GRANT_MISSING);
		if (grant.state == SCOUT_GRANT_GRANTED)
			ck_assert_msg(is_right(z, &grant, i + 1), "chunk %u has wrong bytes", (unsigned)i);
	}
	ck_assert_uint_eq(granted, want);
	wire_reply_free(reply);
	ck_assert_int_eq(wire_retrieve_done(&z->rig.worker, corr, 0), SCOUT_WIRE_OK);
}

/* All of the reply was granted. */
static void
check_retrieved(struct sizes *z, uint64_t corr, uint32_t n)
{
	check_granted(z, corr, n, n);
}

static void
hit(struct sizes *z, uint64_t ticket, uint64_t first_key, uint32_t n)
{
	struct scout__lookup_reply m;

	ck_assert_int_eq(wire_lookup(&z->rig.client, ticket, first_key, n, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, n);
}

static void
check_no_blame(struct sizes *z)
{
	static const char *const none[] = {
		"l2.loads.late",
		"l2.loads.failed",
		"l2.writes.late",
		"l2.writes.failed",
		"l2.writes.dropped",
		"l2.bad_keys",
		"l2.0.breaker.reads",
		"l2.0.breaker.writes",
		"l2.0.late",
		"l2.0.load.refused",
		"l2.0.overdue",
		"l2.lookups.late",
		"l2.0.reads_switched_off",
		"l2.0.writes_switched_off",
	};

	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		uint64_t value = wire_status(&z->rig.client, none[i]);

		/* Some are not listed while they are 0. */
		ck_assert_msg(value == 0 || value == UINT64_MAX, "%s is %" PRIu64, none[i], value);
	}
}

/* How many of keys 1 to @n a lookup promises. */
static uint32_t
hit_of(struct sizes *z, uint64_t ticket, uint32_t n)
{
	struct scout__lookup_reply m;

	ck_assert_int_eq(wire_lookup(&z->rig.client, ticket, 1, n, 0, &m), SCOUT_WIRE_OK);
	return m.hit;
}

/* The same, and *@ret_ms. */
static uint32_t
timed_lookup(struct sizes *z, uint64_t ticket, uint32_t n, double *ret_ms)
{
	uint64_t start_us = scout__now_us();
	uint32_t promised = hit_of(z, ticket, n);

	*ret_ms = (double)(scout__now_us() - start_us) / 1000;
	return promised;
}

/* The lookup is answered before there is memory for what it promises, in the time of the next one. */
START_TEST(first_lookup_of_a_server_does_not_wait_for_its_pool_to_grow)
{
	const uint32_t n = 64;
	struct sizes z = {.shard_bytes = (is_long() ? 32 : 8) * MIB,
			  .pool_chunks = 128,
			  .timeout_ms = 20000, /* no disk is to be late here, only the pool */
			  .options = "",
			  .grows = true};
	struct given_time_result given;
	double first_ms, second_ms;
	struct given_time t;
	uint32_t first, second;
	uint64_t slots;

	up(&z);
	fill(&z, n);
	z.rig.client.budget_us = 490000;
	given_time_begin(&t);
	first = timed_lookup(&z, 1, n, &first_ms);
	slots = wire_status(&z.rig.client, "l1.slots");
	given = given_time_end(&t);
	printf("# first lookup of %u chunks of %" PRIu64 " MiB in L2: %u chunks in %.1f ms, then %" PRIu64
	       " slots have memory\n",
	       n, z.shard_bytes / MIB, first, first_ms, slots);
	ck_assert_uint_eq(first, n);
	(void)given_time_judge(given, 50000, "the first lookup of a server");
	/* Unless this thread had no CPU while the pool grew. */
	ck_assert(slots < n || given.delay_us > 10000);
	second = timed_lookup(&z, 2, n, &second_ms);
	printf("# second lookup: %u chunks in %.1f ms\n", second, second_ms);
	ck_assert_uint_eq(second, n);
	check_retrieved(&z, ask_to_retrieve(&z, 1, n), n);
	check_no_blame(&z);
	rig_finish(&z.rig.client, 1);
	rig_finish(&z.rig.client, 2);
	down(&z);
}
END_TEST

/* The first extent has come, and there is no memory for others. */
START_TEST(chunks_whose_room_does_not_come_are_missing_and_named)
{
	const uint32_t n = 64, extent = 16;
	struct sizes z = {.shard_bytes = MIB,
			  .pool_chunks = 128,
			  .timeout_ms = 1000,
			  .options = "",
			  .grows = true,
			  .extent_chunks = extent};
	uint64_t ticket = 1;

	up(&z);
	fill(&z, n);
	wire_wait_status(&z.rig.client, "l1.slots", extent);
	/* The grower blocks SIGXFSZ: a memfd that is larger is an error. */
	limit_file_size(MIB);
	/* Less than all if the failure came in the middle of the lookup. */
	ck_assert_uint_ge(hit_of(&z, ticket, n), extent);
	check_granted(&z, ask_to_retrieve(&z, ticket, n), n, extent);
	rig_finish(&z.rig.client, ticket);
	check_no_blame(&z);
	/* Nothing is held against the chunks: when there is memory again, they count again. */
	limit_file_size(RLIM_INFINITY);
	wait_until(hit_of(&z, ++ticket, n) == n)
		rig_finish(&z.rig.client, ticket);
	check_retrieved(&z, ask_to_retrieve(&z, ticket, n), n);
	rig_finish(&z.rig.client, ticket);
	wire_wait_status(&z.rig.client, "l1.bytes_promised", 0);
	down(&z);
}
END_TEST

START_TEST(many_small_loads_on_one_thread_all_come)
{
	const uint32_t n = 200;
	struct sizes z = {.shard_bytes = MIB, .pool_chunks = 256, .timeout_ms = 2000, .options = "&threads=1"};

	up(&z);
	fill(&z, n);
	/* A header and two pieces: 12 ms each. */
	z.control->disk.read_delay_ms = 4;
	hit(&z, 1, 1, n);
	check_retrieved(&z, ask_to_retrieve(&z, 1, n), n);
	check_no_blame(&z);
	rig_finish(&z.rig.client, 1);
	down(&z);
}
END_TEST

/* Each takes longer than l2_timeout_ms by itself. Meanwhile lookups are answered in time. */
START_TEST(large_loads_take_their_time_and_keep_no_lookup)
{
	const uint32_t n = 12;
	struct sizes z = {.shard_bytes = 32 * MIB, .pool_chunks = 16, .timeout_ms = 1000, .options = ""};
	uint64_t corr;

	up(&z);
	fill(&z, n + 1);
	z.control->disk.read_delay_ms = 17;
	hit(&z, 1, 1, n);
	corr = ask_to_retrieve(&z, 1, n);
	/* Four, and four that their threads go on with; the others can still be cancelled. */
	wire_wait_status(&z.rig.client, "l2.loads.running", 8);
	hit(&z, 2, n + 1, 1);
	ck_assert_uint_gt(wire_status(&z.rig.client, "l2.loads.running"), 0);
	check_retrieved(&z, corr, n);
	check_no_blame(&z);
	rig_finish(&z.rig.client, 1);
	rig_finish(&z.rig.client, 2);
	down(&z);
}
END_TEST

START_TEST(writes_that_are_flushed_wait_and_none_is_lost)
{
	const uint32_t n = 24;
	struct sizes z = {.shard_bytes = 8 * MIB, .pool_chunks = 96, .timeout_ms = 2000, .options = "&sync=1"};

	up(&z);
	/* 17 calls each, on three of four threads. */
	z.control->disk.write_delay_ms = 16;
	store(&z, 1, n);
	wire_wait_status(&z.rig.client, "l2.writes.waiting", 0);
	ck_assert_uint_eq(wire_status(&z.rig.client, "l2.writes.done"), n);
	check_no_blame(&z);
	z.control->disk.write_delay_ms = 0;
	server_down(&z);
	server_up(&z);
	hit(&z, 1, 1, n);
	check_retrieved(&z, ask_to_retrieve(&z, 1, n), n);
	rig_finish(&z.rig.client, 1);
	down(&z);
}
END_TEST

/* What nobody needs any more is not read: the request ends while most of its loads wait. */
START_TEST(loads_of_a_request_that_ends_are_not_waited_for)
{
	const uint32_t n = 40;
	struct sizes z = {.shard_bytes = 8 * MIB, .pool_chunks = 64, .timeout_ms = 2000, .options = ""};
	uint64_t corr;

	up(&z);
	fill(&z, n);
	z.control->disk.read_delay_ms = 20;
	hit(&z, 1, 1, n);
	corr = ask_to_retrieve(&z, 1, n);
	wire_wait_status(&z.rig.client, "l2.loads.running", 8);
	rig_finish(&z.rig.client, 1);
	wire_wait_status(&z.rig.client, "l2.loads.queued", 0);
	ck_assert_uint_ge(wire_status(&z.rig.client, "l2.loads.cancelled"), n / 2);
	wire_reply_free(wire_wait(&z.rig.worker, corr));
	wire_wait_status(&z.rig.client, "l2.loads.running", 0);
	ck_assert_uint_le(wire_status(&z.rig.client, "l2.loads.done"), n / 2);
	check_no_blame(&z);
	down(&z);
}
END_TEST

/* And a disk that hangs is still found in its time, at any size: what it has begun, and what waits behind it. */
START_TEST(a_disk_that_hangs_in_large_loads_is_found_in_time)
{
	const uint32_t n = 12;
	struct sizes z = {.shard_bytes = 32 * MIB, .pool_chunks = 16, .timeout_ms = 1000, .options = ""};
	struct wire_grants g;
	struct given_time t;

	up(&z);
	fill(&z, n);
	hit(&z, 1, 1, n);
	z.control->disk.read_delay_ms = 600000;
	given_time_begin(&t);
	ck_assert_int_eq(wire_retrieve(&z.rig.worker, 1, 0, n, &g), SCOUT_WIRE_OK);
	/* Those that wait behind the ones that hang are given up after as long again, at the latest. */
	(void)given_time_within(&t, 5000000, "a retrieve from a disk that hangs");
	ck_assert_uint_eq(g.n_granted, 0);
	free(g.grants);
	ck_assert_uint_gt(wire_status(&z.rig.client, "l2.0.breaker.reads"), 0);
	/* What a thread had begun by then. */
	ck_assert_uint_ge(wire_status(&z.rig.client, "l2.bad_keys"), 1);
	ck_assert_uint_le(wire_status(&z.rig.client, "l2.bad_keys"), 4);
	z.control->disk.read_delay_ms = 0;
	wire_wait_status(&z.rig.client, "l2.loads.running", 0);
	wire_wait_status(&z.rig.client, "l2.0.breaker.reads", 0);
	rig_finish(&z.rig.client, 1);
	down(&z);
}
END_TEST
