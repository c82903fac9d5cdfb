/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The table of calls, as the engine makes them; what they do to the device is in fake_gpu.c. */

static int
api_driver_version(void)
{
	return fake_gpu.opt.driver_version < 0 ? 0 : fake_gpu.opt.driver_version;
}

static int
api_device_count(int *ret_n)
{
	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu.counts.inits++;
	pthread_mutex_unlock(&fake_gpu.mu);
	if (fake_gpu.opt.count_error)
		return fake_gpu.opt.count_error;
	*ret_n = fake_gpu.opt.n_devices;
	return 0;
}

static bool
api_is_in_use(int device)
{
	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu.counts.looks++;
	pthread_mutex_unlock(&fake_gpu.mu);
	return device < fake_gpu.opt.n_devices;
}

static int
api_device_of(const void *p)
{
	int device;

	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu.counts.looks++;
	device = fake_gpu.opt.n_devices > 0 && fake_gpu_range_holds(fake_gpu.device, (uintptr_t)p, 1)
			 ? fake_gpu.opt.device + (p == fake_gpu.opt.elsewhere)
			 : -1;
	pthread_mutex_unlock(&fake_gpu.mu);
	return device;
}

static int
api_bus_id(char *ret_id, int len, int device)
{
	if (!fake_gpu.opt.bus_id || device != fake_gpu.opt.device)
		return FAKE_CUDA_INVALID_HANDLE;
	(void)snprintf(ret_id, (size_t)len, "%s", fake_gpu.opt.bus_id);
	return 0;
}

static int
api_enter_thread(int device)
{
	int rc;

	fake_gpu_entered = true;
	rc = fake_gpu_end_call(fake_gpu_begin_call());
	fake_gpu_entered = device == fake_gpu.opt.device;
	return rc;
}

static int
api_enter(int device)
{
	fake_gpu_outside = fake_gpu_entered;
	fake_gpu_entered = device == fake_gpu.opt.device;
	return 0;
}

static void
api_leave(void)
{
	fake_gpu_entered = fake_gpu_outside;
}

static const char *
api_error_name(int error)
{
	switch (error) {
	case FAKE_CUDA_OUT_OF_MEMORY:
		return "CUDA_ERROR_OUT_OF_MEMORY";
	case FAKE_CUDA_NO_DEVICE:
		return "CUDA_ERROR_NO_DEVICE";
	case FAKE_CUDA_ILLEGAL_ADDRESS:
		return "CUDA_ERROR_ILLEGAL_ADDRESS";
	case FAKE_CUDA_NOT_SUPPORTED:
		return "CUDA_ERROR_NOT_SUPPORTED";
	case FAKE_CUDA_CAPTURED_EVENT:
		return "CUDA_ERROR_CAPTURED_EVENT";
	default:
		return "CUDA_ERROR_UNKNOWN";
	}
}

static int
api_malloc(void **ret_p, size_t bytes)
{
	int rc = fake_gpu_begin_call();

	if (rc == 0) {
		*ret_p = aligned_alloc(256, (bytes + 255) / 256 * 256);
		fake_gpu_range_add(fake_gpu.device, *ret_p, bytes);
		fake_gpu.counts.live++;
	}
	return fake_gpu_end_call(rc);
}

static void
api_free(void *p)
{
	pthread_mutex_lock(&fake_gpu.mu);
	if (fake_gpu_range_remove(fake_gpu.device, p))
		fake_gpu.counts.live--;
	else
		fake_gpu.counts.violations++;
	pthread_mutex_unlock(&fake_gpu.mu);
	free(p);
}

