/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "channel.h"
#include "fuzz.h"

/*
 * DESIGN
 *
 * One side of a channel against memory that the other side fills as it likes. An input is a script: what the other side does to the shared
 * words and bytes, and what ours is asked to do in between. Nothing must be read or written outside the rings and the buffers, which
 * are heap blocks of exactly their size; ours writes to its own ring only; and a channel that is broken stays so and carries nothing.
 */

#define RING SCOUT_CHANNEL_MIN_BYTES
#define MAX_BACKLOG ((size_t)256 * 1024)
#define MAX_STEPS 2000u

enum step {
	STEP_TAIL,      /* the other side: anything */
	STEP_HEAD,      /* anything */
	STEP_TAIL_NEAR, /* so many records' worth behind our end */
	STEP_HEAD_NEAR, /* so much before our end */
	STEP_HEADER,    /* of the record that we read next */
	STEP_BYTES,     /* of the ring, somewhere */
	STEP_WORD,      /* reader_sleeps or writer_waits of either ring */
	STEP_HONEST,    /* a whole frame, as it should be */
	STEP_READ,      /* ours from here on */
	STEP_SEND,
	STEP_PUSH,
	STEP_SLEEP,
	STEP_HEAR,
	N_STEPS
};

struct script {
	const uint8_t *p;
	size_t left;
};

struct world {
	struct scout__channel ours, theirs;
	size_t in_words, out_words; /* in the map */
	uint8_t in_bytes[RING];     /* what the other side has written there last */
	uint8_t *frame;             /* that is being read */
	uint32_t len;
};

static uint64_t
take(struct script *s, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes && s->left > 0; i++, s->left--)
		value |= (uint64_t)*s->p++ << 8 * i;
	return value;
}

static void
put_u64(const struct world *w, size_t at, uint64_t value)
{
	memcpy((uint8_t *)w->theirs.map + at, &value, sizeof(value));
}

static void
put_byte(struct world *w, uint64_t at, uint8_t value)
{
	w->ours.in.data[at % RING] = value;
	w->in_bytes[at % RING] = value;
}

static void
put_header(struct world *w, uint64_t at, uint64_t header)
{
	for (unsigned i = 0; i < 8; i++)
		put_byte(w, at + i, (uint8_t)(header >> 8 * i));
}

static void
open_world(struct world *w, bool is_server)
{
	int fds[SCOUT__CHANNEL_FDS], copies[SCOUT__CHANNEL_FDS];

	MUST(scout__channel_create(is_server ? &w->ours : &w->theirs, RING, RING, fds) == 0);
	copies[SCOUT__CHANNEL_MEMORY] = fds[SCOUT__CHANNEL_MEMORY];
	copies[SCOUT__CHANNEL_PEER_BELL] = fds[SCOUT__CHANNEL_PEER_BELL];
	copies[SCOUT__CHANNEL_SERVER_BELL] = dup(fds[SCOUT__CHANNEL_SERVER_BELL]);
	MUST(scout__channel_attach(is_server ? &w->theirs : &w->ours, copies, RING, RING) == 0);
	w->in_words = is_server ? SCOUT_CHANNEL_REQUESTS : SCOUT_CHANNEL_REPLIES;
	w->out_words = is_server ? SCOUT_CHANNEL_REPLIES : SCOUT_CHANNEL_REQUESTS;
}

static void
close_world(struct world *w)
{
	free(w->frame);
	scout__channel_close(&w->ours);
	scout__channel_close(&w->theirs);
}

/* ---- the other side ---- */

static void
do_word(const struct world *w, uint8_t which)
{
	static const size_t at[] = {SCOUT_CHANNEL_READER_SLEEPS, SCOUT_CHANNEL_WRITER_WAITS};
	uint32_t value = which >> 2;

	memcpy((uint8_t *)w->theirs.map + (which & 1 ? w->in_words : w->out_words) + at[which >> 1 & 1], &value,
	       sizeof(value));
}

static void
do_honest(struct world *w, uint16_t len)
{
	uint64_t at = w->ours.in.at;

	len = len % (RING - 8);
	if (w->len != 0 || len == 0)
		return; /* only between two */
	put_header(w, at, len);
	for (uint64_t i = 0; i < len; i++)
		put_byte(w, at + 8 + i, (uint8_t)(i * 7 + len));
	put_u64(w, w->in_words + SCOUT_CHANNEL_TAIL, at + 8 + (len + 7u) / 8 * 8);
}

