/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * One server connection (states in link.h). Rules that everything below keeps:
 *
 * - Each operation that was begun ends exactly once: by its reply, or by link_lost(), which ends all of them.
 * - A correlation id is (generation, slot): a reply to an operation that has ended already finds another generation and is only
 *   counted. Nothing that comes late reaches a later operation.
 * - A lost connection closes the socket (linger 0). So nothing that was queued in it is ever delivered to a server that comes
 *   later, and no operation is sent twice.
 * - ZMQ_IMMEDIATE: a message is only taken when a connection is complete. "Writable" therefore means connected.
 * - A server that answers PING but not an operation has lost it (a full socket, a bug). It would keep its credit for ever, so a
 *   client's connection ends when an operation is overdue by ten heartbeats. A worker's does not: its jobs have their own ends.
 * - Silence is measured from the last frame of any kind. A PING goes out after one heartbeat without a frame; three more without any
 *   answer end the connection. Frames are always read before timers are looked at, so that our own process having been stopped
 *   does not look like a silent server.
 */
#include "link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "clock.h"

#define PAUSE_FIRST_MS 10u
#define PAUSE_MAX_MS 500u
#define REFUSED_PAUSE_MS 1000u
#define SILENT_HEARTBEATS 3u
#define OVERDUE_HEARTBEATS 10u
#define OVERDUE_MIN_MS 1000u
#define RECONNECT_IVL_MS 10
#define OUT_INITIAL (64u * 1024)
#define SLOTS (SCOUT__LINK_MAX_INFLIGHT + SCOUT__LINK_SPARE)
#define NO_SLOT UINT32_MAX

static const struct scout__courier_view *
view(const struct scout__link *link)
{
	return scout__courier_view(link->courier);
}

static void
count(atomic_uint_fast64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* ---- accessors ---- */

uint32_t
scout__link_index(const struct scout__link *link)
{
	return link->index;
}

bool
scout__link_is_up(const struct scout__link *link)
{
	return link->state == SCOUT__LINK_UP;
}

bool
scout__link_is_hopeful(const struct scout__link *link)
{
	return link->state == SCOUT__LINK_UP || !link->told_down;
}

int
scout__link_error(const struct scout__link *link)
{
	return scout__link_is_hopeful(link) ? 0 : link->error;
}

uint64_t
scout__link_epoch(const struct scout__link *link)
{
	return link->epoch;
}

bool
scout__link_has_lease(const struct scout__link *link)
{
	return link->lease_bound;
}

void
scout__link_set_weights(struct scout__link *link, uint64_t weights)
{
	link->hello.weights = weights;
}

/* ---- operations in flight ---- */

static void
init_slots(struct scout__link *link)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		link->in_flight[i] = (struct scout__in_flight){.gen = 1, .next = i + 1 < SLOTS ? i + 1 : NO_SLOT};
	link->free_head = 0;
}

static uint64_t
overdue_after_us(const struct scout__link *link)
{
	uint64_t ms = (uint64_t)view(link)->heartbeat_ms * OVERDUE_HEARTBEATS;

	return (ms > OVERDUE_MIN_MS ? ms : OVERDUE_MIN_MS) * 1000;
}

static uint64_t
take_slot(struct scout__link *link, uint8_t opcode, uint64_t cookie, bool internal)
{
	uint32_t i = link->free_head;
	struct scout__in_flight *slot = &link->in_flight[i];

	SCOUT_ASSERT(i != NO_SLOT); /* credits and SPARE bound what can be in flight */
	link->free_head = slot->next;
	slot->used = true;
	slot->internal = internal;
	slot->opcode = opcode;
	slot->cookie = cookie;
	slot->answer_by_us = UINT64_MAX;
	if (!internal)
		link->n_in_flight++;
	return (uint64_t)slot->gen << 32 | (i + 1);
}

static void
drop_slot(struct scout__link *link, uint32_t i)
{
	struct scout__in_flight *slot = &link->in_flight[i];

	slot->used = false;
	slot->gen++;
	slot->next = link->free_head;
	link->free_head = i;
	if (!slot->internal)
		link->n_in_flight--;
}

