/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "l2_files_rig.h"

#define KIB 1024u
#define MIB (1024u * 1024u)

static struct rig rig;

static void
setup(void)
{
	rig_init(&rig, false);
}

static void
teardown(void)
{
	rig_fini(&rig);
}

/* Of every kind: nothing, less than a block, whole blocks, pieces and a rest, and of what a slot may be aligned to. */
static const uint64_t sizes[] = {0, 1, 511, 4095, 4096, 4097, 65536, 512 * KIB, 512 * KIB + 1, MIB, 3 * MIB + 12345};

#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void
round_trip(const char *query)
{
	rig_open(&rig, query);
	for (uint32_t i = 0; i < N_SIZES; i++) {
		ck_assert(!rig_exists(&rig, i, false));
		ck_assert_int_eq(rig_load(&rig, i, sizes[i]), SCOUT__L2_ABSENT);
		ck_assert_int_eq(rig_store(&rig, i, sizes[i]), SCOUT__L2_OK);
		ck_assert(rig_exists(&rig, i, false));
		ck_assert_int_eq(rig_load(&rig, i, sizes[i]), SCOUT__L2_OK);
	}
	ck_assert_uint_eq(rig_gauges(&rig).objects, N_SIZES);
	rig_check_folder(&rig, N_SIZES);
	adapter_down(&rig.of);
	rig_open(&rig, query);
	ck_assert_uint_eq(rig_gauges(&rig).recovered, N_SIZES);
	for (uint32_t i = 0; i < N_SIZES; i++) {
		ck_assert(rig_exists(&rig, i, false));
		ck_assert_int_eq(rig_load(&rig, i, sizes[i]), SCOUT__L2_OK);
	}
}

CHECKED_FIXTURE(setup, teardown);

START_LOOP_TEST(what_was_stored_is_loaded_also_after_a_restart, 0, 3)
{
	static const char *const queries[] = {"?sync=1", "?threads=1", "?shared=0&sync=1&threads=64"};

	round_trip(queries[_i]);
}
END_TEST

/* Not every file system has it; those without say so. */
static bool
opens_direct(const char *query)
{
	int rc = rig_try_open(&rig, query);

	if (rc == SCOUT_ERR_CONFIG_RANGE && strstr(rig.err, "does not support direct"))
		return false;
	ck_assert_msg(rc == 0, "%s", rig.err);
	adapter_down(&rig.of);
	return true;
}

START_TEST(direct_io_reads_what_buffered_io_wrote_and_the_other_way_round)
{
	const uint64_t n = N_SIZES;

	if (!opens_direct("?direct=1"))
		return;
	round_trip("?direct=1&sync=1");
	adapter_down(&rig.of);
	rig_open(&rig, "");
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(rig_load(&rig, i, sizes[i]), SCOUT__L2_OK);
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(rig_store(&rig, 100 + i, sizes[i]), SCOUT__L2_OK);
	adapter_down(&rig.of);
	rig_open(&rig, "?direct=1");
	for (uint32_t i = 0; i < n; i++)
		ck_assert_int_eq(rig_load(&rig, 100 + i, sizes[i]), SCOUT__L2_OK);
}
END_TEST

START_TEST(direct_io_takes_slots_of_any_alignment)
{
	struct scout__l2_key key = rig_key(1);
	const uint64_t bytes = 2 * MIB + 777;
	uint8_t *wanted = malloc(bytes), *memory;
	void *aligned;

	if (!opens_direct("?direct=1"))
		return;
	rig_open(&rig, "?direct=1");
	ck_assert_int_eq(posix_memalign(&aligned, 4096, bytes + 8192), 0);
	memory = aligned;
	for (unsigned off = 0; off < 4096; off += 511) {
		key = rig_key(off);
		object_fill(wanted, bytes, off);
		memcpy(memory + off, wanted, bytes);
		ck_assert_int_eq(rig_transfer(&rig, SCOUT__L2_STORE, &key, memory + off, bytes), SCOUT__L2_OK);
		memset(memory, 0xee, bytes + 8192);
		ck_assert_int_eq(rig_transfer(&rig, SCOUT__L2_LOAD, &key, memory + off, bytes), SCOUT__L2_OK);
		ck_assert_mem_eq(memory + off, wanted, bytes);
		ck_assert(off == 0 || memory[off - 1] == 0xee);
		ck_assert_uint_eq(memory[off + bytes], 0xee);
	}
	free(aligned);
	free(wanted);
}
END_TEST

/* ---- many at once ---- */

