/* SPDX-License-Identifier: Apache-2.0 */
#include "standin.h"

#include <stdlib.h>
#include <string.h>

/*
 * DESIGN
 *
 * Purpose: what is enqueued: copies, batches of them, kernels; and the modules that kernels come from.
 *
 * Single copies take the host's address of host memory. What is not registered the driver copies, too, but the caller waits until that
 * is done: it is counted as `pageable`, and a test can say that there is none. A batch and a kernel take the device's addresses.
 *
 * A batch is executed backwards: it has no order. Where it allows the source to be read ahead of its turn, that is done for every other
 * copy, so what is wrong with that shows.
 *
 * A module is PTX text, machine code or a fat binary that names the kernel; only what it names is found. PTX must give the kernel's
 * parameter the size that the structure has here.
 */

#define KERNEL "scout__cuda_move_tiles"
#define KERNEL_THREADS 1024u
#define FATBIN_MAGIC 0xBA55ED50u
#define EARLY_BYTES (256u << 10)
#define ELF_CUDA 190

struct standin_module {
	struct standin_module *next;
	struct standin_device *device;
	bool has_kernel;
	char function; /* its address is the handle */
};

/* ---- copies ---- */

/* @host: of the copy's two sides the host's; 0: none is. */
static int
push_copy(CUstream handle, struct standin_op *op, uintptr_t host)
{
	struct standin_stream *stream;
	bool captured, pageable;
	int rc = 0;

	stream = standin_stream_of(handle, &rc);
	rc = rc ? rc : standin_stream_take(stream, &captured);
	if (rc || op->bytes == 0)
		return rc;
	if (!op->to || (!op->from && op->kind == KIND_COPY))
		return DRIVER_INVALID_VALUE;
	if (captured)
		return standin_graph_add(stream->capture->graph, op);
	if (!host)
		return standin_push(stream, op);
	pageable = !standin_is_registered(host, op->bytes);
	if (pageable && !standin_is_mapped(host, op->bytes))
		return DRIVER_INVALID_VALUE;
	standin_add(COUNT_pageable, pageable);
	rc = standin_push(stream, op);
	return rc || !pageable ? rc : standin_drain(stream);
}

STANDIN_EXPORT CUresult
cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
	struct standin_op op = {.kind = KIND_COPY,
				.to = (uintptr_t)to,
				.from = (uintptr_t)from,
				.bytes = bytes,
				.by_host_address = true,
				.to_device = true};
	int rc = standin_enter(ENTRY_cuMemcpyHtoDAsync_v2, NEEDS_CONTEXT);

	return standin_leave(rc ? rc : push_copy(stream, &op, op.from));
}

STANDIN_EXPORT CUresult
cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	struct standin_op op = {.kind = KIND_COPY,
				.to = (uintptr_t)to,
				.from = (uintptr_t)from,
				.bytes = bytes,
				.by_host_address = true,
				.from_device = true};
	int rc = standin_enter(ENTRY_cuMemcpyDtoHAsync_v2, NEEDS_CONTEXT);

	return standin_leave(rc ? rc : push_copy(stream, &op, op.to));
}

STANDIN_EXPORT CUresult
cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
	struct standin_op op = {.kind = KIND_COPY, .to = (uintptr_t)to, .from = (uintptr_t)from, .bytes = bytes};
	int rc = standin_enter(ENTRY_cuMemcpyDtoDAsync_v2, NEEDS_CONTEXT);

	return standin_leave(rc ? rc : push_copy(stream, &op, 0));
}

STANDIN_EXPORT CUresult
cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream)
{
	struct standin_op op = {.kind = KIND_FILL, .to = (uintptr_t)to, .bytes = bytes, .byte = byte};
	int rc = standin_enter(ENTRY_cuMemsetD8Async, NEEDS_CONTEXT);

	return standin_leave(rc ? rc : push_copy(stream, &op, 0));
}

#if STANDIN_DRIVER >= 12080

struct batch {
	const CUdeviceptr *to, *from;
	const size_t *bytes;
	size_t n;
	const CUmemcpyAttributes *attributes;
	const size_t *indices;
	size_t n_attributes;
};

