/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/mman.h>

#include "worker_rig.h"

#include "check_main.h"
#include "checked_fork.h"

/* What a worker promises while everything around it is well: bytes, ranges, positions, counts, codes. */

static struct rig rig;

static void
setup(void)
{
	rig_init(&rig);
}

static void
teardown(void)
{
	rig_stop(&rig);
}

/* ---- bytes ---- */

static const struct shape {
	uint32_t n_planes, chunk_tokens, block_tokens, kv_ranks;
	uint64_t bytes[RIG_MAX_PLANES], padding[RIG_MAX_PLANES];
} shapes[] = {
	{1, 64, 16, 1, {4096}, {0}},
	{3, 64, 16, 1, {7, 64, 129}, {1, 0, 63}},
	{5, 48, 1, 1, {1, 2, 3, 5, 8}, {0, 1, 0, 11, 0}},
	{2, 256, 256, 1, {10001, 512}, {0, 512}},
	{2, 64, 32, 3, {33, 65}, {31, 0}},
};

#define N_SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

CHECKED_FIXTURE(setup, teardown);

START_LOOP_TEST(what_was_stored_comes_back_in_other_pages, 0, N_SHAPES)
{
	const struct shape *s = &shapes[_i];
	struct scout_hit hit;
	char id[32];
	size_t n;

	rig.chunk_tokens = s->chunk_tokens;
	rig.block_tokens = s->block_tokens;
	rig.kv_ranks = s->kv_ranks;
	for (uint32_t w = 0; w < s->kv_ranks; w++)
		rig_pages_init(&rig.pages[w], s->n_planes, s->bytes, s->padding, 512);
	rig_start(&rig);
	n = 5 * rig.bpc;
	rig_store_all(&rig, 1, 5, 1);
	hit = rig_lookup(&rig, 1, 5, id);
	ck_assert_uint_eq(hit.tokens, 5 * rig.chunk_tokens);
	for (uint32_t w = 0; w < rig.n_workers; w++) {
		int64_t *ids = rig_ids(511, -1, n);
		struct scout_done done;
		uint64_t per_block = 0;

		rig_pages_wipe(&rig.pages[w]);
		done = rig_wait(rig.workers[w], rig_retrieve(&rig, w, hit.ticket, 0, ids, n, 0));
		ck_assert_int_eq(done.status, 0);
		ck_assert_int_eq(done.kind, SCOUT_JOB_RETRIEVE);
		ck_assert_uint_eq(done.ticket, hit.ticket);
		ck_assert_uint_eq(done.chunks, 5);
		ck_assert_uint_eq(done.n_missing, 0);
		for (uint32_t p = 0; p < s->n_planes; p++)
			per_block += s->bytes[p];
		ck_assert_uint_eq(done.bytes, n * per_block);
		for (size_t b = 0; b < n; b++)
			ck_assert(rig_page_is(&rig.pages[w], ids[b], 1, w, b));
		for (int64_t b = 0; b < 512 - (int64_t)n; b++)
			ck_assert(rig_page_untouched(&rig.pages[w], b));
		ck_assert(rig_gaps_untouched(&rig.pages[w]));
		free(ids);
	}
}
END_TEST

START_TEST(only_the_asked_blocks_are_written)
{
	struct scout_hit hit;
	struct scout_done done;
	int64_t ids[10];
	char id[32];

	rig_start(&rig);
	rig_store_all(&rig, 1, 5, 1);
	hit = rig_lookup(&rig, 1, 5, id);
	rig_pages_wipe(&rig.pages[0]);
	/* Blocks 3 .. 12 of 20, in the middle of chunks; the first two are skipped, two are null, one is negative. */
	for (int i = 0; i < 10; i++)
		ids[i] = 100 + 7 * i;
	ids[4] = 0;
	ids[5] = -5;
	ids[9] = 0;
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 3, ids, 10, 2));
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.bytes, 5 * (61 + 129));
	for (int64_t page = 0; page < 512; page++) {
		bool wanted = false;

		for (int i = 2; i < 9; i++)
			if (i != 4 && i != 5 && ids[i] == page) {
				wanted = true;
				ck_assert(rig_page_is(&rig.pages[0], page, 1, 0, 3 + (uint64_t)i));
			}
		if (!wanted)
			ck_assert(rig_page_untouched(&rig.pages[0], page));
	}
	ck_assert(rig_gaps_untouched(&rig.pages[0]));
}
END_TEST

