/* SPDX-License-Identifier: Apache-2.0 */
#include "redis.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "l2.h"
#include "number.h"
#include "option.h"
#include "redis_internal.h"
#include "secret.h"

/*
 * DESIGN
 *
 * Purpose: objects in Redis or Valkey, one server or a Cluster.
 *
 *   redis://[user:password@]host:port,host:port...[?ttl=SECONDS&cluster=auto|yes|no&password_file=PATH&user=NAME]
 *
 * Key "kvscout:3:DIGEST", value = header (object.h) and payload; "kvscout:r:DIGEST" are records (l2.h), without time to
 * live. EXISTS becomes one EXISTS for each key, pipelined, each to the node that serves its slot. STORE is SET NX (an
 * object that is there stays, and its time to live does not begin anew) with PX if the URL has a ttl. LOAD is GET.
 * REMOVE is UNLINK, whatever is there now: if the object was stored anew after it was found damaged, the loss costs one
 * computation. An undamaged object is never removed: a LOAD of an object of another format version is ABSENT.
 *
 * Files, each calling only those before it: resp (wire text), dns, job, command, link (bytes out), receive (bytes in,
 * events out), node, slots, route, expire, reply (acts on events), and this one: start, thread, vtable.
 *
 * Threads: one of ours owns all sockets and all state (SCOUT_ON_REDIS); the loop only pushes into the queue. One is
 * enough: a Redis server is one thread as well, and does more for each byte. A second thread resolves names
 * (redis_dns.c).
 *
 * Connections: for each node one for questions, one for loads and one for stores (lanes), each made when it is first
 * needed; the one for questions is kept open. So a lookup's EXISTS never waits for megabytes of our own.
 *
 * Bytes: own non-blocking sockets and hiredis' reader, not hiredis' connections (sync or async): those copy each value
 * into a string of their own, both ways. Here SET sends header and payload by sendmsg() from the slot of the pool, GET
 * is read by readv() into it, and checksums are taken in slices, so that one large object does not keep the others
 * waiting.
 *
 * Clocks: an operation that was sent ends when neither it nor its connection makes progress for its timeout, whatever
 * the server does (redis_expire.c). A server that shows no life for l2_timeout_ms while it owes a reply is down: see
 * redis_node.c. An operation that waits for its turn on a connection has no deadline. No thread here can hang, so L2
 * need not look (scout__l2_moved()). A command that is repeated after a lost connection may have been done before;
 * every command here may be done twice.
 *
 * Bounds: max_ops jobs; SCOUT__REDIS_MAX_COMMANDS questions under way; on each link SCOUT__REDIS_WINDOW_BYTES (or one
 * value) asked for or sent and not answered; two buffers for each link.
 *
 * Rejected: pins (Redis has none: an object that was found may expire before it is loaded; the load then says so);
 * a removal that looks again first (WATCH, GET, MULTI, DEL, EXEC: five commands and their states against a rare loss of
 * one object); reading from the replicas of a cluster (they lag); MGET in place of EXISTS and GET (one reply that is as large as all
 * values); the threads of blocking.h, as files have them, which was written and passed all tests: 3,600 lines, since lanes, late replies,
 * back-off and parking what waits for a node that stands still stay; 240 MiB in 2 MiB objects loaded in 0.90 of the time, in 10 MiB
 * objects in 1.04, EXISTS of 1,000 keys in 0.95, objects of 4 KiB two to six times slower, with 10 threads and up to 16 connections of a
 * node where there are 2 and 3.
 */

#define OPERATIONS_AT_ONCE 256u
#define PASSWORD_BYTES 1024u

struct redis_options {
	uint32_t size;
	uint32_t ttl;
	uint32_t cluster, replica;
	const char *password_file, *user; /* NULL: not given */
	struct redis_tls_options tls;
	const char *server_name;
	void *owned;
};

enum {
	CLUSTER_AUTO = 0,
	CLUSTER_YES,
	CLUSTER_NO
};

static const char *const cluster_words[] = {"auto", "yes", "no", NULL};

#define FIELD(name) offsetof(struct redis_options, name)

#define PEM(key, of)                                                                                                   \
	{                                                                                                              \
		.name = #key, .type = SCOUT_OPTION_STRING, .offset = FIELD(tls.key), .min = 1, .max = 4095,            \
		.doc = "rediss:// only: PEM file of " of,                                                              \
	}

