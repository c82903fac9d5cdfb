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
	struct job job;

	w.seed = 11;
	world_make(&w, &shape, methods[i * 2]);
	job_in_order(&w, &job, SCOUT__COPY_LOAD);
	CUDA(gpu.mem_free(GPU(w.planes[0].base)));
	job_start(&w, &job);
	job_end(&w, &job, SCOUT_ERR_DEVICE);
	REQUIRE(job.batch.n_done < 2);
	job_start(&w, &job);
	job_end(&w, &job, SCOUT_ERR_DEVICE);
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