static bool
are_attributes_valid(const struct batch *batch)
{
	if (!batch->attributes || !batch->indices || batch->n_attributes == 0 || batch->n_attributes > batch->n ||
	    batch->indices[0] != 0)
		return false;
	for (size_t i = 0; i < batch->n_attributes; i++) {
		unsigned int order = batch->attributes[i].srcAccessOrder;

		if (order < DRIVER_ORDER_STREAM || order > DRIVER_ORDER_ANY || batch->attributes[i].flags > 1)
			return false;
		if (i > 0 && (batch->indices[i] <= batch->indices[i - 1] || batch->indices[i] >= batch->n))
			return false;
	}
	return true;
}

/* Returns the index of the first copy that cannot be one; batch->n: none. */
static size_t
first_invalid(const struct batch *batch)
{
	size_t i = 0;

	while (i < batch->n && batch->to[i] && batch->from[i] && batch->bytes[i] > 0)
		i++;
	return i;
}

/* The source's order of copy @i. */
static unsigned int
order_of(const struct batch *batch, size_t i)
{
	size_t k = batch->n_attributes - 1;

	while (batch->indices[k] > i)
		k--;
	return batch->attributes[k].srcAccessOrder;
}

/* Read a source now, where the batch allows it. */
static void *
read_early(const struct batch *batch, size_t i, const struct standin_device *device)
{
	unsigned int order = order_of(batch, i);
	uintptr_t from;
	bool is_host;
	void *bytes;

	if (order == DRIVER_ORDER_STREAM || (order == DRIVER_ORDER_ANY && (i % 2 || batch->bytes[i] > EARLY_BYTES)))
		return NULL;
	from = standin_resolve((uintptr_t)batch->from[i], batch->bytes[i], device, &is_host);
	bytes = from ? malloc(batch->bytes[i]) : NULL;
	if (!bytes)
		return NULL;
	standin_add(COUNT_read_early, 1);
	/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
	return memcpy(bytes, (const void *)from, batch->bytes[i]);
}

static int
push_batch(CUstream handle, const struct batch *batch, size_t *ret_failed)
{
	struct standin_stream *stream = NULL;
	bool captured = false;
	int rc = 0;

	*ret_failed = SIZE_MAX;
	/* The legacy stream is none for a batch. */
	if (!batch->to || !batch->from || !batch->bytes || batch->n == 0 || (uintptr_t)handle < 2)
		return DRIVER_INVALID_VALUE;
	if (!are_attributes_valid(batch))
		return DRIVER_INVALID_VALUE;
	if (first_invalid(batch) < batch->n) {
		*ret_failed = first_invalid(batch);
		return DRIVER_INVALID_VALUE;
	}
	stream = standin_stream_of(handle, &rc);
	rc = rc ? rc : standin_stream_take(stream, &captured);
	for (size_t i = batch->n; rc == 0 && !captured && i-- > 0;)
		rc = standin_push(stream, &(struct standin_op){.kind = KIND_COPY,
							       .to = (uintptr_t)batch->to[i],
							       .from = (uintptr_t)batch->from[i],
							       .bytes = batch->bytes[i],
							       .owned = read_early(batch, i, stream->device)});
	return rc;
}

static CUresult
leave_batch(int rc, size_t *ret_failed, size_t failed)
{
	standin_add(COUNT_refused, rc != 0);
	if (rc && ret_failed)
		*ret_failed = failed;
	return standin_leave(rc);
}

/* As of 12.8. */
STANDIN_EXPORT CUresult cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n,
					   CUmemcpyAttributes *attributes, size_t *indices, size_t n_attributes,
					   size_t *ret_failed, CUstream stream);

CUresult
cuMemcpyBatchAsync(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n, CUmemcpyAttributes *attributes,
		   size_t *indices, size_t n_attributes, size_t *ret_failed, CUstream stream)
{
	struct batch batch = {to, from, bytes, n, attributes, indices, n_attributes};
	size_t failed = SIZE_MAX;
	int rc = standin_enter(ENTRY_cuMemcpyBatchAsync, NEEDS_CONTEXT);

	rc = rc ? rc : push_batch(stream, &batch, &failed);
	return leave_batch(rc, ret_failed, failed);
}

#endif

