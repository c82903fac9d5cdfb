/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "copy_backends.h"
#include "cpus.h"
#include "lazy.h"
#include "numa.h"

/*
 * DESIGN
 *
 * Purpose: the life of a worker, on the caller's thread: new, register, free.
 *
 * The courier starts before the pages are known, the copy engine with them. So the courier is given an epoll
 * descriptor to wait on, and the engine's own goes into that one when it is opened.
 *
 * scout_worker_register() leaves no trace when it is refused: it takes the registration back from the courier and waits
 * until the courier has let go of the engine (the courier never blocks, so that is short), and only then closes it.
 * Otherwise the courier goes on with it, see worker_register.c.
 *
 * free() after fork: the child has neither the courier nor the engine's threads. It frees nothing; the memory goes
 * with it.
 */

/* Words in the ring at once: each live job once, and the five others. */
#define EXTRA_WORDS 8u

/* In the copy engine at once; its rings have room for so many. Further jobs wait in the worker. */
#define MAX_BATCHES 4096u

/* ---- new ---- */

static int
open_descriptors(struct scout_worker *w, char *err, size_t err_len)
{
	w->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->done_fd >= 0)
		w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (w->done_fd < 0 || w->epoll_fd < 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "cannot make a descriptor (%s)",
				   scout__errno_text(errno));
	return 0;
}

static int
allocate_slots(struct scout_worker *w)
{
	uint32_t n = w->cfg.max_jobs;

	TAILQ_INIT(&w->live_jobs);
	w->jobs = scout__lazy_alloc(n * sizeof(*w->jobs));
	w->free_slots = scout__lazy_alloc(n * sizeof(*w->free_slots));
	w->records = scout__lazy_alloc((size_t)n * 2 * sizeof(*w->records));
	if (!w->jobs || !w->free_slots || !w->records || scout__ring_init(&w->done, n) != 0)
		return SCOUT_ERR_NOMEM;
	return 0;
}

static int
init_sync(struct scout_worker *w)
{
	pthread_condattr_t attr;

	if (pthread_condattr_init(&attr) != 0)
		return SCOUT_ERR_NOMEM;
	/* Both are there in every kernel and libc that we run on. */
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_mutex_init(&w->mu, NULL);
	(void)pthread_cond_init(&w->cond, &attr);
	(void)pthread_condattr_destroy(&attr);
	return 0;
}

static int
start_courier(struct scout_worker *w, char *err, size_t err_len)
{
	const struct scout_worker_config *cfg = &w->cfg;
	const char *endpoint = cfg->endpoint;
	struct scout__hello hello = {
		.role = SCOUT_ROLE_WORKER,
		.hash_bytes = (uint16_t)cfg->hash_bytes,
		.chunk_tokens = cfg->chunk_tokens,
		.rank_first = (uint16_t)cfg->rank_first,
		.rank_count = (uint16_t)cfg->rank_count,
		.kv_ranks = (uint16_t)cfg->kv_ranks,
		.readers = (uint16_t)cfg->readers,
		.heartbeat_ms = cfg->heartbeat_ms,
		.weights = cfg->weights_version,
		.name_space = {.p = cfg->name_space, .len = (uint16_t)strlen(cfg->name_space)},
	};
	struct scout__courier_config courier = {
		.ops = &scout__worker_courier_ops,
		.user = w,
		.name = "scout-worker",
		.log = &w->log,
		.ring_words = cfg->max_jobs + EXTRA_WORDS,
		.user_fd = w->epoll_fd,
		.spin_us = cfg->spin_us,
		.heartbeat_ms = cfg->heartbeat_ms,
		.connect_timeout_ms = cfg->connect_timeout_ms,
		.endpoints = &endpoint,
		.n_links = 1,
		.hello = &hello,
		.curve_secret_file = cfg->curve_secret_file,
		.curve_server_key = cfg->curve_server_key,
		.shm = cfg->local_transport == SCOUT_LOCAL_SHM,
	};

	return scout__courier_new(&courier, &w->courier, err, err_len);
}

static int
start_courier_on_cpus(struct scout_worker *w, char *err, size_t err_len)
{
	struct scout__cpus_scope cpus;
	int rc = scout__cpus_enter(&cpus, w->cfg.cpus, NULL, err, err_len);

	if (rc)
		return rc;
	rc = start_courier(w, err, err_len);
	scout__cpus_leave(&cpus);
	return rc;
}

