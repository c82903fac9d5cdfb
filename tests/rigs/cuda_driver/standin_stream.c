/* SPDX-License-Identifier: Apache-2.0 */
#include "standin.h"

#include <stdlib.h>

/*
 * DESIGN
 *
 * Purpose: streams, events, and captures as far as they forbid something.
 *
 * An event points at its last record; who waits for it waits for that record, whatever the event is used for later. The per-thread
 * default stream is one for all threads: that only adds order.
 *
 * A captured stream executes nothing; its graph gets what is enqueued (standin_graph.c). What the driver forbids during a capture fails here with the driver's
 * code and invalidates the capture: a wait for work outside of it, a question for one of its events, the legacy stream beside a captured
 * stream that orders itself with it, and calls that may be unsafe, made by a thread that has not said that its calls are none of the
 * capture's affair. A stream that waits for an event of a capture is drawn into it.
 */

#define FIRST_HANDLE 3u /* smaller ones are names of default streams */

/* ---- handles ---- */

struct standin_stream *
standin_stream_of(CUstream handle, int *ret_rc)
{
	struct standin_device *device = standin_current();
	uintptr_t name = (uintptr_t)handle;

	if (name < FIRST_HANDLE)
		return name == 2 ? &device->per_thread : &device->legacy;
	for (struct standin_stream *s = standin.streams; s; s = s->next)
		if ((uintptr_t)s == name && s->device == device)
			return s;
	*ret_rc = DRIVER_INVALID_HANDLE;
	return NULL;
}

static struct standin_event *
event_of(CUevent handle, int *ret_rc)
{
	for (struct standin_event *e = standin.events; e; e = e->next)
		if ((void *)e == (void *)handle)
			return e;
	*ret_rc = DRIVER_INVALID_HANDLE;
	return NULL;
}

void
standin_record_drop(struct standin_record *record)
{
	if (record && --record->refs == 0)
		free(record);
}

/* ---- captures ---- */

static void
invalidate(struct standin_capture *capture)
{
	if (capture && !capture->invalid) {
		capture->invalid = true;
		standin_add(COUNT_captures_broken, 1);
	}
}

static bool
is_forbidden(const struct standin_capture *capture)
{
	bool is_own = pthread_equal(capture->thread, pthread_self()) && capture->mode != DRIVER_MODE_RELAXED;

	if (!capture->in_use || standin_thread.mode == DRIVER_MODE_RELAXED)
		return false;
	return is_own || (standin_thread.mode == DRIVER_MODE_GLOBAL && capture->mode == DRIVER_MODE_GLOBAL);
}

int
standin_capture_guard(void)
{
	int rc = 0;

	for (int i = 0; i < MAX_CAPTURES; i++) {
		if (!is_forbidden(&standin.captures[i]))
			continue;
		invalidate(&standin.captures[i]);
		rc = DRIVER_CAPTURE_UNSUPPORTED;
	}
	return rc;
}

/* The capture of a stream that orders itself with the legacy one. */
static struct standin_capture *
captured_blocking(const struct standin_device *device)
{
	for (int i = 0; i < MAX_CAPTURES; i++) {
		const struct standin_capture *capture = &standin.captures[i];

		if (capture->in_use && capture->origin->device == device && capture->origin->blocking)
			return &standin.captures[i];
	}
	return NULL;
}

int
standin_stream_take(struct standin_stream *stream, bool *ret_captured)
{
	struct standin_capture *other = captured_blocking(stream->device);

	*ret_captured = stream->capture != NULL;
	if (stream->capture)
		return stream->capture->invalid ? DRIVER_CAPTURE_INVALIDATED : 0;
	if (stream != &stream->device->legacy || !other)
		return 0;
	invalidate(other);
	return DRIVER_CAPTURE_IMPLICIT;
}

STANDIN_EXPORT CUresult
cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *ret_status)
{
	struct standin_stream *stream = NULL;
	int rc = standin_enter(ENTRY_cuStreamIsCapturing, NEEDS_CONTEXT);

	rc = rc ? rc : ret_status ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		stream = standin_stream_of(handle, &rc);
	if (stream && stream == &stream->device->legacy && captured_blocking(stream->device))
		rc = DRIVER_CAPTURE_IMPLICIT;
	if (rc == 0 && stream)
		*ret_status = (CUstreamCaptureStatus)(!stream->capture ? 0 : stream->capture->invalid ? 2 : 1);
	return standin_leave(rc);
}

