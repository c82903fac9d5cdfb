/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_gpu.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "thread.h"

struct fake_gpu fake_gpu = {.mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
_Thread_local bool fake_gpu_entered, fake_gpu_outside;

/* ---- streams that are captured ---- */

/* CUDA's handles of its own streams are small numbers. */
struct fake_stream *
fake_gpu_stream_of(void *handle)
{
	if (handle == SCOUT_STREAM_LEGACY)
		return LEGACY;
	if (handle == SCOUT_STREAM_PER_THREAD)
		return PER_THREAD;
	if (!handle)
		fake_gpu.counts.violations++; /* the engine takes "no stream" for none */
	return handle ? handle : LEGACY;
}

/* A blocking stream that is captured makes the legacy stream unusable; NULL: there is none. */
struct fake_stream *
fake_gpu_captured_blocking(void)
{
	for (int i = 0; i < MAX_STREAMS; i++)
		if (fake_gpu.streams[i].capturing && fake_gpu.streams[i].blocking)
			return &fake_gpu.streams[i];
	return NULL;
}

/* ---- ranges ---- */

void
fake_gpu_range_add(struct fake_range *ranges, const void *p, size_t bytes)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		if (ranges[i].bytes == 0) {
			ranges[i] = (struct fake_range){(uintptr_t)p, bytes};
			return;
		}
	}
	abort();
}

bool
fake_gpu_range_remove(struct fake_range *ranges, const void *p)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		if (ranges[i].bytes && ranges[i].base == (uintptr_t)p) {
			ranges[i].bytes = 0;
			return true;
		}
	}
	return false;
}

bool
fake_gpu_range_holds(const struct fake_range *ranges, uintptr_t p, size_t bytes)
{
	for (int i = 0; i < MAX_RANGES; i++)
		if (ranges[i].bytes && p >= ranges[i].base && p - ranges[i].base + bytes <= ranges[i].bytes)
			return true;
	return false;
}

/* ---- executing ---- */

/* The host's address of what the GPU knows by @address. */
static uintptr_t
host_of(uintptr_t address)
{
	return fake_gpu_range_holds(fake_gpu.pinned, address - fake_gpu.opt.alias, 1) ? address - fake_gpu.opt.alias
										      : address;
}

static void
do_launch(struct scout__tile_span *span)
{
	for (uint32_t i = 0; i < span->n_parts; i++) {
		uint64_t first = scout__tile_locate(span, span->parts[i].begin).slot - span->parts[i].slot;

		span->parts[i].slot = host_of(span->parts[i].slot + first) - first;
	}
	for (uint64_t t = 0; t < span->n_tiles; t++) {
		struct scout__tile tile = scout__tile_locate(span, t);

		if (tile.page && !fake_gpu_range_holds(fake_gpu.device, tile.page, tile.bytes))
			fake_gpu.counts.violations++;
		if (!fake_gpu_range_holds(fake_gpu.device, tile.slot, tile.bytes) &&
		    !fake_gpu_range_holds(fake_gpu.pinned, tile.slot, tile.bytes))
			fake_gpu.counts.violations++;
		for (uint32_t lane = 0; lane < SCOUT__TILE_LANES; lane++)
			scout__tile_do(span, t, lane);
	}
}

static void
do_op(struct fake_op *op)
{
	switch (op->kind) {
	case OP_COPY:
		memcpy(op->to, op->from, op->bytes);
		fake_gpu.counts.copies++;
		fake_gpu.pending--;
		break;
	case OP_LAUNCH:
		fake_gpu.pending--;
		if (op->span.n_tiles == 0)
			break; /* the engine's launch that moves nothing */
		do_launch(&op->span);
		fake_gpu.counts.launches++;
		fake_gpu.counts.threads += op->threads;
		break;
	case OP_RECORD:
		if (op->number > op->event->executed)
			op->event->executed = op->number;
		break;
	case OP_WAIT:
	case OP_HOLD:
		break;
	}
	fake_gpu.counts.ops++;
	if (fake_gpu.opt.break_op && fake_gpu.counts.ops >= fake_gpu.opt.break_op)
		fake_gpu.broken = fake_gpu.opt.break_error;
}

