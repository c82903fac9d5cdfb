/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

/*
 * DESIGN
 *
 * Purpose: make one connection, introduce us (AUTH, ROLE, PING), write to it, close it. Owns the socket and the buffers.
 * Failures are returned as a trouble; redis_node.c decides what a trouble means for the node and the commands.
 *
 * Commands are written into a small buffer; the value of a SET is sent from the slot of the pool by writev(), between
 * two parts of that buffer, so there is one value in it at most. Sockets are opened only from the flush at the end of a
 * turn, never from within events: so an event of a socket that was closed in the same turn cannot be mistaken for the
 * new socket's.
 *
 * A job that ends before its command does:
 *   not written yet            the command is taken off the queue
 *   written, not answered      it stays in `sent` without a job; its reply is thrown away when it comes
 *   its value is half written, or half received: the connection is closed, and what else was on it is sent again
 * In no case is a byte of its memory touched afterwards, or a reply taken for another command's.
 *
 * Threads: the adapter's.
 */

static const struct redis_trouble no_trouble = {.text = NULL};

static struct redis_trouble
trouble(enum redis_why why, int error, const char *text)
{
	return (struct redis_trouble){.why = why, .error = error, .text = text};
}

void
scout__redis_link_init(struct redis_link *link, struct redis_node *node, enum redis_lane lane)
{
	link->node = node;
	link->lane = (uint8_t)lane;
	link->fd = -1;
	scout__redis_queue_init(&link->queue);
	scout__redis_queue_init(&link->sent);
}

void
scout__redis_link_touch(struct redis *r, struct redis_link *link)
{
	if (link->dirty)
		return;
	link->dirty = true;
	link->next_dirty = r->dirty;
	r->dirty = link;
}

/* ---- closing ---- */

static void
free_buffers(struct redis_link *link)
{
	free(link->out);
	free(link->in);
	link->out = link->in = NULL;
	if (link->reader)
		redisReaderFree(link->reader);
	link->reader = NULL;
	(void)XXH3_freeState(link->sum); /* always XXH_OK */
	link->sum = NULL;
}

void
scout__redis_link_close(struct redis *r, struct redis_link *link)
{
	if (link->ssl)
		r->tls->end(link);
	if (link->fd >= 0)
		(void)close(link->fd); /* which takes it out of the epoll set */
	link->fd = -1;
	link->state = REDIS_IDLE;
	link->events = 0;
	link->payload = NULL;
	link->payload_left = 0;
	link->writing = NULL;
	link->out_at = link->out_split = link->out_len = 0;
	link->in_at = link->in_len = link->fed = 0;
	link->value.active = false;
	link->sent_bytes = 0;
	free_buffers(link);
}

bool
scout__redis_link_forget(struct redis *r, struct redis_link *link)
{
	struct redis_queue kept;
	struct redis_command *command;
	bool torn = link->writing && link->writing->expired;

	scout__redis_queue_init(&kept);
	while ((command = scout__redis_queue_pop(&link->queue))) {
		if (!command->job || !command->job->expired) {
			scout__redis_queue_push(&kept, command);
			continue;
		}
		scout__redis_command_free(r, command);
	}
	while ((command = scout__redis_queue_pop(&kept)))
		scout__redis_queue_push(&link->queue, command);
	for (command = link->sent.head; command; command = command->next) {
		if (!command->job || !command->job->expired)
			continue;
		if (command == link->sent.head && link->value.active)
			torn = true;
		command->job = NULL;
	}
	return torn;
}

/* ---- connecting ---- */

static int
make_buffers(struct redis_link *link)
{
	link->out = malloc(SCOUT__REDIS_BUFFER_BYTES);
	link->in = malloc(SCOUT__REDIS_BUFFER_BYTES);
	link->reader = redisReaderCreate();
	link->sum = XXH3_createState();
	if (link->out && link->in && link->reader && link->sum)
		return 0;
	free_buffers(link);
	return ENOMEM;
}

