/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The life of one server connection and its timers; courier thread only. It owns struct scout__link (link.h has the states) and calls the
 * other link files, none of which calls it. Rules for all link files:
 *
 * - Each operation that was begun ends exactly once: by its reply, or by scout__link_lost(), which ends all of them.
 * - A correlation id is (generation, slot) XOR a random number: a reply to an operation that has ended already finds another
 *   generation and is only counted. Nothing that comes late reaches a later operation. It names what a worker holds, too, so nobody
 *   else should guess it.
 * - A lost connection closes the socket (linger 0). So nothing that was queued in it is ever delivered to a server that comes
 *   later, and no operation is sent twice.
 * - ZMQ_IMMEDIATE: a message is only taken when a connection is complete. "Writable" therefore means connected.
 * - A server that answers PING but not an operation has lost the operation (a full socket, a bug). Its credit would be gone for ever, so a
 *   client's connection ends when an operation is overdue by ten heartbeats. A worker's connection does not: its jobs end by themselves.
 * - A server that is gone without a sign (stopped, or its machine is down) is noticed by PING, which the server's loop answers at once
 *   however long other operations take. PING goes out when an operation has waited for 150 ms and no frame came meanwhile; no frame for 300
 *   ms more ends the connection. While nothing is in flight, PING goes out after a heartbeat without a frame, and three heartbeats of
 *   silence end the connection.
 * - Frames are always read before timers are looked at, and silence is counted in pieces: one piece for each time that this thread looked,
 *   however late it looked. So a pause of our own process does not make a server silent.
 * - Nor does a machine with too few cores: before a server counts as gone, the time that its loop waited for a CPU in the second half of
 *   the silence is subtracted, as far as the kernel tells (run_delay.h: a server of this machine with a lease connection, and our own I/O
 *   thread). A stopped process waits for no CPU. Operations in flight have their own deadlines, so they wait no longer.
 */
#include "link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "number.h"
#include "zmq_start.h"

#define SILENT_HEARTBEATS 3u
#define PROBE_US UINT64_C(150000)      /* an operation waited for so long, and nothing was heard: send PING */
#define SILENT_US UINT64_C(300000)     /* nothing was heard for so long after PING: the server is gone */
#define STARVED_MIN_PART 10u           /* time without a CPU is ignored below a tenth of the limit */
#define LOOK_AGAIN_US UINT64_C(500000) /* endpoint=auto: the server that was found may be gone */
#define LEASE_MIN_US UINT64_C(1000000) /* a peer is worth little without a lease: do not give it up for a short delay */

_Static_assert(SCOUT__LINK_UNREAD *(SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + 32) <= SCOUT_CHANNEL_MIN_BYTES,
	       "answers that are read late must not wait in the server for room");

/* ---- timers ---- */

static uint64_t SCOUT_ON_COURIER
silent_after_us(const struct scout__link *link)
{
	uint64_t us = (uint64_t)link->env->heartbeat_ms * 1000 * SILENT_HEARTBEATS;

	return us > SILENT_US ? us : SILENT_US;
}

/* Why a first connection does not come, as far as we can see. */
static const char *
no_connection(const struct scout__link *link)
{
	static const char ipc[] = "ipc://";

	if (link->greeting_failed)
		return link->env->curve
			       ? "no connection within connect_timeout_ms, the security handshake fails: is "
				 "curve_server_key the server's public key?"
			       : "no connection within connect_timeout_ms, the other side hangs up: the server requires CURVE "
				 "keys (curve_secret_file is not set), has no room for more peers, or is no kvscoutd";
	if (link->env->starter)
		return scout__starter_explain(
			link->env->starter,
			link->state == SCOUT__LINK_GREETING
				? "the server does not answer HELLO"
				: "no connection within connect_timeout_ms: the server of this host is "
				  "being started");
	if (strncmp(link->endpoint, ipc, sizeof(ipc) - 1) != 0 || access(link->endpoint + sizeof(ipc) - 1, W_OK) == 0)
		return "no connection within connect_timeout_ms: does the server run there?";
	if (errno == ENOENT)
		return "no connection within connect_timeout_ms: there is no such socket; does the server run?";
	if (errno == EACCES || errno == EPERM)
		return "no connection within connect_timeout_ms: this user may not use the socket; it is for the user "
		       "that started the server and for the members of its socket_group";
	return "no connection within connect_timeout_ms";
}

