/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client, server and worker together, with the pages on a real GPU: what was stored comes back, layer by layer, under fences,
 * captures, cancels, a restart of the server; the server is a process of its own.
 *
 * It needs libzmq and what else the library is linked with, which a machine with a GPU often lacks: `./dev gpu --pack` builds it where
 * those are, and packs them with it.
 */
#include "gpu_worker_rig.h"
#include "worker_gpu_groups.h"

static void
what_was_stored_comes_back_in_other_pages(int i)
{
	struct scout_done done;
	struct scout_hit hit;
	int64_t ids[BLOCKS];

	start(i & 1 ? "auto" : "cuda", methods[i / 2], plain_alloc);
	store_all(1, 1);
	hit = look_up(1);
	ids_from(ids, 100, -1);
	done = wait_done(0, submit_retrieve(0, hit.ticket, ids, (struct scout_retrieve){.from_token = BLOCK_TOKENS}));
	REQUIRE(done.status == 0 && done.chunks == CHUNKS);
	REQUIRE(page_holds(0, ids[0], CANARY));
	for (uint64_t b = 1; b < BLOCKS; b++)
		REQUIRE(page_is(0, ids[b], 1, b));
	REQUIRE(page_holds(0, 101, CANARY) && page_holds(0, 100 - BLOCKS, CANARY));
	for (uint32_t prompt = 2; prompt < 12; prompt++) {
		store_all(prompt, 1 + 20 * (prompt % 3));
		retrieve_all(prompt, 150 + (int64_t)below(50), 3);
	}
	end();
}

/* The forward pass writes layer after layer, far behind; each layer is stored behind its own event. */
static void
layers_are_stored_behind_their_events(int i)
{
	int64_t from[BLOCKS], to[BLOCKS];
	void *events[2];
	CUstream stream;
	struct scout_done done;

	start("cuda", methods[i], plain_alloc);
	stream = new_stream();
	ids_from(from, 1, 1);
	ids_from(to, 50, 1);
	/* What the forward pass writes lies ready elsewhere. */
	for (uint64_t b = 0; b < BLOCKS; b++)
		fill(0, from[b], 3, b);
	for (uint32_t l = 0, p = 0; l < 2; l++) {
		keep_busy(stream);
		for (uint32_t end_plane = p + two_layers[l]; p < end_plane; p++)
			for (uint64_t b = 0; b < BLOCKS; b++)
				CUDA(gpu_copy(page_at(&rig.engines[0], p, to[b]), page_at(&rig.engines[0], p, from[b]),
					      rig.engines[0].planes[p].block_bytes, stream));
		events[l] = new_event();
		CUDA(gpu.event_record(events[l], stream));
	}
	done = wait_done(0, submit_store(0, 3, to,
					 (struct scout_store){
						 .n_layers = 2, .layer_planes = two_layers, .layer_events = events}));
	REQUIRE(done.status == 0 && done.chunks == CHUNKS);
	retrieve_all(3, 200, 1);
	end();
}

/* Each layer is read by a stream behind its event, before poll reports the job. */
static void
layers_are_read_behind_their_events(int i)
{
	struct scout_progress progress = {0};
	int64_t ids[BLOCKS];
	void *events[3], *copy;
	CUstream stream;
	struct scout_done done;
	uint64_t job;

	start("cuda", methods[i], plain_alloc);
	store_all(4, 1);
	ids_from(ids, 300, -2);
	stream = new_stream();
	for (int e = 0; e < 3; e++)
		events[e] = new_event();
	copy = plain_alloc(1 << 20);
	for (int n = 0; n < 10; n++) {
		static uint8_t now[1 << 17], want[1 << 17];

		job = submit_retrieve(
			0, look_up(4).ticket, ids,
			(struct scout_retrieve){
				.n_layers = 2, .layer_planes = two_layers, .layer_events = events, .event = events[2]});
		for (uint32_t l = 0; l < 2; l++) {
			uint32_t p = l ? 2 : 0;
			uint64_t bytes = rig.engines[0].planes[p].block_bytes;

			do
				REQUIRE(scout_worker_progress(rig.engines[0].worker, job, &progress) == 0);
			while (progress.enqueued <= l);
			CUDA(gpu.stream_wait(stream, events[l], 0));
			CUDA(gpu_copy(copy, page_at(&rig.engines[0], p, ids[BLOCKS - 1]), bytes, stream));
			CUDA(gpu.stream_sync(stream));
			CUDA(gpu_read(now, copy, bytes));
			bytes_of(want, 4, 0, BLOCKS - 1, p, bytes);
			REQUIRE(memcmp(now, want, bytes) == 0);
		}
		done = wait_done(0, job);
		REQUIRE(done.status == 0);
		require_filled(0, 4, ids, &done);
		for (uint64_t b = 0; b < BLOCKS; b++)
			for (uint32_t p = 0; p < N_PLANES; p++)
				CUDA(gpu_set(page_at(&rig.engines[0], p, ids[b]), CANARY, 1000));
	}
	end();
}

