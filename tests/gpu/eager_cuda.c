/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA runtime and driver that do everything at once, in host memory: the programs of tests/gpu run on it where there is no GPU. That
 * shows that the programs expect the right thing of the engine, and that it makes no call that CUDA forbids during a capture; of CUDA
 * itself, of asynchrony and of speed it shows nothing. (The engine's states are walked on tests/rigs/copy/fake_cuda.c.)
 *
 * What it keeps of CUDA's rules: which memory is a device's, what is pinned, captures (what breaks them, which threads may do what
 * meanwhile, what a graph replays), errors that stick. With EAGER_REFUSES_BATCHES in the environment it refuses batches of copies. It is
 * loaded as libcuda.so.1, and has the names of both libraries.
 */
#include "eager_cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_kernels.h"
#include "tile.h"

#define LARGE (UINT64_C(64) << 20) /* a fill of more is the tests' way to keep a GPU busy */

static struct eager_stream legacy, per_thread;

/* ---- captures ---- */

static struct eager_stream *
stream_of(cudaStream_t handle)
{
	if (handle == NULL || handle == cudaStreamLegacy)
		return &legacy;
	return handle == cudaStreamPerThread ? &per_thread : (struct eager_stream *)(void *)handle;
}

static struct eager_stream *
captured_blocking(void)
{
	for (int i = 0; i < eager_n_streams; i++)
		if (eager_streams[i]->is_capturing && eager_streams[i]->is_blocking)
			return eager_streams[i];
	return NULL;
}

static void
execute(const struct eager_node *node)
{
	if (node->kind == EAGER_COPY)
		memcpy(node->to, node->from, node->bytes);
	else if (node->kind == EAGER_FILL)
		memset(node->to, node->value, node->bytes > LARGE ? 4096 : node->bytes);
	else if (node->kind == EAGER_RECORD)
		*node->event = (struct eager_event){.recorded = true};
}

/* At once, or into the graph. */
static int
enqueue(struct eager_stream *stream, struct eager_node node)
{
	struct eager_stream *other = captured_blocking();
	struct eager_node *copy;

	if (stream == &legacy && other) {
		other->is_invalid = true;
		return eager_fail(cudaErrorStreamCaptureImplicit);
	}
	if (!stream->is_capturing) {
		if (eager_sticky)
			return eager_fail(eager_sticky);
		execute(&node);
		return 0;
	}
	if (stream->is_invalid)
		return eager_fail(cudaErrorStreamCaptureInvalidated);
	copy = malloc(sizeof(*copy));
	if (!copy)
		abort();
	*copy = node;
	copy->next = NULL;
	*stream->graph->end = copy;
	stream->graph->end = &copy->next;
	return 0;
}

/* ---- the runtime: eager_streams and graphs ---- */

cudaError_t
cudaDeviceGetStreamPriorityRange(int *lowest, int *highest)
{
	*lowest = 0;
	*highest = -5;
	return cudaSuccess;
}

cudaError_t
cudaStreamCreateWithPriority(cudaStream_t *ret_stream, unsigned int flags, int priority)
{
	struct eager_stream *stream = calloc(1, sizeof(*stream));

	(void)priority;
	pthread_mutex_lock(&eager_mu);
	if (!stream || eager_n_streams == MAX_STREAMS)
		abort();
	stream->is_blocking = !(flags & cudaStreamNonBlocking);
	eager_streams[eager_n_streams++] = stream;
	pthread_mutex_unlock(&eager_mu);
	*ret_stream = (void *)stream;
	return cudaSuccess;
}

cudaError_t
cudaStreamCreateWithFlags(cudaStream_t *ret_stream, unsigned int flags)
{
	return cudaStreamCreateWithPriority(ret_stream, flags, 0);
}

cudaError_t
cudaStreamCreate(cudaStream_t *ret_stream)
{
	return cudaStreamCreateWithPriority(ret_stream, cudaStreamDefault, 0);
}

cudaError_t
cudaStreamDestroy(cudaStream_t stream)
{
	(void)stream;
	return cudaSuccess;
}

cudaError_t
cudaStreamSynchronize(cudaStream_t handle)
{
	struct eager_stream *stream = stream_of(handle);
	int rc;

	pthread_mutex_lock(&eager_mu);
	rc = eager_unsafe_call();
	if (stream->is_capturing) {
		stream->is_invalid = true;
		rc = eager_fail(cudaErrorStreamCaptureUnsupported);
	}
	rc = rc ? rc : eager_sticky;
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

cudaError_t
cudaDeviceSynchronize(void)
{
	return eager_sticky;
}

cudaError_t
cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
	struct eager_stream *stream = stream_of(handle);
	int rc = 0;

	pthread_mutex_lock(&eager_mu);
	if (stream == &legacy && captured_blocking())
		rc = eager_fail(cudaErrorStreamCaptureImplicit);
	else if (stream->is_capturing)
		*status = stream->is_invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
	else
		*status = cudaStreamCaptureStatusNone;
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

cudaError_t
cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
	struct eager_stream *stream = stream_of(handle);

	pthread_mutex_lock(&eager_mu);
	stream->is_capturing = true;
	stream->is_invalid = false;
	stream->mode = mode;
	stream->graph = calloc(1, sizeof(*stream->graph));
	if (!stream->graph)
		abort();
	stream->graph->end = &stream->graph->first;
	pthread_mutex_unlock(&eager_mu);
	return cudaSuccess;
}

cudaError_t
cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *ret_graph)
{
	struct eager_stream *stream = stream_of(handle);
	int rc = 0;

	pthread_mutex_lock(&eager_mu);
	stream->is_capturing = false;
	if (stream->is_invalid)
		rc = eager_fail(cudaErrorStreamCaptureInvalidated);
	*ret_graph = rc ? NULL : (void *)stream->graph;
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

cudaError_t
cudaGraphInstantiateWithFlags(cudaGraphExec_t *ret_exec, cudaGraph_t graph, unsigned long long flags)
{
	(void)flags;
	*ret_exec = (void *)graph;
	return cudaSuccess;
}

cudaError_t
cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
	const struct eager_graph *graph = (void *)exec;

	(void)stream;
	pthread_mutex_lock(&eager_mu);
	for (const struct eager_node *node = graph->first; node; node = node->next)
		execute(node);
	pthread_mutex_unlock(&eager_mu);
	return cudaSuccess;
}

