/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Client, server and worker together, with the pages on a real GPU: what was stored comes back, layer by layer, under fences,
 * captures, cancels, a restart of the server; the server is a process of its own.
 *
 * It needs libzmq and what else the library is linked with, which a machine with a GPU often lacks: `./dev gpu --pack` builds it where
 * those are, and packs them with it.
 */
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>

#include <cuda_runtime_api.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#include "base/clock.h"
#include "gpu_test.h"
#include "gpu_vmm.h"

#define DEADLINE_MS 30000
#define CANARY 0xa5
#define HASH 32
#define N_PLANES 3
#define N_PAGES 400
#define CHUNK_TOKENS 64
#define BLOCK_TOKENS 16
#define BPC (CHUNK_TOKENS / BLOCK_TOKENS)
#define CHUNKS 5
#define BLOCKS (CHUNKS * BPC)
#define READY_FD 3

static const char *const methods[] = {"staged", "batch", "direct", "auto"};
static const uint32_t two_layers[2] = {1, 2};

/* One worker's. */
struct engine {
	struct scout_worker *worker;
	struct scout_plane planes[N_PLANES];
};

static struct {
	pid_t server;
	char folder[64], endpoint[128];
	struct scout_client *client;
	uint32_t ranks;
	struct engine engines[2];
	uint64_t seed;
	unsigned next_id;
} rig = {.ranks = 1, .seed = 1};

static uint64_t
below(uint64_t n)
{
	uint64_t z = rig.seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (z ^ (z >> 31)) % n;
}

/* ---- the server ---- */

static int
server_main(const char *endpoint)
{
	struct scout_server_config cfg;
	struct scout_server *server;
	char err[256] = "";
	sigset_t set;
	int sig;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	scout_server_config_init(&cfg);
	cfg.listen = endpoint;
	cfg.l1_bytes = UINT64_C(256) << 20;
	cfg.extent_bytes = UINT64_C(64) << 20;
	if (scout_server_start(&cfg, &server, err, sizeof(err)) != 0) {
		printf("# server: %s\n", err);
		return 1;
	}
	if (write(READY_FD, "!", 1) != 1)
		return 1;
	(void)sigwait(&set, &sig);
	scout_server_stop(server);
	return 0;
}

static void
server_start(void)
{
	const char *self = getenv("GPU_TEST_SELF");
	int ready[2];
	char c;

	REQUIRE(pipe(ready) == 0);
	rig.server = fork();
	REQUIRE(rig.server >= 0);
	if (rig.server == 0) {
		if (dup2(ready[1], READY_FD) == READY_FD)
			execl(self ? self : "/proc/self/exe", "gpu-test", "--server", rig.endpoint, (char *)NULL);
		_exit(127);
	}
	(void)close(ready[1]);
	REQUIRE(read(ready[0], &c, 1) == 1);
	(void)close(ready[0]);
}

static void
server_end(int sig)
{
	int status;

	REQUIRE(kill(rig.server, sig) == 0);
	REQUIRE(waitpid(rig.server, &status, 0) == rig.server);
}

/* ---- pages ---- */

/* What block @block of @prompt holds in plane @p of rank @rank. */
static void
bytes_of(uint8_t *to, uint32_t prompt, uint32_t rank, uint64_t block, uint32_t p, uint64_t n)
{
	uint64_t key = prompt * UINT64_C(0x9e3779b97f4a7c15) + rank * UINT64_C(0xbf58476d1ce4e5b9) +
		       block * UINT64_C(0x94d049bb133111eb) + p * UINT64_C(0x2545f4914f6cdd1d),
		 x;

	for (uint64_t o = 0; o < n; o += 8) {
		x = (key + o * 1099511628211u) * UINT64_C(0xd6e8feb86659fd93);
		x ^= x >> 32;
		memcpy(to + o, &x, n - o < 8 ? n - o : 8);
	}
}

static uint8_t *
page_at(const struct engine *engine, uint32_t p, int64_t id)
{
	return (uint8_t *)engine->planes[p].base + (uint64_t)id * engine->planes[p].stride;
}

