/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "object.h"

/*
 * DESIGN
 *
 * Purpose: one operation of L2 as one call of the plugin. The object is two parts, header and payload, so the payload
 * goes straight into the slot. What comes back is checked here, header and sum, whatever the plugin says of itself.
 *
 * Threads: those of blocking.h.
 */

/* ---- the watch ---- */

/*
 * What an object must move for progress within the deadline, or a 16th of it: a store from which single bytes drip would keep a thread for
 * ever.
 */
#define STEP_BYTES (UINT64_C(64) << 10)
#define STEPS 16u

struct call {
	struct scout__plugin *plugin;
	struct scout__l2_op *op;
	uint64_t moved;
	uint64_t step; /* less is no progress */
	uint64_t most; /* what may move: more is no progress */
	char why[SCOUT_L2_WHY_BYTES];
	struct scout_l2_watch watch;
};

static bool
goes_on(void *user, uint64_t moved)
{
	struct call *call = user;
	struct scout__l2_op *op = call->op;

	if (moved > call->most)
		moved = call->most;
	if (moved > call->moved && moved - call->moved >= call->step) {
		call->moved = moved;
		scout__l2_moved(op);
	}
	if (scout__blocking_is_stopping(&call->plugin->blocking))
		return false;
	return !op->timeout_us ||
	       scout__now_us() - atomic_load_explicit(&op->moved_us, memory_order_relaxed) < op->timeout_us;
}

static void
begin(struct call *call, struct scout__plugin *plugin, struct scout__l2_op *op)
{
	*call = (struct call){.plugin = plugin, .op = op, .step = 1, .most = UINT64_MAX};
	if (op->what == SCOUT__L2_LOAD || op->what == SCOUT__L2_STORE) {
		call->step = op->bytes < STEPS * STEP_BYTES ? op->bytes / STEPS + 1 : STEP_BYTES;
		call->most = plugin->tries * (SCOUT__L2_HEADER_BYTES + op->bytes);
	}
	call->watch = (struct scout_l2_watch){.size = sizeof(call->watch), .goes_on = goes_on, .user = call};
}

/* Of an operation that one thread has: a question of a plugin is one slice. */
static void
keep_why(struct call *call, const char *what, int outcome)
{
	struct scout__l2_op *op = call->op;

	call->why[sizeof(call->why) - 1] = '\0';
	if (call->why[0] || outcome == SCOUT_L2_TIMEOUT || outcome == SCOUT_L2_GAVE_UP)
		(void)snprintf(op->why, sizeof(op->why), "%.*s", (int)sizeof(op->why) - 1, call->why);
	else
		(void)snprintf(op->why, sizeof(op->why), "%s: outcome %d, and the plugin does not say why", what,
			       outcome);
}

/* ---- questions ---- */

static int
ask_names(struct scout__plugin *plugin, struct scout__l2_op *op, uint32_t first, uint32_t n, char (*texts)[33],
	  const char **names)
{
	struct call call;
	int outcome;

	begin(&call, plugin, op);
	for (uint32_t i = 0; i < n; i++) {
		scout__l2_digest_text(op->digests[first + i], texts[i]);
		names[i] = texts[i];
	}
	memset(op->found + first, 0, n);
	outcome = plugin->of.exists(plugin->store, names, n, op->is_chain ? SCOUT_L2_CHAIN : 0, op->found + first,
				    &call.watch, call.why);
	for (uint32_t i = first; i < first + n; i++)
		op->found[i] = op->found[i] != 0;
	if (outcome == SCOUT_L2_DONE)
		return 0;
	if (outcome == SCOUT_L2_GAVE_UP && scout__blocking_is_stopping(&plugin->blocking))
		return ECANCELED;
	keep_why(&call, "a question", outcome);
	return outcome == SCOUT_L2_GAVE_UP || outcome == SCOUT_L2_TIMEOUT ? ETIMEDOUT : EIO;
}

static int
ask(void *store, struct scout__l2_op *op, uint32_t first, uint32_t n)
{
	char(*texts)[33] = calloc(n, sizeof(*texts));
	const char **names = calloc(n, sizeof(*names));
	int errnum = texts && names ? ask_names(store, op, first, n, texts, names) : ENOMEM;

	free(texts);
	free(names);
	return errnum;
}

/* ---- transfers ---- */

static const char *
name_of(uint8_t what)
{
	switch (what) {
	case SCOUT__L2_LOAD:
		return "a load";
	case SCOUT__L2_STORE:
		return "a store";
	case SCOUT__L2_REMOVE:
		return "a removal";
	default:
		return "an access to a record";
	}
}

/* For outcomes that mean the same for each call. */
static enum scout__l2_result
result_of(struct call *call, int outcome)
{
	if (outcome == SCOUT_L2_DONE)
		return SCOUT__L2_OK;
	keep_why(call, name_of(call->op->what), outcome);
	if (outcome == SCOUT_L2_GAVE_UP && scout__blocking_is_stopping(&call->plugin->blocking))
		return SCOUT__L2_CANCELLED;
	return outcome == SCOUT_L2_TIMEOUT || outcome == SCOUT_L2_GAVE_UP ? SCOUT__L2_TIMEOUT : SCOUT__L2_ERROR;
}

