/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <unistd.h>

#include "server_rig.h"

/* The places for namespaces: who gets one, who gives his up, and what the operator hears of it. */

static struct scout_server *server;
static struct wire_peer watcher;
static char names[2048][16];

/* lines of the server's thread */
static struct {
	atomic_uint nearly_full, dropped;
} said;

static void
listen(void *user, int level, const char *text)
{
	(void)user;
	said.nearly_full += level == SCOUT_LOG_WARN && strstr(text, "of max_namespaces = 5 namespaces");
	said.dropped += level == SCOUT_LOG_WARN && strstr(text, "takes the place of \"n0\"") &&
			strstr(text, "2 chunks are dropped");
}

static void
up(uint32_t max_namespaces)
{
	struct scout_server_config cfg = rig_config(16);

	cfg.extent_bytes = 2 * SHARD_BYTES;
	cfg.max_namespaces = max_namespaces;
	cfg.log = listen;
	server = rig_start(&cfg);
	wire_open(&watcher, scout_server_endpoint(server));
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		(void)snprintf(names[i], sizeof(names[i]), "n%u", i);
}

static void
down(void)
{
	wire_close(&watcher);
	scout_server_stop(server);
}

static uint64_t
status(const char *name)
{
	return wire_status(&watcher, name);
}

static bool
exists(unsigned i)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "ns.%s.peers", names[i]);
	return status(text) != UINT64_MAX;
}

static void
open_in(struct wire_peer *p, unsigned i)
{
	wire_open(p, scout_server_endpoint(server));
	p->hello.name_space = (struct scout__str){names[i], (uint16_t)strlen(names[i])};
}

static void
leave(struct wire_peer *p)
{
	uint64_t left = status("peers.left");

	if (p->lease_fd < 0)
		ck_assert_int_eq(wire_lease(p), SCOUT_LEASE_OK);
	wire_lease_bye(p);
	wire_close(p);
	wire_wait_status(&watcher, "peers.left", left + 1);
}

/* A peer comes and leaves. */
static void
visit(unsigned i)
{
	struct wire_peer p;

	open_in(&p, i);
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_OK);
	leave(&p);
}

