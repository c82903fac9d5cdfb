/* SPDX-License-Identifier: Apache-2.0 */
/* kvscout-copy in a build without CUDA. */
#include "copy_tool.h"
#include "say.h"

int
copy_cuda_run(const struct copy_options *opt)
{
	copy_die(EXIT_NOT_HERE, "backend %s: SCOUT_ERR_UNSUPPORTED: not in this build", opt->backend);
}

int
copy_cuda_devices(void)
{
	say("no CUDA device: not in this build\n");
	return EXIT_NOT_HERE;
}