static void
fill(uint32_t rank, int64_t id, uint32_t prompt, uint64_t block)
{
	static uint8_t bytes[1 << 17];

	for (uint32_t p = 0; p < N_PLANES; p++) {
		const struct scout_plane *plane = &rig.engines[rank].planes[p];

		bytes_of(bytes, prompt, rank, block, p, plane->block_bytes);
		CUDA(cudaMemcpy(page_at(&rig.engines[rank], p, id), bytes, plane->block_bytes, cudaMemcpyHostToDevice));
	}
	/* A copy from memory that is not pinned may be on its way still. */
	CUDA(cudaStreamSynchronize(cudaStreamLegacy));
}

static bool
plane_is(uint32_t rank, uint32_t p, int64_t id, uint32_t prompt, uint64_t block)
{
	static uint8_t bytes[1 << 17], now[1 << 17];
	uint64_t n = rig.engines[rank].planes[p].block_bytes;

	bytes_of(bytes, prompt, rank, block, p, n);
	CUDA(cudaMemcpy(now, page_at(&rig.engines[rank], p, id), n, cudaMemcpyDeviceToHost));
	return memcmp(now, bytes, n) == 0;
}

static bool
page_is(uint32_t rank, int64_t id, uint32_t prompt, uint64_t block)
{
	for (uint32_t p = 0; p < N_PLANES; p++)
		if (!plane_is(rank, p, id, prompt, block))
			return false;
	return true;
}

/* Whether all of a page, and the gap behind it, is @value. */
static bool
page_holds(uint32_t rank, int64_t id, uint8_t value)
{
	static uint8_t now[1 << 17];

	for (uint32_t p = 0; p < N_PLANES; p++) {
		uint64_t n = rig.engines[rank].planes[p].stride;

		CUDA(cudaMemcpy(now, page_at(&rig.engines[rank], p, id), n, cudaMemcpyDeviceToHost));
		for (uint64_t b = 0; b < n; b++)
			if (now[b] != value)
				return false;
	}
	return true;
}

static void *
plain_alloc(uint64_t bytes)
{
	void *p = NULL;

	CUDA(cudaMalloc(&p, bytes));
	return p;
}

static void
pages_init(uint32_t rank, void *(*alloc)(uint64_t bytes))
{
	static const uint64_t bytes[N_PLANES] = {4096, 1000, 65536}, padding[N_PLANES] = {0, 24, 0};

	for (uint32_t p = 0; p < N_PLANES; p++) {
		struct scout_plane *plane = &rig.engines[rank].planes[p];

		plane->block_bytes = bytes[p];
		plane->stride = bytes[p] + padding[p];
		plane->base = alloc(plane->stride * N_PAGES);
		CUDA(cudaMemset(plane->base, CANARY, plane->stride * N_PAGES));
	}
	CUDA(cudaDeviceSynchronize());
}

/* ---- client and workers ---- */

static void
say(void *user, int level, const char *text)
{
	(void)user;
	if (level <= SCOUT_LOG_WARN)
		printf("# %s\n", text);
}

static void
client_start(void)
{
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 5000;
	cfg.endpoint = rig.endpoint;
	cfg.name_space = "gpu";
	cfg.chunk_tokens = CHUNK_TOKENS;
	cfg.kv_ranks = rig.ranks;
	REQUIRE(scout_client_new(&cfg, &rig.client, err, sizeof(err)) == 0);
	REQUIRE(scout_client_wait_ready(rig.client, DEADLINE_MS, err, sizeof(err)) == 0);
}

