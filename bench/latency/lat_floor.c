/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: what the transport alone takes. A DEALER on the main thread and a ROUTER on a thread of its own send each
 * other messages of the sizes that a lookup and its answer have, over ipc in a private folder, each with a context of
 * its own - as client and embedded server have - and neither end looks into them. It is paced like `sync`: `inflight`
 * round trips in each step, then rest until the next one.
 *
 * It stays on this machine where the server of the other modes is elsewhere (--endpoint tcp://...), but on their kind
 * of transport: TCP by the loopback interface. Where they have keys it has some, made for the run: encrypting is a
 * part of what the transport takes.
 *
 * Invariant: the echo thread ends when it receives a message of one byte, or when its receive times out after `stop`
 * was set, so closing is bounded also if the message is lost.
 *
 * Threads: main owns the DEALER, the echo thread the ROUTER; `stop` is the only thing they share.
 */
#include "lat.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include "say.h"
#include "thread.h"

#define PATH_BYTES 80
#define IDENTITY_BYTES 256
#define ECHO_TIMEOUT_MS 200

struct lat_floor {
	struct lat *lat;
	void *near_ctx;
	void *near; /* DEALER */
	void *far_ctx;
	void *far; /* ROUTER; the echo thread's while it runs */
	uint8_t *question;
	uint8_t *question_in; /* echo thread */
	uint8_t *answer;      /* echo thread */
	size_t question_len, answer_len;
	pthread_t echo;
	bool has_echo;
	atomic_bool stop;
	char folder[PATH_BYTES];
	char endpoint[PATH_BYTES + 32];
};

const char *
lat_floor_transport(const struct lat_options *opt)
{
	if (opt->endpoint && strncmp(opt->endpoint, "tcp://", 6) == 0)
		return "tcp";
	return "ipc";
}

static void *
echo_main(void *arg)
{
	struct lat_floor *floor = arg;
	char identity[IDENTITY_BYTES];
	int id_len, len;

	while (!atomic_load_explicit(&floor->stop, memory_order_relaxed)) {
		id_len = zmq_recv(floor->far, identity, sizeof(identity), 0);
		if (id_len < 0)
			continue; /* timed out: look at stop */
		len = zmq_recv(floor->far, floor->question_in, floor->question_len, 0);
		if (len == 1)
			break;
		if (len < 0 || id_len > IDENTITY_BYTES)
			continue;
		if (zmq_send(floor->far, identity, (size_t)id_len, ZMQ_SNDMORE) >= 0)
			(void)zmq_send(floor->far, floor->answer, floor->answer_len, 0); /* its peer times out */
	}
	return NULL;
}

static int
make_folder(struct lat_floor *floor)
{
	const char *tmp = secure_getenv("TMPDIR");
	char text[SAY_ERROR];
	int n = snprintf(floor->folder, sizeof(floor->folder), "%s/kvscout-floor-XXXXXX", tmp && tmp[0] ? tmp : "/tmp");

	/* A long TMPDIR would not leave room for a socket's name. */
	if (n < 0 || (size_t)n >= sizeof(floor->folder))
		(void)snprintf(floor->folder, sizeof(floor->folder), "/tmp/kvscout-floor-XXXXXX");
	if (!mkdtemp(floor->folder)) {
		(void)lat_fail(floor->lat, "floor: cannot make the folder %s: %s", floor->folder,
			       say_error(text, errno));
		floor->folder[0] = '\0';
		return -1;
	}
	(void)snprintf(floor->endpoint, sizeof(floor->endpoint), "ipc://%s/floor.sock", floor->folder);
	return 0;
}

static void *
make_socket(void *ctx, int type, int timeout_ms)
{
	void *socket = ctx ? zmq_socket(ctx, type) : NULL;
	const int zero = 0;

	if (!socket)
		return NULL;
	if (zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof(zero)) ||
	    zmq_setsockopt(socket, ZMQ_SNDTIMEO, &timeout_ms, sizeof(timeout_ms)) ||
	    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof(timeout_ms))) {
		(void)zmq_close(socket);
		return NULL;
	}
	return socket;
}

static void
floor_close(void *self)
{
	struct lat_floor *floor = self;

	if (!floor)
		return;
	atomic_store(&floor->stop, true);
	if (floor->near)
		(void)zmq_send(floor->near, "", 1, ZMQ_DONTWAIT); /* else the echo thread times out */
	if (floor->has_echo)
		(void)pthread_join(floor->echo, NULL);
	if (floor->near)
		(void)zmq_close(floor->near);
	if (floor->far)
		(void)zmq_close(floor->far);
	if (floor->near_ctx)
		(void)zmq_ctx_term(floor->near_ctx);
	if (floor->far_ctx)
		(void)zmq_ctx_term(floor->far_ctx);
	if (floor->folder[0]) {
		(void)unlink(floor->endpoint + sizeof("ipc://") - 1); /* libzmq has, as a rule */
		(void)rmdir(floor->folder);
	}
	free(floor->question);
	free(floor->question_in);
	free(floor->answer);
	free(floor);
}