static void
a_retrieve_with_nothing_to_copy_records_its_events(int i)
{
	CUevent event, after;
	CUstream stream;
	int64_t ids[BLOCKS];
	struct scout_done done;

	start("cuda", methods[i], plain_alloc);
	store_all(1, 1);
	ids_from(ids, 100, 1);
	event = new_event();
	after = new_event();
	stream = new_stream();
	keep_busy(stream);
	CUDA(gpu.event_record(after, stream));
	done = wait_done(0,
			 submit_retrieve(0, look_up(1).ticket, ids,
					 (struct scout_retrieve){
						 .from_token = BLOCKS * BLOCK_TOKENS, .after = after, .event = event}));
	REQUIRE(done.status == 0 && done.bytes == 0);
	CUDA(gpu.event_query(after));
	CUDA(gpu.event_query(event));
	end();
}

/* The stream of the fence is captured: the call waits itself, and the capture is good. */
static void
a_fence_leaves_the_capture_of_its_stream_alone(int i)
{
	int64_t ids[BLOCKS];
	CUstream stream;
	CUgraph graph;
	struct scout_done done;
	struct scout_hit hit;
	void *target;
	uint64_t job;

	start("cuda", methods[i], plain_alloc);
	store_all(1, 1);
	target = plain_alloc(4096);
	stream = new_stream();
	ids_from(ids, 100, 1);
	for (int n = 0; n < 20; n++) {
		hit = look_up(1);
		graph = NULL;
		CUDA(gpu.capture_begin(stream, GPU_CAPTURE_GLOBAL));
		CUDA(gpu_fill(target, n, 4096, stream));
		job = submit_retrieve(0, hit.ticket, ids, (struct scout_retrieve){.ticket = 0});
		REQUIRE(scout_worker_fence(rig.engines[0].worker, 0, ids, BLOCKS, stream) == 0);
		CUDA(gpu_fill(target, n + 1, 4096, stream));
		CUDA(gpu.capture_end(stream, &graph));
		REQUIRE(graph);
		done = wait_done(0, job);
		REQUIRE(done.status == 0 || done.status == SCOUT_ERR_CANCELED);
		require_filled(0, 1, ids, &done);
	}
	end();
}

/* What is enqueued behind a fence owns the pages. _i: a stream, CUDA's default streams. */
static void
behind_a_fence_the_pages_are_the_streams(int i)
{
	int64_t ids[BLOCKS];
	struct scout_progress progress = {0};
	void *stream = i == 0 ? (void *)new_stream() : i == 1 ? scout_stream(NULL) : SCOUT_STREAM_PER_THREAD;
	struct scout_done done;
	uint32_t n_canceled = 0;
	uint64_t job;

	start("cuda", "auto", plain_alloc);
	store_all(1, 1);
	ids_from(ids, 100, 1);
	for (int n = 0; n < 50; n++) {
		job = submit_retrieve(0, look_up(1).ticket, ids, (struct scout_retrieve){.ticket = 0});
		/* Before its copies are enqueued, or behind. */
		do
			REQUIRE(scout_worker_progress(rig.engines[0].worker, job, &progress) == 0);
		while (n & 1 && progress.enqueued == 0);
		REQUIRE(scout_worker_fence(rig.engines[0].worker, 0, ids, BLOCKS, stream) == 0);
		for (uint32_t p = 0; p < N_PLANES; p++)
			CUDA(gpu_fill(page_at(&rig.engines[0], p, ids[0]), 0xee,
				      rig.engines[0].planes[p].stride * BLOCKS, stream));
		done = wait_done(0, job);
		n_canceled += done.status != 0;
		CUDA(gpu.stream_sync(stream));
		for (uint64_t b = 0; b < BLOCKS; b++)
			REQUIRE(page_holds(0, ids[b], 0xee));
	}
	printf("# %u of 50 were canceled\n", n_canceled);
	end();
}

