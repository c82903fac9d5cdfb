/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"
#include "server_core.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <microhttpd.h>

#include "fork_guard.h"

/*
 * DESIGN
 *
 * libmicrohttpd with one thread of its own that polls. A request is a path and nothing else: whatever else a client
 * sends is ignored, but for the Host. Every answer is made in memory and ends the connection. The thread never touches what the loop
 * owns; it waits only for the snapshot of metrics_snapshot.c, for a bounded time.
 *
 * Clients that are slow or many: libmicrohttpd's timeout counts from the last byte, so one byte every few seconds keeps
 * a connection for ever, and at its limit libmicrohttpd accepts no more. So this file counts connections, and ends the
 * oldest when there are more than SCOUT__METRICS_CONNS: an honest request is answered as soon as it is read and is
 * rarely the oldest; a client that dribbles is. The connection is shut down, not closed: libmicrohttpd then finds its
 * end and closes it. Its own limit, twice as high, leaves room for connections that are ending, and bounds the
 * descriptors.
 *
 * The listening socket is made by metrics_listen.c and stays ours (quiesce gives it back), because it is closed in
 * forked children.
 *
 * Rejected: one thread for each connection (unknown clients would decide how many), the loop's own epoll (a handler of
 * 200 us has no room for HTTP), TLS (a certificate to look after, for values that a scraper on the same machine or a
 * private network reads).
 *
 * Threads: libmicrohttpd's; start and stop of the server.
 */

#define CONN_MEMORY ((size_t)16384) /* for each connection: the header of its request must fit */
#define IDLE_S 10u

struct conn {
	int fd;
	bool is_shut;
};

struct scout__http {
	struct scout__metrics *metrics;              /* const after start */
	struct MHD_Daemon *daemon;                   /* const after start */
	struct MHD_Response *lost;                   /* const after start: the answer if memory for one is lacking */
	bool is_named;                               /* HTTP thread: it has its name for ps and gdb */
	struct scout__log_limit limit;               /* HTTP thread */
	struct conn conns[2 * SCOUT__METRICS_CONNS]; /* HTTP thread: the oldest first */
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
	if (n <= SCOUT__METRICS_CONNS || !oldest)
		return;
	oldest->is_shut = true;
	(void)shutdown(oldest->fd, SHUT_RDWR); /* fails if its client has ended it: as good */
	scout__log_limited(scout__metrics_log(http->metrics), &http->limit, scout__now_us(), SCOUT__LOG_INTERVAL_US,
			   SCOUT_LOG_INFO, "metrics: more than %u connections; the oldest is ended",
			   SCOUT__METRICS_CONNS);
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
	if (!http->is_named)
		(void)pthread_setname_np(pthread_self(), "scout-metrics"); /* a name for people only */
	http->is_named = true;
	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		forget(http, info->connect_fd);
		return;
	}
	/* libmicrohttpd's limit is as high as the table is long. */
	if (http->n_conns == 2 * SCOUT__METRICS_CONNS)
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

/* Answer with @text. Takes it. */
static enum MHD_Result
respond(const struct scout__http *http, struct MHD_Connection *connection, unsigned status, const char *type,
	struct scout__text *text)
{
	struct MHD_Response *response;
	enum MHD_Result rc;

