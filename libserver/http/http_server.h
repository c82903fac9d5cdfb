/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "log.h"
#include "text.h"

/*
 * A small HTTP server: GET and HEAD, each answer made in memory, the connection ended by it. For the endpoint `metrics` and for
 * `kvscout web`. A build without libmicrohttpd has none.
 */

#define SCOUT__HTTP_CONNS 16u       /* requests at once; the next one takes the place of the oldest */
#define SCOUT__HTTP_DESCRIPTORS 40u /* at most: twice the connections, and the server's own */
#define SCOUT__HTTP_ADDRESS 64u     /* "[v6 address]:port" */

struct scout__http;

struct scout__http_answer {
	unsigned status;         /* 200 */
	const char *type;        /* a constant; text/plain */
	struct scout__text text; /* empty */
};

struct scout__http_header {
	const char *name, *value;
};

struct scout__http_service {
	const char *name;                         /* "metrics": begins lines of the log, and names the thread */
	const struct scout__http_header *headers; /* of each answer; ends with a NULL name; NULL: none */
	const struct scout__log *log;
	void *user;
	/* Fill in what is not as above. @host: of the request; NULL: it has none. HTTP thread. */
	void (*get)(void *user, const char *path, const char *host, struct scout__http_answer *answer);
};

/*
 * A socket that listens on @text, HOST:PORT. @what begins each message. *ret_address has SCOUT__HTTP_ADDRESS bytes; *ret_private:
 * others cannot reach it. Returns 0, SCOUT_ERR_CONFIG_SYNTAX, _CONFIG_RANGE, _BIND, _PERMISSION, _NOMEM.
 */
int scout__http_listen(const char *what, const char *text, int *ret_fd, char *ret_address, bool *ret_private, char *err,
		       size_t err_len);
/*
 * Serve on @listen_fd, which is taken in any case, from a thread of its own. @service is copied; what it points to stays. Returns 0,
 * SCOUT_ERR_NOMEM, SCOUT_ERR_SYSTEM.
 */
int scout__http_start(const struct scout__http_service *service, int listen_fd, struct scout__http **ret_http,
		      char *err, size_t err_len);
/* Ends all connections, in bounded time whatever clients do. NULL is ignored. */
void scout__http_stop(struct scout__http *http);
