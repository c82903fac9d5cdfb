/* SPDX-License-Identifier: Apache-2.0 */
#include "loop.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "conns.h"
#include "dispatch.h"
#include "doorbell.h"
#include "fetch.h"
#include "hold.h"
#include "lease.h"
#include "metrics.h"
#include "ns.h"
#include "peer.h"
#include "pending_op.h"
#include "server_core.h"
#include "server_curve.h"
#include "server_set.h"
#include "shm.h"
#include "state.h"
#include "transport.h"
#include "withdraw.h"
#include "zmq_wait.h"

/*
 * DESIGN
 *
 * The loop thread. It sleeps in one zmq_poll() on the ROUTER socket, its monitor, and one epoll descriptor that carries
 * all that is a file: lease connections, pidfds, the pool's eventfd, the stop eventfd, and a timer. While no call is
 * made on the sockets (peers on this machine do not use them) a poll() on their descriptors does as well, and is one
 * system call instead of eight.
 *
 * A turn: kernel events, what has been received (for some 300 us at most), timers, what is answered so far, one round of
 * the run queue, the tick; then every answer of the turn leaves, one frame for each peer. Kernel events come first, so that
 * a goodbye or a death is known before the same peer's frames are read.
 *
 * With spin_us it looks for that long after a message before it sleeps again, and yields between two looks: the next
 * message may be on its way in a thread that waits for this core.
 *
 * The timer is a timerfd because zmq_poll() counts in milliseconds and answers are held back by microseconds.
 *
 * Stop: operations are refused from then on, those that run get DRAIN_US to be answered, and what waits to be written
 * to the L2 gets as long as a write may be silent, 20 s at most; then everything is taken apart by the same code that serves leaving peers, and the
 * chunk index's accounts must come out even.
 *
 * Threads: this is the loop.
 */

#define DRAIN_US UINT64_C(200000)
#define TICK_MS 20
#define EVENTS 64

SCOUT_ON_LOOP static void
begin_to_stop(struct scout_server *s)
{
	if (s->draining)
		return;
	s->draining = true;
	s->drain_end_us = s->now_us + DRAIN_US;
	if (s->metrics)
		scout__metrics_enter(s, SCOUT__METRICS_DRAINING);
	scout__log(&s->log, SCOUT_LOG_INFO, "stopping: %u operations are running", (unsigned)s->state->n_pending_ops);
}

/* End by itself, when idle_exit_s is over. A peer whose HELLO was read is one; one that comes later finds no server. */
SCOUT_ON_LOOP static void
look_if_idle(struct scout_server *s)
{
	if (!s->cfg.idle_exit_s || s->draining)
		return;
	if (s->state->n_free_peers < s->cfg.max_peers) {
		s->idle_since_us = 0;
		return;
	}
	if (!s->idle_since_us)
		s->idle_since_us = s->now_us;
	if (s->now_us - s->idle_since_us < s->cfg.idle_exit_s * UINT64_C(1000000))
		return;
	scout__log(&s->log, SCOUT_LOG_INFO, "no peer for idle_exit_s = %u seconds: the server ends",
		   (unsigned)s->cfg.idle_exit_s);
	begin_to_stop(s);
}

