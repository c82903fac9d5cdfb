/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes a real GPU fail on purpose. `./dev gpu` runs it alone and behind everything that is measured, since a fault may be felt by
 * other processes on the device.
 */
#include "gpu_world.h"

static struct world w;

static void
memory_freed_under_a_retrieve_fails_the_device_and_not_the_process(int i)
{
	static const struct shape shape = {1, 16, 2, {4 << 20, 4 << 20, 4 << 20}, {0, 0, 0}};
	int64_t ids[16 * 2];
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch = {.direction = SCOUT__COPY_LOAD, .n = 2, .items = items};

	w.seed = 11;
	world_make(&w, &shape, methods[i * 2]);
	for (int64_t k = 0; k < 16 * 2; k++)
		ids[k] = k;
	items_of(&w, items, ids);
	CUDA(cudaFree(w.planes[0].base));
	REQUIRE(ops->start(w.engine, &batch) == 0);
	REQUIRE(next_ended(&w) == &batch);
	REQUIRE(batch.status == SCOUT_ERR_DEVICE && batch.n_done < 2);
	REQUIRE(ops->start(w.engine, &batch) == 0);
	REQUIRE(next_ended(&w) == &batch && batch.status == SCOUT_ERR_DEVICE);
	ops->close(w.engine);
}

static const struct gpu_case cases[] = {
	{"memory_freed_under_a_retrieve_fails_the_device_and_not_the_process",
	 memory_freed_under_a_retrieve_fails_the_device_and_not_the_process, 2},
};

int
main(int argc, char **argv)
{
	return world_main(argc, argv, cases, (int)(sizeof(cases) / sizeof(cases[0])));
}