/* Everything at once on few keys with a limit that evicts all the time: whatever is loaded is right, the sums stay right. */
START_TEST(stores_loads_and_evictions_of_the_same_keys_never_mix)
{
	enum {
		KEYS = 24,
		ROUNDS = 60,
		OPS = 128,
		BYTES = 20000
	};
	static struct scout__l2_key keys[KEYS];
	static uint8_t payload[KEYS][BYTES], loaded[OPS][BYTES];
	static struct scout__l2_op ops[OPS];
	static atomic_uint done[OPS];
	struct scout__l2_gauges gauges;
	struct l2_folder_report report;
	unsigned seed = 1, n_loaded = 0;

	rig_open(&rig, "?threads=8&max_bytes=200Ki");
	for (uint32_t i = 0; i < KEYS; i++) {
		keys[i] = rig_key(i);
		object_fill(payload[i], BYTES, i);
	}
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < OPS; i++) {
			uint32_t k = (uint32_t)rand_r(&seed) % KEYS;
			int what = rand_r(&seed) % 8;

			ops[i] = (struct scout__l2_op){.key = &keys[k], .bytes = BYTES};
			ops[i].what = what < 4 ? SCOUT__L2_STORE : what < 7 ? SCOUT__L2_LOAD : SCOUT__L2_REMOVE;
			ops[i].data = what < 4 ? payload[k] : loaded[i];
			adapter_submit(&rig.of, &ops[i], &done[i]);
		}
		for (unsigned i = 0; i < OPS; i++) {
			(void)adapter_end(&ops[i], &done[i]);
			ck_assert_int_le(ops[i].result, SCOUT__L2_PRESENT);
			if (ops[i].what != SCOUT__L2_LOAD || ops[i].result != SCOUT__L2_OK)
				continue;
			n_loaded++;
			ck_assert_mem_eq(loaded[i], payload[ops[i].key - keys], BYTES);
		}
	}
	ck_assert_uint_gt(n_loaded, ROUNDS);
	gauges = rig_gauges(&rig);
	ck_assert_uint_gt(gauges.evictions, ROUNDS);
	ck_assert_uint_le(gauges.bytes, 200 * KIB);
	l2_folder_check(rig.folder, &report);
	ck_assert_uint_eq(report.damaged + report.temporaries + report.foreign, 0);
	ck_assert_uint_eq(report.objects, gauges.objects);
	ck_assert_uint_eq(report.bytes, gauges.bytes);
}
END_TEST

/* ---- eviction ---- */

#define ONE 8192u /* disk bytes of an object of ONE - 4096 */

static uint64_t
objects_there(uint32_t from, uint32_t to)
{
	uint64_t there = 0;

	for (uint32_t i = from; i < to; i++)
		there |= (uint64_t)rig_exists(&rig, i, false) << i;
	return there;
}

START_TEST(the_least_recently_used_go_first)
{
	rig_open(&rig, "?max_bytes=40Ki&threads=1");
	for (uint32_t i = 0; i < 5; i++)
		ck_assert_int_eq(rig_store(&rig, i, ONE - 4096), SCOUT__L2_OK);
	ck_assert_uint_eq(rig_gauges(&rig).bytes, 5 * ONE);
	/* A load, and a lookup that promises, are uses. A mere look is none. */
	ck_assert_int_eq(rig_load(&rig, 0, ONE - 4096), SCOUT__L2_OK);
	ck_assert(rig_exists(&rig, 1, true));
	rig_unpin(&rig, 1);
	ck_assert(rig_exists(&rig, 2, false));
	ck_assert_int_eq(rig_store(&rig, 5, ONE - 4096), SCOUT__L2_OK);
	ck_assert_uint_eq(objects_there(0, 6), 0x3b); /* 2 is gone */
	ck_assert_int_eq(rig_store(&rig, 6, 2 * ONE - 4096), SCOUT__L2_OK);
	ck_assert_uint_eq(objects_there(0, 7), 0x63); /* 3 and 4 */
	ck_assert_uint_eq(rig_gauges(&rig).evictions, 3);
	ck_assert_uint_eq(rig_gauges(&rig).bytes, 5 * ONE);
	rig_check_folder(&rig, 4);
}
END_TEST

