/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE 1
#include "worker_rig.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>

#include "check_main.h"
#include "checked_fork.h"
#include "clock.h"
#include "link.h"
#include "wire_peer.h"
#include "worker_internal.h"
#include "extents_rig.h"

/*
 * Host memory as it moves between namespaces, server starts and processes: a server process, real workers, real bytes.
 *
 * The workers of the rig are of namespace "rig"; `other` is a worker of namespace "other" with the same layout. A chunk
 * is 4 blocks of 61 + 129 bytes: a slot of 768 bytes.
 */

static void
setup(void)
{
	rig_init(&rig);
	rig.l1_bytes = CHUNKS * SLOT_BYTES;
	rig.extent_bytes = UINT64_C(64) << 20;
}

static void
teardown(void)
{
	rig_stop(&rig);
}

/* ---- a worker of another namespace, at index @i of the rig ---- */

static struct scout_client *
start_client_in(const char *name_space)
{
	struct scout_client_config cfg;
	struct scout_client *client;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 5000; /* a loaded machine is no reason for a miss */
	cfg.endpoint = rig.endpoint;
	cfg.name_space = name_space;
	cfg.chunk_tokens = rig.chunk_tokens;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	return client;
}

static int
count_fds_of(pid_t pid)
{
	char path[64];
	DIR *dir;
	int n = 0;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while (readdir(dir)) // NOLINT(concurrency-mt-unsafe): a stream of our own
		n++;
	(void)closedir(dir);
	return n;
}

static int
count_fds(void)
{
	return count_fds_of(getpid());
}

/* ---- a helper process: forked before this one has threads ---- */

/* ---- sharing ---- */

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_small_pool_is_made_of_eight_extents_and_holds_all_its_chunks)
{
	rig_start(&rig);
	open_status();
	ck_assert_uint_eq(store_some(&rig, 0, 1, CHUNKS), 0);
	ck_assert_uint_eq(counter("l1.extents"), 8);
	ck_assert_uint_eq(counter("l1.slots"), CHUNKS);
	ck_assert_uint_eq(counter("l1.evictions"), 0);
	ck_assert_uint_eq(counter("l1.bytes_extents"), rig.l1_bytes);
	ck_assert_uint_eq(counter("l1.bytes_pool"), rig.l1_bytes);
	ck_assert_uint_eq(counter("ns.rig.bytes_extents"), rig.l1_bytes);
	/* A page of generation words for each, and the slots' rounding to pages. */
	ck_assert_uint_eq(counter("l1.extra_bytes"), 8 * (4096 + 2 * 4096 - 8 * SLOT_BYTES));
	expect_bytes(0, 1, CHUNKS / 2); /* as many as may be promised */
	wire_close(&status);
}
END_TEST

START_TEST(a_namespace_that_filled_the_pool_gives_another_its_share)
{
	uint32_t before;

	rig_start(&rig);
	open_status();
	ck_assert_uint_eq(store_some(&rig, 0, 1, CHUNKS), 0);
	before = count_mapped(0, NULL);
	ck_assert_uint_eq(before, 8);
	start_worker_in(&rig, 1, "other");
	/* Its first chunk costs one extent, and nobody has to wait longer than for a message. */
	ck_assert_uint_eq(store_some(&rig, 1, 2, 1), 0);
	ck_assert_uint_eq(counter("l1.extents_withdrawn"), 1);
	ck_assert_uint_eq(counter("l1.evictions"), 8);
	ck_assert_uint_eq(counter("ns.rig.chunks"), CHUNKS - 8);
	ck_assert_uint_eq(counter("l1.bytes_pool"), rig.l1_bytes);
	/* Up to its half, and not beyond. */
	for (uint32_t i = 0; i < 3 * CHUNKS; i++)
		ck_assert_uint_eq(store_some(&rig, 1, 10 + i, 1), 0);
	wire_wait_status(&status, "l1.extents_leaving", 0);
	ck_assert_uint_eq(counter("l1.extents_withdrawn"), 4);
	ck_assert_uint_eq(counter("ns.rig.slots"), CHUNKS / 2);
	ck_assert_uint_eq(counter("ns.other.slots"), CHUNKS / 2);
	ck_assert_uint_eq(counter("ns.other.bytes_extents"), rig.l1_bytes / 2);
	ck_assert_uint_eq(counter("ns.rig.bytes_extents"), rig.l1_bytes / 2);
	/* Both workers are in this process: four segments each. */
	wait_mapped(8);
	/* What is left of the first is right, and so is what the other one stores and loads. */
	ck_assert_uint_eq(store_some(&rig, 0, 3, CHUNKS / 2), 0);
	expect_bytes(0, 3, CHUNKS / 2);
	wire_close(&status);
}
END_TEST

