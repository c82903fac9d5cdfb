/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "adapter_rig.h"
#include "object.h"
#include "store.h"

/*
 * What every store promises, on each of them (store.h): whatever lies in it, a load never says OK to anything but what was
 * stored, and an operation ends once. What one store alone has is in its own room. On Swift it takes a minute, since a request needs
 * some 20 ms there.
 */

#define MIB (UINT64_C(1) << 20)
#define BYTES 1000u  /* of the object that is damaged */
#define ROOM 210000u /* of raw bytes */
#define OP_MS 60000u /* nothing is to be late */

static const struct test_store *store;
static struct adapter_rig rig;
static struct adapter_object o, other;
static uint8_t raw[ROOM], got[ROOM];
static char url[STORE_URL];

static void
up(void)
{
	struct scout__l2_gauges gauges;

	adapter_up(&rig, url);
	wait_until((rig.adapter && (rig.vt->gauges(rig.adapter, &gauges), gauges.ready)))
		;
}

static void
set_up(void)
{
	store = store_of_this_run();
	rig = (struct adapter_rig){.vt = store->adapter, .timeout_ms = store->timeout_ms, .max_ops = 10000};
	store->start(url);
	up();
	object_init(&o, 1, BYTES);
	object_init(&other, 2, BYTES);
}

static void
tear_down(void)
{
	adapter_down(&rig);
	store->stop();
	object_fini(&o);
	object_fini(&other);
}

CASE_TIMEOUT(300);
CHECKED_FIXTURE(set_up, tear_down);

START_TEST(what_was_stored_is_there_and_loads_also_after_a_restart)
{
	static const uint64_t sizes[] = {0,     1,       511,         4095, 4096,           4097,
					 65536, MIB / 2, MIB / 2 + 1, MIB,  3 * MIB + 12345};
	enum {
		N = sizeof(sizes) / sizeof(sizes[0])
	};
	struct adapter_object of[N];

	for (uint32_t i = 0; i < N; i++)
		object_init(&of[i], 10 + i, sizes[i]);
	ck_assert_uint_eq(object_exists(&rig, of, N), 0);
	for (uint32_t i = 0; i < N; i++) {
		ck_assert_int_eq(object_load(&rig, &of[i]), SCOUT__L2_ABSENT);
		ck_assert_int_eq(object_store(&rig, &of[i]), SCOUT__L2_OK);
		ck_assert_int_eq(object_load(&rig, &of[i]), SCOUT__L2_OK);
		ck_assert_uint_eq(object_exists(&rig, of, N), i + 1);
	}
	adapter_down(&rig);
	up();
	ck_assert_uint_eq(object_exists(&rig, of, N), N);
	for (uint32_t i = 0; i < N; i++) {
		ck_assert_int_eq(object_load(&rig, &of[i]), SCOUT__L2_OK);
		object_fini(&of[i]);
	}
}
END_TEST

START_TEST(a_question_says_of_each_object_whether_it_is_there)
{
	struct adapter_object of[3];

	for (uint32_t i = 0; i < 3; i++)
		object_init(&of[i], 10 + i, BYTES);
	ck_assert_int_eq(object_store(&rig, &of[0]), SCOUT__L2_OK);
	ck_assert_int_eq(object_store(&rig, &of[2]), SCOUT__L2_OK);
	object_begin_exists(&rig, &o, of, 3, OP_MS);
	ck_assert_int_eq(object_end(&o), SCOUT__L2_OK);
	ck_assert_mem_eq(o.op.found, "\1\0\1", 3);
	ck_assert_int_eq(object_load(&rig, &of[1]), SCOUT__L2_ABSENT);
	for (uint32_t i = 0; i < 3; i++)
		object_fini(&of[i]);
}
END_TEST

START_TEST(an_object_that_is_there_stays)
{
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	memset(o.slot, 0x77, o.bytes);
	object_begin(&rig, &o, SCOUT__L2_STORE, OP_MS);
	ck_assert_int_eq(object_end(&o), SCOUT__L2_PRESENT);
	ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_OK);
}
END_TEST

