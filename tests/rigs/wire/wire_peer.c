/* SPDX-License-Identifier: Apache-2.0 */
#include "wire_peer.h"

#include <errno.h>
#include <signal.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "clock.h"
#include "thread.h"
#include "wire_peer_internal.h"

/*
 * DESIGN
 *
 * Blocking and plain. A frame is built in one buffer; replies are kept in the order of their arrival until somebody asks for
 * them, so a test can see which came first. Threads: one for each peer.
 */

#define OUT_BYTES (SCOUT_MAX_FRAME + 4096u)

void
wire_die(const char *what, const char *file, int line)
{
	(void)fprintf(stderr, "%s:%d: failed or too late: %s (errno %d)\n", file, line, what, errno);
	(void)fflush(stderr);
	abort();
}

void
wire_hash(uint8_t *hash, unsigned hash_bytes, uint64_t key)
{
	memset(hash, 0x5a, hash_bytes);
	for (unsigned i = 0; i < 8; i++)
		hash[i] = (uint8_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> (8 * i));
}

static void
open_with(struct wire_peer *p, const char *endpoint, int rcvhwm, const struct wire_keys *keys, const char *identity)
{
	sigset_t before;
	int zero = 0;
	int one = 1;

	memset(p, 0, sizeof(*p));
	p->lease_fd = -1;
	p->zctx = zmq_ctx_new();
	MUST(p->zctx);
	/* The first socket starts libzmq's threads, which block signals only once they run. */
	MUST(scout__block_signals(&before) == 0);
	p->dealer = zmq_socket(p->zctx, ZMQ_DEALER);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	MUST(p->dealer);
	MUST(zmq_setsockopt(p->dealer, ZMQ_LINGER, &zero, sizeof(zero)) == 0);
	MUST(zmq_setsockopt(p->dealer, ZMQ_SNDHWM, &zero, sizeof(zero)) == 0);
	MUST(zmq_setsockopt(p->dealer, ZMQ_RCVHWM, &rcvhwm, sizeof(rcvhwm)) == 0);
	MUST(zmq_setsockopt(p->dealer, ZMQ_IMMEDIATE, &one, sizeof(one)) == 0);
	if (keys)
		MUST(zmq_setsockopt(p->dealer, ZMQ_CURVE_SERVERKEY, keys->server, sizeof(keys->server)) == 0 &&
		     zmq_setsockopt(p->dealer, ZMQ_CURVE_PUBLICKEY, keys->public, sizeof(keys->public)) == 0 &&
		     zmq_setsockopt(p->dealer, ZMQ_CURVE_SECRETKEY, keys->secret, sizeof(keys->secret)) == 0);
	if (identity)
		MUST(zmq_setsockopt(p->dealer, ZMQ_ROUTING_ID, identity, strlen(identity)) == 0);
	MUST(zmq_connect(p->dealer, endpoint) == 0);
	p->out.buf = malloc(OUT_BYTES);
	p->out.cap = OUT_BYTES;
	MUST(p->out.buf);
	p->hello = (struct scout__hello){
		.role = SCOUT_ROLE_CLIENT,
		.hash_bytes = 16,
		.chunk_tokens = 16,
		.rank_count = 1,
		.kv_ranks = 1,
		.readers = 1,
		.name_space = {"test", 4},
	};
	MUST(getrandom(&p->hello.token, sizeof(p->hello.token), 0) == (ssize_t)sizeof(p->hello.token));
}

void
wire_open(struct wire_peer *p, const char *endpoint)
{
	open_with(p, endpoint, 1000, NULL, NULL);
}

void
wire_open_hwm(struct wire_peer *p, const char *endpoint, int rcvhwm)
{
	open_with(p, endpoint, rcvhwm, NULL, NULL);
}

void
wire_open_as(struct wire_peer *p, const char *endpoint, const struct wire_keys *keys, const char *identity)
{
	open_with(p, endpoint, 1000, keys, identity);
}

void
wire_close(struct wire_peer *p)
{
	scout__channel_close(&p->channel);
	wire_lease_close(p);
	for (uint32_t i = 0; i < p->n_segments; i++) {
		if (p->segments[i].map)
			(void)munmap(p->segments[i].map, p->segments[i].bytes);
		(void)close(p->segments[i].fd);
	}
	while (p->replies) {
		struct wire_reply *reply = p->replies;

		p->replies = reply->next;
		wire_reply_free(reply);
	}
	if (p->answer)
		wire_reply_free(p->answer);
	(void)zmq_close(p->dealer);
	(void)zmq_ctx_term(p->zctx);
	free(p->out.buf);
	memset(p, 0, sizeof(*p));
	p->lease_fd = -1;
}

struct scout__writer *
wire_begin(struct wire_peer *p, uint8_t opcode)
{
	if (p->out.len == 0)
		scout__frame_begin(&p->out);
	p->op_at = scout__op_begin(&p->out, opcode, SCOUT_KIND_REQUEST, 0, ++p->last_corr, p->budget_us);
	return &p->out;
}

uint64_t
wire_end(struct wire_peer *p)
{
	scout__op_end(&p->out, p->op_at);
	MUST(!p->out.bad);
	p->n_ops++;
	return p->last_corr;
}