/* The slot that a reply belongs to, or NO_SLOT. */
static uint32_t
find_slot(const struct scout__link *link, uint64_t corr)
{
	uint32_t i = (uint32_t)corr - 1, gen = (uint32_t)(corr >> 32);

	if (i >= SLOTS || !link->in_flight[i].used || link->in_flight[i].gen != gen)
		return NO_SLOT;
	return i;
}

static void end_all(struct scout__link *link, int error) SCOUT_ON_COURIER;
static void
end_all(struct scout__link *link, int error)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct scout__in_flight *slot = &link->in_flight[i];
		uint64_t cookie = slot->cookie;

		if (!slot->used)
			continue;
		bool internal = slot->internal;

		drop_slot(link, i);
		if (!internal)
			view(link)->ops->ended(view(link)->user, link, cookie, NULL, error);
	}
}

/* ---- down and up ---- */

static void
close_socket(struct scout__link *link, int linger_ms)
{
	if (!link->sock)
		return;
	(void)zmq_setsockopt(link->sock, ZMQ_LINGER, &linger_ms, sizeof(linger_ms));
	(void)zmq_socket_monitor(link->sock, NULL, 0);
	(void)zmq_close(link->sock);
	(void)zmq_close(link->monitor);
	link->sock = NULL;
	link->monitor = NULL;
	link->out.len = 0;
	link->out_ops = 0;
}

/* Mark the link as down, end what is in flight, tell the user: in this order, see courier.h. */
static void tell_down(struct scout__link *link, int error, const char *text) SCOUT_ON_COURIER;
static void
tell_down(struct scout__link *link, int error, const char *text)
{
	const struct scout__courier_view *v = view(link);
	bool news = !link->told_down || link->error != error;

	if (news) {
		scout__log(v->log, SCOUT_LOG_WARN, "%s: %s (%s)", link->endpoint, text, scout_err_name(error));
		link->error = error;
		link->told_down = true;
		if (v->ops->link_going)
			v->ops->link_going(v->user, link, error, text);
	}
	end_all(link, error);
	if (news)
		v->ops->link_down(v->user, link, error, text);
}

static void link_lost(struct scout__link *link, int error, const char *text) SCOUT_ON_COURIER;
static void
link_lost(struct scout__link *link, int error, const char *text)
{
	bool was_up = link->state == SCOUT__LINK_UP;
	uint64_t now_us = scout__now_us();

	close_socket(link, 0);
	link->state = SCOUT__LINK_IDLE;
	link->state_since_us = now_us;
	link->next_try_us = now_us + (uint64_t)link->pause_ms * 1000;
	link->pause_ms = link->pause_ms * 2 < PAUSE_MAX_MS ? link->pause_ms * 2 : PAUSE_MAX_MS;
	link->ping_sent_us = 0;
	link->must_reset = false;
	link->reset_error = 0;
	if (was_up)
		atomic_fetch_sub_explicit(&view(link)->stats->servers_up, 1, memory_order_relaxed);
	if (link->ever_up)
		tell_down(link, error, text);
	else
		end_all(link, error); /* the connect timeout speaks for a first connection */
}

void
scout__link_reset(struct scout__link *link, int error, const char *why)
{
	if (link->state != SCOUT__LINK_IDLE)
		link_lost(link, error, why);
}

/* The server answered HELLO with a refusal: tell at once, and try again slowly (its configuration may change). */
static void refused(struct scout__link *link, int error, const char *text) SCOUT_ON_COURIER;
static void
refused(struct scout__link *link, int error, const char *text)
{
	link->pause_ms = REFUSED_PAUSE_MS;
	link_lost(link, error, text);
	tell_down(link, error, text);
}