static struct standin_capture *
free_capture(void)
{
	for (int i = 0; i < MAX_CAPTURES; i++)
		if (!standin.captures[i].in_use)
			return &standin.captures[i];
	return NULL;
}

STANDIN_EXPORT CUresult
cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	struct standin_capture *capture;
	struct standin_stream *stream = NULL;
	int rc = standin_enter(ENTRY_cuStreamBeginCapture_v2, NEEDS_CONTEXT);

	rc = rc ? rc : (unsigned)mode <= DRIVER_MODE_RELAXED ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		stream = standin_stream_of(handle, &rc);
	if (rc == 0 && stream == &stream->device->legacy)
		rc = DRIVER_CAPTURE_UNSUPPORTED;
	if (rc == 0 && stream->capture)
		rc = DRIVER_ILLEGAL_STATE;
	capture = rc ? NULL : free_capture();
	if (rc == 0 && !capture)
		rc = DRIVER_OUT_OF_MEMORY;
	if (rc == 0) {
		*capture = (struct standin_capture){.in_use = true,
						    .mode = (enum driver_capture_mode)mode,
						    .thread = pthread_self(),
						    .origin = stream,
						    .graph = standin_graph_new()};
		capture->in_use = capture->graph != NULL;
		rc = capture->graph ? 0 : DRIVER_OUT_OF_MEMORY;
		stream->capture = capture->graph ? capture : NULL;
	}
	return standin_leave(rc);
}

/* Let go of the streams and events of a capture. Returns whether all streams had been joined. */
static bool
end_capture(struct standin_capture *capture)
{
	bool joined = true;

	for (struct standin_stream *s = standin.streams; s; s = s->next) {
		if (s->capture != capture)
			continue;
		joined &= s == capture->origin || s->joined;
		s->capture = NULL;
		s->joined = false;
	}
	for (int i = 0; i < MAX_DEVICES; i++)
		if (standin.devices[i].per_thread.capture == capture)
			standin.devices[i].per_thread.capture = NULL;
	for (struct standin_event *e = standin.events; e; e = e->next)
		if (e->captured == capture)
			e->captured = NULL;
	capture->in_use = false;
	return joined;
}

STANDIN_EXPORT CUresult
cuStreamEndCapture(CUstream handle, CUgraph *ret_graph)
{
	struct standin_capture *capture = NULL;
	struct standin_stream *stream = NULL;
	int rc = standin_enter(ENTRY_cuStreamEndCapture, NEEDS_CONTEXT);

	rc = rc ? rc : ret_graph ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		stream = standin_stream_of(handle, &rc);
	if (rc == 0)
		capture = stream->capture;
	if (rc == 0 && !capture)
		rc = DRIVER_ILLEGAL_STATE;
	if (rc == 0 && capture->origin != stream)
		rc = DRIVER_CAPTURE_UNMATCHED;
	if (rc == 0 && capture->mode != DRIVER_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
		rc = DRIVER_CAPTURE_WRONG_THREAD;
	if (rc)
		return standin_leave(rc);
	if (capture->invalid)
		rc = DRIVER_CAPTURE_INVALIDATED;
	if (!end_capture(capture) && rc == 0)
		rc = DRIVER_CAPTURE_UNJOINED;
	*ret_graph = rc ? NULL : (CUgraph)(void *)capture->graph;
	return standin_leave(rc);
}

/* ---- streams ---- */

STANDIN_EXPORT CUresult
cuStreamCreateWithPriority(CUstream *ret_stream, unsigned int flags, int priority)
{
	struct standin_device *device = standin_current();
	struct standin_stream *stream = NULL;
	int rc = standin_enter(ENTRY_cuStreamCreateWithPriority, NEEDS_CONTEXT);

	(void)priority; /* any: the driver clamps it */
	rc = rc ? rc : ret_stream && flags <= 1 ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0) {
		standin_join_ended(false);
		stream = malloc(sizeof(*stream));
		rc = stream ? 0 : DRIVER_OUT_OF_MEMORY;
	}
	if (rc == 0) {
		standin_stream_init(stream, device, flags == 0);
		stream->next = standin.streams;
		standin.streams = stream;
		standin_add(COUNT_live, 1);
		*ret_stream = (CUstream)(void *)stream;
	}
	return standin_leave(rc);
}

