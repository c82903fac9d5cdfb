/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "cpus.h"
#include "dispatch.h"
#include "doorbell.h"
#include "feed.h"
#include "fetch.h"
#include "l2_adapters.h"
#include "loop.h"
#include "metrics.h"
#include "server_config.h"
#include "server_core.h"
#include "server_curve.h"
#include "server_set.h"
#include "state.h"
#include "transport.h"

/*
 * DESIGN
 *
 * Start and stop. Start makes everything in the order in which it may fail cheaply: configuration, tables, pool, lock
 * and paths, sockets; the thread is last, so before it nothing needs a lock and after it nothing is touched here.
 * server_free() takes apart what there is, however far start came.
 *
 * Nothing of the process is changed: no signal, no limit, no umask.
 *
 * Threads: the caller's, as the loop's deputy before the loop runs and after it is joined.
 */

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define MIN_EXTENTS 8u

static int
check_kernel(char *err, size_t err_len)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd < 0 && errno == ENOSYS)
		return scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED, "Linux 5.6 or newer is needed (pidfd)");
	if (fd >= 0)
		(void)close(fd);
	return 0;
}

static int
draw_numbers(struct scout_server *s, char *err, size_t err_len)
{
	do {
		if (getrandom(&s->epoch, sizeof(s->epoch), 0) != (ssize_t)sizeof(s->epoch) ||
		    getrandom(&s->seed, sizeof(s->seed), 0) != (ssize_t)sizeof(s->seed))
			return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "getrandom: %s", scout__errno_text(errno));
	} while (s->epoch == 0);
	return 0;
}

static int
make_events(struct scout_server *s, char *err, size_t err_len)
{
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->stop.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->told.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->timer.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	s->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->timer_us = UINT64_MAX;
	if (s->epoll_fd < 0 || s->stop.fd < 0 || s->told.fd < 0 || s->timer.fd < 0 || s->ended_fd < 0 ||
	    scout__watch_add(s, &s->stop) != 0 || scout__watch_add(s, &s->told) != 0 ||
	    scout__watch_add(s, &s->timer) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "epoll, eventfd or timerfd: %s",
				   scout__errno_text(errno));
	return 0;
}

static int
make_pool(struct scout_server *s, char *err, size_t err_len)
{
	/* Namespaces share the pool by extents: of a small one there must be some, too. 0: the pool's own choice. */
	uint64_t most = s->cfg.l1_bytes / MIN_EXTENTS ? s->cfg.l1_bytes / MIN_EXTENTS : 1;
	uint64_t extent_bytes = s->cfg.extent_bytes < most ? s->cfg.extent_bytes : most;
	int rc;

	scout__enter_loop();
	rc = scout__pool_check_huge_pages(s->cfg.l1_bytes, s->cfg.l1_huge_pages, err, err_len);
	if (rc)
		return rc;
	rc = scout__l1_init(&s->state->l1, s->cfg.l1_bytes, extent_bytes, s->cfg.max_promised, s->cfg.eviction, &s->log,
			    err, err_len);
	if (rc)
		return rc;
	s->state->l1_ready = true;
	s->state->l1.pool.huge_pages = s->cfg.l1_huge_pages;
	rc = scout__pool_try(&s->state->l1.pool, err, err_len);
	if (rc)
		return rc;
	s->state->l1.promised_reserve = s->state->shares.reserve[SCOUT__SHARED_PROMISED];
	s->state->l1.user = s;
	s->state->l1.evicted = scout__ns_evicted;
	s->state->l1.hit_changed = scout__feed_hit_changed;
	s->state->l1.max_described = s->cfg.feed_bytes;
	s->state->pool_ready.fd = s->state->l1.pool.ready_fd;
	if (scout__watch_add(s, &s->state->pool_ready) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "epoll_ctl: %s", scout__errno_text(errno));
	return 0;
}

static void
close_fd(int fd)
{
	if (fd >= 0)
		(void)close(fd);
}

/* A server of which a thread hangs stays for the life of the process, and so does what it points to. */
static void
keep(struct scout_server *s)
{
	static _Atomic(struct scout_server *) hanging;

	s->next_hanging = atomic_load(&hanging);
	while (!atomic_compare_exchange_weak(&hanging, &s->next_hanging, s))
		;
}

static void
free_memory(struct scout_server *s)
{
	free(s->state);
	free(s->transport);
	free(s);
}

/* Any state, but the loop does not run. */
static void
server_free(struct scout_server *s)
{
	scout__enter_loop();
	scout__metrics_close(s);
	scout__server_untold(s);
	scout__transport_close(s);
	scout__fetch_free(s); /* the loop has, if it ran */
	if (s->state->l1_ready)
		scout__l1_fini(&s->state->l1);
	close_fd(s->epoll_fd);
	close_fd(s->stop.fd);
	close_fd(s->told.fd);
	close_fd(s->timer.fd);
	close_fd(s->ended_fd);
	scout__state_free_tables(s->state);
	free(s->stats);
	free(s->heap);
	free(s->endpoint);
	scout_server_config_fini(&s->cfg);
	if (s->hangs)
		keep(s);
	else
		free_memory(s);
}

