/* SPDX-License-Identifier: Apache-2.0 */
#include "standin.h"

#include <stdio.h>
#include <string.h>

/*
 * DESIGN
 *
 * Purpose: devices, their primary contexts, and what codes are called.
 *
 * A context is the device itself: there is only the primary one. It is active while it is retained; with the last release all that was
 * made in it ends. Which one is current is each thread's own affair, on a stack.
 */

#define LOWEST_PRIORITY 0
#define HIGHEST_PRIORITY (-5)

static struct standin_device *
device_of(CUdevice ordinal)
{
	return ordinal >= 0 && ordinal < standin.knobs.devices ? &standin.devices[ordinal] : NULL;
}

static struct standin_device *
device_of_context(CUcontext context)
{
	for (int i = 0; i < standin.knobs.devices; i++)
		if ((void *)context == (void *)&standin.devices[i])
			return &standin.devices[i];
	return NULL;
}

static CUcontext
context_of(struct standin_device *device)
{
	return (CUcontext)(void *)device;
}

struct standin_device *
standin_current(void)
{
	return standin_thread.depth ? standin_thread.stack[standin_thread.depth - 1] : NULL;
}

void
standin_device_start(void)
{
	for (int i = 0; i < MAX_DEVICES; i++) {
		struct standin_device *device = &standin.devices[i];

		device->ordinal = i;
		standin_stream_init(&device->legacy, device, true);
		standin_stream_init(&device->per_thread, device, true);
	}
	if (standin.knobs.all && standin.knobs.devices > 0) {
		standin.initialized = true;
		standin.devices[0].refs = 1;
	}
}

/* ---- what there is ---- */

