/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "l2_queue.h"

#include "check_main.h"

/*
 * l2_submit over an adapter with real threads, which end operations with random results and out of order. The loop waits in
 * poll() without a timeout whenever it has nothing to do: a wake that is lost hangs the test. Threads and loop write the
 * same plain memory by turns, so ThreadSanitizer sees whether an operation has one owner at a time.
 */
#define N_OPS 100000u
#define N_SLOTS 64u
#define MAX_OPS 30u
#define N_THREADS 4
#define N_KEYS 4u

struct threads {
	struct scout__l2_queue queue;
	struct scout__l2_port *port;
	pthread_t threads[N_THREADS];
};

struct slot {
	struct scout__l2_op op;
	struct scout__l2_key key;
	struct scout__l2_digest digests[N_KEYS];
	uint8_t found[N_KEYS];
	uint8_t data[8];
	bool is_live;
};

static struct threads adapters[2];
static unsigned n_adapters;
static struct slot slots[N_SLOTS];
static struct scout__l2 *l2;
static uint64_t submitted, ended, tried;
static unsigned seed = 7;

static unsigned
roll(unsigned *state, unsigned n)
{
	return (unsigned)rand_r(state) % n;
}

/* Only what a real one may write, and mostly successes: the breakers open now and then. */
static void
work(struct scout__l2_op *op, unsigned *state)
{
	unsigned dice = roll(state, 100);

	if (op->what == SCOUT__L2_LOAD)
		memset(op->data, (int)dice, op->bytes);
	for (uint32_t i = 0; op->what == SCOUT__L2_EXISTS && i < op->n; i++)
		op->found[i] = dice % 2;
	op->result = dice < 60   ? SCOUT__L2_OK
		     : dice < 75 ? SCOUT__L2_ABSENT
		     : dice < 95 ? SCOUT__L2_ERROR
				 : SCOUT__L2_FULL;
	op->detail = (int)dice;
}

static void *
thread_main(void *arg)
{
	struct threads *threads = arg;
	struct scout__l2_op *kept = NULL;
	unsigned state = (unsigned)(uintptr_t)&kept;
	struct scout__l2_op *op;

	while ((op = scout__l2_queue_wait(&threads->queue))) {
		work(op, &state);
		/* One is kept back at times, so that it ends behind a later one. */
		if (!kept && roll(&state, 2) == 0) {
			kept = op;
			op = scout__l2_queue_try(&threads->queue);
			if (op)
				work(op, &state);
		}
		if (op)
			scout__l2_complete(threads->port, op);
		if (kept)
			scout__l2_complete(threads->port, kept);
		kept = NULL;
	}
	return NULL;
}

