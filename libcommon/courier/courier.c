/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The courier thread's loop. It owns the zmq context, all links and the user_fd; the caller touches only the ring and
 * the doorbell.
 *
 * One turn: drain the ring, let the user put operations into frames, send them; read what has come, run timers, send what follows
 * from that. A turn that found nothing to do parks in zmq_poll until a socket, the doorbell, the user_fd or the nearest
 * timer.
 *
 * Parking and submitting: as doorbell.h says. The last look is at the ring and at `stop`; a burst of submits rings once.
 *
 * zmq_poll and not epoll on ZMQ_FD: that descriptor is edge-triggered, and zmq_send() consumes its edge. But zmq_poll is some eight
 * system calls. Links whose frames travel through a channel make no call on their sockets, so no edge can be consumed: once
 * zmq_poll has found nothing on them, poll() on their ZMQ_FDs is enough until one of them becomes readable.
 *
 * Rejected: one epoll instance for all of these descriptors, with the doorbells edge-triggered. It saves a read() and the walk over five
 * descriptors, and costs each client a sixth descriptor; measured by turns with poll(), neither was faster.
 *
 * No needless wakes: while the user waits for no answer (is_awaited), servers are not asked to ring. Their answers
 * then stay in the channel until the next word or timer.
 *
 * Scheduling: the doorbell wakes the courier, often on the caller's own core, where it would preempt the scheduler's step in the
 * middle. SCHED_BATCH, which needs no privilege, lets the caller finish; if another core is idle it changes nothing.
 */
#include "courier_internal.h"

#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "clock.h"
#include "zmq_wait.h"

#define RECEIVE_BATCH 64u
#define DRAIN_LINGER_MS 100
#define REAP_US UINT64_C(20000) /* between two looks whether the process that starts a server has ended */

const struct scout__courier_stats *
scout__courier_counts(const struct scout__courier *courier)
{
	return &courier->stats;
}

struct scout__link *
scout__courier_link(struct scout__courier *courier, uint32_t index)
{
	SCOUT_DASSERT(index < courier->n_links);
	return &courier->links[index];
}

bool
scout__courier_push(struct scout__courier *courier, uint64_t word)
{
	return scout__ring_push(&courier->ring, word);
}

bool
scout__courier_ring(struct scout__courier *courier)
{
	return scout__doorbell_ring(&courier->bell);
}

/* ---- the loop ---- */

static bool SCOUT_ON_COURIER
drain_ring(struct scout__courier *c, uint64_t now_us)
{
	bool any = false;
	uint64_t word;

	while ((word = scout__ring_pop(&c->ring)) != 0) {
		c->ops->word(c->user, word, now_us);
		any = true;
	}
	return any;
}

static bool SCOUT_ON_COURIER
receive_all(struct scout__courier *c)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < c->n_links; i++) {
		if (scout__channel_is_open(&c->links[i].channel)) {
			n += scout__link_channel_receive(&c->links[i], RECEIVE_BATCH);
		} else if (c->links[i].state >= SCOUT__LINK_GREETING) {
			n += scout__link_receive(&c->links[i], RECEIVE_BATCH);
			c->look = true;
		}
	}
	return n > 0;
}

static uint64_t SCOUT_ON_COURIER
run_timers(struct scout__courier *c, uint64_t now_us)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < c->n_links; i++) {
		uint64_t at = scout__link_tick(&c->links[i], now_us);

		next = at < next ? at : next;
	}
	if (c->ops->tick) {
		uint64_t at = c->ops->tick(c->user, now_us);

		next = at < next ? at : next;
	}
	if (c->env.starter && !scout__starter_reap(c->env.starter) && now_us + REAP_US < next)
		next = now_us + REAP_US;
	return next;
}

static void SCOUT_ON_COURIER
send_all(struct scout__courier *c, uint64_t now_us)
{
	if (c->ops->flush)
		c->ops->flush(c->user, now_us);
	for (uint32_t i = 0; i < c->n_links; i++)
		scout__link_send(&c->links[i]);
}

