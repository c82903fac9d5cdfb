/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_fault.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "l2_adapters.h"
#include "l2_queue.h"
#include "url.h"
#include "clock.h"
#include "files.h"
#include "l2_fault_disk.h"
#ifdef HAVE_HIREDIS
#include "redis.h"
#endif

/*
 * DESIGN
 *
 * One thread stands where the adapter's submit is: the loop pushes to it, and it alone pushes to the adapter, which therefore
 * still has one producer. It holds what a rule delays or hangs. What passes is completed by the adapter itself, on the
 * port of L2 itself.
 *
 * Holding is looked at every millisecond: the other process has only memory to tell us through.
 */

struct fault {
	const struct scout__l2_adapter *inner;
	void *inner_adapter;
	struct scout__l2_port *port;
	struct l2_fault_control *control;
	struct scout__l2_queue queue;
	struct scout__l2_op *held; /* thread; list by next */
	pthread_t thread;
	atomic_bool is_stopping;
	atomic_bool has_ended; /* the thread has nothing any more */
};

/* ---- the thread ---- */

static void
end(struct fault *fault, struct scout__l2_op *op, uint32_t result, int32_t detail)
{
	op->result = (uint8_t)result;
	op->detail = detail;
	scout__l2_complete(fault->port, op);
}

static void
pass(struct fault *fault, struct scout__l2_op *op)
{
	/* Before it is given away: it may end, and be another one, at once. */
	struct l2_fault_rule *rule = &fault->control->ops[op->what];

	atomic_fetch_add(&rule->passed, 1);
	if (!fault->inner->submit(fault->inner_adapter, op))
		end(fault, op, SCOUT__L2_ERROR, EAGAIN);
}

/* A new one: passed, failed, or held. */
static void
take(struct fault *fault, struct scout__l2_op *op)
{
	struct l2_fault_rule *rule = &fault->control->ops[op->what];
	uint32_t fail = atomic_load(&rule->fail);
	bool is_held = atomic_load(&rule->hang) || atomic_load(&rule->delay_ms);

	if (fail || is_held)
		atomic_fetch_add(&rule->hits, 1);
	if (fail) {
		end(fault, op, fail - 1, atomic_load(&rule->detail));
	} else if (is_held) {
		scout__l2_moved(op); /* begun, and hanging from then on */
		op->next = fault->held;
		fault->held = op;
	} else {
		pass(fault, op);
	}
}

/* Whether @op may go on; a delay counts from the submit. */
static bool
is_over(const struct fault *fault, const struct scout__l2_op *op, uint64_t now_us)
{
	const struct l2_fault_rule *rule = &fault->control->ops[op->what];
	uint32_t hang = atomic_load(&rule->hang);

	if (atomic_load(&fault->is_stopping))
		return hang < 2;
	return !hang && now_us >= op->submitted_us + UINT64_C(1000) * atomic_load(&rule->delay_ms);
}

static void
look_at_held(struct fault *fault)
{
	struct scout__l2_op **at = &fault->held;
	uint64_t now_us = scout__now_us();

	while (*at) {
		struct scout__l2_op *op = *at;

		if (!is_over(fault, op, now_us)) {
			at = &op->next;
			continue;
		}
		*at = op->next;
		if (atomic_load(&fault->is_stopping))
			end(fault, op, SCOUT__L2_CANCELLED, 0);
		else
			pass(fault, op);
	}
}

static void *
fault_main(void *arg)
{
	struct fault *fault = arg;
	struct pollfd fd = {.fd = fault->queue.bell.fd, .events = POLLIN};

	for (;;) {
		/* Asked before the queue is emptied: what is pushed before the close is still taken. */
		bool is_closed = scout__l2_queue_is_closed(&fault->queue);
		struct scout__l2_op *op;

		while ((op = scout__l2_queue_try(&fault->queue))) {
			if (atomic_load(&fault->is_stopping))
				end(fault, op, SCOUT__L2_CANCELLED, 0);
			else
				take(fault, op);
		}
		look_at_held(fault);
		if (is_closed && !fault->held)
			break;
		if (scout__l2_queue_sleep(&fault->queue) || fault->held)
			(void)poll(&fd, 1, fault->held ? 1 : -1);
		scout__l2_queue_woke(&fault->queue);
	}
	atomic_store(&fault->has_ended, true);
	return NULL;
}

/* ---- the adapter ---- */