static int
threads_open(const struct scout__l2_open *args, void **ret_adapter, char *err, size_t err_len)
{
	struct threads *threads = &adapters[n_adapters++];

	(void)err;
	(void)err_len;
	threads->port = args->port;
	ck_assert_int_eq(scout__l2_queue_init(&threads->queue, args->max_ops, false), 0);
	for (int i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(scout__thread_start(&threads->threads[i], "l2-test", thread_main, threads), 0);
	*ret_adapter = threads;
	return 0;
}

SCOUT_ON_LOOP static bool
threads_submit(void *adapter, struct scout__l2_op *op)
{
	struct threads *threads = adapter;

	tried++;
	return scout__l2_queue_push(&threads->queue, op);
}

static bool
threads_stop(void *adapter, uint64_t deadline_us)
{
	struct threads *threads = adapter;

	(void)deadline_us;
	scout__l2_queue_close(&threads->queue);
	for (int i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_join(threads->threads[i], NULL), 0);
	return true;
}

static void
threads_close(void *adapter)
{
	struct threads *threads = adapter;

	scout__l2_queue_fini(&threads->queue);
}

static void
threads_gauges(void *adapter, struct scout__l2_gauges *ret_gauges)
{
	(void)adapter;
	*ret_gauges = (struct scout__l2_gauges){.ready = true};
}

static const struct scout__l2_adapter threads_adapter = {
	.scheme = "threads",
	.open = threads_open,
	.submit = threads_submit,
	.stop = threads_stop,
	.close = threads_close,
	.gauges = threads_gauges,
};

static const struct scout__l2_adapter *const thread_adapters[] = {&threads_adapter, NULL};

static void
on_done(void *user, struct scout__l2_op *op)
{
	struct slot *slot = user;

	ck_assert(slot->is_live && op == &slot->op);
	slot->is_live = false;
	memset(slot->data, 0, sizeof(slot->data));
	memset(slot->found, 7, sizeof(slot->found));
	ended++;
}

static void
submit_one(struct slot *slot, uint64_t now_us)
{
	bool has_keys = roll(&seed, 5) < 2;

	slot->is_live = true;
	slot->op = (struct scout__l2_op){
		.what = (uint8_t)(has_keys ? SCOUT__L2_EXISTS + roll(&seed, 2) : SCOUT__L2_LOAD + roll(&seed, 3)),
		.timeout_us = 1 + roll(&seed, 100000),
		.n = has_keys ? N_KEYS : 0,
		.digests = slot->digests,
		.found = slot->found,
		.key = &slot->key,
		.data = slot->data,
		.bytes = sizeof(slot->data),
		.done = on_done,
		.user = slot,
	};
	scout__enter_loop();
	scout__l2_submit(l2, roll(&seed, 2), &slot->op, now_us);
	submitted++;
}

static void
wait_for_end(void)
{
	struct pollfd fd = {.fd = scout__l2_fd(l2), .events = POLLIN};

	ck_assert_int_eq(poll(&fd, 1, -1), 1);
}

SCOUT_ON_LOOP static void
check_counters(void)
{
	uint64_t all = 0, refused = 0, results = 0, opened = 0;

	for (uint32_t a = 0; a < 2; a++) {
		const struct scout__l2_counters *counters = &scout__l2_store_of(l2, a)->counters;

		for (unsigned what = 0; what < 6; what++) {
			all += counters->submitted[what];
			refused += counters->results[what][SCOUT__L2_REFUSED];
			for (unsigned i = 0; i < SCOUT__L2_RESULTS; i++)
				results += counters->results[what][i];
		}
		opened += counters->opened[0] + counters->opened[1];
	}
	ck_assert_uint_eq(all, N_OPS);
	ck_assert_uint_eq(results, N_OPS);
	/* Both happened: much was tried, and the breakers were at work. */
	ck_assert_uint_gt(all - refused, N_OPS / 20);
	ck_assert_uint_gt(opened, 0);
	ck_assert_uint_gt(tried, N_OPS / 20);
}

START_TEST(each_of_many_operations_ends_once)
{
	static const char *const urls[] = {"threads:///a", "threads:///b"};
	static const struct scout__log log;
	uint64_t now_us = 1000;
	char err[256];

	scout__enter_loop();
	ck_assert_int_eq(scout__l2_new(thread_adapters, urls, 2, 1, MAX_OPS, &log, &l2, err, sizeof(err)), 0);
	while (ended < N_OPS) {
		bool is_idle = true;

		for (unsigned i = 0; i < N_SLOTS && submitted < N_OPS; i++) {
			if (slots[i].is_live || roll(&seed, 2))
				continue;
			submit_one(&slots[i], now_us);
			is_idle = false;
		}
		now_us += roll(&seed, 2000);
		scout__l2_tick(l2, now_us);
		if (is_idle && submitted > ended)
			wait_for_end();
		(void)scout__l2_reap(l2, 1 + roll(&seed, 16), now_us);
	}
	ck_assert(scout__l2_stop(l2, 1000));
	check_counters();
	scout__l2_free(l2);
}
END_TEST