/* An engine may pass the whole block table of a request, and say which tokens it means. */
START_TEST(a_job_uses_only_its_range_of_the_block_table)
{
	int64_t table[20], to[20];
	uint8_t *hashes = rig_hashes(1, 5);
	struct scout_blocks blocks = {.ids = table, .n = 20};
	struct scout_store store = {.hashes = hashes + 2 * RIG_HASH,
				    .hash_len = RIG_HASH,
				    .n = 2,
				    .first_token = 2 * 64,
				    .blocks = &blocks,
				    .n_groups = 1};
	struct scout_retrieve retrieve = {.from_token = 3 * 16, .to_token = 17 * 16, .blocks = &blocks, .n_groups = 1};
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job;
	char id[32];

	rig_start(&rig);
	for (int i = 0; i < 20; i++) {
		/* Outside of the range no id is looked at. */
		table[i] = i >= 8 && i < 16 ? 40 + i : 1 << 20;
		to[i] = i >= 3 && i < 17 ? 100 + 3 * i : 1 << 20;
	}
	for (uint64_t b = 8; b < 16; b++)
		rig_fill(&rig.pages[0], table[b], 1, 0, b);
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, 2);
	hit = rig_lookup(&rig, 1, 5, id);
	ck_assert_uint_eq(hit.chunks, 0);
	retrieve.ticket = hit.ticket;
	blocks.ids = to;
	rig_pages_wipe(&rig.pages[0]);
	ck_assert_int_eq(scout_worker_retrieve(rig.workers[0], &retrieve, &job), 0);
	done = rig_wait(rig.workers[0], job);
	/* Chunks 0, 1 and 4 are behind the hit or were never stored: their blocks are named by their index in the table. */
	ck_assert_int_eq(done.status, SCOUT_ERR_MISSING);
	for (uint32_t i = 0, n = 0; i < 20; i++) {
		bool is_missing = n < done.n_missing && done.missing[n] == i;

		n += is_missing;
		if (i >= 3 && i < 17)
			ck_assert(is_missing == !rig_page_is(&rig.pages[0], to[i], 1, 0, i));
		else
			ck_assert(!is_missing);
	}
	free(hashes);
}
END_TEST

START_TEST(a_range_without_a_block_to_write_ends_well_at_once)
{
	struct scout_done done;
	int64_t ids[4] = {0, -1, 0, 9};

	rig_start(&rig);
	/* No such session: nobody is asked. */
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, 4711, 8, ids, 3, 0));
	ck_assert_int_eq(done.status, 0);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, 4711, 8, ids, 4, 4));
	ck_assert_int_eq(done.status, 0);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, 4711, 8, ids, 0, 0));
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, 0);
}
END_TEST

