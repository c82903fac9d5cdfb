/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <sys/socket.h>

#include "thread.h"

/*
 * Names to addresses, on a separate thread: getaddrinfo() may take many seconds and cannot be told to stop, and
 * deadlines of operations must hold meanwhile.
 */

#define SCOUT__REDIS_ADDRESSES 4u

struct scout__redis_addresses {
	uint32_t n; /* 0: the name has none; see error */
	int error;  /* EAI_* */
	struct {
		struct sockaddr_storage addr;
		socklen_t len;
	} list[SCOUT__REDIS_ADDRESSES];
};

struct scout__redis_dns;

/* @wake_fd: an eventfd, written to when an answer is there; not used after the free. Returns 0, SCOUT_ERR_NOMEM. */
int scout__redis_dns_new(int wake_fd, struct scout__redis_dns **ret_dns);
/* Never waits: a thread inside getaddrinfo() frees what is left when it comes back. @dns may be NULL. */
void scout__redis_dns_free(struct scout__redis_dns *dns);

/* A numeric address needs no thread: true, and @ret_addresses is written. */
SCOUT_ON_ANY bool scout__redis_dns_numeric(const char *host, uint16_t port,
					   struct scout__redis_addresses *ret_addresses);
/* Ask for a name; the answer comes with @token. False: too many are waiting, or no thread could be started. */
bool scout__redis_dns_ask(struct scout__redis_dns *dns, uint64_t token, const char *host, uint16_t port);
/* The next answer. */
bool scout__redis_dns_take(struct scout__redis_dns *dns, uint64_t *ret_token,
			   struct scout__redis_addresses *ret_addresses);
