/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The polling adapter: the same lookup, with a wait behind it. It submits through scout_try_lookup() and sleeps on the slot's
 * answer word (a futex), so it wakes when the answer lands, not at the next tick; it looks by itself every
 * lookup_poll_interval_ms all the same, so that a lost wake costs one interval and no more. The deadline is the courier's (C2): the
 * answer word is set by then in any case, and the adapter adds no request and no timer of its own.
 *
 * With spin_us it looks for that long before it first sleeps, and yields the core now and then: the answer comes from other threads,
 * which may have no other one.
 *
 * It parks as doorbell.h says, on the slot's word `sleeping`; the courier stores the answer (release) and makes the futex wake.
 */
#include "client_internal.h"

#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "doorbell.h"
#include "wait.h"

#define LOOKS_PER_CLOCK 32u /* between two looks at the clock, and two yields, when spinning */

/* The kernel's futex word is 32 bits, and so is atomic_uint on every platform that we build for. */
_Static_assert(sizeof(atomic_uint) == 4, "a futex is 32 bits");

void
scout__answer_wake(struct scout__slot *slot)
{
	if (scout__unpark(&slot->sleeping))
		(void)syscall(SYS_futex, &slot->answer, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool
is_pending(const struct scout__slot *slot)
{
	return atomic_load_explicit(&slot->answer, memory_order_acquire) == SCOUT__PENDING;
}

static void
sleep_on(struct scout__slot *slot, uint64_t us)
{
	struct timespec timeout = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};

	scout__park(&slot->sleeping);
	if (is_pending(slot))
		(void)syscall(SYS_futex, &slot->answer, FUTEX_WAIT_PRIVATE, SCOUT__PENDING, &timeout, NULL, 0);
	scout__awake(&slot->sleeping);
}

/* Tell the processor that this is a loop that waits: it gives way to the other thread of its core, where there is one. */
static void
relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static void
spin_on(const struct scout__slot *slot, uint32_t spin_us)
{
	uint64_t end_us = scout__now_us() + spin_us;

	do {
		for (unsigned i = 0; i < LOOKS_PER_CLOCK; i++) {
			if (!is_pending(slot))
				return;
			relax();
		}
		(void)sched_yield();
	} while (scout__now_us() < end_us);
}

bool
scout__answer_await(const struct scout_client *client, struct scout__slot *slot, uint64_t until_us)
{
	uint64_t interval_us = (uint64_t)client->cfg.lookup_poll_interval_ms * 1000, now_us = scout__now_us();

	if (client->cfg.spin_us && now_us < until_us && is_pending(slot))
		spin_on(slot,
			until_us - now_us < client->cfg.spin_us ? (uint32_t)(until_us - now_us) : client->cfg.spin_us);
	while (is_pending(slot) && (now_us = scout__now_us()) < until_us)
		sleep_on(slot, until_us - now_us < interval_us ? until_us - now_us : interval_us);
	return !is_pending(slot);
}

/* Of a request that was asked for just now. */
static struct scout__slot *
slot_of(struct scout_client *client, const char *id)
{
	size_t len = strlen(id);

	return &client->slots[scout__table_find(client, id, len, scout__id_hash(id, len))];
}

int
scout_wait_lookup(struct scout_client *client, const struct scout_lookup *lookup, struct scout_hit *ret_hit)
{
	int rc;

	/* More than once only if a server was restarted just when it had answered. */
	while ((rc = scout_try_lookup(client, lookup, ret_hit)) == SCOUT_NOT_YET) {
		struct scout__slot *slot = slot_of(client, lookup->id);

		scout__client_push_on(client);
		if (client->cfg.spin_us)
			spin_on(slot, client->cfg.spin_us);
		while (is_pending(slot))
			sleep_on(slot, (uint64_t)client->cfg.lookup_poll_interval_ms * 1000);
	}
	return rc;
}

/* scout_try_lookup(), and what is left of the step's budget for its answer. */
static int
lookup_in_step(struct scout_client *client, const struct scout_lookup *lookup, struct scout_hit *ret_hit)
{
	int rc = scout_try_lookup(client, lookup, ret_hit);
	uint32_t left_us = client->in_step ? client->step_left_us : client->cfg.step_wait_us;
	uint64_t start_us, took_us;
	bool landed;

	if (rc != SCOUT_NOT_YET || left_us == 0)
		return rc;
	start_us = scout__now_us();
	scout__client_push_on(client);
	landed = scout__answer_await(client, slot_of(client, lookup->id), start_us + left_us);
	took_us = scout__now_us() - start_us;
	if (client->in_step)
		client->step_left_us = took_us < left_us ? left_us - (uint32_t)took_us : 0;
	return landed ? scout_try_lookup(client, lookup, ret_hit) : rc;
}

int
scout_lookup(struct scout_client *client, const struct scout_lookup *lookup, struct scout_hit *ret_hit)
{
	if (!client)
		return SCOUT_ERR_INVALID;
	return client->cfg.lookup_mode == SCOUT_LOOKUP_POLLED ? scout_wait_lookup(client, lookup, ret_hit)
							      : lookup_in_step(client, lookup, ret_hit);
}
