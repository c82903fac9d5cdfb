/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <hiredis/hiredis.h>

#include "l2.h"

/*
 * DESIGN
 *
 * Purpose: one connection: made, introduced (AUTH, PING), written to, lost.
 *
 * Commands are written into a small buffer; the value of a SET is sent from the slot of the pool by writev(), between two parts
 * of that buffer, so there is one value in it at most. Sockets are opened from the flush at the end of a turn only, never from
 * within events: an event of a socket that was closed in the same turn can then not be taken for the new one's.
 *
 * A job that ends before its command does:
 *   not written yet            the command is taken off the queue
 *   written, not answered      it stays in `sent` without a job; its reply is thrown away when it comes
 *   its value is half written, or half received: the connection is closed, and what else was on it is sent again
 * In no case a byte of its memory is touched afterwards, and in no case a reply is taken for another command's.
 *
 * Threads: the adapter's.
 */

#define YOUNG_US 100000u

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
	(void)r;
	if (link->fd >= 0)
		(void)close(link->fd); /* leaves the epoll set by that */
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

static bool
has_work(const struct redis_command *command)
{
	switch (command->kind) {
	case REDIS_EXISTS:
	case REDIS_GET:
	case REDIS_SET:
	case REDIS_UNLINK:
		return command->job != NULL;
	default:
		return false;
	}
}

/* What was under way goes back to the front of the queue, in its order. */
static void
requeue(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	struct redis_queue old = link->queue;
	struct redis_command *command;

	scout__redis_queue_init(&link->queue);
	if (!old.head)
		old.tail = &old.head; /* it pointed into the link */
	while ((command = scout__redis_queue_pop(&link->sent))) {
		if (command->kind == REDIS_SLOTS ||
		    (has_work(command) && ++command->losses > SCOUT__REDIS_MAX_LOSSES)) {
			scout__redis_command_fail(r, command, SCOUT__L2_ERROR, ECONNRESET);
		} else if (has_work(command)) {
			command->job->moved_us = r->now_us; /* it waits for the store, which has to take us back */
			scout__redis_queue_push(&link->queue, command);
		} else {
			scout__redis_command_free(r, command);
		}
	}
	while ((command = scout__redis_queue_pop(&old))) {
		if (has_work(command) || command->kind == REDIS_SLOTS)
			scout__redis_queue_push(&link->queue, command);
		else
			scout__redis_command_free(r, command);
	}
}

void
scout__redis_link_lost(struct redis *r, struct redis_link *link, enum redis_why why, int error, const char *text)
{
	bool was_ready = link->state == REDIS_READY;

	/* One that breaks as soon as it is made is no better than none. */
	if (why != REDIS_FINE && (!was_ready || why != REDIS_UNREACHABLE || r->now_us - link->ready_us < YOUNG_US)) {
		scout__redis_node_failed(r, link->node, why, error, text);
		return;
	}
	scout__log(r->log, SCOUT_LOG_DEBUG, "%s: %s:%u: %s; connecting anew", r->shown, link->node->host,
		   link->node->port, text);
	scout__redis_link_close(r, link);
	requeue(r, link);
	scout__redis_link_touch(r, link);
}

void
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
	if (torn)
		scout__redis_link_lost(r, link, REDIS_FINE, ETIMEDOUT, "a value took too long");
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

	/* None of these is needed to work: what cannot be set is left as it is. */
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

/* The next address, or the node has failed. */
static void
connect_next(struct redis *r, struct redis_link *link, int error) SCOUT_ON_REDIS
{
	if (link->fd >= 0)
		(void)close(link->fd);
	link->fd = -1;
	while (error != 0 && ++link->address < link->node->addresses.n)
		error = connect_to(r, link);
	if (error != 0)
		scout__redis_node_failed(r, link->node, REDIS_UNREACHABLE, error, "cannot be reached");
}

static void
start_connecting(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	int error = make_buffers(link);

	if (error != 0) {
		scout__redis_node_failed(r, link->node, REDIS_BROKEN, error, "there is no memory to connect to it");
		return;
	}
	link->address = 0;
	error = connect_to(r, link);
	if (error != 0)
		connect_next(r, link, error);
}

static void
open_link(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	struct redis_node *node = link->node;

	if (node->addresses.n > 0 || scout__redis_dns_numeric(node->host, node->port, &node->addresses)) {
		start_connecting(r, link);
		return;
	}
	link->state = REDIS_RESOLVING;
	link->progress_us = r->now_us;
	if (node->resolving)
		return;
	node->resolving = scout__redis_dns_ask(r->dns, node->id, node->host, node->port);
	if (!node->resolving)
		scout__redis_node_failed(r, node, REDIS_UNREACHABLE, EAGAIN, "its name cannot be looked up now");
}