static int
api_host_register(void *base, size_t bytes)
{
	const struct timespec pause = {.tv_nsec = GATE_NS};
	int rc;

	while (fake_gpu.opt.pin_gate && fake_gpu.opt.pin_gate(fake_gpu.opt.user))
		nanosleep(&pause, NULL);
	pthread_mutex_lock(&fake_gpu.mu);
	if (!fake_gpu_entered)
		fake_gpu.counts.violations++;
	fake_gpu.counts.pins++;
	rc = fake_gpu.broken;
	if (fake_gpu.opt.fail_pin && fake_gpu.counts.pins == fake_gpu.opt.fail_pin)
		rc = FAKE_CUDA_OUT_OF_MEMORY;
	for (int i = 0; i < MAX_RANGES && rc == 0; i++)
		if (fake_gpu.pinned[i].bytes && fake_gpu.pinned[i].base < (uintptr_t)base + bytes &&
		    (uintptr_t)base < fake_gpu.pinned[i].base + fake_gpu.pinned[i].bytes)
			fake_gpu.counts.violations++;
	if (rc == 0) {
		fake_gpu_range_add(fake_gpu.pinned, base, bytes);
		fake_gpu.counts.live++;
	}
	return fake_gpu_end_call(rc);
}

static int
api_host_unregister(void *base)
{
	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu.counts.unpins++;
	if (fake_gpu_range_remove(fake_gpu.pinned, base))
		fake_gpu.counts.live--;
	else
		fake_gpu.counts.violations++;
	return fake_gpu_end_call(fake_gpu.broken);
}

static int
api_host_device_pointer(void **ret_p, void *host)
{
	*ret_p = (uint8_t *)host + fake_gpu.opt.alias;
	return 0;
}

static int
api_stream_new(void **ret_stream, int priority)
{
	int rc = fake_gpu_begin_call();

	(void)priority;
	for (int i = 2; i < MAX_STREAMS && rc == 0; i++) {
		if (!fake_gpu.streams[i].in_use) {
			fake_gpu.streams[i] = (struct fake_stream){.in_use = true, .end = &fake_gpu.streams[i].first};
			fake_gpu.counts.live++;
			*ret_stream = &fake_gpu.streams[i];
			return fake_gpu_end_call(0);
		}
	}
	return fake_gpu_end_call(rc ? rc : FAKE_CUDA_OUT_OF_MEMORY);
}

static void
api_stream_free(void *handle)
{
	struct fake_stream *stream = handle;

	pthread_mutex_lock(&fake_gpu.mu);
	if (stream->first)
		fake_gpu.counts.violations++;
	stream->in_use = false;
	fake_gpu.counts.live--;
	pthread_mutex_unlock(&fake_gpu.mu);
}

static int
api_stream_sync(void *handle)
{
	int rc = fake_gpu_begin_call();
	struct fake_stream *stream = fake_gpu_stream_of(handle);

	while (rc == 0 && stream->first && !fake_gpu.broken)
		pthread_cond_wait(&fake_gpu.cond, &fake_gpu.mu);
	return fake_gpu_end_call(rc ? rc : fake_gpu.broken);
}

/* What a capture makes of a wait, with the lock: 0, or an error. */
static int
wait_and_captures(struct fake_stream *stream, const struct fake_event *event)
{
	struct fake_stream *other = fake_gpu_captured_blocking();

	if (stream == LEGACY && other) {
		other->invalid = true;
		return FAKE_CUDA_CAPTURE_IMPLICIT;
	}
	if (stream->capturing && event->recorded && event->captured_from != stream) {
		stream->invalid = true;
		return FAKE_CUDA_CAPTURE_ISOLATION;
	}
	/* CUDA would draw the stream into the capture, and what is enqueued in it later would never be executed. */
	if (!stream->capturing && event->captured_from)
		fake_gpu.counts.violations++;
	return 0;
}

static int
api_stream_wait(void *handle, void *event_handle)
{
	struct fake_event *event = event_handle;
	int rc = fake_gpu_begin_call();
	struct fake_stream *stream = fake_gpu_stream_of(handle);

	rc = rc ? rc : wait_and_captures(stream, event);
	if (rc == 0 && event->recorded && !event->captured_from)
		rc = fake_gpu_push(stream,
				   (struct fake_op){.kind = OP_WAIT, .event = event, .number = event->recorded});
	return fake_gpu_end_call(rc);
}

