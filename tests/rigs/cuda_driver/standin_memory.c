/* SPDX-License-Identifier: Apache-2.0 */
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/*
 * DESIGN
 *
 * Purpose: which address is what. Device memory is what was allocated here or declared by a test, at the same address for the host.
 *
 * With the knob ALL every mapped address that is not registered counts as memory of device 0: so the KV cache of an engine that runs on
 * the CPU lies "on the GPU".
 *
 * Registered memory has the host's address on the device, too; with the knob ALIAS it has another one, as on devices that cannot use
 * the host's. An access that leaves its range is illegal, also where the next range begins there: so the driver has it for copies.
 */

#define ALLOCATION_ALIGN 512u

/* ---- looking up ---- */

struct standin_range *
standin_range_find(uintptr_t p)
{
	for (size_t i = 0; i < standin.n_ranges; i++)
		if (p - standin.ranges[i].base < standin.ranges[i].bytes)
			return &standin.ranges[i];
	return NULL;
}

bool
standin_is_mapped(uintptr_t p, size_t bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = p / page * page;

	/* Writes nothing, but fails where something is not mapped. NOLINTNEXTLINE(performance-no-int-to-ptr) */
	return p && p + bytes >= p && msync((void *)first, p + bytes - first, MS_ASYNC) == 0;
}

static bool
holds(const struct standin_range *range, uintptr_t p, size_t bytes)
{
	return bytes <= range->bytes && p - range->base <= range->bytes - bytes;
}

bool
standin_is_registered(uintptr_t host, size_t bytes)
{
	const struct standin_range *range = standin_range_find(host);

	return range && (range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED) && holds(range, host, bytes);
}

uintptr_t
standin_resolve(uintptr_t address, size_t bytes, const struct standin_device *device, bool *ret_is_host)
{
	const struct standin_range *range = standin_range_find(address);

	*ret_is_host = false;
	if (standin.knobs.alias && !range) {
		range = standin_range_find(address - ALIAS);
		*ret_is_host = true;
		return range && range->kind == RANGE_REGISTERED && holds(range, address - ALIAS, bytes)
			       ? address - ALIAS
			       : 0;
	}
	if (!range)
		return standin.knobs.all && device->ordinal == 0 && standin_is_mapped(address, bytes) ? address : 0;
	if (!holds(range, address, bytes))
		return 0;
	*ret_is_host = range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED;
	if (*ret_is_host)
		return standin.knobs.alias && range->kind == RANGE_REGISTERED ? 0 : address;
	return range->device == device->ordinal ? address : 0;
}

/* ---- keeping ---- */

static int
add_range(uintptr_t base, size_t bytes, enum standin_range_kind kind, int device)
{
	if (standin.n_ranges == standin.cap_ranges) {
		size_t cap = standin.cap_ranges ? standin.cap_ranges * 2 : 64;
		struct standin_range *more = realloc(standin.ranges, cap * sizeof(*more));

		if (!more)
			return DRIVER_OUT_OF_MEMORY;
		standin.ranges = more;
		standin.cap_ranges = cap;
	}
	standin.ranges[standin.n_ranges++] = (struct standin_range){base, bytes, kind, device};
	standin_add(COUNT_live, kind != RANGE_DECLARED);
	return 0;
}

static void
forget_range(struct standin_range *range)
{
	standin.counts[COUNT_live] -= range->kind != RANGE_DECLARED;
	*range = standin.ranges[--standin.n_ranges];
}

/* The range of that kind that begins there. */
static struct standin_range *
range_at(uintptr_t base, enum standin_range_kind kind)
{
	struct standin_range *range = standin_range_find(base);

	return range && range->base == base && range->kind == kind ? range : NULL;
}

/* Memory of ours, that nothing uses any more. */
static void
free_range(struct standin_range *range)
{
	if (range->kind == RANGE_ALLOCATED)
		standin.devices[range->device].allocated -= range->bytes;
	if (range->kind == RANGE_ALLOCATED || range->kind == RANGE_HOST)
		free((void *)range->base); /* NOLINT(performance-no-int-to-ptr) */
	forget_range(range);
}

void
standin_memory_end(const struct standin_device *device)
{
	size_t i = 0;

	while (i < standin.n_ranges) {
		struct standin_range *range = &standin.ranges[i];

		if (!device || (range->kind != RANGE_DECLARED && range->device == device->ordinal))
			free_range(range);
		else
			i++;
	}
	if (device)
		return;
	free(standin.ranges);
	standin.ranges = NULL;
	standin.cap_ranges = 0;
}