static const struct scout__option url_options[] = {
	SCOUT__OPTION(U32, ttl, .max = 315360000, .def_text = "none",
		      .doc = "Objects expire this many seconds after they were stored; 0: never"),
	SCOUT__OPTION(WORD, cluster, .max = CLUSTER_NO, .words = cluster_words,
		      .doc = "Whether it is a Redis Cluster; auto: ask"),
	SCOUT__OPTION(BOOL, replica, .max = 1,
		      .doc = "A single server may be a replica, which is read, and to which no write comes"),
	SCOUT__OPTION(STRING, password_file, .min = 1, .max = 4095,
		      .doc = "File whose one line is the password; only its owner may read it"),
	SCOUT__OPTION(STRING, user, .min = 1, .max = PASSWORD_BYTES,
		      .doc = "User of the password in that file; without it, the default user"),
	PEM(ca_file, "the authorities whose certificates are accepted; without it, the system's"),
	PEM(cert_file, "our own certificate, and of those that lead to the authority"),
	PEM(key_file, "the key of cert_file; only its owner may read it"),
	SCOUT__OPTION(
		STRING, server_name, .min = 1, .max = 4095,
		.doc = "rediss:// only: name that the certificate of each node must have; without it, the host of the node"),
};

static const struct scout__option_table url_table =
	SCOUT__OPTION_TABLE(redis_options, url_options, .env_prefix = NULL); /* in a URL */

/* ---- the password ---- */

static void
free_password(struct redis *r)
{
	if (r->password)
		explicit_bzero(r->password, strlen(r->password));
	free(r->password);
}

static int
copy_text(const char *text, char **ret_copy)
{
	*ret_copy = text ? strdup(text) : NULL;
	return text && !*ret_copy ? SCOUT_ERR_NOMEM : 0;
}

/* The password in the open file @fd, which is at @path: one line. */
static int
read_password(int fd, const char *path, char **ret_password, char *err, size_t err_len)
{
	char line[PASSWORD_BYTES + 2];
	ssize_t len;
	int rc;

	len = read(fd, line, sizeof(line) - 1);
	line[len > 0 ? len : 0] = '\0';
	if (len > 0 && line[len - 1] == '\n')
		line[--len] = '\0';
	if (len <= 0 || len > (ssize_t)PASSWORD_BYTES || strlen(line) != (size_t)len || strchr(line, '\n'))
		rc = scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				 "password_file %s: must be one line of 1 to %u bytes, the password", path,
				 PASSWORD_BYTES);
	else if ((rc = copy_text(line, ret_password)) != 0)
		rc = scout__fail(err, err_len, rc, "out of memory");
	explicit_bzero(line, sizeof(line));
	return rc;
}

static int
open_password(const char *path, char **ret_password, char *err, size_t err_len)
{
	int fd = scout__secret_open("password_file", path, SCOUT_ERR_CONFIG_RANGE, err, err_len), rc;

	if (fd < 0)
		return fd;
	rc = read_password(fd, path, ret_password, err, err_len);
	(void)close(fd); /* read only: nothing is lost */
	return rc;
}

/* A login was refused: the file may have another password by now. */
static void
read_password_again(struct redis *r) SCOUT_ON_REDIS
{
	char *password = NULL, err[512];

	r->was_refused = false;
	if (!r->password_file)
		return;
	if (open_password(r->password_file, &password, err, sizeof(err)) != 0) {
		scout__log_limited(r->log, &r->refused_limit, r->now_us, 60000000, SCOUT_LOG_ERROR, "%s: %s", r->shown,
				   err);
		return;
	}
	free_password(r);
	r->password = password;
}

/* ---- the thread ---- */

static void
take_operations(struct redis *r) SCOUT_ON_REDIS
{
	struct scout__l2_op *op;

	/* A producer that keeps up with us must not keep us from the sockets. */
	for (uint32_t i = 0; i < OPERATIONS_AT_ONCE && (op = scout__l2_queue_try(&r->queue)); i++)
		scout__redis_job_begin(r, op);
}

static void
take_addresses(struct redis *r) SCOUT_ON_REDIS
{
	struct scout__redis_addresses addresses;
	uint64_t id;

	while (scout__redis_dns_take(r->dns, &id, &addresses)) {
		for (uint32_t i = 0; i < r->n_nodes; i++) {
			struct redis_node *node = r->nodes[i];

			if (!node || node->id != id)
				continue;
			node->resolving = false;
			node->addresses = addresses;
			scout__redis_node_resolved(r, node);
		}
	}
}

