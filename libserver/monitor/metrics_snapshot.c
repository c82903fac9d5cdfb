/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "doorbell.h"
#include "page.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * How values get from the loop, which owns them all and takes no lock, to the HTTP thread, which owns the connections.
 *
 *   HTTP thread                                     loop
 *     snapshot EMPTY ── ASKED, eventfd ─────────────▶   fills the snapshot: FILLED, eventfd
 *     waits WAIT_MS at most ◀──────────────────────
 *     snapshot FILLED: changes it for the last one, EMPTY
 *
 * There is one snapshot, and `snapshot` says whose it is: the loop's while ASKED, else the HTTP thread's. So nothing is
 * copied twice, nothing is read while it is written, and neither side can hold up the other. The loop fills the
 * snapshot or does not, and never waits. A loop that hangs costs the HTTP thread one bounded wait, after which the
 * thread shows the last values with their age; once the heartbeat is old, the thread does not wait at all. It asks the
 * loop at most once in FRESH_US, so a flood of requests costs the loop 50 blocks of values a second. Without requests,
 * the loop pays one relaxed store a turn: the heartbeat.
 *
 * /healthz is decided without a snapshot, by heartbeat and phase; what it says of stores is from the last one.
 *
 * Rejected: a lock around the counters (the loop would wait for a thread that was preempted with it); a seqlock (its
 * readers race by design, which ThreadSanitizer rightly reports, or each word is an atomic); publishing by a timer
 * (mostly useless work, and a reader would get old values); reading the server's own memory from the HTTP thread.
 *
 * The loop's processor time is read through its clock from the HTTP thread, so it costs the loop nothing.
 *
 * Threads: see each function. open and close: start and stop of the server, without the loop.
 */

#define WAIT_MS 100
#define FRESH_US 20000u
#define WAIT_BEAT_US 1000000u /* do not wait for a loop with an older heartbeat */

enum snapshot_state {
	SNAPSHOT_EMPTY = 0,
	SNAPSHOT_ASKED,
	SNAPSHOT_FILLED
};

struct scout__metrics {
	struct scout__log log;             /* const after open */
	char address[SCOUT__HTTP_ADDRESS]; /* const after open */
	const struct scout_server *server; /* const after open; the HTTP thread reads its constants only */
	uint64_t start_time_s;             /* const after open */
	struct scout__watch asked;         /* eventfd, HTTP thread to loop */
	int answered_fd;                   /* eventfd, loop to HTTP thread */
	_Atomic uint64_t beat_us;
	atomic_int phase;           /* enum scout__metrics_phase */
	clockid_t loop_clock;       /* const from SERVING on */
	atomic_int snapshot;        /* enum snapshot_state */
	struct scout__stats *stats; /* the loop's while the snapshot is ASKED, else the HTTP thread's */
	struct scout__stats *last;  /* HTTP thread */
	struct scout__http *http;   /* const after open */
};

/* ---- the loop ---- */

void
scout__metrics_beat(struct scout_server *s)
{
	atomic_store_explicit(&s->metrics->beat_us, s->now_us, memory_order_relaxed);
}

void
scout__metrics_enter(struct scout_server *s, enum scout__metrics_phase phase)
{
	scout__metrics_beat(s);
	atomic_store_explicit(&s->metrics->phase, (int)phase, memory_order_release);
}

void
scout__metrics_asked(struct scout_server *s)
{
	struct scout__metrics *m = s->metrics;

	(void)scout__eventfd_lower(m->asked.fd);
	if (atomic_load_explicit(&m->snapshot, memory_order_acquire) != SNAPSHOT_ASKED)
		return;
	scout__stats_take(s, NULL, m->stats);
	atomic_store_explicit(&m->snapshot, SNAPSHOT_FILLED, memory_order_release);
	scout__eventfd_raise(m->answered_fd);
}

/* ---- the HTTP thread ---- */

static uint64_t
age_us(uint64_t of_us)
{
	uint64_t now_us = scout__now_us();

	return now_us > of_us ? now_us - of_us : 0;
}