#define N_LIVE 12

/* Many jobs at once, some of them canceled at any time; at last the worker is freed under them, and another takes its place. */
static void
cancel_and_free_under_load(int i)
{
	uint64_t jobs[N_LIVE];
	int64_t ids[N_LIVE][BLOCKS];
	bool is_store[N_LIVE];
	uint32_t prompts[N_LIVE], n_good = 0, n_bad = 0, next_prompt = 100;
	const int rounds = 20;

	rig.seed = 500 + (uint64_t)i;
	start("cuda", methods[i], plain_alloc);
	store_all(1, 1);
	for (int n = 0; n < rounds; n++) {
		struct scout_hit hit = look_up(1);

		for (uint32_t k = 0; k < N_LIVE; k++) {
			ids_from(ids[k], 21 + (int64_t)k * BLOCKS, 1);
			is_store[k] = below(2);
			prompts[k] = is_store[k] ? next_prompt++ : 1;
			for (uint64_t b = 0; b < BLOCKS && is_store[k]; b++)
				fill(0, ids[k][b], prompts[k], b);
		}
		for (uint32_t k = 0; k < N_LIVE; k++) {
			jobs[k] = is_store[k] ? submit_store(0, prompts[k], ids[k], (struct scout_store){.ticket = 0})
					      : submit_retrieve(0, hit.ticket, ids[k],
								(struct scout_retrieve){.ticket = 0});
			if (below(3) == 0)
				(void)scout_worker_cancel(rig.engines[0].worker, jobs[below(k + 1)]);
		}
		if (n == rounds - 1)
			break;
		for (uint32_t ended = 0; ended < N_LIVE; ended++) {
			struct scout_done done = wait_done(0, 0);
			uint32_t k = 0;

			while (jobs[k] != done.job)
				k++;
			n_good += done.status == 0;
			n_bad += done.status != 0;
			if (!is_store[k])
				require_filled(0, 1, ids[k], &done);
		}
	}
	scout_worker_free(rig.engines[0].worker);
	/* Nothing copies any more. */
	for (uint32_t p = 0; p < N_PLANES; p++)
		CUDA(gpu_set(rig.engines[0].planes[p].base, CANARY, rig.engines[0].planes[p].stride * N_PAGES));
	for (int64_t id = 1; id < N_PAGES; id += 37)
		REQUIRE(page_holds(0, id, CANARY));
	rig.engines[0].worker = worker_new(0, "cuda", methods[i]);
	worker_register(0);
	retrieve_all(1, 100, 1);
	/* Whatever of the canceled stores is found is right. */
	for (uint32_t prompt = 100; prompt < next_prompt; prompt += 5) {
		struct scout_hit hit = look_up(prompt);
		struct scout_done done;

		ids_from(ids[0], 200, 1);
		if (hit.chunks == 0)
			continue;
		done = wait_done(0, submit_retrieve(0, hit.ticket, ids[0], (struct scout_retrieve){.ticket = 0}));
		require_filled(0, prompt, ids[0], &done);
	}
	printf("# %u ended well, %u not\n", n_good, n_bad);
	end();
}

static void
two_workers_share_a_device(int i)
{
	rig.ranks = 2;
	start("cuda", methods[i], plain_alloc);
	for (uint32_t prompt = 1; prompt < 6; prompt++) {
		store_all(prompt, 1 + prompt * BLOCKS);
		retrieve_all(prompt, 200, 1);
	}
	end();
}

static void
one_hardware_queue_is_enough(int i)
{
	REQUIRE(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1) == 0);
	if (i & 1)
		layers_are_read_behind_their_events(i / 2);
	else
		layers_are_stored_behind_their_events(i / 2);
}

static void
pages_in_expandable_segments(int i)
{
	start("auto", methods[i], vmm_alloc);
	store_all(1, 1);
	retrieve_all(1, 150, 2);
	end();
}