/* ---- the runtime: events ---- */

cudaError_t
cudaEventCreateWithFlags(cudaEvent_t *ret_event, unsigned int flags)
{
	(void)flags;
	*ret_event = calloc(1, sizeof(struct eager_event));
	return *ret_event ? cudaSuccess : eager_fail(cudaErrorMemoryAllocation);
}

cudaError_t
cudaEventDestroy(cudaEvent_t event)
{
	(void)event;
	return cudaSuccess;
}

cudaError_t
cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle, unsigned int flags)
{
	struct eager_stream *stream = stream_of(stream_handle);
	struct eager_event *event = (void *)handle;
	int rc = 0;

	pthread_mutex_lock(&eager_mu);
	if (stream->is_capturing && !(flags & cudaEventRecordExternal))
		event->captured = stream;
	else
		rc = enqueue(stream, (struct eager_node){.kind = EAGER_RECORD, .event = event});
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

cudaError_t
cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

cudaError_t
cudaEventQuery(cudaEvent_t handle)
{
	struct eager_event *event = (void *)handle;
	int rc;

	pthread_mutex_lock(&eager_mu);
	rc = eager_unsafe_call();
	if (event->captured) {
		event->captured->is_invalid = true;
		rc = eager_fail(cudaErrorCapturedEvent);
	}
	rc = rc ? rc : eager_sticky;
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

cudaError_t
cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned int flags)
{
	struct eager_stream *stream = stream_of(stream_handle);
	const struct eager_event *event = (void *)handle;
	int rc = 0;

	pthread_mutex_lock(&eager_mu);
	if (stream->is_capturing && !(flags & cudaEventWaitExternal) && event->recorded && event->captured != stream) {
		stream->is_invalid = true;
		rc = eager_fail(cudaErrorStreamCaptureIsolation);
	} else if (!stream->is_capturing && event->captured) {
		(void)fprintf(stderr, "# a stream was drawn into a capture\n");
		abort();
	} else {
		rc = enqueue(stream, (struct eager_node){.kind = EAGER_NOTHING});
	}
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

/* ---- the runtime: copies and the kernel ---- */

static int
copy(void *to, const void *from, size_t bytes, bool to_device, cudaStream_t stream)
{
	int rc;

	pthread_mutex_lock(&eager_mu);
	if (!eager_is_known(to_device ? (uintptr_t)to : (uintptr_t)from, bytes))
		eager_sticky = cudaErrorIllegalAddress; /* seen when it is waited for */
	rc = eager_sticky ? 0
			  : enqueue(stream_of(stream),
				    (struct eager_node){.kind = EAGER_COPY, .to = to, .from = from, .bytes = bytes});
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

cudaError_t
cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	return copy(to, from, bytes, kind != cudaMemcpyDeviceToHost, stream);
}

cudaError_t
cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	int rc;

	pthread_mutex_lock(&eager_mu);
	rc = eager_unsafe_call();
	pthread_mutex_unlock(&eager_mu);
	rc = rc ? rc : copy(to, from, bytes, kind != cudaMemcpyDeviceToHost, cudaStreamLegacy);
	return rc ? rc : eager_sticky;
}

cudaError_t
cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
	int rc;

	pthread_mutex_lock(&eager_mu);
	rc = enqueue(stream_of(stream),
		     (struct eager_node){.kind = EAGER_FILL, .to = to, .value = value, .bytes = bytes});
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

cudaError_t
cudaMemset(void *to, int value, size_t bytes)
{
	memset(to, value, bytes);
	return cudaSuccess;
}

int
scout__cuda_load_tiles(void)
{
	return 0;
}

int
scout__cuda_launch_tiles(const struct scout__tile_span *span, uint32_t n_groups, void *stream)
{
	int rc = 0;

	(void)n_groups;
	(void)stream;
	pthread_mutex_lock(&eager_mu);
	for (uint64_t t = span->first_tile; t < span->end_tile && !eager_sticky; t++) {
		struct scout__tile tile = scout__tile_locate(span, t);

		if ((tile.page && !eager_is_known(tile.page, tile.bytes)) ||
		    !eager_is_known(span->slot + tile.slot_at, tile.bytes))
			eager_sticky = cudaErrorIllegalAddress;
		for (uint32_t lane = 0; lane < SCOUT__TILE_LANES && !eager_sticky; lane++)
			scout__tile_do(span, t, lane);
	}
	pthread_mutex_unlock(&eager_mu);
	return rc;
}

/* ---- the driver ---- */

/* CUDA 13.0's call by its name in the library; older headers have no type for its attributes, newer ones declare it otherwise. */
CUresult eager_copy_batch(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n, void *attributes,
			  size_t *indices, size_t n_attributes, CUstream stream) __asm__("cuMemcpyBatchAsync_v2");
CUresult
eager_copy_batch(CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t n, void *attributes, size_t *indices,
		 size_t n_attributes, CUstream stream)
{
	int rc = 0;

	(void)attributes;
	(void)indices;
	(void)n_attributes;
	if (getenv("EAGER_REFUSES_BATCHES"))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = n; i-- > 0 && rc == 0;) {
		const struct eager_range *range;

		pthread_mutex_lock(&eager_mu);
		range = eager_range_of((uintptr_t)to[i]);
		pthread_mutex_unlock(&eager_mu);
		rc = copy((void *)(uintptr_t)to[i], (const void *)(uintptr_t)from[i], bytes[i],
			  range && !range->is_host, (cudaStream_t)stream);
	}
	return (CUresult)rc;
}