/* Chunk 1 has a null block, chunk 3 a negative one: no request may get their zeros for KV. */
START_TEST(a_chunk_with_a_null_block_is_not_stored_and_counted)
{
	int64_t *ids = rig_ids(20, 1, 20), *to = rig_ids(100, 1, 20);
	uint8_t *hashes = rig_hashes(1, 5);
	struct scout_store store = {.hashes = hashes,
				    .hash_len = RIG_HASH,
				    .n = 5,
				    .blocks = &(struct scout_blocks){.ids = ids, .n = 20},
				    .n_groups = 1};
	struct scout_done done;
	struct scout_hit hit;
	uint64_t job;
	char id[32];

	rig_start(&rig);
	for (uint64_t b = 0; b < 20; b++)
		rig_fill(&rig.pages[0], ids[b], 1, 0, b);
	ids[5] = 0;
	ids[12] = -3;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, 3);
	ck_assert_uint_eq(done.null_chunks, 2);
	ck_assert_uint_eq(done.bytes, 3 * 4 * 190);
	ck_assert_uint_eq(done.no_room, 0);
	hit = rig_lookup(&rig, 1, 5, id);
	ck_assert_uint_eq(hit.chunks, 1);
	/* Presence is by chunk: what lay behind the holes is there when another request fills them. */
	ids[5] = 25;
	ids[12] = 32;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, 2);
	ck_assert_uint_eq(done.present, 3);
	ck_assert_uint_eq(done.null_chunks, 0);
	hit = rig_lookup(&rig, 1, 5, id);
	ck_assert_uint_eq(hit.chunks, 5);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, to, 20, 0));
	ck_assert_int_eq(done.status, 0);
	for (uint64_t b = 0; b < 20; b++)
		ck_assert(rig_page_is(&rig.pages[0], to[b], 1, 0, b));
	/* Nothing but holes: ends well, without a word to the server. */
	for (int b = 0; b < 20; b += 4)
		ids[b] = 0;
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	done = rig_wait(rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.null_chunks, 5);
	ck_assert_uint_eq(done.bytes + done.chunks + done.present, 0);
	free(hashes);
	free(ids);
	free(to);
}
END_TEST

/* The null chunk is reader 1's: reader 0 does not count it. */
START_TEST(a_null_chunk_is_counted_by_its_reader)
{
	int64_t ids[8] = {1, 2, 3, 4, 5, 0, 7, 8};
	uint8_t *hashes = rig_hashes(1, 2);
	struct scout_store store = {.hashes = hashes,
				    .hash_len = RIG_HASH,
				    .n = 2,
				    .blocks = &(struct scout_blocks){.ids = ids, .n = 8},
				    .n_groups = 1};
	uint64_t job;

	rig.readers = 2;
	rig_start(&rig);
	for (uint32_t w = 0; w < 2; w++) {
		struct scout_done done;

		ck_assert_int_eq(scout_worker_store(rig.workers[w], &store, &job), 0);
		done = rig_wait(rig.workers[w], job);
		ck_assert_int_eq(done.status, 0);
		ck_assert_uint_eq(done.null_chunks, w);
		ck_assert_uint_eq(done.bytes, w ? 0 : 4 * 190);
	}
	free(hashes);
}
END_TEST

START_TEST(a_long_store_is_sent_in_parts)
{
	static const uint64_t bytes[1] = {4}, padding[1] = {0};
	struct scout_done done;
	struct scout_hit hit;
	char id[32];
	int64_t *ids;

	rig.chunk_tokens = 16;
	rig_pages_init(&rig.pages[0], 1, bytes, padding, 20000);
	rig_start(&rig);
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 9000, 1));
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, 9000);
	ck_assert_uint_eq(done.bytes, 9000 * 4);
	hit = rig_lookup(&rig, 1, 9000, id);
	ck_assert_uint_eq(hit.chunks, 9000);
	rig_pages_wipe(&rig.pages[0]);
	ids = rig_ids(19999, -1, 9000);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 0, ids, 9000, 0));
	ck_assert_int_eq(done.status, 0);
	for (uint64_t b = 0; b < 9000; b++)
		ck_assert(rig_page_is(&rig.pages[0], ids[b], 1, 0, b));
	free(ids);
}
END_TEST

/* ---- what is not there ---- */