static struct scout_worker *
worker_new(uint32_t rank, const char *backend, const char *method)
{
	struct scout_worker *worker = NULL;
	struct scout_worker_config cfg;
	char err[400] = "";
	int rc;

	scout_worker_config_init(&cfg);
	cfg.endpoint = rig.endpoint;
	cfg.name_space = "gpu";
	cfg.chunk_tokens = CHUNK_TOKENS;
	cfg.kv_ranks = rig.ranks;
	cfg.kv_rank = rank;
	cfg.backend = backend;
	cfg.copy_method = method;
	cfg.log = say;
	rc = scout_worker_new(&cfg, &worker, err, sizeof(err));
	if (rc)
		printf("# worker: %s: %s\n", scout_err_name(rc), err);
	REQUIRE(rc == 0);
	return worker;
}

static void
worker_register(uint32_t rank)
{
	struct scout_layout layout = {
		.size = sizeof(layout),
		.block_tokens = BLOCK_TOKENS,
		.n_planes = N_PLANES,
		.planes = rig.engines[rank].planes,
		.n_blocks = N_PAGES,
		.null_block = 0,
	};
	char err[400] = "";
	int rc = scout_worker_register(rig.engines[rank].worker, &layout, DEADLINE_MS, err, sizeof(err));

	if (rc)
		printf("# register: %s: %s\n", scout_err_name(rc), err);
	REQUIRE(rc == 0);
}

static void
start_server_and_client(void)
{
	snprintf(rig.folder, sizeof(rig.folder), "/tmp/kvscout-gpu-XXXXXX");
	REQUIRE(mkdtemp(rig.folder));
	snprintf(rig.endpoint, sizeof(rig.endpoint), "ipc://%s/s", rig.folder);
	server_start();
	client_start();
}

/* All of it, with a worker for each rank. */
static void
start(const char *backend, const char *method, void *(*alloc)(uint64_t bytes))
{
	start_server_and_client();
	for (uint32_t r = 0; r < rig.ranks; r++) {
		pages_init(r, alloc);
		rig.engines[r].worker = worker_new(r, backend, method);
		worker_register(r);
	}
}

static void
end(void)
{
	char path[160];

	scout_client_free(rig.client);
	for (uint32_t r = 0; r < rig.ranks; r++)
		scout_worker_free(rig.engines[r].worker);
	server_end(SIGTERM);
	snprintf(path, sizeof(path), "rm -rf %s", rig.folder);
	REQUIRE(system(path) == 0);
}

/* ---- requests ---- */

static void
hashes_of(uint8_t *hashes, uint32_t prompt)
{
	for (uint64_t c = 0; c < CHUNKS; c++)
		bytes_of(hashes + c * HASH, prompt, 77, c, 0, HASH);
}

/* BLOCKS ids from @first on, @step apart. */
static void
ids_from(int64_t *ids, int64_t first, int64_t step)
{
	for (int64_t b = 0; b < BLOCKS; b++)
		ids[b] = first + b * step;
}

static struct scout_done
wait_done(uint32_t rank, uint64_t job)
{
	uint64_t end_us = scout__now_us() + DEADLINE_MS * UINT64_C(1000);
	struct scout_worker *worker = rig.engines[rank].worker;
	struct scout_done done;

	for (;;) {
		struct pollfd pfd = {.fd = scout_worker_fd(worker), .events = POLLIN};
		int n = scout_worker_poll(worker, &done, 1);

		REQUIRE(n >= 0);
		if (n == 1) {
			REQUIRE(job == 0 || done.job == job);
			return done;
		}
		REQUIRE(scout__now_us() < end_us);
		(void)poll(&pfd, 1, 100);
	}
}

static uint64_t
submit_store(uint32_t rank, uint32_t prompt, const int64_t *ids, struct scout_store store)
{
	uint8_t hashes[CHUNKS * HASH];
	uint64_t job = 0;

	hashes_of(hashes, prompt);
	store.size = sizeof(store);
	store.hashes = hashes;
	store.hash_len = HASH;
	store.n = CHUNKS;
	store.block_ids = ids;
	store.n_blocks = BLOCKS;
	REQUIRE(scout_worker_store(rig.engines[rank].worker, &store, &job) == 0);
	return job;
}

