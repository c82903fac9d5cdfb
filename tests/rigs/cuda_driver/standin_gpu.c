/* SPDX-License-Identifier: Apache-2.0 */
#include "standin.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * DESIGN
 *
 * Purpose: execute what was enqueued, each stream on a thread of its own, which begins with the stream's first operation.
 *
 * Every operation has a number in the order of calls. The legacy stream and the blocking ones of a device wait for each other: an
 * operation of the one begins when all of the other with a lower number are over. A wait for a record of an event is over when the
 * record is.
 *
 * Addresses are checked when an operation is executed, as a device does. One that is nobody's, and the operation that the knob STICKY
 * names, fail the device: half of a copy's or kernel's bytes have been moved then, everything that is enqueued is dropped, and each later call of the
 * context says so. What runs meanwhile is over before that: a device may go on writing for a while, but not into memory that the process
 * has unmapped.
 */

#define LARGE (UINT64_C(64) << 20)

/* ---- queues ---- */

void
standin_stream_init(struct standin_stream *stream, struct standin_device *device, bool blocking)
{
	memset(stream, 0, sizeof(*stream));
	stream->device = device;
	stream->blocking = blocking;
	stream->end = &stream->first;
}

static void
free_op(struct standin_op *op)
{
	if (op->record)
		standin_record_drop(op->record);
	free(op->owned);
	free(op->launch);
	free(op);
}

static void
remove_first(struct standin_stream *stream)
{
	struct standin_op *op = stream->first;

	stream->first = op->next;
	if (!stream->first)
		stream->end = &stream->first;
	stream->n--;
	standin.pending -= op->kind == KIND_COPY || op->kind == KIND_KERNEL;
	if (op->kind == KIND_RECORD) {
		op->record->done = true;
		op->record->at_ns = standin_now_ns();
	}
	free_op(op);
}

/* All but what is being executed. */
static void
drop_ops(struct standin_stream *stream)
{
	struct standin_op *busy = stream->busy ? stream->first : NULL;

	if (busy) {
		stream->first = busy->next;
		stream->n--;
	}
	while (stream->first)
		remove_first(stream);
	stream->end = &stream->first;
	if (busy) {
		stream->first = busy;
		busy->next = NULL;
		stream->end = &busy->next;
		stream->n++;
	}
}

static bool
is_busy(const struct standin_device *device, const struct standin_stream *but)
{
	bool busy = (&device->legacy != but && device->legacy.busy) ||
		    (&device->per_thread != but && device->per_thread.busy);

	for (const struct standin_stream *s = standin.streams; s; s = s->next)
		busy |= s != but && s->device == device && s->busy;
	for (const struct standin_stream *s = standin.ending; s; s = s->next)
		busy |= s != but && s->device == device && s->busy;
	return busy;
}

/* The device fails in an operation of @in: what is enqueued is dropped. Drops the lock while others are executed. */
static void
fail_device(struct standin_device *device, const struct standin_stream *in, int code)
{
	if (device->failing)
		return;
	device->failing = true;
	while (is_busy(device, in))
		(void)pthread_cond_wait(&standin.cond, &standin.mu);
	device->broken = code;
	for (struct standin_stream *s = standin.streams; s; s = s->next)
		if (s->device == device)
			drop_ops(s);
	for (struct standin_stream *s = standin.ending; s; s = s->next)
		if (s->device == device)
			drop_ops(s);
	drop_ops(&device->legacy);
	drop_ops(&device->per_thread);
}

/* ---- what may run ---- */

/* Operations with a lower number of a stream that this one orders itself with. */
static bool
is_behind(const struct standin_stream *other, uint64_t number)
{
	return other->first && other->first->number < number;
}