void
scout__link_leased(struct scout__link *link)
{
	bool new_epoch = link->epoch != link->known_epoch;
	struct scout__courier_stats *stats = view(link)->stats;

	if (link->ever_up)
		count(&stats->reconnects);
	if (new_epoch && link->known_epoch != 0) {
		count(&stats->epochs);
		scout__log(view(link)->log, SCOUT_LOG_WARN, "%s: the server was restarted; what it knew is gone",
			   link->endpoint);
	}
	scout__log(view(link)->log, SCOUT_LOG_INFO, "%s: connected%s", link->endpoint,
		   link->lease_bound ? "" : ", without a lease connection");
	link->state = SCOUT__LINK_UP;
	link->state_since_us = scout__now_us();
	link->known_epoch = link->epoch;
	link->ever_up = true;
	link->told_down = false;
	link->error = 0;
	link->pause_ms = PAUSE_FIRST_MS;
	atomic_fetch_add_explicit(&stats->servers_up, 1, memory_order_relaxed);
	view(link)->ops->link_up(view(link)->user, link, new_epoch);
}

/* ---- sending ---- */

static bool
reserve_out(struct scout__link *link, size_t more)
{
	size_t want = link->out.len + more, cap = link->out.cap;
	uint8_t *buf;

	if (want <= cap)
		return true;
	while (cap < want)
		cap *= 2;
	buf = realloc(link->out.buf, cap);
	if (!buf)
		return false;
	link->out.buf = buf;
	link->out.cap = cap;
	return true;
}

void
scout__link_send(struct scout__link *link)
{
	size_t len = link->out.len;

	if (link->out_ops == 0 || !link->sock)
		return;
	scout__frame_end(&link->out, link->out_ops, link->epoch, scout__now_us());
	link->out.len = 0;
	link->out_ops = 0;
	SCOUT_ASSERT(!link->out.bad); /* room was made before each operation */
	if (zmq_send(link->sock, link->out.buf, len, ZMQ_DONTWAIT) < 0) {
		/* Credits keep us below the high-water mark: only a connection that is going can refuse. */
		link->must_reset = true; /* by the next tick, not under a user that walks its lists */
		return;
	}
	count(&view(link)->stats->frames_sent);
}

static struct scout__writer *
begin_op(struct scout__link *link, uint8_t opcode, uint32_t budget_us, uint64_t corr)
{
	if (link->out_ops == 0) {
		link->out.len = 0;
		link->out.bad = false;
		scout__frame_begin(&link->out);
	}
	link->op_corr = corr;
	link->op_offset = scout__op_begin(&link->out, opcode, SCOUT_KIND_REQUEST, 0, corr, budget_us);
	link->op_open = true;
	return &link->out;
}

struct scout__writer *
scout__link_op_begin(struct scout__link *link, uint8_t opcode, uint32_t budget_us, uint64_t cookie, size_t body_bytes)
{
	size_t whole = SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + body_bytes;

	SCOUT_DASSERT(!link->op_open);
	if (link->state != SCOUT__LINK_UP || link->n_in_flight >= link->credits || whole > SCOUT_MAX_FRAME)
		return NULL;
	if (link->out_ops >= SCOUT_MAX_OPS || link->out.len + whole > SCOUT_MAX_FRAME)
		scout__link_send(link);
	if (link->must_reset || !reserve_out(link, whole))
		return NULL;
	uint64_t corr = take_slot(link, opcode, cookie, false);

	if (link->hello.role == SCOUT_ROLE_CLIENT)
		link->in_flight[(uint32_t)corr - 1].answer_by_us = scout__now_us() + budget_us + overdue_after_us(link);
	return begin_op(link, opcode, budget_us, corr);
}

uint64_t
scout__link_last_corr(const struct scout__link *link)
{
	return link->op_corr;
}

void
scout__link_op_end(struct scout__link *link)
{
	SCOUT_DASSERT(link->op_open);
	scout__op_end(&link->out, link->op_offset);
	link->op_open = false;
	link->out_ops++;
}

static void send_internal(struct scout__link *link, uint8_t opcode) SCOUT_ON_COURIER;
static void
send_internal(struct scout__link *link, uint8_t opcode)
{
	if (!reserve_out(link, SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + 512))
		return; /* out of memory: the next heartbeat tries again */
	struct scout__writer *w = begin_op(link, opcode, 0, take_slot(link, opcode, 0, true));

	if (opcode == SCOUT_OP_HELLO)
		scout__put_hello(w, &link->hello);
	scout__link_op_end(link);
	scout__link_send(link);
}

