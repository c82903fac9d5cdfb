/* SPDX-License-Identifier: Apache-2.0 */
#include "conns.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lease.h"
#include "server_core.h"
#include "transport.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/*
 * DESIGN
 *
 * The connections of the ROUTER. libzmq accepts every connection, and aborts the process when an ipc listener finds no
 * free descriptor. So the server counts connections on the socket's monitor, and shuts down one for each beyond the
 * limit: the I/O thread then closes it as if its peer had.
 *
 * The limit is max_peers and a quarter (a peer that reconnects has two connections for a moment, and a peer too many
 * shall hear the typed refusal of its HELLO), or less if the process may not open enough descriptors.
 *
 * Which one is shut down: a silent one, that is one that no peer has. A process or a machine that connects without
 * HELLO must not keep peers out, so the victim is of a source with at least the average number of silent connections,
 * and among these the one that was heard longest ago. A source is a process of this machine, or an address (of IPv6 the
 * first 64 bits); sources share SCOUT__CONN_SOURCES counters by a hash. Where every connection has a peer, the new one
 * is shut down. A sender that does not complete ZeroMQ's greeting within GREETING_MS makes room, too.
 *
 * The monitor also tells the end of a connection, by its descriptor; hooks.conn_ended passes the end on to the peer that
 * has it. HELLO may be read before the event of the accept, so either makes the entry. Events are old when they are
 * read: the descriptor may name another socket by then, and an end may be ascribed to the wrong one of two. So an end is
 * a reason to look again later (scout__conns_is_open()), and no more.
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
#define VICTIM_LOOKS 64u /* silent connections among which the victim is looked for */

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

static int
make_table(struct scout__conns *conns, uint32_t n)
{
	scout__list_init(&conns->silent);
	conns->table = calloc(n, sizeof(*conns->table));
	conns->free_places = calloc(n, sizeof(*conns->free_places));
	if (!conns->table || !conns->free_places || scout__map_init(&conns->by_fd, n) != 0)
		return SCOUT_ERR_NOMEM;
	while (conns->n_free < n) {
		conns->free_places[conns->n_free] = n - 1 - conns->n_free;
		conns->n_free++;
	}
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
	if (make_table(&s->transport->conns, s->transport->conns_limit) != 0)
		return scout__fail_no_memory(err, err_len);
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
	free(s->transport->conns.table);
	free(s->transport->conns.free_places);
	scout__map_fini(&s->transport->conns.by_fd);
	memset(&s->transport->conns, 0, sizeof(s->transport->conns));
	if (!s->transport->monitor)
		return;
	(void)zmq_socket_monitor(s->transport->router, NULL, 0);
	(void)zmq_close(s->transport->monitor);
	s->transport->monitor = NULL;
}

/* ---- entries ---- */

static uint64_t
inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) ? (uint64_t)st.st_ino : 0;
}

/* A number for a process of another pid namespace, which has no pid here. Before Linux 6.9 all pidfds have the same one. */
static pid_t
process_number(int fd)
{
	socklen_t len = sizeof(int);
	struct stat st = {0};
	int process;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &process, &len) != 0)
		return 0;
	(void)fstat(process, &st);
	(void)close(process);
	return (pid_t)st.st_ino;
}

/* The process or the address at the other end of @fd, as a hash; 0: not known. */
SCOUT_ON_LOOP static uint64_t
source_of(const struct scout_server *s, int fd)
{
	struct sockaddr_storage address = {0};
	socklen_t len = sizeof(address);
	struct ucred who = {0};
	const void *key = &who;
	size_t n = sizeof(who);

	if (getpeername(fd, (struct sockaddr *)&address, &len) != 0)
		return 0;
	if (address.ss_family == AF_INET) {
		key = &((const struct sockaddr_in *)(const void *)&address)->sin_addr;
		n = sizeof(struct in_addr);
	} else if (address.ss_family == AF_INET6) {
		const struct in6_addr *v6 = &((const struct sockaddr_in6 *)(const void *)&address)->sin6_addr;
		bool is_v4 = IN6_IS_ADDR_V4MAPPED(v6);

		n = is_v4 ? sizeof(struct in_addr) : sizeof(*v6) / 2;
		key = is_v4 ? v6->s6_addr + sizeof(*v6) - n : v6->s6_addr;
	} else {
		len = sizeof(who);
		(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len);
		if (who.pid == getpid())
			return SCOUT__OWN_PROCESS;
		who.pid = who.pid > 0 ? who.pid : process_number(fd);
	}
	return XXH3_64bits_withSeed(key, n, s->seed) | 2;
}

