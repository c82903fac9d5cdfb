/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_worker_rig.h"

const char *const methods[] = {"staged", "batch", "auto"};

const uint32_t two_layers[2] = {1, 2};

struct gpu_rig rig = {.ranks = 1, .seed = 1};

uint64_t
below(uint64_t n)
{
	uint64_t z = rig.seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return (z ^ (z >> 31)) % n;
}

int
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

void
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

void
server_end(int sig)
{
	int status;

	REQUIRE(kill(rig.server, sig) == 0);
	REQUIRE(waitpid(rig.server, &status, 0) == rig.server);
}

void
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

uint8_t *
page_at(const struct engine *engine, uint32_t p, int64_t id)
{
	return (uint8_t *)engine->planes[p].base + (uint64_t)id * engine->planes[p].stride;
}

void
fill(uint32_t rank, int64_t id, uint32_t prompt, uint64_t block)
{
	static uint8_t bytes[1 << 17];

	for (uint32_t p = 0; p < N_PLANES; p++) {
		const struct scout_plane *plane = &rig.engines[rank].planes[p];

		bytes_of(bytes, prompt, rank, block, p, plane->block_bytes);
		CUDA(gpu_write(page_at(&rig.engines[rank], p, id), bytes, plane->block_bytes));
	}
}

bool
plane_is(uint32_t rank, uint32_t p, int64_t id, uint32_t prompt, uint64_t block)
{
	static uint8_t bytes[1 << 17], now[1 << 17];
	uint64_t n = rig.engines[rank].planes[p].block_bytes;

	bytes_of(bytes, prompt, rank, block, p, n);
	CUDA(gpu_read(now, page_at(&rig.engines[rank], p, id), n));
	return memcmp(now, bytes, n) == 0;
}

bool
page_is(uint32_t rank, int64_t id, uint32_t prompt, uint64_t block)
{
	for (uint32_t p = 0; p < N_PLANES; p++)
		if (!plane_is(rank, p, id, prompt, block))
			return false;
	return true;
}

bool
page_holds(uint32_t rank, int64_t id, uint8_t value)
{
	static uint8_t now[1 << 17];

	for (uint32_t p = 0; p < N_PLANES; p++) {
		uint64_t n = rig.engines[rank].planes[p].stride;

		CUDA(gpu_read(now, page_at(&rig.engines[rank], p, id), n));
		for (uint64_t b = 0; b < n; b++)
			if (now[b] != value)
				return false;
	}
	return true;
}

void
pages_wipe(uint32_t rank)
{
	for (uint32_t p = 0; p < N_PLANES; p++)
		CUDA(gpu_set(rig.engines[rank].planes[p].base, CANARY, rig.engines[rank].planes[p].stride * N_PAGES));
}

void
pages_init(uint32_t rank, void *(*alloc)(uint64_t bytes))
{
	static const uint64_t bytes[N_PLANES] = {4096, 1000, 65536}, padding[N_PLANES] = {0, 24, 0};

	for (uint32_t p = 0; p < N_PLANES; p++) {
		struct scout_plane *plane = &rig.engines[rank].planes[p];

		plane->block_bytes = bytes[p];
		plane->stride = bytes[p] + padding[p];
		plane->base = alloc(plane->stride * N_PAGES);
	}
	pages_wipe(rank);
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
	cfg.group = rig.group;
	REQUIRE(scout_client_new(&cfg, &rig.client, err, sizeof(err)) == 0);
	REQUIRE(scout_client_wait_ready(rig.client, DEADLINE_MS, err, sizeof(err)) == 0);
}

struct scout_worker *
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
	cfg.group = rig.group;
	cfg.backend = backend;
	cfg.copy_method = method;
	cfg.log = gpu_say;
	rc = scout_worker_new(&cfg, &worker, err, sizeof(err));
	if (rc)
		printf("# worker: %s: %s\n", scout_err_name(rc), err);
	REQUIRE(rc == 0);
	return worker;
}

