/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"

/*
 * DESIGN
 *
 * One thread with one poll(). Each connection is a pair of descriptors with a small buffer each way; a side that cannot take what
 * the other sent is waited for, so the proxy holds at most BUFFER bytes. Orders come through a mutex and an eventfd, and are
 * acknowledged, so that a test knows that a fault has begun.
 */

#define PAIRS 32
#define BUFFER 65536
#define SLOW_BYTES 64u /* a millisecond */

struct way {
	int from, to;
	bool back; /* server to client */
	bool ended;
	size_t at, len;
	uint8_t buf[BUFFER];
};

struct pair {
	bool used, told;
	struct way ways[2];
};

struct proxy {
	char path[108];
	char endpoint[64];
	int listen_fd, wake_fd;
	pthread_t thread;
	struct pair *pairs; /* thread */
	pthread_mutex_t mu;
	pthread_cond_t cond;
	/* G:mu */
	enum proxy_mode mode, next_mode;
	bool stop, counting;
	uint32_t left; /* bytes until next_mode, while counting */
	unsigned wanted, done;
};

static void
close_pair(struct pair *pair)
{
	if (!pair->used)
		return;
	(void)close(pair->ways[0].from);
	(void)close(pair->ways[1].from);
	pair->used = false;
}

static int
connect_server(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", path);
	if (fd >= 0 && connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) != 0) {
		(void)close(fd);
		fd = -1;
	}
	return fd;
}

static void
accept_one(struct proxy *p)
{
	int client = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), server = -1;
	struct pair *pair = NULL;

	if (client < 0)
		return;
	for (int i = 0; i < PAIRS && !pair; i++)
		if (!p->pairs[i].used)
			pair = &p->pairs[i];
	if (pair && p->mode != PROXY_CUT)
		server = connect_server(p->path);
	if (server < 0) {
		(void)close(client);
		return;
	}
	pair->used = true;
	pair->told = false;
	for (int i = 0; i < 2; i++) {
		struct way *way = &pair->ways[i];

		way->from = i ? server : client;
		way->to = i ? client : server;
		way->back = i == 1;
		way->ended = false;
		way->at = way->len = 0;
	}
}

/* How many bytes may pass on this way now. */
static size_t
allowance(const struct proxy *p, const struct way *way)
{
	if (p->mode == PROXY_STALL || p->mode == PROXY_CUT)
		return 0;
	if (way->back && (p->mode == PROXY_STALL_BACK || p->mode == PROXY_HALF_CLOSE))
		return 0;
	if (p->mode == PROXY_SLOW)
		return SLOW_BYTES;
	return way->back && p->counting && p->left < BUFFER ? p->left : BUFFER;
}

/* False: the connection is over. */
static bool
carry(struct proxy *p, struct way *way)
{
	size_t may = allowance(p, way), n;
	ssize_t moved;

	if (may == 0)
		return true;
	if (way->len == 0 && !way->ended) {
		moved = read(way->from, way->buf, sizeof(way->buf));
		if (moved == 0 || (moved < 0 && errno != EAGAIN))
			return false;
		way->at = 0;
		way->len = moved > 0 ? (size_t)moved : 0;
	}
	n = way->len < may ? way->len : may;
	if (n == 0)
		return true;
	moved = send(way->to, way->buf + way->at, n, MSG_NOSIGNAL);
	if (moved < 0)
		return errno == EAGAIN;
	way->at += (size_t)moved;
	way->len -= (size_t)moved;
	if (way->back && p->counting) {
		p->left -= (uint32_t)moved;
		if (p->left == 0) {
			p->counting = false;
			p->mode = p->next_mode;
		}
	}
	return true;
}

static void
serve(struct proxy *p)
{
	for (int i = 0; i < PAIRS; i++) {
		struct pair *pair = &p->pairs[i];

		if (!pair->used)
			continue;
		if (p->mode == PROXY_HALF_CLOSE && !pair->told) {
			pair->told = true;
			(void)shutdown(pair->ways[1].to, SHUT_WR);
		}
		if (p->mode == PROXY_CUT || !carry(p, &pair->ways[0]) || !carry(p, &pair->ways[1]))
			close_pair(pair);
	}
	p->done = p->wanted;
	(void)pthread_cond_broadcast(&p->cond);
}

