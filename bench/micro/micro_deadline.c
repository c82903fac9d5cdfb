/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How exact deadlines are, and how soon a waiting caller has its answer.
 *
 * First, lookups at a server that answers everything but them: how late after its deadline each one ends - when the
 * courier publishes the end, and when a caller that sleeps on the client's descriptor has it. The floor, at the same
 * times: how late bare threads are woken by a timerfd (timer_floor.c). Second, scout_wait_lookup() at a real server;
 * the floor is a bare DEALER with the same operation, by turns in the same run.
 *
 * Threads: main; one for the silent server's loop, one for each of the two timers; those of the client and of the
 * embedded server.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include <kvscout/client.h>
#include <kvscout/server.h>

#include "cli.h"
#include "client_internal.h"
#include "clock.h"
#include "micro_peer.h"
#include "msg.h"
#include "probe.h"
#include "say.h"
#include "timer_floor.h"

#define CHUNKS 4u
#define MAX_LIVE 1024u
#define MAX_SAMPLES 1000000u

struct silent_server {
	void *zmq;
	char endpoint[64];
	pthread_t thread;
	atomic_bool stop;
};

/* ---- a silent server ---- */

static void
reply(void *router, const void *identity, size_t len, const struct scout__op *op)
{
	struct scout__hello_reply hello = {
		.credits = 4096, .max_frame = SCOUT_MAX_FRAME, .secret = {{1, 0}}, .software = {"silent", 6}};
	uint8_t buf[512];
	struct scout__writer w = {.buf = buf, .cap = sizeof(buf)};
	size_t at;

	scout__frame_begin(&w);
	at = scout__op_begin(&w, op->opcode, SCOUT_KIND_REPLY, SCOUT_WIRE_OK, op->corr, 0);
	if (op->opcode == SCOUT_OP_HELLO)
		scout__put_hello_reply(&w, &hello);
	scout__op_end(&w, at);
	scout__frame_end(&w, 1, 1, scout__now_us());
	(void)zmq_send(router, identity, len, ZMQ_SNDMORE | ZMQ_DONTWAIT);
	(void)zmq_send(router, buf, w.len, ZMQ_DONTWAIT);
}

static void
serve(void *router)
{
	uint8_t identity[255];
	struct scout__frame frame;
	struct scout__reader ops;
	struct scout__op op;
	zmq_msg_t msg;
	int len;

	while ((len = zmq_recv(router, identity, sizeof(identity), ZMQ_DONTWAIT)) >= 0) {
		(void)zmq_msg_init(&msg);
		(void)zmq_msg_recv(&msg, router, 0);
		if (scout__frame_check(zmq_msg_data(&msg), zmq_msg_size(&msg), true, &frame) == SCOUT_WIRE_OK) {
			ops = scout__frame_ops(zmq_msg_data(&msg), zmq_msg_size(&msg));
			while (scout__frame_next(&ops, &op))
				if (op.opcode != SCOUT_OP_LOOKUP)
					reply(router, identity, (size_t)len, &op);
		}
		(void)zmq_msg_close(&msg);
	}
}

static void *
silent_main(void *arg)
{
	struct silent_server *s = arg;
	void *router = zmq_socket(s->zmq, ZMQ_ROUTER);
	int zero = 0, hwm = 0;

	(void)zmq_setsockopt(router, ZMQ_LINGER, &zero, sizeof(zero));
	(void)zmq_setsockopt(router, ZMQ_RCVHWM, &hwm, sizeof(hwm));
	if (zmq_bind(router, s->endpoint) != 0)
		die("bind: %s", zmq_strerror(zmq_errno()));
	while (!atomic_load(&s->stop)) {
		zmq_pollitem_t item = {.socket = router, .events = ZMQ_POLLIN};

		(void)zmq_poll(&item, 1, 50);
		serve(router);
	}
	(void)zmq_close(router);
	return NULL;
}

/* ---- the client ---- */

static struct scout_client *
open_client(const char *endpoint, uint32_t timeout_ms)
{
	struct scout_client_config cfg;

	scout_client_config_init(&cfg);
	cfg.endpoint = endpoint;
	cfg.lookup_timeout_ms = timeout_ms;
	cfg.max_lookups = MAX_LIVE;
	return micro_start_client(&cfg);
}

static uint8_t hashes[CHUNKS * MICRO_HASH_BYTES];

static struct scout_query
question(const char *id)
{
	return (struct scout_query){.id = id,
				    .hashes = hashes,
				    .hash_len = MICRO_HASH_BYTES,
				    .n = CHUNKS,
				    .prompt_tokens = CHUNKS * MICRO_CHUNK_TOKENS + 1};
}

