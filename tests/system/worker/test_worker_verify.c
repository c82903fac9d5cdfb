/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include <time.h>

#include "assert_rc.h"
#include "check_main.h"
#include "host_gate.h"
#include "worker_internal.h"

/*
 * Verifications: what the pool has against pages that hold what the engine computed. The pages are bf16 numbers: between 1 and 2 if a
 * test fills them.
 */

#define CHUNKS 4u
#define BLOCKS (CHUNKS * 4u)

static struct rig rig;
static int64_t *ids;

static void
setup(void)
{
	static const uint64_t bytes[3] = {512, 2048, 1024}, padding[3] = {64, 0, 0};
	struct scout_table table;
	char err[256] = "";
	int rc;

	rig_init(&rig);
	rig_pages_init(&rig.pages[0], 3, bytes, padding, 128);
	rig_start_server(&rig);
	rig_client_start(&rig);
	rig.workers[0] = rig_worker_new(&rig, 0);
	rig_table(&rig, &rig.pages[0], &table);
	table.dtype = SCOUT_DTYPE_BF16;
	rc = scout_worker_register(rig.workers[0], &table, 1, wait_limit_ms(), err, sizeof(err));
	ck_assert_msg(rc == 0, "register: %s", err);
	ids = rig_ids(1, 1, BLOCKS);
}

static void
teardown(void)
{
	host_gate_open();
	free(ids);
	rig_stop(&rig);
	scout__copy_host_faults(NULL);
}

/* Add @bits to each number of the pages' blocks. */
static void
change_pages(unsigned bits)
{
	for (uint32_t p = 0; p < 3; p++)
		for (uint64_t b = 0; b < BLOCKS; b++)
			for (uint64_t i = 0; i < rig.pages[0].planes[p].block_bytes; i += 2) {
				uint8_t *number = rig_page(&rig.pages[0], p, ids[b]) + i;

				number[0] ^= (uint8_t)bits;
				number[1] = 0x3f;
			}
}

/* Fill the pages of CHUNKS chunks with numbers, store @n chunks and look all up. */
static struct scout_hit
store_numbers(uint32_t prompt, size_t n)
{
	uint8_t *hashes = rig_hashes(prompt, n);
	struct scout_blocks blocks = {.ids = ids, .n = BLOCKS};
	struct scout_store store = {.hashes = hashes, .hash_len = RIG_HASH, .n = n, .blocks = &blocks, .n_groups = 1};
	uint64_t job;
	char id[32];

	for (uint64_t b = 0; b < BLOCKS; b++)
		rig_fill(&rig.pages[0], ids[b], prompt, 0, b);
	change_pages(0);
	assert_ok(scout_worker_store(rig.workers[0], &store, &job));
	ck_assert_uint_eq(rig_wait(rig.workers[0], job).chunks, n);
	free(hashes);
	return rig_lookup(&rig, prompt, CHUNKS, id);
}

static uint64_t
verify(uint64_t ticket, uint64_t from_block, uint64_t to_block)
{
	struct scout_blocks blocks = {.ids = ids, .n = BLOCKS};
	struct scout_retrieve v = {.ticket = ticket,
				   .from_token = from_block * 16,
				   .to_token = to_block * 16,
				   .blocks = &blocks,
				   .n_groups = 1};
	uint64_t job = 0;

	assert_ok(scout_worker_verify(rig.workers[0], &v, &job));
	return job;
}

/* The slot in which chunk @chunk of @hit was found, by the worker's own mapping: slots are taken in order. */
static uint8_t *
slot_of(uint32_t chunk)
{
	const struct scout__mapping *mapping = rig.workers[0]->mappings.list[0];

	for (uint32_t i = 0; i < mapping->slots; i++) {
		uint8_t *slot = mapping->base + mapping->data_offset + i * mapping->stride;

		if (memcmp(slot, rig_page(&rig.pages[0], 0, ids[(size_t)chunk * 4]), 512) == 0)
			return slot;
	}
	ck_abort_msg("no slot has chunk %u", (unsigned)chunk);
}

CHECKED_FIXTURE(setup, teardown);
CASE_TIMEOUT(wait_limit_ms() / 1000.0);

