/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_dns.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "doorbell.h"

/*
 * DESIGN
 *
 * Purpose: see redis_dns.h.
 *
 * One thread, started for the first name that is no number. Questions and answers are two lists under a mutex (neither
 * end is the server's loop). The object belongs to its last user: scout__redis_dns_free() marks it closed, and if the
 * thread is busy, the thread frees it. Joining would wait for a resolver that may be configured to try for half a
 * minute.
 *
 * Threads: the adapter's (all public functions), the resolver's (run()).
 */

#define MAX_WAITING 256u

struct question {
	struct question *next;
	uint64_t token;
	uint16_t port;
	struct scout__redis_addresses addresses;
	char host[];
};

struct question_list {
	struct question *head, **tail;
};

struct scout__redis_dns {
	pthread_mutex_t mu;
	pthread_cond_t cond;
	struct question_list asked, answered; /* G:mu */
	uint32_t n_waiting;                   /* G:mu */
	int wake_fd;                          /* G:mu; -1: closed */
	bool started;                         /* adapter */
	bool closed;                          /* G:mu */
};

static void
append(struct question_list *list, struct question *q)
{
	q->next = NULL;
	*list->tail = q;
	list->tail = &q->next;
}

static struct question *
take(struct question_list *list)
{
	struct question *q = list->head;

	if (q) {
		list->head = q->next;
		if (!list->head)
			list->tail = &list->head;
	}
	return q;
}

int
scout__redis_dns_new(int wake_fd, struct scout__redis_dns **ret_dns)
{
	struct scout__redis_dns *dns = calloc(1, sizeof(*dns));

	if (!dns)
		return SCOUT_ERR_NOMEM;
	(void)pthread_mutex_init(&dns->mu, NULL); /* cannot fail with default attributes on Linux */
	(void)pthread_cond_init(&dns->cond, NULL);
	dns->asked.tail = &dns->asked.head;
	dns->answered.tail = &dns->answered.head;
	dns->wake_fd = wake_fd;
	*ret_dns = dns;
	return 0;
}

static void
destroy(struct scout__redis_dns *dns)
{
	struct question *q;

	while ((q = take(&dns->asked)) || (q = take(&dns->answered)))
		free(q);
	(void)pthread_mutex_destroy(&dns->mu);
	(void)pthread_cond_destroy(&dns->cond);
	free(dns);
}

void
scout__redis_dns_free(struct scout__redis_dns *dns)
{
	if (!dns)
		return;
	if (!dns->started) {
		destroy(dns);
		return;
	}
	(void)pthread_mutex_lock(&dns->mu);
	dns->closed = true;
	dns->wake_fd = -1;
	(void)pthread_cond_signal(&dns->cond);
	(void)pthread_mutex_unlock(&dns->mu);
}

static void
resolve(const char *host, uint16_t port, int flags, struct scout__redis_addresses *ret)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	char service[8];

	(void)snprintf(service, sizeof(service), "%u", port);
	memset(ret, 0, sizeof(*ret));
	ret->error = getaddrinfo(host, service, &hints, &found);
	if (ret->error != 0)
		return;
	for (struct addrinfo *a = found; a && ret->n < SCOUT__REDIS_ADDRESSES; a = a->ai_next) {
		if (a->ai_addrlen > sizeof(ret->list[0].addr))
			continue;
		memcpy(&ret->list[ret->n].addr, a->ai_addr, a->ai_addrlen);
		ret->list[ret->n++].len = a->ai_addrlen;
	}
	freeaddrinfo(found);
	if (ret->n == 0)
		ret->error = EAI_NONAME;
}

bool
scout__redis_dns_numeric(const char *host, uint16_t port, struct scout__redis_addresses *ret_addresses)
{
	struct scout__redis_addresses addresses;

	resolve(host, port, AI_NUMERICHOST, &addresses);
	if (addresses.n == 0)
		return false;
	*ret_addresses = addresses;
	return true;
}

static void *
run(void *arg)
{
	struct scout__redis_dns *dns = arg;

	(void)pthread_mutex_lock(&dns->mu);
	while (!dns->closed) {
		struct question *q = take(&dns->asked);

		if (!q) {
			(void)pthread_cond_wait(&dns->cond, &dns->mu);
			continue;
		}
		(void)pthread_mutex_unlock(&dns->mu);
		resolve(q->host, q->port, 0, &q->addresses);
		(void)pthread_mutex_lock(&dns->mu);
		append(&dns->answered, q);
		/* Under the mutex, so that the descriptor is not closed and reused meanwhile. */
		if (!dns->closed)
			scout__eventfd_raise(dns->wake_fd);
	}
	(void)pthread_mutex_unlock(&dns->mu);
	destroy(dns);
	return NULL;
}

bool
scout__redis_dns_ask(struct scout__redis_dns *dns, uint64_t token, const char *host, uint16_t port)
{
	size_t len = strlen(host) + 1;
	struct question *q;
	pthread_t thread;
	bool room;

	if (!dns->started) {
		if (scout__thread_start(&thread, "scout-l2-dns", run, dns) != 0)
			return false;
		(void)pthread_detach(thread);
		dns->started = true;
	}
	q = calloc(1, sizeof(*q) + len);
	if (!q)
		return false;
	q->token = token;
	q->port = port;
	memcpy(q->host, host, len);
	(void)pthread_mutex_lock(&dns->mu);
	room = dns->n_waiting < MAX_WAITING;
	if (room) {
		dns->n_waiting++;
		append(&dns->asked, q);
		(void)pthread_cond_signal(&dns->cond);
	}
	(void)pthread_mutex_unlock(&dns->mu);
	if (!room)
		free(q);
	return room;
}

bool
scout__redis_dns_take(struct scout__redis_dns *dns, uint64_t *ret_token, struct scout__redis_addresses *ret_addresses)
{
	struct question *q;

	(void)pthread_mutex_lock(&dns->mu);
	q = take(&dns->answered);
	if (q)
		dns->n_waiting--;
	(void)pthread_mutex_unlock(&dns->mu);
	if (!q)
		return false;
	*ret_token = q->token;
	*ret_addresses = q->addresses;
	free(q);
	return true;
}
