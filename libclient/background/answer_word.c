/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How a caller sleeps until its slot's answer lands: it sleeps on the slot's answer word (a futex), and the courier wakes it. The caller
 * still looks by itself every lookup_poll_interval_ms, so a lost wake costs at most one interval.
 *
 * With spin_us the caller spins for that long before it first sleeps, and yields the core now and then: the answer comes from other
 * threads, which may have no other core.
 *
 * The caller parks as doorbell.h says, on the slot's word `sleeping`. The courier stores the answer (release) and wakes it.
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
	struct timespec timeout = scout__timespec(us);

	scout__park(&slot->sleeping);
	if (is_pending(slot))
		(void)syscall(SYS_futex, &slot->answer, FUTEX_WAIT_PRIVATE, SCOUT__PENDING, &timeout, NULL, 0);
	scout__awake(&slot->sleeping);
}

/* Tell the processor that this loop waits: the other hardware thread of the core, if there is one, then runs faster. */
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