/* ---- receiving ---- */

static void
text_of(const struct scout__op *op, char *buf, size_t len)
{
	struct scout__str text;

	if (scout__get_text(op, &text) == SCOUT_WIRE_OK)
		snprintf(buf, len, "%.*s", (int)text.len, text.p);
	else
		snprintf(buf, len, "%s", scout__wire_name(op->status));
}

static void on_hello_reply(struct scout__link *link, const struct scout__op *op, uint64_t epoch) SCOUT_ON_COURIER;
static void
on_hello_reply(struct scout__link *link, const struct scout__op *op, uint64_t epoch)
{
	struct scout__hello_reply reply;
	const char *field;
	char text[512];

	if (op->status != SCOUT_WIRE_OK) {
		text_of(op, text, sizeof(text));
		refused(link, scout__wire_error(op->status), text);
		return;
	}
	if (scout__get_hello_reply(op, &reply, &field) != SCOUT_WIRE_OK || epoch == 0 || reply.credits == 0) {
		count(&view(link)->stats->protocol_errors);
		refused(link, SCOUT_ERR_PROTOCOL, "the server's HELLO reply is malformed");
		return;
	}
	link->credits = reply.credits < SCOUT__LINK_MAX_INFLIGHT ? reply.credits : SCOUT__LINK_MAX_INFLIGHT;
	link->epoch = epoch;
	if (link->lease_bound && link->lease_epoch == epoch) {
		scout__link_leased(link);
		return;
	}
	scout__link_lease_close(link);
	link->state = SCOUT__LINK_LEASING;
	link->state_since_us = scout__now_us();
	if (reply.lease_path.len == 0 || !scout__link_lease_connect(link, &reply.lease_path))
		scout__link_leased(link);
}

static void on_internal(struct scout__link *link, uint8_t opcode, const struct scout__op *op, uint64_t epoch)
	SCOUT_ON_COURIER;
static void
on_internal(struct scout__link *link, uint8_t opcode, const struct scout__op *op, uint64_t epoch)
{
	if (opcode == SCOUT_OP_PING)
		link->ping_sent_us = 0;
	else if (opcode == SCOUT_OP_HELLO && link->state == SCOUT__LINK_GREETING)
		on_hello_reply(link, op, epoch);
}

/* One reply. The server saying that it does not know us ends the connection after this frame. */
static void on_reply(struct scout__link *link, const struct scout__op *op, uint64_t epoch) SCOUT_ON_COURIER;
static void
on_reply(struct scout__link *link, const struct scout__op *op, uint64_t epoch)
{
	uint32_t i = find_slot(link, op->corr);
	char text[512];

	if (i == NO_SLOT) {
		if (op->opcode == SCOUT_OP_ERROR && op->corr == 0) {
			text_of(op, text, sizeof(text));
			scout__log(view(link)->log, SCOUT_LOG_ERROR, "%s: the server refused a frame: %s",
				   link->endpoint, text);
			link->must_reset = true;
			link->reset_error = scout__wire_error(op->status);
		} else {
			count(&view(link)->stats->late_replies);
		}
		return;
	}
	struct scout__in_flight slot = link->in_flight[i];

	if (op->opcode != slot.opcode && op->opcode != SCOUT_OP_ERROR) {
		count(&view(link)->stats->protocol_errors);
		link->must_reset = true;
		link->reset_error = SCOUT_ERR_PROTOCOL;
		return; /* stays in flight: the reset ends it */
	}
	drop_slot(link, i);
	if (slot.internal) {
		on_internal(link, slot.opcode, op, epoch);
	} else if (op->status == SCOUT_WIRE_NO_HELLO || op->status == SCOUT_WIRE_STALE_EPOCH) {
		link->must_reset = true;
		link->reset_error = SCOUT_ERR_EPOCH;
		view(link)->ops->ended(view(link)->user, link, slot.cookie, NULL, SCOUT_ERR_EPOCH);
	} else {
		view(link)->ops->ended(view(link)->user, link, slot.cookie, op, 0);
	}
}

