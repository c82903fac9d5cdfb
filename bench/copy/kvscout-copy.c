/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvscout-copy measures the copy engine: on plain memory (copy_host.c) and on a GPU (copy_run.c). It needs libc, pthreads and the CUDA
 * runtime that is linked statically, so that it runs on a bare GPU machine: hence the JSON by hand.
 */
#include <string.h>

#include "copy_tool.h"
#include "say.h"

int
main(int argc, char **argv)
{
	struct copy_options opt;

	say_begin("kvscout-copy");
	copy_options_parse(argc, argv, &opt);
	return strcmp(opt.backend, "cuda") == 0 ? copy_cuda_run(&opt) : copy_host_run(&opt);
}