static bool
can_run(const struct fake_stream *stream)
{
	const struct fake_op *op = stream->first;

	if (!op || (op->kind == OP_HOLD && op->number == 0))
		return false;
	return op->kind != OP_WAIT || op->event->executed >= op->number;
}

/* A stream that can go on, at random if that is wanted. */
static struct fake_stream *
pick(void)
{
	struct fake_stream *found = NULL;
	uint64_t n = 0;

	for (int i = 0; i < MAX_STREAMS; i++) {
		if (!can_run(&fake_gpu.streams[i]))
			continue;
		n++;
		if (!found) {
			found = &fake_gpu.streams[i];
		} else if (fake_gpu.opt.seed) {
			fake_gpu.opt.seed = fake_gpu.opt.seed * 6364136223846793005u + 1442695040888963407u;
			if ((fake_gpu.opt.seed >> 33) % n == 0)
				found = &fake_gpu.streams[i];
		}
	}
	return found;
}

static void
drop_ops(void)
{
	for (int i = 0; i < MAX_STREAMS; i++) {
		while (fake_gpu.streams[i].first) {
			struct fake_op *op = fake_gpu.streams[i].first;

			fake_gpu.streams[i].first = op->next;
			free(op);
		}
		fake_gpu.streams[i].end = &fake_gpu.streams[i].first;
	}
	fake_gpu.pending = 0;
}

static bool
gate_is_shut(void)
{
	return fake_gpu.opt.gate && fake_gpu.opt.gate(fake_gpu.opt.user);
}

static void *
fake_main(void *arg)
{
	const struct timespec pause = {.tv_nsec = GATE_NS};
	struct fake_stream *stream;
	struct fake_op *op;

	(void)arg;
	pthread_mutex_lock(&fake_gpu.mu);
	while (!fake_gpu.stop) {
		stream = pick();
		if (!stream || gate_is_shut()) {
			pthread_cond_broadcast(&fake_gpu.cond);
			pthread_mutex_unlock(&fake_gpu.mu);
			nanosleep(&pause, NULL);
			pthread_mutex_lock(&fake_gpu.mu);
			continue;
		}
		op = stream->first;
		stream->first = op->next;
		if (!stream->first)
			stream->end = &stream->first;
		do_op(op);
		free(op);
		if (fake_gpu.broken)
			drop_ops();
		/* Let others in between two operations. */
		pthread_mutex_unlock(&fake_gpu.mu);
		pthread_mutex_lock(&fake_gpu.mu);
	}
	pthread_mutex_unlock(&fake_gpu.mu);
	return NULL;
}

/* ---- calls ---- */

/* Each call that can fail begins with this, with the lock. */
int
fake_gpu_begin_call(void)
{
	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu.counts.calls++;
	fake_gpu.counts.inits++;
	if (!fake_gpu_entered)
		fake_gpu.counts.violations++;
	if (fake_gpu.broken)
		return fake_gpu.broken;
	if (fake_gpu.opt.fail_call && --fake_gpu.opt.fail_call == 0)
		return fake_gpu.opt.fail_error;
	return 0;
}

int
fake_gpu_end_call(int rc)
{
	pthread_mutex_unlock(&fake_gpu.mu);
	return rc;
}

int
fake_gpu_push(void *handle, struct fake_op op)
{
	struct fake_stream *stream = handle;
	struct fake_op *copy = malloc(sizeof(*copy));

	if (!copy || fake_gpu.broken)
		abort();
	*copy = op;
	copy->next = NULL;
	*stream->end = copy;
	stream->end = &copy->next;
	fake_gpu.pending += op.kind == OP_COPY || op.kind == OP_LAUNCH;
	if (fake_gpu.pending > fake_gpu.counts.most_pending)
		fake_gpu.counts.most_pending = fake_gpu.pending;
	return 0;
}

/* ---- for tests ---- */