START_TEST(pins_and_empty_questions_end_at_once)
{
	ck_assert_uint_eq(object_exists(&rig, &o, 0), 0);
	object_begin_exists(&rig, &o, &o, 1, OP_MS);
	ck_assert_int_eq(object_end(&o), SCOUT__L2_OK);
	o.op.what = SCOUT__L2_UNPIN;
	ck_assert_int_eq(adapter_run(&rig, &o.op), SCOUT__L2_OK);
}
END_TEST

/* ---- damage ---- */

#define VERSION_AT 8u /* in the header, two bytes; see object.h */
#define SUM_AT (SCOUT__L2_HEADER_BYTES - 8u)

static size_t
next(size_t at)
{
	return at + (at < 64 ? 1 : store->each);
}

/* What object @of is in the store, of @bytes that are not those that were stored if there are others. Returns how many there are. */
static size_t
raw_of(const struct adapter_object *of, uint64_t bytes)
{
	uint8_t *payload = raw + store->payload_at;

	memset(raw, 0, sizeof(raw));
	memcpy(payload, of->data, bytes < of->bytes ? bytes : of->bytes);
	scout__l2_header_put(raw, &of->key, bytes, scout__l2_sum(payload, bytes));
	return store->payload_at + bytes;
}

/* @n raw bytes, the first wrong one at @at, are not served; a removal takes them, and then the object is stored again. */
static void
is_damage_at(size_t n, size_t at)
{
	store->put(o.key.digest, raw, n);
	memset(o.slot + o.bytes, 0x5a, 8); /* it has 8 bytes more than it says */
	ck_assert_msg(object_load(&rig, &o) == SCOUT__L2_CORRUPT, "%zu bytes, %d", n, o.op.result);
	for (uint64_t b = 0; b < o.bytes + 8; b++)
		ck_assert(b >= o.bytes ? o.slot[b] == 0x5a
				       : o.slot[b] == 0xee || at >= store->payload_at || !store->judges_first);
	ck_assert_int_eq(object_remove(&rig, &o), SCOUT__L2_OK);
	ck_assert(store->get(o.key.digest, got, ROOM) == -1);
	ck_assert_uint_eq(object_exists(&rig, &o, 1), 0);
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
}

static void
is_damage(size_t n)
{
	is_damage_at(n, 0);
}

START_TEST(the_raw_bytes_are_the_header_and_the_payload)
{
	size_t n;

	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	n = raw_of(&o, BYTES);
	ck_assert_int_eq(store->get(o.key.digest, got, ROOM), (int64_t)n);
	ck_assert(memcmp(got, raw, n) == 0);
}
END_TEST

START_TEST(a_flipped_bit_anywhere_is_damage)
{
	size_t n = raw_of(&o, BYTES);

	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	for (size_t at = 0; at < n; at = next(at)) {
		raw[at] ^= (uint8_t)(1u << at % 8);
		if (at >= SCOUT__L2_HEADER_BYTES && at < store->payload_at) {
			/* The zeros between header and payload mean nothing. */
			store->put(o.key.digest, raw, n);
			ck_assert_int_eq(object_load(&rig, &o), SCOUT__L2_OK);
		} else {
			is_damage_at(n, at);
		}
		raw[at] ^= (uint8_t)(1u << at % 8);
	}
}
END_TEST

START_TEST(an_object_that_is_cut_off_or_too_long_is_damage)
{
	size_t n = raw_of(&o, BYTES);

	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	for (size_t len = 0; len < n; len = next(len))
		is_damage(len);
	is_damage(n - 1);
	is_damage(n + 1);
	is_damage(200000);
}
END_TEST

/* Of this key, and every sum is right. */
START_TEST(a_sound_object_of_another_size_is_damage)
{
	static const uint64_t sizes[] = {800, 992, 999, 1001, 1008, 9000, 200000};

	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		is_damage(raw_of(&o, sizes[i]));
}
END_TEST

START_TEST(a_sound_object_under_the_key_of_another_is_damage)
{
	ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_OK);
	ck_assert_int_eq(object_store(&rig, &other), SCOUT__L2_OK);
	is_damage(raw_of(&other, BYTES));
	ck_assert_int_eq(object_load(&rig, &other), SCOUT__L2_OK);
}
END_TEST