SCOUT_ON_LOOP static void
one_event(struct scout_server *s, struct scout__watch *watch)
{
	/* Ended by an earlier event of this batch. */
	if (watch->fd < 0)
		return;
	switch (watch->kind) {
	case SCOUT__WATCH_STOP:
		(void)scout__eventfd_lower(watch->fd);
		begin_to_stop(s);
		break;
	case SCOUT__WATCH_TOLD:
		(void)scout__eventfd_lower(watch->fd);
		scout__server_told(s);
		break;
	case SCOUT__WATCH_TIMER:
		(void)scout__eventfd_lower(watch->fd);
		s->timer_us = UINT64_MAX;
		break;
	case SCOUT__WATCH_POOL:
		(void)scout__eventfd_lower(watch->fd);
		scout__ns_pool_ready(s);
		break;
	case SCOUT__WATCH_SHM:
		scout__shm_rang(s, watch->owner);
		break;
	case SCOUT__WATCH_L2:
		break; /* scout__fetch_turn() drains it */
	case SCOUT__WATCH_METRICS:
		scout__metrics_asked(s);
		break;
	case SCOUT__WATCH_LISTENER:
		scout__lease_accept(s);
		break;
	case SCOUT__WATCH_LEASE:
		scout__lease_readable(s, watch->owner);
		break;
	case SCOUT__WATCH_PROCESS: /* a pidfd: the peer's process has ended */
		scout__peer_leave(s, watch->owner, true);
		break;
	}
}

SCOUT_ON_LOOP static void
kernel_events(struct scout_server *s)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(s->epoll_fd, events, EVENTS, 0);

	for (int i = 0; i < n; i++)
		one_event(s, events[i].data.ptr);
	scout__deferred_free(s);
}

