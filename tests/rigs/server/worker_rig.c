/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include "assert_rc.h"
#include "checked_fork.h"
#include "worker_internal.h"

static void
rig_server_main(const struct rig *rig, int go_fd, int ready_fd)
{
	struct scout_server_config cfg;
	struct scout_server *server;
	char err[256] = "", c;
	sigset_t set;
	int sig;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (read(go_fd, &c, 1) != 1)
		_exit(0);
	scout_server_config_init(&cfg);
	cfg.listen = rig->endpoint;
	cfg.l1_bytes = rig->l1_bytes;
	cfg.extent_bytes = rig->extent_bytes;
	cfg.prealloc = rig->prealloc;
	if (scout_server_start(&cfg, &server, err, sizeof(err)) != 0) {
		fprintf(stderr, "server: %s\n", err);
		_exit(1);
	}
	if (write(ready_fd, "!", 1) != 1)
		_exit(1);
	(void)sigwait(&set, &sig);
	scout_server_stop(server);
	_exit(0);
}

/* All processes are forked before this one has threads: a forked copy of a process with threads may not do much. */
static void
rig_server_fork(struct rig *rig, struct rig_process *process)
{
	int go[2], ready[2];

	ck_assert_int_eq(pipe(go), 0);
	ck_assert_int_eq(pipe(ready), 0);
	process->pid = checked_fork();
	if (process->pid == 0) {
		(void)close(go[1]);
		(void)close(ready[0]);
		for (struct rig_process *other = rig->spare; other < process; other++)
			(void)close(other->go_fd);
		rig_server_main(rig, go[0], ready[1]);
	}
	(void)close(go[0]);
	(void)close(ready[1]);
	process->go_fd = go[1];
	process->ready_fd = ready[0];
}

void
rig_server_start(struct rig *rig)
{
	struct rig_process *process = &rig->spare[rig->n_started++];
	char c;

	ck_assert_uint_le(rig->n_started, RIG_SERVERS);
	ck_assert_int_eq(write(process->go_fd, "!", 1), 1);
	ck_assert_msg(read(process->ready_fd, &c, 1) == 1, "the server did not start");
	rig->server = process->pid;
}

/* Let go of those that never became a server. */
static void
rig_server_dismiss(struct rig *rig)
{
	int status;

	for (uint32_t i = 0; i < RIG_SERVERS; i++) {
		if (rig->spare[i].pid == 0)
			continue;
		(void)close(rig->spare[i].go_fd);
		(void)close(rig->spare[i].ready_fd);
		if (i >= rig->n_started)
			(void)waitpid(rig->spare[i].pid, &status, 0);
	}
}

void
rig_server_end(struct rig *rig, int sig)
{
	int status;

	if (rig->server <= 0)
		return;
	(void)kill(rig->server, sig);
	(void)kill(rig->server, SIGCONT);
	(void)waitpid(rig->server, &status, 0);
	rig->server = 0;
}

