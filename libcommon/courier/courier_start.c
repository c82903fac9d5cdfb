/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The start and the end of a courier, on the caller's thread. This file makes everything that the courier's thread owns later, and
 * frees it after the thread has ended.
 *
 * Fork: a child has no courier thread and must not call libzmq, whose own threads are gone too. pthread_atfork() counts
 * generations; every public entry compares one word.
 */
#include "courier_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ITEMS_PER_LINK 4u /* socket, monitor, lease, channel */

/* Process-wide, because a fork is: how many forks lie between this process and the one that loaded the library. */
static atomic_uint fork_generation;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void
forked_child(void)
{
	atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
}

static void
register_fork_handler(void)
{
	(void)pthread_atfork(NULL, NULL, forked_child); /* fails on ENOMEM only: then a fork goes unnoticed */
}

bool
scout__courier_forked(const struct scout__courier *courier)
{
	return atomic_load_explicit(&fork_generation, memory_order_relaxed) != courier->fork_generation;
}

static int
start_links(struct scout__courier *c, const struct scout__courier_config *cfg, const char *const *endpoints, char *err,
	    size_t err_len)
{
	scout__enter_courier(); /* the thread does not run yet: this is its set-up */
	for (uint32_t i = 0; i < cfg->n_links; i++) {
		int rc = scout__link_init(&c->links[i], &c->env, i, endpoints[i], &cfg->hello[i]);

		if (rc != 0)
			return scout__fail(err, err_len, rc, "endpoint \"%s\": %s", endpoints[i], scout_strerror(rc));
		c->n_links = i + 1;
	}
	return 0;
}

static void
destroy(struct scout__courier *c)
{
	scout__enter_courier(); /* the thread has ended, or never ran */
	for (uint32_t i = 0; c->links && i < c->n_links; i++)
		scout__link_fini(&c->links[i], 0);
	scout__courier_close_context(c);
	scout__starter_free(c->env.starter);
	scout__doorbell_close(&c->bell);
	scout__ring_fini(&c->ring);
	free(c->items);
	free(c->fds);
	free(c->links);
	explicit_bzero(&c->curve, sizeof(c->curve));
	free(c);
}

static struct scout__courier *
allocate(const struct scout__courier_config *cfg)
{
	struct scout__courier *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->ops = cfg->ops;
	c->user = cfg->user;
	c->log = cfg->log;
	c->spin_us = cfg->spin_us;
	c->user_fd = cfg->user_fd;
	c->bell.fd = -1;
	c->links = calloc(cfg->n_links, sizeof(*c->links));
	c->items = calloc((size_t)cfg->n_links * ITEMS_PER_LINK + 2, sizeof(*c->items));
	c->look = true;
	c->fds = calloc((size_t)cfg->n_links * ITEMS_PER_LINK + 2, sizeof(*c->fds));
	if (!c->links || !c->items || !c->fds || scout__ring_init(&c->ring, cfg->ring_words) != 0) {
		free(c->links);
		free(c->items);
		free(c->fds);
		free(c);
		return NULL;
	}
	(void)pthread_once(&fork_once, register_fork_handler);
	c->fork_generation = atomic_load_explicit(&fork_generation, memory_order_relaxed);
	c->env = (struct scout__link_env){
		.ops = cfg->ops,
		.user = cfg->user,
		.log = cfg->log,
		.stats = &c->stats,
		.heartbeat_ms = cfg->heartbeat_ms,
		.connect_timeout_ms = cfg->connect_timeout_ms,
		.shm = cfg->shm,
	};
	return c;
}

/* env.curve is set if there are keys. */
static int
load_keys(struct scout__courier *c, const struct scout__courier_config *cfg, char *err, size_t err_len)
{
	int rc;

	if (!cfg->curve_secret_file && !cfg->curve_server_key)
		return 0;
	rc = scout__curve_load(cfg->curve_secret_file, cfg->curve_server_key, &c->curve, err, err_len);
	if (rc == 0)
		c->env.curve = &c->curve;
	return rc;
}

int
scout__courier_new(const struct scout__courier_config *cfg, struct scout__courier **ret_courier, char *err,
		   size_t err_len)
{
	struct scout__courier *c = allocate(cfg);
	const char *const *endpoints = cfg->endpoints;
	const char *instance;
	sigset_t before;
	int rc;

	if (!c)
		return scout__fail_no_memory(err, err_len);
	rc = load_keys(c, cfg, err, err_len);
	if (rc == 0 && !scout__doorbell_open(&c->bell))
		rc = scout__fail(err, err_len, SCOUT_ERR_SYSTEM,
				 "eventfd failed (errno %d): raise the limit of open files (ulimit -n)", errno);
	if (rc == 0 && cfg->instance) {
		rc = scout__starter_new(cfg->instance, &c->env.starter, err, err_len);
		instance = rc == 0 ? scout__starter_endpoint(c->env.starter) : NULL;
		endpoints = &instance;
	}
	/* The first socket starts libzmq's threads, which block signals only once they run: until then the host's signals could reach them. */
	(void)scout__block_signals(&before);
	if (rc == 0)
		rc = scout__courier_open_context(c, endpoints, cfg->n_links, err, err_len);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc == 0)
		rc = start_links(c, cfg, endpoints, err, err_len);
	if (rc == 0) {
		int e;

		*ret_courier = c; /* set before the thread starts: its callbacks use it */
		e = scout__thread_start(&c->thread, cfg->name, scout__courier_main, c);
		if (e != 0)
			rc = scout__fail_thread(err, err_len, e);
		else
			c->started = true;
	}
	if (rc != 0) {
		*ret_courier = NULL;
		destroy(c);
	}
	return rc;
}

void
scout__courier_free(struct scout__courier *c)
{
	if (!c || scout__courier_forked(c))
		return;
	atomic_store(&c->stop, true);
	(void)scout__courier_ring(c);
	if (c->started)
		(void)pthread_join(c->thread, NULL);
	destroy(c);
}