START_TEST(right_kv_has_no_mismatch)
{
	struct scout_hit hit = store_numbers(1, CHUNKS);
	struct scout_worker_counters stats;
	uint64_t now_s = (uint64_t)time(NULL);
	struct scout_done done;

	done = rig_wait(rig.workers[0], verify(hit.ticket, 4, BLOCKS));
	assert_ok(done.status);
	ck_assert_int_eq(done.kind, SCOUT_JOB_VERIFY);
	ck_assert_uint_eq(done.chunks, CHUNKS - 1);
	ck_assert_uint_eq(done.n_verified, CHUNKS - 1);
	ck_assert_uint_eq(done.mismatched + done.n_missing, 0);
	for (uint32_t i = 0; i < done.n_verified; i++) {
		const struct scout_verified *v = &done.verified[i];

		ck_assert_uint_eq(v->chunk, i + 1);
		ck_assert(v->norm_error == 0 && v->share == 0 && !v->differs);
		ck_assert_uint_ne(v->stored_by, 0);
		ck_assert_uint_le(v->stored_s, now_s + 1);
		ck_assert_uint_ge(v->stored_s + 60, now_s);
	}
	assert_ok(scout_worker_stats(rig.workers[0], &stats));
	ck_assert_uint_eq(stats.verified_chunks, CHUNKS - 1);
	ck_assert_uint_eq(stats.mismatched_chunks + stats.mismatches, 0);
	ck_assert_uint_eq(stats.verifies, 1);
	ck_assert_uint_eq(stats.verifies_ok, 1);
	ck_assert_uint_eq(stats.retrieves, 0);
}
END_TEST

START_TEST(noise_is_no_mismatch_and_a_part_of_a_chunk_is_compared)
{
	struct scout_hit hit = store_numbers(1, CHUNKS);
	struct scout_done done;

	change_pages(1); /* the last bit of each number */
	done = rig_wait(rig.workers[0], verify(hit.ticket, 1, BLOCKS - 1));
	assert_ok(done.status);
	ck_assert_uint_eq(done.chunks, CHUNKS);
	ck_assert_uint_eq(done.mismatched, 0);
	ck_assert_float_gt(done.verified[0].norm_error, 0.0F);
	/* Not looked at: these pages are not of the job. */
	memset(rig_page(&rig.pages[0], 1, ids[0]), 0, 2048);
	ck_assert_uint_eq(rig_wait(rig.workers[0], verify(hit.ticket, 1, BLOCKS)).mismatched, 0);
	ck_assert_uint_eq(rig_wait(rig.workers[0], verify(hit.ticket, 0, BLOCKS)).mismatched, 1);
}
END_TEST

START_TEST(a_bit_that_flipped_in_the_pool_is_found)
{
	struct scout_hit hit = store_numbers(1, CHUNKS);
	struct scout_worker_counters stats;
	struct scout_done done;

	slot_of(2)[4 * 512 + 2 * 2048 + 101] ^= 0x40; /* plane 1, block 2 */
	done = rig_wait(rig.workers[0], verify(hit.ticket, 0, BLOCKS));
	assert_ok(done.status);
	ck_assert_uint_eq(done.chunks, CHUNKS);
	ck_assert_uint_eq(done.mismatched, 1);
	for (uint32_t i = 0; i < done.n_verified; i++)
		ck_assert_uint_eq(done.verified[i].differs, done.verified[i].chunk == 2);
	ck_assert_uint_eq(done.verified[2].plane, 1);
	ck_assert_float_gt(done.verified[2].norm_error, 1.0F);
	assert_ok(scout_worker_stats(rig.workers[0], &stats));
	ck_assert_uint_eq(stats.mismatched_chunks, 1);
}
END_TEST

START_TEST(swapped_slots_are_found)
{
	struct scout_hit hit = store_numbers(1, CHUNKS);
	uint8_t *a = slot_of(1), *b = slot_of(3), *copy = malloc(4 * 3584);
	struct scout_done done;

	memcpy(copy, a, 4 * 3584);
	memcpy(a, b, 4 * 3584);
	memcpy(b, copy, 4 * 3584);
	done = rig_wait(rig.workers[0], verify(hit.ticket, 0, BLOCKS));
	ck_assert_uint_eq(done.mismatched, 2);
	ck_assert(done.verified[1].differs && done.verified[3].differs);
	free(copy);
}
END_TEST

START_TEST(chunks_that_are_not_there_are_missing)
{
	struct scout_hit hit = store_numbers(1, 2);
	struct scout_done done = rig_wait(rig.workers[0], verify(hit.ticket, 0, BLOCKS));

	ck_assert_int_eq(done.status, SCOUT_ERR_MISSING);
	ck_assert_uint_eq(done.n_missing, BLOCKS / 2);
	ck_assert_uint_eq(done.missing[0], BLOCKS / 2);
	ck_assert_uint_eq(done.n_verified, 2);
	ck_assert_uint_eq(done.mismatched, 0);
}
END_TEST