/* Everything but the courier; also for a half-built worker. */
static void
destroy(struct scout_worker *w)
{
	scout__worker_free_jobs(w);
	/* Before the engine: it is told of the end of each mapping. */
	scout__mappings_fini(&w->mappings);
	if (w->engine)
		w->copy->close(w->engine);
	if (w->done_fd >= 0)
		(void)close(w->done_fd);
	if (w->epoll_fd >= 0)
		(void)close(w->epoll_fd);
	if (w->done.buffer)
		scout__ring_fini(&w->done);
	(void)pthread_cond_destroy(&w->cond);
	(void)pthread_mutex_destroy(&w->mu);
	free(w->planes);
	free(w->marks);
	scout__lazy_free(w->uses, w->layout.n_blocks * sizeof(*w->uses));
	scout__lazy_free(w->jobs, w->cfg.max_jobs * sizeof(*w->jobs));
	scout__lazy_free(w->free_slots, w->cfg.max_jobs * sizeof(*w->free_slots));
	scout__lazy_free(w->records, (size_t)w->cfg.max_jobs * 2 * sizeof(*w->records));
	scout_worker_config_fini(&w->cfg);
	free(w);
}

/*
 * What copies. "auto" is host until register() knows the pages. Until then nothing of CUDA is called: initialising it here
 * would leave every process without it that is forked before the pages are made.
 */
static int
choose_backend(struct scout_worker *w, char *err, size_t err_len)
{
	if (strcmp(w->cfg.backend, "auto") != 0) {
		w->copy = scout__copy_find(w->cfg.backend);
		if (!w->copy)
			return scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED, "backend \"%s\" is not in this build",
					   w->cfg.backend);
		return w->copy->probe(w->cfg.device, err, err_len);
	}
	w->copy = &scout__copy_host;
	w->may_use_cuda = scout__copy_find("cuda") != NULL;
	return 0;
}

/* The configuration is accepted: build the rest. On error destroy() cleans up. */
static int
build(struct scout_worker *w, char *err, size_t err_len)
{
	int rc;

	(void)snprintf(w->who, sizeof(w->who), "worker %u.%u", (unsigned)w->cfg.kv_rank, (unsigned)w->cfg.reader);
	w->log = (struct scout__log){.fn = w->cfg.log, .user = w->cfg.log_user, .who = w->who, .gate = &w->log_gate};
	scout__mappings_init(&w->mappings, &w->log);
	rc = choose_backend(w, err, err_len);
	if (rc)
		return rc;
	rc = allocate_slots(w);
	if (rc)
		return scout__fail(err, err_len, rc, "no memory for %u jobs", (unsigned)w->cfg.max_jobs);
	scout__transfer_init(w);
	w->version = w->cfg.weights_version;
	w->adopt.version = w->version; /* the first HELLO says it */
	rc = open_descriptors(w, err, err_len);
	if (rc)
		return rc;
	return start_courier_on_cpus(w, err, err_len);
}

int
scout_worker_new(const struct scout_worker_config *cfg, struct scout_worker **ret_worker, char *err, size_t err_len)
{
	struct scout_worker *w;
	int rc;

	if (!cfg || !ret_worker)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "cfg or ret_worker is NULL");
	w = calloc(1, sizeof(*w));
	if (!w)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	w->done_fd = -1;
	w->epoll_fd = -1;
	w->next_seq = 1;
	rc = scout__worker_config_accept(&w->cfg, cfg, err, err_len);
	if (rc)
		goto err_free;
	rc = init_sync(w);
	if (rc) {
		scout_worker_config_fini(&w->cfg);
		goto err_free;
	}
	rc = build(w, err, err_len);
	if (rc) {
		destroy(w);
		return rc;
	}
	scout__live_add(&w->live);
	*ret_worker = w;
	return 0;

err_free:
	free(w);
	return rc;
}

void
scout_worker_free(struct scout_worker *w)
{
	if (!w || !scout__live_take(&w->live) || scout__courier_forked(w->courier))
		return;
	scout__courier_free(w->courier);
	destroy(w);
}

/* ---- register ---- */

static int
check_planes(const struct scout_layout *layout, char *err, size_t err_len)
{
	for (uint32_t i = 0; i < layout->n_planes; i++) {
		const struct scout_plane *plane = &layout->planes[i];
		uint64_t end;

		if (!plane->base || plane->block_bytes == 0 || plane->stride < plane->block_bytes)
			return scout__fail(err, err_len, SCOUT_ERR_INVALID,
					   "planes[%u]: base must be set, block_bytes not 0, stride not below it",
					   (unsigned)i);
		if (__builtin_mul_overflow(plane->stride, layout->n_blocks, &end) ||
		    __builtin_add_overflow(end, (uint64_t)(uintptr_t)plane->base, &end))
			return scout__fail(err, err_len, SCOUT_ERR_INVALID,
					   "planes[%u]: stride * n_blocks is beyond the address space", (unsigned)i);
	}
	return 0;
}