/* Fill pages with @prompt and store them, on all ranks. */
static void
store_all(uint32_t prompt, int64_t first)
{
	int64_t ids[BLOCKS];
	uint32_t chunks = 0;

	ids_from(ids, first, 1);
	for (uint32_t r = 0; r < rig.ranks; r++) {
		struct scout_done done;

		for (uint64_t b = 0; b < BLOCKS; b++)
			fill(r, ids[b], prompt, b);
		done = wait_done(r, submit_store(r, prompt, ids, (struct scout_store){.ticket = 0}));
		REQUIRE(done.status == 0 && done.no_room == 0);
		chunks += done.chunks;
	}
	REQUIRE(chunks == CHUNKS);
}

static struct scout_hit
look_up(uint32_t prompt)
{
	uint8_t hashes[CHUNKS * HASH];
	char id[32];
	struct scout_lookup lookup = {
		.id = id, .hashes = hashes, .hash_len = HASH, .n = CHUNKS, .prompt_tokens = CHUNKS * CHUNK_TOKENS + 1};
	struct scout_hit hit;

	hashes_of(hashes, prompt);
	snprintf(id, sizeof(id), "r%u", rig.next_id++);
	REQUIRE(scout_wait_lookup(rig.client, &lookup, &hit) == 0);
	return hit;
}

static uint64_t
submit_retrieve(uint32_t rank, uint64_t ticket, const int64_t *ids, struct scout_retrieve retrieve)
{
	uint64_t job = 0;

	retrieve.size = sizeof(retrieve);
	retrieve.ticket = ticket;
	retrieve.to_token = CHUNKS * CHUNK_TOKENS;
	retrieve.block_ids = ids;
	retrieve.n_blocks = BLOCKS;
	REQUIRE(scout_worker_retrieve(rig.engines[rank].worker, &retrieve, &job) == 0);
	return job;
}

/* All blocks but those that are named as missing are in their pages. */
static void
require_filled(uint32_t rank, uint32_t prompt, const int64_t *ids, const struct scout_done *done)
{
	uint32_t m = 0;

	for (uint64_t b = 0; b < BLOCKS; b++) {
		if (m < done->n_missing && done->missing[m] == b) {
			m++;
			continue;
		}
		REQUIRE(page_is(rank, ids[b], prompt, b));
	}
	REQUIRE(m == done->n_missing);
}

static void
retrieve_all(uint32_t prompt, int64_t first, int64_t step)
{
	struct scout_hit hit = look_up(prompt);
	int64_t ids[BLOCKS];

	REQUIRE(hit.chunks == CHUNKS);
	ids_from(ids, first, step);
	for (uint32_t r = 0; r < rig.ranks; r++) {
		struct scout_done done =
			wait_done(r, submit_retrieve(r, hit.ticket, ids, (struct scout_retrieve){.stream = NULL}));

		REQUIRE(done.status == 0 && done.n_missing == 0);
		require_filled(r, prompt, ids, &done);
	}
}

static cudaStream_t
new_stream(void)
{
	cudaStream_t stream;

	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	return stream;
}

static cudaEvent_t
new_event(void)
{
	cudaEvent_t event;

	CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	return event;
}

/* Some 20 ms of work. */
static void
keep_busy(cudaStream_t stream)
{
	static void *big;

	if (!big)
		CUDA(cudaMalloc(&big, 1 << 30));
	for (int n = 0; n < 40; n++)
		CUDA(cudaMemsetAsync(big, n, 1 << 30, stream));
}