#if STANDIN_DRIVER >= 13000

/* As of 13.0. */
STANDIN_EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n,
					      CUmemcpyAttributes *attributes, size_t *indices, size_t n_attributes,
					      CUstream stream);

CUresult
cuMemcpyBatchAsync_v2(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n, CUmemcpyAttributes *attributes,
		      size_t *indices, size_t n_attributes, CUstream stream)
{
	struct batch batch = {to, from, bytes, n, attributes, indices, n_attributes};
	size_t failed = SIZE_MAX;
	int rc = standin_enter(ENTRY_cuMemcpyBatchAsync_v2, NEEDS_CONTEXT);

	rc = rc ? rc : push_batch(stream, &batch, &failed);
	return leave_batch(rc, NULL, failed);
}

#endif

/* ---- modules ---- */

/* Whether PTX's text has the entry; *ret_rc: what is wrong with it. */
static bool
is_in_ptx(const char *text, int *ret_rc)
{
	const char *at = strstr(text, ".entry " KERNEL), *size;

	if (!strstr(text, ".version") || !strstr(text, ".target")) {
		*ret_rc = DRIVER_INVALID_PTX;
		return false;
	}
	if (!at || strspn(at + strlen(".entry " KERNEL), "( \t\r\n") == 0)
		return false;
	size = strstr(at, KERNEL "_param_0[");
	if (!size || strtoul(strchr(size, '[') + 1, NULL, 10) != sizeof(struct scout__tile_span))
		*ret_rc = DRIVER_INVALID_PTX;
	return *ret_rc == 0;
}

/* A fat binary: a magic, a version, the size of this head, the size of what follows. */
static bool
is_in_fatbin(const unsigned char *image)
{
	uint16_t head;
	uint64_t bytes;

	memcpy(&head, image + 6, sizeof(head));
	memcpy(&bytes, image + 8, sizeof(bytes));
	return memmem(image + head, bytes, KERNEL, strlen(KERNEL)) != NULL;
}

/* Machine code: an ELF file for this kind of machine, whose table of sections ends it. */
static bool
is_in_elf(const unsigned char *image, int *ret_rc)
{
	uint16_t machine, section_bytes, sections;
	uint64_t sections_at;

	memcpy(&machine, image + 18, sizeof(machine));
	memcpy(&sections_at, image + 40, sizeof(sections_at));
	memcpy(&section_bytes, image + 58, sizeof(section_bytes));
	memcpy(&sections, image + 60, sizeof(sections));
	if (machine != ELF_CUDA) {
		*ret_rc = DRIVER_NO_BINARY_FOR_GPU;
		return false;
	}
	return memmem(image, sections_at + (size_t)section_bytes * sections, KERNEL, strlen(KERNEL)) != NULL;
}

static int
look_into(const void *image, bool *ret_has_kernel)
{
	const char *text = image;
	uint32_t magic;
	int rc = 0;

	if (!image)
		return DRIVER_INVALID_VALUE;
	for (int i = 0; i < 4; i++) {
		if (!text[i])
			return DRIVER_INVALID_IMAGE;
	}
	memcpy(&magic, image, sizeof(magic));
	if (magic == FATBIN_MAGIC) {
		*ret_has_kernel = is_in_fatbin(image);
		return 0;
	}
	if (memcmp(image, "\177ELF", 4) == 0) {
		*ret_has_kernel = is_in_elf(image, &rc);
		return rc;
	}
	if (!strchr("/.\n\r\t ", text[0]))
		return DRIVER_INVALID_IMAGE;
	*ret_has_kernel = is_in_ptx(text, &rc);
	return rc;
}

static struct standin_module *
module_of(CUmodule handle, int *ret_rc)
{
	for (struct standin_module *m = standin.modules; m; m = m->next)
		if ((void *)m == (void *)handle)
			return m;
	*ret_rc = DRIVER_INVALID_HANDLE;
	return NULL;
}

static void
free_module(struct standin_module *module)
{
	struct standin_module **at = &standin.modules;

	while (*at != module)
		at = &(*at)->next;
	*at = module->next;
	free(module);
	standin.counts[COUNT_live]--;
}

