/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stand-in for libcuda.so.1 by itself: what it refuses. That it does what it is asked is shown by the programs that stand on it. Each
 * case is a process that loads it anew.
 */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_main.h"
#include "checked_fork.h"
#include "standin_driver.h"
#include "tile.h"

#define BYTES 4096u

/* The device's side of a copy, the host's that is registered, and a stream for them. */
static CUdeviceptr on_device;
static unsigned char *host;
static CUstream stream;
static CUevent event;

static void
must(CUresult rc)
{
	const char *name = "?";

	(void)cu.cuGetErrorName(rc, &name);
	ck_assert_msg(rc == 0, "%u %s", (unsigned)rc, name);
}

static void
begin(void)
{
	standin_begin("");
	must(cu.cuMemAlloc_v2(&on_device, BYTES));
	host = malloc(BYTES);
	ck_assert_ptr_nonnull(host);
	memset(host, 1, BYTES);
	must(cu.cuMemHostRegister_v2(host, BYTES, 3));
	must(cu.cuStreamCreateWithPriority(&stream, 1, 0));
	must(cu.cuEventCreate(&event, 2));
}

static unsigned char *
device_bytes(void)
{
	return (unsigned char *)(uintptr_t)on_device;
}

/* Everything given back, the context too. */
static void
end(void)
{
	must(cu.cuStreamSynchronize(stream));
	must(cu.cuEventDestroy_v2(event));
	must(cu.cuStreamDestroy_v2(stream));
	must(cu.cuMemHostUnregister(host));
	must(cu.cuMemFree_v2(on_device));
	ck_assert_uint_eq(standin_test.count("live"), 0);
	must(cu.cuDevicePrimaryCtxRelease_v2(0));
	free(host);
}

/* ---- devices, contexts, memory ---- */

START_TEST(nothing_but_the_version_works_before_init)
{
	unsigned int flags;
	int n = 0, active;

	standin_load("");
	must(cu.cuDriverGetVersion(&n));
	ck_assert_int_eq(n, 13000);
	ck_assert_uint_eq(cu.cuDeviceGetCount(&n), DRIVER_NOT_INITIALIZED);
	ck_assert_uint_eq(cu.cuDevicePrimaryCtxGetState(0, &flags, &active), DRIVER_NOT_INITIALIZED);
	ck_assert_uint_eq(cu.cuPointerGetAttribute(&flags, 2, (uintptr_t)&n), DRIVER_NOT_INITIALIZED);
	must(cu.cuInit(0));
	must(cu.cuDeviceGetCount(&n));
	ck_assert_int_eq(n, 1);
}
END_TEST

static void *
alloc_elsewhere(void *arg)
{
	CUdeviceptr p;

	(void)arg;
	return (void *)(uintptr_t)cu.cuMemAlloc_v2(&p, 1);
}

START_TEST(a_context_is_current_in_its_thread_alone_and_active_while_it_is_retained)
{
	CUcontext context = NULL, popped = NULL;
	unsigned int flags;
	CUdeviceptr p = 0;
	pthread_t thread;
	int active = 1;
	void *rc;

	standin_load("");
	must(cu.cuInit(0));
	ck_assert_uint_eq(cu.cuMemAlloc_v2(&p, 1), DRIVER_INVALID_CONTEXT);
	must(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 0);
	must(cu.cuDevicePrimaryCtxRetain(&context, 0));
	must(cu.cuDevicePrimaryCtxGetState(0, &flags, &active));
	ck_assert_int_eq(active, 1);
	must(cu.cuCtxPushCurrent_v2(context));
	must(cu.cuMemAlloc_v2(&p, 1));
	ck_assert_int_eq(pthread_create(&thread, NULL, alloc_elsewhere, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, &rc), 0);
	ck_assert_uint_eq((uintptr_t)rc, DRIVER_INVALID_CONTEXT);
	/* The last release ends what was made in it. */
	must(cu.cuDevicePrimaryCtxRelease_v2(0));
	ck_assert_uint_eq(standin_test.count("live"), 0);
	ck_assert_uint_eq(cu.cuMemAlloc_v2(&p, 1), DRIVER_CONTEXT_IS_DESTROYED);
	must(cu.cuCtxPopCurrent_v2(&popped));
	ck_assert_ptr_eq(popped, context);
	ck_assert_uint_eq(cu.cuMemAlloc_v2(&p, 1), DRIVER_INVALID_CONTEXT);
}
END_TEST