/* A comparison of a slot that is another chunk's by then says nothing. */
START_TEST(a_slot_that_changed_under_the_comparison_is_missing)
{
	struct scout_hit hit = store_numbers(1, CHUNKS);
	struct scout__mapping *mapping = rig.workers[0]->mappings.list[0];
	struct scout_worker_counters stats;
	struct scout_done done;
	uint64_t job;

	host_gate_shut();
	job = verify(hit.ticket, 0, 8);
	rig_wait_enqueued(rig.workers[0], job);
	memset(slot_of(0), 0, 4 * 3584);
	for (uint32_t i = 0; i < mapping->slots; i++)
		atomic_fetch_add(&((_Atomic uint64_t *)(void *)mapping->base)[i], 1);
	host_gate_open();
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_MISSING);
	ck_assert_uint_eq(done.n_missing, 8);
	ck_assert_uint_eq(done.mismatched + done.n_verified, 0);
	assert_ok(scout_worker_stats(rig.workers[0], &stats));
	ck_assert_uint_eq(stats.mismatches, 2);
	for (uint32_t i = 0; i < mapping->slots; i++)
		atomic_fetch_sub(&((_Atomic uint64_t *)(void *)mapping->base)[i], 1);
}
END_TEST

/* The engine copies exactly what the two retrieves need, though the verification had its grants before the second one. */
START_TEST(a_retrieve_goes_first)
{
	struct scout_hit hit = store_numbers(1, CHUNKS), again = rig_lookup(&rig, 1, CHUNKS, (char[32]){0});
	int64_t *others = rig_ids(60, 1, BLOCKS);
	uint64_t first, second, job;
	struct scout_done done;

	host_gate_shut();
	first = rig_retrieve(&rig, 0, hit.ticket, 0, others, BLOCKS, 0);
	rig_wait_enqueued(rig.workers[0], first);
	job = verify(again.ticket, 0, BLOCKS);
	second = rig_retrieve(&rig, 0, hit.ticket, 0, others, BLOCKS, 0);
	rig_wait_enqueued(rig.workers[0], second);
	host_gate_pass(2 * CHUNKS);
	assert_ok(rig_wait(rig.workers[0], first).status);
	assert_ok(rig_wait(rig.workers[0], second).status);
	host_gate_open();
	done = rig_wait(rig.workers[0], job);
	assert_ok(done.status);
	ck_assert_uint_eq(done.chunks, CHUNKS);
	free(others);
}
END_TEST

/* Its first chunk is copied, and a retrieve that never ends is next. */
START_TEST(a_verification_that_gives_way_for_too_long_ends)
{
	struct scout_hit hit = store_numbers(1, CHUNKS);
	struct scout_blocks blocks = {.ids = ids, .n = BLOCKS};
	struct scout_retrieve v = {
		.ticket = hit.ticket, .to_token = BLOCKS * 16, .blocks = &blocks, .n_groups = 1, .timeout_ms = 2000};
	int64_t *others = rig_ids(60, 1, BLOCKS);
	struct scout_done done;
	uint64_t job, load;

	host_gate_shut();
	assert_ok(scout_worker_verify(rig.workers[0], &v, &job));
	rig_wait_enqueued(rig.workers[0], job);
	load = rig_retrieve(&rig, 0, hit.ticket, 0, others, BLOCKS, 0);
	rig_wait_enqueued(rig.workers[0], load);
	host_gate_pass(1);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_TIMEOUT);
	ck_assert_uint_eq(done.n_verified, 1);
	ck_assert_uint_eq(done.n_missing, BLOCKS - 4);
	host_gate_open();
	assert_ok(rig_wait(rig.workers[0], load).status);
	free(others);
}
END_TEST

START_TEST(one_verification_works_at_a_time)
{
	struct scout_hit hit = store_numbers(1, CHUNKS);
	uint64_t jobs[3];

	for (int i = 0; i < 3; i++)
		jobs[i] = verify(hit.ticket, 0, BLOCKS);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(rig_wait(rig.workers[0], jobs[i]).chunks, CHUNKS);
}
END_TEST

