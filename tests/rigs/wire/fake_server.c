/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_server.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "clock.h"
#include "fake_server_internal.h"
#include "msg.h"

#define HASH_BYTES 32
#define LENGTH_AT 8

void
fake_wake(struct fake_server *f)
{
	uint64_t one = 1;

	ck_assert_int_eq(write(f->wake_fd, &one, sizeof(one)), sizeof(one));
}

static void
open_router(struct fake_server *f)
{
	int zero = 0, hwm = 0;

	f->router = zmq_socket(f->zmq, ZMQ_ROUTER);
	(void)zmq_setsockopt(f->router, ZMQ_LINGER, &zero, sizeof(zero));
	(void)zmq_setsockopt(f->router, ZMQ_SNDHWM, &hwm, sizeof(hwm));
	(void)zmq_setsockopt(f->router, ZMQ_RCVHWM, &hwm, sizeof(hwm));
	if (zmq_bind(f->router, f->endpoint) != 0)
		abort();
}

/* Of the chunks, those whose bit is set in f.present; without any the leading ones. */
static void
put_ahead(struct fake_server *f, struct scout__writer *w, struct scout__lookup_reply *reply, uint32_t n)
{
	uint8_t present[8], in_l2[8] = {0};
	struct scout__ahead_reply m = {
		.known = f->known && f->known < n ? f->known : n, .present = present, .in_l2 = in_l2};
	uint64_t bits = f->present ? f->present : (UINT64_C(1) << reply->hit) - 1;

	if (m.known < 64)
		bits &= (UINT64_C(1) << m.known) - 1;
	for (unsigned i = 0; i < 8; i++) {
		present[i] = (uint8_t)(bits >> 8 * i);
		in_l2[i] = (uint8_t)((bits & f->in_l2) >> 8 * i);
	}
	reply->hit = bits == UINT64_MAX ? 64 : (uint32_t)__builtin_ctzll(~bits);
	reply->l1 = reply->hit;
	m.lookup = *reply;
	scout__put_ahead_reply(w, &m);
}

static void
put_keys(const struct fake_server *f, struct scout__writer *w, uint32_t n, enum fake_action how)
{
	uint64_t all = n == 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
	uint64_t bits = f->present & all, later_bits = f->in_l2 & ~f->present & all;
	uint8_t hits[8], later[8];
	struct scout__keys_reply m = {.n = n, .limited = f->limited, .hit = hits, .later = later};

	for (unsigned i = 0; i < 8; i++) {
		hits[i] = (uint8_t)(bits >> 8 * i);
		later[i] = (uint8_t)(later_bits >> 8 * i);
	}
	m.l2 = (uint32_t)__builtin_popcountll(bits & f->in_l2);
	m.l1 = (uint32_t)__builtin_popcountll(bits) - m.l2;
	if (how == FAKE_BIG_HIT)
		m.n++;
	scout__put_keys_reply(w, &m);
}

static void
put_reply(struct fake_server *f, struct scout__writer *w, const struct scout__op *op, struct scripted how)
{
	bool is_error = how.action == FAKE_ERROR || how.action == FAKE_NO_CORR;
	bool refuse = is_error || how.action == FAKE_REFUSE;
	uint16_t status = refuse ? (uint16_t)how.arg : SCOUT_WIRE_OK;
	size_t at = scout__op_begin(w, is_error ? SCOUT_OP_ERROR : op->opcode, SCOUT_KIND_REPLY, status,
				    how.action == FAKE_NO_CORR ? 0 : op->corr, 0);
	struct scout__hello_reply hello = {.credits = f->credits,
					   .max_frame = SCOUT_MAX_FRAME,
					   .weights = f->weights,
					   .clear = f->clear,
					   .secret = FAKE_SECRET,
					   .lease_path = {f->lease, strlen(f->lease)},
					   .software = {"fake", 4}};
	struct scout__lookup_reply reply = {0};
	struct scout__lookup_msg lookup;
	struct scout__keys_msg keys;
	const char *field;

	if (status != SCOUT_WIRE_OK) {
		scout__put_text(w, "refused by the script");
	} else if (how.action == FAKE_SHORT_BODY) {
		scout__put_u8(w, 1);
	} else if (op->opcode == SCOUT_OP_HELLO) {
		/* As a server does with a worker that is new; a client does not look. */
		hello.clear.joined = f->clear.joined ? f->clear.joined : 1;
		scout__put_hello_reply(w, &hello);
	} else if (op->opcode == SCOUT_OP_CLEAR) {
		scout__put_clear_reply(w, &(struct scout__clear_reply){.clear = f->clear, .stores = 1, .pending = 0});
	} else if (op->opcode == SCOUT_OP_LOOKUP) {
		if (scout__get_lookup(op, HASH_BYTES, &lookup, &field) != SCOUT_WIRE_OK)
			abort();
		reply.hit = f->hit < lookup.n ? f->hit : lookup.n;
		reply.l1 = reply.hit;
		reply.limited = f->limited;
		if (how.action == FAKE_BIG_HIT)
			reply.hit = lookup.n + 1;
		if (lookup.flags & SCOUT_LOOKUP_AHEAD)
			put_ahead(f, w, &reply, lookup.n);
		else
			scout__put_lookup_reply(w, &reply);
	} else if (op->opcode == SCOUT_OP_KEYS) {
		if (scout__get_keys(op, HASH_BYTES, &keys, &field) != SCOUT_WIRE_OK)
			abort();
		put_keys(f, w, keys.n, how.action);
	} else if (op->opcode == SCOUT_OP_ADMIT || op->opcode == SCOUT_OP_FINISH) {
		scout__put_admit_reply(w, 0);
	} else if (op->opcode == SCOUT_OP_REGISTER) {
		scout__put_register_reply(w, &(struct scout__register_reply){.n_tables = 1, .tables[0] = {4096, 4096}});
	}
	scout__op_end(w, at);
}

