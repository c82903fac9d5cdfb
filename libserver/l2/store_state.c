/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_internal.h"

#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "utf8.h"

/*
 * DESIGN
 *
 * Purpose: say whether a store works, from how operations on it ended: all of them, those on records too. A kind of operation that
 * failed counts until one of its kind works, so that a catalogue that answers from memory does not hide that loads fail. A kind that
 * nothing asks for again counts for a minute, if others work.
 *
 * While a store does not work, L2 reads a record that no namespace has (scout__l2_try_reads()): so the state follows the store also
 * when no engine is there.
 *
 * A change of state is one line of the log, and a store that does not work is one line a minute.
 *
 * Threads: the loop.
 */

#define MINUTE_US UINT64_C(60000000)
#define SETTLE_US UINT64_C(2000000) /* a store that fails now and then does not change its state all the time */
#define WORDS_US UINT64_C(10000000) /* those of a later failure count */
#define PROBE_US UINT64_C(5000000)
#define BIT(what) ((uint8_t)(1u << (what)))

static const uint8_t kinds_of_side[] = {BIT(SCOUT__L2_EXISTS) | BIT(SCOUT__L2_LOAD),
					BIT(SCOUT__L2_STORE) | BIT(SCOUT__L2_REMOVE)};

static bool
is_off(const struct scout__l2_port *port, enum scout__l2_side side)
{
	return port->sides[side].state != SCOUT__L2_CLOSED;
}

SCOUT_ON_LOOP static enum scout__l2_state
find_state(const struct scout__l2_port *port, uint64_t now_us)
{
	const struct scout__l2_seen *seen = &port->seen;
	struct scout__l2_gauges gauges;

	if (is_off(port, SCOUT__L2_READS) || is_off(port, SCOUT__L2_WRITES))
		return SCOUT__L2_OFF;
	if (seen->failing && (seen->worked_us <= seen->failed_us || now_us < seen->failed_us + MINUTE_US))
		return SCOUT__L2_FAILING;
	if (seen->failed_us && now_us < seen->failed_us + SETTLE_US)
		return SCOUT__L2_FAILING;
	port->ops->gauges(port->adapter, &gauges);
	return gauges.ready && (seen->worked_us || !port->ops->keeps_records) ? SCOUT__L2_WORKS : SCOUT__L2_STARTING;
}

static uint64_t
retry_ms(const struct scout__l2_port *port, uint64_t now_us)
{
	uint64_t at_us = UINT64_MAX;

	for (unsigned side = SCOUT__L2_READS; side <= SCOUT__L2_WRITES; side++)
		if (is_off(port, (enum scout__l2_side)side) && port->sides[side].retry_us < at_us)
			at_us = port->sides[side].retry_us;
	return at_us == UINT64_MAX || at_us <= now_us ? 0 : (at_us - now_us) / 1000;
}

SCOUT_ON_LOOP static void
tell(struct scout__l2_port *port, uint64_t now_us)
{
	struct scout__l2_seen *seen = &port->seen;
	char what[64] = "failing";

	if (seen->state == SCOUT__L2_WORKS) {
		scout__log(port->l2->log, SCOUT_LOG_INFO, "L2 %s: works", port->url.shown);
	} else {
		if (seen->state == SCOUT__L2_OFF)
			(void)snprintf(what, sizeof(what), "%s%s%s off, next try in %llu ms",
				       is_off(port, SCOUT__L2_READS) ? "reads" : "",
				       is_off(port, SCOUT__L2_READS) && is_off(port, SCOUT__L2_WRITES) ? " and " : "",
				       is_off(port, SCOUT__L2_WRITES) ? "writes" : "",
				       (unsigned long long)retry_ms(port, now_us));
		scout__log(port->l2->log, SCOUT_LOG_WARN, "L2 %s: %s: %s", port->url.shown, what, seen->words);
	}
	seen->told = seen->state;
	seen->told_us = now_us;
}