/* @what, and for the server of this host what is known of it. */
static const char *
explained(const struct scout__link *link, const char *what)
{
	return link->env->starter ? scout__starter_explain(link->env->starter, what) : what;
}

/* If the first connection does not come, report that once, and go on trying. */
static uint64_t SCOUT_ON_COURIER
first_connect_due(struct scout__link *link, uint64_t now_us)
{
	uint64_t limit_us = (uint64_t)link->env->connect_timeout_ms * 1000, next_us;

	if (link->ever_up || link->told_down)
		return UINT64_MAX;
	if (!scout__patience_look(&link->first, limit_us, now_us, &next_us))
		return next_us;
	scout__link_tell_down(link, SCOUT_ERR_UNREACHABLE, no_connection(link));
	return UINT64_MAX;
}

uint64_t
scout__link_ping_due(const struct scout__link *link)
{
	uint64_t idle_us = link->last_rx_us + (uint64_t)link->env->heartbeat_ms * 1000;
	uint64_t quiet_since_us = link->busy_since_us > link->last_rx_us ? link->busy_since_us : link->last_rx_us;

	if (link->state != SCOUT__LINK_UP || link->ping_sent_us != 0)
		return UINT64_MAX;
	return link->n_in_flight > 0 ? scout__min(idle_us, quiet_since_us + PROBE_US) : idle_us;
}

/* A server that is reading a large frame, which a small ring takes in pieces, or writing one, is not silent. */
static void SCOUT_ON_COURIER
look_at_progress(struct scout__link *link, uint64_t now_us)
{
	uint64_t progress = scout__channel_progress(&link->channel);

	if (progress != link->progress)
		link->silence = (struct scout__patience){.looked_us = now_us};
	link->progress = progress;
}

/* Whether nothing was heard for @limit_us in which the server could have answered. If not, *ret_next_us is when to look again. */
static bool SCOUT_ON_COURIER
is_silent(struct scout__link *link, uint64_t limit_us, uint64_t now_us, uint64_t *ret_next_us)
{
	uint64_t starved_us = 0;
	bool is_over, is_late;

	look_at_progress(link, now_us);
	is_over = scout__patience_look(&link->silence, limit_us, now_us, ret_next_us);
	is_late = link->silence.waited_us >= limit_us / 2;
	if (is_over && link->starved.since_us != 0)
		starved_us = scout__run_delay_us(&link->starved, now_us);
	if (!is_late)
		link->starved.since_us = 0;
	else if (link->starved.since_us == 0 || starved_us > 0)
		scout__run_delay_begin(&link->starved, scout__link_server_pid(link),
				       !scout__channel_is_open(&link->channel), now_us);
	if (starved_us * STARVED_MIN_PART < limit_us)
		return is_over;
	scout__patience_give_back(&link->silence, starved_us);
	*ret_next_us = now_us + limit_us / SCOUT__PATIENCE_PIECES;
	return false;
}

static uint64_t SCOUT_ON_COURIER
tick_up(struct scout__link *link, uint64_t now_us)
{
	uint64_t next_us = scout__link_ping_due(link);

	if (scout__link_find_overdue(link, now_us)) {
		scout__link_lost(link, SCOUT_ERR_UNREACHABLE, "the server has lost an operation");
		return link->next_try_us;
	}
	if (link->ping_sent_us == 0) {
		if (now_us < next_us)
			return next_us;
		link->ping_sent_us = now_us;
		link->silence = (struct scout__patience){.looked_us = now_us};
		scout__link_send_own(link, SCOUT_OP_PING);
	}
	if (!is_silent(link, link->n_in_flight > 0 ? SILENT_US : silent_after_us(link), now_us, &next_us))
		return next_us;
	scout__link_lost(link, SCOUT_ERR_UNREACHABLE, explained(link, "the server is silent"));
	return link->next_try_us;
}

bool
scout__link_awaits(const struct scout__link *link)
{
	return link->state != SCOUT__LINK_UP || link->ping_sent_us != 0 || link->n_in_flight > SCOUT__LINK_UNREAD;
}