/* A worker stores two chunks and leaves. */
static void
fill(unsigned i)
{
	struct wire_peer p;

	open_in(&p, i);
	p.hello.role = SCOUT_ROLE_WORKER;
	ck_assert_int_eq(wire_hello(&p), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&p), SCOUT_LEASE_OK);
	ck_assert_int_eq(wire_register(&p, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
	ck_assert_uint_eq(rig_store(&p, 0, 1, 2), 2);
	leave(&p);
}

/* Each takes an extent, however little it stores. */
START_TEST(nine_namespaces_fit_into_a_small_pool)
{
	struct scout_server_config cfg = rig_config(8);
	struct wire_peer worker[9];
	struct rig rig;

	cfg.l1_bytes = UINT64_C(512) << 20;
	cfg.extent_bytes = 0;
	rig_up_with(&rig, &cfg);
	for (uint32_t i = 0; i < 9; i++) {
		static const char digits[] = "012345678";

		wire_open(&worker[i], rig.endpoint);
		worker[i].hello.role = SCOUT_ROLE_WORKER;
		worker[i].hello.name_space = (struct scout__str){digits + i, 1};
		assert_wire(wire_hello(&worker[i]), SCOUT_WIRE_OK);
		ck_assert_int_eq(wire_lease(&worker[i]), SCOUT_LEASE_OK);
		assert_wire(wire_register(&worker[i], 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
		ck_assert_uint_eq(rig_store(&worker[i], 0, 1, 8), 8);
	}
	ck_assert_uint_eq(wire_status(&rig.client, "l1.chunks"), 72);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.evictions"), 0);
	ck_assert_uint_eq(wire_status(&rig.client, "l1.extents_withdrawn"), 0);
	for (uint32_t i = 0; i < 9; i++)
		wire_close(&worker[i]);
	rig_down(&rig);
}
END_TEST

START_TEST(a_server_sees_any_number_of_names_in_its_life)
{
	up(0);
	ck_assert_uint_eq(status("namespaces.limit"), 256);
	for (unsigned i = 0; i < 600; i++)
		visit(i);
	ck_assert_uint_eq(status("namespaces"), 256);
	ck_assert_uint_eq(status("namespaces.reused"), 600 - 256);
	wire_wait_status(&watcher, "namespaces.abandoned", 256);
	down();
}
END_TEST

START_TEST(the_namespace_that_was_left_first_makes_room)
{
	struct wire_peer first;

	up(3);
	open_in(&first, 0);
	ck_assert_int_eq(wire_hello(&first), SCOUT_WIRE_OK);
	visit(1);
	visit(2);
	leave(&first);
	visit(3);
	ck_assert(exists(0) && !exists(1) && exists(2) && exists(3));
	/* Whoever comes again is not in it from the time before. */
	visit(2);
	visit(4);
	ck_assert(!exists(0) && exists(2) && exists(3) && exists(4));
	down();
}
END_TEST

START_TEST(a_namespace_with_chunks_makes_room_after_those_without_and_is_told)
{
	struct wire_peer back;
	struct scout__lookup_reply m;

	up(3);
	fill(0);
	visit(1);
	visit(2);
	visit(3);
	visit(4);
	ck_assert(exists(0) && !exists(1) && !exists(2));
	ck_assert_uint_eq(status("l1.chunks"), 2);
	ck_assert_uint_eq(said.dropped, 0);
	/* It is found again. */
	open_in(&back, 0);
	ck_assert_int_eq(wire_hello(&back), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lookup(&back, 7, 1, 2, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 2);
	rig_finish(&back, 7);
	leave(&back);
	/* All have chunks now: the one left first gives them up. */
	fill(3);
	fill(4);
	visit(5);
	ck_assert(!exists(0) && exists(3) && exists(4) && exists(5));
	ck_assert_uint_eq(said.dropped, 1);
	wire_wait_status(&watcher, "l1.chunks", 4);
	ck_assert_uint_eq(status("ns.n5.tenants"), 0); /* those of n0 went with it */
	/* The name comes back to an empty namespace, with parameters of its own. */
	open_in(&back, 0);
	back.hello.hash_bytes = 32;
	back.hello.weights = 77;
	ck_assert_int_eq(wire_hello(&back), SCOUT_WIRE_OK);
	ck_assert_uint_eq(back.weights, 77);
	ck_assert_int_eq(wire_lookup(&back, 8, 1, 2, 0, &m), SCOUT_WIRE_OK);
	ck_assert_uint_eq(m.hit, 0);
	leave(&back);
	down();
}
END_TEST

START_TEST(a_namespace_that_is_used_stays_and_one_more_is_refused)
{
	struct wire_peer used[2], more;

	up(2);
	for (unsigned i = 0; i < 2; i++) {
		open_in(&used[i], i);
		ck_assert_int_eq(wire_hello(&used[i]), SCOUT_WIRE_OK);
	}
	open_in(&more, 2);
	ck_assert_int_eq(wire_hello(&more), SCOUT_WIRE_LIMIT);
	ck_assert_ptr_nonnull(strstr(more.text, "max_namespaces is 2"));
	ck_assert_uint_eq(status("namespaces.reused"), 0);
	leave(&used[0]);
	ck_assert_int_eq(wire_hello(&more), SCOUT_WIRE_OK);
	ck_assert(!exists(0) && exists(1) && exists(2));
	leave(&more);
	leave(&used[1]);
	down();
}
END_TEST

START_TEST(an_open_store_keeps_its_namespace)
{
	struct scout_server_config cfg = rig_config(16);
	struct wire_peer worker, more;
	uint64_t id;

	cfg.max_namespaces = 1;
	cfg.dead_writer_ms = 3600000;
	server = rig_start(&cfg);
	wire_open(&watcher, scout_server_endpoint(server));
	rig_worker(&worker, scout_server_endpoint(server));
	ck_assert_uint_eq(rig_granted(&worker, 0, 1, 2, &id), 2);
	wire_open(&more, scout_server_endpoint(server));
	more.hello.name_space = (struct scout__str){"more", 4};
	ck_assert_int_eq(wire_hello(&more), SCOUT_WIRE_LIMIT);
	wire_lease_bye(&worker); /* it has no copy running: its slots are free at once */
	wire_wait_status(&watcher, "holds", 0);
	wire_wait_status(&watcher, "namespaces.abandoned", 1);
	ck_assert_int_eq(wire_hello(&more), SCOUT_WIRE_OK);
	wire_close(&more);
	wire_close(&worker);
	down();
}
END_TEST

/* Their extents go back to the pool, too. */
START_TEST(a_namespace_that_all_peers_left_keeps_no_index_without_chunks)
{
	struct wire_peer worker;
	uint64_t bytes;

	up(0);
	fill(0);
	bytes = status("l1.bytes_index");
	ck_assert_uint_gt(bytes, 0);
	for (unsigned i = 1; i < 9; i++) {
		open_in(&worker, i);
		worker.hello.role = SCOUT_ROLE_WORKER;
		ck_assert_int_eq(wire_hello(&worker), SCOUT_WIRE_OK);
		ck_assert_int_eq(wire_lease(&worker), SCOUT_LEASE_OK);
		ck_assert_int_eq(wire_register(&worker, 0, 0, SHARD_BYTES), SCOUT_WIRE_OK);
		leave(&worker);
	}
	ck_assert_uint_eq(status("namespaces"), 9);
	wire_wait_status(&watcher, "l1.bytes_index", bytes); /* of the one with chunks */
	fill(1);                                             /* as ever */
	ck_assert_uint_eq(status("l1.bytes_index"), 2 * bytes);
	down();
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static uint64_t
resident(void)
{
	FILE *file = fopen("/proc/self/statm", "re");
	uint64_t pages = 0;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%*u %" SCNu64, &pages), 1);
	(void)fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* It had a table for 65536 tenants, 1.7 MB. */
START_TEST(a_namespace_takes_memory_for_the_tenants_that_it_has)
{
	uint64_t before;

	up(0);
	visit(0);
	before = resident();
	for (unsigned i = 1; i < 200; i++)
		visit(i);
	ck_assert_uint_le(resident(), before + 199 * (512 << 10));
	down();
}
END_TEST
#endif

START_TEST(the_operator_is_warned_at_four_fifths)
{
	struct wire_peer used[5];

	up(5);
	for (unsigned i = 0; i < 5; i++) {
		open_in(&used[i], i);
		ck_assert_int_eq(wire_hello(&used[i]), SCOUT_WIRE_OK);
		ck_assert_uint_eq(said.nearly_full, i >= 3 ? 1 : 0); /* once for each 10 s */
	}
	for (unsigned i = 0; i < 5; i++)
		leave(&used[i]);
	down();
}
END_TEST