static bool
is_good(const uint8_t header[SCOUT__L2_HEADER_BYTES], const struct scout__l2_op *op)
{
	struct scout__l2_digest sum, is;

	if (scout__l2_header_check(header, op->key, op->bytes, &sum) != SCOUT__L2_HEADER_OK)
		return false;
	is = scout__l2_sum(op->data, op->bytes);
	return is.lo == sum.lo && is.hi == sum.hi;
}

static enum scout__l2_result
load(struct call *call, const char *name)
{
	struct scout__plugin *plugin = call->plugin;
	struct scout__l2_op *op = call->op;
	uint8_t header[SCOUT__L2_HEADER_BYTES] = {0};
	struct iovec parts[] = {{header, sizeof(header)}, {op->data, op->bytes}};
	int outcome = plugin->of.load(plugin->store, name, 0, parts, 2, &call->watch, call->why);

	if (outcome == SCOUT_L2_DONE && is_good(header, op))
		return SCOUT__L2_OK;
	if (outcome != SCOUT_L2_DONE && outcome != SCOUT_L2_WRONG_SIZE)
		return outcome == SCOUT_L2_ABSENT ? SCOUT__L2_ABSENT : result_of(call, outcome);
	if (scout__l2_header_is_other_format(header))
		return SCOUT__L2_ABSENT;
	if (!scout__l2_header_is_foreign(header))
		return SCOUT__L2_CORRUPT;
	/* A proxy's page, say: the object is not to be removed for it. */
	(void)snprintf(op->why, sizeof(op->why), "what came for a load is no object of kvscout");
	return SCOUT__L2_ERROR;
}

static enum scout__l2_result
store_object(struct call *call, const char *name)
{
	struct scout__plugin *plugin = call->plugin;
	struct scout__l2_op *op = call->op;
	uint8_t header[SCOUT__L2_HEADER_BYTES];
	struct iovec parts[] = {{header, sizeof(header)}, {op->data, op->bytes}};
	int outcome;

	scout__l2_header_put(header, op->key, op->bytes, scout__l2_sum(op->data, op->bytes));
	outcome = plugin->of.store(plugin->store, name, 0, parts, 2, &call->watch, call->why);
	/* Room is the plugin's affair, and full is not broken: no `detail`. */
	if (outcome == SCOUT_L2_FULL)
		return SCOUT__L2_FULL;
	return outcome == SCOUT_L2_PRESENT ? SCOUT__L2_PRESENT : result_of(call, outcome);
}

static enum scout__l2_result
read_record(struct call *call, const char *name)
{
	struct scout__l2_op *op = call->op;
	struct iovec part = {op->data, op->bytes};
	int outcome =
		call->plugin->of.load(call->plugin->store, name, SCOUT_L2_RECORD, &part, 1, &call->watch, call->why);

	op->found[0] = outcome == SCOUT_L2_DONE || outcome == SCOUT_L2_WRONG_SIZE;
	if (outcome != SCOUT_L2_DONE)
		memset(op->data, 0, op->bytes);
	if (outcome == SCOUT_L2_ABSENT || outcome == SCOUT_L2_WRONG_SIZE)
		return SCOUT__L2_OK;
	return result_of(call, outcome);
}

static enum scout__l2_result
write_record(struct call *call, const char *name)
{
	struct scout__l2_op *op = call->op;
	struct iovec part = {op->data, op->bytes};

	return result_of(call, call->plugin->of.store(call->plugin->store, name, SCOUT_L2_RECORD, &part, 1,
						      &call->watch, call->why));
}

static void
transfer(void *store, uint32_t hand, struct scout__l2_op *op)
{
	struct call call;
	char name[33];

	(void)hand;
	begin(&call, store, op);
	op->detail = 0;
	switch (op->what) {
	case SCOUT__L2_LOAD:
		scout__l2_digest_text(op->key->digest, name);
		op->result = (uint8_t)load(&call, name);
		break;
	case SCOUT__L2_STORE:
		scout__l2_digest_text(op->key->digest, name);
		op->result = (uint8_t)store_object(&call, name);
		break;
	case SCOUT__L2_REMOVE:
		scout__l2_digest_text(op->key->digest, name);
		op->result = (uint8_t)result_of(
			&call, call.plugin->of.remove(call.plugin->store, name, &call.watch, call.why));
		break;
	default:
		scout__l2_digest_text(op->digests[0], name);
		op->result = (uint8_t)(op->what == SCOUT__L2_RECORD_READ ? read_record(&call, name)
									 : write_record(&call, name));
	}
}

/* A plugin is asked for a whole chain at once: it alone knows how many questions that takes. */
const struct scout__blocking_calls scout__plugin_calls = {.ask = ask, .transfer = transfer};
