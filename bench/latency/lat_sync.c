/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: what engines did before. A bare DEALER on the scheduler thread sends one LOOKUP and blocks for its answer,
 * for every waiting request of a step in turn. It speaks the protocol by the libraries' codec but shares nothing else
 * with the client: no courier, no ring.
 *
 * A round trip is encoding, sending, waiting, and decoding. FINISH of all of a step's lookups goes out after its last
 * round trip, in frames of its own, and is waited for outside of every time that is reported: an engine may do
 * without.
 *
 * The connection has no lease; a HELLO with a long heartbeat keeps the server from forgetting it while other modes run.
 *
 * Threads: main only (and libzmq's). Rejected: the client with one lookup at a time, which is `polled`.
 */
#include "lat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <zmq.h>

#include "inproc.h"
#include "msg.h"

#define HEARTBEAT_MS 60000u
#define ANSWER_ROOM 65536u
#define FINISH_BATCH 256u
#define LOOKUP_FIXED_BYTES 64u /* more than the fields of a LOOKUP take */

struct lat_sync {
	struct lat *lat;
	void *ctx;
	struct scout__inproc *inproc; /* whose the context is; NULL: our own */
	void *socket;
	uint8_t *out; /* frame to send */
	uint8_t *in;
	uint64_t *tickets; /* of this step */
	size_t room;       /* in `out` */
	uint64_t epoch;
	uint64_t next_corr;
	uint64_t next_request;
};

/* Not an error: the user pressed Ctrl-C. */
#define INTERRUPTED 1

static size_t
frame_room(const struct lat_options *opt)
{
	size_t lookup = SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + LOOKUP_FIXED_BYTES +
			(size_t)opt->chunks * LAT_HASH_BYTES;
	size_t finish = SCOUT_FRAME_HEADER_BYTES + FINISH_BATCH * (SCOUT_OP_HEADER_BYTES + sizeof(uint64_t));

	return lookup > finish ? lookup : finish;
}

static void
put_lookup(struct scout__writer *w, uint64_t corr, uint64_t ticket, const struct lat_options *opt,
	   const uint8_t *hashes)
{
	struct scout__lookup_msg msg = {
		.ticket = ticket, .n = (uint32_t)opt->chunks, .tenant = {"", 0}, .hashes = hashes};
	size_t at;

	scout__frame_begin(w);
	at = scout__op_begin(w, SCOUT_OP_LOOKUP, SCOUT_KIND_REQUEST, 0, corr, lat_timeout_ms(opt) * 1000);
	scout__put_lookup(w, &msg, LAT_HASH_BYTES);
	scout__op_end(w, at);
}

size_t
lat_lookup_bytes(const struct lat_options *opt)
{
	/* Of the LOOKUP's fields, see protocol.h: u64, 5 x u32, 2 x u16, and an empty str. */
	return SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + 8 + 5 * 4 + 2 * 2 + 2 +
	       (size_t)opt->chunks * LAT_HASH_BYTES;
}

size_t
lat_answer_bytes(void)
{
	return SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + 4 * 4;
}

static int
send_frame(struct lat_sync *sync, struct scout__writer *w, uint32_t op_count)
{
	int rc;

	scout__frame_end(w, op_count, sync->epoch, scout__now_us());
	if (w->bad)
		return lat_fail(sync->lat, "sync: a frame of %" PRIu64 " chunks is too large", sync->lat->opt->chunks);
	rc = zmq_send(sync->socket, w->buf, w->len, 0);
	if (rc >= 0)
		return 0;
	if (errno == EINTR)
		return INTERRUPTED;
	if (errno == EAGAIN)
		return lat_fail(sync->lat, "sync: no connection to %s for %" PRIu32 " ms", sync->lat->endpoint,
				lat_timeout_ms(sync->lat->opt));
	return lat_fail(sync->lat, "sync: cannot send to %s: %s", sync->lat->endpoint, zmq_strerror(errno));
}

/* The next frame of answers. Returns 0, INTERRUPTED or -1. */
static int
receive_frame(struct lat_sync *sync, struct scout__frame *ret_frame, struct scout__reader *ret_ops)
{
	int len = zmq_recv(sync->socket, sync->in, ANSWER_ROOM, 0);
	int status;

	if (len < 0 && errno == EINTR)
		return INTERRUPTED;
	if (len < 0 && errno == EAGAIN)
		return lat_fail(sync->lat, "sync: %s did not answer within %" PRIu32 " ms", sync->lat->endpoint,
				lat_timeout_ms(sync->lat->opt));
	if (len < 0)
		return lat_fail(sync->lat, "sync: cannot receive from %s: %s", sync->lat->endpoint,
				zmq_strerror(errno));
	status = (size_t)len > ANSWER_ROOM ? SCOUT_WIRE_TOO_LARGE
					   : scout__frame_check(sync->in, (size_t)len, false, ret_frame);
	if (status != SCOUT_WIRE_OK)
		return lat_fail(sync->lat, "sync: a frame that cannot be read");
	*ret_ops = scout__frame_ops(sync->in, (size_t)len);
	return 0;
}

/* Wait for the answer to @corr; others before it are dropped. */
static int
wait_answer(struct lat_sync *sync, uint64_t corr, struct scout__frame *ret_frame, struct scout__op *ret_op)
{
	struct scout__reader ops;
	struct scout__str text = {"", 0};
	int rc;

	for (;;) {
		rc = receive_frame(sync, ret_frame, &ops);
		if (rc)
			return rc;
		while (scout__frame_next(&ops, ret_op)) {
			if (ret_op->corr != corr && ret_op->opcode != SCOUT_OP_ERROR)
				continue;
			if (ret_op->status == SCOUT_WIRE_OK)
				return 0;
			(void)scout__get_text(ret_op, &text);
			return lat_fail(sync->lat, "sync: %s refused: %s: %.*s", scout__op_name(ret_op->opcode),
					scout__wire_name(ret_op->status), (int)text.len, text.p);
		}
	}
}

static uint64_t
random_word(void)
{
	uint64_t word = 0;

	/* Up to 256 bytes are never cut short once the pool is initialised. */
	while (!word && getrandom(&word, sizeof(word), 0) != sizeof(word))
		word = 0;
	return word;
}

static int
say_hello(struct lat_sync *sync)
{
	const char *name = sync->lat->opt->name_space;
	struct scout__writer w = {.buf = sync->out, .cap = sync->room};
	struct scout__hello hello = {
		.token = random_word(),
		.role = SCOUT_ROLE_CLIENT,
		.hash_bytes = LAT_HASH_BYTES,
		.chunk_tokens = LAT_CHUNK_TOKENS,
		.rank_count = 1,
		.kv_ranks = 1,
		.readers = 1,
		.heartbeat_ms = HEARTBEAT_MS,
		.name_space = {name, (uint16_t)strlen(name)},
	};
	uint64_t corr = sync->next_corr++;
	struct scout__frame frame;
	struct scout__op op;
	size_t at;
	int rc;

	scout__frame_begin(&w);
	at = scout__op_begin(&w, SCOUT_OP_HELLO, SCOUT_KIND_REQUEST, 0, corr, 0);
	scout__put_hello(&w, &hello);
	scout__op_end(&w, at);
	rc = send_frame(sync, &w, 1);
	if (!rc)
		rc = wait_answer(sync, corr, &frame, &op);
	if (!rc)
		sync->epoch = frame.epoch;
	return rc;
}

static int
open_socket(struct lat_sync *sync)
{
	int timeout_ms = (int)lat_timeout_ms(sync->lat->opt);
	const int zero = 0, one = 1;
	char address[SCOUT__INPROC_ADDRESS_BYTES];
	const char *endpoint = sync->lat->endpoint;

	if (scout__inproc_is(endpoint)) {
		sync->inproc = scout__inproc_join(endpoint);
		if (!sync->inproc)
			return lat_fail(sync->lat, "sync: no server at %s", endpoint);
		sync->ctx = scout__inproc_zmq(sync->inproc);
		scout__inproc_address(sync->inproc, address, sizeof(address));
		endpoint = address;
	} else {
		sync->ctx = zmq_ctx_new();
	}
	sync->socket = sync->ctx ? zmq_socket(sync->ctx, ZMQ_DEALER) : NULL;
	if (!sync->socket)
		return lat_fail(sync->lat, "sync: no socket (%s)", zmq_strerror(errno));
	if (sync->lat->curve && !scout__curve_use(sync->socket, sync->lat->curve))
		return lat_fail(sync->lat, "sync: the keys are refused (%s)", zmq_strerror(errno));
	if (zmq_setsockopt(sync->socket, ZMQ_LINGER, &zero, sizeof(zero)) ||
	    zmq_setsockopt(sync->socket, ZMQ_IMMEDIATE, &one, sizeof(one)) ||
	    zmq_setsockopt(sync->socket, ZMQ_SNDTIMEO, &timeout_ms, sizeof(timeout_ms)) ||
	    zmq_setsockopt(sync->socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof(timeout_ms)) ||
	    zmq_connect(sync->socket, endpoint))
		return lat_fail(sync->lat, "sync: cannot connect to %s (%s)", sync->lat->endpoint, zmq_strerror(errno));
	return 0;
}

static void
sync_close(void *self)
{
	struct lat_sync *sync = self;

	if (!sync)
		return;
	if (sync->socket)
		(void)zmq_close(sync->socket);
	if (sync->inproc)
		sync->ctx = scout__inproc_leave(sync->inproc);
	if (sync->ctx)
		(void)zmq_ctx_term(sync->ctx);
	free(sync->out);
	free(sync->in);
	free(sync->tickets);
	free(sync);
}

static int
sync_open(struct lat *lat, void **ret_self)
{
	struct lat_sync *sync = calloc(1, sizeof(*sync));

	if (!sync)
		return lat_fail(lat, "out of memory");
	sync->lat = lat;
	sync->next_corr = 1;
	sync->room = frame_room(lat->opt);
	sync->out = malloc(sync->room);
	sync->in = malloc(ANSWER_ROOM);
	sync->tickets = calloc(lat->opt->inflight, sizeof(*sync->tickets));
	if (!sync->out || !sync->in || !sync->tickets) {
		(void)lat_fail(lat, "out of memory");
		goto err_close;
	}
	if (open_socket(sync) || say_hello(sync))
		goto err_close;
	*ret_self = sync;
	return 0;

err_close:
	sync_close(sync);
	return -1;
}

/* One blocking round trip. Returns 0, INTERRUPTED or -1. */
static int
round_trip(struct lat_sync *sync, uint64_t ticket, uint64_t prompt, struct scout__lookup_reply *ret_reply)
{
	const uint8_t *hashes = lat_keys_hashes(&sync->lat->keys, prompt);
	struct scout__writer w = {.buf = sync->out, .cap = sync->room};
	uint64_t corr = sync->next_corr++;
	const char *field = "";
	struct scout__frame frame;
	struct scout__op op;
	int rc;

	put_lookup(&w, corr, ticket, sync->lat->opt, hashes);
	rc = send_frame(sync, &w, 1);
	if (!rc)
		rc = wait_answer(sync, corr, &frame, &op);
	if (!rc && scout__get_lookup_reply(&op, ret_reply, &field) != SCOUT_WIRE_OK)
		rc = lat_fail(sync->lat, "sync: the answer's %s is wrong", field);
	return rc;
}

/* End @n sessions, and wait until it is done. */
static int
finish_tickets(struct lat_sync *sync, const uint64_t *tickets, uint64_t n)
{
	struct scout__writer w = {.buf = sync->out, .cap = sync->room};
	uint64_t last = sync->next_corr + n - 1;
	struct scout__reader ops;
	struct scout__frame frame;
	struct scout__op op;
	size_t at;
	int rc;

	scout__frame_begin(&w);
	for (uint64_t i = 0; i < n; i++) {
		at = scout__op_begin(&w, SCOUT_OP_FINISH, SCOUT_KIND_REQUEST, 0, sync->next_corr++, 0);
		scout__put_one_u64(&w, tickets[i]);
		scout__op_end(&w, at);
	}
	rc = send_frame(sync, &w, (uint32_t)n);
	/* Answers come in any order: each is waited for once, by number. */
	for (uint64_t left = n; !rc && left;) {
		rc = receive_frame(sync, &frame, &ops);
		while (!rc && scout__frame_next(&ops, &op)) {
			if (op.corr + n > last && op.corr <= last)
				left--;
		}
	}
	return rc;
}

/* One step: what has arrived, each asked and answered in turn; then all are ended. *ret_asked counts them. */
static int
sync_step(struct lat_sync *sync, struct lat_result *result, struct lat_arrivals *arrivals, uint64_t *ret_asked)
{
	struct scout__lookup_reply reply;
	const uint64_t inflight = sync->lat->opt->inflight, begin_ns = scout__now_ns();
	uint64_t start_ns, end_ns, stall_ns = 0, asked = 0, prompt, intended_ns;
	int rc = 0;

	for (; asked < inflight && lat_arrivals_take(arrivals, begin_ns, &intended_ns); asked++) {
		prompt = sync->next_request++ % sync->lat->keys.n_prompts;
		sync->tickets[asked] = random_word();
		start_ns = scout__now_ns();
		rc = round_trip(sync, sync->tickets[asked], prompt, &reply);
		end_ns = scout__now_ns();
		if (rc)
			break;
		stall_ns += end_ns - start_ns;
		scout__hist_add(&result->metrics[LAT_RTT], end_ns - start_ns);
		if (intended_ns)
			scout__hist_add(&result->metrics[LAT_SEEN], end_ns - intended_ns);
		lat_count_answer(sync->lat, result, prompt, reply.hit);
	}
	*ret_asked = asked;
	if (rc || !asked)
		return rc;
	scout__hist_add(&result->metrics[LAT_STALL], stall_ns);
	result->steps++;
	for (uint64_t at = 0; at < asked && !rc; at += FINISH_BATCH)
		rc = finish_tickets(sync, sync->tickets + at, asked - at < FINISH_BATCH ? asked - at : FINISH_BATCH);
	return rc;
}

static int
sync_run(void *self, struct lat_result *result, uint64_t requests)
{
	struct lat_sync *sync = self;
	struct lat_arrivals arrivals;
	struct lat_pace pace;
	uint64_t n;
	int rc = 0;

	lat_arrivals_begin(&arrivals, sync->lat, requests);
	lat_pace_begin(&pace, sync->lat);
	for (uint64_t done = 0; done < requests && !rc && !lat_is_stopped(); done += n) {
		rc = sync_step(sync, result, &arrivals, &n);
		lat_pace_wait(&pace);
	}
	return rc < 0 ? -1 : 0;
}

const struct lat_runner lat_sync_runner = {
	.open = sync_open,
	.run = sync_run,
	.close = sync_close,
};