/* ---- cases ---- */

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
	done = wait_done(0, submit_retrieve(0, hit.ticket, ids, (struct scout_retrieve){.skip_blocks = 1}));
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
	cudaStream_t stream;
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
				CUDA(cudaMemcpyAsync(
					page_at(&rig.engines[0], p, to[b]), page_at(&rig.engines[0], p, from[b]),
					rig.engines[0].planes[p].block_bytes, cudaMemcpyDeviceToDevice, stream));
		events[l] = new_event();
		CUDA(cudaEventRecord(events[l], stream));
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
	struct scout_progress progress = {.size = sizeof(progress)};
	int64_t ids[BLOCKS];
	void *events[3], *copy;
	cudaStream_t stream;
	struct scout_done done;
	uint64_t job;

	start("cuda", methods[i], plain_alloc);
	store_all(4, 1);
	ids_from(ids, 300, -2);
	stream = new_stream();
	for (int e = 0; e < 3; e++)
		events[e] = new_event();
	CUDA(cudaMalloc(&copy, 1 << 20));
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
			CUDA(cudaStreamWaitEvent(stream, events[l], 0));
			CUDA(cudaMemcpyAsync(copy, page_at(&rig.engines[0], p, ids[BLOCKS - 1]), bytes,
					     cudaMemcpyDeviceToDevice, stream));
			CUDA(cudaStreamSynchronize(stream));
			CUDA(cudaMemcpy(now, copy, bytes, cudaMemcpyDeviceToHost));
			bytes_of(want, 4, 0, BLOCKS - 1, p, bytes);
			REQUIRE(memcmp(now, want, bytes) == 0);
		}
		done = wait_done(0, job);
		REQUIRE(done.status == 0);
		require_filled(0, 4, ids, &done);
		for (uint64_t b = 0; b < BLOCKS; b++)
			for (uint32_t p = 0; p < N_PLANES; p++)
				CUDA(cudaMemset(page_at(&rig.engines[0], p, ids[b]), CANARY, 1000));
		CUDA(cudaDeviceSynchronize());
	}
	end();
}

static void
a_retrieve_with_nothing_to_copy_records_its_events(int i)
{
	cudaEvent_t event, after;
	cudaStream_t stream;
	int64_t ids[BLOCKS];
	struct scout_done done;

	start("cuda", methods[i], plain_alloc);
	store_all(1, 1);
	ids_from(ids, 100, 1);
	event = new_event();
	after = new_event();
	stream = new_stream();
	keep_busy(stream);
	CUDA(cudaEventRecord(after, stream));
	done = wait_done(
		0, submit_retrieve(0, look_up(1).ticket, ids,
				   (struct scout_retrieve){.skip_blocks = BLOCKS, .after = after, .event = event}));
	REQUIRE(done.status == 0 && done.bytes == 0);
	CUDA(cudaEventQuery(after));
	CUDA(cudaEventQuery(event));
	end();
}

