/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

/*
 * Connections that ask kvscoutd and never read what it answers, through the socket: they cost a bounded number of bytes, each and
 * together, they are ended, and others are answered. (Through shared memory: unit/shm.)
 */

#define MIB (UINT64_C(1) << 20)
#define FRAMES_MOST 20000u
#define MANY (FAULT_SANITIZED ? 8u : 24u) /* a sanitizer makes the server that asks and the one that answers slow */
#define ROUNDS (FAULT_SANITIZED ? 1u : 40u)

static struct fault f;

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
}

/* Resident bytes of the server. A sanitizer's heap keeps what is freed: then 0. */
static uint64_t
resident(void)
{
	char path[64];
	uint64_t pages = 0;
	FILE *file;

	if (FAULT_SANITIZED)
		return 0;
	(void)snprintf(path, sizeof(path), "/proc/%d/statm", (int)f.server);
	file = fopen(path, "re");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%*u %" SCNu64, &pages), 1);
	(void)fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void
ask_status(struct wire_peer *p)
{
	(void)wire_begin(p, SCOUT_OP_STATUS);
	(void)wire_end(p);
	wire_flush(p);
}

/* An answer that is as large as a question with room for refusals can get it. */
static void
ask_nonsense(struct wire_peer *p)
{
	for (unsigned i = 0; i < SCOUT_MAX_OPS; i++) {
		(void)wire_begin(p, 200);
		(void)wire_end(p);
	}
	wire_flush(p);
}

static uint64_t
executed(void)
{
	return fault_status(&f, "ops.status") + fault_status(&f, "ops.unknown");
}

/* Ask and do not read, until the server has ended @n connections in all, or has been asked often enough. */
static void
ask_until_dropped(struct wire_peer *p, void (*ask)(struct wire_peer *p), uint64_t n, uint64_t most_bytes)
{
	const unsigned batch = ask == ask_status ? 200 : 1;
	uint64_t before = resident();

	for (unsigned i = 0; i < FRAMES_MOST && fault_status(&f, "peers.dropped") < n; i += batch) {
		uint64_t target = executed() + batch;

		for (unsigned k = 0; k < batch; k++)
			ask(p);
		wait_until(executed() >= target || fault_status(&f, "peers.dropped") >= n)
			;
		ck_assert_uint_le(fault_status(&f, "replies.unsent_bytes"), most_bytes);
		if (resident() > before)
			ck_assert_uint_lt(resident() - before, most_bytes + 32 * MIB);
	}
	ck_assert_uint_eq(fault_status(&f, "peers.dropped"), n);
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(a_frame_has_one_status_and_a_typed_refusal_for_the_rest)
{
	struct wire_peer peer;
	uint64_t first, bytes = 0;

	fault_up(&f);
	wire_open(&peer, f.endpoint); /* no HELLO */
	first = peer.last_corr + 1;
	for (unsigned i = 0; i < SCOUT_MAX_OPS; i++) {
		(void)wire_begin(&peer, SCOUT_OP_STATUS);
		(void)wire_end(&peer);
	}
	wire_flush(&peer);
	for (unsigned i = 0; i < SCOUT_MAX_OPS; i++) {
		struct wire_reply *reply = wire_wait(&peer, first + i);

		ck_assert_int_eq(reply->status, i == 0 ? SCOUT_WIRE_OK : SCOUT_WIRE_LIMIT);
		bytes += SCOUT_OP_HEADER_BYTES + reply->length;
		wire_reply_free(reply);
	}
	ck_assert_uint_lt(bytes, MIB);
	ck_assert_ptr_nonnull(strstr(peer.text, "STATUS"));
	/* The next frame has one again. */
	ck_assert_uint_ne(wire_status(&peer, "peers"), UINT64_MAX);
	wire_close(&peer);
	fault_down(&f);
}
END_TEST

START_LOOP_TEST(a_connection_without_hello_that_never_reads_is_ended, 0, 2)
{
	void (*const asks[])(struct wire_peer * p) = {ask_status, ask_nonsense};
	struct wire_peer deaf, good;

	fault_up(&f);
	fault_bare_client(&f, &good);
	wire_open_hwm(&deaf, f.endpoint, 1);
	ask_until_dropped(&deaf, asks[_i], 1, 4 * MIB);
	ck_assert_int_eq(wire_ping(&good), SCOUT_WIRE_OK);
	wire_lease_bye(&good);
	wire_close(&good);
	wire_close(&deaf);
	/* What it did not read is free again. */
	fault_wait(&f, "replies.unsent_bytes", 0);
	fault_down(&f);
}
END_TEST

START_TEST(a_peer_that_never_reads_is_ended_and_can_come_back)
{
	struct wire_peer deaf, again;
	struct scout__lookup_reply found;

	fault_up(&f);
	wire_open_hwm(&deaf, f.endpoint, 1);
	deaf.hello.name_space = (struct scout__str){"deaf", 4};
	ck_assert_int_eq(wire_hello(&deaf), SCOUT_WIRE_OK);
	ask_until_dropped(&deaf, ask_status, 1, 32 * MIB);
	/* It is known by its token, on another connection. */
	ck_assert_uint_eq(fault_status(&f, "peers"), 1);
	wire_open(&again, f.endpoint);
	again.hello = deaf.hello;
	ck_assert_int_eq(wire_hello(&again), SCOUT_WIRE_OK);
	ck_assert_uint_eq(fault_status(&f, "peers"), 1);
	ck_assert_int_eq(wire_lookup(&again, 7, 1, 4, 0, &found), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_lease(&again), SCOUT_LEASE_OK);
	wire_lease_bye(&again);
	wire_close(&deaf);
	wire_close(&again);
	fault_wait(&f, "replies.unsent_bytes", 0);
	fault_down(&f);
}
END_TEST

START_TEST(many_that_never_read_share_a_limit_and_others_are_served)
{
	struct wire_peer deaf[MANY], good;
	struct scout__lookup_reply found;
	uint64_t before, ticket = 100;

	fault_up(&f);
	fault_bare_client(&f, &good);
	before = resident();
	for (unsigned i = 0; i < MANY; i++) {
		wire_open_hwm(&deaf[i], f.endpoint, 1);
		deaf[i].hello.name_space = (struct scout__str){"deaf", 4};
		if (i % 2)
			ck_assert_int_eq(wire_hello(&deaf[i]), SCOUT_WIRE_OK);
	}
	for (unsigned round = 0; round < ROUNDS || fault_status(&f, "peers.dropped") == 0; round++) {
		ck_assert_uint_lt(round, 400);
		for (unsigned i = 0; i < MANY; i++)
			for (unsigned k = 0; k < 20; k++)
				ask_status(&deaf[i]);
		ck_assert_int_eq(wire_lookup(&good, ++ticket, 1, 4, 0, &found), SCOUT_WIRE_OK);
		ck_assert_int_eq(wire_simple(&good, SCOUT_OP_FINISH, ticket), SCOUT_WIRE_OK);
		ck_assert_uint_le(fault_status(&f, "replies.unsent_bytes"), 160 * MIB);
		if (resident() > before)
			ck_assert_uint_lt(resident() - before, 224 * MIB);
	}
	wire_lease_bye(&good);
	wire_close(&good);
	for (unsigned i = 0; i < MANY; i++)
		wire_close(&deaf[i]);
	fault_wait(&f, "replies.unsent_bytes", 0);
	memset(f.actors, 0, sizeof(f.actors));
	fault_server_kill(&f); /* those that never said goodbye are remembered for ten heartbeats */
}
END_TEST
