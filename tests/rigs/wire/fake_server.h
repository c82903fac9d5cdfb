/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/*
 * A scripted peer: a real ROUTER on ipc in a private folder, with a thread that answers as the protocol says unless the
 * script says otherwise. The test thread scripts and asks; everything shared is behind one mutex.
 */

enum fake_action {
	FAKE_ANSWER = 0, /* as usual */
	FAKE_DROP,       /* never answer */
	FAKE_HOLD,       /* keep the answer until fake_release() */
	FAKE_REFUSE,     /* with the wire status in arg */
	FAKE_TWICE,      /* send the answer two times */
	FAKE_GARBAGE,    /* a message that is no frame */
	FAKE_BAD_EPOCH,  /* the answer with another epoch */
	FAKE_BAD_VERSION,
	FAKE_SHORT_BODY,  /* a body that is cut, in a frame that is whole */
	FAKE_BIG_HIT,     /* LOOKUP: more chunks than were asked for; KEYS: more keys */
	FAKE_DELAY,       /* the answer, arg milliseconds late */
	FAKE_REORDER,     /* the answer, behind the next one that is sent */
	FAKE_BAD_LENGTH,  /* a frame that says to be longer than it is */
	FAKE_ERROR,       /* an ERROR operation for this request, with the wire status in arg */
	FAKE_NO_CORR,     /* an ERROR operation for no request, with the wire status in arg */
	FAKE_OLD_VERSION, /* what a server of protocol version 2 answers to a frame of this version */
	FAKE_HALF         /* half the frame, and from then on nothing, until fake_bind() */
};

#define FAKE_VERSION 99 /* of FAKE_BAD_VERSION */

struct fake_server;

/* Aborts the test on failure. */
struct fake_server *fake_start(void);
void fake_stop(struct fake_server *f);
/* Remove its folder now: for a test that ends by a signal and is never stopped. */
void fake_remove_files(const struct fake_server *f);
const char *fake_endpoint(const struct fake_server *f);

/* Stop listening as if killed, and listen again on the same endpoint with another epoch (or the same). */
void fake_unbind(struct fake_server *f);
void fake_bind(struct fake_server *f, bool new_epoch);

/* What LOOKUPs answer from now on, at most the number asked for. */
void fake_set_hit(struct fake_server *f, uint32_t chunks);
/* What LOOKUPs ahead answer, of at most 64 chunks: a bit for each; how many are known, 0: all. */
/* And KEYS, of at most 64 keys in the order of the message: hits, and where only @in_l2 has a bit, to be retried. */
void fake_set_present(struct fake_server *f, uint64_t present, uint64_t in_l2, uint32_t known);
/* Whether they say that max_promised has cut them. */
void fake_set_limited(struct fake_server *f, bool limited);
/* What HELLO replies say of a lease connection: the test serves it. Before there is a client. */
void fake_set_lease(struct fake_server *f, const char *path);
/* What HELLO replies say of the namespace's weights version; and the version that the last HELLO said. */
void fake_set_weights(struct fake_server *f, uint64_t weights);
uint64_t fake_said_weights(struct fake_server *f);
/* The token of the nth HELLO, and whether it showed the secret of our replies. */
uint64_t fake_said_token(struct fake_server *f, unsigned nth, bool *ret_shows_secret);
/* The clear that the last HELLO named; and since when its worker is in. */
uint64_t fake_said_generation(struct fake_server *f);
uint64_t fake_said_joined(struct fake_server *f);
/* As if another peer had cleared under the name of the last clear, and this server had not known it: a later stamp. */
void fake_clear_again(struct fake_server *f);
uint64_t fake_epoch(struct fake_server *f);
void fake_set_credits(struct fake_server *f, uint32_t credits);
/* The next request of this opcode is treated so (a queue for each opcode). */
void fake_script(struct fake_server *f, unsigned opcode, enum fake_action action, unsigned arg);
/* All requests of this opcode from now on, when its queue is empty. */
void fake_always(struct fake_server *f, unsigned opcode, enum fake_action action, unsigned arg);
/* Send what was held, in reverse order. */
void fake_release(struct fake_server *f);

/* What was received so far. */
unsigned fake_count(struct fake_server *f, unsigned opcode);
/* Not those of a PING alone, which a loaded machine adds. */
unsigned fake_frames(struct fake_server *f);
/* The largest number of operations in one frame. */
unsigned fake_max_ops(struct fake_server *f);
/* Wait until that many were received; false if that takes as long as wait_limit_ms(). */
bool fake_wait(struct fake_server *f, unsigned opcode, unsigned n);
uint64_t fake_lookup_ticket(struct fake_server *f, unsigned nth);
uint64_t fake_finish_ticket(struct fake_server *f, unsigned nth);
/* Of the last request of this opcode: its correlation id, and the first eight bytes of its body as a number. */
uint64_t fake_last_corr(struct fake_server *f, unsigned opcode);
uint64_t fake_last_word(struct fake_server *f, unsigned opcode);
/* The place of the last request of this opcode among all that were received; 0: none. */
unsigned fake_last_order(struct fake_server *f, unsigned opcode);
/* Sessions of this epoch that were looked up and never finished. */
unsigned fake_open_sessions(struct fake_server *f);
/* Of the last LOOKUP. */
struct fake_lookup {
	uint32_t n, skip, expect, poll_timeout_ms, poll_interval_ms, budget_us;
	uint16_t flags;
};
struct fake_lookup fake_last_lookup(struct fake_server *f);
/* from and to of the last ADMIT. */
void fake_last_admit(struct fake_server *f, uint32_t *ret_from, uint32_t *ret_to);
