/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_script.h"

struct script scripts[SCOUT__L2_MAX_ADAPTERS + 1];

unsigned n_scripts;

uint32_t script_wants[2] = {UINT32_MAX, UINT32_MAX};

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

void
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

#define ADAPTER(name, records)                                                                                         \
	{                                                                                                              \
		.scheme = name, .keeps_records = records, .open = script_open, .submit = script_submit,                \
		.at_once = script_at_once, .stop = script_stop, .close = script_close, .gauges = script_gauges,        \
	}

static const struct scout__l2_adapter script_adapter = ADAPTER("script", false);
static const struct scout__l2_adapter records_adapter = ADAPTER("records", true);

const struct scout__l2_adapter *const script_adapters[] = {&script_adapter, &records_adapter, NULL};

char log_text[16384];

void
log_line(void *user, int level, const char *text)
{
	size_t len = strlen(log_text);

	(void)user;
	(void)level;
	(void)snprintf(log_text + len, sizeof(log_text) - len, "%s\n", text);
}

const struct scout__log test_log = {.fn = log_line, .who = "test"};

unsigned
logged(const char *what)
{
	unsigned n = 0;

	for (const char *at = log_text; (at = strstr(at, what)); at++)
		n++;
	return n;
}