void
scout__l2_look_at_state(struct scout__l2_port *port, uint64_t now_us)
{
	struct scout__l2_seen *seen = &port->seen;
	enum scout__l2_state state = find_state(port, now_us);

	if (state != seen->state || !seen->since_ms) {
		seen->since_ms = scout__wall_us() / 1000;
		seen->state = state;
	}
	if (state == SCOUT__L2_WORKS)
		seen->words[0] = '\0';
	if (state != SCOUT__L2_STARTING &&
	    (state != seen->told || (state != SCOUT__L2_WORKS && now_us - seen->told_us >= MINUTE_US)))
		tell(port, now_us);
}

/* Keep why @op failed; @words NULL: what it says itself, unless other words are as good as new. */
static void
keep_words(struct scout__l2_port *port, const struct scout__l2_op *op, const char *words, uint64_t now_us)
{
	struct scout__l2_seen *seen = &port->seen;
	const char *what = scout__l2_what_name(op->what);

	if (!words && seen->words[0] && now_us - seen->words_us < WORDS_US)
		return;
	seen->words_us = now_us;
	/* One that is late is still the adapter's. */
	if (words)
		(void)snprintf(seen->words, sizeof(seen->words), "%s", words);
	else if (op->is_late || (op->result == SCOUT__L2_TIMEOUT && !op->why[0]))
		(void)snprintf(seen->words, sizeof(seen->words), "%s: no progress for %llu ms", what,
			       (unsigned long long)op->timeout_us / 1000);
	else if (op->why[0])
		(void)snprintf(seen->words, sizeof(seen->words), "%s", op->why);
	else
		(void)snprintf(seen->words, sizeof(seen->words), "%s: %s", what,
			       op->detail ? scout__errno_text(op->detail) : scout__l2_result_name(op->result));
	scout__utf8_clean(seen->words);
}

void
scout__l2_note(struct scout__l2_port *port, const struct scout__l2_op *op, const char *words, bool worked,
	       uint64_t now_us)
{
	struct scout__l2_seen *seen = &port->seen;

	if (worked) {
		seen->failing &= (uint8_t)~BIT(op->what);
		seen->worked_us = now_us;
	} else {
		keep_words(port, op, words, now_us);
		seen->failing |= BIT(op->what);
		seen->failed_us = now_us;
	}
}

void
scout__l2_side_works(struct scout__l2_port *port, enum scout__l2_side side)
{
	port->seen.failing &= (uint8_t)~kinds_of_side[side];
	if (!port->seen.failing)
		port->seen.failed_us = 0;
}

bool
scout__l2_wants_probe(struct scout__l2_port *port, uint64_t now_us)
{
	struct scout__l2_seen *seen = &port->seen;

	if (!port->ops->keeps_records || seen->state == SCOUT__L2_WORKS || is_off(port, SCOUT__L2_READS) ||
	    now_us < seen->probe_us)
		return false;
	seen->probe_us = now_us + PROBE_US;
	return true;
}

enum scout__l2_breaker
scout__l2_breaker_of(const struct scout__l2 *l2, uint32_t adapter, enum scout__l2_side side)
{
	const struct scout__l2_port *port = &l2->ports[adapter];
	uint8_t records = BIT(SCOUT__L2_RECORD_READ);

	/* A store whose records fail is not used, and is tried by asking for them again. */
	if (side == SCOUT__L2_WRITES)
		records |= BIT(SCOUT__L2_RECORD_WRITE);
	if (!is_off(port, side) && port->seen.state >= SCOUT__L2_FAILING && port->seen.failing & records)
		return SCOUT__L2_HALF_OPEN;
	return port->sides[side].state;
}

void
scout__l2_health_of(const struct scout__l2 *l2, uint32_t adapter, uint64_t now_us, struct scout__l2_health *ret_health)
{
	const struct scout__l2_port *port = &l2->ports[adapter];

	*ret_health = (struct scout__l2_health){.state = port->seen.state,
						.since_ms = port->seen.since_ms,
						.retry_ms = retry_ms(port, now_us),
						.words = port->seen.words};
}
