/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "copy_backends.h"
#include "cpus.h"
#include "cuda_engine.h"
#include "instance_paths.h"
#include "lazy.h"
#include "group_list.h"

/*
 * DESIGN
 *
 * Purpose: the life of a worker, on the caller's thread: new and free.
 *
 * free() after fork: the child has neither the courier nor the engine's threads. The child frees nothing; its memory
 * ends with it.
 */

/* Words in the ring at once: one for each live job, and the six others (scout__worker_post()). */
#define EXTRA_WORDS 8u

/* ---- new ---- */

static int
open_descriptors(struct scout_worker *w, char *err, size_t err_len)
{
	struct epoll_event event = {.events = EPOLLIN};

	w->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->done_fd >= 0)
		w->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (w->done_fd < 0 || w->epoll_fd < 0 || scout__mappings_init(&w->mappings, &w->log) != 0 ||
	    epoll_ctl(w->epoll_fd, EPOLL_CTL_ADD, w->mappings.fd, &event) != 0)
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
		.hash_tokens = cfg->hash_tokens,
		.weights = cfg->weights_version,
		.name_space = {.p = cfg->name_space, .len = (uint16_t)strlen(cfg->name_space)},
	};
	const struct scout__starter_config instance = {
		.endpoint = endpoint,
		.server_program = cfg->server_program,
		.server_keys = cfg->server_keys,
		.log = &w->log,
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
		.instance = scout__instance_is_auto(endpoint) ? &instance : NULL,
		.n_links = 1,
		.hello = &hello,
		.curve_secret_file = cfg->curve_secret_file,
		.curve_server_key = cfg->curve_server_key,
		.shm = cfg->local_transport == SCOUT_LOCAL_SHM,
	};

	hello.groups = w->groups;
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

/* Free everything but the courier; also for a half-built worker. */
static void
destroy(struct scout_worker *w)
{
	scout__worker_free_jobs(w);
	/* Before the engine's close: the engine is told of the end of each mapping. */
	scout__verifier_fini(&w->verifier, &w->mappings);
	scout__mappings_fini(&w->mappings);
	scout__worker_drop_layout(w);
	if (w->done_fd >= 0)
		(void)close(w->done_fd);
	if (w->epoll_fd >= 0)
		(void)close(w->epoll_fd);
	if (w->done.buffer)
		scout__ring_fini(&w->done);
	(void)pthread_cond_destroy(&w->cond);
	(void)pthread_mutex_destroy(&w->mu);
	scout__lazy_free(w->jobs, w->cfg.max_jobs * sizeof(*w->jobs));
	scout__lazy_free(w->free_slots, w->cfg.max_jobs * sizeof(*w->free_slots));
	scout__lazy_free(w->records, (size_t)w->cfg.max_jobs * 2 * sizeof(*w->records));
	scout_worker_config_fini(&w->cfg);
	free(w);
}

/*
 * Choose the backend. "auto" is host until scout_worker_register() knows the pages. Until then no CUDA function is
 * called: if we initialised CUDA here, processes that are forked before the pages are made could not use it.
 */
static int
choose_backend(struct scout_worker *w, char *err, size_t err_len)
{
	if (strcmp(w->cfg.backend, "auto") != 0) {
		w->copy = scout__copy_find(w->cfg.backend);
		if (!w->copy)
			return scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED,
					   "backend = \"%s\": must be auto or a backend of this build, %s",
					   w->cfg.backend, scout__copy_find("cuda") ? "host or cuda" : "host");
		return w->copy->probe(-1, err, err_len);
	}
	w->copy = &scout__copy_host;
	w->may_use_cuda = scout__copy_find("cuda") != NULL;
	return 0;
}

/* The configuration is accepted: build the rest. On error destroy() cleans up. */
static int
build(struct scout_worker *w, char *err, size_t err_len)
{
	struct scout__group_keys keys = {w->cfg.chunk_tokens, w->cfg.hash_tokens, w->cfg.readers};
	int rc;

	scout__groups_of(w->cfg.group, &keys, &w->groups);
	(void)snprintf(w->who, sizeof(w->who), "worker %u.%u", (unsigned)w->cfg.kv_rank, (unsigned)w->cfg.reader);
	w->log = (struct scout__log){.fn = w->cfg.log, .user = w->cfg.log_user, .who = w->who, .gate = &w->log_gate};
	rc = choose_backend(w, err, err_len);
	if (rc)
		return rc;
	rc = allocate_slots(w);
	if (rc)
		return scout__fail(err, err_len, rc, "max_jobs = %u: no memory for so many jobs",
				   (unsigned)w->cfg.max_jobs);
	scout__jobs_init(w);
	w->version = w->cfg.weights_version;
	w->adopt.version = w->version; /* the first HELLO carries it */
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
		return scout__fail_no_memory(err, err_len);
	w->done_fd = -1;
	w->epoll_fd = -1;
	w->next_seq = 1;
	rc = scout__worker_config_accept(&w->cfg, cfg, err, err_len);
	if (rc)
		goto err_free;
	(void)pthread_mutex_init(&w->mu, NULL); /* cannot fail on Linux */
	scout__cond_init(&w->cond);
	rc = build(w, err, err_len);
	if (rc) {
		destroy(w);
		return rc;
	}
	*ret_worker = w;
	return 0;

err_free:
	free(w);
	return rc;
}

int
scout_worker_probe_cuda(char *err, size_t err_len)
{
	return scout__cuda_check_driver(err, err_len);
}

void
scout_worker_free(struct scout_worker *w)
{
	if (!w || scout__courier_forked(w->courier))
		return;
	scout__courier_free(w->courier);
	destroy(w);
}

void
scout_worker_log_off(struct scout_worker *worker)
{
	/* A child's copy of the gate may count a call that only the parent will end. */
	if (worker && !scout__courier_forked(worker->courier))
		scout__log_shut(&worker->log_gate);
}