/* Wait until this process maps @n segments; returns the seconds since @from_us. */
static double
seconds_until_mapped(uint32_t n, uint64_t from_us)
{
	wait_mapped(n);
	return (double)(scout__now_us() - from_us) / 1e6;
}

START_TEST(thousands_of_extents_are_grown_and_mapped)
{
	const uint32_t slots = 5, at_once = 100;
	uint32_t n = is_long() ? 10000 : 1000;
	uint64_t start_us;
	double grown_s, mapped_s;

	rig.extent_bytes = slots * SLOT_BYTES + 256;
	rig.l1_bytes = (uint64_t)n * slots * SLOT_BYTES;
	rig_start(&rig);
	open_status();
	start_us = scout__now_us();
	for (uint32_t i = 0; i < n * slots / at_once; i++)
		ck_assert_uint_eq(store_some(&rig, 0, 10 + i, at_once), 0);
	grown_s = seconds_until_mapped(n, start_us);
	ck_assert_uint_eq(counter("l1.extents"), n);
	/* One descriptor and one mapping for each, and a worker keeps no descriptor. */
	ck_assert_int_lt(count_fds(), 200);
	ck_assert_uint_eq(count_mapped(rig.server, NULL), n);
	ck_assert_int_ge(count_fds_of(rig.server), (int)n);
	ck_assert_int_lt(count_fds_of(rig.server), (int)n + 200);
	start_us = scout__now_us();
	start_worker_in(&rig, 1, "rig");
	mapped_s = seconds_until_mapped(2 * n, start_us);
	printf("# %u extents: grown and mapped under stores in %.2f s, mapped by a new worker in %.2f s; the server has %d "
	       "descriptors and %u mappings of memfds\n",
	       n, grown_s, mapped_s, count_fds_of(rig.server), count_mapped(rig.server, NULL));
	ck_assert_uint_eq(store_some(&rig, 1, 5, 50), 0);
	expect_bytes(1, 5, 50);
	wire_close(&status);
}
END_TEST

START_TEST(with_prealloc_a_worker_maps_the_whole_pool_before_it_stores)
{
	uint32_t prompt = 10 + CHUNKS;

	rig.prealloc = 1;
	rig_start(&rig);
	open_status();
	wait_mapped(8);
	ck_assert_uint_eq(counter("l1.slots"), CHUNKS);
	ck_assert_uint_eq(counter("l1.chunks"), 0);
	/* A namespace that comes later gets its half of it all the same. */
	start_worker_in(&rig, 1, "other");
	for (uint32_t i = 0; i < CHUNKS; i++)
		ck_assert_uint_eq(store_some(&rig, 1, 10 + i, 1), 0);
	/* An extent that its mappers let go of late comes with a later store: until then the namespace evicts from its own. */
	wait_until(counter("ns.other.slots") == CHUNKS / 2)
		ck_assert_uint_eq(store_some(&rig, 1, prompt++, 1), 0);
	wire_wait_status(&status, "l1.extents_leaving", 0);
	ck_assert_uint_eq(counter("ns.rig.slots"), CHUNKS / 2);
	ck_assert_uint_ge(counter("l1.evictions"), CHUNKS / 2);
	wire_close(&status);
}
END_TEST

