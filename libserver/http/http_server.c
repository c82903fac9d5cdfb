/* SPDX-License-Identifier: Apache-2.0 */
#include "http_server.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <microhttpd.h>

#include <kvscout/error.h>

#include "clock.h"
#include "fork_guard.h"
#include "thread.h"

/*
 * DESIGN
 *
 * libmicrohttpd with one thread of its own that polls. A request is a path and nothing else: whatever else a client
 * sends is ignored, but for the Host. Every answer is made in memory and ends the connection.
 *
 * Clients that are slow or many: libmicrohttpd's timeout counts from the last byte, so one byte every few seconds keeps
 * a connection for ever, and at its limit libmicrohttpd accepts no more. So this file counts connections, and ends the
 * oldest when there are more than SCOUT__HTTP_CONNS: an honest request is answered as soon as it is read and is
 * rarely the oldest; a client that dribbles is. The connection is shut down, not closed: libmicrohttpd then finds its
 * end and closes it. Its own limit, twice as high, leaves room for connections that are ending, and bounds the
 * descriptors.
 *
 * The listening socket is made by http_listen.c and stays ours (quiesce gives it back), because it is closed in
 * forked children.
 *
 * Rejected: one thread for each connection (unknown clients would decide how many), the loop's own epoll (a handler of
 * 200 us has no room for HTTP), TLS (a certificate to look after, for values that a scraper on the same machine or a
 * private network reads).
 *
 * Threads: libmicrohttpd's; the one that starts and stops it.
 */

#define CONN_MEMORY ((size_t)16384) /* for each connection: the header of its request must fit */
#define IDLE_S 10u
#define LOG_INTERVAL_US 1000000u

struct conn {
	int fd;
	bool is_shut;
};

struct scout__http {
	struct scout__http_service service;       /* const after start */
	struct MHD_Daemon *daemon;                /* const after start */
	struct MHD_Response *lost;                /* const after start: the answer if memory for one is lacking */
	bool is_named;                            /* HTTP thread: it has its name for ps and gdb */
	struct scout__log_limit limit;            /* HTTP thread */
	struct conn conns[2 * SCOUT__HTTP_CONNS]; /* HTTP thread: the oldest first */
	uint32_t n_conns;
};

/* ---- connections ---- */

static void
forget(struct scout__http *http, int fd)
{
	uint32_t i = 0;

	while (i < http->n_conns && http->conns[i].fd != fd)
		i++;
	if (i == http->n_conns)
		return;
	http->n_conns--;
	memmove(&http->conns[i], &http->conns[i + 1], (http->n_conns - i) * sizeof(http->conns[0]));
}

static void
make_room(struct scout__http *http)
{
	struct conn *oldest = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < http->n_conns; i++) {
		if (http->conns[i].is_shut)
			continue;
		n++;
		if (!oldest)
			oldest = &http->conns[i];
	}
	if (n <= SCOUT__HTTP_CONNS || !oldest)
		return;
	oldest->is_shut = true;
	(void)shutdown(oldest->fd, SHUT_RDWR); /* fails if its client has ended it: as good */
	scout__log_limited(http->service.log, &http->limit, scout__now_us(), LOG_INTERVAL_US, SCOUT_LOG_INFO,
			   "%s: more than %u connections; the oldest is ended", http->service.name, SCOUT__HTTP_CONNS);
}

static void
connection_notice(void *cls, struct MHD_Connection *connection, void **socket_context,
		  enum MHD_ConnectionNotificationCode code)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct scout__http *http = cls;

	(void)socket_context;
	if (!info)
		return;
	if (!http->is_named) {
		char name[16];

		(void)snprintf(name, sizeof(name), "scout-%s", http->service.name);
		(void)pthread_setname_np(pthread_self(), name); /* a name for people only */
	}
	http->is_named = true;
	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		forget(http, info->connect_fd);
		return;
	}
	/* libmicrohttpd's limit is as high as the table is long. */
	if (http->n_conns == 2 * SCOUT__HTTP_CONNS)
		return;
	http->conns[http->n_conns++] = (struct conn){info->connect_fd, false};
	make_room(http);
}

/* ---- answers ---- */

static enum MHD_Result
send_lost(const struct scout__http *http, struct MHD_Connection *connection)
{
	return MHD_queue_response(connection, MHD_HTTP_SERVICE_UNAVAILABLE, http->lost);
}