	if (text->failed) {
		scout__text_fini(text);
		return send_lost(http, connection);
	}
	response = MHD_create_response_from_buffer(text->len, text->p, MHD_RESPMEM_MUST_FREE);
	if (!response) {
		scout__text_fini(text);
		return send_lost(http, connection);
	}
	if (MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) != MHD_YES ||
	    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store") != MHD_YES ||
	    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close") != MHD_YES ||
	    (status == MHD_HTTP_METHOD_NOT_ALLOWED &&
	     MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") != MHD_YES))
		rc = send_lost(http, connection);
	else
		rc = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return rc;
}

static enum MHD_Result
respond_plain(const struct scout__http *http, struct MHD_Connection *connection, unsigned status, const char *line)
{
	struct scout__text text = {0};

	scout__text_add(&text, "%s\n", line);
	return respond(http, connection, status, "text/plain; charset=utf-8", &text);
}

static enum MHD_Result
get_metrics(const struct scout__http *http, struct MHD_Connection *connection)
{
	struct scout__metrics_facts facts;
	const struct scout__stats *stats = scout__metrics_look(http->metrics, &facts);
	struct scout__text text = {0};

	scout__metrics_text(stats, &facts, &text);
	return respond(http, connection, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", &text);
}

static enum MHD_Result
get_status(const struct scout__http *http, struct MHD_Connection *connection)
{
	struct scout__metrics_facts facts;
	const struct scout__stats *stats = scout__metrics_look(http->metrics, &facts);
	struct scout__text text = {0};

	scout__metrics_json(stats, &facts, &text);
	return respond(http, connection, MHD_HTTP_OK, "application/json", &text);
}

static enum MHD_Result
get_healthz(const struct scout__http *http, struct MHD_Connection *connection)
{
	struct scout__metrics_facts facts;
	const struct scout__stats *stats = scout__metrics_look(http->metrics, &facts);
	struct scout__text text = {0};

	if (!facts.healthy)
		return respond_plain(http, connection, MHD_HTTP_SERVICE_UNAVAILABLE, facts.reason);
	/* A store that fails is no reason to end the server, which serves from memory. */
	scout__metrics_health(stats, &text);
	return respond(http, connection, MHD_HTTP_OK, "text/plain; charset=utf-8", &text);
}

/*
 * Whether the request means this server. A web page in an operator's browser can have its own name resolve to this address, and would
 * read the answers; it cannot make the browser send another name. So a name has to be ours: the machine's, with any domain, or localhost.
 * An address needs no resolver, and what sends no Host is no browser.
 */
static bool
is_for_us(struct MHD_Connection *connection)
{
	const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
	char own[HOST_NAME_MAX + 1] = "";
	struct in_addr address;
	char name[256];
	size_t own_len;

	if (!host || *host == '[') /* an IPv6 address */
		return true;
	(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(host, ":"), host);
	if (inet_pton(AF_INET, name, &address) == 1 || strcasecmp(name, "localhost") == 0)
		return true;
	(void)gethostname(own, sizeof(own) - 1);
	own_len = strcspn(own, ".");
	return own_len > 0 && strncasecmp(name, own, own_len) == 0 && (!name[own_len] || name[own_len] == '.');
}

static enum MHD_Result
request(void *cls, struct MHD_Connection *connection, const char *url, const char *method, const char *version,
	const char *upload_data, size_t *upload_data_size, void **con_cls)
{
	const struct scout__http *http = cls;

	(void)version;
	(void)upload_data; /* the answer leaves before any upload is read */
	(void)upload_data_size;
	(void)con_cls;
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return respond_plain(http, connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD");
	if (!is_for_us(connection))
		return respond_plain(
			http, connection, MHD_HTTP_MISDIRECTED_REQUEST,
			"the Host of this request is none of this server's names: its address, localhost, or "
			"the machine's name with any domain");
	if (strcmp(url, "/metrics") == 0)
		return get_metrics(http, connection);
	if (strcmp(url, "/healthz") == 0)
		return get_healthz(http, connection);
	if (strcmp(url, "/status") == 0)
		return get_status(http, connection);
	return respond_plain(http, connection, MHD_HTTP_NOT_FOUND, "there are /metrics, /healthz and /status");
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
				 listen_fd, MHD_OPTION_CONNECTION_LIMIT, 2 * SCOUT__METRICS_CONNS,
				 MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONN_MEMORY,
				 MHD_OPTION_NOTIFY_CONNECTION, connection_notice, http, MHD_OPTION_END);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL); /* cannot fail: the kernel gave us this mask */
	return daemon;
}

int
scout__http_start(struct scout__metrics *m, int listen_fd, struct scout__http **ret_http, char *err, size_t err_len)
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
	http->metrics = m;
	http->daemon = start_daemon(http, listen_fd);
	if (!http->daemon) {
		int error = errno;

		close_if_same(listen_fd, &was);
		MHD_destroy_response(http->lost);
		free(http);
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "metrics: the HTTP thread cannot be started: %s",
				   scout__errno_text(error));
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