START_LOOP_TEST(an_object_of_another_format_version_is_a_miss_and_stays, 0, store_of_this_run()->keeps_formats)
{
	const size_t lengths[] = {512, 1000, 1511, 1512, 200000};
	uint64_t sum;

	(void)raw_of(&o, BYTES);
	raw[VERSION_AT]++;
	sum = htole64(XXH3_64bits(raw, SUM_AT));
	memcpy(raw + SUM_AT, &sum, sizeof(sum));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		store->put(o.key.digest, raw, lengths[i]);
		/* Not CORRUPT: what is CORRUPT is removed. */
		ck_assert_msg(object_load(&rig, &o) == SCOUT__L2_ABSENT, "%zu bytes", lengths[i]);
		for (uint64_t b = 0; b < o.bytes; b++)
			ck_assert(o.slot[b] == 0xee || !store->judges_first);
		ck_assert_int_eq(object_store(&rig, &o), SCOUT__L2_PRESENT);
		ck_assert_int_eq(store->get(o.key.digest, got, ROOM), (int64_t)lengths[i]);
	}
}
END_TEST

/* ---- amounts ---- */

/* Each of @n objects is stored, or loaded. */
static void
all(struct adapter_object *of, uint32_t n, enum scout__l2_what what)
{
	for (uint32_t i = 0; i < n; i++) {
		if (what == SCOUT__L2_LOAD)
			memset(of[i].slot, 0, of[i].bytes);
		object_begin(&rig, &of[i], what, OP_MS);
	}
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_int_eq(object_end(&of[i]), SCOUT__L2_OK);
		ck_assert(memcmp(of[i].slot, of[i].data, of[i].bytes) == 0);
	}
}

START_TEST(large_objects_travel_whole)
{
	struct adapter_object of[3];
	const uint64_t bytes[] = {64 * MIB, 5 * MIB + 8, 64 * MIB};

	for (uint32_t i = 0; i < 3; i++)
		object_init(&of[i], 10 + i, bytes[i]);
	all(of, 3, SCOUT__L2_STORE);
	all(of, 3, SCOUT__L2_LOAD);
	for (uint32_t i = 0; i < 3; i++)
		object_fini(&of[i]);
}
END_TEST

START_TEST(many_small_operations_at_once)
{
	struct adapter_object *of = calloc(store->many, sizeof(*of));

	for (uint32_t i = 0; i < store->many; i++)
		object_init(&of[i], 10 + i, 64);
	all(of, store->many, SCOUT__L2_STORE);
	ck_assert_uint_eq(object_exists(&rig, of, store->many), store->many);
	all(of, store->many, SCOUT__L2_LOAD);
	for (uint32_t i = 0; i < store->many; i++)
		object_fini(&of[i]);
	free(of);
}
END_TEST

START_LOOP_TEST(of_many_stores_of_one_object_one_writes, 0, store_of_this_run()->is_atomic)
{
	struct adapter_object of[64];
	uint32_t n[SCOUT__L2_RESULTS] = {0};

	for (uint32_t i = 0; i < 64; i++) {
		object_init(&of[i], 10, MIB);
		object_begin(&rig, &of[i], SCOUT__L2_STORE, OP_MS);
	}
	for (uint32_t i = 0; i < 64; i++)
		n[object_end(&of[i])]++;
	ck_assert_uint_eq(n[SCOUT__L2_OK], 1);
	ck_assert_uint_eq(n[SCOUT__L2_PRESENT], 63);
	ck_assert_int_eq(object_load(&rig, &of[0]), SCOUT__L2_OK);
	for (uint32_t i = 0; i < 64; i++)
		object_fini(&of[i]);
}
END_TEST