static uint64_t
heartbeat_age_us(const struct scout__metrics *m)
{
	return age_us(atomic_load_explicit(&m->beat_us, memory_order_relaxed));
}

static bool
take_snapshot(struct scout__metrics *m)
{
	struct scout__stats *stats = m->stats;

	if (atomic_load_explicit(&m->snapshot, memory_order_acquire) != SNAPSHOT_FILLED)
		return false;
	m->stats = m->last;
	m->last = stats;
	/* Relaxed: the loop does not look at the snapshot before it is ASKED. */
	atomic_store_explicit(&m->snapshot, SNAPSHOT_EMPTY, memory_order_relaxed);
	return true;
}

static void
ask(struct scout__metrics *m)
{
	if (atomic_load_explicit(&m->snapshot, memory_order_relaxed) != SNAPSHOT_EMPTY)
		return; /* the loop has not answered the last question */
	atomic_store_explicit(&m->snapshot, SNAPSHOT_ASKED, memory_order_release);
	scout__eventfd_raise(m->asked.fd);
}

/* Put new values into m->last, if the loop gives some in time. */
static void
refresh(struct scout__metrics *m)
{
	uint64_t end_us = scout__now_us() + WAIT_MS * UINT64_C(1000);
	struct pollfd item = {.fd = m->answered_fd, .events = POLLIN};

	(void)take_snapshot(m); /* the answer of a loop that was late */
	if (age_us(m->last->taken_us) < FRESH_US || heartbeat_age_us(m) > WAIT_BEAT_US ||
	    atomic_load_explicit(&m->phase, memory_order_acquire) == SCOUT__METRICS_ENDED)
		return;
	ask(m);
	while (!take_snapshot(m)) {
		uint64_t now_us = scout__now_us();

		if (now_us >= end_us)
			return;
		(void)poll(&item, 1, (int)((end_us - now_us + 999) / 1000)); /* take_snapshot() sees the result */
		(void)scout__eventfd_lower(m->answered_fd);
	}
}

/* Whether the loop turns, and serves; @reason says why not. */
static bool
is_healthy(const struct scout__metrics *m, char *reason, size_t len)
{
	int phase = atomic_load_explicit(&m->phase, memory_order_acquire);
	uint64_t age = heartbeat_age_us(m);

	if (phase == SCOUT__METRICS_STARTING)
		(void)snprintf(reason, len, "starting");
	else if (phase == SCOUT__METRICS_ENDED)
		(void)snprintf(reason, len, "stopped");
	else if (age > SCOUT__METRICS_HUNG_US)
		(void)snprintf(reason, len, "the loop has not turned for %llu ms", (unsigned long long)(age / 1000));
	else if (phase == SCOUT__METRICS_DRAINING)
		(void)snprintf(reason, len, "draining: the server is stopping");
	else
		return true;
	return false;
}

static uint64_t
resident_bytes(void)
{
	unsigned long long pages = 0, resident = 0;
	FILE *file = fopen("/proc/self/statm", "re");
	int n;

	if (!file)
		return UINT64_MAX;
	n = fscanf(file, "%llu %llu", &pages, &resident); // NOLINT(cert-err34-c): the kernel's own numbers
	(void)fclose(file);
	return n == 2 ? resident * scout__page_bytes() : UINT64_MAX;
}

static uint64_t
open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (!dir)
		return UINT64_MAX;
	while (readdir(dir)) // NOLINT(concurrency-mt-unsafe): a stream of our own
		n++;
	(void)closedir(dir);
	return n > 3 ? n - 3 : 0; /* ".", ".." and this stream */
}

static uint64_t
max_fds(void)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY ? limit.rlim_cur : UINT64_MAX;
}

