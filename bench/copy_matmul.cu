/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plain tiled matrix product: something that keeps every multiprocessor and the memory busy, to see what copies beside it cost.
 * Not fast as such things go, and it need not be: only its change is reported.
 */
#include <cuda_runtime.h>

#include "copy_matmul.h"

namespace
{

constexpr int tile = 64; /* of the result, for one block */
constexpr int depth = 16;
constexpr int each = 4; /* results of one thread, in each direction */
constexpr int side = tile / each;

} // namespace

extern "C" __global__ void __launch_bounds__(side *side)
copy_matmul_kernel(const float *a, const float *b, float *c, int n)
{
	__shared__ float as[depth][tile + 1], bs[depth][tile];
	int row = blockIdx.y * tile, column = blockIdx.x * tile;
	int x = threadIdx.x % side, y = threadIdx.x / side;
	float sums[each][each] = {};

	for (int k = 0; k < n; k += depth) {
		for (int i = threadIdx.x; i < tile * depth; i += side * side) {
			as[i % depth][i / depth] = a[(size_t)(row + i / depth) * n + k + i % depth];
			bs[i / tile][i % tile] = b[(size_t)(k + i / tile) * n + column + i % tile];
		}
		__syncthreads();
		for (int d = 0; d < depth; d++)
			for (int i = 0; i < each; i++)
				for (int j = 0; j < each; j++)
					sums[i][j] += as[d][y * each + i] * bs[d][x * each + j];
		__syncthreads();
	}
	for (int i = 0; i < each; i++)
		for (int j = 0; j < each; j++)
			c[(size_t)(row + y * each + i) * n + column + x * each + j] = sums[i][j];
}

extern "C" int
copy_matmul_launch(const float *a, const float *b, float *c, int n, void *stream)
{
	dim3 grid(n / tile, n / tile);

	copy_matmul_kernel<<<grid, side * side, 0, (cudaStream_t)stream>>>(a, b, c, n);
	return (int)cudaGetLastError();
}