static void
take_out(struct standin_stream *stream)
{
	struct standin_stream **at = &standin.streams;

	while (*at != stream)
		at = &(*at)->next;
	*at = stream->next;
	standin.counts[COUNT_live]--;
	if (stream->capture) {
		invalidate(stream->capture);
		if (stream->capture->origin == stream)
			(void)end_capture(stream->capture);
	}
}

/* What is enqueued is executed all the same. */
STANDIN_EXPORT CUresult
cuStreamDestroy_v2(CUstream handle)
{
	struct standin_stream *stream = NULL;
	int rc = standin_enter(ENTRY_cuStreamDestroy_v2, NEEDS_CONTEXT);

	if (rc == 0 && (uintptr_t)handle < FIRST_HANDLE)
		rc = DRIVER_INVALID_HANDLE;
	if (rc == 0)
		stream = standin_stream_of(handle, &rc);
	if (rc == 0) {
		take_out(stream);
		standin_stream_stop(stream);
	}
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuStreamSynchronize(CUstream handle)
{
	struct standin_stream *stream = NULL;
	bool captured = false;
	int rc = standin_enter(ENTRY_cuStreamSynchronize, NEEDS_CONTEXT | IS_UNSAFE);

	if (rc == 0)
		stream = standin_stream_of(handle, &rc);
	rc = rc ? rc : standin_stream_take(stream, &captured);
	if (rc == 0 && captured) {
		invalidate(stream->capture);
		rc = DRIVER_CAPTURE_UNSUPPORTED;
	}
	return standin_leave(rc ? rc : standin_drain(stream));
}

/* What a captured stream, or an event of a capture, makes of a wait. *ret_enqueue: it is one that is executed. */
static int
wait_and_captures(struct standin_stream *stream, const struct standin_event *event, bool *ret_enqueue)
{
	*ret_enqueue = false;
	if (stream->capture && event->captured == stream->capture) {
		if (stream == stream->capture->origin)
			event->from->joined = true;
		return 0;
	}
	if (stream->capture && (event->last || event->in_capture)) {
		invalidate(stream->capture);
		invalidate(event->captured);
		return event->captured ? DRIVER_CAPTURE_MERGE : DRIVER_CAPTURE_ISOLATION;
	}
	if (event->captured) {
		stream->capture = event->captured;
		standin_add(COUNT_drawn_in, 1);
		return 0;
	}
	if (event->in_capture)
		return DRIVER_CAPTURED_EVENT;
	*ret_enqueue = event->last != NULL;
	return 0;
}

static int
wait_for(const struct standin_event *event, struct standin_stream *stream)
{
	event->last->refs++;
	return standin_push(stream, &(struct standin_op){.kind = KIND_WAIT, .record = event->last});
}

STANDIN_EXPORT CUresult
cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned int flags)
{
	struct standin_stream *stream = NULL;
	struct standin_event *event = NULL;
	bool captured = false, enqueue = false;
	int rc = standin_enter(ENTRY_cuStreamWaitEvent, NEEDS_CONTEXT);

	rc = rc ? rc : flags <= 1 ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		stream = standin_stream_of(handle, &rc);
	if (rc == 0)
		event = event_of(event_handle, &rc);
	rc = rc ? rc : standin_stream_take(stream, &captured);
	if (rc == 0 && captured && flags)
		rc = standin_graph_add(stream->capture->graph,
				       &(struct standin_op){.kind = KIND_WAIT, .event = event_handle});
	else if (rc == 0)
		rc = wait_and_captures(stream, event, &enqueue);
	if (rc == 0 && enqueue)
		rc = wait_for(event, stream);
	return standin_leave(rc);
}

/* ---- events ---- */

STANDIN_EXPORT CUresult
cuEventCreate(CUevent *ret_event, unsigned int flags)
{
	struct standin_event *event = NULL;
	int rc = standin_enter(ENTRY_cuEventCreate, NEEDS_CONTEXT);

	rc = rc ? rc : ret_event && flags <= 7 ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0) {
		event = calloc(1, sizeof(*event));
		rc = event ? 0 : DRIVER_OUT_OF_MEMORY;
	}
	if (rc == 0) {
		event->device = standin_current();
		event->timed = !(flags & 2);
		event->next = standin.events;
		standin.events = event;
		standin_add(COUNT_live, 1);
		*ret_event = (CUevent)(void *)event;
	}
	return standin_leave(rc);
}