void
scout__redis_link_resolved(struct redis *r, struct redis_node *node)
{
	char text[96];

	if (node->addresses.n == 0) {
		(void)snprintf(text, sizeof(text), "its name cannot be resolved (%s)",
			       gai_strerror(node->addresses.error));
		scout__redis_node_failed(r, node, REDIS_UNREACHABLE, EHOSTUNREACH, text);
		return;
	}
	for (int lane = 0; lane < REDIS_LANES; lane++) {
		if (node->links[lane].state != REDIS_RESOLVING)
			continue;
		node->links[lane].state = REDIS_IDLE;
		scout__redis_link_touch(r, &node->links[lane]);
	}
}

/* AUTH, PING and a name that CLIENT LIST shows, in one go. */
static int
introduce(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	static const char *const ping[] = {"PING", NULL}, *const name[] = {"CLIENT", "SETNAME", "kvscout", NULL};
	const char *const with_user[] = {"AUTH", r->user, r->password, NULL};
	const char *const without[] = {"AUTH", r->password, NULL};
	const enum redis_kind kinds[] = {REDIS_AUTH, REDIS_PING, REDIS_NAME};
	struct scout__writer w = {.buf = link->out, .cap = SCOUT__REDIS_BUFFER_BYTES};

	for (int i = r->password ? 0 : 1; i < 3; i++) {
		struct redis_command *command = scout__redis_command_new(r, kinds[i], NULL);

		if (!command)
			return ENOMEM;
		scout__redis_queue_push(&link->sent, command);
	}
	if (r->password)
		scout__redis_put_words(&w, r->user && r->user[0] ? with_user : without);
	scout__redis_put_words(&w, ping);
	scout__redis_put_words(&w, name);
	SCOUT_ASSERT(!w.bad); /* the length of user and password was checked */
	link->out_len = w.len;
	link->progress_us = r->now_us;
	link->state = REDIS_HELLO;
	return 0;
}

static void
connected(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		error = errno;
	if (error == 0)
		error = introduce(r, link);
	if (error != 0)
		connect_next(r, link, error);
	else
		scout__redis_link_touch(r, link);
}

void
scout__redis_link_ready(struct redis *r, struct redis_link *link)
{
	link->state = REDIS_READY;
	link->ready_us = r->now_us;
	if (link->was_ready)
		atomic_fetch_add_explicit(&r->counters.reconnects, 1, memory_order_relaxed);
	link->was_ready = true;
	scout__redis_node_works(r, link->node);
	scout__redis_link_touch(r, link);
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

/* What is to be written; bytes that follow a value wait for it. Returns how many pieces. */
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
	/* Within a value a few bytes now and then are no life. */
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

/* Write until it would block, a slice at most. False: the link was lost. */
static bool
write_out(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	uint64_t bytes = 0;

	while (bytes < SCOUT__REDIS_SLICE_BYTES) {
		struct iovec iov[3];
		struct msghdr message = {.msg_iov = iov};
		ssize_t n;

		if (link->state == REDIS_READY && !fill(r, link)) {
			scout__redis_link_lost(r, link, REDIS_BROKEN, ENOMEM, "there is no memory for a command");
			return false;
		}
		message.msg_iovlen = (size_t)gather(link, iov);
		if (message.msg_iovlen == 0)
			return true;
		n = sendmsg(link->fd, &message, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n < 0) {
			scout__redis_link_lost(r, link, REDIS_UNREACHABLE, errno, "the connection broke");
			return false;
		}
		written(r, link, (uint64_t)n);
		bytes += (uint64_t)n;
	}
	return true;
}

static void
watch_events(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = link}};

	if (link->payload || link->out_at < link->out_len ||
	    (link->state == REDIS_READY && link->queue.head && may_write(link, link->queue.head)))
		event.events |= EPOLLOUT;
	if (event.events == link->events)
		return;
	link->events = event.events;
	if (epoll_ctl(r->epoll_fd, EPOLL_CTL_MOD, link->fd, &event) != 0)
		scout__redis_link_lost(r, link, REDIS_BROKEN, errno, "it cannot be watched");
}

static void
flush_link(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	const struct redis_node *node = link->node;

	switch (link->state) {
	case REDIS_IDLE:
		if (node->down && r->now_us < node->retry_us)
			return;
		if (link->queue.head || (link->lane == REDIS_ASK && node->serves))
			open_link(r, link);
		return;
	case REDIS_RESOLVING:
	case REDIS_CONNECTING:
		return;
	default:
		if (write_out(r, link))
			watch_events(r, link);
	}
}

void
scout__redis_links_flush(struct redis *r)
{
	while (r->dirty) {
		struct redis_link *link = r->dirty;

		r->dirty = link->next_dirty;
		link->dirty = false;
		flush_link(r, link);
	}
}

void
scout__redis_link_event(struct redis *r, struct redis_link *link, uint32_t events)
{
	if (link->fd < 0)
		return; /* closed earlier in this turn */
	if (link->state == REDIS_CONNECTING) {
		connected(r, link);
		return;
	}
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		scout__redis_link_receive(r, link);
	if (events & EPOLLOUT)
		scout__redis_link_touch(r, link);
}