void
fake_cuda_start(const struct fake_cuda_options *options)
{
	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu.opt = *options;
	fake_gpu.opt.driver_version = options->driver_version ? options->driver_version : 12080;
	memset(&fake_gpu.counts, 0, sizeof(fake_gpu.counts));
	memset(fake_gpu.streams, 0, sizeof(fake_gpu.streams));
	for (int i = 0; i < 2; i++)
		fake_gpu.streams[i] = (struct fake_stream){.in_use = true, .end = &fake_gpu.streams[i].first};
	memset(fake_gpu.device, 0, sizeof(fake_gpu.device));
	memset(fake_gpu.pinned, 0, sizeof(fake_gpu.pinned));
	fake_gpu.broken = 0;
	fake_gpu.pending = 0;
	fake_gpu.stop = false;
	pthread_mutex_unlock(&fake_gpu.mu);
	if (scout__thread_start(&fake_gpu.thread, "fake-gpu", fake_main, NULL) != 0)
		abort();
}

struct fake_cuda_counts
fake_cuda_counts(void)
{
	struct fake_cuda_counts counts;

	pthread_mutex_lock(&fake_gpu.mu);
	counts = fake_gpu.counts;
	pthread_mutex_unlock(&fake_gpu.mu);
	return counts;
}

struct fake_cuda_counts
fake_cuda_stop(void)
{
	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu.stop = true;
	pthread_mutex_unlock(&fake_gpu.mu);
	pthread_join(fake_gpu.thread, NULL);
	drop_ops();
	return fake_gpu.counts;
}

void
fake_cuda_fail_call(uint64_t n, int error)
{
	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu.opt.fail_call = n;
	fake_gpu.opt.fail_error = error;
	pthread_mutex_unlock(&fake_gpu.mu);
}

void
fake_cuda_break_at(uint64_t n, int error)
{
	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu.opt.break_op = fake_gpu.counts.ops + n;
	fake_gpu.opt.break_error = error;
	pthread_mutex_unlock(&fake_gpu.mu);
}

uint64_t
fake_cuda_pending(void)
{
	uint64_t n;

	pthread_mutex_lock(&fake_gpu.mu);
	n = fake_gpu.pending;
	pthread_mutex_unlock(&fake_gpu.mu);
	return n;
}

void
fake_cuda_device_range(const void *p, size_t bytes)
{
	pthread_mutex_lock(&fake_gpu.mu);
	fake_gpu_range_add(fake_gpu.device, p, bytes);
	pthread_mutex_unlock(&fake_gpu.mu);
}

bool
fake_cuda_event_over(void *handle)
{
	struct fake_event *event = handle;
	bool over;

	pthread_mutex_lock(&fake_gpu.mu);
	over = event->recorded && event->executed >= event->recorded;
	pthread_mutex_unlock(&fake_gpu.mu);
	return over;
}

bool
fake_cuda_event_recorded(void *handle)
{
	struct fake_event *event = handle;
	bool recorded;

	pthread_mutex_lock(&fake_gpu.mu);
	recorded = event->recorded != 0;
	pthread_mutex_unlock(&fake_gpu.mu);
	return recorded;
}

void
fake_cuda_hold(void *stream)
{
	pthread_mutex_lock(&fake_gpu.mu);
	(void)fake_gpu_push(fake_gpu_stream_of(stream), (struct fake_op){.kind = OP_HOLD});
	pthread_mutex_unlock(&fake_gpu.mu);
}

void
fake_cuda_begin_capture(void *handle, bool blocking)
{
	struct fake_stream *stream = handle;

	pthread_mutex_lock(&fake_gpu.mu);
	stream->capturing = true;
	stream->invalid = false;
	stream->blocking = blocking;
	pthread_mutex_unlock(&fake_gpu.mu);
}

bool
fake_cuda_end_capture(void *handle)
{
	struct fake_stream *stream = handle;
	bool good;

	pthread_mutex_lock(&fake_gpu.mu);
	good = !stream->invalid;
	stream->capturing = false;
	stream->blocking = false;
	pthread_mutex_unlock(&fake_gpu.mu);
	return good;
}

void
fake_cuda_release(void *handle)
{
	struct fake_stream *stream;

	pthread_mutex_lock(&fake_gpu.mu);
	stream = fake_gpu_stream_of(handle);
	for (struct fake_op *op = stream->first; op; op = op->next) {
		if (op->kind == OP_HOLD && op->number == 0) {
			op->number = 1;
			break;
		}
	}
	pthread_mutex_unlock(&fake_gpu.mu);
}

void
fake_cuda_enter_test_thread(void)
{
	fake_gpu_entered = true;
}
