/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: every byte that is copied on a GPU is verified. Kernels of this tool (copy_pattern.h) spoil the destination
 * before a copy and check it after; slots are checked by sending them to the GPU in one piece. The CPU compares the
 * slots itself once per point and method. Copying all back and comparing it on the CPU each time took ten times as
 * long as the copies.
 */
#include <string.h>

#include "copy_gpu_world.h"

void
copy_world_prepare(struct copy_world *w, unsigned int way, enum copy_course course)
{
	struct copy_share bytes = copy_world_share_bytes(w, course);

	if (way == COPY_CONTIGUOUS) {
		CHECK(w->gpu->flat(COPY_SPOIL, w->flat, bytes.up, 0, w->wrong, w->work));
		CHECK(w->gpu->flat(COPY_FILL, w->flat + bytes.up, bytes.down, bytes.up / 8, w->wrong, w->work));
		if (bytes.down)
			CHECK(scout__cuda_api_copy(w->host_flat + bytes.up, w->spoiled + bytes.up, bytes.down, false,
						   w->work));
	}
	for (uint32_t g = 0; g < w->n_groups && way != COPY_CONTIGUOUS; g++) {
		const struct copy_group *group = &w->groups[g];
		struct copy_share items = copy_world_share(w, g, course);
		uint64_t words = group->slot_bytes / 8, first = group->n_items - items.down;

		CHECK(w->gpu->pages(COPY_SPOIL, &group->pages, 0, items.up * words, w->wrong, w->work));
		CHECK(w->gpu->pages(COPY_FILL, &group->pages, first * words, group->n_items * words, w->wrong,
				    w->work));
		for (uint64_t i = first; i < group->n_items; i++)
			CHECK(scout__cuda_api_copy(copy_world_slot(w, way, g, i),
						   w->spoiled + (group->first_word + i * words) * 8, group->slot_bytes,
						   false, w->work));
	}
	/* The layers of a save are computed. */
	for (unsigned int l = 0; l < COPY_MAX_PLANES; l++)
		CHECK(scout__cuda_api_event_record(w->layer_events[1][l], w->work));
	copy_world_wait(w->work, w->mark_up);
}

static uint64_t
count_on_cpu(const uint8_t *memory, uint64_t bytes, uint64_t first_word)
{
	uint64_t wrong = 0;

	for (uint64_t k = 0; k < bytes / 8; k++) {
		uint64_t word;

		memcpy(&word, memory + k * 8, sizeof(word));
		wrong += copy_pattern_do(COPY_CHECK, &word, first_word + k);
	}
	return wrong;
}

/* Slots and pages of one group. Returns what the CPU finds; the GPU adds to its counter. */
static uint64_t
verify_group(struct copy_world *w, unsigned int way, uint32_t g, enum copy_course course, bool by_cpu)
{
	const struct copy_group *group = &w->groups[g];
	struct copy_share items = copy_world_share(w, g, course);
	uint64_t words = group->slot_bytes / 8, first = group->n_items - items.down, wrong = 0;

	CHECK(w->gpu->pages(COPY_CHECK, &group->pages, 0, items.up * words, w->wrong, w->work));
	for (uint64_t i = first; i < group->n_items; i++) {
		uint64_t word = group->first_word + i * words;

		CHECK(scout__cuda_api_copy(w->flat + word * 8, copy_world_slot(w, way, g, i), group->slot_bytes, true,
					   w->work));
		if (by_cpu)
			wrong += count_on_cpu(copy_world_slot(w, way, g, i), group->slot_bytes, word);
	}
	if (items.down)
		CHECK(w->gpu->flat(COPY_CHECK, w->flat + (group->first_word + first * words) * 8,
				   items.down * group->slot_bytes, group->first_word + first * words, w->wrong,
				   w->work));
	return wrong;
}

uint64_t
copy_world_verify(struct copy_world *w, unsigned int way, enum copy_course course, bool by_cpu)
{
	struct copy_share bytes = copy_world_share_bytes(w, course);
	uint64_t by_this_cpu = 0;

	CHECK(scout__cuda_api_copy(w->wrong, w->host_wrong + 1, sizeof(*w->wrong), true, w->work));
	if (way == COPY_CONTIGUOUS) {
		CHECK(w->gpu->flat(COPY_CHECK, w->flat, bytes.up, 0, w->wrong, w->work));
		if (bytes.down)
			CHECK(scout__cuda_api_copy(w->flat + bytes.up, w->host_flat + bytes.up, bytes.down, true,
						   w->work));
		CHECK(w->gpu->flat(COPY_CHECK, w->flat + bytes.up, bytes.down, bytes.up / 8, w->wrong, w->work));
		if (by_cpu)
			by_this_cpu = count_on_cpu(w->host_flat + bytes.up, bytes.down, bytes.up / 8);
	}
	for (uint32_t g = 0; g < w->n_groups && way != COPY_CONTIGUOUS; g++)
		by_this_cpu += verify_group(w, way, g, course, by_cpu);
	CHECK(scout__cuda_api_copy(w->host_wrong, w->wrong, sizeof(*w->wrong), false, w->work));
	copy_world_wait(w->work, w->mark_up);
	return w->host_wrong[0] > by_this_cpu ? w->host_wrong[0] : by_this_cpu;
}