/* One turn without waiting. Returns whether there was anything to do; *ret_next is the nearest timer. */
static bool SCOUT_ON_COURIER
turn(struct scout__courier *c, uint64_t *ret_next)
{
	uint64_t now_us = scout__now_us();
	bool any = drain_ring(c, now_us);

	if (any) /* send first, because the caller waits: a look for messages costs libzmq some system calls */
		send_all(c, now_us);
	any |= receive_all(c);
	*ret_next = run_timers(c, now_us);
	send_all(c, now_us);
	for (uint32_t i = 0; i < c->n_links; i++) { /* what has just been sent waits for its answer */
		uint64_t at = scout__link_ping_due(&c->links[i]);

		*ret_next = at < *ret_next ? at : *ret_next;
	}
	return any;
}

static size_t SCOUT_ON_COURIER
fill_items(struct scout__courier *c)
{
	size_t n = 0;

	c->items[n++] = (zmq_pollitem_t){.fd = c->bell.fd, .events = ZMQ_POLLIN};
	if (c->user_fd >= 0)
		c->items[n++] = (zmq_pollitem_t){.fd = c->user_fd, .events = ZMQ_POLLIN};
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct scout__link *link = &c->links[i];
		short want = ZMQ_POLLIN;

		if (link->state == SCOUT__LINK_CONNECTING)
			want |= ZMQ_POLLOUT;
		if (link->sock) {
			c->items[n++] = (zmq_pollitem_t){.socket = link->sock, .events = want};
			c->items[n++] = (zmq_pollitem_t){.socket = link->monitor, .events = ZMQ_POLLIN};
		}
		if (link->lease_fd >= 0)
			c->items[n++] = (zmq_pollitem_t){.fd = link->lease_fd, .events = ZMQ_POLLIN};
		if (scout__channel_is_open(&link->channel))
			c->items[n++] = (zmq_pollitem_t){.fd = link->channel.bell_fd, .events = ZMQ_POLLIN};
	}
	return n;
}

/* The items were filled in this order, from the same link states: walk them in the same way. A handler may change only its own link. */
static void SCOUT_ON_COURIER
dispatch(struct scout__courier *c, uint64_t now_us)
{
	size_t n = 0;

	if (c->items[n++].revents)
		(void)scout__eventfd_lower(c->bell.fd);
	if (c->user_fd >= 0 && c->items[n++].revents)
		c->ops->user_ready(c->user);
	for (uint32_t i = 0; i < c->n_links; i++) {
		struct scout__link *link = &c->links[i];
		bool has_sock = link->sock != NULL, has_lease = link->lease_fd >= 0;
		bool has_channel = scout__channel_is_open(&link->channel);
		int sock = has_sock ? c->items[n++].revents : 0;
		int monitor = has_sock ? c->items[n++].revents : 0;
		int lease = has_lease ? c->items[n++].revents : 0;
		int bell = has_channel ? c->items[n++].revents : 0;

		/* Frames that came before the connection was lost are still good: read them before the monitor's event. */
		if (bell)
			scout__link_channel_rang(link, RECEIVE_BATCH);
		else if (has_channel)
			scout__link_channel_receive(link, RECEIVE_BATCH);
		if (sock & ZMQ_POLLIN)
			scout__link_receive(link, RECEIVE_BATCH);
		if ((sock & ZMQ_POLLOUT) && link->state == SCOUT__LINK_CONNECTING)
			scout__link_writable(link, now_us);
		if (lease && link->lease_fd >= 0)
			scout__link_lease_ready(link);
		if (monitor && link->monitor)
			scout__link_monitor_ready(link);
	}
}

/* Whether no link uses its socket. */
static bool SCOUT_ON_COURIER
channels_only(const struct scout__courier *c)
{
	for (uint32_t i = 0; i < c->n_links; i++)
		if (c->links[i].sock && !scout__channel_is_open(&c->links[i].channel))
			return false;
	return true;
}