STANDIN_EXPORT void
standin_declare(const void *p, size_t bytes, int device)
{
	(void)pthread_mutex_lock(&standin.mu);
	if (device >= 0) {
		if (add_range((uintptr_t)p, bytes, RANGE_DECLARED, device) != 0)
			abort();
	} else {
		struct standin_range *range = range_at((uintptr_t)p, RANGE_DECLARED);

		if (range)
			forget_range(range);
	}
	(void)pthread_mutex_unlock(&standin.mu);
}

/* ---- allocations ---- */

/* As the driver's, not zeroed. */
static void *
allocate(size_t bytes)
{
	size_t rounded = (bytes + ALLOCATION_ALIGN - 1) / ALLOCATION_ALIGN * ALLOCATION_ALIGN;

	return rounded < bytes ? NULL : aligned_alloc(ALLOCATION_ALIGN, rounded);
}

STANDIN_EXPORT CUresult
cuMemAlloc_v2(CUdeviceptr *ret_p, size_t bytes)
{
	struct standin_device *device = standin_current();
	int rc = standin_enter(ENTRY_cuMemAlloc_v2, NEEDS_CONTEXT | IS_UNSAFE);
	void *p = NULL;

	rc = rc ? rc : !ret_p || bytes == 0 ? DRIVER_INVALID_VALUE : 0;
	if (rc == 0 && bytes > standin.knobs.memory - device->allocated)
		rc = DRIVER_OUT_OF_MEMORY;
	if (rc == 0) {
		p = allocate(bytes);
		rc = p ? add_range((uintptr_t)p, bytes, RANGE_ALLOCATED, device->ordinal) : DRIVER_OUT_OF_MEMORY;
	}
	if (rc) {
		free(p);
		return standin_leave(rc);
	}
	device->allocated += bytes;
	*ret_p = (uintptr_t)p;
	return standin_leave(0);
}