static void
free_event(struct standin_event *event)
{
	struct standin_event **at = &standin.events;

	while (*at != event)
		at = &(*at)->next;
	*at = event->next;
	standin_record_drop(event->last);
	free(event);
	standin.counts[COUNT_live]--;
}

STANDIN_EXPORT CUresult
cuEventDestroy_v2(CUevent handle)
{
	struct standin_event *event = NULL;
	int rc = standin_enter(ENTRY_cuEventDestroy_v2, NEEDS_CONTEXT);

	if (rc == 0)
		event = event_of(handle, &rc);
	if (rc == 0)
		free_event(event);
	return standin_leave(rc);
}

/* The event stands for what the stream has been given so far. */
static int
record(struct standin_event *event, struct standin_stream *stream)
{
	struct standin_record *made = calloc(1, sizeof(*made));
	int rc;

	if (!made)
		return DRIVER_OUT_OF_MEMORY;
	made->refs = 2;
	rc = standin_push(stream, &(struct standin_op){.kind = KIND_RECORD, .record = made});
	if (rc) {
		standin_record_drop(made);
		return rc;
	}
	standin_record_drop(event->last);
	event->last = made;
	event->in_capture = false;
	event->captured = NULL;
	return 0;
}

static void
record_in_capture(struct standin_event *event, struct standin_stream *stream)
{
	standin_record_drop(event->last);
	event->last = NULL;
	event->in_capture = true;
	event->captured = stream->capture;
	event->from = stream;
}

int
standin_event_of_graph(CUevent handle, struct standin_stream *stream, bool is_record)
{
	int rc = 0;
	struct standin_event *event = event_of(handle, &rc);

	if (rc)
		return rc;
	if (is_record)
		return record(event, stream);
	return event->last ? wait_for(event, stream) : 0;
}

/* @external: in a capture, the event is recorded by the graph's launches. */
static int
record_event(CUevent event_handle, CUstream handle, bool external)
{
	struct standin_stream *stream;
	struct standin_event *event = NULL;
	bool captured = false;
	int rc = 0;

	stream = standin_stream_of(handle, &rc);
	if (rc == 0)
		event = event_of(event_handle, &rc);
	if (rc == 0 && event->device != stream->device)
		rc = DRIVER_INVALID_HANDLE;
	rc = rc ? rc : standin_stream_take(stream, &captured);
	if (rc)
		return rc;
	if (captured && external)
		return standin_graph_add(stream->capture->graph,
					 &(struct standin_op){.kind = KIND_RECORD, .event = event_handle});
	if (!captured)
		return record(event, stream);
	record_in_capture(event, stream);
	return 0;
}

STANDIN_EXPORT CUresult
cuEventRecord(CUevent event, CUstream stream)
{
	int rc = standin_enter(ENTRY_cuEventRecord, NEEDS_CONTEXT);

	return standin_leave(rc ? rc : record_event(event, stream, false));
}

STANDIN_EXPORT CUresult
cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned int flags)
{
	int rc = standin_enter(ENTRY_cuEventRecordWithFlags, NEEDS_CONTEXT);

	rc = rc ? rc : flags <= 1 ? 0 : DRIVER_INVALID_VALUE;
	return standin_leave(rc ? rc : record_event(event, stream, flags == 1));
}

/* What a question about the event gives before its record is looked at. */
static int
ask(const struct standin_event *event)
{
	if (event->in_capture) {
		invalidate(event->captured);
		return DRIVER_CAPTURED_EVENT;
	}
	return event->device->broken;
}