uint64_t
scout__link_tick(struct scout__link *link, uint64_t now_us)
{
	uint64_t first = first_connect_due(link, now_us);
	uint64_t limit_us = silent_after_us(link), next_us;

	scout__link_run_reset(link);
	switch (link->state) {
	case SCOUT__LINK_IDLE:
		if (now_us >= link->next_try_us)
			scout__link_connect(link, now_us);
		return scout__min(first, link->state == SCOUT__LINK_IDLE ? link->next_try_us : UINT64_MAX);
	case SCOUT__LINK_CONNECTING:
		if (!link->env->starter)
			return first; /* libzmq itself tries again every RECONNECT_IVL */
		if (now_us < link->state_since_us + LOOK_AGAIN_US)
			return scout__min(first, link->state_since_us + LOOK_AGAIN_US);
		scout__link_lost(link, SCOUT_ERR_UNREACHABLE,
				 explained(link, "the server does not accept the connection"));
		return scout__min(first, link->next_try_us);
	case SCOUT__LINK_GREETING:
		if (!is_silent(link, limit_us, now_us, &next_us))
			return scout__min(first, next_us);
		scout__link_lost(link, SCOUT_ERR_UNREACHABLE, explained(link, "the server does not answer HELLO"));
		return scout__min(first, link->next_try_us);
	case SCOUT__LINK_LEASING:
		if (!is_silent(link, limit_us > LEASE_MIN_US ? limit_us : LEASE_MIN_US, now_us, &next_us))
			return next_us;
		scout__log(link->env->log, SCOUT_LOG_WARN, "%s: no answer on the lease connection%s", link->endpoint,
			   link->lease_bound ? " about shared memory" : "");
		if (!link->lease_bound)
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
draw(void)
{
	uint64_t word = 0;

	while (word == 0)
		if (getrandom(&word, sizeof(word), 0) != (ssize_t)sizeof(word))
			return 0;
	return word;
}

int
scout__link_init(struct scout__link *link, const struct scout__link_env *env, uint32_t index, const char *endpoint,
		 const struct scout__hello *hello)
{
	scout__enter_courier(); /* set-up: the thread does not run yet */
	memset(link, 0, sizeof(*link));
	link->env = env;
	link->index = index;
	link->lease_fd = -1;
	link->pause_ms = SCOUT__LINK_PAUSE_FIRST_MS;
	link->first.looked_us = scout__now_us();
	link->ipv6 = scout__zmq_needs_ipv6(endpoint, false);
	link->hello = *hello;
	link->hello.token = draw();
	link->corr_key = draw() | UINT32_C(1) << 31; /* no slot has this bit, so no id is 0 */
	link->endpoint = strdup(endpoint);
	link->name_space = strndup(hello->name_space.p, hello->name_space.len);
	link->in_flight = calloc(SCOUT__LINK_SLOTS, sizeof(*link->in_flight));
	link->out.buf = malloc(SCOUT__LINK_OUT_INITIAL);
	link->out.cap = SCOUT__LINK_OUT_INITIAL;
	if (!link->endpoint || !link->name_space || !link->in_flight || !link->out.buf || link->hello.token == 0) {
		scout__link_fini(link, 0);
		return SCOUT_ERR_NOMEM;
	}
	link->hello.name_space.p = link->name_space;
	scout__link_ops_init(link);
	return 0;
}

void
scout__link_bye(struct scout__link *link)
{
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct scout__lease_msg bye = {.type = SCOUT_LEASE_BYE, .word = link->hello.token};

	if (link->lease_bound && !link->goes_silently)
		(void)send(link->lease_fd, buf, scout__put_lease(buf, &bye), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void
scout__link_fini(struct scout__link *link, int linger_ms)
{
	if (link->in_flight && link->endpoint)
		scout__link_ops_end(link, SCOUT_ERR_CLOSED);
	scout__link_close(link, linger_ms);
	scout__link_lease_close(link);
	free(link->endpoint);
	free(link->name_space);
	free(link->in_flight);
	free(link->out.buf);
	free(link->in_buf);
	link->endpoint = NULL;
	link->name_space = NULL;
	link->in_flight = NULL;
	link->out.buf = NULL;
	link->in_buf = NULL;
}