static void
theirs(struct world *w, enum step step, struct script *s)
{
	switch (step) {
	case STEP_TAIL:
		put_u64(w, w->in_words + SCOUT_CHANNEL_TAIL, take(s, 8));
		break;
	case STEP_HEAD:
		put_u64(w, w->out_words + SCOUT_CHANNEL_HEAD, take(s, 8));
		break;
	case STEP_TAIL_NEAR:
		put_u64(w, w->in_words + SCOUT_CHANNEL_TAIL, w->ours.in.at + 8 * take(s, 2));
		break;
	case STEP_HEAD_NEAR:
		put_u64(w, w->out_words + SCOUT_CHANNEL_HEAD, w->ours.out.at - 8 * take(s, 2));
		break;
	case STEP_HEADER:
		put_header(w, w->ours.in.at, take(s, 8));
		break;
	case STEP_BYTES:
		for (uint64_t at = take(s, 2), n = take(s, 1); n > 0; n--)
			put_byte(w, at++, (uint8_t)take(s, 1));
		break;
	case STEP_WORD:
		do_word(w, (uint8_t)take(s, 1));
		break;
	default:
		do_honest(w, (uint16_t)take(s, 2));
		break;
	}
}

/* ---- ours ---- */

static void
do_read(struct world *w)
{
	struct scout__channel *ch = &w->ours;
	bool was_broken = ch->broken;
	uint64_t left;
	uint32_t len = scout__channel_begin(ch);

	if (len == 0)
		return;
	if (!w->frame) {
		MUST(!was_broken && len <= SCOUT_MAX_FRAME);
		w->frame = malloc(len);
		MUST(w->frame);
		w->len = len;
	}
	MUST(len == w->len);
	left = ch->left;
	if (!scout__channel_fill(ch, w->frame)) {
		MUST(ch->left <= left && (!was_broken || ch->left == left));
		return;
	}
	MUST(!was_broken);
	free(w->frame);
	w->frame = NULL;
	w->len = 0;
}

static void
do_send(struct world *w, size_t len)
{
	bool was_broken = w->ours.broken;
	uint8_t *frame = malloc(len);
	int rc;

	MUST(frame);
	memset(frame, 0x5a, len);
	rc = scout__channel_send(&w->ours, frame, len);
	MUST(rc == 0 || rc == EPIPE);
	MUST((rc == EPIPE) == w->ours.broken && (!was_broken || rc == EPIPE));
	free(frame);
}

static void
do_hear(struct world *w)
{
	if (w->ours.is_server)
		(void)send(w->theirs.bell_fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* nobody reads this */
	else
		MUST(scout__channel_hear(&w->ours));
}

static void
ours(struct world *w, enum step step, struct script *s)
{
	switch (step) {
	case STEP_READ:
		do_read(w);
		break;
	case STEP_SEND:
		if (w->ours.backlog_bytes < MAX_BACKLOG)
			do_send(w, 1 + take(s, 2));
		break;
	case STEP_PUSH:
		scout__channel_push(&w->ours);
		break;
	case STEP_SLEEP:
		if (scout__channel_sleep(&w->ours))
			scout__channel_wake(&w->ours);
		else
			MUST(scout__channel_has_bytes(&w->ours));
		break;
	default:
		do_hear(w);
		break;
	}
}

static void
check(const struct world *w)
{
	size_t backlog = 0;

	MUST(memcmp(w->ours.in.data, w->in_bytes, RING) == 0); /* not ours to write */
	for (const struct scout__channel_backlog *one = w->ours.first; one; one = one->next)
		backlog += one->len;
	MUST(backlog == w->ours.backlog_bytes);
	MUST(w->ours.in.at % 8 == 0 && w->ours.out.at % 8 == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct script s = {data, size};
	struct world w = {0};

	open_world(&w, take(&s, 1) & 1);
	for (unsigned n = 0; s.left > 0 && n < MAX_STEPS; n++) {
		enum step step = (enum step)(take(&s, 1) % N_STEPS);

		if (step < STEP_READ)
			theirs(&w, step, &s);
		else
			ours(&w, step, &s);
		check(&w);
	}
	close_world(&w);
	return 0;
}