void
standin_module_end_all(const struct standin_device *device)
{
	struct standin_module *module = standin.modules, *next;

	for (; module; module = next) {
		next = module->next;
		if (!device || module->device == device)
			free_module(module);
	}
}

STANDIN_EXPORT CUresult
cuModuleLoadData(CUmodule *ret_module, const void *image)
{
	struct standin_module *module = NULL;
	bool has_kernel = false;
	int rc = standin_enter(ENTRY_cuModuleLoadData, NEEDS_CONTEXT | IS_UNSAFE);

	rc = rc ? rc : ret_module ? look_into(image, &has_kernel) : DRIVER_INVALID_VALUE;
	if (rc == 0) {
		module = calloc(1, sizeof(*module));
		rc = module ? 0 : DRIVER_OUT_OF_MEMORY;
	}
	if (rc == 0) {
		module->device = standin_current();
		module->has_kernel = has_kernel;
		module->next = standin.modules;
		standin.modules = module;
		standin_add(COUNT_live, 1);
		*ret_module = (CUmodule)(void *)module;
	}
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuModuleUnload(CUmodule handle)
{
	struct standin_module *module = NULL;
	int rc = standin_enter(ENTRY_cuModuleUnload, NEEDS_CONTEXT | IS_UNSAFE);

	if (rc == 0)
		module = module_of(handle, &rc);
	rc = rc ? rc : standin_drain_device(module->device);
	if (rc == 0)
		free_module(module);
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuModuleGetFunction(CUfunction *ret_function, CUmodule handle, const char *name)
{
	struct standin_module *module = NULL;
	int rc = standin_enter(ENTRY_cuModuleGetFunction, NEEDS_CONTEXT);

	rc = rc ? rc : ret_function && name ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		module = module_of(handle, &rc);
	if (rc == 0 && (!module->has_kernel || strcmp(name, KERNEL) != 0))
		rc = DRIVER_NOT_FOUND;
	if (rc == 0)
		*ret_function = (CUfunction)(void *)&module->function;
	return standin_leave(rc);
}

/* ---- kernels ---- */

static bool
is_function(CUfunction handle, const struct standin_device *device)
{
	for (const struct standin_module *m = standin.modules; m; m = m->next)
		if ((const void *)&m->function == (const void *)handle)
			return m->device == device;
	return false;
}

static int
push_kernel(CUstream handle, const struct scout__tile_span *span, uint32_t blocks, uint32_t threads)
{
	struct standin_launch *launch;
	struct standin_stream *stream;
	bool captured = false;
	int rc = 0;

	stream = standin_stream_of(handle, &rc);
	rc = rc ? rc : standin_stream_take(stream, &captured);
	if (rc)
		return rc;
	launch = malloc(sizeof(*launch));
	if (!launch)
		return DRIVER_OUT_OF_MEMORY;
	*launch = (struct standin_launch){.span = *span, .blocks = blocks, .threads = threads};
	if (captured)
		return standin_graph_add(stream->capture->graph,
					 &(struct standin_op){.kind = KIND_KERNEL, .launch = launch});
	return standin_push(stream, &(struct standin_op){.kind = KIND_KERNEL, .launch = launch});
}

STANDIN_EXPORT CUresult
cuLaunchKernel(CUfunction function, unsigned int blocks, unsigned int blocks_y, unsigned int blocks_z,
	       unsigned int threads, unsigned int threads_y, unsigned int threads_z, unsigned int shared_bytes,
	       CUstream stream, void **parameters, void **extra)
{
	int rc = standin_enter(ENTRY_cuLaunchKernel, NEEDS_CONTEXT);

	(void)shared_bytes;
	if (rc == 0 && !is_function(function, standin_current()))
		rc = DRIVER_INVALID_HANDLE;
	if (rc == 0 && (blocks == 0 || blocks_y != 1 || blocks_z != 1 || threads == 0 || threads > KERNEL_THREADS ||
			threads_y != 1 || threads_z != 1))
		rc = DRIVER_INVALID_VALUE;
	if (rc == 0 && (!parameters || !parameters[0] || extra))
		rc = DRIVER_INVALID_VALUE;
	return standin_leave(rc ? rc : push_kernel(stream, parameters[0], blocks, threads));
}