/* The URL of the adapter behind: without "fault+" and control, of which *@ret_path is the value. */
static struct scout__l2_url
inner_url(const struct scout__l2_url *url, struct scout__l2_url_option *options, char *scheme, const char **ret_path)
{
	struct scout__l2_url inner = *url;

	*ret_path = NULL;
	inner.scheme = scheme;
	inner.options = options;
	inner.n_options = 0;
	for (uint32_t i = 0; i < url->n_options; i++) {
		if (strcmp(url->options[i].name, "control") == 0)
			*ret_path = url->options[i].value;
		else
			options[inner.n_options++] = url->options[i];
	}
	return inner;
}

static int
fault_open(const struct scout__l2_open *args, const struct scout__l2_adapter *adapter, void **ret_adapter, char *err,
	   size_t err_len)
{
	struct scout__l2_url_option options[SCOUT__L2_MAX_URL_OPTIONS];
	char scheme[32] = "";
	struct scout__l2_open inner_args = *args;
	struct scout__l2_url url;
	struct fault *fault;
	const char *path;
	int rc;

	strncpy(scheme, adapter->scheme, sizeof(scheme) - 1);
	url = inner_url(args->url, options, scheme, &path);
	if (!path)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "control=FILE is missing");
	fault = calloc(1, sizeof(*fault));
	if (!fault)
		return SCOUT_ERR_NOMEM;
	fault->inner = adapter;
	fault->port = args->port;
	fault->control = l2_fault_map(path);
	l2_fault_disk_init(url.path, &fault->control->disk);
	inner_args.url = &url;
	rc = adapter->open(&inner_args, &fault->inner_adapter, err, err_len);
	if (rc)
		goto err_free;
	rc = scout__l2_queue_init(&fault->queue, args->max_ops, true);
	if (rc || scout__thread_start(&fault->thread, "l2-fault", fault_main, fault) != 0)
		abort();
	*ret_adapter = fault;
	return 0;

err_free:
	free(fault);
	return rc;
}

SCOUT_ON_LOOP static bool
fault_submit(void *adapter, struct scout__l2_op *op)
{
	struct fault *fault = adapter;

	return scout__l2_queue_push(&fault->queue, op);
}

static bool
fault_stop(void *adapter, uint64_t deadline_us)
{
	struct fault *fault = adapter;
	bool ok;

	atomic_store(&fault->is_stopping, true);
	scout__l2_queue_close(&fault->queue);
	while (!atomic_load(&fault->has_ended) && scout__now_us() < deadline_us)
		(void)poll(NULL, 0, 1);
	/* The adapter stops in any case; who hangs is told. */
	ok = fault->inner->stop(fault->inner_adapter, deadline_us);
	if (!atomic_load(&fault->has_ended))
		return false;
	(void)pthread_join(fault->thread, NULL);
	return ok;
}

static void
fault_close(void *adapter)
{
	struct fault *fault = adapter;

	fault->inner->close(fault->inner_adapter);
	scout__l2_queue_fini(&fault->queue);
	free(fault);
}

static uint32_t
fault_at_once(const void *adapter, enum scout__l2_side side)
{
	const struct fault *fault = adapter;

	return fault->inner->at_once ? fault->inner->at_once(fault->inner_adapter, side) : UINT32_MAX;
}

static void
fault_gauges(void *adapter, struct scout__l2_gauges *ret_gauges)
{
	struct fault *fault = adapter;

	fault->inner->gauges(fault->inner_adapter, ret_gauges);
}

static int
open_files(const struct scout__l2_open *args, void **ret_adapter, char *err, size_t err_len)
{
	return fault_open(args, &scout__l2_files, ret_adapter, err, err_len);
}

static const struct scout__l2_adapter fault_files = {
	.scheme = "fault+fs",
	.open = open_files,
	.submit = fault_submit,
	.at_once = fault_at_once,
	.stop = fault_stop,
	.close = fault_close,
	.gauges = fault_gauges,
	.keeps_records = true,
};

#ifdef HAVE_HIREDIS
static int
open_redis(const struct scout__l2_open *args, void **ret_adapter, char *err, size_t err_len)
{
	return fault_open(args, &scout__l2_redis, ret_adapter, err, err_len);
}

static const struct scout__l2_adapter fault_redis = {
	.scheme = "fault+redis",
	.open = open_redis,
	.submit = fault_submit,
	.at_once = fault_at_once,
	.stop = fault_stop,
	.close = fault_close,
	.gauges = fault_gauges,
	.keeps_records = true,
};
#endif

const struct scout__l2_adapter *const scout__l2_adapters[] = {
	&scout__l2_files,
	&fault_files,
#ifdef HAVE_HIREDIS
	&scout__l2_redis,
	&fault_redis,
#endif
	NULL,
};