START_TEST(evicted_chunks_are_named_block_by_block)
{
	struct scout_hit hit;
	struct scout_done done;
	int64_t ids[30];
	char id[32], other[32];

	/* 12 slots: 4 blocks of 190 bytes, rounded up. */
	rig.l1_bytes = 12 * 768;
	rig_start(&rig);
	rig_store_all(&rig, 1, 8, 1);
	hit = rig_lookup(&rig, 1, 8, id);
	ck_assert_uint_eq(hit.chunks, 6); /* max_promised: half the pool */
	/* Chunks 0 and 1 stay promised, the others go. */
	ck_assert_int_eq(scout_admit(rig.client, id, 0, 2 * 64), 0);
	(void)rig_lookup(&rig, 3, 1, other); /* answered behind the admit */
	rig_store_all(&rig, 2, 10, 100);
	rig_pages_wipe(&rig.pages[0]);
	for (int i = 0; i < 20; i++)
		ids[i] = 40 + i;
	ids[11] = 0;
	/* Blocks 2 .. 21 of the prompt: chunks 0 .. 5. */
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 2, ids, 20, 1));
	ck_assert_int_eq(done.status, SCOUT_ERR_MISSING);
	ck_assert_uint_eq(done.chunks, 2);
	/* Positions 6 .. 19 belong to chunks 2 .. 5; 11 is null. */
	ck_assert_uint_eq(done.n_missing, 13);
	for (uint32_t i = 0, at = 6; i < 13; i++, at++) {
		at += at == 11;
		ck_assert_uint_eq(done.missing[i], at);
	}
	for (int i = 1; i < 6; i++)
		ck_assert(rig_page_is(&rig.pages[0], ids[i], 1, 0, 2 + (uint64_t)i));
	ck_assert(rig_page_untouched(&rig.pages[0], ids[0]));
	for (int i = 6; i < 20; i++)
		ck_assert(rig_page_untouched(&rig.pages[0], ids[i]));
}
END_TEST

START_TEST(an_unknown_ticket_misses_everything)
{
	struct scout_done done;
	int64_t ids[3] = {7, 0, 8};

	rig_start(&rig);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, 4711, 0, ids, 3, 0));
	ck_assert_int_eq(done.status, SCOUT_ERR_NO_SESSION);
	ck_assert_uint_eq(done.n_missing, 2);
	ck_assert_uint_eq(done.missing[0], 0);
	ck_assert_uint_eq(done.missing[1], 2);
}
END_TEST

START_TEST(chunks_that_were_not_looked_up_are_missing)
{
	int64_t ids[8];
	struct scout_done done;
	struct scout_hit hit;
	char id[32];

	rig_start(&rig);
	rig_store_all(&rig, 1, 4, 1);
	hit = rig_lookup(&rig, 1, 2, id);
	for (int i = 0; i < 8; i++)
		ids[i] = 100 + i;
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, hit.ticket, 8, ids, 8, 0));
	ck_assert_int_eq(done.status, SCOUT_ERR_MISSING);
	ck_assert_uint_eq(done.n_missing, 8);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_uint_eq(done.missing[i], i);
}
END_TEST

START_TEST(a_store_that_finds_no_room_keeps_its_head)
{
	struct scout_done done;
	struct scout_hit hit;
	char id[32];

	rig.l1_bytes = 4 * 768;
	rig_start(&rig);
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 9, 1));
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, 4);
	ck_assert_uint_eq(done.no_room, 5);
	hit = rig_lookup(&rig, 1, 9, id);
	ck_assert_uint_ge(hit.chunks, 2);
}
END_TEST

START_TEST(the_second_writer_skips_what_is_there)
{
	struct scout_done done;

	rig_start(&rig);
	rig_store_all(&rig, 1, 4, 1);
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 6, 100));
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.present, 4);
	ck_assert_uint_eq(done.chunks, 2);
	ck_assert_uint_eq(done.bytes, 2 * 4 * 190);
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 6, 200));
	ck_assert_uint_eq(done.present, 6);
	ck_assert_uint_eq(done.bytes, 0);
}
END_TEST

START_TEST(two_readers_share_the_storing_and_both_read_all)
{
	struct scout_done done;
	struct scout_hit hit;
	char id[32];

	rig.readers = 2;
	rig_start(&rig);
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 5, 1));
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.bytes, 3 * 4 * 190);
	ck_assert_uint_eq(done.present, 0);
	done = rig_wait(rig.workers[1], rig_store(&rig, 1, 1, 5, 1));
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.bytes, 2 * 4 * 190);
	ck_assert_uint_eq(done.present, 0);
	hit = rig_lookup(&rig, 1, 5, id);
	ck_assert_uint_eq(hit.chunks, 5);
	for (uint32_t w = 0; w < 2; w++) {
		int64_t *ids = rig_ids(200, 1, 20);

		done = rig_wait(rig.workers[w], rig_retrieve(&rig, w, hit.ticket, 0, ids, 20, 0));
		ck_assert_int_eq(done.status, 0);
		for (uint64_t b = 0; b < 20; b++)
			ck_assert(rig_page_is(&rig.pages[w], ids[b], 1, 0, b));
		free(ids);
	}
}
END_TEST