START_TEST(the_head_of_a_prefix_is_the_last_to_go)
{
	struct scout__l2_digest digests[4];
	uint8_t found[4];
	struct scout__l2_op op = {.what = SCOUT__L2_EXISTS, .pin = true, .n = 4, .digests = digests, .found = found};

	rig_open(&rig, "?max_bytes=32Ki&threads=1");
	for (uint32_t i = 0; i < 4; i++) {
		ck_assert_int_eq(rig_store(&rig, i, ONE - 4096), SCOUT__L2_OK);
		digests[i] = rig_key(i).digest;
	}
	ck_assert_int_eq(adapter_run(&rig.of, &op), SCOUT__L2_OK);
	op.what = SCOUT__L2_UNPIN;
	ck_assert_int_eq(adapter_run(&rig.of, &op), SCOUT__L2_OK);
	ck_assert_int_eq(rig_store(&rig, 4, ONE - 4096), SCOUT__L2_OK);
	ck_assert_uint_eq(objects_there(0, 5), 0x17);
	ck_assert_int_eq(rig_store(&rig, 5, ONE - 4096), SCOUT__L2_OK);
	ck_assert_uint_eq(objects_there(0, 6), 0x33);
}
END_TEST

START_TEST(what_is_pinned_is_never_evicted)
{
	rig_open(&rig, "?max_bytes=32Ki&threads=1");
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(rig_store(&rig, i, ONE - 4096), SCOUT__L2_OK);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert(rig_exists(&rig, i, true));
	ck_assert(rig_exists(&rig, 0, true)); /* twice */
	ck_assert_uint_eq(rig_gauges(&rig).pinned, 3);
	ck_assert_int_eq(rig_store(&rig, 4, ONE - 4096), SCOUT__L2_OK);
	ck_assert_uint_eq(objects_there(0, 5), 0x17);
	ck_assert(rig_exists(&rig, 4, true));
	ck_assert_int_eq(rig_store(&rig, 5, ONE - 4096), SCOUT__L2_FULL);
	rig_unpin(&rig, 0);
	ck_assert_int_eq(rig_store(&rig, 5, ONE - 4096), SCOUT__L2_FULL);
	rig_unpin(&rig, 0);
	ck_assert_int_eq(rig_store(&rig, 5, ONE - 4096), SCOUT__L2_OK);
	ck_assert_uint_eq(objects_there(0, 6), 0x36);
	/* One more than there are pins: nothing happens. */
	rig_unpin(&rig, 5);
	rig_unpin(&rig, 99);
	ck_assert_uint_eq(rig_gauges(&rig).pinned, 3);
	rig_check_folder(&rig, 4);
}
END_TEST

START_TEST(an_object_larger_than_the_limit_is_refused_and_evicts_nothing)
{
	rig_open(&rig, "?max_bytes=32Ki");
	ck_assert_int_eq(rig_store(&rig, 0, ONE - 4096), SCOUT__L2_OK);
	ck_assert_int_eq(rig_store(&rig, 1, 32 * KIB), SCOUT__L2_FULL);
	ck_assert(rig_exists(&rig, 0, false));
	ck_assert_int_eq(rig_store(&rig, 2, 28 * KIB), SCOUT__L2_OK);
	ck_assert_uint_eq(rig_gauges(&rig).bytes, 32 * KIB);
	rig_check_folder(&rig, 1);
}
END_TEST

START_TEST(the_order_of_use_survives_a_restart)
{
	rig_open(&rig, "?threads=1");
	for (uint32_t i = 0; i < 6; i++) {
		struct scout__l2_key key = rig_key(i);
		/* As if they had been written an hour apart, 5 first, and 4 been read last of all. */
		struct timespec times[2] = {{.tv_sec = 1000000 + 3600 * (10 - (int)i)},
					    {.tv_sec = 1000000 + 3600 * (10 - (int)i)}};
		char *path = rig_path(&rig, &key);

		if (i == 4)
			times[0].tv_sec = 1500000;
		ck_assert_int_eq(rig_store(&rig, i, ONE - 4096), SCOUT__L2_OK);
		ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
		free(path);
	}
	adapter_down(&rig.of);
	rig_open(&rig, "?max_bytes=40Ki&threads=1"); /* one too many */
	ck_assert_uint_eq(objects_there(0, 6), 0x1f);
	ck_assert_uint_eq(rig_gauges(&rig).recovered, 6);
	ck_assert_int_eq(rig_store(&rig, 6, ONE - 4096), SCOUT__L2_OK);
	ck_assert_uint_eq(objects_there(0, 7), 0x57);
	ck_assert_int_eq(rig_store(&rig, 7, 2 * ONE - 4096), SCOUT__L2_OK);
	ck_assert_uint_eq(objects_there(0, 8), 0xd1);
	rig_check_folder(&rig, 4);
}
END_TEST