STANDIN_EXPORT CUresult
cuEventQuery(CUevent handle)
{
	const struct standin_event *event = NULL;
	int rc = standin_enter(ENTRY_cuEventQuery, NEEDS_CONTEXT | IS_UNSAFE);

	if (rc == 0)
		event = event_of(handle, &rc);
	rc = rc ? rc : ask(event);
	if (rc == 0 && event->last && !event->last->done)
		rc = DRIVER_NOT_READY;
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuEventSynchronize(CUevent handle)
{
	const struct standin_event *event = NULL;
	struct standin_record *awaited = NULL;
	struct standin_device *device = NULL;
	int rc = standin_enter(ENTRY_cuEventSynchronize, NEEDS_CONTEXT | IS_UNSAFE);

	if (rc == 0)
		event = event_of(handle, &rc);
	rc = rc ? rc : ask(event);
	if (rc == 0 && event->last) {
		device = event->device;
		awaited = event->last;
		awaited->refs++;
		while (!awaited->done && !device->broken && !standin.closed)
			(void)pthread_cond_wait(&standin.cond, &standin.mu);
		standin_record_drop(awaited);
		rc = device->broken;
	}
	return standin_leave(rc);
}

STANDIN_EXPORT CUresult
cuEventElapsedTime(float *ret_ms, CUevent start_handle, CUevent end_handle)
{
	const struct standin_event *start = NULL, *end = NULL;
	int rc = standin_enter(ENTRY_cuEventElapsedTime, NEEDS_CONTEXT);

	rc = rc ? rc : ret_ms ? 0 : DRIVER_INVALID_VALUE;
	if (rc == 0)
		start = event_of(start_handle, &rc);
	if (rc == 0)
		end = event_of(end_handle, &rc);
	if (rc == 0 && (!start->timed || !end->timed || !start->last || !end->last))
		rc = DRIVER_INVALID_HANDLE;
	if (rc == 0 && (!start->last->done || !end->last->done))
		rc = DRIVER_NOT_READY;
	if (rc == 0)
		*ret_ms = (float)(end->last->at_ns - start->last->at_ns) / 1e6F;
	return standin_leave(rc);
}

/* ---- for tests ---- */

STANDIN_EXPORT int
standin_event_over(void *handle)
{
	const struct standin_event *event;
	int over = -1, rc = 0;

	(void)pthread_mutex_lock(&standin.mu);
	event = event_of((CUevent)handle, &rc);
	if (event && event->last)
		over = event->last->done;
	(void)pthread_mutex_unlock(&standin.mu);
	return over;
}

STANDIN_EXPORT void
standin_make_blocking(void *handle, bool blocking)
{
	struct standin_stream *stream;
	int rc = 0;

	(void)pthread_mutex_lock(&standin.mu);
	stream = standin_stream_of((CUstream)handle, &rc);
	if (!stream)
		abort();
	stream->blocking = blocking;
	(void)pthread_mutex_unlock(&standin.mu);
}

STANDIN_EXPORT void
standin_hold(void *handle)
{
	struct standin_stream *stream;
	int rc = 0;

	(void)pthread_mutex_lock(&standin.mu);
	stream = standin_stream_of((CUstream)handle, &rc);
	if (!stream || standin_push(stream, &(struct standin_op){.kind = KIND_HOLD}) != 0)
		abort();
	(void)pthread_mutex_unlock(&standin.mu);
}

STANDIN_EXPORT void
standin_release(void *handle)
{
	struct standin_stream *stream;
	int rc = 0;

	(void)pthread_mutex_lock(&standin.mu);
	stream = standin_stream_of((CUstream)handle, &rc);
	for (struct standin_op *op = stream ? stream->first : NULL; op; op = op->next) {
		if (op->kind == KIND_HOLD && !op->released) {
			op->released = true;
			break;
		}
	}
	(void)pthread_cond_broadcast(&standin.cond);
	(void)pthread_mutex_unlock(&standin.mu);
}

/* ---- the end of a context ---- */

void
standin_stream_end_all(struct standin_device *device)
{
	struct standin_stream *stream = standin.streams, *next;
	struct standin_event *event = standin.events, *next_event;

	for (; stream; stream = next) {
		next = stream->next;
		if (device && stream->device != device)
			continue;
		take_out(stream);
		standin_stream_stop(stream);
	}
	standin_join_ended(true);
	for (int i = 0; i < MAX_DEVICES; i++) {
		if (device && device != &standin.devices[i])
			continue;
		standin_stream_restart(&standin.devices[i].legacy);
		standin_stream_restart(&standin.devices[i].per_thread);
	}
	for (; event; event = next_event) {
		next_event = event->next;
		if (!device || event->device == device)
			free_event(event);
	}
}