static bool
is_in_order(const struct standin_stream *stream, uint64_t number)
{
	struct standin_device *device = stream->device;

	if (!stream->blocking)
		return true;
	if (stream != &device->legacy)
		return !is_behind(&device->legacy, number);
	if (is_behind(&device->per_thread, number))
		return false;
	for (const struct standin_stream *s = standin.streams; s; s = s->next)
		if (s->device == device && s->blocking && is_behind(s, number))
			return false;
	for (const struct standin_stream *s = standin.ending; s; s = s->next)
		if (s->device == device && s->blocking && is_behind(s, number))
			return false;
	return true;
}

static bool
can_run(const struct standin_stream *stream)
{
	const struct standin_op *op = stream->first;

	if (!op || stream->device->failing || (op->kind == KIND_HOLD && !op->released))
		return false;
	if (op->kind == KIND_WAIT && !op->record->done)
		return false;
	return is_in_order(stream, op->number);
}

/* ---- executing ---- */

/* A code for the device if this operation is to fail it. */
static int
count_operation(void)
{
	standin_add(COUNT_operations, 1);
	if (!standin.knobs.sticky || standin.counts[COUNT_operations] < standin.knobs.sticky)
		return 0;
	standin.knobs.sticky = 0;
	return standin.knobs.sticky_code;
}

static void
count_copy(bool from_host, bool to_host, size_t bytes)
{
	enum standin_count calls = to_host ? COUNT_to_host : from_host ? COUNT_to_device : COUNT_inside;

	standin_add(calls, 1);
	standin_add(to_host ? COUNT_bytes_to_host : from_host ? COUNT_bytes_to_device : COUNT_bytes_inside, bytes);
}

/* Host addresses of both sides; 0: one is nobody's. What the call named by its host address was looked at there. */
static bool
resolve_copy(const struct standin_op *op, const struct standin_device *device, uintptr_t *ret_to, uintptr_t *ret_from)
{
	bool to_host = op->from_device, from_host = op->to_device;

	*ret_to = op->by_host_address && to_host ? op->to : standin_resolve(op->to, op->bytes, device, &to_host);
	*ret_from =
		op->by_host_address && from_host ? op->from : standin_resolve(op->from, op->bytes, device, &from_host);
	/* What a call says is the device's must be. */
	if (op->by_host_address && (op->to_device ? to_host : from_host))
		return false;
	if (*ret_to && *ret_from)
		count_copy(from_host, to_host, op->bytes);
	return *ret_to && *ret_from;
}

/* @code: with which the device fails here, or 0. Returns one, or 0. Drops the lock meanwhile. */
static int
do_copy(const struct standin_stream *stream, const struct standin_op *op, int code)
{
	uintptr_t to = 0, from = 0;
	size_t bytes = code ? op->bytes / 2 : op->bytes;

	if (!resolve_copy(op, stream->device, &to, &from)) {
		standin_add(COUNT_bad_addresses, 1);
		return DRIVER_ILLEGAL_ADDRESS;
	}
	(void)pthread_mutex_unlock(&standin.mu);
	/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
	memcpy((void *)to, op->owned ? op->owned : (void *)from, bytes);
	(void)pthread_mutex_lock(&standin.mu);
	return code;
}

/* A fill of more than LARGE is a test's way to keep a GPU busy: it takes its time and writes one page. Drops the lock meanwhile. */
static int
do_fill(const struct standin_stream *stream, const struct standin_op *op)
{
	const struct timespec busy = {.tv_nsec = op->bytes > LARGE ? 500000 : 0};
	uintptr_t to;
	bool is_host;

	to = standin_resolve(op->to, op->bytes, stream->device, &is_host);
	if (!to) {
		standin_add(COUNT_bad_addresses, 1);
		return DRIVER_ILLEGAL_ADDRESS;
	}
	(void)pthread_mutex_unlock(&standin.mu);
	/* NOLINTNEXTLINE(performance-no-int-to-ptr) */
	memset((void *)to, op->byte, op->bytes > LARGE ? 4096 : op->bytes);
	if (busy.tv_nsec)
		(void)nanosleep(&busy, NULL);
	(void)pthread_mutex_lock(&standin.mu);
	return 0;
}