STANDIN_EXPORT CUresult
cuInit(unsigned int flags)
{
	int rc = standin_enter(ENTRY_cuInit, 0);

	rc = rc                                                   ? rc
	     : flags                                              ? DRIVER_INVALID_VALUE
	     : standin.knobs.devices == 0 && !standin.initialized ? DRIVER_NO_DEVICE
								  : 0;
	if (rc == 0)
		standin.initialized = true;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuDriverGetVersion(int *version)
{
	int rc = standin_enter(ENTRY_cuDriverGetVersion, 0);

	rc = rc ? rc : version ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		*version = standin.knobs.driver;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuDeviceGetCount(int *count)
{
	int rc = standin_enter(ENTRY_cuDeviceGetCount, NEEDS_INIT);

	rc = rc ? rc : count ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		*count = standin.knobs.devices;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuDeviceGet(CUdevice *device, int ordinal)
{
	int rc = standin_enter(ENTRY_cuDeviceGet, NEEDS_INIT);

	rc = rc ? rc : !device ? DRIVER_INVALID_VALUE : !device_of(ordinal) ? DRIVER_INVALID_DEVICE : 0;
	if (rc == 0)
		*device = ordinal;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuDeviceGetName(char *name, int len, CUdevice ordinal)
{
	int rc = standin_enter(ENTRY_cuDeviceGetName, NEEDS_INIT);

	rc = rc ? rc : !name || len < 1 ? DRIVER_INVALID_VALUE : !device_of(ordinal) ? DRIVER_INVALID_DEVICE : 0;
	if (rc == 0)
		(void)snprintf(name, (size_t)len, "stand-in %d, not a GPU", ordinal);
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuDeviceTotalMem_v2(size_t *bytes, CUdevice ordinal)
{
	int rc = standin_enter(ENTRY_cuDeviceTotalMem_v2, NEEDS_INIT);

	rc = rc ? rc : !bytes ? DRIVER_INVALID_VALUE : !device_of(ordinal) ? DRIVER_INVALID_DEVICE : 0;
	if (rc == 0)
		*bytes = standin.knobs.memory;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuDeviceGetPCIBusId(char *id, int len, CUdevice ordinal)
{
	int rc = standin_enter(ENTRY_cuDeviceGetPCIBusId, NEEDS_INIT);

	/* With the zero at its end, an address has 13 characters. */
	rc = rc ? rc : !id || len < 13 ? DRIVER_INVALID_VALUE : !device_of(ordinal) ? DRIVER_INVALID_DEVICE : 0;
	if (rc == 0 && standin.knobs.bus[0])
		(void)snprintf(id, (size_t)len, "%s", standin.knobs.bus);
	else if (rc == 0)
		(void)snprintf(id, (size_t)len, "FFFF:%02X:00.0", 0xF0 + (unsigned)ordinal);
	return standin_leave(rc);
}

/* Attributes by their numbers; what is not named here is 0. */
static int
attribute_of(const struct standin_device *device, unsigned int attribute)
{
	switch (attribute) {
	case 1:
		return 1024; /* threads of a block */
	case 5:
		return INT32_MAX; /* blocks of a grid */
	case 10:
		return 32; /* a warp */
	case 16:
		return 132; /* multiprocessors */
	case 33:
		return 0xF0 + device->ordinal; /* the bus */
	case 40:
		return 3; /* copy engines */
	case 50:
		return 0xFFFF; /* the domain */
	case 75:               /* the capability's two numbers */
		return standin.knobs.capability / 10;
	case 76:
		return standin.knobs.capability % 10;
	case 91:
		return !standin.knobs.alias; /* host addresses serve for registered memory */
	case 19:                             /* maps host memory */
	case 41:                             /* unified addresses */
	case 78:                             /* priorities of streams */
	case 99:                             /* registers host memory */
		return 1;
	default:
		return 0;
	}
}

STANDIN_EXPORT CUresult
cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice ordinal)
{
	const struct standin_device *device;
	int rc = standin_enter(ENTRY_cuDeviceGetAttribute, NEEDS_INIT);

	device = device_of(ordinal);
	rc = rc ? rc : !value || (unsigned)attribute == 0 ? DRIVER_INVALID_VALUE : device ? 0 : DRIVER_INVALID_DEVICE;
	if (rc == 0)
		*value = attribute_of(device, (unsigned int)attribute);
	return standin_leave(rc);
}

/* ---- primary contexts ---- */

STANDIN_EXPORT CUresult
cuDevicePrimaryCtxRetain(CUcontext *ret_context, CUdevice ordinal)
{
	struct standin_device *device;
	int rc = standin_enter(ENTRY_cuDevicePrimaryCtxRetain, NEEDS_INIT);

	device = device_of(ordinal);
	rc = rc ? rc : !ret_context ? DRIVER_INVALID_VALUE : device ? 0 : DRIVER_INVALID_DEVICE;
	if (rc == 0) {
		device->refs++;
		standin.used = true;
		*ret_context = context_of(device);
	}
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
	struct standin_device *device;
	int rc = standin_enter(ENTRY_cuDevicePrimaryCtxRelease_v2, NEEDS_INIT);

	device = device_of(ordinal);
	rc = rc ? rc : !device ? DRIVER_INVALID_DEVICE : device->refs == 0 ? DRIVER_INVALID_CONTEXT : 0;
	if (rc == 0 && --device->refs == 0) {
		(void)standin_drain_device(device);
		standin_stream_end_all(device);
		standin_module_end_all(device);
		standin_memory_end(device);
		device->broken = 0;
		device->failing = false;
	}
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned int *flags, int *active)
{
	const struct standin_device *device;
	int rc = standin_enter(ENTRY_cuDevicePrimaryCtxGetState, NEEDS_INIT);

	device = device_of(ordinal);
	rc = rc ? rc : !flags || !active ? DRIVER_INVALID_VALUE : device ? 0 : DRIVER_INVALID_DEVICE;
	if (rc == 0) {
		*flags = 0;
		*active = device->refs > 0;
	}
	return standin_leave(rc);
}

/* ---- current contexts ---- */

STANDIN_EXPORT CUresult
cuCtxSetCurrent(CUcontext context)
{
	struct standin_device *device;
	int rc = standin_enter(ENTRY_cuCtxSetCurrent, NEEDS_INIT);

	device = device_of_context(context);
	rc = rc ? rc : context && !device ? DRIVER_INVALID_CONTEXT : 0;
	if (rc == 0) {
		if (standin_thread.depth > 0)
			standin_thread.depth--;
		if (device)
			standin_thread.stack[standin_thread.depth++] = device;
	}
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuCtxGetCurrent(CUcontext *ret_context)
{
	int rc = standin_enter(ENTRY_cuCtxGetCurrent, NEEDS_INIT);

	rc = rc ? rc : ret_context ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		*ret_context = context_of(standin_current());
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuCtxPushCurrent_v2(CUcontext context)
{
	struct standin_device *device;
	int rc = standin_enter(ENTRY_cuCtxPushCurrent_v2, NEEDS_INIT);

	device = device_of_context(context);
	rc = rc ? rc : !device ? DRIVER_INVALID_CONTEXT : standin_thread.depth == MAX_STACK ? DRIVER_INVALID_VALUE : 0;
	if (rc == 0)
		standin_thread.stack[standin_thread.depth++] = device;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuCtxPopCurrent_v2(CUcontext *ret_context)
{
	int rc = standin_enter(ENTRY_cuCtxPopCurrent_v2, NEEDS_INIT);

	rc = rc ? rc : standin_thread.depth ? 0 : DRIVER_INVALID_CONTEXT;
	if (rc == 0) {
		struct standin_device *device = standin_thread.stack[--standin_thread.depth];

		if (ret_context)
			*ret_context = context_of(device);
	}
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	int rc = standin_enter(ENTRY_cuCtxGetStreamPriorityRange, NEEDS_CONTEXT);

	if (rc == 0 && least)
		*least = LOWEST_PRIORITY;
	if (rc == 0 && greatest)
		*greatest = HIGHEST_PRIORITY;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	enum driver_capture_mode before = standin_thread.mode;
	int rc = standin_enter(ENTRY_cuThreadExchangeStreamCaptureMode, NEEDS_INIT);

	rc = rc ? rc : mode && (unsigned)*mode <= DRIVER_MODE_RELAXED ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0) {
		standin_thread.mode = (enum driver_capture_mode) * mode;
		*mode = (CUstreamCaptureMode)before;
	}
	return standin_leave(rc);
}

/* ---- codes ---- */

static const struct {
	int code;
	const char *name, *text;
} codes[] = {
	{DRIVER_OK, "CUDA_SUCCESS", "no error"},
	{DRIVER_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{DRIVER_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{DRIVER_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{DRIVER_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
	{DRIVER_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no device"},
	{DRIVER_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{DRIVER_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "invalid image"},
	{DRIVER_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid context"},
	{DRIVER_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no image for this device"},
	{DRIVER_INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "invalid PTX"},
	{DRIVER_JIT_COMPILER_NOT_FOUND, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "PTX compiler not found"},
	{DRIVER_UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "PTX of a newer toolchain"},
	{DRIVER_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
	{DRIVER_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "illegal state"},
	{DRIVER_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "name not found"},
	{DRIVER_NOT_READY, "CUDA_ERROR_NOT_READY", "not ready"},
	{DRIVER_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal address"},
	{DRIVER_CONTEXT_IS_DESTROYED, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context destroyed"},
	{DRIVER_ALREADY_REGISTERED, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "memory registered already"},
	{DRIVER_NOT_REGISTERED, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "memory not registered"},
	{DRIVER_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "launch failed"},
	{DRIVER_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
	{DRIVER_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted during a capture"},
	{DRIVER_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "capture invalidated"},
	{DRIVER_CAPTURE_MERGE, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "two captures would merge"},
	{DRIVER_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture not begun in this stream"},
	{DRIVER_CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capture of a stream not joined"},
	{DRIVER_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency on uncaptured work"},
	{DRIVER_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "dependency on the legacy stream"},
	{DRIVER_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT", "event of a capture"},
	{DRIVER_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "capture of another thread"},
	{DRIVER_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static int
describe(int code, bool as_name, const char **ret_text)
{
	if (!ret_text)
		return DRIVER_INVALID_VALUE;
	*ret_text = NULL;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i].code == code)
			*ret_text = as_name ? codes[i].name : codes[i].text;
	return *ret_text ? 0 : DRIVER_INVALID_VALUE;
}

STANDIN_EXPORT CUresult
cuGetErrorName(CUresult error, const char **ret_name)
{
	int rc = standin_enter(ENTRY_cuGetErrorName, 0);

	return standin_leave(rc ? rc : describe((int)error, true, ret_name));
}

STANDIN_EXPORT CUresult
cuGetErrorString(CUresult error, const char **ret_text)
{
	int rc = standin_enter(ENTRY_cuGetErrorString, 0);

	return standin_leave(rc ? rc : describe((int)error, false, ret_text));
}
