/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_L2_SCRIPT_H
#define KVSCOUT_TESTS_L2_SCRIPT_H

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "l2.h"
#include "url.h"

/*
 * An adapter that does what a test says, and the front over it. "script://a": the path names it. Operations stand in the order of
 * their submit until the test ends them. Included once in a test binary, whose table of adapters this is.
 */
#define SCRIPT_ROOM 64

struct script {
	struct scout__l2_port *port;
	struct scout__l2_op *ops[SCRIPT_ROOM]; /* not ended */
	unsigned n;
	unsigned submits;
	bool is_refusing;
	bool hangs;
	bool is_stopped;
	bool is_closed;
	uint32_t max_ops;
};

static struct script scripts[SCOUT__L2_MAX_ADAPTERS + 1];
static unsigned n_scripts;
static uint32_t script_wants[2] = {UINT32_MAX, UINT32_MAX}; /* at once, by enum scout__l2_side; of those opened next */

static int
script_open(const struct scout__l2_open *args, void **ret_adapter, char *err, size_t err_len)
{
	struct script *script = &scripts[n_scripts];

	if (strcmp(args->url->path, "/broken") == 0)
		return scout__fail(err, err_len, SCOUT_ERR_PERMISSION, "it is broken");
	*script = (struct script){.port = args->port, .max_ops = args->max_ops};
	n_scripts++;
	*ret_adapter = script;
	return 0;
}

static bool
script_submit(void *adapter, struct scout__l2_op *op)
{
	struct script *script = adapter;

	ck_assert(!script->is_stopped);
	script->submits++;
	if (script->is_refusing)
		return false;
	ck_assert_uint_lt(script->n, script->max_ops);
	script->ops[script->n++] = op;
	return true;
}

/* End operation @i of those that are not. */
static void
script_end(struct script *script, unsigned i, enum scout__l2_result result, int detail)
{
	struct scout__l2_op *op = script->ops[i];

	ck_assert_uint_lt(i, script->n);
	memmove(&script->ops[i], &script->ops[i + 1], (script->n - i - 1) * sizeof(script->ops[0]));
	script->n--;
	op->result = (uint8_t)result;
	op->detail = detail;
	scout__l2_complete(script->port, op);
}

static bool
script_stop(void *adapter, uint64_t deadline_us)
{
	struct script *script = adapter;

	(void)deadline_us;
	ck_assert(!script->is_stopped);
	script->is_stopped = true;
	while (script->n && !script->hangs)
		script_end(script, 0, SCOUT__L2_CANCELLED, 0);
	return !script->hangs;
}

static void
script_close(void *adapter)
{
	struct script *script = adapter;

	ck_assert(script->is_stopped && !script->hangs && !script->is_closed);
	script->is_closed = true;
}

static void
script_gauges(void *adapter, struct scout__l2_gauges *ret_gauges)
{
	const struct script *script = adapter;

	*ret_gauges = (struct scout__l2_gauges){.objects = script->n, .ready = true};
}

static uint32_t
script_at_once(const void *adapter, enum scout__l2_side side)
{
	(void)adapter;
	return script_wants[side];
}

static const struct scout__l2_adapter script_adapter = {
	.scheme = "script",
	.open = script_open,
	.submit = script_submit,
	.at_once = script_at_once,
	.stop = script_stop,
	.close = script_close,
	.gauges = script_gauges,
};

static const struct scout__l2_adapter *const script_adapters[] = {&script_adapter, NULL};

/* ---- the log ---- */

static char log_text[16384];

static void
log_line(void *user, int level, const char *text)
{
	size_t len = strlen(log_text);

	(void)user;
	(void)level;
	(void)snprintf(log_text + len, sizeof(log_text) - len, "%s\n", text);
}

static const struct scout__log test_log = {.fn = log_line, .who = "test"};

/* How often @what stands in the log. */
static unsigned
logged(const char *what)
{
	unsigned n = 0;

	for (const char *at = log_text; (at = strstr(at, what)); at++)
		n++;
	return n;
}

#endif