/* Whether all that the kernel touches may be touched; the slot gets the host's address. */
static bool
check_launch(struct standin_launch *launch, const struct standin_device *device)
{
	struct scout__tile_span *span = &launch->span;
	uint64_t shift[SCOUT__TILE_PARTS] = {0};
	bool is_host;

	for (uint64_t t = 0; t < span->n_tiles; t++) {
		struct scout__tile tile = scout__tile_locate(span, t);
		uintptr_t slot = standin_resolve(tile.slot, tile.bytes, device, &is_host);

		if (!slot || (tile.page && !standin_resolve(tile.page, tile.bytes, device, &is_host)))
			return false;
		shift[scout__tile_part_of(span, t) - span->parts] = tile.slot - slot;
		standin_add(COUNT_bytes_by_kernels, tile.page ? tile.bytes : 0);
	}
	for (uint32_t i = 0; i < span->n_parts; i++)
		span->parts[i].slot -= shift[i];
	standin_add(COUNT_tiles, span->n_tiles);
	return true;
}

/* As scout__cuda_move_tiles() does, with the threads that there are: groups that the launch lacks leave their tiles alone. */
static void
run_kernel(const struct standin_launch *launch, uint64_t end_tile)
{
	const uint64_t groups_per_block = launch->threads / SCOUT__TILE_LANES;
	uint64_t n_groups = launch->blocks * groups_per_block;

	for (uint64_t thread = 0; thread < (uint64_t)launch->blocks * launch->threads; thread++) {
		uint64_t in_block = thread % launch->threads;
		uint64_t group = thread / launch->threads * groups_per_block + in_block / SCOUT__TILE_LANES;

		for (uint64_t t = group; t < end_tile; t += n_groups)
			scout__tile_do(&launch->span, t, (uint32_t)(in_block % SCOUT__TILE_LANES));
	}
}

static bool
resolve_planes(struct standin_launch *launch, const struct standin_device *device)
{
	bool is_host;

	for (uint32_t i = 0; i < launch->span.n_parts; i++) {
		const struct scout__tile_part *part = &launch->span.parts[i];

		if (part->end_plane <= part->first_plane ||
		    !standin_resolve((uintptr_t)(part->planes + part->first_plane),
				     (part->end_plane - part->first_plane) * sizeof(*part->planes), device, &is_host))
			return false;
	}
	return launch->span.n_parts > 0;
}

static int
do_kernel(const struct standin_stream *stream, const struct standin_op *op, int code)
{
	struct standin_launch *launch = op->launch;
	const struct scout__tile_span *span = &launch->span;
	uint64_t end = code ? span->n_tiles / 2 : span->n_tiles;

	if (span->n_tiles == 0)
		return code;
	standin_add(COUNT_kernels, 1);
	standin_add(COUNT_threads, (uint64_t)launch->blocks * launch->threads);
	if (!resolve_planes(launch, stream->device) || !check_launch(launch, stream->device)) {
		standin_add(COUNT_bad_addresses, 1);
		return DRIVER_ILLEGAL_ADDRESS;
	}
	(void)pthread_mutex_unlock(&standin.mu);
	run_kernel(launch, end);
	(void)pthread_mutex_lock(&standin.mu);
	return code;
}