SCOUT_ON_LOOP static void
add_silent(struct scout__conns *conns, struct scout__conn *conn)
{
	scout__list_add(&conns->silent, &conn->node);
	conns->n_silent++;
	conns->n_sources += conns->silent_of[conn->source % SCOUT__CONN_SOURCES]++ == 0;
}

SCOUT_ON_LOOP static void
del_silent(struct scout__conns *conns, struct scout__conn *conn)
{
	scout__list_del(&conn->node);
	conns->n_silent--;
	conns->n_sources -= --conns->silent_of[conn->source % SCOUT__CONN_SOURCES] == 0;
}

/* The entry of the connection @fd; NULL: it has none. */
SCOUT_ON_LOOP static struct scout__conn *
conn_of(struct scout_server *s, int fd)
{
	uint32_t at = fd < 0 ? SCOUT__MAP_NONE : scout__map_get(&s->transport->conns.by_fd, (uint64_t)fd);

	return at == SCOUT__MAP_NONE ? NULL : &s->transport->conns.table[at];
}

/* An entry for @fd, which has none. NULL: each place is taken. */
SCOUT_ON_LOOP static struct scout__conn *
conn_new(struct scout_server *s, int fd)
{
	struct scout__conns *conns = &s->transport->conns;
	struct scout__conn *conn;
	uint32_t at;

	if (conns->n_free == 0)
		return NULL;
	at = conns->free_places[conns->n_free - 1];
	if (!scout__map_put(&conns->by_fd, (uint64_t)fd, at))
		return NULL;
	conns->n_free--;
	conn = &conns->table[at];
	*conn = (struct scout__conn){.inode = inode_of(fd), .fd = fd, .source = source_of(s, fd)};
	scout__list_init(&conn->node);
	add_silent(conns, conn);
	return conn;
}

/* The connection is no more; its peer hears of that. */
SCOUT_ON_LOOP static void
conn_free(struct scout_server *s, struct scout__conn *conn)
{
	struct scout__conns *conns = &s->transport->conns;
	struct scout__dest *dest = conn->dest;

	if (dest)
		scout__conns_unbind(s, dest);
	del_silent(conns, conn);
	(void)scout__map_del(&conns->by_fd, (uint64_t)conn->fd);
	conns->free_places[conns->n_free++] = (uint32_t)(conn - conns->table);
	if (dest)
		s->transport->hooks->conn_ended(s, dest);
}

/* The silent connection that makes room; NULL: there is none. */
SCOUT_ON_LOOP static struct scout__conn *
victim(struct scout__conns *conns)
{
	struct scout__list *node = conns->silent.next;

	if (conns->n_silent == 0)
		return NULL;
	for (uint32_t looks = VICTIM_LOOKS; looks > 0 && node != &conns->silent; looks--, node = node->next) {
		struct scout__conn *conn = SCOUT__OWNER(node, struct scout__conn, node);

		if ((uint64_t)conns->silent_of[conn->source % SCOUT__CONN_SOURCES] * conns->n_sources >=
		    conns->n_silent)
			return conn;
	}
	return SCOUT__OWNER(conns->silent.next, struct scout__conn, node);
}