START_TEST(bytes_are_right_while_extents_move)
{
	struct scout_client *clients[2];
	uint64_t turns = 0;

	rig_start(&rig);
	open_status();
	start_worker_in(&rig, 1, "other");
	clients[0] = rig.client;
	clients[1] = start_client_in("other");
	for (uint32_t prompt = 10; prompt < 60; prompt++) {
		/* The one, then the other; in between the other one's peers are gone and its memory is taken. */
		uint32_t w = prompt / 10 % 2;
		struct scout_done done = rig_wait(rig.workers[w], rig_store(&rig, w, prompt, 8, 1));

		ck_assert_int_eq(done.status, 0);
		ck_assert_uint_eq(done.no_room, 0);
		rig.client = clients[w];
		for (uint32_t old = prompt > 12 ? prompt - 2 : 10; old <= prompt; old++) {
			struct scout_hit hit;
			int64_t *ids;
			char id[32];

			if (old / 10 % 2 != w)
				continue;
			ids = rig_ids(100, 1, 8 * rig.bpc);
			hit = rig_lookup(&rig, old, 8, id);
			rig_pages_wipe(&rig.pages[w]);
			if (hit.tokens) {
				size_t n = hit.tokens / rig.block_tokens;

				done = rig_wait(rig.workers[w], rig_retrieve(&rig, w, hit.ticket, 0, ids, n, 0));
				ck_assert_int_eq(done.status, 0);
				for (size_t b = 0; b < n; b++)
					ck_assert(rig_page_is(&rig.pages[w], ids[b], old, w, b));
				turns++;
			}
			ck_assert_int_eq(scout_finish(rig.client, id), 0);
			free(ids);
		}
	}
	ck_assert_uint_gt(turns, 50);
	ck_assert_uint_ge(counter("l1.extents_withdrawn"), 1);
	ck_assert_uint_eq(counter("bugs.mismatches"), 0);
	rig.client = clients[0];
	scout_client_free(clients[1]);
	wire_close(&status);
}
END_TEST

/* The server's refusal and the worker's own deadline come at the same time: it is one of the two. */
static void
expect_too_late(uint32_t prompt)
{
	uint8_t *hashes = rig_hashes(prompt, 1);
	int64_t *ids = rig_ids(1, 1, rig.bpc);
	struct scout_store store = {
		.hashes = hashes,
		.hash_len = RIG_HASH,
		.n = 1,
		.blocks = &(struct scout_blocks){.ids = ids, .n = rig.bpc},
		.n_groups = 1,
		.timeout_ms = 300,
	};
	struct scout_done done;
	uint64_t job;

	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	done = rig_wait(rig.workers[0], job);
	free(hashes);
	free(ids);
	ck_assert(done.status == SCOUT_ERR_TIMEOUT || (done.status == 0 && done.no_room == 1));
	ck_assert_uint_eq(done.chunks, 0);
}

