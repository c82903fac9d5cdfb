/* SPDX-License-Identifier: Apache-2.0 */
/* What a test tells the scripted server, and asks it about what it has seen. */
#include "fake_server.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "clock.h"
#include "fake_server_internal.h"
#include "waiting.h"

#define LOCKED(statement)                                                                                              \
	do {                                                                                                           \
		(void)pthread_mutex_lock(&f->mu);                                                                      \
		statement;                                                                                             \
		(void)pthread_mutex_unlock(&f->mu);                                                                    \
	} while (0)

void
fake_set_hit(struct fake_server *f, uint32_t chunks)
{
	LOCKED(f->hit = chunks);
}

void
fake_set_present(struct fake_server *f, uint64_t present, uint64_t in_l2, uint32_t known)
{
	LOCKED((f->present = present, f->in_l2 = in_l2, f->known = known));
}

void
fake_set_limited(struct fake_server *f, bool limited)
{
	LOCKED(f->limited = limited);
}

void
fake_set_lease(struct fake_server *f, const char *path)
{
	LOCKED((void)snprintf(f->lease, sizeof(f->lease), "%s", path));
}

void
fake_set_weights(struct fake_server *f, uint64_t weights)
{
	LOCKED(f->weights = weights);
}

uint64_t
fake_said_generation(struct fake_server *f)
{
	uint64_t generation;

	LOCKED(generation = f->said_clear.generation);
	return generation;
}

uint64_t
fake_said_joined(struct fake_server *f)
{
	uint64_t joined;

	LOCKED(joined = f->said_clear.joined);
	return joined;
}

uint64_t
fake_said_weights(struct fake_server *f)
{
	uint64_t weights;

	LOCKED(weights = f->said_weights);
	return weights;
}

uint64_t
fake_epoch(struct fake_server *f)
{
	uint64_t epoch;

	LOCKED(epoch = f->epoch);
	return epoch;
}

void
fake_set_credits(struct fake_server *f, uint32_t credits)
{
	LOCKED(f->credits = credits);
}

void
fake_script(struct fake_server *f, unsigned opcode, enum fake_action action, unsigned arg)
{
	LOCKED(f->queue[opcode][f->queue_n[opcode]++] = ((struct scripted){action, arg}));
}

void
fake_always(struct fake_server *f, unsigned opcode, enum fake_action action, unsigned arg)
{
	LOCKED(f->always[opcode] = ((struct scripted){action, arg}));
}

void
fake_release(struct fake_server *f)
{
	LOCKED(f->release = true);
	fake_wake(f);
}

unsigned
fake_count(struct fake_server *f, unsigned opcode)
{
	unsigned n;

	LOCKED(n = f->counts[opcode]);
	return n;
}

unsigned
fake_frames(struct fake_server *f)
{
	unsigned n;

	LOCKED(n = f->frames);
	return n;
}

unsigned
fake_max_ops(struct fake_server *f)
{
	unsigned n;

	LOCKED(n = f->max_ops);
	return n;
}

bool
fake_wait(struct fake_server *f, unsigned opcode, unsigned n)
{
	struct timespec until;
	bool there;
	int rc = 0;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += wait_limit_ms() / 1000;
	(void)pthread_mutex_lock(&f->mu);
	while (f->counts[opcode] < n && rc == 0)
		rc = pthread_cond_timedwait(&f->cond, &f->mu, &until);
	there = f->counts[opcode] >= n;
	(void)pthread_mutex_unlock(&f->mu);
	return there;
}

uint64_t
fake_lookup_ticket(struct fake_server *f, unsigned nth)
{
	uint64_t ticket;

	LOCKED(ticket = f->looked_up[nth]);
	return ticket;
}

uint64_t
fake_finish_ticket(struct fake_server *f, unsigned nth)
{
	uint64_t ticket;

	LOCKED(ticket = f->finished[nth]);
	return ticket;
}

uint64_t
fake_said_token(struct fake_server *f, unsigned nth, bool *ret_shows_secret)
{
	uint64_t token;

	LOCKED((token = f->said[nth].token, *ret_shows_secret = f->said[nth].shows_secret));
	return token;
}

uint64_t
fake_last_corr(struct fake_server *f, unsigned opcode)
{
	uint64_t corr;

	LOCKED(corr = f->last_corr[opcode]);
	return corr;
}

uint64_t
fake_last_word(struct fake_server *f, unsigned opcode)
{
	uint64_t word;

	LOCKED(word = f->last_word[opcode]);
	return word;
}

struct fake_lookup
fake_last_lookup(struct fake_server *f)
{
	struct fake_lookup lookup;

	LOCKED(lookup = f->lookup);
	return lookup;
}

void
fake_last_admit(struct fake_server *f, uint32_t *ret_from, uint32_t *ret_to)
{
	LOCKED(*ret_from = f->admit_from; *ret_to = f->admit_to);
}

unsigned
fake_last_order(struct fake_server *f, unsigned opcode)
{
	unsigned order;

	LOCKED(order = f->order[opcode]);
	return order;
}

static bool
is_finished(const struct fake_server *f, uint64_t ticket)
{
	for (unsigned i = 0; i < f->counts[SCOUT_OP_FINISH] && i < TICKETS; i++)
		if (f->finished[i] == ticket)
			return true;
	return false;
}

unsigned
fake_open_sessions(struct fake_server *f)
{
	unsigned n = 0;

	(void)pthread_mutex_lock(&f->mu);
	for (unsigned i = f->first_of_epoch; i < f->counts[SCOUT_OP_LOOKUP] && i < TICKETS; i++)
		n += f->looked_up[i] != 0 && !is_finished(f, f->looked_up[i]);
	(void)pthread_mutex_unlock(&f->mu);
	return n;
}