static bool
api_is_capturing(void *handle)
{
	struct fake_stream *stream;
	bool capturing;

	pthread_mutex_lock(&fake_gpu.mu);
	stream = fake_gpu_stream_of(handle);
	capturing = stream->capturing || (stream == LEGACY && fake_gpu_captured_blocking());
	pthread_mutex_unlock(&fake_gpu.mu);
	return capturing;
}

static int
api_event_new(void **ret_event)
{
	int rc = fake_gpu_begin_call();

	if (rc == 0) {
		*ret_event = calloc(1, sizeof(struct fake_event));
		fake_gpu.counts.live++;
	}
	return fake_gpu_end_call(rc);
}

static void
api_event_free(void *event)
{
	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu.counts.live--;
	pthread_mutex_unlock(&fake_gpu.mu);
	free(event);
}

static int
api_event_record(void *handle, void *stream_handle)
{
	struct fake_event *event = handle;
	int rc = fake_gpu_begin_call();
	struct fake_stream *stream = fake_gpu_stream_of(stream_handle);

	if (rc == 0) {
		event->recorded = ++fake_gpu.n_records;
		event->captured_from = stream->capturing ? stream : NULL;
	}
	if (rc == 0 && !stream->capturing)
		rc = fake_gpu_push(stream,
				   (struct fake_op){.kind = OP_RECORD, .event = event, .number = event->recorded});
	return fake_gpu_end_call(rc);
}

static int
api_event_query(void *handle)
{
	struct fake_event *event = handle;
	int rc;

	pthread_mutex_lock(&fake_gpu.mu);
	if (!fake_gpu_entered)
		fake_gpu.counts.violations++;
	fake_gpu.counts.queries++;
	rc = event->executed >= event->recorded ? SCOUT__CUDA_OK : SCOUT__CUDA_NOT_READY;
	if (event->captured_from) {
		event->captured_from->invalid = true;
		rc = FAKE_CUDA_CAPTURED_EVENT;
	}
	if (fake_gpu.broken)
		rc = fake_gpu.broken;
	return fake_gpu_end_call(rc);
}

/* With the lock; @host by the host's address. An engine's upload of its planes is the one copy from memory that is not pinned. */
static void
check_copy(const void *device, const void *host, size_t bytes)
{
	if (!fake_gpu_range_holds(fake_gpu.device, (uintptr_t)device, bytes))
		fake_gpu.counts.violations++;
	if (!fake_gpu_range_holds(fake_gpu.pinned, (uintptr_t)host, bytes) && !fake_gpu.may_upload &&
	    !fake_gpu.opt.pageable)
		fake_gpu.counts.violations++;
	fake_gpu.may_upload = false;
}

static int
api_copy(void *to, const void *from, size_t bytes, bool to_device, void *stream)
{
	int rc = fake_gpu_begin_call();

	if (rc == 0) {
		check_copy(to_device ? to : from, to_device ? from : to, bytes);
		rc = fake_gpu_push(stream, (struct fake_op){.kind = OP_COPY, .to = to, .from = from, .bytes = bytes});
	}
	return fake_gpu_end_call(rc);
}

static bool
api_has_batch(void)
{
	return !fake_gpu.opt.no_batch;
}

static int
api_copy_batch(void **to, void **from, size_t *bytes, size_t n, bool to_device, void *stream)
{
	int rc = fake_gpu_begin_call();

	if (rc == 0 && fake_gpu.opt.refuse_batch)
		rc = fake_gpu.opt.refuse_batch;
	fake_gpu.counts.batch_calls += rc == 0;
	fake_gpu.counts.refused += rc != 0;
	/* In no particular order: here, backwards. */
	for (size_t i = n; rc == 0 && i-- > 0;) {
		const uint8_t *host = to_device ? from[i] : to[i];

		host -= fake_gpu.opt.alias;
		check_copy(to_device ? to[i] : from[i], host, bytes[i]);
		rc = fake_gpu_push(stream,
				   (struct fake_op){.kind = OP_COPY,
						    .to = to_device ? to[i] : (uint8_t *)to[i] - fake_gpu.opt.alias,
						    .from = to_device ? host : from[i],
						    .bytes = bytes[i]});
	}
	return fake_gpu_end_call(rc);
}