START_TEST(a_stopped_worker_delays_only_the_return_of_its_extent)
{
	struct helper filler;
	int code;

	rig_start_server(&rig);
	filler = helper_fork("filler");
	rig_client_start(&rig);
	helper_do(&filler, 's');
	open_status();
	ck_assert_int_eq(kill(filler.pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(filler.pid, &code, WUNTRACED), filler.pid);
	start_worker_in(&rig, 0, "rig");
	/* Its time is over before the memory is there: a typed answer, no hang. */
	expect_too_late(1);
	ck_assert_uint_eq(counter("l1.extents_leaving"), 1);
	ck_assert_uint_eq(counter("l1.extents_withdrawn"), 1);
	ck_assert_uint_eq(counter("l1.bytes_pool"), rig.l1_bytes);
	/* Only that one: nothing more is taken from who does not answer. */
	expect_too_late(1);
	ck_assert_uint_eq(counter("l1.extents_withdrawn"), 1);
	ck_assert_uint_eq(counter("ns.filler.chunks"), CHUNKS - 8);
	ck_assert_int_eq(kill(filler.pid, SIGCONT), 0);
	wire_wait_status(&status, "l1.extents_leaving", 0);
	wire_wait_status(&status, "ns.rig.slots", 8);
	ck_assert_uint_eq(store_some(&rig, 0, 1, 4), 0);
	expect_bytes(0, 1, 4);
	/* The stopped one goes on as if nothing had been. */
	helper_do(&filler, 'e');
	helper_end(&filler, 0);
	wire_close(&status);
}
END_TEST

START_LOOP_TEST(a_worker_that_dies_or_leaves_lets_go_of_everything, 0, 2)
{
	struct helper filler;
	int code;

	rig_start_server(&rig);
	filler = helper_fork("filler");
	rig_client_start(&rig);
	helper_do(&filler, 's');
	open_status();
	start_worker_in(&rig, 0, "rig");
	ck_assert_int_eq(kill(filler.pid, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(filler.pid, &code, WUNTRACED), filler.pid);
	if (_i == 0) {
		/* In the middle of a withdrawal. */
		uint64_t job = rig_store(&rig, 0, 1, 4, 1);
		struct scout_done done;

		wire_wait_status(&status, "l1.extents_leaving", 1);
		ck_assert_int_eq(kill(filler.pid, SIGKILL), 0);
		done = rig_wait(rig.workers[0], job);
		ck_assert_int_eq(done.status, 0);
		ck_assert_uint_eq(done.no_room, 0);
	} else {
		ck_assert_int_eq(kill(filler.pid, SIGCONT), 0);
		helper_do(&filler, 'e');
		wire_wait_status(&status, "ns.filler.peers", 0);
	}
	/* Nobody is there to use the rest: all of it can be had. */
	for (uint32_t prompt = 10; counter("ns.rig.slots") < CHUNKS; prompt++) {
		ck_assert_uint_lt(prompt, 1000);
		ck_assert_uint_eq(store_some(&rig, 0, prompt, 8), 0);
	}
	wire_wait_status(&status, "l1.extents_leaving", 0);
	ck_assert_uint_eq(counter("ns.filler.slots"), 0);
	ck_assert_uint_eq(store_some(&rig, 0, 3, CHUNKS / 2), 0);
	expect_bytes(0, 3, CHUNKS / 2);
	helper_end(&filler, SIGKILL);
	wire_close(&status);
}
END_TEST

START_TEST(a_giver_whose_chunks_are_all_pinned_is_a_typed_refusal)
{
	struct scout_hit hit;
	char id[32];

	rig_start(&rig);
	open_status();
	/* The rig's server promises half of the pool: 32 chunks, every other one of 64. */
	for (uint32_t i = 0; i < CHUNKS; i++)
		ck_assert_uint_eq(store_some(&rig, 0, 100 + i, 1), 0);
	for (uint32_t i = 0; i < CHUNKS; i += 2) {
		hit = rig_lookup(&rig, 100 + i, 1, id);
		ck_assert_uint_eq(hit.tokens, rig.chunk_tokens);
	}
	start_worker_in(&rig, 1, "other");
	ck_assert_uint_eq(store_some(&rig, 1, 2, 1), 1);
	ck_assert_uint_ge(counter("l1.refusals"), 1);
	ck_assert_uint_ge(counter("l1.extents_pinned"), 1);
	ck_assert_uint_eq(counter("l1.extents_withdrawn"), 0);
	ck_assert_uint_eq(counter("l1.evictions"), 0);
	for (uint32_t i = 0; i < CHUNKS / 2; i++) {
		snprintf(id, sizeof(id), "r%u", i);
		ck_assert_int_eq(scout_finish(rig.client, id), 0);
	}
	wire_wait_status(&status, "l1.bytes_promised", 0);
	/* It is looked for again after a tenth of a second. */
	wait_until(store_some(&rig, 1, 2, 1) == 0)
		;
	ck_assert_uint_eq(counter("l1.extents_withdrawn"), 1);
	wire_close(&status);
}
END_TEST

/* ---- what a worker owes the server, message by message ---- */

/* The segment that the server takes away next; what comes before is skipped. */
static uint32_t
wait_withdraw(const struct wire_peer *p)
{
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct scout__lease_msg m;
	ssize_t n;

	do {
		struct pollfd ready = {.fd = p->lease_fd, .events = POLLIN};

		ck_assert_int_eq(poll(&ready, 1, wait_limit_ms()), 1);
		n = recv(p->lease_fd, buf, sizeof(buf), 0);
		ck_assert_int_gt(n, 0);
		ck_assert(scout__get_lease(buf, (size_t)n, &m));
	} while (m.type != SCOUT_LEASE_WITHDRAW);
	return m.segment;
}

static void
send_released(const struct wire_peer *p, uint32_t segment)
{
	const struct scout__lease_msg m = {.type = SCOUT_LEASE_RELEASED, .segment = segment};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	size_t len = scout__put_lease(buf, &m);

	ck_assert_int_eq(send(p->lease_fd, buf, len, MSG_NOSIGNAL), (ssize_t)len);
}

/* Store keys 1 to @n, all of which fit. */
static void
fill_raw(struct wire_peer *p, uint32_t n)
{
	struct wire_grants g;
	uint32_t readable;

	ck_assert_int_eq(wire_store(p, 0, 1, n, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, n);
	ck_assert_int_eq(wire_store_done(p, g.id, n, n, &readable), SCOUT_WIRE_OK);
	ck_assert_uint_eq(readable, n);
	free(g.grants);
}

START_LOOP_TEST(memory_is_back_when_the_worker_says_so_or_connects_anew, 0, 2)
{
	struct wire_peer raw;
	struct wire_grants g;
	struct scout_done done;
	uint32_t segment, readable;
	uint64_t job;

	rig_start(&rig);
	wire_open(&raw, rig.endpoint);
	raw.hello.role = SCOUT_ROLE_WORKER;
	ck_assert_int_eq(wire_hello(&raw), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&raw), SCOUT_LEASE_OK);
	ck_assert_int_eq(wire_register(&raw, 0, 0, SLOT_BYTES), SCOUT_WIRE_OK);
	open_status();
	/* The chunk index of the rig has its first extent, which nobody can take without a need. */
	ck_assert_int_eq(wire_store(&raw, 0, 1, CHUNKS, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, CHUNKS - 8);
	ck_assert_int_eq(wire_store_done(&raw, g.id, g.n_granted, g.n_granted, &readable), SCOUT_WIRE_OK);
	free(g.grants);
	job = rig_store(&rig, 0, 1, 16, 1);
	segment = wait_withdraw(&raw);
	/* Answers that nobody asked for change nothing. */
	send_released(&raw, 0);
	send_released(&raw, segment + 1000);
	ck_assert_uint_eq(counter("l1.extents_leaving"), 1);
	if (_i == 0) {
		send_released(&raw, segment);
	} else {
		ck_assert_int_eq(wire_lease(&raw), SCOUT_LEASE_OK);
	}
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.no_room, 0);
	send_released(&raw, segment);
	ck_assert_uint_eq(counter("leases"), 3);
	expect_bytes(0, 1, 16);
	wire_close(&raw);
	wire_close(&status);
}
END_TEST

START_TEST(another_layout_of_the_only_worker_gives_back_the_memory_of_the_first)
{
	struct wire_peer raw;
	uint32_t n;

	rig_start_server(&rig);
	wire_open(&raw, rig.endpoint);
	raw.hello.role = SCOUT_ROLE_WORKER;
	ck_assert_int_eq(wire_hello(&raw), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&raw), SCOUT_LEASE_OK);
	ck_assert_int_eq(wire_register(&raw, 0, 0, SLOT_BYTES), SCOUT_WIRE_OK);
	open_status();
	fill_raw(&raw, CHUNKS);
	ck_assert_int_eq(wire_register(&raw, 0, 0, 2 * SLOT_BYTES), SCOUT_WIRE_OK);
	/* It maps all of the old memory, so none of that is there for the new one. */
	n = (uint32_t)counter("l1.extents_leaving");
	ck_assert_uint_eq(n, 8);
	for (; n > 0; n--) {
		ck_assert_uint_eq(counter("l1.extents_leaving"), n);
		send_released(&raw, wait_withdraw(&raw));
		wire_wait_status(&status, "l1.extents_leaving", n - 1);
	}
	fill_raw(&raw, CHUNKS / 2);
	wire_close(&raw);
	wire_close(&status);
}
END_TEST

/* ---- a server that was restarted ---- */

/* The scheduler's client has found the new server too. */
static void
wait_hit(uint32_t prompt)
{
	char id[32];

	wait_until(rig_lookup(&rig, prompt, 1, id).tokens != 0)
		ck_assert_int_eq(scout_finish(rig.client, id), 0);
	ck_assert_int_eq(scout_finish(rig.client, id), 0);
}

START_TEST(a_restarted_server_serves_again_and_nothing_is_left)
{
	int fds;

	rig.heartbeat_ms = 250; /* a pause of the machine is no silence yet */
	rig_start(&rig);
	ck_assert_uint_eq(store_some(&rig, 0, 1, CHUNKS), 0);
	wait_mapped(8);
	fds = count_fds();
	rig_server_end(&rig, SIGKILL);
	rig_server_start(&rig);
	open_status();
	/*
	 * By itself: nobody asks the worker for anything. The chunk index asks for its first extent, and that is all
	 * there is.
	 */
	wire_wait_status(&status, "ns.rig.slots", 8);
	wait_mapped(1);
	wait_until(store_some(&rig, 0, 2, CHUNKS / 2) == 0)
		;
	ck_assert_uint_eq(store_some(&rig, 0, 3, CHUNKS / 2), 0);
	wait_hit(2);
	expect_bytes(0, 2, CHUNKS / 2);
	expect_bytes(0, 3, CHUNKS / 2);
	wait_mapped(8);
	wire_close(&status);
	ck_assert_int_le(count_fds(), fds);
}
END_TEST

/* ---- forked children ---- */

/* What /proc/PID/fd names, compared with @name. */
static bool
has_file(pid_t pid, const char *name)
{
	char path[64], link[PATH_MAX], at[PATH_MAX + 64];
	const struct dirent *entry;
	bool found = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL) { // NOLINT(concurrency-mt-unsafe): a stream of our own
		ssize_t n;

		snprintf(at, sizeof(at), "%s/%s", path, entry->d_name);
		n = readlink(at, link, sizeof(link) - 1);
		if (n < 0)
			continue;
		link[n] = '\0';
		found |= strcmp(link, name) == 0;
	}
	(void)closedir(dir);
	return found;
}