START_TEST(a_load_writes_its_time_down)
{
	struct scout__l2_key key = rig_key(0);
	struct timespec now, old[2] = {{0}, {0}};
	struct stat st;
	char *path = rig_path(&rig, &key);

	rig_open(&rig, "");
	ck_assert_int_eq(rig_store(&rig, 0, ONE), SCOUT__L2_OK);
	adapter_down(&rig.of);
	/* Read two hours ago, after it was written: the kernel (relatime) would leave that as it is. */
	ck_assert_int_eq(clock_gettime(CLOCK_REALTIME, &now), 0);
	old[0].tv_sec = now.tv_sec - 7200;
	old[1].tv_sec = now.tv_sec - 10000;
	ck_assert_int_eq(utimensat(AT_FDCWD, path, old, 0), 0);
	rig_open(&rig, "");
	ck_assert_int_eq(rig_load(&rig, 0, ONE), SCOUT__L2_OK);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_gt(st.st_atim.tv_sec, now.tv_sec - 3600);
	ck_assert_int_eq(st.st_mtim.tv_sec, old[1].tv_sec);
	free(path);
}
END_TEST

/* ---- time ---- */

/* However long it waited: what has no time left is for those who wait for it to say. */
START_TEST(an_operation_moves_with_each_piece_and_has_no_deadline_here)
{
	const uint64_t bytes = UINT64_C(4) * 512 * 1024;
	struct scout__l2_key key = rig_key(1);
	uint8_t *data = calloc(1, bytes);
	struct scout__l2_op ops[] = {
		{.what = SCOUT__L2_STORE, .key = &key, .data = data, .bytes = bytes, .timeout_us = 1},
		{.what = SCOUT__L2_LOAD, .key = &key, .data = data, .bytes = bytes, .timeout_us = 1},
	};

	rig_open(&rig, "");
	for (unsigned i = 0; i < 2; i++) {
		uint64_t before_us = scout__now_us();

		ck_assert(!scout__l2_has_begun(&ops[i]));
		ck_assert_int_eq(adapter_run(&rig.of, &ops[i]), SCOUT__L2_OK);
		ck_assert(scout__l2_has_begun(&ops[i]));
		ck_assert_uint_ge(atomic_load(&ops[i].moved_us), before_us);
		ck_assert_uint_le(atomic_load(&ops[i].moved_us), scout__now_us());
	}
	free(data);
}
END_TEST

START_TEST(an_adapter_of_files_wants_no_more_than_keeps_its_threads_busy)
{
	rig_open(&rig, "?threads=4");
	ck_assert_uint_eq(scout__l2_files.at_once(rig.of.adapter, SCOUT__L2_READS), 8);
	ck_assert_uint_eq(scout__l2_files.at_once(rig.of.adapter, SCOUT__L2_WRITES), 3);
	adapter_down(&rig.of);
	rig_open(&rig, "?threads=1");
	ck_assert_uint_eq(scout__l2_files.at_once(rig.of.adapter, SCOUT__L2_READS), 2);
	ck_assert_uint_eq(scout__l2_files.at_once(rig.of.adapter, SCOUT__L2_WRITES), 1);
}
END_TEST

/* ---- records ---- */

#define RECORD_BYTES 96u

static int
record(uint8_t what, struct scout__l2_digest *name, uint8_t *data, uint8_t *found)
{
	struct scout__l2_op op = {
		.what = what, .n = 1, .digests = name, .found = found, .data = data, .bytes = RECORD_BYTES};

	return adapter_run(&rig.of, &op);
}

/* There after a restart, and never evicted. @_i: other servers write here, too. */
START_LOOP_TEST(a_record_outlives_everything, 0, 2)
{
	const char *query = _i ? "?shared=1" : "?max_bytes=64Ki";
	struct scout__l2_digest name = {.lo = 7, .hi = 9}, other = {.lo = 7, .hi = 8};
	uint8_t written[RECORD_BYTES], got[RECORD_BYTES];
	uint8_t found = 9;

	memset(written, 5, sizeof(written));
	rig_open(&rig, query);
	ck_assert_int_eq(record(SCOUT__L2_RECORD_WRITE, &name, written, &found), SCOUT__L2_OK);
	/* Far more than max_bytes. */
	for (uint32_t i = 0; i < 40; i++)
		ck_assert_int_eq(rig_store(&rig, i, 8192), SCOUT__L2_OK);
	adapter_down(&rig.of);
	rig_open(&rig, query);
	ck_assert_int_eq(record(SCOUT__L2_RECORD_READ, &name, got, &found), SCOUT__L2_OK);
	ck_assert_uint_eq(found, 1);
	ck_assert_mem_eq(got, written, sizeof(got));
	ck_assert_int_eq(record(SCOUT__L2_RECORD_READ, &other, got, &found), SCOUT__L2_OK);
	ck_assert_uint_eq(found, 0);
	ck_assert(0 == adapter_logged(&rig.of, "not of kvscout's"));
}
END_TEST