/* Do everything that is due. Returns how long to sleep at most. */
static int
work(struct redis *r) SCOUT_ON_REDIS
{
	uint64_t next_us;

	r->urgent = false;
	if (r->was_refused)
		read_password_again(r);
	take_operations(r);
	take_addresses(r);
	scout__redis_jobs_hash(r);
	scout__redis_jobs_issue(r);
	scout__redis_jobs_expire(r, false);
	next_us = scout__min(scout__redis_nodes_tick(r),
			     scout__min(scout__redis_route_tick(r), scout__redis_slots_tick(r)));
	/* A reply is owed from the moment of sending, not from the start of this turn. */
	r->now_us = scout__now_us();
	scout__redis_nodes_flush(r);
	/* A failure may have left new work for the calls above. */
	if (r->urgent || r->hashing.head)
		return 0;
	next_us = scout__min(next_us, r->earliest_us);
	if (next_us <= r->now_us)
		return 0;
	return next_us - r->now_us > 60000000 ? 60000 : (int)((next_us - r->now_us + 999) / 1000);
}

static void
take_event(struct redis *r, struct redis_link *link, uint32_t events) SCOUT_ON_REDIS
{
	struct redis_trouble trouble;

	if (link->fd < 0)
		return; /* closed earlier in this turn */
	if (link->state == REDIS_CONNECTING || link->state == REDIS_HANDSHAKE) {
		trouble = link->state == REDIS_CONNECTING ? scout__redis_link_connected(r, link)
							  : scout__redis_link_shake(r, link);
		if (trouble.text)
			scout__redis_node_lost(r, link, trouble);
		return;
	}
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		scout__redis_reply(r, link);
	if (events & EPOLLOUT)
		scout__redis_link_touch(r, link);
}

static void
wait_for_events(struct redis *r, int timeout_ms) SCOUT_ON_REDIS
{
	struct epoll_event events[64];
	int n;

	if (!scout__l2_queue_sleep(&r->queue))
		timeout_ms = 0;
	n = epoll_wait(r->epoll_fd, events, 64, timeout_ms);
	scout__l2_queue_woke(&r->queue);
	r->now_us = scout__now_us();
	for (int i = 0; i < n; i++)
		if (events[i].data.ptr) /* NULL: the queue's descriptor */
			take_event(r, events[i].data.ptr, events[i].events);
}

static void *
run(void *arg)
{
	struct redis *r = arg;

	scout__enter_redis();
	while (!scout__l2_queue_is_closed(&r->queue))
		wait_for_events(r, work(r));
	r->now_us = scout__now_us();
	for (uint32_t i = 0; i <= r->max_ops / OPERATIONS_AT_ONCE; i++)
		take_operations(r);
	/* No socket may be in the middle of a value when its operation ends. */
	for (uint32_t i = 0; i < r->n_nodes; i++)
		for (int lane = 0; r->nodes[i] && lane < REDIS_LANES; lane++)
			scout__redis_link_close(r, &r->nodes[i]->links[lane]);
	scout__redis_jobs_expire(r, true);
	return NULL;
}

/* ---- opening ---- */

static void
free_state(struct redis *r)
{
	struct redis_command *command;

	scout__enter_redis(); /* the thread has ended, or was never started */
	for (uint32_t i = 0; i < r->n_nodes; i++)
		if (r->nodes[i])
			scout__redis_node_free(r, r->nodes[i]);
	scout__redis_dns_free(r->dns);
	while ((command = r->free_commands)) {
		r->free_commands = command->next;
		free(command);
	}
	if (r->epoll_fd >= 0)
		(void)close(r->epoll_fd);
	(void)XXH3_freeState(r->sum); /* always XXH_OK */
	free(r->jobs);
	free(r->slots);
	free(r->shown);
	free(r->user);
	free(r->tls_name);
	free(r->password_file);
	free_password(r);
	if (r->tls)
		r->tls->close(r->tls_ctx);
	scout__l2_queue_fini(&r->queue);
	free(r);
}

static int
init_jobs(struct redis *r)
{
	r->jobs = calloc(r->max_ops, sizeof(*r->jobs));
	r->slots = malloc(SCOUT__REDIS_SLOTS * sizeof(*r->slots));
	r->sum = XXH3_createState();
	if (!r->jobs || !r->slots || !r->sum)
		return SCOUT_ERR_NOMEM;
	memset(r->slots, 0xff, SCOUT__REDIS_SLOTS * sizeof(*r->slots));
	scout__list_init(&r->live);
	for (uint32_t i = r->max_ops; i-- > 0;) {
		r->jobs[i].next = r->free_jobs;
		r->free_jobs = &r->jobs[i];
	}
	for (int lane = 0; lane < REDIS_LANES; lane++)
		r->waiting[lane].tail = &r->waiting[lane].head;
	r->hashing.tail = &r->hashing.head;
	scout__redis_queue_init(&r->delayed);
	return 0;
}