START_TEST(a_forked_child_keeps_neither_the_lease_connection_nor_the_pool)
{
	char at[64], name[PATH_MAX] = "", c;
	ssize_t n;
	pid_t child;
	int hold[2], there[2], code;

	rig_start(&rig);
	ck_assert_uint_eq(store_some(&rig, 0, 1, CHUNKS), 0);
	ck_assert_uint_eq(count_mapped(0, NULL), 8);
	ck_assert_int_eq(pipe(there), 0);
	snprintf(at, sizeof(at), "/proc/self/fd/%d", rig.workers[0]->link->lease_fd);
	n = readlink(at, name, sizeof(name) - 1);
	ck_assert_int_gt(n, 0);
	ck_assert(strncmp(name, "socket:", 7) == 0 && has_file(getpid(), name));
	ck_assert_int_eq(pipe(hold), 0);
	child = checked_fork();
	if (child == 0) {
		(void)close(hold[1]);
		if (write(there[1], "!", 1) != 1)
			_exit(2);
		_exit(read(hold[0], &c, 1) == 0 ? 0 : 1);
	}
	(void)close(hold[0]);
	ck_assert_int_eq(read(there[0], &c, 1), 1);
	ck_assert(!has_file(child, name));
	ck_assert_uint_eq(count_mapped(child, NULL), 0);
	/* Ours are as before. */
	ck_assert(has_file(getpid(), name));
	expect_bytes(0, 1, CHUNKS / 2);
	(void)close(hold[1]);
	ck_assert_int_eq(waitpid(child, &code, 0), child);
	ck_assert(WIFEXITED(code) && WEXITSTATUS(code) == 0);
}
END_TEST
