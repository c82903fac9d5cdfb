/* SPDX-License-Identifier: Apache-2.0 */
#include "layers_rig.h"

const uint32_t layers[3] = {2, 1, 2};

const uint32_t layer_begin[4] = {0, 2, 3, 5};

struct rig rig;

void
setup(void)
{
	static const uint64_t bytes[PLANES] = {61, 128, 1, 300, 64}, padding[PLANES] = {3, 0, 7, 0, 64};

	rig_init(&rig);
	rig_pages_init(&rig.pages[0], PLANES, bytes, padding, 64);
	rig_start(&rig);
}

void
teardown(void)
{
	host_gate_open();
	rig_stop(&rig);
	scout__copy_host_faults(NULL);
}

int
progress_of(uint64_t job, struct scout_progress *ret)
{
	*ret = (struct scout_progress){0};
	return scout_worker_progress(rig.workers[0], job, ret);
}

bool
plane_is(int64_t id, uint32_t p, uint32_t prompt, uint64_t block)
{
	for (uint64_t o = 0; o < rig.pages[0].planes[p].block_bytes; o++)
		if (rig_page(&rig.pages[0], p, id)[o] != rig_byte(prompt, 0, block, p, o))
			return false;
	return true;
}

static bool
plane_untouched(int64_t id, uint32_t p)
{
	for (uint64_t o = 0; o < rig.pages[0].planes[p].block_bytes; o++)
		if (rig_page(&rig.pages[0], p, id)[o] != RIG_CANARY)
			return false;
	return true;
}

void
assert_layers(const int64_t *ids, uint32_t prompt, uint32_t n)
{
	for (uint64_t b = 0; b < BLOCKS; b++)
		for (uint32_t p = 0; p < PLANES; p++) {
			if (p < layer_begin[n])
				ck_assert_msg(plane_is(ids[b], p, prompt, b), "block %u plane %u", (unsigned)b, p);
			else
				ck_assert_msg(plane_untouched(ids[b], p), "block %u plane %u", (unsigned)b, p);
		}
}