/* Carry out what was decided in the middle of something else. */
static void run_reset(struct scout__link *link) SCOUT_ON_COURIER;
static void
run_reset(struct scout__link *link)
{
	int error = link->reset_error ? link->reset_error : SCOUT_ERR_UNREACHABLE;

	if (!link->must_reset || !link->sock)
		return;
	link_lost(link, error,
		  error == SCOUT_ERR_EPOCH      ? "the server does not know this connection any more"
		  : error == SCOUT_ERR_PROTOCOL ? "the server broke the protocol"
						: "the connection is going");
}

static void on_frame(struct scout__link *link, const void *data, size_t len) SCOUT_ON_COURIER;
static void
on_frame(struct scout__link *link, const void *data, size_t len)
{
	struct scout__frame frame;
	struct scout__reader ops;
	struct scout__op op;

	count(&view(link)->stats->frames_received);
	link->last_rx_us = scout__now_us();
	if (scout__frame_check(data, len, false, &frame) != SCOUT_WIRE_OK) {
		count(&view(link)->stats->protocol_errors);
		link_lost(link, SCOUT_ERR_PROTOCOL, "the server sent a malformed frame");
		return;
	}
	if (link->state > SCOUT__LINK_GREETING && frame.epoch != link->epoch) {
		link_lost(link, SCOUT_ERR_EPOCH, "the server's epoch changed");
		return;
	}
	ops = scout__frame_ops(data, len);
	while (link->sock && scout__frame_next(&ops, &op))
		on_reply(link, &op, frame.epoch);
	run_reset(link);
}

unsigned
scout__link_receive(struct scout__link *link, unsigned max)
{
	unsigned n = 0;
	zmq_msg_t msg;

	while (n < max && link->sock) {
		(void)zmq_msg_init(&msg);
		if (zmq_msg_recv(&msg, link->sock, ZMQ_DONTWAIT) < 0) {
			(void)zmq_msg_close(&msg);
			break;
		}
		n++;
		if (zmq_msg_more(&msg)) { /* the protocol has one part only */
			link->must_reset = true;
			link->reset_error = SCOUT_ERR_PROTOCOL;
		}
		on_frame(link, zmq_msg_data(&msg), zmq_msg_size(&msg));
		(void)zmq_msg_close(&msg);
	}
	return n;
}

/* ---- connecting ---- */

static bool
set_options(void *sock)
{
	int zero = 0, one = 1, ivl = RECONNECT_IVL_MS, hwm = (int)(2 * SLOTS);
	int64_t max_msg = (int64_t)SCOUT_MAX_FRAME * 2;
	int rc = 0;

	rc |= zmq_setsockopt(sock, ZMQ_LINGER, &zero, sizeof(zero));
	rc |= zmq_setsockopt(sock, ZMQ_IMMEDIATE, &one, sizeof(one));
	rc |= zmq_setsockopt(sock, ZMQ_RECONNECT_IVL, &ivl, sizeof(ivl));
	rc |= zmq_setsockopt(sock, ZMQ_SNDHWM, &hwm, sizeof(hwm));
	rc |= zmq_setsockopt(sock, ZMQ_RCVHWM, &hwm, sizeof(hwm));
	rc |= zmq_setsockopt(sock, ZMQ_MAXMSGSIZE, &max_msg, sizeof(max_msg));
	return rc == 0;
}

static bool
open_monitor(struct scout__link *link)
{
	char address[64];
	void *pair;
	int zero = 0;

	/* The address lives in our own context: the pointer makes it unique there. */
	snprintf(address, sizeof(address), "inproc://monitor-%p", link->sock);
	if (zmq_socket_monitor(link->sock, address, ZMQ_EVENT_DISCONNECTED) != 0)
		return false;
	pair = zmq_socket(view(link)->zmq, ZMQ_PAIR);
	if (!pair)
		return false;
	(void)zmq_setsockopt(pair, ZMQ_LINGER, &zero, sizeof(zero));
	if (zmq_connect(pair, address) != 0) {
		(void)zmq_close(pair);
		return false;
	}
	link->monitor = pair;
	return true;
}