static int
by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int64_t
quantile(const int64_t *sorted, size_t n, double q)
{
	return sorted[(size_t)(q * (double)(n - 1))];
}

static void
print(const char *name, int64_t *ns, size_t n)
{
	qsort(ns, n, sizeof(*ns), by_value);
	say("%-22s n %zu  min %.1f  p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f  max %.1f us\n", name, n,
	    (double)ns[0] / 1e3, (double)quantile(ns, n, 0.5) / 1e3, (double)quantile(ns, n, 0.9) / 1e3,
	    (double)quantile(ns, n, 0.99) / 1e3, (double)quantile(ns, n, 0.999) / 1e3, (double)ns[n - 1] / 1e3);
}

/*
 * How late each lookup of a run ended: when its end was published, and when the caller had it. And how late bare
 * timers were.
 */
enum {
	PUBLISHED,
	SEEN,
	TIMER,
	TIMER_BATCH,
	LATENESSES
};
static const char *const lateness_names[LATENESSES] = {"published - deadline", "seen - deadline", "bare timer",
						       "bare timer, batch"};

/* Note the end of lookup @i, if it has. */
static bool
note_end(struct scout_client *client, size_t i, uint64_t deadline_ns, int64_t *const late[LATENESSES], size_t at)
{
	struct scout_query q;
	struct scout_hit hit;
	char id[32];

	(void)snprintf(id, sizeof(id), "d%zu", i);
	q = question(id);
	if (scout_try_lookup(client, &q, &hit) == SCOUT_NOT_YET)
		return false;
	late[SEEN][at + i] = (int64_t)(scout__now_ns() - deadline_ns);
	late[PUBLISHED][at + i] = (int64_t)(scout__client_landed_ns(client, id) - deadline_ns);
	(void)scout_finish(client, id);
	return true;
}

/* What has ended. All have the same timeout, so they end in their order. */
static size_t
note_ends(struct scout_client *client, const uint64_t *deadline_ns, size_t from, size_t to,
	  int64_t *const late[LATENESSES], size_t at)
{
	scout_client_fd_clear(client);
	while (from < to && note_end(client, from, deadline_ns[from], late, at))
		from++;
	return from;
}

