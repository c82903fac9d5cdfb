/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>
#include <stdlib.h>

#include "check_main.h"
#include "cuda_rig.h"
#include "pinning_of.h"

/* In which order a large pool's memory is pinned. */

#define REGIONS 6u
#define REGION_BYTES (UINT64_C(64) << 10)

static atomic_uint pins_asked, pins_allowed;

/* Of the pinning thread, again and again until it may. */
static bool
hold_pin(void *user)
{
	static unsigned asked;

	(void)user;
	if (asked != fake_cuda_counts().pins + 1) {
		asked = (unsigned)fake_cuda_counts().pins + 1;
		atomic_store(&pins_asked, asked);
	}
	return asked > atomic_load(&pins_allowed);
}

static void
nothing(void *user)
{
	(void)user;
}

/* Of a large pool that was there before: the regions that copies wait for, in the order of the copies. */
START_TEST(what_a_copy_waits_for_is_pinned_first)
{
	static const uint32_t order[REGIONS] = {0, 4, 2, 1, 3, 5};
	struct fake_cuda_options opt = options();
	uint8_t *pool = aligned_alloc(REGION_BYTES, REGIONS * REGION_BYTES);
	struct scout__cuda_memory memory;

	atomic_store(&pins_asked, 0);
	atomic_store(&pins_allowed, 0);
	opt.pin_gate = hold_pin;
	fake_cuda_start(&opt);
	ck_assert_int_eq(scout__cuda_memory_init(&memory, 0, REGION_BYTES, 1, nothing, NULL, &test_log), 0);
	for (uint32_t i = 0; i < REGIONS; i++) {
		struct scout__copy_memory one = {.base = pool + i * REGION_BYTES, .bytes = REGION_BYTES};

		ck_assert_int_eq(scout__cuda_memory_add(&memory, &one), 0);
		wait_until(atomic_load(&pins_asked) >= 1)
			; /* the first one is being pinned when others come */
	}
	ck_assert(scout__cuda_memory_wait_for(&memory, pool + 4 * REGION_BYTES + 1));
	ck_assert(scout__cuda_memory_wait_for(&memory, pool + 2 * REGION_BYTES));
	ck_assert(scout__cuda_memory_wait_for(&memory, pool + 4 * REGION_BYTES));
	for (uint32_t i = 0; i < REGIONS; i++) {
		atomic_store(&pins_allowed, i + 1);
		if (i + 1 < REGIONS)
			wait_until(atomic_load(&pins_asked) >= i + 2)
				; /* so this one is pinned, and no other */
		else
			wait_until(!scout__cuda_memory_wait_for(&memory, pool + order[i] * REGION_BYTES))
				;
		for (uint32_t k = 0; k < REGIONS; k++)
			ck_assert_int_eq(pinning_of(&memory, pool + order[k] * REGION_BYTES),
					 k <= i ? SCOUT__CUDA_PINNED : SCOUT__CUDA_PINNING);
	}
	ck_assert(!scout__cuda_memory_wait_for(&memory, pool));
	scout__cuda_memory_fini(&memory);
	ck_assert_uint_eq(fake_cuda_stop().violations, 0);
	free(pool);
}
END_TEST