void
rig_server_freeze(struct rig *rig)
{
	int status;

	ck_assert_int_eq(kill(rig->server, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(rig->server, &status, WUNTRACED), rig->server);
	ck_assert(WIFSTOPPED(status));
}

void
rig_server_thaw(struct rig *rig)
{
	ck_assert_int_eq(kill(rig->server, SIGCONT), 0);
}

uint32_t
rig_transport(void)
{
	return getenv("KVSCOUT_TEST_SOCKET") ? SCOUT_LOCAL_SOCKET : SCOUT_LOCAL_SHM;
}

void
rig_client_start(struct rig *rig)
{
	struct scout_client_config cfg;
	char err[256] = "";
	int rc;

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 60000; /* a busy machine is no reason for a miss */
	cfg.endpoint = rig->endpoint;
	cfg.name_space = "rig";
	cfg.chunk_tokens = rig->chunk_tokens;
	cfg.kv_ranks = rig->kv_ranks;
	cfg.readers = rig->readers;
	cfg.weights_version = rig->weights;
	cfg.local_transport = rig_transport();
	rc = scout_client_new(&cfg, &rig->client, err, sizeof(err));
	ck_assert_msg(rc == 0, "client: %s", err);
	rc = scout_client_wait_ready(rig->client, wait_limit_ms(), err, sizeof(err));
	ck_assert_msg(rc == 0, "client: %s: %s", scout_err_name(rc), err);
}

void
rig_log(void *user, int level, const char *text)
{
	(void)user;
	if (getenv("RIG_LOG"))
		fprintf(stderr, "[%d] %s\n", level, text);
}

void
rig_worker_config(const struct rig *rig, uint32_t i, struct scout_worker_config *cfg)
{
	scout_worker_config_init(cfg);
	cfg->endpoint = rig->endpoint;
	cfg->name_space = "rig";
	cfg->chunk_tokens = rig->chunk_tokens;
	cfg->kv_ranks = rig->kv_ranks;
	cfg->kv_rank = i / rig->readers;
	cfg->readers = rig->readers;
	cfg->reader = i % rig->readers;
	cfg->max_jobs = rig->max_jobs;
	cfg->transfer_timeout_ms = rig->transfer_timeout_ms;
	cfg->heartbeat_ms = rig->heartbeat_ms;
	cfg->weights_version = rig->weights;
	cfg->log = rig_log;
	cfg->local_transport = rig_transport();
}

void
rig_table(const struct rig *rig, const struct rig_pages *pages, struct scout_table *layout)
{
	*layout = (struct scout_table){
		.block_tokens = rig->block_tokens,
		.n_planes = pages->n_planes,
		.planes = pages->planes,
		.n_blocks = pages->n_blocks,
		.null_block = 0,
	};
}

struct scout_worker *
rig_worker_new(const struct rig *rig, uint32_t i)
{
	struct scout_worker_config cfg;
	struct scout_worker *worker = NULL;
	char err[256] = "";
	int rc;

	rig_worker_config(rig, i, &cfg);
	rc = scout_worker_new(&cfg, &worker, err, sizeof(err));
	ck_assert_msg(rc == 0, "worker: %s: %s", scout_err_name(rc), err);
	return worker;
}

void
rig_worker_start(struct rig *rig, uint32_t i)
{
	struct scout_table layout;
	char err[512] = "";
	int rc;

	rig->workers[i] = rig_worker_new(rig, i);
	rig_table(rig, &rig->pages[i], &layout);
	rc = scout_worker_register(rig->workers[i], &layout, 1, wait_limit_ms(), err, sizeof(err));
	ck_assert_msg(rc == 0, "register %u: %s: %s", (unsigned)i, scout_err_name(rc), err);
}

void
rig_init(struct rig *rig)
{
	memset(rig, 0, sizeof(*rig));
	rig->chunk_tokens = 64;
	rig->block_tokens = 16;
	rig->kv_ranks = 1;
	rig->readers = 1;
	rig->l1_bytes = 8u << 20;
	rig->extent_bytes = 1u << 20;
}

void
rig_start_server(struct rig *rig)
{
	snprintf(rig->folder, sizeof(rig->folder), "/tmp/kvscout-rig-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(rig->folder));
	snprintf(rig->endpoint, sizeof(rig->endpoint), "ipc://%s/s", rig->folder);
	rig->n_workers = rig->kv_ranks * rig->readers;
	rig->bpc = rig->chunk_tokens / rig->block_tokens;
	for (uint32_t i = 0; i < RIG_SERVERS; i++)
		rig_server_fork(rig, &rig->spare[i]);
	rig_server_start(rig);
}

void
rig_start(struct rig *rig)
{
	static const uint64_t bytes[2] = {61, 129}, padding[2] = {3, 0};

	rig_start_server(rig);
	rig_client_start(rig);
	for (uint32_t i = 0; i < rig->n_workers; i++) {
		if (rig->pages[i].n_planes == 0)
			rig_pages_init(&rig->pages[i], 2, bytes, padding, 512);
		rig_worker_start(rig, i);
	}
}

void
rig_stop(struct rig *rig)
{
	char path[160];

	scout_client_free(rig->client);
	for (uint32_t i = 0; i < RIG_MAX_WORKERS; i++) {
		scout_worker_free(rig->workers[i]);
		rig_pages_fini(&rig->pages[i]);
	}
	rig_server_end(rig, SIGTERM);
	rig_server_dismiss(rig);
	/* What a killed server left. */
	snprintf(path, sizeof(path), "%s/s", rig->folder);
	(void)unlink(path);
	snprintf(path, sizeof(path), "%s/s.lease", rig->folder);
	(void)unlink(path);
	snprintf(path, sizeof(path), "%s/s.lock", rig->folder);
	(void)unlink(path);
	(void)rmdir(rig->folder);
}

struct scout_done
rig_wait(struct scout_worker *worker, uint64_t job)
{
	struct scout_done done;
	int n;

	wait_until((n = scout_worker_poll(worker, &done, 1)) != 0) {
		struct pollfd pfd = {.fd = scout_worker_fd(worker), .events = POLLIN};

		(void)poll(&pfd, 1, 100);
	}
	ck_assert_msg(n == 1, "%s", scout_err_name(n));
	ck_assert_msg(job == 0 || done.job == job, "another job ended");
	return done;
}

void
rig_wait_enqueued(const struct scout_worker *worker, uint64_t job)
{
	const struct scout__job *slot = &worker->jobs[job & (SCOUT__MAX_JOBS - 1)];

	wait_until(atomic_load(&slot->phase) == SCOUT__PHASE_ENQUEUED)
		;
}

void
rig_wait_layers(struct scout_worker *worker, uint64_t job, uint32_t enqueued)
{
	struct scout_progress progress = {0};

	wait_until(progress.enqueued >= enqueued)
		assert_ok(scout_worker_progress(worker, job, &progress));
}

bool
rig_is_readable(struct scout_worker *worker)
{
	struct pollfd pfd = {.fd = scout_worker_fd(worker), .events = POLLIN};

	return poll(&pfd, 1, 0) == 1;
}

uint64_t
rig_store(struct rig *rig, uint32_t w, uint32_t prompt, size_t n, int64_t first_id)
{
	uint8_t *hashes = rig_hashes(prompt, n);
	int64_t *ids = rig_ids(first_id, 1, n * rig->bpc);
	struct scout_store store = {
		.hashes = hashes,
		.hash_len = RIG_HASH,
		.n = n,
		.blocks = &(struct scout_blocks){.ids = ids, .n = n * rig->bpc},
		.n_groups = 1,
	};
	uint64_t job = 0;
	int rc;

	for (size_t b = 0; b < n * rig->bpc; b++)
		rig_fill(&rig->pages[w], ids[b], prompt, w / rig->readers, b);
	rc = scout_worker_store(rig->workers[w], &store, &job);
	ck_assert_msg(rc == 0, "store: %s", scout_err_name(rc));
	free(hashes);
	free(ids);
	return job;
}

struct scout_done
rig_store_until(struct rig *rig, uint32_t w, uint32_t prompt, size_t n, int64_t first_id, int status)
{
	struct scout_done done;

	wait_until((done = rig_wait(rig->workers[w], rig_store(rig, w, prompt, n, first_id))).status == status)
		ck_assert_msg(done.status == SCOUT_ERR_UNREACHABLE || done.status == SCOUT_ERR_EPOCH, "%s",
			      scout_err_name(done.status));
	return done;
}

void
rig_store_all(struct rig *rig, uint32_t prompt, size_t n, int64_t first_id)
{
	uint32_t readable = 0;

	for (uint32_t w = 0; w < rig->n_workers; w++) {
		struct scout_done done = rig_wait(rig->workers[w], rig_store(rig, w, prompt, n, first_id));

		assert_ok(done.status);
		ck_assert_int_eq(done.kind, SCOUT_JOB_STORE);
		ck_assert_uint_eq(done.no_room, 0);
		readable += done.chunks;
	}
	ck_assert_uint_ge(readable, n);
}

struct scout_hit
rig_lookup(struct rig *rig, uint32_t prompt, size_t n, char id[32])
{
	uint8_t *hashes = rig_hashes(prompt, n);
	struct scout_query lookup = {
		.id = id,
		.hashes = hashes,
		.hash_len = RIG_HASH,
		.n = n,
		.prompt_tokens = n * rig->chunk_tokens + 1,
	};
	struct scout_hit hit;
	int rc;

	snprintf(id, 32, "r%u", rig->next_id++);
	rc = scout_wait_lookup(rig->client, &lookup, &hit);
	ck_assert_msg(rc == 0, "lookup: %s", scout_err_name(rc));
	free(hashes);
	return hit;
}

uint64_t
rig_retrieve(struct rig *rig, uint32_t w, uint64_t ticket, uint64_t from_block, const int64_t *ids, size_t n,
	     size_t skip)
{
	struct scout_retrieve retrieve = {
		.ticket = ticket,
		.from_token = (from_block + skip) * rig->block_tokens,
		.to_token = (from_block + n) * rig->block_tokens,
		.blocks = &(struct scout_blocks){.first_token = from_block * rig->block_tokens, .ids = ids, .n = n},
		.n_groups = 1,
	};
	uint64_t job = 0;
	int rc = scout_worker_retrieve(rig->workers[w], &retrieve, &job);

	ck_assert_msg(rc == 0, "retrieve: %s", scout_err_name(rc));
	return job;
}