static int
check_layout(const struct scout_worker *w, const struct scout_layout *layout, char *err, size_t err_len)
{
	if (!layout)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "layout is NULL");
	if (layout->size != sizeof(*layout))
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "layout.size is %u, not sizeof(struct scout_layout)", (unsigned)layout->size);
	if (layout->dtype > SCOUT_DTYPE_LAST)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "layout.dtype %u is unknown",
				   (unsigned)layout->dtype);
	if (layout->block_tokens == 0 || w->cfg.chunk_tokens % layout->block_tokens != 0)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "layout.block_tokens %u: chunk_tokens %u must be a multiple",
				   (unsigned)layout->block_tokens, (unsigned)w->cfg.chunk_tokens);
	if (layout->n_planes == 0 || layout->n_planes > SCOUT_MAX_PLANES || !layout->planes)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "layout.n_planes %u: 1..%u, with planes",
				   (unsigned)layout->n_planes, (unsigned)SCOUT_MAX_PLANES);
	if (layout->n_blocks == 0 || layout->n_blocks > INT64_MAX)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "layout.n_blocks must be 1 or more");
	if (layout->null_block >= 0 && (uint64_t)layout->null_block >= layout->n_blocks)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "layout.null_block %lld is no block",
				   (long long)layout->null_block);
	return check_planes(layout, err, err_len);
}

static void
drop_layout(struct scout_worker *w)
{
	if (w->engine)
		w->copy->close(w->engine);
	w->engine = NULL;
	free(w->planes);
	free(w->marks);
	scout__lazy_free(w->uses, w->layout.n_blocks * sizeof(*w->uses));
	w->planes = NULL;
	w->marks = NULL;
	w->uses = NULL;
}

/* Shard bytes fit into 64 bits. */
static int
measure(struct scout_worker *w, char *err, size_t err_len)
{
	uint64_t sum = 0;
	uint64_t bytes;

	for (uint32_t i = 0; i < w->layout.n_planes; i++)
		if (__builtin_add_overflow(sum, w->planes[i].block_bytes, &sum))
			return scout__fail(err, err_len, SCOUT_ERR_INVALID, "the planes' block_bytes overflow");
	if (__builtin_mul_overflow(sum, (uint64_t)w->layout.blocks_per_chunk, &bytes))
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "the planes' block_bytes overflow");
	w->shard_bytes = bytes;
	return 0;
}

static int
take_layout(struct scout_worker *w, const struct scout_layout *layout, char *err, size_t err_len)
{
	w->planes = calloc(layout->n_planes, sizeof(*w->planes));
	w->marks = calloc((size_t)(layout->n_blocks / 64 + 1), sizeof(*w->marks));
	if (!w->planes || !w->marks)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	for (uint32_t i = 0; i < layout->n_planes; i++)
		w->planes[i] = (struct scout__copy_plane){
			.base = layout->planes[i].base,
			.stride = layout->planes[i].stride,
			.block_bytes = layout->planes[i].block_bytes,
		};
	w->layout = (struct scout__copy_layout){
		.planes = w->planes,
		.n_planes = layout->n_planes,
		.blocks_per_chunk = w->cfg.chunk_tokens / layout->block_tokens,
		.n_blocks = layout->n_blocks,
	};
	if (layout->n_blocks <= SIZE_MAX / sizeof(*w->uses))
		w->uses = scout__lazy_alloc(layout->n_blocks * sizeof(*w->uses));
	if (!w->uses)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	w->block_tokens = layout->block_tokens;
	w->dtype = (uint16_t)layout->dtype;
	w->null_block = layout->null_block;
	return measure(w, err, err_len);
}

static int
open_engine(struct scout_worker *w, char *err, size_t err_len)
{
	struct scout__copy_config cfg = {
		.layout = w->layout,
		.max_batches = w->cfg.max_jobs < MAX_BATCHES ? w->cfg.max_jobs : MAX_BATCHES,
		.device = w->cfg.device,
		.priority = -(int32_t)w->cfg.copy_priority, /* CUDA counts downwards */
		.method = w->cfg.copy_method,
		.stage_bytes = w->cfg.stage_bytes,
		.log = &w->log,
	};
	struct epoll_event event = {.events = EPOLLIN};
	int rc;

	if (w->may_use_cuda)
		w->copy = scout__copy_find("cuda");
	if (w->may_use_cuda && !w->copy->claims(&w->layout)) {
		w->copy = &scout__copy_host;
		scout__log(&w->log, SCOUT_LOG_INFO,
			   "the pages are not memory of a CUDA device: copying with the host backend");
	}
	rc = w->copy->open(&cfg, &w->engine, err, err_len);
	if (rc)
		return rc;
	/* The registration goes when the engine closes its descriptor. */
	if (epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->copy->fd(w->engine), &event) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "epoll_ctl failed (%s)", scout__errno_text(errno));
	return 0;
}