static bool
add_headers(const struct scout__http *http, struct MHD_Response *response, const struct scout__http_answer *answer)
{
	const struct scout__http_header *row = http->service.headers;

	for (; row && row->name; row++)
		if (MHD_add_response_header(response, row->name, row->value) != MHD_YES)
			return false;
	return MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type) == MHD_YES &&
	       MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store") == MHD_YES &&
	       MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES &&
	       (answer->status != MHD_HTTP_METHOD_NOT_ALLOWED ||
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES);
}

/* Takes the text. */
static enum MHD_Result
respond(const struct scout__http *http, struct MHD_Connection *connection, struct scout__http_answer *answer)
{
	struct MHD_Response *response = NULL;
	enum MHD_Result rc;

	if (!answer->text.failed)
		response = MHD_create_response_from_buffer(answer->text.len, answer->text.p, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		scout__text_fini(&answer->text);
		return send_lost(http, connection);
	}
	rc = add_headers(http, response, answer) ? MHD_queue_response(connection, answer->status, response)
						 : send_lost(http, connection);
	MHD_destroy_response(response);
	return rc;
}

static enum MHD_Result
request(void *cls, struct MHD_Connection *connection, const char *url, const char *method, const char *version,
	const char *upload_data, size_t *upload_data_size, void **con_cls)
{
	struct scout__http_answer answer = {.status = MHD_HTTP_OK, .type = "text/plain; charset=utf-8"};
	const struct scout__http *http = cls;

	(void)version;
	(void)upload_data; /* the answer leaves before any upload is read */
	(void)upload_data_size;
	(void)con_cls;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
		answer.status = MHD_HTTP_METHOD_NOT_ALLOWED;
		scout__text_add(&answer.text, "only GET and HEAD\n");
	} else {
		http->service.get(http->service.user, url,
				  MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST),
				  &answer);
	}
	return respond(http, connection, &answer);
}

/* libmicrohttpd only reports clients that went away. */
static void
say_nothing(void *cls, const char *format, va_list args)
{
	(void)cls;
	(void)format;
	(void)args;
}

/* ---- start and stop ---- */

static struct MHD_Response *
make_lost(void)
{
	static char text[] = "out of memory\n";
	struct MHD_Response *response = MHD_create_response_from_buffer(sizeof(text) - 1, text, MHD_RESPMEM_PERSISTENT);

	if (response && MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") != MHD_YES) {
		MHD_destroy_response(response);
		response = NULL;
	}
	return response;
}

/* When a start fails, libmicrohttpd may or may not close the socket. */
static void
close_if_same(int fd, const struct stat *was)
{
	struct stat is;

	if (fstat(fd, &is) == 0 && is.st_dev == was->st_dev && is.st_ino == was->st_ino)
		(void)close(fd);
}

static struct MHD_Daemon *
start_daemon(struct scout__http *http, int listen_fd)
{
	struct MHD_Daemon *daemon;
	sigset_t before;

	if (scout__block_signals(&before) != 0)
		return NULL;
	daemon =
		MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | MHD_USE_ERROR_LOG, 0, NULL, NULL,
				 request, http, MHD_OPTION_EXTERNAL_LOGGER, say_nothing, NULL, MHD_OPTION_LISTEN_SOCKET,
				 listen_fd, MHD_OPTION_CONNECTION_LIMIT, 2 * SCOUT__HTTP_CONNS,
				 MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONN_MEMORY,
				 MHD_OPTION_NOTIFY_CONNECTION, connection_notice, http, MHD_OPTION_END);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* cannot fail: the kernel gave us this mask */
	return daemon;
}

int
scout__http_start(const struct scout__http_service *service, int listen_fd, struct scout__http **ret_http, char *err,
		  size_t err_len)
{
	struct scout__http *http = calloc(1, sizeof(*http));
	struct stat was = {0};

	(void)fstat(listen_fd, &was); /* cannot fail: the socket is ours */
	if (http)
		http->lost = make_lost();
	if (!http || !http->lost) {
		free(http);
		(void)close(listen_fd);
		return scout__fail_no_memory(err, err_len);
	}
	http->service = *service;
	http->daemon = start_daemon(http, listen_fd);
	if (!http->daemon) {
		int error = errno;

		close_if_same(listen_fd, &was);
		MHD_destroy_response(http->lost);
		free(http);
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "%s: the HTTP thread cannot be started: %s",
				   service->name, scout__errno_text(error));
	}
	scout__fork_guard_add(listen_fd);
	*ret_http = http;
	return 0;
}

void
scout__http_stop(struct scout__http *http)
{
	int listen_fd;

	if (!http)
		return;
	listen_fd = MHD_quiesce_daemon(http->daemon);
	MHD_stop_daemon(http->daemon);
	scout__fork_guard_close(listen_fd);
	MHD_destroy_response(http->lost);
	free(http);
}