/* A batch of lookups, spread over half of the timeout so that they end one by one; the caller sleeps in between. */
static void
batch(struct scout_client *client, uint64_t start_ns, uint64_t gap_ns, uint64_t timeout_ns, size_t n,
      int64_t *const late[LATENESSES], size_t at)
{
	static uint64_t deadline_ns[MAX_LIVE];
	zmq_pollitem_t item = {.fd = scout_client_fd(client), .events = ZMQ_POLLIN};
	size_t ended = 0, asked = 0;

	while (asked < n) {
		uint64_t at_ns = start_ns + asked * gap_ns;
		const struct timespec when = {(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)};
		struct scout_query q;
		struct scout_hit hit;
		char id[32];

		(void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
		ended = note_ends(client, deadline_ns, ended, asked, late, at);
		(void)snprintf(id, sizeof(id), "d%zu", asked);
		q = question(id);
		deadline_ns[asked] = scout__now_ns() + timeout_ns;
		if (scout_try_lookup(client, &q, &hit) != SCOUT_NOT_YET)
			die("lookup: answered by a silent server");
		asked++;
	}
	while (ended < n) {
		(void)zmq_poll(&item, 1, 1000);
		ended = note_ends(client, deadline_ns, ended, n, late, at);
	}
}

/*
 * One batch, with bare timers for the same times beside it. A client of its own: a silent server keeps what it was
 * asked.
 */
static void
timed_batch(const char *endpoint, uint32_t timeout_ms, size_t n, int64_t *const late[LATENESSES], size_t at)
{
	struct scout_client *client = open_client(endpoint, timeout_ms);
	uint64_t timeout_ns = timeout_ms * UINT64_C(1000000), gap_ns = timeout_ns / 2 / n;
	uint64_t start_ns = scout__now_ns() + 1000000;
	struct timer_floor floors[2] = {{.policy = SCHED_OTHER, .late_ns = late[TIMER] + at},
					{.policy = SCHED_BATCH, .late_ns = late[TIMER_BATCH] + at}};

	scout__client_stamp_answers(client);
	for (int i = 0; i < 2; i++) {
		floors[i].first_ns = start_ns + timeout_ns;
		floors[i].gap_ns = gap_ns;
		floors[i].n = n;
		if (timer_floor_start(&floors[i]) != 0)
			die("start: no thread");
	}
	batch(client, start_ns, gap_ns, timeout_ns, n, late, at);
	for (int i = 0; i < 2; i++)
		timer_floor_join(&floors[i]);
	scout_client_free(client);
}

static void
deadlines(size_t n, uint32_t timeout_ms)
{
	struct silent_server s = {.zmq = zmq_ctx_new()};
	int64_t *late[LATENESSES];

	for (int k = 0; k < LATENESSES; k++)
		if (!(late[k] = calloc(n, sizeof(*late[k]))) || !s.zmq)
			die("start: out of memory");
	(void)snprintf(s.endpoint, sizeof(s.endpoint), "ipc:///tmp/kvscout-deadline-%d", (int)getpid());
	if (pthread_create(&s.thread, NULL, silent_main, &s) != 0)
		die("start: no thread");
	for (size_t done = 0; done < n;) {
		size_t now = n - done < MAX_LIVE / 2 ? n - done : MAX_LIVE / 2;

		timed_batch(s.endpoint, timeout_ms, now, late, done);
		done += now;
	}
	for (int k = 0; k < LATENESSES; k++) {
		size_t above = 0;

		for (size_t i = 0; i < n; i++)
			above += late[k][i] > 20000000;
		print(lateness_names[k], late[k], n);
		say("%-22s %zu of %zu\n", "  later than 20 ms", above, n);
		free(late[k]);
	}
	atomic_store(&s.stop, true);
	(void)pthread_join(s.thread, NULL);
	(void)zmq_ctx_term(s.zmq);
}

/* ---- polled against a bare round trip ---- */

static void
round_trips(size_t n)
{
	struct probe_config bare_cfg = {.name_space = "default",
					.chunk_tokens = MICRO_CHUNK_TOKENS,
					.kv_ranks = 1,
					.hash_bytes = MICRO_HASH_BYTES};
	struct scout_server_config cfg;
	struct scout_server *server;
	struct scout_client *client;
	struct probe *probe;
	int64_t *polled = calloc(n, sizeof(*polled)), *bare = calloc(n, sizeof(*bare));
	char id[32], err[256] = "";
	const size_t mid = n / 2;

	if (!polled || !bare)
		die("out of memory");
	scout_server_config_init(&cfg);
	cfg.l1_bytes = 64 << 20;
	server = micro_start_server(&cfg);
	client = open_client(scout_server_endpoint(server), 5000);
	bare_cfg.endpoint = scout_server_endpoint(server);
	if (probe_new(&bare_cfg, &probe, err, sizeof(err)) < 0)
		die("bare round trip: %s", err);
	for (size_t i = 0; i < n; i++) {
		struct scout_query q = question(id);
		struct scout_hit hit;
		uint64_t begin, ticket;
		uint32_t chunks;

		(void)snprintf(id, sizeof(id), "p%zu", i);
		begin = scout__now_ns();
		if (scout_wait_lookup(client, &q, &hit) != 0 || hit.error != 0)
			die("polled: no answer");
		polled[i] = (int64_t)(scout__now_ns() - begin);
		(void)scout_finish(client, id);
		begin = scout__now_ns();
		if (probe_lookup(probe, hashes, CHUNKS, &ticket, &chunks, err, sizeof(err)) < 0)
			die("bare round trip: %s", err);
		bare[i] = (int64_t)(scout__now_ns() - begin);
		if (probe_finish(probe, &ticket, 1, err, sizeof(err)) < 0)
			die("bare round trip: %s", err);
	}
	print("polled, seen", polled, n);
	print("bare round trip", bare, n);
	say("%-22s %.2f (medians)\n", "polled / bare", (double)polled[mid] / (double)bare[mid]);
	scout_client_free(client);
	probe_free(probe);
	scout_server_stop(server);
	free(polled);
	free(bare);
}

int
main(int argc, char **argv)
{
	uint64_t lookups = 10000, timeout_ms = 500, trips = 5000;
	const struct cli_option options[] = {
		CLI_NUMBER("lookups", &lookups, 1, MAX_SAMPLES, "that time out"),
		CLI_NUMBER("timeout-ms", &timeout_ms, 1, 60000, "of each lookup"),
		CLI_NUMBER("trips", &trips, 1, MAX_SAMPLES, "round trips"),
	};
	const struct cli cli = {
		.tool = "micro_deadline",
		.about = "How exact deadlines are, and how soon a waiting caller has its answer.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
	};
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	deadlines(lookups, (uint32_t)timeout_ms);
	round_trips(trips);
	return EXIT_SUCCESS;
}