static nfds_t
fill(const struct proxy *p, struct pollfd *fds)
{
	nfds_t n = 0;

	fds[n++] = (struct pollfd){.fd = p->wake_fd, .events = POLLIN};
	fds[n++] = (struct pollfd){.fd = p->listen_fd, .events = POLLIN};
	for (int i = 0; i < PAIRS; i++)
		for (int w = 0; p->pairs[i].used && w < 2; w++) {
			const struct way *way = &p->pairs[i].ways[w];

			if (allowance(p, way) == 0)
				continue;
			if (way->len > 0)
				fds[n++] = (struct pollfd){.fd = way->to, .events = POLLOUT};
			else
				fds[n++] = (struct pollfd){.fd = way->from, .events = POLLIN};
		}
	return n;
}

static void *
proxy_main(void *arg)
{
	struct pollfd fds[2 + 2 * PAIRS];
	struct proxy *p = arg;
	uint64_t count;

	(void)pthread_mutex_lock(&p->mu);
	while (!p->stop) {
		nfds_t n = fill(p, fds);
		bool slow = p->mode == PROXY_SLOW;

		(void)pthread_mutex_unlock(&p->mu);
		if (slow)
			(void)poll(NULL, 0, 1); /* the pace itself */
		(void)poll(fds, n, -1);
		(void)pthread_mutex_lock(&p->mu);
		if (fds[0].revents)
			(void)!read(p->wake_fd, &count, sizeof(count));
		if (fds[1].revents)
			accept_one(p);
		serve(p);
	}
	(void)pthread_mutex_unlock(&p->mu);
	return NULL;
}

struct proxy *
proxy_start(const char *path)
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	struct proxy *p = calloc(1, sizeof(*p));

	ck_assert_ptr_nonnull(p);
	p->pairs = calloc(PAIRS, sizeof(*p->pairs));
	ck_assert_ptr_nonnull(p->pairs);
	(void)snprintf(p->path, sizeof(p->path), "%s", path);
	p->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(bind(p->listen_fd, (const struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(listen(p->listen_fd, 16), 0);
	ck_assert_int_eq(getsockname(p->listen_fd, (struct sockaddr *)&addr, &len), 0);
	(void)snprintf(p->endpoint, sizeof(p->endpoint), "tcp://127.0.0.1:%u", ntohs(addr.sin_port));
	p->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ck_assert_int_ge(p->wake_fd, 0);
	(void)pthread_mutex_init(&p->mu, NULL);
	(void)pthread_cond_init(&p->cond, NULL);
	ck_assert_int_eq(pthread_create(&p->thread, NULL, proxy_main, p), 0);
	return p;
}

static void
order(struct proxy *p)
{
	uint64_t one = 1;
	unsigned mine = ++p->wanted;

	(void)!write(p->wake_fd, &one, sizeof(one));
	while (p->done < mine)
		(void)pthread_cond_wait(&p->cond, &p->mu);
	(void)pthread_mutex_unlock(&p->mu);
}

void
proxy_set(struct proxy *p, enum proxy_mode mode)
{
	(void)pthread_mutex_lock(&p->mu);
	p->mode = mode;
	p->counting = false;
	order(p);
}

void
proxy_set_after(struct proxy *p, uint32_t bytes, enum proxy_mode mode)
{
	(void)pthread_mutex_lock(&p->mu);
	p->left = bytes;
	p->next_mode = mode;
	p->counting = true;
	order(p);
}

void
proxy_stop(struct proxy *p)
{
	uint64_t one = 1;

	(void)pthread_mutex_lock(&p->mu);
	p->stop = true;
	(void)pthread_mutex_unlock(&p->mu);
	(void)!write(p->wake_fd, &one, sizeof(one));
	(void)pthread_join(p->thread, NULL);
	for (int i = 0; i < PAIRS; i++)
		close_pair(&p->pairs[i]);
	(void)close(p->listen_fd);
	(void)close(p->wake_fd);
	(void)pthread_cond_destroy(&p->cond);
	(void)pthread_mutex_destroy(&p->mu);
	free(p->pairs);
	free(p);
}

const char *
proxy_endpoint(const struct proxy *p)
{
	return p->endpoint;
}