void
wire_raw(struct wire_peer *p, const void *data, size_t len, bool more)
{
	int timeout_ms = wait_limit_ms();

	if (scout__channel_is_open(&p->channel)) {
		MUST(!more && scout__channel_send(&p->channel, data, len) == 0);
		return;
	}
	MUST(zmq_setsockopt(p->dealer, ZMQ_SNDTIMEO, &timeout_ms, sizeof(timeout_ms)) == 0);
	MUST(zmq_send(p->dealer, data, len, more ? ZMQ_SNDMORE : 0) == (int)len);
}

void
wire_flush(struct wire_peer *p)
{
	scout__frame_end(&p->out, p->n_ops, p->epoch, p->no_clock ? 0 : scout__now_us() + (uint64_t)p->sent_us_shift);
	MUST(!p->out.bad);
	wire_raw(p, p->out.buf, p->out.len, false);
	p->out.len = 0;
	p->n_ops = 0;
}

static void
keep_reply(struct wire_peer *p, const struct scout__op *op, uint64_t epoch)
{
	struct wire_reply *reply = calloc(1, sizeof(*reply));
	struct wire_reply **end = &p->replies;

	MUST(reply);
	reply->corr = op->corr;
	reply->opcode = op->opcode;
	reply->status = op->status;
	reply->length = op->length;
	reply->epoch = epoch;
	reply->order = ++p->n_replies;
	reply->body = malloc(op->length + 1u);
	MUST(reply->body);
	memcpy(reply->body, op->body, op->length);
	while (*end)
		end = &(*end)->next;
	*end = reply;
}

static void
keep_frame(struct wire_peer *p, const void *data, size_t len)
{
	struct scout__frame frame;
	struct scout__reader ops;
	struct scout__op op;

	MUST(scout__frame_check(data, len, false, &frame) == SCOUT_WIRE_OK);
	ops = scout__frame_ops(data, len);
	while (scout__frame_next(&ops, &op))
		keep_reply(p, &op, frame.epoch);
}

/* Until the other side rings, or @end_us. */
static bool
sleep_on_channel(struct wire_peer *p, uint64_t end_us)
{
	struct pollfd bell = {.fd = p->channel.bell_fd, .events = POLLIN};
	uint64_t now_us = scout__now_us();
	bool rang = true;

	if (scout__channel_sleep(&p->channel)) {
		rang = poll(&bell, 1, now_us < end_us ? (int)((end_us - now_us + 999) / 1000) : 0) == 1;
		if (rang)
			MUST(scout__channel_hear(&p->channel));
		scout__channel_wake(&p->channel);
	}
	return rang;
}

static bool
receive_channel(struct wire_peer *p, int timeout_ms)
{
	uint64_t end_us = scout__now_us() + (uint64_t)timeout_ms * 1000;
	uint32_t len;
	uint8_t *frame;

	while ((len = scout__channel_begin(&p->channel)) == 0) {
		scout__channel_push(&p->channel);
		if (!sleep_on_channel(p, end_us) && !scout__channel_has_bytes(&p->channel))
			return false;
	}
	frame = malloc(len);
	MUST(frame);
	end_us = wait_begin();
	while (!scout__channel_fill(&p->channel, frame))
		MUST(sleep_on_channel(p, end_us));
	keep_frame(p, frame, len);
	free(frame);
	return true;
}

/* One message, if there is one within @timeout_ms. */
static bool
receive(struct wire_peer *p, int timeout_ms)
{
	zmq_msg_t msg;

	if (scout__channel_is_open(&p->channel))
		return receive_channel(p, timeout_ms);
	MUST(zmq_setsockopt(p->dealer, ZMQ_RCVTIMEO, &timeout_ms, sizeof(timeout_ms)) == 0);
	MUST(zmq_msg_init(&msg) == 0);
	if (zmq_msg_recv(&msg, p->dealer, 0) < 0) {
		(void)zmq_msg_close(&msg);
		return false;
	}
	MUST(!zmq_msg_more(&msg));
	keep_frame(p, zmq_msg_data(&msg), zmq_msg_size(&msg));
	(void)zmq_msg_close(&msg);
	return true;
}

static struct wire_reply **
find(struct wire_peer *p, uint64_t corr)
{
	struct wire_reply **at = &p->replies;

	while (*at && (*at)->corr != corr)
		at = &(*at)->next;
	return at;
}

bool
wire_has(struct wire_peer *p, uint64_t corr)
{
	while (receive(p, 0))
		;
	return *find(p, corr);
}

bool
wire_comes(struct wire_peer *p, uint64_t corr, uint64_t end_us)
{
	while (!*find(p, corr)) {
		uint64_t now_us = scout__now_us();

		if (now_us >= end_us)
			return false;
		(void)receive(p, (int)((end_us - now_us) / 1000) + 1);
	}
	return true;
}