/* Both ends. The echo needs no list of allowed keys: only this process knows its folder. */
static int
use_keys(struct lat_floor *floor)
{
	struct scout__curve_keys keys;
	char echo_secret[sizeof(keys.secret)];
	const int one = 1;
	int rc = 0;

	if (zmq_curve_keypair(keys.server, echo_secret) || zmq_curve_keypair(keys.public, keys.secret) ||
	    zmq_setsockopt(floor->far, ZMQ_CURVE_SERVER, &one, sizeof(one)) ||
	    zmq_setsockopt(floor->far, ZMQ_CURVE_SECRETKEY, echo_secret, sizeof(echo_secret)) ||
	    !scout__curve_use(floor->near, &keys))
		rc = lat_fail(floor->lat, "floor: no keys (%s)", zmq_strerror(errno));
	explicit_bzero(&keys, sizeof(keys));
	explicit_bzero(echo_secret, sizeof(echo_secret));
	return rc;
}

static int
start_echo(struct lat_floor *floor)
{
	char text[SAY_ERROR];
	size_t len;
	int error;

	floor->far_ctx = zmq_ctx_new();
	floor->far = make_socket(floor->far_ctx, ZMQ_ROUTER, ECHO_TIMEOUT_MS);
	floor->near_ctx = zmq_ctx_new();
	floor->near = make_socket(floor->near_ctx, ZMQ_DEALER, (int)LAT_TIMEOUT_MS);
	if (!floor->far || !floor->near)
		return lat_fail(floor->lat, "floor: no socket (%s)", zmq_strerror(errno));
	if (floor->lat->opt->keys.secret_file && use_keys(floor))
		return -1;
	len = sizeof(floor->endpoint);
	/* The port of a tcp endpoint is chosen here. */
	if (zmq_bind(floor->far, floor->endpoint) ||
	    zmq_getsockopt(floor->far, ZMQ_LAST_ENDPOINT, floor->endpoint, &len) ||
	    zmq_connect(floor->near, floor->endpoint))
		return lat_fail(floor->lat, "floor: %s (%s)", floor->endpoint, zmq_strerror(errno));
	error = scout__thread_start(&floor->echo, "lat-floor", echo_main, floor);
	if (error)
		return lat_fail(floor->lat, "floor: no thread: %s", say_error(text, error));
	floor->has_echo = true;
	return 0;
}

static int
floor_open(struct lat *lat, void **ret_self)
{
	struct lat_floor *floor = calloc(1, sizeof(*floor));

	if (!floor)
		return lat_fail(lat, "out of memory");
	floor->lat = lat;
	floor->question_len = lat_lookup_bytes(lat->opt);
	floor->answer_len = lat_answer_bytes();
	floor->question = calloc(1, floor->question_len);
	floor->question_in = calloc(1, floor->question_len);
	floor->answer = calloc(1, floor->answer_len);
	if (!floor->question || !floor->question_in || !floor->answer) {
		(void)lat_fail(lat, "out of memory");
		goto err_close;
	}
	if (strcmp(lat_floor_transport(lat->opt), "tcp") == 0)
		(void)snprintf(floor->endpoint, sizeof(floor->endpoint), "tcp://127.0.0.1:*");
	else if (make_folder(floor))
		goto err_close;
	if (start_echo(floor))
		goto err_close;
	*ret_self = floor;
	return 0;

err_close:
	floor_close(floor);
	return -1;
}

/* Returns 0, 1 when interrupted, or -1. */
static int
ping(struct lat_floor *floor, uint8_t *answer, size_t room)
{
	int len = zmq_send(floor->near, floor->question, floor->question_len, 0);

	if (len >= 0)
		len = zmq_recv(floor->near, answer, room, 0);
	if (len < 0)
		return errno == EINTR ? 1 : lat_fail(floor->lat, "floor: no echo (%s)", zmq_strerror(errno));
	if ((size_t)len != floor->answer_len)
		return lat_fail(floor->lat, "floor: an echo of %d bytes", len);
	return 0;
}

static int
floor_run(void *self, struct lat_result *result, uint64_t requests)
{
	struct lat_floor *floor = self;
	const uint64_t inflight = floor->lat->opt->inflight;
	uint8_t answer[LAT_TEXT_BYTES];
	uint64_t begin_ns, start_ns, end_ns, intended_ns, asked;
	struct lat_arrivals arrivals;
	struct lat_pace pace;
	int rc;

	lat_pace_begin(&pace, floor->lat);
	lat_arrivals_begin(&arrivals, floor->lat, requests);
	while (arrivals.left && !lat_is_stopped()) {
		begin_ns = scout__now_ns();
		for (asked = 0; asked < inflight && lat_arrivals_take(&arrivals, begin_ns, &intended_ns); asked++) {
			start_ns = scout__now_ns();
			rc = ping(floor, answer, sizeof(answer));
			end_ns = scout__now_ns();
			if (rc)
				return rc < 0 ? -1 : 0;
			scout__hist_add(&result->metrics[LAT_RTT], end_ns - start_ns);
			result->requests++;
			floor->lat->done++;
		}
		result->steps += asked > 0;
		lat_pace_wait(&pace);
	}
	return 0;
}

const struct lat_runner lat_floor_runner = {
	.open = floor_open,
	.run = floor_run,
	.close = floor_close,
};
