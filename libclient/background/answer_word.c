/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Sleeping until a slot's answer lands: the caller sleeps on the slot's answer word (a futex), the courier wakes it. The caller looks by
 * itself every lookup_poll_interval_ms all the same, so that a lost wake costs one interval and no more.
 *
 * With spin_us it looks for that long before it first sleeps, and yields the core now and then: the answer comes from other threads,
 * which may have no other one.
 *
 * It parks as doorbell.h says, on the slot's word `sleeping`; the courier stores the answer (release) and makes the futex wake.
 */
#include "answer_word.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "clock.h"
#include "doorbell.h"

#define LOOKS_PER_CLOCK 32u /* between two looks at the clock, and two yields, when spinning */

/* The kernel's futex word is 32 bits, and so is atomic_uint on every platform that we build for. */
_Static_assert(sizeof(atomic_uint) == 4, "a futex is 32 bits");

void
scout__answer_wake(struct scout__lookup_slot *slot)
{
	if (scout__unpark(&slot->sleeping))
		(void)syscall(SYS_futex, &slot->answer, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool
is_pending(const struct scout__lookup_slot *slot)
{
	return atomic_load_explicit(&slot->answer, memory_order_acquire) == SCOUT__PENDING;
}

static void
sleep_on(struct scout__lookup_slot *slot, uint64_t us)
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
spin_on(const struct scout__lookup_slot *slot, uint32_t spin_us)
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
scout__answer_await(const struct scout_client *client, struct scout__lookup_slot *slot, uint64_t until_us)
{
	uint64_t interval_us = (uint64_t)client->cfg.lookup_poll_interval_ms * 1000, now_us = scout__now_us();

	if (client->cfg.spin_us && now_us < until_us && is_pending(slot))
		spin_on(slot,
			until_us - now_us < client->cfg.spin_us ? (uint32_t)(until_us - now_us) : client->cfg.spin_us);
	while (is_pending(slot) && (now_us = scout__now_us()) < until_us)
		sleep_on(slot, until_us - now_us < interval_us ? until_us - now_us : interval_us);
	return !is_pending(slot);
}