/* Make what is needed before a server is asked. */
static int
init_state(struct redis *r, const struct scout__l2_url *url, const struct redis_options *options)
{
	struct epoll_event event = {.events = EPOLLIN};
	int rc = init_jobs(r);

	scout__enter_redis(); /* no thread yet */
	if (rc == 0)
		rc = copy_text(options->password_file ? options->user : url->user, &r->user);
	if (rc == 0 && !options->password_file)
		rc = copy_text(url->password, &r->password);
	if (rc == 0)
		rc = copy_text(url->shown, &r->shown);
	if (rc == 0)
		rc = copy_text(options->server_name, &r->tls_name);
	if (rc == 0)
		rc = copy_text(options->password_file, &r->password_file);
	if (rc == 0)
		rc = scout__redis_dns_new(r->queue.bell.fd, &r->dns);
	if (rc != 0)
		return rc;
	for (uint32_t i = 0; i < url->n_hosts; i++) {
		uint16_t port = url->hosts[i].port > 0 ? url->hosts[i].port : SCOUT__REDIS_PORT;
		struct redis_node *node = scout__redis_node_get(r, url->hosts[i].name, port);

		if (!node)
			return SCOUT_ERR_NOMEM;
		node->seed = true;
	}
	r->n_seeds = r->n_nodes; /* the same host twice counts once */
	r->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (r->epoll_fd < 0 || epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, r->queue.bell.fd, &event) != 0)
		return SCOUT_ERR_SYSTEM;
	if (r->may_be_cluster)
		scout__redis_refresh(r);
	else
		scout__redis_single(r);
	return 0;
}

static bool
is_tls(const struct scout__l2_url *url)
{
	return strcmp(url->scheme, "rediss") == 0;
}

/* The caller ends *ret_options with scout__options_fini(). */
static int
read_url(const struct scout__l2_url *url, struct redis_options *ret_options, char *err, size_t err_len)
{
	struct redis_options options = {.ttl = 0};
	int rc = scout__l2_url_need_hosts(url, err, err_len);

	if (rc != 0)
		return rc;
	rc = scout__l2_url_options(url, &url_table, &options, err, err_len);
	if (rc != 0)
		return rc;
	if (options.cluster == CLUSTER_NO && url->n_hosts > 1)
		rc = scout__fail(
			err, err_len, SCOUT_ERR_CONFIG_RANGE,
			"%u hosts with cluster=no: a single server is one host; several are nodes of one cluster",
			url->n_hosts);
	else if (options.password_file && url->password)
		rc = scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				 "a password and password_file: leave one of them out");
	else if (options.user && !options.password_file)
		rc = scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				 "user has no password: give password_file, or user:password@ before the host");
	else if (!is_tls(url) &&
		 (options.tls.ca_file || options.tls.cert_file || options.tls.key_file || options.server_name))
		rc = scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				 "ca_file, cert_file, key_file and server_name are for rediss://, which is TLS");
	else if (!options.tls.cert_file != !options.tls.key_file)
		rc = scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				 "cert_file and key_file: give both of them, or none");
	if (rc != 0)
		scout__options_fini(&url_table, &options);
	else
		*ret_options = options;
	return rc;
}

static int
redis_check(const struct scout__l2_url *url, char *err, size_t err_len)
{
	struct redis_options options;
	int rc = read_url(url, &options, err, err_len);

	if (rc == 0)
		scout__options_fini(&url_table, &options);
	return rc;
}

static int
open_tls(struct redis *r, const struct scout__l2_url *url, const struct redis_options *options, char *err,
	 size_t err_len)
{
#ifdef HAVE_LIBSSL
	int rc = is_tls(url) ? scout__redis_tls.open(&options->tls, &r->tls_ctx, err, err_len) : 0;

	if (rc == 0 && is_tls(url))
		r->tls = &scout__redis_tls;
	return rc;
#else
	(void)r, (void)url, (void)options, (void)err, (void)err_len; /* no adapter has that scheme */
	return 0;
#endif
}