START_TEST(removals_at_once_remove_each_its_own_or_what_is_damaged)
{
	struct adapter_object of[40];

	for (uint32_t i = 0; i < 40; i++) {
		object_init(&of[i], 10 + i, BYTES);
		ck_assert_int_eq(object_store(&rig, &of[i]), SCOUT__L2_OK);
	}
	for (uint32_t i = 1; i < 40; i += 2)
		object_begin(&rig, &of[i], SCOUT__L2_REMOVE, OP_MS);
	for (uint32_t i = 1; i < 40; i += 2)
		ck_assert_int_eq(object_end(&of[i]), SCOUT__L2_OK);
	for (uint32_t i = 0; i < 40; i++) {
		bool stays = i % 2 == 0 || store->looks_again;

		ck_assert_int_eq(store->get(of[i].key.digest, got, ROOM) >= 0, stays);
		ck_assert_int_eq(object_load(&rig, &of[i]), stays ? SCOUT__L2_OK : SCOUT__L2_ABSENT);
		object_fini(&of[i]);
	}
	ck_assert_int_eq(object_remove(&rig, &o), SCOUT__L2_OK); /* of nothing */
}
END_TEST

START_TEST(a_stop_ends_every_operation)
{
	static struct adapter_object of[60];

	ck_assert_int_eq(object_store(&rig, &other), SCOUT__L2_OK);
	for (uint32_t i = 0; i < 60; i++)
		object_init(&of[i], 10 + i, i % 10 == 0 ? 64 * MIB : 1000);
	if (store->freeze)
		store->freeze(true);
	for (uint32_t i = 0; i < 60; i++)
		object_begin(&rig, &of[i],
			     i % 3 == 0   ? SCOUT__L2_STORE
			     : i % 3 == 1 ? SCOUT__L2_LOAD
					  : SCOUT__L2_REMOVE,
			     OP_MS);
	object_begin_exists(&rig, &o, of, 60, OP_MS);
	adapter_down(&rig);
	for (uint32_t i = 0; i < 60; i++) {
		enum scout__l2_result result = object_end(&of[i]);

		/* A store that cannot be frozen may have done any of them before the stop. */
		ck_assert(result == SCOUT__L2_CANCELLED || (!store->freeze && result <= SCOUT__L2_ABSENT));
		object_fini(&of[i]);
	}
	(void)object_end(&o);
	if (store->freeze)
		store->freeze(false);
	up();
	ck_assert_int_eq(object_load(&rig, &other), SCOUT__L2_OK);
}
END_TEST

/* ---- records ---- */

#define RECORD_BYTES 96u

/* Whether there is one. */
static bool
record(enum scout__l2_what what, uint64_t name, uint8_t *data, uint64_t bytes)
{
	struct scout__l2_digest digest = {.lo = name, .hi = 9};
	uint8_t found = 9;
	struct scout__l2_op op = {.what = (uint8_t)what,
				  .n = 1,
				  .digests = &digest,
				  .found = &found,
				  .data = data,
				  .bytes = bytes,
				  .timeout_us = UINT64_C(1000) * OP_MS};

	ck_assert_int_eq(adapter_run(&rig, &op), SCOUT__L2_OK);
	return found == 1;
}

/* Written over, apart from the objects, and there after a restart. One of another length is there and reads as zeros. */
START_TEST(a_record_is_replaced_and_one_of_another_length_is_zeros)
{
	uint8_t written[RECORD_BYTES], read[RECORD_BYTES + 1], zeros[RECORD_BYTES + 1] = {0};

	ck_assert(!record(SCOUT__L2_RECORD_READ, 7, read, RECORD_BYTES));
	for (unsigned i = 0; i < 3; i++) {
		memset(written, (int)(i * 77 + 5), sizeof(written));
		(void)record(SCOUT__L2_RECORD_WRITE, 7, written, RECORD_BYTES);
		ck_assert(record(SCOUT__L2_RECORD_READ, 7, read, RECORD_BYTES));
		ck_assert_mem_eq(read, written, RECORD_BYTES);
	}
	adapter_down(&rig);
	up();
	ck_assert(record(SCOUT__L2_RECORD_READ, 7, read, RECORD_BYTES));
	ck_assert_mem_eq(read, written, RECORD_BYTES);
	ck_assert(!record(SCOUT__L2_RECORD_READ, 8, read, RECORD_BYTES));
	for (uint64_t bytes = RECORD_BYTES - 1; bytes <= RECORD_BYTES + 1; bytes += 2) {
		memset(read, 0xee, sizeof(read));
		ck_assert(record(SCOUT__L2_RECORD_READ, 7, read, bytes));
		ck_assert_mem_eq(read, zeros, bytes);
	}
}
END_TEST

int
main(void)
{
	return store_main();
}