/* Drops the lock meanwhile. */
static void
delay(struct standin_stream *stream)
{
	struct timespec pause;
	uint64_t us;

	if (standin.knobs.delay_us == 0)
		return;
	stream->seed = stream->seed * 6364136223846793005u + 1442695040888963407u;
	/* Most operations are quick, and so are tests. */
	us = stream->seed >> 62 ? 0 : (stream->seed >> 33) % (standin.knobs.delay_us + 1);
	if (us == 0)
		return;
	pause = (struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
	(void)pthread_mutex_unlock(&standin.mu);
	(void)nanosleep(&pause, NULL);
	(void)pthread_mutex_lock(&standin.mu);
}

static void
run_first(struct standin_stream *stream)
{
	struct standin_op *op = stream->first;
	int code = 0;

	stream->busy = true;
	delay(stream);
	if (!stream->device->broken && op->kind != KIND_HOLD)
		code = count_operation();
	if (!stream->device->broken && op->kind == KIND_COPY)
		code = do_copy(stream, op, code);
	else if (!stream->device->broken && !code && op->kind == KIND_FILL)
		code = do_fill(stream, op);
	else if (!stream->device->broken && op->kind == KIND_KERNEL)
		code = do_kernel(stream, op, code);
	if (code)
		fail_device(stream->device, stream, code);
	stream->busy = false;
	remove_first(stream);
	if (standin.pending == 0)
		standin_write_stats(false);
	(void)pthread_cond_broadcast(&standin.cond);
}

/* Drops the lock meanwhile. */
static void
pause_shortly(void)
{
	const struct timespec pause = {.tv_nsec = 20000};

	(void)pthread_mutex_unlock(&standin.mu);
	(void)nanosleep(&pause, NULL);
	(void)pthread_mutex_lock(&standin.mu);
}

static void *
stream_main(void *arg)
{
	struct standin_stream *stream = arg;

	(void)pthread_mutex_lock(&standin.mu);
	while (!standin.closed && (!stream->dying || stream->first)) {
		if (!can_run(stream))
			(void)pthread_cond_wait(&standin.cond, &standin.mu);
		else if (standin.gate && standin.gate(standin.gate_user))
			pause_shortly();
		else
			run_first(stream);
	}
	drop_ops(stream);
	stream->ended = true;
	(void)pthread_mutex_unlock(&standin.mu);
	return NULL;
}

/* ---- from calls ---- */

/* Signals belong to the program's own threads. */
static int
start_thread(struct standin_stream *stream)
{
	sigset_t all, before;
	int rc;

	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&stream->thread, NULL, stream_main, stream);
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	stream->started = rc == 0;
	standin.used = true;
	stream->seed = standin.knobs.seed + standin.number * 2654435761u;
	return rc ? DRIVER_OUT_OF_MEMORY : 0;
}

static void
free_taken(const struct standin_op *op)
{
	if (op->record)
		standin_record_drop(op->record);
	free(op->owned);
	free(op->launch);
}

int
standin_push(struct standin_stream *stream, const struct standin_op *op)
{
	struct standin_op *kept = malloc(sizeof(*kept));
	int rc = kept ? 0 : DRIVER_OUT_OF_MEMORY;

	if (rc == 0 && !stream->started)
		rc = start_thread(stream);
	while (rc == 0 && stream->n >= QUEUE_OPS && !stream->device->broken && !standin.closed)
		(void)pthread_cond_wait(&standin.cond, &standin.mu);
	rc = rc ? rc : standin.closed ? DRIVER_DEINITIALIZED : stream->device->broken;
	if (rc) {
		free_taken(op);
		free(kept);
		return rc;
	}
	*kept = *op;
	kept->next = NULL;
	kept->number = ++standin.number;
	*stream->end = kept;
	stream->end = &kept->next;
	stream->n++;
	standin.pending += op->kind == KIND_COPY || op->kind == KIND_KERNEL;
	if (standin.pending > standin.counts[COUNT_most_pending])
		standin.counts[COUNT_most_pending] = standin.pending;
	(void)pthread_cond_broadcast(&standin.cond);
	return 0;
}

int
standin_drain(struct standin_stream *stream)
{
	uint64_t number = standin.number;
	struct standin_device *device = stream->device;

	/* The legacy stream is done when all that it orders itself with are. */
	while (!device->broken && !standin.closed &&
	       (is_behind(stream, number + 1) || (stream == &device->legacy && !is_in_order(stream, number + 1))))
		(void)pthread_cond_wait(&standin.cond, &standin.mu);
	return device->broken;
}

