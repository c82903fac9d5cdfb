/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of kvscout-copy: they make and check the data on the GPU, and they are the work beside which copies are
 * measured. None of the latter is fast as such things go, and none need be: only their change is reported.
 */
#include <cuda_runtime.h>

#include "copy_kernels.h"

namespace
{

constexpr int tile = 64; /* of the result of the matrix product, for one block */
constexpr int depth = 16;
constexpr int each = 4; /* results of one thread, in each direction */
constexpr int side = tile / each;

constexpr int data_threads = 256, data_blocks = 2048;
constexpr int stream_threads = 512, stream_blocks = 4096;
/* Threads with so many registers that the engine's kernel finds no room beside them. */
constexpr int persistent_threads = 1024, sums = 40;
constexpr int small_threads = 256, small_rounds = 256;
/*
 * Rounds of the persistent kernel between two looks at its stop word, some 0.7 ms: a look waits for the link, which
 * copies keep busy.
 */
constexpr uint64_t look_rounds = 4000;

__device__ void
add_wrong(uint64_t *wrong, uint64_t count)
{
	if (count)
		atomicAdd((unsigned long long *)wrong, (unsigned long long)count);
}

__device__ uint64_t
now_ns()
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

/* A type that is not deduced: arguments are converted to what the kernel takes. */
template <typename T> struct exactly {
	typedef T type;
};

/* Returns the launch's own error: behind <<<>>> there is only the thread's last one, which an earlier call may have left. */
template <typename... Parameters>
int
launch(void (*kernel)(Parameters...), dim3 blocks, int threads, void *stream,
       typename exactly<Parameters>::type... values)
{
	void *arguments[] = {(void *)&values...};

	return (int)cudaLaunchKernel((const void *)kernel, blocks, dim3(threads), arguments, 0, (cudaStream_t)stream);
}

} // namespace

extern "C" __global__ void __launch_bounds__(data_threads)
copy_flat_kernel(enum copy_mode mode, uint64_t *memory, uint64_t words, uint64_t first, uint64_t *wrong)
{
	uint64_t count = 0;

	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < words; i += (uint64_t)gridDim.x * blockDim.x)
		count += copy_pattern_do(mode, memory + i, first + i);
	add_wrong(wrong, count);
}

extern "C" __global__ void __launch_bounds__(data_threads)
copy_pages_kernel(enum copy_mode mode, const __grid_constant__ struct copy_pages pages, uint64_t first, uint64_t end,
		  uint64_t *wrong)
{
	uint64_t count = 0;

	for (uint64_t i = first + (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < end;
	     i += (uint64_t)gridDim.x * blockDim.x)
		count += copy_pattern_do(mode, copy_pages_word(&pages, i), pages.first_word + i);
	add_wrong(wrong, count);
}

extern "C" __global__ void __launch_bounds__(side *side)
copy_matmul_kernel(const float *a, const float *b, float *c, int n)
{
	__shared__ float as[depth][tile + 1], bs[depth][tile];
	int row = blockIdx.y * tile, column = blockIdx.x * tile;
	int x = threadIdx.x % side, y = threadIdx.x / side;
	float results[each][each] = {};

	for (int k = 0; k < n; k += depth) {
		for (int i = threadIdx.x; i < tile * depth; i += side * side) {
			as[i % depth][i / depth] = a[(size_t)(row + i / depth) * n + k + i % depth];
			bs[i / tile][i % tile] = b[(size_t)(k + i / tile) * n + column + i % tile];
		}
		__syncthreads();
		for (int d = 0; d < depth; d++)
			for (int i = 0; i < each; i++)
				for (int j = 0; j < each; j++)
					results[i][j] += as[d][y * each + i] * bs[d][x * each + j];
		__syncthreads();
	}
	for (int i = 0; i < each; i++)
		for (int j = 0; j < each; j++)
			c[(size_t)(row + y * each + i) * n + column + x * each + j] = results[i][j];
}

extern "C" __global__ void __launch_bounds__(stream_threads)
copy_stream_kernel(const float4 *a, const float4 *b, float4 *c, uint64_t n)
{
	for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (uint64_t)gridDim.x * blockDim.x) {
		float4 x = a[i], y = b[i];

		c[i] = make_float4(x.x + 3 * y.x, x.y + 3 * y.y, x.z + 3 * y.z, x.w + 3 * y.w);
	}
}

extern "C" __global__ void __launch_bounds__(persistent_threads, 1)
copy_persistent_kernel(float *out, uint64_t rounds, const volatile uint32_t *stop)
{
	uint64_t until = now_ns() + (uint64_t)COPY_WATCHDOG_MS * 1000000;
	float sum[sums], total = 0, factor = 1.0f - 1e-6f * threadIdx.x;
	bool over = false;

	for (int i = 0; i < sums; i++)
		sum[i] = (float)(threadIdx.x + i);
	for (uint64_t round = 0; round < rounds && !over; round += look_rounds) {
		for (uint64_t k = 0; k < look_rounds; k++) {
#pragma unroll
			for (int i = 0; i < sums; i++)
				sum[i] = sum[i] * factor + 0.5f;
		}
		/* One thread looks over the link; all of the block leave together. */
		over = __syncthreads_or(threadIdx.x == 0 && (now_ns() > until || *stop != 0));
	}
	for (int i = 0; i < sums; i++)
		total += sum[i];
	out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = total;
}

extern "C" __global__ void __launch_bounds__(small_threads)
copy_small_kernel(float *out)
{
	float sum = (float)threadIdx.x;

	for (int k = 0; k < small_rounds; k++)
		sum = sum * 0.999f + 0.5f;
	out[(size_t)blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" int
copy_flat_launch(enum copy_mode mode, void *memory, uint64_t bytes, uint64_t first, uint64_t *wrong, void *stream)
{
	return launch(copy_flat_kernel, data_blocks, data_threads, stream, mode, (uint64_t *)memory, bytes / 8, first,
		      wrong);
}

extern "C" int
copy_pages_launch(enum copy_mode mode, const struct copy_pages *pages, uint64_t first, uint64_t end, uint64_t *wrong,
		  void *stream)
{
	return launch(copy_pages_kernel, data_blocks, data_threads, stream, mode, *pages, first, end, wrong);
}

extern "C" int
copy_matmul_launch(const float *a, const float *b, float *c, int n, void *stream)
{
	dim3 grid(n / tile, n / tile);

	return launch(copy_matmul_kernel, grid, side * side, stream, a, b, c, n);
}

extern "C" int
copy_stream_launch(const float *a, const float *b, float *c, uint64_t n, void *stream)
{
	return launch(copy_stream_kernel, stream_blocks, stream_threads, stream, (const float4 *)a, (const float4 *)b,
		      (float4 *)c, n / 4);
}

extern "C" int
copy_persistent_launch(float *out, int n_sms, uint64_t rounds, const uint32_t *stop, void *stream)
{
	return launch(copy_persistent_kernel, n_sms, persistent_threads, stream, out, rounds, stop);
}

extern "C" int
copy_small_launch(float *out, int n_blocks, void *stream)
{
	return launch(copy_small_kernel, n_blocks, small_threads, stream, out);
}
