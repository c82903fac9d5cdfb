/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend on the driver. Threads: as struct scout__copy_ops says. */
#include "copy_backends.h"
#include "cuda_engine.h"

static int
backend_probe(int32_t device, char *err, size_t err_len)
{
	return scout__cuda_probe(&scout__cuda_api, device, err, err_len);
}

static bool
backend_claims(const struct scout__copy_layout *layout)
{
	return scout__cuda_claims(&scout__cuda_api, layout);
}

static bool
backend_bus_id(const struct scout__copy_layout *layout, char *ret_id, size_t len)
{
	return scout__cuda_bus_id(&scout__cuda_api, layout, ret_id, len);
}

static int
backend_open(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len)
{
	return scout__cuda_open(&scout__cuda_api, cfg, ret_engine, err, err_len);
}

const struct scout__copy_ops scout__copy_cuda = {
	.name = "cuda",
	.probe = backend_probe,
	.claims = backend_claims,
	.bus_id = backend_bus_id,
	.open = backend_open,
	.close = scout__cuda_close,
	.add_memory = scout__cuda_add_memory,
	.remove_memory = scout__cuda_remove_memory,
	.start = scout__cuda_start,
	.poll = scout__cuda_poll,
	.fd = scout__cuda_fd,
	.fence = scout__cuda_fence,
};