static void
record(struct fake_server *f, const struct scout__op *op)
{
	unsigned n = f->counts[op->opcode]++;
	struct scout__reader body = scout__reader_of(op->body, op->length);
	struct scout__admit_msg admit;
	struct scout__finish_msg finish;
	struct scout__lookup_msg lookup;
	struct scout__hello hello;
	const char *field;

	f->last_corr[op->opcode] = op->corr;
	f->order[op->opcode] = ++f->received;
	f->last_word[op->opcode] = scout__get_u64(&body);
	if (op->opcode == SCOUT_OP_LOOKUP && n < TICKETS) {
		if (scout__get_lookup(op, HASH_BYTES, &lookup, &field) != SCOUT_WIRE_OK)
			return;
		f->looked_up[n] = lookup.ticket;
		f->lookup = (struct fake_lookup){.n = lookup.n,
						 .skip = lookup.skip,
						 .flags = lookup.flags,
						 .expect = lookup.expect,
						 .poll_timeout_ms = lookup.poll_timeout_ms,
						 .poll_interval_ms = lookup.poll_interval_ms,
						 .budget_us = op->budget_us};
	} else if (op->opcode == SCOUT_OP_FINISH && n < TICKETS) {
		if (scout__get_finish(op, &finish, &field) != SCOUT_WIRE_OK)
			return;
		f->finished[n] = finish.ticket;
	} else if (op->opcode == SCOUT_OP_ADMIT && scout__get_admit(op, &admit, &field) == SCOUT_WIRE_OK) {
		f->admit_from = admit.from;
		f->admit_to = admit.to;
	} else if (op->opcode == SCOUT_OP_HELLO && scout__get_hello(op, &hello, &field) == SCOUT_WIRE_OK) {
		if (n < QUEUE)
			f->said[n].token = hello.token;
		if (n < QUEUE)
			f->said[n].shows_secret = scout__secret_equal(&hello.secret, &FAKE_SECRET);
		f->said_weights = hello.weights;
		f->said_clear = hello.clear;
	} else if (op->opcode == SCOUT_OP_CLEAR) {
		if (f->last_word[op->opcode] != SCOUT_GENERATION_ANY && f->last_word[op->opcode] != 0) {
			f->clear.cleared += 1000;
			f->clear.generation = f->last_word[op->opcode];
		}
		f->clear.joined = f->clear.cleared + 1;
	}
}

static struct scripted
next_script(struct fake_server *f, unsigned opcode)
{
	struct scripted s;

	if (f->queue_n[opcode] == 0)
		return f->always[opcode];
	s = f->queue[opcode][0];
	memmove(&f->queue[opcode][0], &f->queue[opcode][1], --f->queue_n[opcode] * sizeof(s));
	return s;
}

static void
send_to(struct fake_server *f, const void *identity, size_t identity_len, const void *frame, size_t len)
{
	(void)zmq_send(f->router, identity, identity_len, ZMQ_SNDMORE | ZMQ_DONTWAIT);
	(void)zmq_send(f->router, frame, len, ZMQ_DONTWAIT);
}

static void
hold(struct fake_server *f, const void *identity, size_t identity_len, const void *frame, size_t len, uint64_t due_us)
{
	struct held *h = calloc(1, sizeof(*h));

	if (!h || !(h->frame = malloc(len)))
		abort();
	memcpy(h->identity, identity, identity_len);
	h->identity_len = identity_len;
	memcpy(h->frame, frame, len);
	h->len = len;
	h->due_us = due_us;
	h->next = f->held;
	f->held = h;
}

