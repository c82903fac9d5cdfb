/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_internal.h"

/*
 * DESIGN
 *
 * Purpose: the clocks of operations that an adapter has (l2.h names them). The adapter's threads write when an
 * operation moved last; the loop looks, at the latest when the first of them can be late. One that has not begun cannot
 * be late before timeout_us from now, so no look is missed, and an operation that hangs is found when its time is over.
 *
 * Whole stores that hang: threads that hang take no further operation, so waiting operations would wait for ever, and
 * no count of failures would be reached. In two cases the breaker of the waiting side opens at once:
 *
 *   full    all that the adapter wants of that side at once is late, and more waits in l2_submit
 *   stuck   all that it has begun is late, nothing came back for timeout_us, and something that it was given as long ago was not
 *           begun
 *
 * Questions are looked at apart from disk operations, because adapters have other threads or connections for them.
 *
 * A slow store that moves bytes is never late, whatever waits for it.
 *
 * Threads: the loop.
 */

/* What the operations of one kind of thread do. */
struct clock_view {
	uint32_t n_moving;          /* begun, and moved within l2_timeout_ms */
	uint32_t n_late;            /* begun and late */
	struct scout__l2_op *stale; /* given timeout_us ago and not begun */
};

/* Nothing waits for @op any more. It stays the adapter's until it comes back. */
SCOUT_ON_LOOP static void
give_up(struct scout__l2_port *port, struct scout__l2_op *op)
{
	op->is_late = true;
	port->n_late++;
	if (op != &port->trial.op)
		port->store.counters.overdue[op->what]++;
	if (op->late)
		op->late(op->user, op);
}

/* Returns when @op can be late at the earliest; UINT64_MAX: never, or it is late already. */
SCOUT_ON_LOOP static uint64_t
look_at(struct scout__l2_port *port, struct scout__l2_op *op, struct clock_view *view, uint64_t now_us)
{
	uint64_t moved_us = atomic_load_explicit(&op->moved_us, memory_order_relaxed);

	if (moved_us == 0) {
		if (op->is_late || op->timeout_us == 0)
			return UINT64_MAX;
		if (now_us - op->given_us >= op->timeout_us)
			view->stale = op;
		return now_us + op->timeout_us;
	}
	if (!op->is_late && op->timeout_us && now_us >= moved_us + op->timeout_us) {
		give_up(port, op);
		scout__l2_judge(port, op, SCOUT__L2_FAILED, now_us);
	}
	/* A write may be silent for longer than a load may wait for it. */
	if (op->is_late)
		view->n_late++;
	else if (now_us < moved_us + port->l2->timeout_us)
		view->n_moving++;
	return op->is_late || op->timeout_us == 0 ? UINT64_MAX : moved_us + op->timeout_us;
}

/* Operations that the adapter has and did not begin, because its threads hang. */
SCOUT_ON_LOOP static void
give_up_stuck(struct scout__l2_port *port, bool questions, uint64_t now_us)
{
	SCOUT__LIST_EACH(node, &port->running)
	{
		struct scout__l2_op *op = SCOUT__L2_OP(node);

		if (op->is_late || op->timeout_us == 0 || scout__l2_is_question(op) != questions ||
		    scout__l2_has_begun(op))
			continue;
		give_up(port, op);
		if (op == &port->trial.op || op == port->write_trial)
			scout__l2_judge(port, op, SCOUT__L2_FAILED, now_us);
		else
			scout__l2_hangs(port, scout__l2_side_of(op), op, now_us);
	}
}

/* Whether all that the adapter was given of @side is late. */
static bool
is_full_of_late(const struct scout__l2_port *port, enum scout__l2_side side)
{
	SCOUT__LIST_EACH(node, &port->running)
	{
		const struct scout__l2_op *op = SCOUT__L2_OP(node);

		if (!scout__l2_is_question(op) && scout__l2_side_of(op) == side && !op->is_late)
			return false;
	}
	return true;
}

SCOUT_ON_LOOP static void
look_for_hanging(struct scout__l2_port *port, const struct clock_view views[2], uint64_t now_us)
{
	for (unsigned of_disk = 0; of_disk < 2; of_disk++) {
		const struct clock_view *view = &views[of_disk];

		if (view->stale && view->n_late > 0 && view->n_moving == 0 &&
		    now_us - port->ended_us[of_disk] >= view->stale->timeout_us)
			give_up_stuck(port, of_disk == 0, now_us);
	}
	for (unsigned side = SCOUT__L2_READS; side <= SCOUT__L2_WRITES; side++) {
		struct scout__list *list = &port->waiting[side];

		if (!scout__list_empty(list) && is_full_of_late(port, (enum scout__l2_side)side))
			scout__l2_hangs(port, (enum scout__l2_side)side, SCOUT__L2_OP(list->next), now_us);
	}
}

void
scout__l2_look_at_clocks(struct scout__l2_port *port, uint64_t now_us)
{
	struct clock_view views[2] = {{.n_moving = 0}, {.n_moving = 0}};

	/* Operations that ended meanwhile wait for the next reap, and may have been in time. */
	if (now_us < port->due_us || !scout__ring_empty(&port->done))
		return;
	port->due_us = UINT64_MAX;
	SCOUT__LIST_EACH(node, &port->running)
	{
		struct scout__l2_op *op = SCOUT__L2_OP(node);
		uint64_t due_us = look_at(port, op, &views[!scout__l2_is_question(op)], now_us);

		if (due_us < port->due_us)
			port->due_us = due_us;
	}
	look_for_hanging(port, views, now_us);
}
