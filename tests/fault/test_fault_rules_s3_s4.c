/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

/*
 * S3: a reader never sees bytes that were not completely stored, and the first of two stores wins. S4: never
 * wrong bytes; a slot that changes under a copy fails the job and is counted as a bug.
 */

static struct fault f;

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_TEST(S3_of_two_stores_of_one_shard_the_first_wins_and_the_second_is_told)
{
	struct fault_actor *sched, *first, *second;
	struct fault_done done;
	struct fault_hit hit;

	fault_up_with(&f, &sched, &first, &second);
	(void)fault_ask(first, "gate shut");
	fault_enqueued(first, 0, fault_store_begin(first, 0, 1, 1, 4, 0));
	/* The same keys from pages with other bytes: they must never be seen. */
	(void)fault_store_begin(second, 0, 1, 99, 4, 0);
	done = fault_wait_done(second, 0);
	assert_ok(done.status);
	ck_assert_uint_eq(done.present, 4);
	ck_assert_uint_eq(done.chunks, 0);
	(void)fault_ask(first, "gate open");
	done = fault_wait_done(first, 0);
	assert_ok(done.status);
	ck_assert_uint_eq(done.chunks, 4);
	/* And once more when it is readable. */
	(void)fault_store_begin(second, 0, 1, 99, 4, 0);
	ck_assert_uint_eq(fault_wait_done(second, 0).present, 4);
	hit = fault_lookup(sched, "a", 1, 4);
	ck_assert_uint_eq(hit.chunks, 4);
	done = fault_retrieve(second, 0, hit.ticket, 0, 16);
	fault_check_all(second, 0, &done, 1, 0, 16);
	(void)fault_ask(sched, "finish a");
	fault_down(&f);
}
END_TEST

START_TEST(S3_what_is_being_stored_is_a_miss_until_it_is_committed)
{
	struct fault_actor *sched, *writer, *reader;
	struct fault_done done;
	struct fault_hit hit;

	fault_up_with(&f, &sched, &writer, &reader);
	(void)fault_ask(writer, "gate shut");
	fault_enqueued(writer, 0, fault_store_begin(writer, 0, 1, 1, 4, 0));
	hit = fault_lookup(sched, "early", 1, 4);
	ck_assert_uint_eq(hit.tokens, 0);
	assert_reason(hit.reason, SCOUT_REASON_MISS);
	/* Who asks for it all the same gets nothing, now and when it is there. */
	done = fault_retrieve(reader, 0, hit.ticket, 0, 16);
	assert_rc(done.status, SCOUT_ERR_MISSING);
	ck_assert_uint_eq(done.n_missing, 16);
	fault_check_pages(reader, 0, &done, 1, 0, 16);
	(void)fault_ask(writer, "gate open");
	ck_assert_uint_eq(fault_wait_done(writer, 0).chunks, 4);
	hit = fault_lookup(sched, "late", 1, 4);
	ck_assert_uint_eq(hit.chunks, 4);
	done = fault_retrieve(reader, 0, hit.ticket, 0, 16);
	fault_check_all(reader, 0, &done, 1, 0, 16);
	(void)fault_ask(sched, "finish early");
	(void)fault_ask(sched, "finish late");
	fault_down(&f);
}
END_TEST

START_TEST(S3_a_lookup_waits_for_a_commit_within_its_key_polling_time)
{
	struct fault_actor *writer;
	struct wire_peer bare;
	uint64_t patient;

	fault_up(&f);
	writer = fault_worker(&f);
	fault_bare_client(&f, &bare);
	(void)fault_ask(writer, "gate shut");
	fault_enqueued(writer, 0, fault_store_begin(writer, 0, 1, 1, 4, 0));
	patient = fault_bare_lookup_begin(&bare, 1, 1, 4, 600000);
	/* Its time ends before the commit: what there is. */
	ck_assert_uint_eq(fault_bare_lookup_end(&bare, fault_bare_lookup_begin(&bare, 2, 1, 4, 50)), 0);
	ck_assert(!wire_has(&bare, patient));
	(void)fault_ask(writer, "gate open");
	ck_assert_uint_eq(fault_bare_lookup_end(&bare, patient), 4);
	ck_assert_uint_eq(fault_wait_done(writer, 0).chunks, 4);
	ck_assert_int_eq(wire_simple(&bare, SCOUT_OP_FINISH, 1), SCOUT_WIRE_OK);
	ck_assert_int_eq(wire_simple(&bare, SCOUT_OP_FINISH, 2), SCOUT_WIRE_OK);
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_down(&f);
}
END_TEST

