/* SPDX-License-Identifier: Apache-2.0 */
#include "conns.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "server_core.h"
#include "transport.h"

/*
 * DESIGN
 *
 * How many connections the ROUTER has. libzmq accepts every connection, and aborts the process when an ipc listener
 * finds no free descriptor. So the server counts connections on the socket's monitor, and shuts down each one beyond
 * the limit at once: the I/O thread then closes it as if its peer had. Earlier connections notice nothing.
 *
 * The limit is max_peers and a quarter (a peer that reconnects has two connections for a moment, and a peer too many
 * shall hear the typed refusal of its HELLO), or less if the process may not open enough descriptors. A sender that
 * does not complete ZeroMQ's greeting within GREETING_MS makes room.
 *
 * Rejected: zmq_unbind() until some leave. This call also ends the sessions of the connections that the listener has
 * accepted (tried with 4.3.4: no message passes any more in either direction, and the peer is not even told).
 *
 * If a descriptor was closed and used again since its event was written, the shutdown may hit another connection, which
 * comes back as after any loss. Events are read as soon as they are there, EVENTS_A_TURN in each turn, which is more
 * than libzmq can accept meanwhile: a client that connects in a tight loop must not keep the server's loop here.
 *
 * Between an accept and its event, libzmq may accept more: a flood can still use up the descriptors. kvscoutd has an
 * accept guard for that; a process with an embedded server does not.
 *
 * Threads: loop; start before it.
 */

#define MONITOR "inproc://kvscout-connections"
#define GREETING_MS 5000
#define RESERVE 64u             /* descriptors for memory, stores, logs */
#define DESCRIPTORS_PER_CONN 6u /* itself, two lease connections, a pidfd, two bells */
#define FEWEST 4u
#define EVENTS_A_TURN 256u

static uint32_t
descriptors_in_use(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint32_t n = 0;

	if (!dir)
		return RESERVE; /* no /proc: a guess */
	while (readdir(dir))    // NOLINT(concurrency-mt-unsafe): a stream of our own
		n++;
	(void)closedir(dir);
	return n;
}

/* How many connections the process has descriptors for, after @reserved others. */
static uint64_t
affordable(uint32_t reserved, uint64_t *ret_limit)
{
	struct rlimit limit;
	uint64_t used = descriptors_in_use() + (uint64_t)RESERVE + reserved;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
		return UINT64_MAX;
	*ret_limit = limit.rlim_cur;
	return limit.rlim_cur > used ? (limit.rlim_cur - used) / DESCRIPTORS_PER_CONN : 0;
}

static int
set_limit(struct scout_server *s, uint32_t reserved, char *err, size_t err_len)
{
	uint64_t want = s->cfg.max_peers + (uint64_t)s->cfg.max_peers / 4 + FEWEST;
	uint64_t limit = 0;
	uint64_t can = affordable(reserved, &limit);

	if (can < FEWEST)
		return scout__fail(
			err, err_len, SCOUT_ERR_SYSTEM,
			"at most %llu descriptors may be open, too few to serve: raise the limit of open files",
			(unsigned long long)limit);
	if (can < want)
		scout__log(
			&s->log, SCOUT_LOG_WARN,
			"max_peers = %u needs more than the %llu descriptors that may be open: at most %llu connections",
			(unsigned)s->cfg.max_peers, (unsigned long long)limit, (unsigned long long)can);
	s->transport->conns_limit = (uint32_t)(can < want ? can : want);
	return 0;
}

int
scout__conns_open(struct scout_server *s, uint32_t reserved, char *err, size_t err_len)
{
	const int events = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_DISCONNECTED;
	const int zero = 0, greeting_ms = GREETING_MS;
	int rc = set_limit(s, reserved, err, err_len);

	if (rc)
		return rc;
	s->transport->monitor = zmq_socket(s->transport->zctx, ZMQ_PAIR);
	/* No high-water mark: the I/O thread would wait for us there, with a lock that closing needs. */
	if (!s->transport->monitor || zmq_setsockopt(s->transport->monitor, ZMQ_RCVHWM, &zero, sizeof(zero)) != 0 ||
	    zmq_setsockopt(s->transport->monitor, ZMQ_LINGER, &zero, sizeof(zero)) != 0 ||
	    zmq_setsockopt(s->transport->router, ZMQ_HANDSHAKE_IVL, &greeting_ms, sizeof(greeting_ms)) != 0 ||
	    zmq_socket_monitor(s->transport->router, MONITOR, events) != 0 ||
	    zmq_connect(s->transport->monitor, MONITOR) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "ZeroMQ monitor: %s", zmq_strerror(errno));
	return 0;
}

void
scout__conns_close(struct scout_server *s)
{
	if (!s->transport->monitor)
		return;
	(void)zmq_socket_monitor(s->transport->router, NULL, 0);
	(void)zmq_close(s->transport->monitor);
	s->transport->monitor = NULL;
}

SCOUT_ON_LOOP static void
accepted(struct scout_server *s, int fd)
{
	if (++s->transport->n_conns <= s->transport->conns_limit)
		return;
	s->count.connections_refused++;
	scout__log_limited(&s->log, &s->limit_conns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			   "a connection is refused: %u are open, which is the limit (max_peers = %u)",
			   (unsigned)s->transport->conns_limit, (unsigned)s->cfg.max_peers);
	(void)shutdown(fd, SHUT_RDWR); /* EBADF or ENOTCONN if it is gone already */
}

/* One event: u16 what and u32 value in host order (zmq_socket_monitor(3)), then the address. False: there is none. */
SCOUT_ON_LOOP static bool
read_event(struct scout_server *s, uint16_t *ret_what, uint32_t *ret_value)
{
	uint8_t head[6], address[512];

	if (zmq_recv(s->transport->monitor, head, sizeof(head), ZMQ_DONTWAIT) != (int)sizeof(head))
		return false;
	memcpy(ret_what, head, sizeof(*ret_what));
	memcpy(ret_value, head + sizeof(*ret_what), sizeof(*ret_value));
	(void)zmq_recv(s->transport->monitor, address, sizeof(address), ZMQ_DONTWAIT); /* arrives with the first part */
	return true;
}

void
scout__conns_read(struct scout_server *s)
{
	uint16_t what;
	uint32_t value;

	for (unsigned n = 0; n < EVENTS_A_TURN && read_event(s, &what, &value); n++) {
		if (what == ZMQ_EVENT_ACCEPTED)
			accepted(s, (int)value);
		else if (s->transport->n_conns > 0)
			s->transport->n_conns--;
	}
}