/* Shut @fd down: the I/O thread closes it as if its peer had. */
SCOUT_ON_LOOP static void
refuse(struct scout_server *s, int fd)
{
	s->count.connections_refused++;
	scout__log_limited(&s->log, &s->limit_conns, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			   "a connection is refused: %u are open, which is the limit (max_peers = %u), and %u of them "
			   "have not said HELLO",
			   (unsigned)s->transport->conns_limit, (unsigned)s->cfg.max_peers,
			   (unsigned)s->transport->conns.n_silent);
	(void)shutdown(fd, SHUT_RDWR); /* EBADF or ENOTCONN if it is gone already */
}

/* Make room for one more connection. False: each has its peer. */
SCOUT_ON_LOOP static bool
make_room(struct scout_server *s)
{
	struct scout__conn *conn = victim(&s->transport->conns);

	if (!conn)
		return false;
	if (conn->inode != 0 && inode_of(conn->fd) == conn->inode)
		refuse(s, conn->fd);
	conn_free(s, conn);
	return true;
}

uint64_t
scout__conns_source(struct scout_server *s, int fd)
{
	const struct scout__conn *conn = conn_of(s, fd);

	/* The entry knows more than the descriptor of a peer that has gone already. */
	return conn && conn->source ? conn->source : source_of(s, fd);
}

SCOUT_ON_LOOP static void
accepted(struct scout_server *s, int fd)
{
	struct scout__conn *conn = conn_of(s, fd);

	s->transport->n_conns++;
	if (conn && (conn->is_accepted || conn->inode != inode_of(fd))) {
		conn_free(s, conn); /* its end was not told: it was refused, and the descriptor is used again */
		conn = NULL;
	}
	if (!conn && s->transport->conns.n_free == 0 && !make_room(s)) {
		refuse(s, fd);
		return;
	}
	if (!conn)
		conn = conn_new(s, fd);
	if (conn)
		conn->is_accepted = true;
}

SCOUT_ON_LOOP static void
disconnected(struct scout_server *s, int fd)
{
	struct scout__conn *conn = conn_of(s, fd);

	if (s->transport->n_conns > 0)
		s->transport->n_conns--;
	if (conn && conn->is_accepted)
		conn_free(s, conn);
}

void
scout__conns_bind(struct scout_server *s, struct scout__dest *dest)
{
	struct scout__conn *conn = conn_of(s, dest->fd);

	if (dest->fd < 0) {
		s->transport->hooks->conn_ended(s, dest);
		return;
	}
	if (conn && conn->inode != dest->fd_inode) {
		conn_free(s, conn); /* the descriptor is used again, and neither event was read yet */
		conn = NULL;
	}
	if (!conn && s->transport->conns.n_free == 0)
		(void)make_room(s);
	if (!conn)
		conn = conn_new(s, dest->fd);
	if (!conn)
		return;
	if (conn->dest)
		scout__conns_unbind(s, conn->dest);
	conn->dest = dest;
	dest->conn = conn;
	del_silent(&s->transport->conns, conn);
}

void
scout__conns_unbind(struct scout_server *s, struct scout__dest *dest)
{
	struct scout__conn *conn = dest->conn;

	if (!conn)
		return;
	dest->conn = NULL;
	conn->dest = NULL;
	add_silent(&s->transport->conns, conn);
}

void
scout__conns_heard(struct scout_server *s, int fd)
{
	struct scout__conn *conn = conn_of(s, fd);

	if (!conn || conn->dest)
		return;
	scout__list_del(&conn->node);
	scout__list_add(&s->transport->conns.silent, &conn->node);
}

bool
scout__conns_is_open(const struct scout__dest *dest)
{
	return dest->fd >= 0 && dest->fd_inode != 0 && inode_of(dest->fd) == dest->fd_inode;
}

bool
scout__conns_are_writable(const struct scout_server *s)
{
	for (uint32_t i = 0; i < s->transport->conns_limit; i++) {
		const struct scout__conn *conn = &s->transport->conns.table[i];
		struct pollfd fd = {.fd = conn->fd, .events = POLLOUT};

		if (conn->inode != 0 && inode_of(conn->fd) == conn->inode && poll(&fd, 1, 0) == 0)
			return false;
	}
	return true;
}

/* ---- the monitor ---- */

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
		else
			disconnected(s, (int)value);
	}
}