START_TEST(S3_half_a_store_is_a_hit_only_as_far_as_it_was_committed)
{
	struct fault_actor *sched, *worker;
	struct fault_done done;
	struct fault_hit hit;

	fault_up_with(&f, &sched, &worker, NULL);
	(void)fault_ask(worker, "fail 3");
	done = fault_store(worker, 0, 1, 5);
	assert_rc(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.chunks, 2);
	fault_wait(&f, "holds", 0);
	hit = fault_lookup(sched, "a", 1, 5);
	ck_assert_uint_eq(hit.chunks, 2);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 20);
	assert_rc(done.status, SCOUT_ERR_MISSING);
	ck_assert_uint_eq(done.n_missing, 12);
	fault_check_pages(worker, 0, &done, 1, 0, 20);
	(void)fault_ask(sched, "finish a");
	/* The rest was given up: it can be stored now. */
	done = fault_store(worker, 0, 1, 5);
	assert_ok(done.status);
	ck_assert_uint_eq(done.present, 2);
	ck_assert_uint_eq(done.chunks, 3);
	hit = fault_lookup(sched, "b", 1, 5);
	ck_assert_uint_eq(hit.chunks, 5);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 20);
	fault_check_all(worker, 0, &done, 1, 0, 20);
	(void)fault_ask(sched, "finish b");
	fault_down(&f);
}
END_TEST

START_TEST(S3_a_chunk_counts_when_every_rank_has_committed_it)
{
	struct fault_actor *sched, *rank[2];
	struct fault_done done;
	struct fault_hit hit;

	f.kv_ranks = 2;
	fault_up(&f);
	sched = fault_scheduler(&f);
	for (uint32_t r = 0; r < 2; r++) {
		rank[r] = fault_actor(&f);
		(void)fault_ask(rank[r], "worker %u", (unsigned)r);
	}
	done = fault_store(rank[0], 0, 1, 4);
	assert_ok(done.status);
	ck_assert_uint_eq(done.chunks, 0);
	ck_assert_uint_eq(fault_lookup(sched, "a", 1, 4).chunks, 0);
	(void)fault_ask(rank[1], "fail 4");
	done = fault_store(rank[1], 1, 1, 4);
	assert_rc(done.status, SCOUT_ERR_DEVICE);
	ck_assert_uint_eq(done.chunks, 3);
	hit = fault_lookup(sched, "b", 1, 4);
	ck_assert_uint_eq(hit.chunks, 3);
	for (uint32_t r = 0; r < 2; r++) {
		done = fault_retrieve(rank[r], r, hit.ticket, 0, 12);
		fault_check_all(rank[r], r, &done, 1, 0, 12);
	}
	(void)fault_ask(sched, "finish a");
	(void)fault_ask(sched, "finish b");
	fault_down(&f);
}
END_TEST

/* The generation word of a grant's slot, in the pool itself. */
static uint64_t *
generation_word(struct wire_peer *p, const struct scout__grant *grant)
{
	uint8_t *slot = wire_slot(p, grant);

	for (uint32_t i = 0; i < p->n_segments; i++) {
		const struct wire_segment *segment = &p->segments[i];

		if (segment->id == grant->segment)
			return (uint64_t *)(void *)(slot - grant->offset) +
			       (grant->offset - segment->data_offset) / segment->stride;
	}
	ck_abort_msg("no segment %u", (unsigned)grant->segment);
	return NULL;
}

