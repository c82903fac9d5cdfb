/* SPDX-License-Identifier: Apache-2.0 */
#include "gpu_vmm.h"

#include <dlfcn.h>

#include <cuda.h>

#include "gpu_test.h"

void *
plain_alloc(uint64_t bytes)
{
	void *p = NULL;

	CUDA(cudaMalloc(&p, bytes));
	return p;
}

cudaStream_t
new_stream(void)
{
	cudaStream_t stream;

	CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	return stream;
}

cudaEvent_t
new_event(void)
{
	cudaEvent_t event;

	CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
	return event;
}

void
keep_busy(cudaStream_t stream)
{
	static void *big;

	if (!big)
		CUDA(cudaMalloc(&big, 1 << 30));
	for (int n = 0; n < 40; n++)
		CUDA(cudaMemsetAsync(big, n, 1 << 30, stream));
}

/* The driver's functions for it, which the runtime has no names for. */
static struct {
	CUresult (*granularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
	CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
	CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
	CUresult (*set_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
} vmm;

static void
load_symbol(void *library, const char *name, void *ret_function)
{
	void *symbol = dlsym(library, name);

	REQUIRE(symbol);
	memcpy(ret_function, &symbol, sizeof(symbol));
}

static void
load_vmm(void)
{
	void *library;

	CUDA(cudaFree(NULL)); /* the runtime's context, and with it the driver */
	library = dlopen("libcuda.so.1", RTLD_NOW);
	REQUIRE(library);
	load_symbol(library, "cuMemGetAllocationGranularity", &vmm.granularity);
	load_symbol(library, "cuMemAddressReserve", &vmm.reserve);
	load_symbol(library, "cuMemCreate", &vmm.create);
	load_symbol(library, "cuMemMap", &vmm.map);
	load_symbol(library, "cuMemSetAccess", &vmm.set_access);
}

void *
vmm_alloc(uint64_t bytes)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	size_t granule = 0, span;
	CUdeviceptr base = 0;

	if (!vmm.map)
		load_vmm();
	REQUIRE(vmm.granularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS);
	span = (bytes + granule - 1) / granule * granule;
	REQUIRE(vmm.reserve(&base, span, 0, 0, 0) == CUDA_SUCCESS);
	for (size_t at = 0; at < span; at += granule) {
		CUresult rc = vmm.create(&handle, granule, &prop, 0);

		if (rc == CUDA_ERROR_NOT_SUPPORTED) {
			printf("# this device has no virtual memory management\n");
			fflush(stdout);
			_exit(GPU_SKIP);
		}
		REQUIRE(rc == CUDA_SUCCESS);
		REQUIRE(vmm.map(base + at, granule, 0, handle, 0) == CUDA_SUCCESS);
	}
	REQUIRE(vmm.set_access(base, span, &access, 1) == CUDA_SUCCESS);
	return (void *)(uintptr_t)base;
}
