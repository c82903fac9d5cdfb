/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one kernel: moves the tiles of a span between a slot (or its copy in a staging buffer) and the pages. What a tile is and
 * how a group of lanes moves it stands in tile.h, which the CPU's tests walk too.
 *
 * Blocks of 512 threads and few of them: the GPU belongs to the model. At 256-byte pieces one group has one tile in flight at
 * a time, some 0.3 GB/s of it; 512 groups (16 blocks) are then well above what a PCIe link brings.
 */
#include <cuda_runtime.h>

#include "cuda_kernels.h"

namespace
{

constexpr uint32_t threads_per_block = 512;
constexpr uint32_t groups_per_block = threads_per_block / SCOUT__TILE_LANES;

} // namespace

/* A C name, because nvcc makes it a global symbol of the archive. */
extern "C" __global__ void __launch_bounds__(threads_per_block)
scout__cuda_move_tiles(const __grid_constant__ struct scout__tile_span span)
{
	uint64_t group = (uint64_t)blockIdx.x * groups_per_block + threadIdx.x / SCOUT__TILE_LANES;
	uint64_t n_groups = (uint64_t)gridDim.x * groups_per_block;

	for (uint64_t t = span.first_tile + group; t < span.end_tile; t += n_groups)
		scout__tile_do(&span, t, threadIdx.x % SCOUT__TILE_LANES);
}

extern "C" int
scout__cuda_load_tiles(void)
{
	cudaFuncAttributes attributes;

	return (int)cudaFuncGetAttributes(&attributes, (const void *)scout__cuda_move_tiles);
}

extern "C" int
scout__cuda_launch_tiles(const struct scout__tile_span *span, uint32_t n_groups, void *stream)
{
	static_assert(sizeof(*span) <= 4096, "parameters of a launch");
	uint64_t tiles = span->end_tile - span->first_tile;
	uint64_t wanted = tiles < n_groups ? tiles : n_groups;
	uint32_t blocks = (uint32_t)((wanted + groups_per_block - 1) / groups_per_block);
	void *arguments[] = {const_cast<struct scout__tile_span *>(span)};

	/* Not <<<>>>, whose error is the thread's last one, which an earlier call may have left. */
	return (int)cudaLaunchKernel((const void *)scout__cuda_move_tiles, dim3(blocks), dim3(threads_per_block),
				     arguments, 0, (cudaStream_t)stream);
}