START_TEST(S4_a_slot_that_changes_under_a_copy_fails_the_job_and_is_counted_as_a_bug)
{
	struct fault_actor *sched, *worker;
	struct fault_done done;
	struct wire_peer bare;
	struct wire_grants g;
	struct fault_hit hit;
	uint64_t *word;

	fault_up_with(&f, &sched, &worker, NULL);
	fault_bare_worker(&f, &bare);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	hit = fault_lookup(sched, "a", 1, 4);
	ck_assert_int_eq(wire_retrieve(&bare, hit.ticket, 0, 4, &g), SCOUT_WIRE_OK);
	ck_assert_uint_eq(g.n_granted, 4);
	word = generation_word(&bare, &g.grants[2]);
	ck_assert_uint_eq(__atomic_load_n(word, __ATOMIC_ACQUIRE), g.grants[2].generation);
	/* Under the copy: chunk 2 is not to be believed, whatever its bytes are. */
	(void)fault_ask(worker, "gate shut");
	fault_enqueued(worker, 0, fault_retrieve_begin(worker, 0, hit.ticket, 0, 16));
	(void)__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
	(void)fault_ask(worker, "gate open");
	done = fault_wait_done(worker, 0);
	assert_rc(done.status, SCOUT_ERR_CORRUPT);
	ck_assert_uint_eq(done.chunks, 3);
	ck_assert_uint_eq(done.n_missing, 4);
	ck_assert_str_eq(done.missing, "........MMMM");
	fault_wait(&f, "bugs.mismatches", 1);
	/* It was the last time: nobody hits these chunks any more, nor gets them for an answer that was made before. */
	ck_assert_uint_eq(fault_lookup(sched, "b", 1, 4).tokens, 0);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 16);
	ck_assert_str_eq(done.missing, "MMMMMMMMMMMMMMMM");
	fault_check_pages(worker, 0, &done, 1, 0, 16);
	ck_assert_uint_eq(fault_status(&f, "bugs.mismatches"), 1);
	/* The bare worker's hold keeps the slots, in their own state; without it they are free for the next. */
	(void)__atomic_sub_fetch(word, 1, __ATOMIC_SEQ_CST);
	ck_assert_int_eq(wire_retrieve_done(&bare, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	(void)fault_ask(sched, "finish a");
	(void)fault_ask(sched, "finish b");
	/* Before the copy: it is not even started for that chunk. */
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	hit = fault_lookup(sched, "c", 1, 4);
	ck_assert_uint_eq(hit.chunks, 4);
	ck_assert_int_eq(wire_retrieve(&bare, hit.ticket, 0, 4, &g), SCOUT_WIRE_OK);
	word = generation_word(&bare, &g.grants[2]);
	(void)__atomic_add_fetch(word, 1, __ATOMIC_SEQ_CST);
	done = fault_retrieve(worker, 0, hit.ticket, 0, 16);
	assert_rc(done.status, SCOUT_ERR_CORRUPT);
	ck_assert_str_eq(done.missing, "........MMMM");
	fault_check_pages(worker, 0, &done, 1, 0, 16);
	fault_wait(&f, "bugs.mismatches", 2);
	(void)__atomic_sub_fetch(word, 1, __ATOMIC_SEQ_CST);
	ck_assert_int_eq(wire_retrieve_done(&bare, g.id, 0), SCOUT_WIRE_OK);
	free(g.grants);
	(void)fault_ask(sched, "finish c");
	wire_lease_bye(&bare);
	wire_close(&bare);
	fault_down(&f);
}
END_TEST

START_TEST(S4_under_constant_eviction_every_byte_that_is_read_is_right)
{
	enum {
		ROUNDS = 150,
		PROMPTS = 6
	};
	struct fault_actor *sched, *reader, *writer;
	uint32_t n_gone = 0;

	f.pool_chunks = 12;
	fault_up_with(&f, &sched, &reader, &writer);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t prompt = 1 + i % PROMPTS;
		struct fault_done done;
		struct fault_hit hit;

		assert_ok(fault_store(reader, 0, prompt, 4).status);
		hit = fault_lookup(sched, "a", prompt, 4);
		ck_assert_uint_eq(hit.chunks, 4);
		/* Every other time the promise is given back, so that the chunks may go at any moment. */
		if (i % 2 == 0)
			(void)fault_ask(sched, "admit a 0 0");
		/* Other keys come in while the retrieve is under way. */
		(void)fault_store_begin(writer, 0, 100 + i % 5, 100 + i % 5, 10, 0);
		done = fault_retrieve(reader, 0, hit.ticket, 0, 16);
		if (i % 2)
			assert_ok(done.status);
		else
			ck_assert(done.status == 0 || done.status == SCOUT_ERR_MISSING);
		fault_check_pages(reader, 0, &done, prompt, 0, 16);
		n_gone += done.n_missing;
		assert_ok(fault_wait_done(writer, 0).status);
		(void)fault_ask(sched, "finish a");
	}
	/* It was about something. */
	ck_assert_uint_gt(n_gone, 0);
	ck_assert_uint_gt(fault_status(&f, "l1.evictions"), ROUNDS);
	ck_assert_uint_eq(fault_status(&f, "bugs.mismatches"), 0);
	fault_down(&f);
}
END_TEST