START_TEST(first_token_decides_which_reader_stores)
{
	uint8_t *hashes = rig_hashes(1, 1);
	int64_t ids[4] = {1, 2, 3, 4};
	struct scout_store store = {.hashes = hashes,
				    .hash_len = RIG_HASH,
				    .n = 1,
				    .blocks = &(struct scout_blocks){.first_token = 7 * 64, .ids = ids, .n = 4},
				    .n_groups = 1,
				    .first_token = 7 * 64};
	uint64_t job;

	rig.readers = 2;
	rig_start(&rig);
	ck_assert_int_eq(scout_worker_store(rig.workers[0], &store, &job), 0);
	ck_assert_uint_eq(rig_wait(rig.workers[0], job).bytes, 0);
	ck_assert_int_eq(scout_worker_store(rig.workers[1], &store, &job), 0);
	ck_assert_uint_eq(rig_wait(rig.workers[1], job).bytes, 4 * 190);
	free(hashes);
}
END_TEST

/* ---- codes ---- */

#undef REFUSED
#undef REFUSED
#undef REFUSED

START_TEST(the_descriptor_is_readable_exactly_while_poll_has_something)
{
	struct scout_done done[4];
	uint64_t job[3];

	rig_start(&rig);
	ck_assert(!rig_is_readable(rig.workers[0]));
	for (uint32_t i = 0; i < 3; i++)
		job[i] = rig_store(&rig, 0, 10 + i, 2, 1 + 20 * (int64_t)i);
	for (uint32_t i = 0; i < 3; i++) {
		struct pollfd pfd = {.fd = scout_worker_fd(rig.workers[0]), .events = POLLIN};

		ck_assert_int_eq(poll(&pfd, 1, wait_limit_ms()), 1);
		ck_assert_int_eq(scout_worker_poll(rig.workers[0], done, 0), 0);
		ck_assert(rig_is_readable(rig.workers[0]));
		ck_assert_int_eq(scout_worker_poll(rig.workers[0], done, 1), 1);
		ck_assert_uint_eq(done[0].job, job[i]);
	}
	ck_assert(!rig_is_readable(rig.workers[0]));
	ck_assert_int_eq(scout_worker_poll(rig.workers[0], done, 4), 0);
	ck_assert_int_eq(scout_worker_poll(rig.workers[0], NULL, 4), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_poll(NULL, done, 4), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_fd(NULL), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_worker_cancel(rig.workers[0], job[0]), SCOUT_ERR_STATE);
}
END_TEST

START_TEST(a_forked_child_is_told_so)
{
	struct scout_retrieve retrieve = {.ticket = 5};
	struct scout_done done;
	int64_t page = 3;
	uint64_t job;
	int status;
	pid_t pid;

	rig_start(&rig);
	pid = checked_fork();
	if (pid == 0) {
		bool good = scout_worker_retrieve(rig.workers[0], &retrieve, &job) == SCOUT_ERR_FORKED &&
			    scout_worker_poll(rig.workers[0], &done, 1) == SCOUT_ERR_FORKED &&
			    scout_worker_cancel(rig.workers[0], 1) == SCOUT_ERR_FORKED &&
			    scout_worker_reset(rig.workers[0], 7) == SCOUT_ERR_FORKED &&
			    scout_worker_fence(rig.workers[0], 0, &page, 1, NULL) == SCOUT_ERR_FORKED;

		scout_worker_free(rig.workers[0]);
		_exit(good ? 0 : 1);
	}
	ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	rig_store_all(&rig, 1, 2, 1);
}
END_TEST
