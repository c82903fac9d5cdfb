/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_cuda.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "standin_driver.h"

/*
 * DESIGN
 *
 * Purpose: to set the stand-in's knobs and to read its counts. The driver is 13.0 or 12.8, by the seed; without batches 12.2: one for the
 * process.
 */

static struct fake_cuda_options opt;
static bool loaded; /* the driver; const in a process */
static struct fake_cuda_counts before;
static struct {
	const void *p[512];
	unsigned n;
} ranges;

static uint64_t
count(const char *name)
{
	return standin_test.count(name);
}

static void
set(const char *knob, long long n)
{
	char text[32];

	(void)snprintf(text, sizeof(text), "%lld", n);
	ck_assert_int_eq(standin_test.set(knob, text), 0);
}

/* Counts since the process began. */
static struct fake_cuda_counts
count_all(void)
{
	struct fake_cuda_counts c = {0};
	uint64_t batches, pageable;

	if (!loaded) {
		c.looks = 1; /* nobody counts them where there is no driver */
		return c;
	}
	batches = count("cuMemcpyBatchAsync") + count("cuMemcpyBatchAsync_v2");
	pageable = count("pageable");
	c.calls = count("working");
	c.ops = count("operations");
	c.copies = count("to_device") + count("to_host") + count("inside");
	c.refused = count("refused");
	c.batch_calls = batches - c.refused;
	c.launches = count("kernels");
	c.threads = count("threads");
	c.pins = count("cuMemHostRegister_v2");
	c.unpins = count("cuMemHostUnregister");
	c.queries = count("cuEventQuery");
	c.inits = count("cuInit") + count("cuDevicePrimaryCtxRetain") + c.calls;
	c.looks = count("cuPointerGetAttribute") + count("cuDevicePrimaryCtxGetState");
	c.most_pending = count("most_pending");
	c.live = count("live");
	c.violations = count("bad_addresses") + count("misused") + count("drawn_in");
	if (!opt.pageable && pageable > count("cuModuleLoadData"))
		c.violations += pageable - count("cuModuleLoadData");
	return c;
}

struct fake_cuda_counts
fake_cuda_counts(void)
{
	struct fake_cuda_counts c = count_all();

	c.calls -= before.calls;
	c.ops -= before.ops;
	c.copies -= before.copies;
	c.refused -= before.refused;
	c.batch_calls -= before.batch_calls;
	c.launches -= before.launches;
	c.threads -= before.threads;
	c.pins -= before.pins;
	c.unpins -= before.unpins;
	c.queries -= before.queries;
	c.inits -= before.inits;
	c.looks -= before.looks;
	c.live -= before.live;
	c.violations -= before.violations;
	return c;
}

/* One more part of the text for the knob FAULT. */
static void
add_fault(char *text, size_t size, const char *entry, uint64_t n, bool onward, int code)
{
	size_t at = strlen(text);

	if (n && code)
		(void)snprintf(text + at, size - at, "%s%s:%llu%s:%d", at ? "," : "", entry, (unsigned long long)n,
			       onward ? "+" : "", code);
}

static void
set_faults(void)
{
	char text[500] = "";

	add_fault(text, sizeof(text), "cuInit", 1, true, opt.count_error);
	add_fault(text, sizeof(text), "cuDeviceGetPCIBusId", 1, true, opt.bus_id ? 0 : FAKE_CUDA_INVALID_HANDLE);
	add_fault(text, sizeof(text), "cuModuleLoadData", 1, true, opt.refuse_kernel);
	add_fault(text, sizeof(text), "cuMemcpyBatchAsync", 1, true, opt.refuse_batch);
	add_fault(text, sizeof(text), "cuMemcpyBatchAsync_v2", 1, true, opt.refuse_batch);
	add_fault(text, sizeof(text), "cuMemHostRegister_v2", opt.fail_pin, false, FAKE_CUDA_OUT_OF_MEMORY);
	add_fault(text, sizeof(text), "any", opt.fail_call, false, opt.fail_error);
	ck_assert_int_eq(standin_test.set("FAULT", text), 0);
}