/* Send, newest first, what is due by @now_us; UINT64_MAX: all. */
static void
release_held(struct fake_server *f, uint64_t now_us)
{
	struct held **at = &f->held;

	while (*at) {
		struct held *h = *at;

		if (h->due_us > now_us || (h->due_us == 0 && now_us != 0 && now_us != UINT64_MAX)) {
			at = &h->next;
			continue;
		}
		*at = h->next;
		if (f->router)
			send_to(f, h->identity, h->identity_len, h->frame, h->len);
		free(h->frame);
		free(h);
	}
}

/* Milliseconds until something that was held is due; -1: never. */
static int
next_due_ms(const struct fake_server *f)
{
	uint64_t now_us = scout__now_us(), due_us = UINT64_MAX;

	for (const struct held *h = f->held; h; h = h->next)
		if (h->due_us != 0 && h->due_us < due_us)
			due_us = h->due_us;
	if (due_us == UINT64_MAX)
		return -1;
	return due_us <= now_us ? 0 : (int)((due_us - now_us) / 1000) + 1;
}

/* A server of protocol version 2 refuses a frame of version 3. */
static const uint8_t old_refusal[] = {
	'K',  'V',  'S',  'C',  0x02, 0x00, 0x00, 0x00, /*  0 magic, version 2 */
	0x7a, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, /*  8 length 122, op_count */
	0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, /* 16 epoch */
	0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11, /* 24 sent_us */
	0x0d, 0x01, 0x02, 0x00, 0x42, 0x00, 0x00, 0x00, /* 32 ERROR, reply, BAD_VERSION, length 66 */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* 40 corr */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* 48 budget_us, reserved */
	0x40, 0x00,                                     /* 56 text */
	't',  'h',  'e',  ' ',  'f',  'r',  'a',  'm',  'e', ' ', 'i', 's', ' ', 'o', 'f', ' ',
	'p',  'r',  'o',  't',  'o',  'c',  'o',  'l',  ' ', 'v', 'e', 'r', 's', 'i', 'o', 'n',
	' ',  '3',  ',',  ' ',  't',  'h',  'i',  's',  ' ', 's', 'e', 'r', 'v', 'e', 'r', ' ',
	's',  'p',  'e',  'a',  'k',  's',  ' ',  'v',  'e', 'r', 's', 'i', 'o', 'n', ' ', '2',
};

/* The header: magic, version (u16 at 4), then the length of the whole frame (u32 at 8). */
static void
spoil(uint8_t *buf, struct scout__writer *w, enum fake_action action)
{
	if (action == FAKE_BAD_VERSION)
		buf[4] = FAKE_VERSION;
	else if (action == FAKE_OLD_VERSION)
		memcpy(buf, old_refusal, w->len = sizeof(old_refusal));
	else if (action == FAKE_GARBAGE)
		memset(buf, 0x5a, w->len);
	else if (action == FAKE_BAD_LENGTH)
		buf[LENGTH_AT]++;
	else if (action == FAKE_HALF)
		w->len /= 2;
}

static void
answer(struct fake_server *f, const void *identity, size_t identity_len, const struct scout__op *op)
{
	struct scripted how = next_script(f, op->opcode);
	uint8_t buf[1024];
	struct scout__writer w = {.buf = buf, .cap = sizeof(buf)};

	if (op->opcode == SCOUT_OP_LOOKUP && f->counts[op->opcode] <= TICKETS &&
	    (how.action == FAKE_REFUSE || how.action == FAKE_ERROR || how.action == FAKE_NO_CORR))
		f->looked_up[f->counts[op->opcode] - 1] = 0; /* no session */
	if (how.action == FAKE_DROP || f->silent)
		return;
	scout__frame_begin(&w);
	put_reply(f, &w, op, how);
	scout__frame_end(&w, 1, how.action == FAKE_BAD_EPOCH ? f->epoch + 1 : f->epoch, scout__now_us());
	spoil(buf, &w, how.action);
	if (how.action == FAKE_HOLD || how.action == FAKE_REORDER || how.action == FAKE_DELAY) {
		hold(f, identity, identity_len, buf, w.len,
		     how.action == FAKE_HOLD      ? UINT64_MAX
		     : how.action == FAKE_REORDER ? 0
						  : scout__now_us() + how.arg * UINT64_C(1000));
		return;
	}
	f->silent |= how.action == FAKE_HALF;
	send_to(f, identity, identity_len, buf, w.len);
	if (how.action == FAKE_TWICE)
		send_to(f, identity, identity_len, buf, w.len);
	release_held(f, 0);
}