static struct scout_server *
server_new(void)
{
	struct scout_server *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	scout__enter_loop();
	s->epoll_fd = -1;
	s->ended_fd = -1;
	s->stop = (struct scout__watch){SCOUT__WATCH_STOP, -1, s};
	s->told = (struct scout__watch){SCOUT__WATCH_TOLD, -1, s};
	s->timer = (struct scout__watch){SCOUT__WATCH_TIMER, -1, s};
	scout__list_init(&s->queue);
	scout__list_init(&s->lanes);
	s->start_us = s->now_us = s->idle_since_us = scout__now_us();
	s->limit_join.burst = s->limit_leave.burst = s->limit_died.burst = s->limit_ns.burst = SCOUT__LOG_BURST;
	s->transport = scout__transport_new(s, &scout__dispatch_hooks);
	s->state = scout__state_new(s, &scout__fetch_hooks);
	if (s->transport && s->state)
		return s;
	free_memory(s);
	return NULL;
}

static int
make_parts(struct scout_server *s, char *err, size_t err_len)
{
	int rc = check_kernel(err, err_len);

	if (rc == 0)
		rc = draw_numbers(s, err, err_len);
	if (rc == 0 && (scout__state_make_tables(s->state, &s->cfg) != 0 || !(s->stats = calloc(1, sizeof(*s->stats)))))
		rc = scout__fail_no_memory(err, err_len);
	if (rc == 0)
		rc = make_events(s, err, err_len);
	if (rc == 0)
		rc = make_pool(s, err, err_len);
	if (rc == 0)
		rc = scout__fetch_start(s, scout__l2_adapters, err, err_len);
	if (rc == 0)
		rc = scout__transport_open(s, s->cfg.metrics ? SCOUT__HTTP_DESCRIPTORS : 0, err, err_len);
	if (rc == 0)
		rc = scout__metrics_open(s, err, err_len);
	return rc;
}

/* All that starts threads, on the CPUs that they are to have. */
static int
start_on_cpus(struct scout_server *s, char *err, size_t err_len)
{
	struct scout__cpus_scope cpus;
	sigset_t before;
	int rc = scout__cpus_enter(&cpus, s->cfg.cpus, NULL, err, err_len);

	if (rc)
		return rc;
	/* The first socket starts libzmq's threads, which block signals only once they run: the host's are the host's. */
	(void)scout__block_signals(&before);
	rc = make_parts(s, err, err_len);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (rc)
		goto out_leave;
	rc = scout__thread_start(&s->thread, "scout-server", scout__loop_main, s);
	if (rc)
		rc = scout__fail_thread(err, err_len, rc);
	else if (s->metrics)
		scout__metrics_serve(s);
out_leave:
	scout__cpus_leave(&cpus);
	return rc;
}

int
scout_server_start(const struct scout_server_config *cfg, struct scout_server **ret_server, char *err, size_t err_len)
{
	struct scout_server *s;
	int rc;

	if (!cfg || !ret_server)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "cfg and ret_server must not be NULL");
	s = server_new();
	if (!s)
		return scout__fail_no_memory(err, err_len);
	rc = scout__server_config_accept(&s->cfg, cfg, err, err_len);
	if (rc) {
		free_memory(s);
		return rc;
	}
	s->pid = getpid();
	s->log = (struct scout__log){s->cfg.log, s->cfg.log_user, "server", &s->log_gate};
	rc = start_on_cpus(s, err, err_len);
	if (rc)
		goto err_free_server;
	scout__log(&s->log, SCOUT_LOG_INFO, "serving %s, epoch %016llx, pool of %llu bytes", s->endpoint,
		   (unsigned long long)s->epoch, (unsigned long long)s->cfg.l1_bytes);
	if (s->transport->paths.n_swept)
		scout__log(&s->log, SCOUT_LOG_INFO, "removed %u private folders of servers that were killed",
			   (unsigned)s->transport->paths.n_swept);
	scout__curve_warn(s);
	*ret_server = s;
	return 0;

err_free_server:
	server_free(s);
	return rc;
}

const char *
scout_server_endpoint(const struct scout_server *server)
{
	return server ? server->endpoint : NULL;
}

int
scout_server_fd(const struct scout_server *server)
{
	return server ? server->ended_fd : SCOUT_ERR_INVALID;
}

void
scout_server_stop(struct scout_server *server)
{
	struct scout__log log;

	/* In a forked child there is no thread to wait for, and the event would stop the parent's server. */
	if (!server || server->pid != getpid())
		return;
	scout__eventfd_raise(server->stop.fd);
	(void)pthread_join(server->thread, NULL); /* joinable, and only we join it */
	log = server->log;
	log.gate = NULL; /* it goes with the server */
	if (scout__log_is_shut(&server->log_gate))
		log.fn = NULL;
	server_free(server);
	scout__log(&log, SCOUT_LOG_INFO, "stopped");
}

void
scout_server_log_off(struct scout_server *server)
{
	/* A child's copy of the gate may count a call that only the parent will end. */
	if (server && server->pid == getpid())
		scout__log_shut(&server->log_gate);
}