/* When the next timer is due: that of a pending operation, or the first quarantine. */
SCOUT_ON_LOOP static void
set_timer(struct scout_server *s)
{
	uint64_t fetch_us = scout__fetch_next_us(s);
	uint64_t at_us = scout__timers_next(s);
	struct itimerspec when = {.it_value = {0, 0}};

	if (!scout__list_empty(&s->state->quarantine)) {
		const struct scout__hold *hold = SCOUT__OWNER(s->state->quarantine.next, struct scout__hold, of_worker);

		if (hold->due_us < at_us)
			at_us = hold->due_us;
	}
	if (fetch_us < at_us)
		at_us = fetch_us;
	if (at_us == s->timer_us)
		return;
	s->timer_us = at_us;
	if (at_us != UINT64_MAX)
		when.it_value = scout__timespec(at_us);
	/* The clock and the numbers are good, so this cannot fail. */
	(void)timerfd_settime(s->timer.fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* What the loop sleeps on, by index in its list. */
enum {
	ITEM_ROUTER,
	ITEM_FILES,
	ITEM_MONITOR,
	ITEM_ZAP,
	N_ITEMS
};

/*
 * One turn. Returns whether there is more to do at once. What zmq_poll() has found empty is left alone: to look again
 * costs a system call each, and a long walk takes a turn for each of its slices.
 */
SCOUT_ON_LOOP static bool
turn(struct scout_server *s, const zmq_pollitem_t *items)
{
	uint64_t end_us;
	bool more;

	s->now_us = scout__now_us();
	s->count.loop_turns++;
	if (s->metrics)
		scout__metrics_beat(s);
	s->inline_left = SCOUT__INLINE_CHUNKS;
	if (items[ITEM_FILES].revents)
		kernel_events(s);
	if (items[ITEM_MONITOR].revents)
		scout__conns_read(s);
	if (items[ITEM_ZAP].revents)
		scout__curve_answer(s);
	scout__fetch_turn(s);
	scout__shm_look(s);
	end_us = s->now_us + SCOUT__TURN_US;
	scout__dispatch_resume(s);
	more = scout__receive(s, items[ITEM_ROUTER].revents != 0, end_us);
	s->now_us = scout__now_us();
	scout__timers_run(s);
	scout__quarantine_run(s);
	if (scout__rebalance_is_due(&s->state->l1) && !s->draining)
		scout__run_queue_add(s, &s->state->rebalance);
	if (!scout__run_queue_empty(s))
		scout__flush_all(s);
	scout__run_queue_run(s);
	scout__peers_tick(s);
	look_if_idle(s);
	scout__fetch_flush(s);
	scout__flush_all(s);
	set_timer(s);
	return more || !scout__run_queue_empty(s);
}

/* Everything that a peer, a session or a hold has goes back to where it came from. */
SCOUT_ON_LOOP static void
take_apart(struct scout_server *s)
{
	scout__pending_ops_shut_down(s); /* they had DRAIN_US to be answered otherwise */
	scout__flush_all(s);
	if (s->transport->inbox.packet)
		scout__packet_unref(s, s->transport->inbox.packet);
	s->transport->inbox.packet = NULL;
	scout__peers_fini(s);
	scout__quarantine_run(s);
	while (!scout__run_queue_empty(s))
		scout__run_queue_run(s);
	while (!scout__list_empty(&s->transport->leases))
		scout__lease_close(s, SCOUT__OWNER(s->transport->leases.next, struct scout__lease, node));
	while (!scout__list_empty(&s->transport->of_workers))
		scout__lease_close(s, SCOUT__OWNER(s->transport->of_workers.next, struct scout__lease, node));
	while (!scout__list_empty(&s->transport->unbound))
		scout__lease_close(s, SCOUT__OWNER(s->transport->unbound.next, struct scout__lease, node));
	scout__deferred_free(s);
	scout__dest_drop(s, &s->transport->unknown_sender);
	scout__withdraw_fini(s);
	if (!scout__fetch_stop(s)) {
		/* Its threads may still touch the pool: it stays as it is, and so do the chunk indexes. */
		scout__pool_stop(&s->state->l1.pool);
		s->state->l1_ready = false;
		s->hangs = true;
		return;
	}
	for (uint32_t i = 0; i < s->state->n_ns; i++)
		scout__ns_free(s, s->state->ns[i]);
	s->state->n_ns = 0;
	scout__fetch_free(s);
	scout__l1_fini(&s->state->l1);
	s->state->l1_ready = false;
}

/* Operations are answered or out of time, and what was stored is written to L2 or out of time, too. */
SCOUT_ON_LOOP static bool
is_drained(const struct scout_server *s, bool more)
{
	if (s->now_us < s->drain_end_us && (s->state->n_pending_ops > 0 || more))
		return false;
	return scout__fetch_is_idle(s) || s->now_us >= s->drain_end_us + s->fetch->drain_us;
}

void *
scout__loop_main(void *arg)
{
	struct scout_server *s = arg;
	zmq_pollitem_t items[N_ITEMS] = {
		[ITEM_ROUTER] = {.socket = s->transport->router, .events = ZMQ_POLLIN},
		[ITEM_FILES] = {.socket = NULL, .fd = s->epoll_fd, .events = ZMQ_POLLIN},
		[ITEM_MONITOR] = {.socket = s->transport->monitor, .events = ZMQ_POLLIN},
		[ITEM_ZAP] = {.socket = s->transport->zap, .events = ZMQ_POLLIN},
	};
	const int n_items = s->transport->zap ? N_ITEMS : s->transport->monitor ? ITEM_ZAP : ITEM_MONITOR;
	struct pollfd fds[N_ITEMS];
	uint64_t spin_end_us = 0, received = 0;
	bool more = false;

	scout__enter_loop();
	s->transport->look = true;
	for (;;) {
		bool is_spinning = s->now_us < spin_end_us;
		bool may_sleep = !more && !is_spinning && scout__shm_park(s);

		if (is_spinning && !more)
			(void)sched_yield();
		if (scout__zmq_wait(items, fds, n_items, may_sleep ? TICK_MS : 0, &s->transport->look) < 0 &&
		    errno != EINTR) {
			scout__log(&s->log, SCOUT_LOG_ERROR, "poll: %s", zmq_strerror(errno));
			begin_to_stop(s);
		}
		more = turn(s, items);
		if (s->cfg.spin_us && s->count.frames_received != received)
			spin_end_us = s->now_us + s->cfg.spin_us;
		received = s->count.frames_received;
		if (s->draining && is_drained(s, more))
			break;
	}
	if (s->metrics)
		scout__metrics_enter(s, SCOUT__METRICS_ENDED);
	take_apart(s);
	scout__eventfd_raise(s->ended_fd);
	return NULL;
}