static bool
is_idle(const struct standin_device *device, uint64_t number)
{
	bool behind = is_behind(&device->legacy, number) || is_behind(&device->per_thread, number);

	for (const struct standin_stream *s = standin.streams; s; s = s->next)
		behind |= s->device == device && is_behind(s, number);
	for (const struct standin_stream *s = standin.ending; s; s = s->next)
		behind |= s->device == device && is_behind(s, number);
	return !behind;
}

int
standin_drain_device(struct standin_device *device)
{
	uint64_t number = standin.number + 1;

	while (!device->broken && !standin.closed && !is_idle(device, number))
		(void)pthread_cond_wait(&standin.cond, &standin.mu);
	return device->broken;
}

/* ---- in flight ---- */

static bool
meets(uintptr_t a, size_t a_bytes, uintptr_t b, size_t b_bytes)
{
	return a < b + b_bytes && b < a + a_bytes;
}

static bool
kernel_touches(const struct standin_launch *launch, const struct standin_device *device, uintptr_t host, size_t bytes)
{
	const struct scout__tile_span *span = &launch->span;
	bool is_host;

	for (uint64_t t = 0; t < span->n_tiles; t++) {
		struct scout__tile tile = scout__tile_locate(span, t);
		uintptr_t at = standin_resolve(tile.slot, tile.bytes, device, &is_host);

		if (meets(at ? at : tile.slot, tile.bytes, host, bytes))
			return true;
	}
	return false;
}

static bool
stream_touches(const struct standin_stream *stream, uintptr_t host, size_t bytes)
{
	for (struct standin_op *op = stream->first; op; op = op->next) {
		uint64_t shift = op->by_host_address || !standin.knobs.alias ? 0 : ALIAS;

		if (op->kind == KIND_COPY && (meets(op->to - shift, op->bytes, host, bytes) ||
					      (!op->owned && meets(op->from - shift, op->bytes, host, bytes))))
			return true;
		if (op->kind == KIND_KERNEL && resolve_planes(op->launch, stream->device) &&
		    kernel_touches(op->launch, stream->device, host, bytes))
			return true;
	}
	return false;
}

bool
standin_in_flight(uintptr_t host, size_t bytes)
{
	bool found = false;

	for (int i = 0; i < MAX_DEVICES; i++)
		found |= stream_touches(&standin.devices[i].legacy, host, bytes) ||
			 stream_touches(&standin.devices[i].per_thread, host, bytes);
	for (const struct standin_stream *s = standin.streams; s; s = s->next)
		found |= stream_touches(s, host, bytes);
	for (const struct standin_stream *s = standin.ending; s; s = s->next)
		found |= stream_touches(s, host, bytes);
	return found;
}

/* ---- ending ---- */

void
standin_stream_stop(struct standin_stream *stream)
{
	stream->dying = true;
	stream->next = standin.ending;
	standin.ending = stream;
	(void)pthread_cond_broadcast(&standin.cond);
}

void
standin_join_ended(bool all)
{
	struct standin_stream **at = &standin.ending, *joined = NULL, *next;

	while (*at) {
		struct standin_stream *stream = *at;

		if (!all && stream->started && !stream->ended) {
			at = &stream->next;
			continue;
		}
		*at = stream->next;
		stream->next = joined;
		joined = stream;
	}
	(void)pthread_mutex_unlock(&standin.mu);
	for (; joined; joined = next) {
		next = joined->next;
		if (joined->started)
			(void)pthread_join(joined->thread, NULL);
		free(joined);
	}
	(void)pthread_mutex_lock(&standin.mu);
}

void
standin_stream_restart(struct standin_stream *stream)
{
	stream->dying = true;
	(void)pthread_cond_broadcast(&standin.cond);
	if (stream->started) {
		(void)pthread_mutex_unlock(&standin.mu);
		(void)pthread_join(stream->thread, NULL);
		(void)pthread_mutex_lock(&standin.mu);
	}
	standin_stream_init(stream, stream->device, true);
}