static void try_connect(struct scout__link *link, uint64_t now_us) SCOUT_ON_COURIER;
static void
try_connect(struct scout__link *link, uint64_t now_us)
{
	int timeout_ms = (int)view(link)->connect_timeout_ms;

	link->next_try_us = now_us + PAUSE_MAX_MS * 1000; /* if something below fails: no descriptors, usually */
	link->sock = zmq_socket(view(link)->zmq, ZMQ_DEALER);
	if (!link->sock)
		return;
	(void)zmq_setsockopt(link->sock, ZMQ_CONNECT_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
	if (!set_options(link->sock) || !open_monitor(link) || zmq_connect(link->sock, link->endpoint) != 0) {
		scout__log(view(link)->log, SCOUT_LOG_ERROR, "%s: cannot connect: %s", link->endpoint,
			   zmq_strerror(zmq_errno()));
		close_socket(link, 0);
		return;
	}
	link->state = SCOUT__LINK_CONNECTING;
	link->state_since_us = now_us;
}

void
scout__link_writable(struct scout__link *link, uint64_t now_us)
{
	link->state = SCOUT__LINK_GREETING;
	link->state_since_us = now_us;
	link->last_rx_us = now_us;
	link->epoch = 0; /* HELLO is of no epoch */
	send_internal(link, SCOUT_OP_HELLO);
}

void
scout__link_monitor_ready(struct scout__link *link)
{
	bool lost = false;
	zmq_msg_t msg;

	/* Two parts per event: u16 event and u32 value, then the address. Only DISCONNECTED is subscribed. */
	for (;;) {
		(void)zmq_msg_init(&msg);
		if (zmq_msg_recv(&msg, link->monitor, ZMQ_DONTWAIT) < 0) {
			(void)zmq_msg_close(&msg);
			break;
		}
		if (zmq_msg_more(&msg) && zmq_msg_size(&msg) >= 2) {
			uint16_t event;

			memcpy(&event, zmq_msg_data(&msg), sizeof(event)); /* host order, by zmq_socket_monitor(3) */
			lost |= event == ZMQ_EVENT_DISCONNECTED;
		}
		(void)zmq_msg_close(&msg);
	}
	if (lost)
		link_lost(link, SCOUT_ERR_UNREACHABLE, "the connection was lost");
}

/* ---- timers ---- */

static uint64_t
min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t
silent_after_us(const struct scout__link *link)
{
	return (uint64_t)view(link)->heartbeat_ms * 1000 * SILENT_HEARTBEATS;
}

/* A first connection that does not come: say so once, and go on trying. */
static uint64_t first_connect_due(struct scout__link *link, uint64_t now_us) SCOUT_ON_COURIER;
static uint64_t
first_connect_due(struct scout__link *link, uint64_t now_us)
{
	uint64_t due = view(link)->started_us + (uint64_t)view(link)->connect_timeout_ms * 1000;

	if (link->ever_up || link->told_down)
		return UINT64_MAX;
	if (now_us < due)
		return due;
	tell_down(link, SCOUT_ERR_UNREACHABLE, "no connection within connect_timeout_ms");
	return UINT64_MAX;
}

/* Whether an operation was not answered that should have been long ago. Looks once in a while only: it is a rare thing. */
static bool
is_overdue(struct scout__link *link, uint64_t now_us)
{
	if (link->n_in_flight == 0 || now_us < link->next_scan_us)
		return false;
	link->next_scan_us = now_us + overdue_after_us(link) / 4;
	for (uint32_t i = 0; i < SLOTS; i++)
		if (link->in_flight[i].used && link->in_flight[i].answer_by_us < now_us)
			return true;
	return false;
}

static uint64_t tick_up(struct scout__link *link, uint64_t now_us) SCOUT_ON_COURIER;
static uint64_t
tick_up(struct scout__link *link, uint64_t now_us)
{
	uint64_t ping_due = link->last_rx_us + (uint64_t)view(link)->heartbeat_ms * 1000;

	if (is_overdue(link, now_us)) {
		link_lost(link, SCOUT_ERR_UNREACHABLE, "the server has lost an operation");
		return link->next_try_us;
	}
	if (link->ping_sent_us == 0) {
		if (now_us < ping_due)
			return ping_due;
		link->ping_sent_us = now_us;
		send_internal(link, SCOUT_OP_PING);
		return now_us + silent_after_us(link);
	}
	uint64_t since = link->ping_sent_us > link->last_rx_us ? link->ping_sent_us : link->last_rx_us;

	if (now_us < since + silent_after_us(link))
		return since + silent_after_us(link);
	link_lost(link, SCOUT_ERR_UNREACHABLE, "the server is silent");
	return link->next_try_us;
}

uint64_t
scout__link_tick(struct scout__link *link, uint64_t now_us)
{
	uint64_t first = first_connect_due(link, now_us);
	uint64_t due;

	run_reset(link);
	due = link->state_since_us + silent_after_us(link);
	switch (link->state) {
	case SCOUT__LINK_IDLE:
		if (now_us >= link->next_try_us)
			try_connect(link, now_us);
		return min_u64(first, link->state == SCOUT__LINK_IDLE ? link->next_try_us : UINT64_MAX);
	case SCOUT__LINK_CONNECTING:
		return first; /* libzmq itself tries again every RECONNECT_IVL */
	case SCOUT__LINK_GREETING:
		if (now_us < due)
			return min_u64(first, due);
		link_lost(link, SCOUT_ERR_UNREACHABLE, "the server does not answer HELLO");
		return min_u64(first, link->next_try_us);
	case SCOUT__LINK_LEASING:
		if (now_us < due)
			return due;
		scout__log(view(link)->log, SCOUT_LOG_WARN, "%s: no answer on the lease connection", link->endpoint);
		scout__link_lease_close(link);
		scout__link_leased(link);
		return now_us;
	case SCOUT__LINK_UP:
		return tick_up(link, now_us);
	}
	return UINT64_MAX;
}

/* ---- life ---- */

static uint64_t
draw_token(void)
{
	uint64_t token = 0;

	while (token == 0)
		if (getrandom(&token, sizeof(token), 0) != (ssize_t)sizeof(token))
			return 0;
	return token;
}

int
scout__link_init(struct scout__link *link, struct scout__courier *courier, uint32_t index, const char *endpoint,
		 const struct scout__hello *hello)
{
	scout__enter_courier(); /* set-up: the thread does not run yet */
	memset(link, 0, sizeof(*link));
	link->courier = courier;
	link->index = index;
	link->lease_fd = -1;
	link->pause_ms = PAUSE_FIRST_MS;
	link->hello = *hello;
	link->hello.token = draw_token();
	link->endpoint = strdup(endpoint);
	link->name_space = strndup(hello->name_space.p, hello->name_space.len);
	link->in_flight = calloc(SLOTS, sizeof(*link->in_flight));
	link->out.buf = malloc(OUT_INITIAL);
	link->out.cap = OUT_INITIAL;
	if (!link->endpoint || !link->name_space || !link->in_flight || !link->out.buf || link->hello.token == 0) {
		scout__link_fini(link, 0);
		return SCOUT_ERR_NOMEM;
	}
	link->hello.name_space.p = link->name_space;
	init_slots(link);
	return 0;
}

void
scout__link_bye(struct scout__link *link)
{
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct scout__lease_msg bye = {.type = SCOUT_LEASE_BYE, .word = link->hello.token};

	if (link->lease_bound)
		(void)send(link->lease_fd, buf, scout__put_lease(buf, &bye), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void
scout__link_fini(struct scout__link *link, int linger_ms)
{
	if (link->in_flight && link->endpoint)
		end_all(link, SCOUT_ERR_CLOSED);
	close_socket(link, linger_ms);
	scout__link_lease_close(link);
	free(link->endpoint);
	free(link->name_space);
	free(link->in_flight);
	free(link->out.buf);
	link->endpoint = NULL;
	link->name_space = NULL;
	link->in_flight = NULL;
	link->out.buf = NULL;
}
