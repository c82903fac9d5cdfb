/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker with the page tables of three groups on the CUDA backend, which runs on the stand-in for the CUDA driver (fake_cuda.h says what that
 * shows and what not): bytes, layers with the caller's events, a fence, pages that are taken back under copies.
 */
#include "worker_groups_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "check_main.h"
#include "copy_backends.h"
#include "fake_cuda.h"
#include "worker_internal.h"

static const char *const methods[] = {"staged", "batch", "auto"};

static struct groups_world w;
static atomic_bool is_shut; /* the fake GPU executes nothing */

static bool
gate(void *user)
{
	(void)user;
	return atomic_load(&is_shut);
}

static void
announce(const struct rig_pages pages[GROUPS])
{
	for (uint32_t g = 0; g < GROUPS; g++)
		for (uint32_t p = 0; p < pages[g].n_planes; p++)
			fake_cuda_device_range(pages[g].planes[p].base, pages[g].planes[p].stride * pages[g].n_blocks);
}

static void
start(const char *backend, const char *method)
{
	const struct fake_cuda_options opt = {.n_devices = 1, .seed = 5 + (uint64_t)getpid(), .gate = gate};

	groups_init(&w);
	groups_start(&w);
	fake_cuda_start(&opt);
	announce(w.pages);
	groups_worker_start(&w, backend, method);
	ck_assert_str_eq(w.rig.workers[0]->copy->name, "cuda");
}

static void
setup(void)
{
	atomic_store(&is_shut, false);
	scout__copy_override(&scout__copy_cuda);
}

static void
teardown(void)
{
	atomic_store(&is_shut, false);
	groups_stop(&w);
	scout__copy_override(NULL);
}

/* Nothing is left behind, and nothing was done that CUDA forbids. */
static void
end(void)
{
	struct fake_cuda_counts counts;

	atomic_store(&is_shut, false);
	scout_worker_free(w.rig.workers[0]);
	w.rig.workers[0] = NULL;
	counts = fake_cuda_stop();
	ck_assert_uint_eq(counts.violations, 0);
	ck_assert_uint_eq(counts.live, 0);
}

CHECKED_FIXTURE(setup, teardown);

START_LOOP_TEST(what_was_stored_of_all_groups_comes_back, 0, 6)
{
	start(_i & 1 ? "auto" : "cuda", methods[_i / 2]);
	for (uint32_t prompt = 1; prompt < 4; prompt++) {
		struct scout_done done;

		groups_store_all(&w, prompt);
		groups_wipe(&w);
		done = rig_wait(w.rig.workers[0], groups_load(&w, prompt, 30, (struct scout_retrieve){.ticket = 0}));
		ck_assert_int_eq(done.status, 0);
		ck_assert_uint_eq(done.chunks, GROUPS_UNITS + 2 + 1);
		groups_assert_loaded(&w, prompt, 30, GROUPS_LAYERS);
	}
	end();
}
END_TEST

/* One event for each layer stands behind the planes of all groups, and the job's behind all of it. */
START_LOOP_TEST(an_event_of_a_layer_is_behind_all_groups, 0, 3)
{
	void *events[GROUPS_LAYERS + 1];
	uint64_t job;

	start("cuda", methods[_i]);
	groups_store_all(&w, 1);
	groups_wipe(&w);
	for (uint32_t e = 0; e <= GROUPS_LAYERS; e++)
		ck_assert_int_eq(scout__cuda_api_event_new(&events[e]), 0);
	atomic_store(&is_shut, true);
	job = groups_load(&w, 1, 30,
			  (struct scout_retrieve){.n_layers = GROUPS_LAYERS,
						  .layer_planes = groups_layers,
						  .layer_events = events,
						  .event = events[GROUPS_LAYERS]});
	rig_wait_layers(w.rig.workers[0], job, 1);
	ck_assert(fake_cuda_event_recorded(events[0]) && !fake_cuda_event_over(events[0]));
	ck_assert_int_eq(scout_worker_wait_layer(w.rig.workers[0], job, 1, 0), SCOUT_ERR_TIMEOUT);
	groups_assert_untouched(&w);
	atomic_store(&is_shut, false);
	for (uint32_t l = 1; l <= GROUPS_LAYERS; l++)
		ck_assert_int_eq(scout_worker_wait_layer(w.rig.workers[0], job, l, wait_limit_ms()), 0);
	for (uint32_t e = 0; e <= GROUPS_LAYERS; e++)
		ck_assert(fake_cuda_event_over(events[e]));
	groups_assert_loaded(&w, 1, 30, GROUPS_LAYERS);
	ck_assert_int_eq(rig_wait(w.rig.workers[0], job).status, 0);
	for (uint32_t e = 0; e <= GROUPS_LAYERS; e++)
		scout__cuda_api_event_free(events[e]);
	end();
}
END_TEST