/*
 * A worker of backend "auto" is made, then a process is forked: both have CUDA. Not under gcc's AddressSanitizer: the child gets the
 * sanitizer's own allocator as it was, locked by a thread that it has not got (the child waits for ever, 5 times of 20).
 */
static void
a_process_that_is_forked_behind_a_new_worker_has_cuda(int i)
{
	int status = -1;
	pid_t child;
	void *p;

	(void)i;
#ifdef __SANITIZE_ADDRESS__
	printf("# a forked child cannot allocate here\n");
	exit(GPU_SKIP);
#endif
	start_server_and_client();
	rig.engines[0].worker = worker_new(0, "auto", "auto");
	child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		p = plain_alloc(1 << 20);
		CUDA(gpu_set(p, 1, 1 << 20));
		_exit(0);
	}
	REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	pages_init(0, plain_alloc);
	worker_register(0);
	store_all(1, 1);
	retrieve_all(1, 100, 1);
	end();
}

/* The server dies and comes again while copies run: the old pool's memory is unpinned, the new one's pinned. */
static void
the_server_may_come_again(int i)
{
	int64_t ids[BLOCKS];
	struct scout_hit hit;
	uint64_t job, end_us;

	start("cuda", methods[i], plain_alloc);
	for (uint32_t round = 1; round < 4; round++) {
		store_all(round, 1);
		retrieve_all(round, 100, 1);
		hit = look_up(round);
		ids_from(ids, 200, 1);
		job = submit_retrieve(0, hit.ticket, ids, (struct scout_retrieve){.ticket = 0});
		server_end(SIGKILL);
		{
			struct scout_done done = wait_done(0, job);

			require_filled(0, round, ids, &done);
		}
		server_start();
		/* Until the client and the worker have found it. */
		end_us = scout__now_us() + DEADLINE_MS * UINT64_C(1000);
		for (;;) {
			struct scout_done done;

			for (uint64_t b = 0; b < BLOCKS; b++)
				fill(0, ids[b], 1000 + round, b);
			done = wait_done(0, submit_store(0, 1000 + round, ids, (struct scout_store){.ticket = 0}));
			if (done.status == 0 && look_up(1000 + round).chunks == CHUNKS)
				break;
			REQUIRE(scout__now_us() < end_us);
		}
	}
	retrieve_all(1003, 100, 1);
	end();
}

static const struct gpu_case cases[] = {
	{"what_was_stored_comes_back_in_other_pages", what_was_stored_comes_back_in_other_pages, 6},
	{"layers_are_stored_behind_their_events", layers_are_stored_behind_their_events, 3},
	{"layers_are_read_behind_their_events", layers_are_read_behind_their_events, 3},
	{"a_retrieve_with_nothing_to_copy_records_its_events", a_retrieve_with_nothing_to_copy_records_its_events, 2},
	{"a_fence_leaves_the_capture_of_its_stream_alone", a_fence_leaves_the_capture_of_its_stream_alone, 3},
	{"behind_a_fence_the_pages_are_the_streams", behind_a_fence_the_pages_are_the_streams, 2},
	{"cancel_and_free_under_load", cancel_and_free_under_load, 3},
	{"two_workers_share_a_device", two_workers_share_a_device, 3},
	{"one_hardware_queue_is_enough", one_hardware_queue_is_enough, 4},
	{"pages_in_expandable_segments", pages_in_expandable_segments, 3},
	{"a_process_that_is_forked_behind_a_new_worker_has_cuda", a_process_that_is_forked_behind_a_new_worker_has_cuda,
	 1},
	{"the_server_may_come_again", the_server_may_come_again, 2},
	{"groups_come_back_in_other_pages", groups_come_back_in_other_pages, 6},
	{"groups_go_layer_by_layer", groups_go_layer_by_layer, 3},
	{"groups_sleep_and_wake_under_copies", groups_sleep_and_wake_under_copies, 3},
	{"a_fence_on_one_group_gives_its_pages_to_the_stream", a_fence_on_one_group_gives_its_pages_to_the_stream, 3},
};

int
main(int argc, char **argv)
{
	if (argc == 2) /* whether it starts at all */
		return 0;
	if (argc == 3 && strcmp(argv[1], "--server") == 0)
		return server_main(argv[2]);
	return gpu_main(argc, argv, cases, (int)(sizeof(cases) / sizeof(cases[0])), argc == 1 ? gpu_why_not() : NULL);
}