void
worker_register(uint32_t rank)
{
	struct scout_table layout = {
		.block_tokens = BLOCK_TOKENS,
		.n_planes = N_PLANES,
		.planes = rig.engines[rank].planes,
		.n_blocks = N_PAGES,
		.null_block = 0,
	};
	char err[400] = "";
	int rc = scout_worker_register(rig.engines[rank].worker, &layout, 1, DEADLINE_MS, err, sizeof(err));

	if (rc)
		printf("# register: %s: %s\n", scout_err_name(rc), err);
	REQUIRE(rc == 0);
}

void
start_server_and_client(void)
{
	snprintf(rig.folder, sizeof(rig.folder), "/tmp/kvscout-gpu-XXXXXX");
	REQUIRE(mkdtemp(rig.folder));
	snprintf(rig.endpoint, sizeof(rig.endpoint), "ipc://%s/s", rig.folder);
	server_start();
	client_start();
}

void
start(const char *backend, const char *method, void *(*alloc)(uint64_t bytes))
{
	start_server_and_client();
	for (uint32_t r = 0; r < rig.ranks; r++) {
		pages_init(r, alloc);
		rig.engines[r].worker = worker_new(r, backend, method);
		worker_register(r);
	}
}

void
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

void
hashes_of(uint8_t *hashes, uint32_t prompt)
{
	for (uint64_t c = 0; c < CHUNKS; c++)
		bytes_of(hashes + c * HASH, prompt, 77, c, 0, HASH);
}

void
ids_from(int64_t *ids, int64_t first, int64_t step)
{
	for (int64_t b = 0; b < BLOCKS; b++)
		ids[b] = first + b * step;
}

struct scout_done
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

uint64_t
submit_store(uint32_t rank, uint32_t prompt, const int64_t *ids, struct scout_store store)
{
	uint8_t hashes[CHUNKS * HASH];
	uint64_t job = 0;

	hashes_of(hashes, prompt);
	store.hashes = hashes;
	store.hash_len = HASH;
	store.n = CHUNKS;
	store.blocks = &(struct scout_blocks){.ids = ids, .n = BLOCKS};
	store.n_groups = 1;
	REQUIRE(scout_worker_store(rig.engines[rank].worker, &store, &job) == 0);
	return job;
}

void
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

struct scout_hit
look_up(uint32_t prompt)
{
	uint8_t hashes[CHUNKS * HASH];
	char id[32];
	struct scout_query lookup = {
		.id = id, .hashes = hashes, .hash_len = HASH, .n = CHUNKS, .prompt_tokens = CHUNKS * CHUNK_TOKENS + 1};
	struct scout_hit hit;

	hashes_of(hashes, prompt);
	snprintf(id, sizeof(id), "r%u", rig.next_id++);
	REQUIRE(scout_wait_lookup(rig.client, &lookup, &hit) == 0);
	return hit;
}

uint64_t
submit_retrieve(uint32_t rank, uint64_t ticket, const int64_t *ids, struct scout_retrieve retrieve)
{
	uint64_t job = 0;

	retrieve.ticket = ticket;
	retrieve.to_token = CHUNKS * CHUNK_TOKENS;
	retrieve.blocks = &(struct scout_blocks){.ids = ids, .n = BLOCKS};
	retrieve.n_groups = 1;
	REQUIRE(scout_worker_retrieve(rig.engines[rank].worker, &retrieve, &job) == 0);
	return job;
}

void
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

void
retrieve_all(uint32_t prompt, int64_t first, int64_t step)
{
	struct scout_hit hit = look_up(prompt);
	int64_t ids[BLOCKS];

	REQUIRE(hit.chunks == CHUNKS);
	ids_from(ids, first, step);
	for (uint32_t r = 0; r < rig.ranks; r++) {
		struct scout_done done =
			wait_done(r, submit_retrieve(r, hit.ticket, ids, (struct scout_retrieve){.ticket = 0}));

		REQUIRE(done.status == 0 && done.n_missing == 0);
		require_filled(r, prompt, ids, &done);
	}
}