static int
open_with(const struct scout__l2_open *args, const struct redis_options *options, void **ret_adapter, char *err,
	  size_t err_len)
{
	struct redis *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return scout__fail_no_memory(err, err_len);
	r->port = args->port;
	r->log = args->log;
	r->max_ops = args->max_ops;
	r->timeout_us = (uint64_t)args->timeout_ms * 1000;
	r->write_timeout_us = (uint64_t)args->write_timeout_ms * 1000;
	r->ttl_ms = (uint64_t)options->ttl * 1000;
	r->may_be_cluster = options->cluster != CLUSTER_NO;
	r->must_be_cluster = options->cluster == CLUSTER_YES;
	r->may_be_replica = options->replica;
	r->epoll_fd = -1;
	r->earliest_us = UINT64_MAX;
	r->now_us = scout__now_us();
	r->random = scout__now_ns() | 1;
	rc = options->password_file ? open_password(options->password_file, &r->password, err, err_len) : 0;
	if (rc != 0)
		goto err_free;
	rc = open_tls(r, args->url, options, err, err_len);
	if (rc != 0)
		goto err_free_password;
	rc = scout__l2_queue_init(&r->queue, args->max_ops, true);
	if (rc != 0) {
		(void)scout__fail(err, err_len, rc, "the queue to the adapter's thread cannot be made");
		goto err_close_tls;
	}
	rc = init_state(r, args->url, options);
	if (rc == 0 && scout__thread_start(&r->thread, "scout-l2-redis", run, r) != 0)
		rc = SCOUT_ERR_SYSTEM;
	if (rc != 0) {
		free_state(r);
		return scout__fail(err, err_len, rc,
				   rc == SCOUT_ERR_NOMEM ? "out of memory" : "the adapter's thread cannot be started");
	}
	*ret_adapter = r;
	return 0;

err_close_tls:
	if (r->tls)
		r->tls->close(r->tls_ctx);
err_free_password:
	free_password(r);
err_free:
	free(r);
	return rc;
}

static int
redis_open(const struct scout__l2_open *args, void **ret_adapter, char *err, size_t err_len)
{
	struct redis_options options = {.ttl = 0};
	int rc = read_url(args->url, &options, err, err_len);

	if (rc != 0)
		return rc;
	rc = open_with(args, &options, ret_adapter, err, err_len);
	scout__options_fini(&url_table, &options);
	return rc;
}

/* ---- the rest of the vtable ---- */

static bool
redis_submit(void *adapter, struct scout__l2_op *op)
{
	struct redis *r = adapter;

	scout__enter_loop(); /* the vtable's type cannot say so */
	return scout__l2_queue_push(&r->queue, op);
}

static bool
redis_stop(void *adapter, uint64_t deadline_us)
{
	struct redis *r = adapter;
	uint64_t now_us = scout__now_us(), left_us = deadline_us > now_us ? deadline_us - now_us : 0;
	struct timespec until;

	if (r->stopped)
		return true;
	scout__l2_queue_close(&r->queue);
	/* By the wall clock: ThreadSanitizer does not know the join that takes another clock. */
	until = scout__timespec(scout__wall_us() + left_us);
	r->stopped = pthread_timedjoin_np(r->thread, NULL, &until) == 0;
	return r->stopped;
}

static void
redis_close(void *adapter)
{
	free_state(adapter);
}

static uint64_t
read_counter(const atomic_uint_fast64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void
redis_gauges(void *adapter, struct scout__l2_gauges *ret_gauges)
{
	const struct redis_counters *c = scout__redis_counters(adapter);

	*ret_gauges = (struct scout__l2_gauges){
		.objects = UINT64_MAX,
		.bytes = UINT64_MAX,
		.max_bytes = UINT64_MAX,
		.reconnects = read_counter(&c->reconnects),
		.moved = read_counter(&c->moved),
		.asked = read_counter(&c->ask),
		.login_refused = read_counter(&c->auth_refused),
		.ready = atomic_load_explicit(&c->ready, memory_order_relaxed),
	};
}

const struct redis_counters *
scout__redis_counters(const void *adapter)
{
	const struct redis *r = adapter;

	return &r->counters;
}

const struct scout__l2_adapter scout__l2_redis = {
	.scheme = "redis",
	.keeps_records = true,
	.check = redis_check,
	.open = redis_open,
	.submit = redis_submit,
	.stop = redis_stop,
	.close = redis_close,
	.gauges = redis_gauges,
};

#ifdef HAVE_LIBSSL
const struct scout__l2_adapter scout__l2_rediss = {
	.scheme = "rediss",
	.keeps_records = true,
	.check = redis_check,
	.open = redis_open,
	.submit = redis_submit,
	.stop = redis_stop,
	.close = redis_close,
	.gauges = redis_gauges,
};
#endif