static void
tune(int fd)
{
	const int on = 1, idle_s = 30, every_s = 10, probes = 3;

	/* None of these options is needed to work: one that cannot be set stays as it is. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* Begin to connect to the address whose turn it is. Returns 0 or an errno value. */
static int
connect_to(struct redis *r, struct redis_link *link)
{
	const struct scout__redis_addresses *to = &link->node->addresses;
	const struct sockaddr *addr = (const struct sockaddr *)&to->list[link->address].addr;
	struct epoll_event event = {.events = EPOLLOUT, .data = {.ptr = link}};
	int fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int error;

	if (fd < 0)
		return errno;
	tune(fd);
	if (connect(fd, addr, to->list[link->address].len) != 0 && errno != EINPROGRESS)
		goto err_close;
	if (epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0)
		goto err_close;
	link->fd = fd;
	link->events = event.events;
	link->state = REDIS_CONNECTING;
	link->progress_us = r->now_us;
	return 0;

err_close:
	error = errno;
	(void)close(fd);
	return error;
}

/* Try the next address, if there is one. */
static struct redis_trouble
connect_next(struct redis *r, struct redis_link *link, int error) SCOUT_ON_REDIS
{
	if (link->fd >= 0)
		(void)close(link->fd);
	link->fd = -1;
	while (error != 0 && ++link->address < link->node->addresses.n)
		error = connect_to(r, link);
	return error != 0 ? trouble(REDIS_UNREACHABLE, error, "cannot be reached") : no_trouble;
}

static struct redis_trouble
start_connecting(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	int error = make_buffers(link);

	if (error != 0)
		return trouble(REDIS_BROKEN, error, "there is no memory to connect to it");
	link->address = 0;
	error = connect_to(r, link);
	return error != 0 ? connect_next(r, link, error) : no_trouble;
}

static struct redis_trouble
open_link(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	struct redis_node *node = link->node;

	if (node->addresses.n > 0 || scout__redis_dns_numeric(node->host, node->port, &node->addresses))
		return start_connecting(r, link);
	link->state = REDIS_RESOLVING;
	link->progress_us = r->now_us;
	if (node->resolving)
		return no_trouble;
	node->resolving = scout__redis_dns_ask(r->dns, node->id, node->host, node->port);
	return node->resolving ? no_trouble : trouble(REDIS_UNREACHABLE, EAGAIN, "its name cannot be looked up now");
}

/* AUTH, ROLE, PING and a name that CLIENT LIST shows, in one go. */
static int
introduce(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	static const char *const ping[] = {"PING", NULL}, *const name[] = {"CLIENT", "SETNAME", "kvscout", NULL};
	static const char *const role[] = {"ROLE", NULL};
	const char *const with_user[] = {"AUTH", r->user, r->password, NULL};
	const char *const without[] = {"AUTH", r->password, NULL};
	const enum redis_kind kinds[] = {REDIS_AUTH, REDIS_ROLE, REDIS_PING, REDIS_NAME};
	struct scout__writer w = {.buf = link->out, .cap = SCOUT__REDIS_BUFFER_BYTES};

	for (int i = r->password ? 0 : 1; i < 4; i++) {
		struct redis_command *command;

		if (kinds[i] == REDIS_ROLE && !scout__redis_needs_role(r))
			continue;
		command = scout__redis_command_new(r, kinds[i], NULL);
		if (!command)
			return ENOMEM;
		scout__redis_queue_push(&link->sent, command);
	}
	if (r->password)
		scout__redis_put_words(&w, r->user && r->user[0] ? with_user : without);
	if (scout__redis_needs_role(r))
		scout__redis_put_words(&w, role);
	scout__redis_put_words(&w, ping);
	scout__redis_put_words(&w, name);
	SCOUT_ASSERT(!w.bad); /* the length of user and password was checked */
	link->out_len = w.len;
	link->progress_us = r->now_us;
	link->state = REDIS_HELLO;
	return 0;
}

/* Of a connection with TLS; its text may be the adapter's tls_text. */
static struct redis_trouble
broken(struct redis *r, int error)
{
	return error == EPROTO && r->tls ? trouble(REDIS_UNTRUSTED, error, r->tls_text)
					 : trouble(REDIS_UNREACHABLE, error, "the connection broke");
}

static struct redis_trouble
watch_only(struct redis *r, struct redis_link *link, uint32_t events) SCOUT_ON_REDIS
{
	struct epoll_event event = {.events = events, .data = {.ptr = link}};

	if (event.events == link->events)
		return no_trouble;
	link->events = event.events;
	if (epoll_ctl(r->epoll_fd, EPOLL_CTL_MOD, link->fd, &event) != 0)
		return trouble(REDIS_BROKEN, errno, "it cannot be watched");
	return no_trouble;
}

static struct redis_trouble
begin_hello(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	int error = introduce(r, link);

	if (error != 0)
		return trouble(REDIS_BROKEN, error, "there is no memory to connect to it");
	scout__redis_link_touch(r, link);
	return no_trouble;
}

struct redis_trouble
scout__redis_link_shake(struct redis *r, struct redis_link *link)
{
	bool wants_write = false;
	int error = r->tls->handshake(r, link, &wants_write);

	if (error == 0)
		return begin_hello(r, link);
	if (error == EAGAIN)
		return watch_only(r, link, wants_write ? EPOLLOUT : EPOLLIN);
	return broken(r, error);
}

struct redis_trouble
scout__redis_link_connected(struct redis *r, struct redis_link *link)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		error = errno;
	if (error == 0 && r->tls)
		error = r->tls->begin(r, link);
	if (error != 0)
		return connect_next(r, link, error);
	if (!r->tls)
		return begin_hello(r, link);
	link->state = REDIS_HANDSHAKE;
	link->progress_us = r->now_us;
	return scout__redis_link_shake(r, link);
}

