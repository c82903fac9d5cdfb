/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: the one kernel. It moves the tiles of a span between slots (or their copies in a staging buffer) and the pages. tile.h says
 * what a tile is and how a group of lanes moves it; the CPU's tests walk that, too.
 *
 * Only scripts/kernels.sh compiles this file, for the GPU, into the PTX text cuda_kernel.ptx beside it. The PTX of one pinned compiler is
 * what every build has: each driver from 525 on takes it, and a machine without that compiler builds the same kernel. Where the CUDA
 * Toolkit is at hand, its ptxas makes machine code of that text.
 *
 * Small blocks, about one for each multiprocessor: the GPU belongs to the model. A block of 128 threads finds room where one of 512 does
 * not, and no multiprocessor gets much more of it than another, which a model's kernel would wait for. At 256-byte pieces one group has one
 * tile in flight at a time, some 0.3 GB/s of it; the 1024 groups of the usual grid are then well above what a PCIe link brings.
 */
#include "tile.h"

__attribute__((nvptx_kernel)) void
scout__cuda_move_tiles(const struct scout__tile_span span)
{
	uint32_t thread = __nvvm_read_ptx_sreg_tid_x();
	uint64_t of_block = __nvvm_read_ptx_sreg_ntid_x() / SCOUT__TILE_LANES;
	uint64_t group = __nvvm_read_ptx_sreg_ctaid_x() * of_block + thread / SCOUT__TILE_LANES;
	uint64_t n_groups = __nvvm_read_ptx_sreg_nctaid_x() * of_block;

	for (uint64_t t = group; t < span.n_tiles; t += n_groups)
		scout__tile_do(&span, t, thread % SCOUT__TILE_LANES);
}