/* The forward pass stands still before each layer: no group's store reads the layer before. */
START_LOOP_TEST(no_group_is_stored_before_the_event_of_its_layer, 0, 3)
{
	void *forward, *events[GROUPS_LAYERS];
	struct scout_done done;
	uint64_t job;

	start("cuda", methods[_i]);
	ck_assert_int_eq(scout__cuda_api_stream_new(&forward), 0);
	for (uint32_t l = 0; l < GROUPS_LAYERS; l++) {
		ck_assert_int_eq(scout__cuda_api_event_new(&events[l]), 0);
		fake_cuda_hold(forward);
		ck_assert_int_eq(scout__cuda_api_event_record(events[l], forward), 0);
	}
	job = groups_store(&w, 2,
			   (struct scout_store){.n_layers = GROUPS_LAYERS,
						.layer_planes = groups_layers,
						.layer_events = events,
						.event = events[0]});
	for (uint32_t l = 0; l < GROUPS_LAYERS; l++) {
		ck_assert_int_eq(scout_worker_wait_layer(w.rig.workers[0], job, l + 1, 0), SCOUT_ERR_TIMEOUT);
		groups_fill(&w, 2, 1, l, l + 1);
		fake_cuda_release(forward);
	}
	ck_assert_int_eq(scout_worker_wait_layer(w.rig.workers[0], job, GROUPS_LAYERS, wait_limit_ms()), 0);
	done = rig_wait(w.rig.workers[0], job);
	ck_assert_int_eq(done.status, 0);
	ck_assert_uint_eq(done.chunks, GROUPS * GROUPS_UNITS);
	groups_wipe(&w);
	ck_assert_int_eq(
		rig_wait(w.rig.workers[0], groups_load(&w, 2, 30, (struct scout_retrieve){.ticket = 0})).status, 0);
	groups_assert_loaded(&w, 2, 30, GROUPS_LAYERS);
	ck_assert_int_eq(scout__cuda_api_stream_sync(forward), 0);
	for (uint32_t l = 0; l < GROUPS_LAYERS; l++)
		scout__cuda_api_event_free(events[l]);
	scout__cuda_api_stream_free(forward);
	end();
}
END_TEST

/* Opens the gate when the job was told to stop. */
static void *
open_gate(void *arg)
{
	const struct scout__job *job = arg;

	while (!atomic_load(&job->stop))
		(void)sched_yield();
	atomic_store(&is_shut, false);
	return NULL;
}

/* The engine sleeps while a copy of all groups is on its way and another waits; it wakes with other pages. */
START_LOOP_TEST(pages_taken_back_under_copies_are_not_touched_again, 0, 3)
{
	struct rig_pages others[GROUPS], before[GROUPS];
	uint64_t running;
	pthread_t opener;

	start("cuda", methods[_i]);
	groups_store_all(&w, 1);
	groups_pages_init(others, GROUPS_PAGES / 2 + 20);
	for (int round = 0; round < 3; round++) {
		struct scout_worker *worker = w.rig.workers[0];
		unsigned n = 0;

		groups_wipe(&w);
		atomic_store(&is_shut, true);
		running = groups_load(&w, 1, 30, (struct scout_retrieve){.ticket = 0});
		(void)groups_load(&w, 1, 30, (struct scout_retrieve){.ticket = 0});
		wait_until(fake_cuda_pending() != 0)
			;
		ck_assert_int_eq(pthread_create(&opener, NULL, open_gate, &worker->jobs[running & SCOUT__SLOT_MASK]),
				 0);
		ck_assert_int_eq(scout_worker_unregister(worker), 0);
		ck_assert_int_eq(pthread_join(opener, NULL), 0);
		ck_assert_uint_eq(fake_cuda_pending(), 0);
		groups_wipe(&w);
		for (; n < 2; n++) {
			struct scout_done done = rig_wait(worker, 0);

			ck_assert(done.status == 0 || done.status == SCOUT_ERR_CANCELED);
		}
		groups_assert_untouched(&w);
		memcpy(before, w.pages, sizeof(before));
		memcpy(w.pages, others, sizeof(others));
		memcpy(others, before, sizeof(others));
		announce(w.pages);
		groups_register(&w);
		groups_wipe(&w);
		ck_assert_int_eq(rig_wait(worker, groups_load(&w, 1, 30, (struct scout_retrieve){.ticket = 0})).status,
				 0);
		groups_assert_loaded(&w, 1, 30, GROUPS_LAYERS);
	}
	end();
	for (uint32_t g = 0; g < GROUPS; g++)
		rig_pages_fini(&others[g]);
}
END_TEST