/* The engine's pages are the caller's again when a fence returns, at whatever point of a verification. */
START_LOOP_TEST(fence_and_cancel_end_a_verification, 0, CHUNKS + 1)
{
	struct scout_hit hit = store_numbers(1, CHUNKS);
	struct scout_done done;
	uint64_t job, waits;

	host_gate_shut();
	job = verify(hit.ticket, 0, BLOCKS);
	rig_wait_enqueued(rig.workers[0], job);
	waits = verify(hit.ticket, 0, BLOCKS);
	host_gate_pass((int)_i);
	host_gate_arm();
	if (_i % 2)
		assert_ok(scout_worker_cancel(rig.workers[0], job));
	assert_ok(scout_worker_fence(rig.workers[0], 0, ids, BLOCKS, NULL));
	for (uint64_t b = 0; b < BLOCKS; b++)
		memset(rig_page(&rig.pages[0], 1, ids[b]), 0, 2048);
	host_gate_open();
	for (int k = 0; k < 2; k++) {
		done = rig_wait(rig.workers[0], 0);
		ck_assert(done.job == job || done.job == waits);
		ck_assert_msg(done.status == SCOUT_ERR_CANCELED || (_i == CHUNKS && done.status == 0), "%s",
			      scout_err_name(done.status));
		ck_assert_uint_eq(done.mismatched,
				  0); /* what was compared was compared with what the pages held then */
	}
	/* The holds were given back, and the next one works. */
	for (uint32_t p = 0; p < 3; p++)
		for (uint64_t b = 0; b < BLOCKS; b++)
			rig_fill(&rig.pages[0], ids[b], 1, 0, b);
	change_pages(0);
	ck_assert_uint_eq(rig_wait(rig.workers[0], verify(hit.ticket, 0, BLOCKS)).mismatched, 0);
}
END_TEST

START_LOOP_TEST(unregister_and_free_end_a_verification, 0, CHUNKS)
{
	struct scout_hit hit = store_numbers(1, CHUNKS);
	struct scout_done done;
	uint64_t job;

	host_gate_shut();
	job = verify(hit.ticket, 0, BLOCKS);
	rig_wait_enqueued(rig.workers[0], job);
	host_gate_pass((int)_i);
	host_gate_arm();
	if (_i % 2) {
		assert_ok(scout_worker_unregister(rig.workers[0]));
		done = rig_wait(rig.workers[0], job);
		ck_assert_int_eq(done.status, SCOUT_ERR_CANCELED);
	}
	scout_worker_free(rig.workers[0]);
	rig.workers[0] = NULL;
}
END_TEST

START_TEST(a_server_that_is_killed_ends_a_verification)
{
	struct scout_hit hit = store_numbers(1, CHUNKS);
	struct scout_done done;
	char id[32];
	uint64_t job;

	host_gate_shut();
	job = verify(hit.ticket, 0, BLOCKS);
	rig_wait_enqueued(rig.workers[0], job);
	rig_server_end(&rig, SIGKILL);
	wait_until(!atomic_load(&rig.workers[0]->is_up))
		;
	host_gate_open();
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
	ck_assert_uint_eq(done.n_verified, 1); /* its memory is there as long as it is mapped */
	ck_assert_uint_eq(done.mismatched, 0);
	ck_assert_uint_eq(done.n_missing, BLOCKS - 4);
	rig_server_start(&rig);
	assert_ok(rig_store_until(&rig, 0, 2, CHUNKS, 1, 0).status);
	wait_until((hit = rig_lookup(&rig, 2, CHUNKS, id)).tokens > 0)
		;
	done = rig_wait(rig.workers[0], verify(hit.ticket, 0, BLOCKS));
	assert_ok(done.status);
	ck_assert_uint_eq(done.mismatched, 0);
}
END_TEST

START_TEST(requests_that_make_no_sense_are_refused)
{
	struct scout_blocks blocks = {.ids = ids, .n = BLOCKS};
	struct scout_retrieve v = {.ticket = 1, .to_token = 64, .blocks = &blocks, .n_groups = 1};
	uint64_t job = 0;

	ck_assert_int_eq(scout_worker_verify(rig.workers[0], NULL, &job), SCOUT_ERR_INVALID);
	v.ticket = 0;
	ck_assert_int_eq(scout_worker_verify(rig.workers[0], &v, &job), SCOUT_ERR_INVALID);
	v.ticket = 1;
	v.after = &v;
	ck_assert_int_eq(scout_worker_verify(rig.workers[0], &v, &job), SCOUT_ERR_UNSUPPORTED);
	v.after = NULL;
	v.n_layers = 1;
	v.layer_planes = &(uint32_t){3};
	ck_assert_int_eq(scout_worker_verify(rig.workers[0], &v, &job), SCOUT_ERR_INVALID);
	v.n_layers = 0;
	v.layer_planes = NULL;
	v.to_token = 16 * BLOCKS + 1;
	ck_assert_int_eq(scout_worker_verify(rig.workers[0], &v, &job), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_verify_sized(rig.workers[0], &v, 8, sizeof(blocks), &job), SCOUT_ERR_UNSUPPORTED);
	ck_assert_uint_eq(job, 0);
}
END_TEST