static unsigned int
type_of(const void *p)
{
	unsigned int type = 0;

	return cu.cuPointerGetAttribute(&type, 2, (uintptr_t)p) == 0 ? type : 0;
}

START_TEST(memory_is_of_a_device_or_registered_or_nothing)
{
	char declared[16], plain[16];
	CUdeviceptr p = 0;
	int ordinal = -1;

	standin_load("");
	ck_assert_int_eq(standin_test.set("DEVICES", "2"), 0);
	must(cu.cuInit(0));
	standin_enter_device(1);
	must(cu.cuMemAlloc_v2(&p, 100));
	standin_test.declare(declared, sizeof(declared), 0);
	must(cu.cuMemHostRegister_v2(plain, 8, 0));
	ck_assert_uint_eq(type_of((void *)(uintptr_t)(p + 99)), DRIVER_MEMORY_DEVICE);
	ck_assert_uint_eq(type_of(declared + 15), DRIVER_MEMORY_DEVICE);
	ck_assert_uint_eq(type_of(plain + 7), DRIVER_MEMORY_HOST);
	ck_assert_uint_eq(type_of(plain + 8), 0);
	must(cu.cuPointerGetAttribute(&ordinal, 9, p));
	ck_assert_int_eq(ordinal, 1);
	must(cu.cuPointerGetAttribute(&ordinal, 9, (uintptr_t)declared));
	ck_assert_int_eq(ordinal, 0);
	ck_assert_uint_eq(cu.cuMemHostRegister_v2(plain + 7, 2, 0), DRIVER_ALREADY_REGISTERED);
	ck_assert_uint_eq(cu.cuMemHostUnregister(plain + 1), DRIVER_NOT_REGISTERED);
	must(cu.cuMemHostUnregister(plain));
}
END_TEST

/* ---- streams ---- */

START_TEST(streams_go_on_by_themselves_and_wait_for_the_record_that_was_there)
{
	CUstream other = NULL;

	begin();
	must(cu.cuStreamCreateWithPriority(&other, 1, -1));
	standin_test.hold(other);
	must(cu.cuEventRecord(event, other));
	must(cu.cuStreamWaitEvent(stream, event, 0));
	/* The event is used again, in a stream that stands still; the wait is for the first record. */
	standin_test.hold(other);
	must(cu.cuEventRecord(event, other));
	must(cu.cuMemcpyHtoDAsync_v2(on_device, host, BYTES, stream));
	ck_assert_uint_eq(standin_test.pending(), 1);
	standin_test.release(other);
	must(cu.cuStreamSynchronize(stream));
	ck_assert_uint_eq(cu.cuEventQuery(event), DRIVER_NOT_READY);
	standin_test.release(other);
	must(cu.cuStreamSynchronize(other));
	must(cu.cuStreamDestroy_v2(other));
	end();
}
END_TEST

/* ---- copies ---- */