static bool
serve_one(struct fake_server *f)
{
	uint8_t identity[IDENTITY_MAX];
	struct scout__frame frame;
	struct scout__reader ops;
	struct scout__op op;
	zmq_msg_t msg;
	bool asks = false;
	int id_len = zmq_recv(f->router, identity, sizeof(identity), ZMQ_DONTWAIT);

	if (id_len < 0)
		return false;
	(void)zmq_msg_init(&msg);
	(void)zmq_msg_recv(&msg, f->router, 0);
	if (scout__frame_check(zmq_msg_data(&msg), zmq_msg_size(&msg), true, &frame) != SCOUT_WIRE_OK)
		abort(); /* our own client never sends such a frame */
	if (frame.op_count > f->max_ops)
		f->max_ops = frame.op_count;
	ops = scout__frame_ops(zmq_msg_data(&msg), zmq_msg_size(&msg));
	while (scout__frame_next(&ops, &op)) {
		asks |= op.opcode != SCOUT_OP_PING;
		record(f, &op);
		answer(f, identity, (size_t)id_len, &op);
	}
	f->frames += asks;
	(void)zmq_msg_close(&msg);
	(void)pthread_cond_broadcast(&f->cond);
	return true;
}

static void
obey(struct fake_server *f)
{
	if (f->want_unbind && f->router) {
		(void)zmq_close(f->router);
		f->router = NULL;
		f->bound = false;
	}
	if (f->want_bind && !f->router) {
		open_router(f);
		f->bound = true;
		f->silent = false;
	}
	f->want_bind = f->want_unbind = false;
	if (f->release)
		release_held(f, UINT64_MAX);
	release_held(f, scout__now_us());
	f->release = false;
	(void)pthread_cond_broadcast(&f->cond);
}

static void *
fake_main(void *arg)
{
	struct fake_server *f = arg;
	uint64_t count;

	(void)prctl(PR_SET_NAME, "scout-server"); /* as a server's loop: while it waits for a CPU, it is not silent */
	(void)pthread_mutex_lock(&f->mu);
	while (!f->stop) {
		obey(f);
		while (f->router && serve_one(f))
			;
		zmq_pollitem_t items[2] = {{.fd = f->wake_fd, .events = ZMQ_POLLIN},
					   {.socket = f->router, .events = ZMQ_POLLIN}};
		int n = f->router ? 2 : 1, wait_ms = next_due_ms(f);

		(void)pthread_mutex_unlock(&f->mu);
		(void)zmq_poll(items, n, wait_ms);
		(void)pthread_mutex_lock(&f->mu);
		if (items[0].revents)
			(void)!read(f->wake_fd, &count, sizeof(count));
	}
	(void)pthread_mutex_unlock(&f->mu);
	return NULL;
}

struct fake_server *
fake_start(void)
{
	struct fake_server *f = calloc(1, sizeof(*f));
	pthread_condattr_t attr;

	ck_assert_ptr_nonnull(f);
	snprintf(f->dir, sizeof(f->dir), "/tmp/kvscout-fake-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(f->dir));
	snprintf(f->endpoint, sizeof(f->endpoint), "ipc://%s/s", f->dir);
	f->zmq = zmq_ctx_new();
	f->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	f->epoch = 1000;
	f->credits = 1024;
	(void)pthread_mutex_init(&f->mu, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&f->cond, &attr);
	open_router(f);
	f->bound = true;
	ck_assert_int_eq(pthread_create(&f->thread, NULL, fake_main, f), 0);
	return f;
}

void
fake_remove_files(const struct fake_server *f)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/s", f->dir);
	(void)unlink(path);
	(void)rmdir(f->dir);
}

void
fake_stop(struct fake_server *f)
{
	(void)pthread_mutex_lock(&f->mu);
	f->stop = true;
	(void)pthread_mutex_unlock(&f->mu);
	fake_wake(f);
	(void)pthread_join(f->thread, NULL);
	if (f->router)
		(void)zmq_close(f->router);
	f->router = NULL;
	release_held(f, UINT64_MAX);
	(void)zmq_ctx_term(f->zmq);
	(void)close(f->wake_fd);
	fake_remove_files(f);
	free(f);
}

const char *
fake_endpoint(const struct fake_server *f)
{
	return f->endpoint;
}

static void
wait_bound(struct fake_server *f, bool bound)
{
	fake_wake(f);
	while (f->bound != bound)
		(void)pthread_cond_wait(&f->cond, &f->mu);
	(void)pthread_mutex_unlock(&f->mu);
}

void
fake_unbind(struct fake_server *f)
{
	(void)pthread_mutex_lock(&f->mu);
	f->want_unbind = true;
	wait_bound(f, false);
}

void
fake_bind(struct fake_server *f, bool new_epoch)
{
	(void)pthread_mutex_lock(&f->mu);
	if (new_epoch) {
		f->epoch++;
		f->first_of_epoch = f->counts[SCOUT_OP_LOOKUP];
	}
	f->want_bind = true;
	wait_bound(f, true);
}

void
fake_clear_again(struct fake_server *f)
{
	(void)pthread_mutex_lock(&f->mu);
	f->clear.cleared = f->clear.joined + 1000;
	(void)pthread_mutex_unlock(&f->mu);
}