/* ---- writing ---- */

static bool
may_write(const struct redis_link *link, const struct redis_command *command)
{
	if (link->payload || SCOUT__REDIS_BUFFER_BYTES - link->out_len < SCOUT__REDIS_COMMAND_BYTES)
		return false;
	return link->sent_bytes == 0 || link->sent_bytes + command->bytes <= SCOUT__REDIS_WINDOW_BYTES;
}

/* False: no memory. */
static bool
fill(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	while (link->queue.head && may_write(link, link->queue.head)) {
		struct redis_command *command = scout__redis_queue_pop(&link->queue);

		if (!scout__redis_command_write(r, link, command)) {
			scout__redis_queue_push_front(&link->queue, command);
			return false;
		}
	}
	return true;
}

/* Gather what is to be written; bytes that follow a value wait for the value. Returns how many pieces. */
static int
gather(const struct redis_link *link, struct iovec iov[3])
{
	size_t first = link->payload ? link->out_split : link->out_len;
	int n = 0;

	if (first > link->out_at) {
		iov[n].iov_base = link->out + link->out_at;
		iov[n++].iov_len = first - link->out_at;
	}
	if (!link->payload)
		return n;
	iov[n].iov_base = link->payload;
	iov[n++].iov_len = link->payload_left;
	iov[n].iov_base = link->out + link->out_split;
	iov[n++].iov_len = link->out_len - link->out_split;
	return n;
}

void
scout__redis_link_moved(struct redis *r, struct redis_link *link, uint64_t n)
{
	link->trickle += n;
	/* Within a value, a few bytes now and then are no sign of life. */
	if ((link->value.active || link->payload) && link->trickle < SCOUT__REDIS_PROGRESS_BYTES)
		return;
	link->progress_us = r->now_us;
	link->trickle = 0;
}

static void
written(struct redis *r, struct redis_link *link, uint64_t n) SCOUT_ON_REDIS
{
	if (link->payload) {
		uint64_t first = link->out_at < link->out_split ? link->out_split - link->out_at : 0;
		uint64_t of_value;

		if (first > n)
			first = n;
		link->out_at += first;
		n -= first;
		of_value = n < link->payload_left ? n : link->payload_left;
		link->payload += of_value;
		link->payload_left -= of_value;
		n -= of_value;
		if (link->out_at == link->out_split && link->payload_left == 0) {
			link->payload = NULL;
			link->writing = NULL;
		}
		if (of_value > 0)
			scout__redis_link_moved(r, link, of_value);
	}
	link->out_at += n;
	if (!link->payload && link->out_at == link->out_len)
		link->out_at = link->out_split = link->out_len = 0;
}

/* Write until the socket would block, a slice at most. */
static struct redis_trouble
write_out(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	uint64_t bytes = 0;

	while (bytes < SCOUT__REDIS_SLICE_BYTES) {
		struct iovec iov[3];
		struct msghdr message = {.msg_iov = iov};
		ssize_t n;

		if (link->state == REDIS_READY && !fill(r, link))
			return trouble(REDIS_BROKEN, ENOMEM, "there is no memory for a command");
		message.msg_iovlen = (size_t)gather(link, iov);
		if (message.msg_iovlen == 0)
			return no_trouble;
		n = link->ssl ? r->tls->write(r, link, iov, message.msg_iovlen)
			      : sendmsg(link->fd, &message, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return no_trouble;
		if (n < 0)
			return broken(r, errno);
		written(r, link, (uint64_t)n);
		bytes += (uint64_t)n;
	}
	return no_trouble;
}

static struct redis_trouble
watch_events(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	bool writes = link->payload || link->out_at < link->out_len ||
		      (link->state == REDIS_READY && link->queue.head && may_write(link, link->queue.head));

	return watch_only(r, link, writes ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

struct redis_trouble
scout__redis_link_flush(struct redis *r, struct redis_link *link)
{
	const struct redis_node *node = link->node;
	struct redis_trouble found;

	switch (link->state) {
	case REDIS_IDLE:
		if (node->down && r->now_us < node->retry_us)
			return no_trouble;
		if (link->queue.head || (link->lane == REDIS_ASK && node->serves))
			return open_link(r, link);
		return no_trouble;
	case REDIS_RESOLVING:
	case REDIS_CONNECTING:
	case REDIS_HANDSHAKE:
		return no_trouble;
	default:
		found = write_out(r, link);
		return found.text ? found : watch_events(r, link);
	}
}