/* On the node of the pages, where `cpus` says auto. The courier follows when it hears of them. */
static int
open_engine_on_cpus(struct scout_worker *w, char *err, size_t err_len)
{
	struct scout__cpus_scope cpus;
	int rc;

	(void)scout__numa_parse(w->cfg.numa_node, "", &w->numa); /* was checked at the start */
	w->has_node_cpus = w->numa > 0 && scout__numa_cpus(w->numa, "", &w->node_cpus);
	rc = scout__cpus_enter(&cpus, w->cfg.cpus, w->has_node_cpus ? &w->node_cpus : NULL, err, err_len);
	if (rc)
		return rc;
	rc = open_engine(w, err, err_len);
	scout__cpus_leave(&cpus);
	return rc;
}

static void
post(struct scout_worker *w, uint64_t word)
{
	bool pushed = scout__courier_push(w->courier, word);

	SCOUT_ASSERT(pushed); /* EXTRA_WORDS */
	(void)scout__courier_ring(w->courier);
}

static void
deadline_in(struct timespec *ts, uint32_t timeout_ms)
{
	(void)clock_gettime(CLOCK_MONOTONIC, ts);
	ts->tv_sec += timeout_ms / 1000;
	ts->tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (ts->tv_nsec >= 1000000000) {
		ts->tv_sec++;
		ts->tv_nsec -= 1000000000;
	}
}

/*
 * Wait until the courier has spoken, or the time is over. Returns 0, SCOUT_ERR_TIMEOUT (it goes on), or why we were refused.
 */
static int
wait_registered(struct scout_worker *w, uint32_t timeout_ms, char *err, size_t err_len)
{
	struct timespec until;
	int rc = 0;

	deadline_in(&until, timeout_ms);
	(void)pthread_mutex_lock(&w->mu);
	while (w->reg == SCOUT__REG_WANTED && rc == 0)
		rc = pthread_cond_timedwait(&w->cond, &w->mu, &until);
	if (w->reg == SCOUT__REG_OK)
		rc = 0;
	else if (w->reg == SCOUT__REG_FAILED)
		rc = scout__fail(err, err_len, w->reg_code, "%s", w->reg_text);
	else
		rc = scout__fail(err, err_len, SCOUT_ERR_TIMEOUT,
				 "%s: not registered within %u ms%s%s; goes on in the background", w->cfg.endpoint,
				 (unsigned)timeout_ms, w->down_code ? ": " : "", w->down_code ? w->down_text : "");
	(void)pthread_mutex_unlock(&w->mu);
	return rc;
}

/* Take the registration back; afterwards the courier does not know the engine any more. */
static void
take_back(struct scout_worker *w)
{
	(void)pthread_mutex_lock(&w->mu);
	w->reg = SCOUT__REG_WANTED;
	(void)pthread_mutex_unlock(&w->mu);
	post(w, SCOUT__WORD_FORGET);
	(void)pthread_mutex_lock(&w->mu);
	while (w->reg != SCOUT__REG_NONE)
		(void)pthread_cond_wait(&w->cond, &w->mu);
	(void)pthread_mutex_unlock(&w->mu);
}

int
scout_worker_register(struct scout_worker *w, const struct scout_layout *layout, uint32_t timeout_ms, char *err,
		      size_t err_len)
{
	int rc;

	if (!w)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "worker is NULL");
	if (scout__courier_forked(w->courier))
		return scout__fail(err, err_len, SCOUT_ERR_FORKED, "%s", scout_strerror(SCOUT_ERR_FORKED));
	if (w->registered)
		return scout__fail(err, err_len, SCOUT_ERR_STATE, "the worker is registered already");
	rc = check_layout(w, layout, err, err_len);
	if (rc)
		return rc;
	rc = take_layout(w, layout, err, err_len);
	if (rc == 0)
		rc = open_engine_on_cpus(w, err, err_len);
	if (rc)
		goto err_drop;
	(void)pthread_mutex_lock(&w->mu);
	w->reg = SCOUT__REG_WANTED;
	(void)pthread_mutex_unlock(&w->mu);
	post(w, SCOUT__WORD_REGISTER);
	rc = timeout_ms ? wait_registered(w, timeout_ms, err, err_len) : 0;
	if (rc && rc != SCOUT_ERR_TIMEOUT) {
		take_back(w);
		goto err_drop;
	}
	w->registered = true;
	return rc;

err_drop:
	drop_layout(w);
	return rc;
}

void
scout_worker_log_off(struct scout_worker *worker)
{
	/* A child's copy of the gate may count a call that only the parent will end. */
	if (worker && !scout__courier_forked(worker->courier))
		scout__log_shut(&worker->log_gate);
}