START_LOOP_TEST(an_address_that_is_nobody_s_fails_the_device_for_good, 0, 2)
{
	static unsigned char plain[64];
	CUdeviceptr p;

	begin();
	/* Past the end of the allocation. */
	must(cu.cuMemcpyHtoDAsync_v2(_i ? (uintptr_t)plain : on_device + 1, host, _i ? 64 : BYTES, stream));
	ck_assert_uint_eq(cu.cuStreamSynchronize(stream), DRIVER_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(cu.cuMemAlloc_v2(&p, 1), DRIVER_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(cu.cuEventQuery(event), DRIVER_ILLEGAL_ADDRESS);
	ck_assert_uint_eq(standin_test.count("bad_addresses"), 1);
	free(host);
}
END_TEST

START_SIGNAL_TEST(memory_that_a_copy_needs_cannot_be_unregistered, SIGABRT)
{
	begin();
	standin_test.hold(stream);
	must(cu.cuMemcpyHtoDAsync_v2(on_device, host, BYTES, stream));
	(void)cu.cuMemHostUnregister(host);
}
END_TEST

static CUresult
batch(unsigned int order)
{
	CUdeviceptr to[] = {on_device, on_device + 64}, from[] = {(uintptr_t)host, (uintptr_t)host + 64};
	CUmemcpyAttributes attributes = {.flags = 1};
	size_t bytes[] = {64, 64}, index = 0;

	memcpy(&attributes.srcAccessOrder, &order, sizeof(order));
	return cu.cuMemcpyBatchAsync_v2(to, from, bytes, 2, &attributes, &index, 1, stream);
}

/* The first of the two is read at once where any order will do, and in its turn where not. */
START_LOOP_TEST(a_source_of_any_order_is_read_ahead_of_its_turn, 0, 2)
{
	begin();
	standin_test.hold(stream);
	must(batch(_i ? DRIVER_ORDER_ANY : DRIVER_ORDER_STREAM));
	memset(host, 77, BYTES);
	standin_test.release(stream);
	must(cu.cuStreamSynchronize(stream));
	ck_assert_int_eq(device_bytes()[0], _i ? 1 : 77);
	ck_assert_int_eq(device_bytes()[64], 77);
	end();
}
END_TEST

START_TEST(with_an_alias_the_device_knows_registered_memory_by_another_address)
{
	CUdeviceptr alias = 0, to[1] = {0}, from[1];
	CUmemcpyAttributes attributes = {.flags = 0};
	const unsigned int order = DRIVER_ORDER_STREAM;
	size_t bytes = BYTES, index = 0;

	begin();
	ck_assert_int_eq(standin_test.set("ALIAS", "1"), 0);
	must(cu.cuMemHostGetDevicePointer_v2(&alias, host, 0));
	ck_assert_uint_ne(alias, (uintptr_t)host);
	must(cu.cuMemcpyHtoDAsync_v2(on_device, host, BYTES, stream));
	memcpy(&attributes.srcAccessOrder, &order, sizeof(order));
	to[0] = alias;
	from[0] = on_device;
	must(cu.cuMemcpyBatchAsync_v2(to, from, &bytes, 1, &attributes, &index, 1, stream));
	must(cu.cuStreamSynchronize(stream));
	ck_assert_uint_eq(standin_test.count("bytes_to_host"), BYTES);
	to[0] = (uintptr_t)host;
	must(cu.cuMemcpyBatchAsync_v2(to, from, &bytes, 1, &attributes, &index, 1, stream));
	ck_assert_uint_eq(cu.cuStreamSynchronize(stream), DRIVER_ILLEGAL_ADDRESS);
	free(host);
}
END_TEST

/* ---- kernels ---- */

static const char *
ptx(const char *entry, size_t parameter_bytes)
{
	static char text[400];

	(void)snprintf(
		text, sizeof(text),
		"//\n.version 8.0\n.target sm_80\n.visible .entry %s(\n\t.param .align 8 .b8 %s_param_0[%zu]\n)\n{\nret;\n}\n",
		entry, entry, parameter_bytes);
	return text;
}

/* One plane of four blocks, two of which go into the slot, the second one first. */
static struct scout__tile_span
span_of_blocks(void)
{
	static struct scout__tile_plane planes[2];
	struct scout__tile_span span = {.n_tiles = 2,
					.n_parts = 1,
					.n_ids = 2,
					.parts = {{.planes = planes, .slot = (uintptr_t)host, .end_plane = 1}},
					.ids = {3, 1}};

	planes[0] = (struct scout__tile_plane){
		.base = on_device, .stride = 1000, .block_bytes = 1000, .tiles_per_block = 1};
	planes[1] = (struct scout__tile_plane){.slot_at = 2000, .first_tile = 2};
	standin_test.declare(planes, sizeof(planes), 0);
	return span;
}

START_TEST(a_kernel_that_leaves_its_memory_fails_the_device)
{
	struct scout__tile_span span;
	void *parameters[] = {&span};
	CUfunction function = NULL;
	CUmodule module = NULL;

	begin();
	must(cu.cuModuleLoadData(&module, ptx("scout__cuda_move_tiles", sizeof(span))));
	must(cu.cuModuleGetFunction(&function, module, "scout__cuda_move_tiles"));
	span = span_of_blocks();
	span.ids[1] = 4; /* ends behind the allocation */
	must(cu.cuLaunchKernel(function, 1, 1, 1, 512, 1, 1, 0, stream, parameters, NULL));
	ck_assert_uint_eq(cu.cuStreamSynchronize(stream), DRIVER_ILLEGAL_ADDRESS);
	free(host);
}
END_TEST

/* ---- faults ---- */

START_TEST(a_handle_that_was_given_back_is_none)
{
	CUevent gone = NULL;

	begin();
	must(cu.cuEventCreate(&gone, 2));
	must(cu.cuEventDestroy_v2(gone));
	ck_assert_uint_eq(cu.cuEventRecord(gone, stream), DRIVER_INVALID_HANDLE);
	ck_assert_uint_eq(cu.cuStreamDestroy_v2((CUstream)(void *)&gone), DRIVER_INVALID_HANDLE);
	ck_assert_uint_eq(standin_test.count("misused"), 2);
	end();
}
END_TEST

START_TEST(a_child_of_a_process_that_uses_the_device_cannot)
{
	int status = -1, n = 0;
	pid_t child;

	begin();
	must(cu.cuMemcpyHtoDAsync_v2(on_device, host, 1, stream));
	child = checked_fork();
	if (child == 0)
		_exit(cu.cuDeviceGetCount(&n) == DRIVER_NOT_INITIALIZED ? 0 : 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	end();
}
END_TEST

START_TEST(counts_are_left_behind_in_a_file)
{
	char folder[] = "/tmp/standin-XXXXXX", path[100], line[100];
	bool found = false;
	FILE *file;

	ck_assert_ptr_nonnull(mkdtemp(folder));
	begin();
	(void)snprintf(path, sizeof(path), "%s/counts", folder);
	ck_assert_int_eq(standin_test.set("STATS", path), 0);
	must(cu.cuMemcpyHtoDAsync_v2(on_device, host, BYTES, stream));
	must(cu.cuStreamSynchronize(stream));
	(void)snprintf(path, sizeof(path), "%s/counts.%ld", folder, (long)getpid());
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file))
		found |= strcmp(line, "bytes_to_device 4096\n") == 0;
	ck_assert(found);
	(void)fclose(file);
	ck_assert_int_eq(standin_test.set("STATS", ""), 0);
	ck_assert_int_eq(unlink(path) | rmdir(folder), 0);
	end();
}
END_TEST

/* ---- captures ---- */

static CUresult
end_capture(CUstream of)
{
	CUgraph graph = NULL;

	return cu.cuStreamEndCapture(of, &graph);
}

/* _i: the mode of the calling thread. */
START_LOOP_TEST(unsafe_calls_break_a_capture_unless_their_thread_is_relaxed, 0, 3)
{
	CUstreamCaptureMode mode = (CUstreamCaptureMode)_i;
	CUstreamCaptureStatus status = 0;
	CUdeviceptr p = 0;

	begin();
	must(cu.cuStreamBeginCapture_v2(stream, DRIVER_MODE_GLOBAL));
	must(cu.cuStreamIsCapturing(stream, &status));
	ck_assert_int_eq(status, 1);
	must(cu.cuThreadExchangeStreamCaptureMode(&mode));
	ck_assert_int_eq(mode, DRIVER_MODE_GLOBAL);
	ck_assert_uint_eq(cu.cuMemAlloc_v2(&p, 1), _i == DRIVER_MODE_RELAXED ? 0 : DRIVER_CAPTURE_UNSUPPORTED);
	ck_assert_uint_eq(end_capture(stream), _i == DRIVER_MODE_RELAXED ? 0 : DRIVER_CAPTURE_INVALIDATED);
	if (p)
		must(cu.cuMemFree_v2(p));
	end();
}
END_TEST

static void *
alloc_beside(void *mode_arg)
{
	CUstreamCaptureMode mode = (CUstreamCaptureMode)(uintptr_t)mode_arg;
	CUdeviceptr p = 0;
	CUresult rc;

	standin_enter_device(0);
	must(cu.cuThreadExchangeStreamCaptureMode(&mode));
	rc = cu.cuMemAlloc_v2(&p, 1);
	return (void *)(uintptr_t)rc;
}

/* Of another thread only a global capture beside a global mode is disturbed. */
START_LOOP_TEST(unsafe_calls_of_another_thread_break_a_global_capture, 0, 9)
{
	CUstreamCaptureMode own = (CUstreamCaptureMode)(_i / 3), theirs = (CUstreamCaptureMode)(_i % 3);
	bool breaks = own == DRIVER_MODE_GLOBAL && theirs == DRIVER_MODE_GLOBAL;
	pthread_t thread;
	void *rc;

	begin();
	must(cu.cuStreamBeginCapture_v2(stream, own));
	ck_assert_int_eq(pthread_create(&thread, NULL, alloc_beside, (void *)(uintptr_t)theirs), 0);
	ck_assert_int_eq(pthread_join(thread, &rc), 0);
	ck_assert_uint_eq((uintptr_t)rc, breaks ? DRIVER_CAPTURE_UNSUPPORTED : 0);
	ck_assert_uint_eq(end_capture(stream), breaks ? DRIVER_CAPTURE_INVALIDATED : 0);
	free(host);
}
END_TEST

START_TEST(a_wait_for_what_is_outside_breaks_a_capture)
{
	begin();
	must(cu.cuEventRecord(event, stream));
	must(cu.cuStreamSynchronize(stream));
	must(cu.cuStreamBeginCapture_v2(stream, DRIVER_MODE_RELAXED));
	ck_assert_uint_eq(cu.cuStreamWaitEvent(stream, event, 0), DRIVER_CAPTURE_ISOLATION);
	ck_assert_uint_eq(end_capture(stream), DRIVER_CAPTURE_INVALIDATED);
	ck_assert_uint_eq(standin_test.count("captures_broken"), 1);
	end();
}
END_TEST

START_TEST(an_event_of_a_capture_says_nothing_and_draws_in_whoever_waits)
{
	CUstream other = NULL;

	begin();
	must(cu.cuStreamCreateWithPriority(&other, 1, 0));
	must(cu.cuStreamBeginCapture_v2(stream, DRIVER_MODE_RELAXED));
	must(cu.cuEventRecord(event, stream));
	must(cu.cuStreamWaitEvent(other, event, 0));
	ck_assert_uint_eq(standin_test.count("drawn_in"), 1);
	must(cu.cuMemcpyHtoDAsync_v2(on_device, host, BYTES, other));
	ck_assert_uint_eq(standin_test.pending(), 0);
	ck_assert_uint_eq(end_capture(stream), DRIVER_CAPTURE_UNJOINED);
	must(cu.cuStreamBeginCapture_v2(stream, DRIVER_MODE_RELAXED));
	must(cu.cuEventRecord(event, stream));
	ck_assert_uint_eq(cu.cuEventQuery(event), DRIVER_CAPTURED_EVENT);
	ck_assert_uint_eq(end_capture(stream), DRIVER_CAPTURE_INVALIDATED);
	must(cu.cuStreamDestroy_v2(other));
	end();
}
END_TEST

START_TEST(the_legacy_stream_breaks_the_capture_of_a_blocking_one)
{
	CUstreamCaptureStatus status = 0;
	CUstream blocking = NULL;

	begin();
	must(cu.cuStreamCreateWithPriority(&blocking, 0, 0));
	must(cu.cuStreamBeginCapture_v2(blocking, DRIVER_MODE_RELAXED));
	ck_assert_uint_eq(cu.cuStreamIsCapturing(NULL, &status), DRIVER_CAPTURE_IMPLICIT);
	ck_assert_uint_eq(cu.cuEventRecord(event, NULL), DRIVER_CAPTURE_IMPLICIT);
	ck_assert_uint_eq(end_capture(blocking), DRIVER_CAPTURE_INVALIDATED);
	ck_assert_uint_eq(cu.cuStreamBeginCapture_v2(NULL, DRIVER_MODE_RELAXED), DRIVER_CAPTURE_UNSUPPORTED);
	must(cu.cuStreamDestroy_v2(blocking));
	end();
}
END_TEST