/* As the application does before it makes a worker. */
static void
use_device(void)
{
	int n;

	ck_assert_uint_eq(cu.cuInit(0), 0);
	if (opt.n_devices == 0) {
		set("DEVICES", 0);
		return;
	}
	ck_assert_int_eq(scout__cuda_api_device_count(&n), 0);
	ck_assert_int_eq(scout__cuda_api_enter_thread(opt.device), 0);
}

void
fake_cuda_start(const struct fake_cuda_options *options)
{
	opt = *options;
	ranges.n = 0;
	before = (struct fake_cuda_counts){0};
	if (opt.driver_version < 0)
		return; /* there is no driver */
	if (!loaded)
		standin_load(opt.no_batch ? "driver_12_2" : opt.seed & 1 ? "driver_12_8" : "");
	loaded = true;
	set("DEVICES", opt.n_devices ? opt.n_devices : 1);
	set("CAPABILITY", 30); /* this build has machine code for none */
	set("ALIAS", opt.alias != 0);
	set("SEED", (long long)(opt.seed >> 1));
	set("DELAY_US", opt.seed ? 30 : 0);
	if (opt.driver_version)
		set("DRIVER", opt.driver_version);
	if (opt.bus_id)
		ck_assert_int_eq(standin_test.set("BUS", opt.bus_id), 0);
	if (opt.elsewhere)
		standin_test.declare(opt.elsewhere, 1, opt.device + 1);
	if (opt.count_error == 0)
		use_device();
	set_faults();
	if (opt.break_op)
		fake_cuda_break_at(opt.break_op, opt.break_error);
	standin_test.gate(opt.gate, opt.pin_gate, opt.user);
	before = count_all();
}

struct fake_cuda_counts
fake_cuda_stop(void)
{
	struct fake_cuda_counts counts = fake_cuda_counts();

	if (!loaded)
		return counts;
	standin_test.gate(NULL, NULL, NULL);
	while (ranges.n > 0)
		standin_test.declare(ranges.p[--ranges.n], 0, -1);
	if (opt.elsewhere)
		standin_test.declare(opt.elsewhere, 0, -1);
	ck_assert_int_eq(standin_test.set("FAULT", ""), 0);
	ck_assert_int_eq(standin_test.set("STICKY", "0"), 0);
	return counts;
}

void
fake_cuda_fail_call(uint64_t n, int error)
{
	opt.fail_call = n;
	opt.fail_error = error;
	set_faults();
}

void
fake_cuda_break_at(uint64_t n, int error)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "%llu:%d", (unsigned long long)n, error);
	ck_assert_int_eq(standin_test.set("STICKY", text), 0);
}

uint64_t
fake_cuda_pending(void)
{
	return loaded ? standin_test.pending() : 0;
}

void
fake_cuda_device_range(const void *p, size_t bytes)
{
	if (!loaded)
		return;
	ck_assert_uint_lt(ranges.n, sizeof(ranges.p) / sizeof(ranges.p[0]));
	ranges.p[ranges.n++] = p;
	standin_test.declare(p, bytes, opt.device);
}

bool
fake_cuda_event_over(void *event)
{
	return standin_test.event_over(event) == 1;
}

bool
fake_cuda_event_recorded(void *event)
{
	return standin_test.event_over(event) != -1;
}

void
fake_cuda_hold(void *stream)
{
	standin_test.hold(stream);
}

void
fake_cuda_release(void *stream)
{
	standin_test.release(stream);
}

/* In the mode that calls of other threads break most easily. */
void
fake_cuda_begin_capture(void *stream, bool blocking)
{
	standin_test.make_blocking(stream, blocking);
	ck_assert_uint_eq(cu.cuStreamBeginCapture_v2(stream, DRIVER_MODE_GLOBAL), 0);
}

bool
fake_cuda_end_capture(void *stream)
{
	CUgraph graph = NULL;
	bool good = cu.cuStreamEndCapture(stream, &graph) == 0;

	standin_test.make_blocking(stream, false);
	return good;
}