/* The stream of the fence is captured: the call waits itself, and the capture is good. */
static void
a_fence_leaves_the_capture_of_its_stream_alone(int i)
{
	int64_t ids[BLOCKS];
	cudaStream_t stream;
	cudaGraph_t graph;
	struct scout_done done;
	struct scout_hit hit;
	void *target;
	uint64_t job;

	start("cuda", methods[i], plain_alloc);
	store_all(1, 1);
	CUDA(cudaMalloc(&target, 4096));
	stream = new_stream();
	ids_from(ids, 100, 1);
	for (int n = 0; n < 20; n++) {
		hit = look_up(1);
		graph = NULL;
		CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
		CUDA(cudaMemsetAsync(target, n, 4096, stream));
		job = submit_retrieve(0, hit.ticket, ids, (struct scout_retrieve){.stream = NULL});
		REQUIRE(scout_worker_fence(rig.engines[0].worker, ids, BLOCKS, stream) == 0);
		CUDA(cudaMemsetAsync(target, n + 1, 4096, stream));
		CUDA(cudaStreamEndCapture(stream, &graph));
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
	struct scout_progress progress = {.size = sizeof(progress)};
	void *stream = i == 0 ? (void *)new_stream() : i == 1 ? scout_stream(NULL) : SCOUT_STREAM_PER_THREAD;
	struct scout_done done;
	uint32_t n_canceled = 0;
	uint64_t job;

	start("cuda", "auto", plain_alloc);
	store_all(1, 1);
	ids_from(ids, 100, 1);
	for (int n = 0; n < 50; n++) {
		job = submit_retrieve(0, look_up(1).ticket, ids, (struct scout_retrieve){.stream = NULL});
		/* Before its copies are enqueued, or behind. */
		do
			REQUIRE(scout_worker_progress(rig.engines[0].worker, job, &progress) == 0);
		while (n & 1 && progress.enqueued == 0);
		REQUIRE(scout_worker_fence(rig.engines[0].worker, ids, BLOCKS, stream) == 0);
		for (uint32_t p = 0; p < N_PLANES; p++)
			CUDA(cudaMemsetAsync(page_at(&rig.engines[0], p, ids[0]), 0xee,
					     rig.engines[0].planes[p].stride * BLOCKS, stream));
		done = wait_done(0, job);
		n_canceled += done.status != 0;
		CUDA(cudaStreamSynchronize(stream));
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
								(struct scout_retrieve){.stream = NULL});
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
		CUDA(cudaMemset(rig.engines[0].planes[p].base, CANARY, rig.engines[0].planes[p].stride * N_PAGES));
	CUDA(cudaDeviceSynchronize());
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
		done = wait_done(0, submit_retrieve(0, hit.ticket, ids[0], (struct scout_retrieve){.stream = NULL}));
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

/* A worker of backend "auto" is made, then a process is forked: both have CUDA. */
static void
a_process_that_is_forked_behind_a_new_worker_has_cuda(int i)
{
	int status = -1;
	pid_t child;
	void *p;

	(void)i;
	start_server_and_client();
	rig.engines[0].worker = worker_new(0, "auto", "auto");
	child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		CUDA(cudaMalloc(&p, 1 << 20));
		CUDA(cudaMemset(p, 1, 1 << 20));
		CUDA(cudaDeviceSynchronize());
		_exit(0);
	}
	REQUIRE(waitpid(child, &status, 0) == child);
	REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
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
		job = submit_retrieve(0, hit.ticket, ids, (struct scout_retrieve){.stream = NULL});
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
	{"what_was_stored_comes_back_in_other_pages", what_was_stored_comes_back_in_other_pages, 8},
	{"layers_are_stored_behind_their_events", layers_are_stored_behind_their_events, 4},
	{"layers_are_read_behind_their_events", layers_are_read_behind_their_events, 4},
	{"a_retrieve_with_nothing_to_copy_records_its_events", a_retrieve_with_nothing_to_copy_records_its_events, 2},
	{"a_fence_leaves_the_capture_of_its_stream_alone", a_fence_leaves_the_capture_of_its_stream_alone, 4},
	{"behind_a_fence_the_pages_are_the_streams", behind_a_fence_the_pages_are_the_streams, 3},
	{"cancel_and_free_under_load", cancel_and_free_under_load, 4},
	{"two_workers_share_a_device", two_workers_share_a_device, 4},
	{"one_hardware_queue_is_enough", one_hardware_queue_is_enough, 4},
	{"pages_in_expandable_segments", pages_in_expandable_segments, 4},
	{"a_process_that_is_forked_behind_a_new_worker_has_cuda", a_process_that_is_forked_behind_a_new_worker_has_cuda,
	 1},
	{"the_server_may_come_again", the_server_may_come_again, 2},
};

/* The runtime's word, in a process of its own: this one starts others, and CUDA survives no fork. */
static const char *
why_not(void)
{
	static char text[100];
	int n = 0;
	cudaError_t rc = cudaGetDeviceCount(&n);

	if (rc == cudaSuccess && n > 0)
		return NULL;
	snprintf(text, sizeof(text), "no CUDA device: %s", rc == cudaSuccess ? "none found" : cudaGetErrorName(rc));
	return text;
}

int
main(int argc, char **argv)
{
	if (argc == 2) /* whether it starts at all */
		return 0;
	if (argc == 3 && strcmp(argv[1], "--server") == 0)
		return server_main(argv[2]);
	return gpu_main(argc, argv, cases, (int)(sizeof(cases) / sizeof(cases[0])), argc == 1 ? why_not() : NULL);
}