/* Waits for the device, as the driver does. */
STANDIN_EXPORT CUresult
cuMemFree_v2(CUdeviceptr p)
{
	int rc = standin_enter(ENTRY_cuMemFree_v2, NEEDS_CONTEXT | IS_UNSAFE);

	if (rc || p == 0)
		return standin_leave(rc);
	if (!range_at((uintptr_t)p, RANGE_ALLOCATED))
		return standin_leave(DRIVER_INVALID_VALUE);
	rc = standin_drain_device(&standin.devices[range_at((uintptr_t)p, RANGE_ALLOCATED)->device]);
	if (rc == 0)
		free_range(range_at((uintptr_t)p, RANGE_ALLOCATED));
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	const struct standin_device *device = standin_current();
	int rc = standin_enter(ENTRY_cuMemGetInfo_v2, NEEDS_CONTEXT);

	rc = rc ? rc : ret_free && ret_total ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0) {
		*ret_free = standin.knobs.memory - device->allocated;
		*ret_total = standin.knobs.memory;
	}
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuMemHostAlloc(void **ret_p, size_t bytes, unsigned int flags)
{
	const struct standin_device *device = standin_current();
	int rc = standin_enter(ENTRY_cuMemHostAlloc, NEEDS_CONTEXT | IS_UNSAFE);
	void *p = NULL;

	rc = rc ? rc : !ret_p || bytes == 0 || flags > 7 ? DRIVER_INVALID_VALUE : 0;
	if (rc == 0) {
		p = allocate(bytes);
		rc = p ? add_range((uintptr_t)p, bytes, RANGE_HOST, device->ordinal) : DRIVER_OUT_OF_MEMORY;
	}
	if (rc)
		free(p);
	else
		*ret_p = p;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuMemFreeHost(void *p)
{
	struct standin_range *range;
	int rc = standin_enter(ENTRY_cuMemFreeHost, NEEDS_CONTEXT | IS_UNSAFE);

	range = range_at((uintptr_t)p, RANGE_HOST);
	rc = rc ? rc : range ? 0 : DRIVER_INVALID_VALUE;
	rc = rc ? rc : standin_drain_device(&standin.devices[range->device]);
	range = range_at((uintptr_t)p, RANGE_HOST);
	if (rc == 0 && range)
		free_range(range);
	return standin_leave(rc);
}

/*
 * ---- virtual memory ----
 *
 * Reserved addresses have memory at once, and are a device's from when they may be accessed.
 */

#define GRANULE (UINT64_C(2) << 20)

STANDIN_EXPORT CUresult
cuMemGetAllocationGranularity(size_t *ret_bytes, const CUmemAllocationProp *prop,
			      CUmemAllocationGranularity_flags which)
{
	int rc = standin_enter(ENTRY_cuMemGetAllocationGranularity, NEEDS_INIT);

	(void)which;
	rc = rc ? rc : ret_bytes && prop ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		*ret_bytes = GRANULE;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuMemAddressReserve(CUdeviceptr *ret_p, size_t bytes, size_t alignment, CUdeviceptr at, unsigned long long flags)
{
	int rc = standin_enter(ENTRY_cuMemAddressReserve, NEEDS_CONTEXT | IS_UNSAFE);
	void *base = MAP_FAILED;

	rc = rc ? rc : ret_p && bytes && bytes % GRANULE == 0 && !alignment && !at && !flags ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	rc = rc ? rc : base == MAP_FAILED ? DRIVER_OUT_OF_MEMORY : 0;
	if (rc == 0)
		*ret_p = (uintptr_t)base;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t bytes, const CUmemAllocationProp *prop,
	    unsigned long long flags)
{
	int rc = standin_enter(ENTRY_cuMemCreate, NEEDS_CONTEXT | IS_UNSAFE);

	rc = rc ? rc : ret_handle && prop && bytes && bytes % GRANULE == 0 && !flags ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		*ret_handle = bytes;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuMemMap(CUdeviceptr p, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	int rc = standin_enter(ENTRY_cuMemMap, NEEDS_CONTEXT | IS_UNSAFE);

	return standin_leave(rc ? rc : p && bytes == handle && !offset && !flags ? 0 : DRIVER_INVALID_VALUE);
}

STANDIN_EXPORT CUresult
cuMemSetAccess(CUdeviceptr p, size_t bytes, const CUmemAccessDesc *access, size_t n)
{
	int rc = standin_enter(ENTRY_cuMemSetAccess, NEEDS_CONTEXT | IS_UNSAFE);

	rc = rc ? rc : access && n == 1 && standin_is_mapped((uintptr_t)p, bytes) ? 0 : DRIVER_INVALID_VALUE;
	rc = rc ? rc : add_range((uintptr_t)p, bytes, RANGE_DECLARED, standin_current()->ordinal);
	return standin_leave(rc);
}

/* ---- memory of other processes: not here ---- */

STANDIN_EXPORT CUresult
cuIpcGetMemHandle(CUipcMemHandle *ret_handle, CUdeviceptr p)
{
	int rc = standin_enter(ENTRY_cuIpcGetMemHandle, NEEDS_CONTEXT | IS_UNSAFE);

	(void)ret_handle;
	(void)p;
	return standin_leave(rc ? rc : DRIVER_NOT_SUPPORTED);
}

STANDIN_EXPORT CUresult
cuIpcOpenMemHandle_v2(CUdeviceptr *ret_p, CUipcMemHandle handle, unsigned int flags)
{
	int rc = standin_enter(ENTRY_cuIpcOpenMemHandle_v2, NEEDS_CONTEXT | IS_UNSAFE);

	(void)ret_p;
	(void)handle;
	(void)flags;
	return standin_leave(rc ? rc : DRIVER_NOT_SUPPORTED);
}

STANDIN_EXPORT CUresult
cuIpcCloseMemHandle(CUdeviceptr p)
{
	int rc = standin_enter(ENTRY_cuIpcCloseMemHandle, NEEDS_CONTEXT | IS_UNSAFE);

	(void)p;
	return standin_leave(rc ? rc : DRIVER_NOT_SUPPORTED);
}

/* ---- registered memory ---- */

static bool
overlaps_registered(uintptr_t base, size_t bytes)
{
	for (size_t i = 0; i < standin.n_ranges; i++) {
		const struct standin_range *range = &standin.ranges[i];

		if (range->kind != RANGE_DECLARED && range->base < base + bytes && base < range->base + range->bytes)
			return true;
	}
	return false;
}

/* While a knob or a test holds it; without the lock. */
static void
wait_for_pins(void)
{
	const struct timespec pause = {.tv_nsec = 20000};
	bool (*shut)(void *);
	void *user;
	bool wait = true;

	(void)pthread_mutex_lock(&standin.mu);
	while (wait && !standin.closed) {
		shut = standin.pin_gate;
		user = standin.gate_user;
		(void)pthread_mutex_unlock(&standin.mu);
		wait = shut && shut(user);
		if (wait)
			(void)nanosleep(&pause, NULL);
		(void)pthread_mutex_lock(&standin.mu);
	}
	(void)pthread_mutex_unlock(&standin.mu);
}

STANDIN_EXPORT CUresult
cuMemHostRegister_v2(void *p, size_t bytes, unsigned int flags)
{
	const struct standin_device *device = standin_current();
	uintptr_t base = (uintptr_t)p;
	int rc;

	wait_for_pins();
	rc = standin_enter(ENTRY_cuMemHostRegister_v2, NEEDS_CONTEXT | IS_UNSAFE);
	rc = rc ? rc : !p || bytes == 0 || flags > 15 ? DRIVER_INVALID_VALUE : 0;
	if (rc == 0 && overlaps_registered(base, bytes))
		rc = DRIVER_ALREADY_REGISTERED;
	if (rc == 0 && !standin_is_mapped(base, bytes))
		rc = DRIVER_INVALID_VALUE;
	return standin_leave(rc ? rc : add_range(base, bytes, RANGE_REGISTERED, device->ordinal));
}

STANDIN_EXPORT CUresult
cuMemHostUnregister(void *p)
{
	struct standin_range *range;
	int rc = standin_enter(ENTRY_cuMemHostUnregister, NEEDS_CONTEXT | IS_UNSAFE);

	range = range_at((uintptr_t)p, RANGE_REGISTERED);
	rc = rc ? rc : range ? 0 : DRIVER_NOT_REGISTERED;
	if (rc)
		return standin_leave(rc);
	if (standin_in_flight(range->base, range->bytes)) {
		(void)fprintf(stderr,
			      "stand-in for libcuda.so.1: cuMemHostUnregister(%p) while a copy of it is enqueued\n", p);
		abort();
	}
	forget_range(range);
	return standin_leave(0);
}

STANDIN_EXPORT CUresult
cuMemHostGetDevicePointer_v2(CUdeviceptr *ret_device, void *p, unsigned int flags)
{
	const struct standin_range *range;
	int rc = standin_enter(ENTRY_cuMemHostGetDevicePointer_v2, NEEDS_CONTEXT);

	rc = rc ? rc : !ret_device || flags ? DRIVER_INVALID_VALUE : 0;
	rc = rc ? rc : standin_is_registered((uintptr_t)p, 1) ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0) {
		range = standin_range_find((uintptr_t)p);
		*ret_device = (uintptr_t)p + (standin.knobs.alias && range->kind == RANGE_REGISTERED ? ALIAS : 0);
	}
	return standin_leave(rc);
}

/* ---- questions ---- */

/* An address that is in no range, with the knob ALL. */
static const struct standin_range *
range_or_all(uintptr_t p, struct standin_range *all)
{
	const struct standin_range *range = standin_range_find(p);

	if (range)
		return range;
	*all = (struct standin_range){.base = p, .bytes = 1, .kind = RANGE_DECLARED};
	return standin.knobs.all && standin_is_mapped(p, 1) ? all : NULL;
}

static int
tell_attribute(void *data, unsigned int attribute, const struct standin_range *range, uintptr_t p)
{
	bool is_host = range->kind == RANGE_HOST || range->kind == RANGE_REGISTERED;
	CUdeviceptr device_address =
		p + (standin.knobs.alias && range->kind == RANGE_REGISTERED ? (uintptr_t)ALIAS : 0);
	struct standin_device *context = &standin.devices[range->device];

	switch (attribute) {
	case 1: /* the context */
		memcpy(data, &context, sizeof(context));
		return 0;
	case 2: /* the type of memory */
		*(unsigned int *)data = is_host ? DRIVER_MEMORY_HOST : DRIVER_MEMORY_DEVICE;
		return 0;
	case 3:
		memcpy(data, &device_address, sizeof(device_address));
		return 0;
	case 4: /* the host's address: device memory has none */
		if (is_host)
			memcpy(data, &p, sizeof(p));
		return is_host ? 0 : DRIVER_INVALID_VALUE;
	case 9:
		*(int *)data = range->device;
		return 0;
	case 11: /* where the range begins */
		memcpy(data, &range->base, sizeof(range->base));
		return 0;
	case 12:
		memcpy(data, &range->bytes, sizeof(range->bytes));
		return 0;
	default:
		return DRIVER_NOT_SUPPORTED;
	}
}

/* Needs no current context. What no context knows is invalid. */
STANDIN_EXPORT CUresult
cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr p)
{
	const struct standin_range *range;
	struct standin_range all;
	int rc = standin_enter(ENTRY_cuPointerGetAttribute, NEEDS_INIT);

	if (rc)
		return standin_leave(rc);
	range = data ? range_or_all((uintptr_t)p, &all) : NULL;
	if (!range && standin.knobs.alias && data) {
		p -= ALIAS;
		range = standin_range_find((uintptr_t)p);
	}
	return standin_leave(range ? tell_attribute(data, (unsigned int)attribute, range, (uintptr_t)p)
				   : DRIVER_INVALID_VALUE);
}