/* A page of one group: the stream waits for all that is enqueued, and what is not is dropped. */
START_LOOP_TEST(a_fence_on_a_page_of_one_group_stops_the_job, 0, 9)
{
	uint64_t job, other;
	struct scout_done done;
	void *stream, *event;
	uint32_t g = (uint32_t)_i % GROUPS;

	start("cuda", methods[_i / GROUPS]);
	groups_store_all(&w, 1);
	groups_wipe(&w);
	ck_assert_int_eq(scout__cuda_api_stream_new(&stream), 0);
	ck_assert_int_eq(scout__cuda_api_event_new(&event), 0);
	atomic_store(&is_shut, true);
	job = groups_load(&w, 1, 30, (struct scout_retrieve){.ticket = 0});
	other = groups_load(&w, 1, 3, (struct scout_retrieve){.ticket = 0});
	wait_until(fake_cuda_pending() != 0)
		;
	/* The page of the last unit. */
	ck_assert_int_eq(scout_worker_fence(w.rig.workers[0], g,
					    (int64_t[]){30 + (int64_t)(GROUPS_UNITS * groups_bpc[g]) - 1}, 1, stream),
			 0);
	ck_assert_int_eq(scout__cuda_api_event_record(event, stream), 0);
	ck_assert(!fake_cuda_event_over(event));
	ck_assert(atomic_load(&w.rig.workers[0]->jobs[job & SCOUT__SLOT_MASK].stop));
	ck_assert(!atomic_load(&w.rig.workers[0]->jobs[other & SCOUT__SLOT_MASK].stop));
	atomic_store(&is_shut, false);
	done = rig_wait(w.rig.workers[0], job);
	ck_assert(done.status == 0 || done.status == SCOUT_ERR_CANCELED);
	ck_assert_int_eq(rig_wait(w.rig.workers[0], other).status, 0);
	ck_assert_int_eq(scout__cuda_api_stream_sync(stream), 0);
	scout__cuda_api_event_free(event);
	scout__cuda_api_stream_free(stream);
	end();
}
END_TEST

/* Of a page of another group with the same number no job is stopped. */
START_TEST(a_fence_on_a_group_leaves_the_same_pages_of_others_alone)
{
	uint64_t job;

	start("cuda", "auto");
	groups_store_all(&w, 1);
	groups_wipe(&w);
	atomic_store(&is_shut, true);
	job = groups_load(&w, 1, 30, (struct scout_retrieve){.ticket = 0});
	wait_until(fake_cuda_pending() != 0)
		;
	/* Group 0 has pages 30 to 49, group 1 of them 36 to 39, group 2 page 34. No CPU waits: the gate is shut. */
	ck_assert_int_eq(scout_worker_fence(w.rig.workers[0], 1, (int64_t[]){30, 34, 35, 40}, 4, NULL), 0);
	ck_assert_int_eq(scout_worker_fence(w.rig.workers[0], 2, (int64_t[]){30, 36, 39}, 3, NULL), 0);
	ck_assert(!atomic_load(&w.rig.workers[0]->jobs[job & SCOUT__SLOT_MASK].stop));
	atomic_store(&is_shut, false);
	ck_assert_int_eq(rig_wait(w.rig.workers[0], job).status, 0);
	groups_assert_loaded(&w, 1, 30, GROUPS_LAYERS);
	end();
}
END_TEST

/* With `auto` as with `cuda`: one table in this process's memory is an error that names its group, and nothing is kept. */
START_LOOP_TEST(a_table_that_is_no_gpu_memory_is_named, 0, 2)
{
	struct scout_table tables[GROUPS];
	struct rig_pages other[GROUPS];
	struct scout_plane plane;
	char err[300] = "";

	start(_i ? "auto" : "cuda", "auto");
	groups_pages_init(other, GROUPS_PAGES);
	ck_assert_int_eq(scout_worker_unregister(w.rig.workers[0]), 0);
	groups_tables(&w, tables);
	plane = other[1].planes[0];
	tables[1].planes = &plane;
	ck_assert_int_eq(scout_worker_register(w.rig.workers[0], tables, GROUPS, wait_limit_ms(), err, sizeof(err)),
			 SCOUT_ERR_INVALID);
	ck_assert_msg(strstr(err, "the table of group 1: planes[0]") != NULL, "%s", err);
	groups_register(&w);
	groups_store_all(&w, 1);
	end();
	for (uint32_t g = 0; g < GROUPS; g++)
		rig_pages_fini(&other[g]);
}
END_TEST