const struct scout__stats *
scout__metrics_look(struct scout__metrics *m, struct scout__metrics_facts *ret_facts)
{
	static const char *const prefetch[] = {"on_retrieve", "on_lookup", "before_answer"};
	static const char *const objects[] = {"retain", "temporary"};
	const struct scout_server_config *cfg = &m->server->cfg;

	refresh(m);
	*ret_facts = (struct scout__metrics_facts){
		.endpoint = m->server->endpoint,
		.eviction = cfg->eviction,
		.prefetch = prefetch[cfg->prefetch],
		.l2_objects = objects[cfg->l2_objects],
		.start_time_s = m->start_time_s,
		.heartbeat_age_us = heartbeat_age_us(m),
		.snapshot_age_us = age_us(m->last->taken_us),
		.process_cpu_us = scout__clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000,
		.resident_bytes = resident_bytes(),
		.open_fds = open_fds(),
		.max_fds = max_fds(),
	};
	ret_facts->healthy = is_healthy(m, ret_facts->reason, sizeof(ret_facts->reason));
	if (atomic_load_explicit(&m->phase, memory_order_acquire) != SCOUT__METRICS_STARTING)
		ret_facts->loop_cpu_us = scout__clock_ns(m->loop_clock) / 1000;
	return m->last;
}

const char *
scout__metrics_address(const struct scout__metrics *m)
{
	return m->address;
}

/* ---- start and stop ---- */

static int
make(struct scout_server *s, struct scout__metrics *m, char *err, size_t err_len)
{
	int rc, listen_fd;
	bool is_private;

	scout__enter_loop();
	m->stats = calloc(1, sizeof(*m->stats));
	m->last = calloc(1, sizeof(*m->last));
	if (!m->stats || !m->last)
		return scout__fail_no_memory(err, err_len);
	m->asked.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	m->answered_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (m->asked.fd < 0 || m->answered_fd < 0 || scout__watch_add(s, &m->asked) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "eventfd or epoll_ctl: %s",
				   scout__errno_text(errno));
	rc = scout__http_listen("metrics =", s->cfg.metrics, &listen_fd, m->address, &is_private, err, err_len);
	if (rc)
		return rc;
	scout__stats_take(s, NULL, m->last);
	rc = scout__http_start(
		&(struct scout__http_service){.name = "metrics", .log = &m->log, .user = m, .get = scout__metrics_get},
		listen_fd, &m->http, err, err_len);
	if (rc)
		return rc;
	scout__log(&m->log, SCOUT_LOG_INFO, "metrics on http://%s/metrics", m->address);
	if (!is_private)
		scout__log(
			&m->log, SCOUT_LOG_WARN,
			"metrics on %s are plain HTTP for every client that reaches this address; bind a loopback or private one",
			m->address);
	return 0;
}

int
scout__metrics_open(struct scout_server *s, char *err, size_t err_len)
{
	struct scout__metrics *m;
	int rc;

	if (!s->cfg.metrics)
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return scout__fail_no_memory(err, err_len);
	m->log = s->log;
	m->server = s;
	m->start_time_s = (uint64_t)time(NULL);
	m->asked = (struct scout__watch){SCOUT__WATCH_METRICS, -1, s};
	m->answered_fd = -1;
	atomic_init(&m->beat_us, s->now_us);
	atomic_init(&m->phase, SCOUT__METRICS_STARTING);
	atomic_init(&m->snapshot, SNAPSHOT_EMPTY);
	s->metrics = m;
	rc = make(s, m, err, err_len);
	if (rc)
		scout__metrics_close(s);
	return rc;
}

void
scout__metrics_serve(struct scout_server *s)
{
	struct scout__metrics *m = s->metrics;
	int starting = SCOUT__METRICS_STARTING;

	/* This fails for a thread that has ended; then there is nothing to read. */
	if (pthread_getcpuclockid(s->thread, &m->loop_clock) != 0)
		m->loop_clock = CLOCK_THREAD_CPUTIME_ID;
	/* Unless the loop has found a reason to stop already. */
	(void)atomic_compare_exchange_strong(&m->phase, &starting, SCOUT__METRICS_SERVING);
}

void
scout__metrics_close(struct scout_server *s)
{
	struct scout__metrics *m = s->metrics;

	if (!m)
		return;
	scout__http_stop(m->http);
	if (m->answered_fd >= 0)
		(void)close(m->answered_fd);
	if (m->asked.fd >= 0)
		(void)close(m->asked.fd);
	free(m->stats);
	free(m->last);
	free(m);
	s->metrics = NULL;
}
