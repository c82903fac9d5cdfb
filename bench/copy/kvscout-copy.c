/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: kvscout-copy measures the copy engine, on plain memory (copy_host.c) and on a GPU (copy_run.c). The floor
 * is one contiguous copy of the same bytes in the same round. It needs libc, pthreads and CUDA's driver
 * only, which it finds at run time, so that it runs on a bare GPU machine: hence the JSON by hand.
 *
 * Threads: main; the copy engine's. On a GPU a second process measures.
 */
#include <string.h>

#include "copy_tool.h"

int
main(int argc, char **argv)
{
	struct copy_options opt;
	int status;

	if (!copy_options_parse(&opt, argc, argv, &status))
		return status;
	return strcmp(opt.backend, "cuda") == 0 ? copy_cuda_run(&opt) : copy_host_run(&opt);
}