static int
api_load_kernel(int device, struct scout__cuda_kernel *ret_kernel)
{
	int rc = fake_gpu_begin_call();

	if (device != fake_gpu.opt.device)
		fake_gpu.counts.violations++;
	fake_gpu.may_upload = true;
	if (rc == 0 && fake_gpu.opt.refuse_kernel)
		rc = fake_gpu.opt.refuse_kernel;
	if (rc == 0) {
		ret_kernel->module = &fake_gpu;
		fake_gpu.counts.live++;
	}
	return fake_gpu_end_call(rc);
}

static void
api_free_kernel(const struct scout__cuda_kernel *kernel)
{
	pthread_mutex_lock(&fake_gpu.mu);
	if (kernel->module != &fake_gpu)
		fake_gpu.counts.violations++;
	fake_gpu.counts.live--;
	pthread_mutex_unlock(&fake_gpu.mu);
}

static int
api_launch(const struct scout__cuda_kernel *kernel, const struct scout__tile_span *span, struct scout__cuda_grid grid,
	   void *stream)
{
	int rc = fake_gpu_begin_call();

	for (uint32_t i = 0; rc == 0 && i < span->n_parts; i++)
		if (!fake_gpu_range_holds(fake_gpu.device, (uintptr_t)span->parts[i].planes,
					  sizeof(*span->parts[i].planes)))
			fake_gpu.counts.violations++;
	if (grid.blocks == 0 || grid.threads == 0 || grid.threads % 32 || kernel->module != &fake_gpu)
		fake_gpu.counts.violations++;
	if (rc == 0)
		rc = fake_gpu_push(
			stream,
			(struct fake_op){.kind = OP_LAUNCH, .span = *span, .threads = grid.blocks * grid.threads});
	return fake_gpu_end_call(rc);
}

const struct scout__cuda_api fake_cuda = {
	.driver_version = api_driver_version,
	.device_count = api_device_count,
	.is_in_use = api_is_in_use,
	.device_of = api_device_of,
	.bus_id = api_bus_id,
	.enter_thread = api_enter_thread,
	.enter = api_enter,
	.leave = api_leave,
	.error_name = api_error_name,
	.malloc = api_malloc,
	.free = api_free,
	.host_register = api_host_register,
	.host_unregister = api_host_unregister,
	.host_device_pointer = api_host_device_pointer,
	.stream_new = api_stream_new,
	.stream_free = api_stream_free,
	.stream_sync = api_stream_sync,
	.stream_wait = api_stream_wait,
	.is_capturing = api_is_capturing,
	.event_new = api_event_new,
	.event_free = api_event_free,
	.event_record = api_event_record,
	.event_query = api_event_query,
	.copy = api_copy,
	.has_batch = api_has_batch,
	.copy_batch = api_copy_batch,
	.load_kernel = api_load_kernel,
	.free_kernel = api_free_kernel,
	.launch = api_launch,
};

static int
ops_probe(int32_t device, char *err, size_t err_len)
{
	return scout__cuda_probe(&fake_cuda, device, err, err_len);
}

static bool
ops_claims(const struct scout__copy_layout *layout)
{
	return scout__cuda_claims(&fake_cuda, layout);
}

static bool
ops_bus_id(const struct scout__copy_layout *layout, char *ret_id, size_t len)
{
	return scout__cuda_bus_id(&fake_cuda, layout, ret_id, len);
}

static int
ops_open(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len)
{
	return scout__cuda_open(&fake_cuda, cfg, ret_engine, err, err_len);
}

const struct scout__copy_ops fake_cuda_ops = {
	.name = "cuda",
	.probe = ops_probe,
	.claims = ops_claims,
	.bus_id = ops_bus_id,
	.open = ops_open,
	.close = scout__cuda_close,
	.add_memory = scout__cuda_add_memory,
	.remove_memory = scout__cuda_remove_memory,
	.start = scout__cuda_start,
	.poll = scout__cuda_poll,
	.fd = scout__cuda_fd,
	.fence = scout__cuda_fence,
};