/* Ask the link's server to ring, if it can. False: bytes are there already. */
static bool SCOUT_ON_COURIER
go_to_sleep(struct scout__link *link)
{
	return !scout__channel_is_open(&link->channel) || scout__channel_sleep(&link->channel);
}

/* Sleep until a descriptor, a channel or @wait_ms ends the sleep, and handle what did. */
static void SCOUT_ON_COURIER
wait_for_events(struct scout__courier *c, long wait_ms)
{
	bool is_awaited = !c->ops->is_awaited || c->ops->is_awaited(c->user);
	size_t n_items = fill_items(c);
	int n;

	for (uint32_t i = 0; i < c->n_links; i++)
		if ((is_awaited || scout__link_awaits(&c->links[i])) && !go_to_sleep(&c->links[i]))
			wait_ms = 0;
	c->look |= !channels_only(c);
	n = scout__zmq_wait(c->items, c->fds, (int)n_items, wait_ms, &c->look);
	scout__awake(&c->bell.parked);
	for (uint32_t i = 0; i < c->n_links; i++)
		if (scout__channel_is_open(&c->links[i].channel))
			scout__channel_wake(&c->links[i].channel);
	if (n > 0)
		dispatch(c, scout__now_us());
	else if (n < 0 && zmq_errno() != EINTR)
		scout__log(c->log, SCOUT_LOG_ERROR, "poll failed: %s", zmq_strerror(zmq_errno()));
}

static void SCOUT_ON_COURIER
park(struct scout__courier *c, uint64_t next_us)
{
	uint64_t now_us = scout__now_us();
	long wait_ms = -1;

	if (next_us != UINT64_MAX)
		wait_ms = next_us <= now_us ? 0 : (long)((next_us - now_us + 999) / 1000);
	scout__park(&c->bell.parked);
	if (!scout__ring_empty(&c->ring) || atomic_load_explicit(&c->stop, memory_order_relaxed))
		wait_ms = 0;
	wait_for_events(c, wait_ms);
}

/*
 * Look for work for spin_us before parking. Returns whether there was some. It yields between two looks: the thread with the
 * answer may wait for this very core, and with fewer cores than spinning threads would get it only after the spinning.
 */
static bool SCOUT_ON_COURIER
spin(struct scout__courier *c, uint64_t *next_us)
{
	uint64_t end_us = scout__now_us() + c->spin_us;

	while (scout__now_us() < end_us) {
		if (turn(c, next_us))
			return true;
		if (atomic_load_explicit(&c->stop, memory_order_relaxed))
			return false;
		(void)sched_yield();
	}
	return false;
}

static void SCOUT_ON_COURIER
finish(struct scout__courier *c)
{
	uint64_t next_us;

	if (c->ops->closing)
		c->ops->closing(c->user);
	turn(c, &next_us);
	while (c->ops->drained && !c->ops->drained(c->user)) {
		/* The stop flag is set, so park() would not wait: sleep at most 10 ms a turn, ended by any descriptor. */
		uint64_t soon_us = scout__now_us() + 10000;

		wait_for_events(c, 10);
		turn(c, &soon_us);
	}
	for (uint32_t i = 0; i < c->n_links; i++) {
		scout__link_bye(&c->links[i]);
		scout__link_fini(&c->links[i], DRAIN_LINGER_MS);
	}
	scout__courier_close_context(c);
}

void *
scout__courier_main(void *arg)
{
	struct scout__courier *c = arg;
	uint64_t next_us = 0;

	const struct sched_param no_priority = {.sched_priority = 0};

	scout__enter_courier();
	/* Best effort: a thread that is woken under SCHED_BATCH does not preempt the one that rang the doorbell. */
	(void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &no_priority);
	while (!atomic_load_explicit(&c->stop, memory_order_acquire)) {
		if (turn(c, &next_us))
			continue;
		if (c->spin_us && spin(c, &next_us))
			continue;
		park(c, next_us);
	}
	finish(c);
	return NULL;
}