struct wire_reply *
wire_wait(struct wire_peer *p, uint64_t corr)
{
	struct wire_reply **at;
	struct wire_reply *reply;

	MUST(wire_comes(p, corr, wait_begin()));
	at = find(p, corr);
	reply = *at;
	*at = reply->next;
	if (reply->status) {
		struct scout__op op = {.length = reply->length, .body = reply->body};
		struct scout__str text;

		MUST(scout__get_text(&op, &text) == SCOUT_WIRE_OK);
		(void)snprintf(p->text, sizeof(p->text), "%.*s", (int)text.len, text.p ? text.p : "");
	}
	return reply;
}

void
wire_reply_free(struct wire_reply *reply)
{
	free(reply->body);
	free(reply);
}

/* ---- lease ---- */

static void
lease_send(struct wire_peer *p, uint16_t type)
{
	struct scout__lease_msg m = {
		.type = type, .word = type == SCOUT_LEASE_ASK_CHANNEL ? 0 : p->hello.token, .secret = p->hello.secret};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	size_t len = scout__put_lease(buf, &m);

	/* A server that lets this process in nowhere may have closed it: what is received next says so. */
	MUST(send(p->lease_fd, buf, len, MSG_NOSIGNAL) == (ssize_t)len || errno == EPIPE || errno == ECONNRESET);
}

/* The next message; its type, 0 at the end. Segments are kept, a channel is opened. */
static int
lease_receive(struct wire_peer *p)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int) * SCOUT__CHANNEL_FDS)];
	} control;
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct iovec part = {.iov_base = buf, .iov_len = sizeof(buf)};
	struct msghdr msg = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct pollfd ready = {.fd = p->lease_fd, .events = POLLIN};
	struct scout__lease_msg m;
	struct wire_segment *segment;
	ssize_t len;

	MUST(poll(&ready, 1, wait_limit_ms()) == 1);
	len = recvmsg(p->lease_fd, &msg, MSG_CMSG_CLOEXEC);
	if (len <= 0)
		return 0;
	MUST(scout__get_lease(buf, (size_t)len, &m));
	if (m.type != SCOUT_LEASE_SEGMENT) {
		if (m.type == SCOUT_LEASE_OK)
			MUST(m.word == p->epoch);
		if (m.type == SCOUT_LEASE_CHANNEL && m.request_bytes != 0) {
			int fds[SCOUT__CHANNEL_FDS];

			MUST(CMSG_FIRSTHDR(&msg) && CMSG_FIRSTHDR(&msg)->cmsg_len == CMSG_LEN(sizeof(fds)));
			memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(fds));
			MUST(scout__channel_attach(&p->channel, fds, m.request_bytes, m.reply_bytes) == 0);
		}
		return m.type;
	}
	MUST(CMSG_FIRSTHDR(&msg) && p->n_segments < WIRE_SEGMENTS);
	segment = &p->segments[p->n_segments++];
	*segment = (struct wire_segment){m.segment, m.slots, -1, m.bytes, m.data_offset, m.slot_stride, NULL};
	memcpy(&segment->fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	return m.type;
}

int
wire_lease(struct wire_peer *p)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	wire_lease_close(p);
	MUST(strlen(p->lease_path) < sizeof(address.sun_path));
	memcpy(address.sun_path, p->lease_path, strlen(p->lease_path) + 1);
	p->lease_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	MUST(p->lease_fd >= 0);
	MUST(connect(p->lease_fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	lease_send(p, SCOUT_LEASE_HELLO);
	return lease_receive(p);
}

bool
wire_channel(struct wire_peer *p)
{
	int type;

	scout__channel_close(&p->channel);
	lease_send(p, SCOUT_LEASE_ASK_CHANNEL);
	while ((type = lease_receive(p)) == SCOUT_LEASE_SEGMENT)
		;
	MUST(type == SCOUT_LEASE_CHANNEL);
	return scout__channel_is_open(&p->channel);
}

void
wire_lease_bye(struct wire_peer *p)
{
	lease_send(p, SCOUT_LEASE_BYE);
}

void
wire_lease_close(struct wire_peer *p)
{
	if (p->lease_fd >= 0)
		(void)close(p->lease_fd);
	p->lease_fd = -1;
}

static struct wire_segment *
segment_of(struct wire_peer *p, const struct scout__grant *grant)
{
	for (;;) {
		for (uint32_t i = 0; i < p->n_segments; i++) {
			if (p->segments[i].id == grant->segment)
				return &p->segments[i];
		}
		MUST(lease_receive(p) != 0);
	}
}

uint8_t *
wire_slot(struct wire_peer *p, const struct scout__grant *grant)
{
	struct wire_segment *segment = segment_of(p, grant);

	if (!segment->map) {
		void *map = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);

		MUST(map != MAP_FAILED);
		segment->map = map;
	}
	MUST(grant->offset >= segment->data_offset && grant->offset + segment->stride <= segment->bytes);
	return segment->map + grant->offset;
}

uint64_t
wire_generation(struct wire_peer *p, const struct scout__grant *grant)
{
	const struct wire_segment *segment = segment_of(p, grant);
	uint64_t slot = (grant->offset - segment->data_offset) / segment->stride;

	(void)wire_slot(p, grant);
	return scout__load_u64(segment->map + slot * sizeof(uint64_t));
}
