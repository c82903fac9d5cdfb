/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_engine.h"

#include <string.h>

/*
 * DESIGN
 *
 * Purpose: what is in flight in one lane.
 *
 * A batch whose event, or that of its last layer, has not come when the batch comes goes to the late lane of its
 * direction. There its spans are enqueued at once, behind the events, so that the caller finds its own events recorded,
 * and the GPU begins without this thread. The batches that come later pass it in the other lane, which has streams of
 * its own. Of late batches those with the same events alone have begun; the others change the lane when their events
 * come.
 *
 * A batch is enqueued span by span, layer by layer, and in each layer item by item; a span has as many items of one
 * layer as fit (cuda_method.c), so small pieces share what a span costs. Small layers go together as if they were one: each span costs
 * the streams some 20 us, in which the link moves a MiB. The first layer of a load goes alone, since a model waits for
 * it; of a save those go together whose events have come. SCOUT__CUDA_SPANS may be in flight. Each ends
 * in an event that belongs to its place in the ring, and the place (with its staging buffer) is taken again only when
 * the thread has seen that event. Spans are taken off in the order of their enqueueing.
 *
 * With several tables an item may have no planes in a layer: it is stepped over there. Layers in which no item of the
 * batch has any are a span of their events alone; so is a batch without items. Of a batch that grows no layer ends before the batch is whole.
 *
 * Every look at an event has three outcomes: over, not yet, failed.
 *
 * Nothing that was enqueued is forgotten. Where a step of a span fails, earlier steps of it may be running.
 * Its place is then kept as a failed span, with an event recorded in both streams, and its batch is reported
 * only when both are over. Where even that cannot be recorded, the device has failed: the streams are waited
 * for (they end with an error), every batch on it ends with SCOUT_ERR_DEVICE, and so does every later one.
 * The process stays alive; only a new one gets a device back. That an error comes back from a stream does not say
 * that nothing of it runs any more: another kernel may have faulted while a copy was under way. So the slots of saves
 * that were in flight are not given back (may_write_on).
 *
 * Rejected: to begin a batch only when the thread has seen its event. That is up to a nap late, and the caller's layer
 * events would not be recorded until then.
 *
 * Rejected: waiting for the streams at every error. A save may stand behind the caller's event, which may
 * stand behind a retrieve that this very thread has yet to enqueue.
 */

/* Layers of at most so many bytes go together: 80 us on a link of 50 GB/s. */
#define TOGETHER_BYTES (UINT64_C(4) << 20)

#define STAGE_ALIGN 256u

/* ---- its stage ---- */

uint64_t
scout__cuda_stages_bytes(const struct scout__cuda *cuda)
{
	return SCOUT__CUDA_SPANS * (cuda->stage_bytes + STAGE_ALIGN);
}

int
scout__cuda_take_stages(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	void *stages = NULL;
	int rc = scout__cuda_api_malloc(&stages, scout__cuda_stages_bytes(cuda));

	if (rc)
		return rc;
	lane->stages = stages;
	for (uint32_t i = 0; i < SCOUT__CUDA_SPANS; i++)
		lane->spans[i].stage = lane->stages + i * (cuda->stage_bytes + STAGE_ALIGN);
	return 0;
}

/* ---- the ring ---- */

static struct scout__cuda_span *
span_at(struct scout__cuda_lane *lane, uint32_t i)
{
	return &lane->spans[(lane->head + i) % SCOUT__CUDA_SPANS];
}

static void
append(struct scout__cuda_lane *lane, struct scout__copy_batch *batch)
{
	batch->next = NULL;
	if (lane->first)
		lane->last->next = batch;
	else
		lane->first = batch;
	lane->last = batch;
}

static struct scout__cuda_lane *
lane_of(struct scout__cuda *cuda, enum scout__copy_direction direction, bool is_late)
{
	return &cuda->lanes[(direction == SCOUT__COPY_SAVE) + (is_late ? 2 : 0)];
}

static bool
is_stopped(const struct scout__copy_batch *batch)
{
	return batch->stop && atomic_load(batch->stop);
}

/* The last event that a save by layers waits for: that of its last layer. NULL: the batch is no such save. */
static void *
last_layer(const struct scout__copy_batch *batch)
{
	return batch->layer_events && batch->direction == SCOUT__COPY_SAVE
		       ? batch->layer_events[scout__copy_layers(batch) - 1]
		       : NULL;
}

static bool SCOUT_ON_COPY_THREAD
has_come(void *event)
{
	return !event || scout__cuda_api_event_query(event) != SCOUT__CUDA_NOT_READY;
}

static bool SCOUT_ON_COPY_THREAD
comes_late(const struct scout__copy_batch *batch)
{
	return !has_come(batch->after) || !has_come(last_layer(batch));
}

void
scout__cuda_lane_add(struct scout__cuda *cuda, struct scout__copy_batch *batch)
{
	append(lane_of(cuda, batch->direction, comes_late(batch)), batch);
}

bool
scout__cuda_lane_let_pass(struct scout__cuda *cuda, enum scout__copy_direction direction)
{
	struct scout__cuda_lane *late = lane_of(cuda, direction, true);
	struct scout__copy_batch **link = late->begun ? &late->first->next : &late->first, *batch;
	const struct scout__copy_batch *before = NULL;
	bool moved = false;

	late->last = late->first; /* where none is left behind it */
	while ((batch = *link) != NULL) {
		bool stopped = is_stopped(batch);

		/* Jobs of one step have the same events: they are asked once. */
		if (!stopped && ((before && batch->after == before->after && last_layer(batch) == last_layer(before)) ||
				 comes_late(batch))) {
			before = batch;
			late->last = batch;
			link = &batch->next;
			continue;
		}
		moved = true;
		*link = batch->next;
		if (stopped) {
			batch->status = SCOUT_ERR_CANCELED;
			scout__copy_queue_report(&cuda->queue, batch);
		} else {
			append(lane_of(cuda, direction, false), batch);
		}
	}
	return moved;
}

/* The first batch will enqueue nothing more: it is reported when its last span is over. */
static void SCOUT_ON_COPY_THREAD
end_first(struct scout__cuda *cuda, struct scout__cuda_lane *lane, int status)
{
	struct scout__copy_batch *batch = lane->first;
	struct scout__cuda_span *newest = lane->n ? span_at(lane, lane->n - 1) : NULL;

	lane->first = batch->next;
	lane->begun = false;
	if (status)
		batch->status = status;
	if (newest && newest->batch == batch)
		newest->ends_batch = true;
	else
		scout__copy_queue_report(&cuda->queue, batch);
}

/* ---- failing ---- */

static void SCOUT_ON_COPY_THREAD
drop_all(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	for (uint32_t i = 0; i < lane->n; i++) {
		struct scout__cuda_span *span = span_at(lane, i);

		span->batch->status = SCOUT_ERR_DEVICE;
		span->batch->may_write_on = span->batch->direction == SCOUT__COPY_SAVE;
		if (span->ends_batch)
			scout__copy_queue_report(&cuda->queue, span->batch);
	}
	lane->n = 0;
	lane->pieces = 0;
	while (lane->first)
		end_first(cuda, lane, SCOUT_ERR_DEVICE);
}

/* Nothing works on this device any more. */
static void SCOUT_ON_COPY_THREAD
fail_device(struct scout__cuda *cuda, int error, const char *what)
{
	cuda->failed = true;
	if (cuda->log)
		scout__log(
			cuda->log, SCOUT_LOG_ERROR,
			"CUDA device %d failed (%s: %s): all jobs on it end, and no later one can run in this process",
			cuda->device, what, scout__cuda_api_error_name(error));
	/* Either the context is dead, and these return at once, or they return when all is over. */
	for (uint32_t i = 0; i < SCOUT__CUDA_LANES; i++) {
		(void)scout__cuda_api_stream_sync(cuda->lanes[i].dma);
		(void)scout__cuda_api_stream_sync(cuda->lanes[i].kernel);
	}
	for (uint32_t i = 0; i < SCOUT__CUDA_LANES; i++)
		drop_all(cuda, &cuda->lanes[i]);
}

static void
say_failed(const struct scout__cuda *cuda, const struct scout__copy_batch *batch, int error, const char *what)
{
	if (cuda->log)
		scout__log(cuda->log, SCOUT_LOG_WARN, "a %s of %u chunks failed: %s: %s",
			   batch->direction == SCOUT__COPY_LOAD ? "retrieve" : "store", (unsigned)batch->n, what,
			   scout__cuda_api_error_name(error));
}

/* A step of the next span failed, with others of it perhaps running: its place waits for both streams. */
static void SCOUT_ON_COPY_THREAD
bury(struct scout__cuda *cuda, struct scout__cuda_lane *lane, int error)
{
	struct scout__cuda_span *span = span_at(lane, lane->n);
	int rc;

	say_failed(cuda, lane->first, error, "a copy could not be enqueued");
	rc = scout__cuda_api_event_record(span->done, lane->dma);
	rc = rc ? rc : scout__cuda_api_event_record(span->other, lane->kernel);
	if (rc) {
		lane->first->may_write_on = lane->first->direction == SCOUT__COPY_SAVE;
		fail_device(cuda, rc, "an event could not be recorded");
		return;
	}
	lane->pieces += span->pieces;
	span->batch = lane->first;
	span->first_item = lane->at.item;
	span->end_item = lane->first->n;
	span->is_failed = true;
	span->await_other = true;
	span->ends_batch = false;
	lane->n++;
	end_first(cuda, lane, SCOUT_ERR_DEVICE);
}

/* ---- taking off ---- */

static void SCOUT_ON_COPY_THREAD
finish_span(struct scout__cuda *cuda, struct scout__cuda_span *span)
{
	struct scout__copy_batch *batch = span->batch;

	if (!span->is_failed) {
		batch->bytes += span->bytes;
		batch->n_done = span->n_done;
		if (span->ends_layer && batch->progress)
			scout__copy_progress_copied(batch->progress, span->end_layer);
	}
	if (span->ends_batch)
		scout__copy_queue_report(&cuda->queue, batch);
}

static int SCOUT_ON_COPY_THREAD
query(const struct scout__cuda_span *span)
{
	int rc = scout__cuda_api_event_query(span->done);

	return rc || !span->await_other ? rc : scout__cuda_api_event_query(span->other);
}

static bool SCOUT_ON_COPY_THREAD
take_off(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	bool moved = false;
	int rc;

	while (lane->n > 0) {
		rc = query(span_at(lane, 0));
		if (rc == SCOUT__CUDA_NOT_READY)
			return moved;
		moved = true;
		if (rc) {
			fail_device(cuda, rc, "a copy");
			break;
		}
		lane->pieces -= span_at(lane, 0)->pieces;
		finish_span(cuda, span_at(lane, 0));
		lane->head = (lane->head + 1) % SCOUT__CUDA_SPANS;
		lane->n--;
	}
	return moved;
}

/* ---- enqueueing ---- */

/*
 * Wait for an event of the caller's, in the stream that touches pages. Returns a CUDA error.
 *
 * Asked first: one that the caller recorded in a stream while that was captured stands for nothing that will
 * be executed, and waiting for it would draw our stream into the capture, for all that comes after. Such a
 * job fails, and no other.
 */
static int SCOUT_ON_COPY_THREAD
await(struct scout__cuda_lane *lane, void *event)
{
	int rc = scout__cuda_api_event_query(event);

	return rc == SCOUT__CUDA_NOT_READY ? scout__cuda_api_stream_wait(scout__cuda_page_stream(lane), event) : rc;
}

/* Behind the layers that go together from @layer on; an empty one does not begin any. */
static uint32_t SCOUT_ON_COPY_THREAD
end_of_layers(const struct scout__cuda *cuda, const struct scout__cuda_lane *lane, uint32_t layer)
{
	const struct scout__copy_batch *batch = lane->first;
	bool is_load = scout__cuda_is_load(cuda, lane);
	uint32_t end = layer + 1;

	if ((layer == 0 && is_load) || scout__cuda_next_item(cuda, batch, 0, layer, end).item == batch->n)
		return end;
	while (end < scout__copy_layers(batch) && scout__cuda_is_small(cuda, batch, layer, end + 1, TOGETHER_BYTES) &&
	       (is_load || !batch->layer_events ||
		scout__cuda_api_event_query(batch->layer_events[end]) == SCOUT__CUDA_OK))
		end++;
	return end;
}

/* The first batch goes on with that layer; it has enqueued nothing of it. */
static void SCOUT_ON_COPY_THREAD
enter_layer(struct scout__cuda *cuda, struct scout__cuda_lane *lane, uint32_t layer)
{
	lane->layer = layer;
	lane->end_layer = end_of_layers(cuda, lane, layer);
	lane->layer_begun = false;
	lane->at = scout__cuda_next_item(cuda, lane->first, 0, layer, lane->end_layer);
}

/* The slots of @batch are pinned, as the kernel and the batch call need them; single DMAs need that for speed only. */
static bool SCOUT_ON_COPY_THREAD
is_pinned(struct scout__cuda *cuda, const struct scout__copy_batch *batch)
{
	struct scout__cuda_found found = {.bytes = 0};

	for (uint32_t i = 0; i < batch->n && !batch->is_pinned; i++) {
		scout__cuda_memory_find(&cuda->memory, batch->items[i].slot, &found);
		if (found.state == SCOUT__CUDA_PAGEABLE)
			return false;
	}
	return true;
}

/* Whether spans of the lane have a stage. A late lane takes one when its first batch comes: most engines have no late batches. */
static bool SCOUT_ON_COPY_THREAD
has_stages(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	int rc = lane->stages ? 0 : scout__cuda_take_stages(cuda, lane);

	if (rc && !cuda->said_no_stage && cuda->log)
		scout__log(
			cuda->log, SCOUT_LOG_WARN,
			"CUDA device %d: no memory for the stage of jobs that wait for an event (%s): until there is "
			"some, these are copied by method batch; small pieces are slower",
			cuda->device, scout__cuda_api_error_name(rc));
	cuda->said_no_stage |= rc != 0;
	return rc == 0;
}

/* The first batch has not begun: what it waits for. Returns a CUDA error. */
static int SCOUT_ON_COPY_THREAD
begin(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	struct scout__copy_batch *batch = lane->first;

	lane->is_pageable = !is_pinned(cuda, batch);
	lane->method = lane->is_pageable ? SCOUT__CUDA_STAGED : scout__cuda_method_of(cuda, batch);
	if (lane->method == SCOUT__CUDA_STAGED && !has_stages(cuda, lane))
		lane->method = SCOUT__CUDA_BATCH;
	lane->begun = true;
	lane->after = batch->after;
	lane->last_layer = last_layer(batch);
	enter_layer(cuda, lane, 0);
	return batch->after ? await(lane, batch->after) : 0;
}

/* The caller's events of the layers that end here, and of the batch. Returns a CUDA error. */
static int SCOUT_ON_COPY_THREAD
record_callers(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	struct scout__copy_batch *batch = lane->first;
	void *stream = scout__cuda_done_stream(cuda, lane);
	int rc = 0;

	if (!scout__cuda_is_load(cuda, lane))
		return 0;
	for (uint32_t l = lane->layer; batch->layer_events && l < lane->end_layer && rc == 0; l++)
		rc = scout__cuda_api_event_record(batch->layer_events[l], stream);
	if (rc == 0 && batch->event && lane->end_layer == scout__copy_layers(batch))
		rc = scout__cuda_api_event_record(batch->event, stream);
	return rc;
}

/*
 * Behind the steps of the last span of a layer, and of a batch: the caller's events, and only then ours, so
 * that what is seen to be copied has its event behind it. Returns a CUDA error.
 */
static int SCOUT_ON_COPY_THREAD
record_events(struct scout__cuda *cuda, struct scout__cuda_lane *lane, bool ends_layer)
{
	struct scout__cuda_span *span = span_at(lane, lane->n);
	int rc = ends_layer ? record_callers(cuda, lane) : 0;

	return rc ? rc : scout__cuda_api_event_record(span->done, scout__cuda_done_stream(cuda, lane));
}

/* The next span is one in flight, of the first batch; its bytes and pieces are known. */
static struct scout__cuda_span *SCOUT_ON_COPY_THREAD
add_span(struct scout__cuda_lane *lane)
{
	struct scout__cuda_span *span = span_at(lane, lane->n++);

	lane->pieces += span->pieces;
	span->batch = lane->first;
	span->end_layer = lane->end_layer;
	span->first_item = lane->at.item;
	span->end_item = lane->at.item;
	span->is_failed = false;
	span->await_other = false;
	span->ends_layer = false;
	span->ends_batch = false;
	span->n_done = 0;
	return span;
}

/* The layers are completely enqueued, @span the last of them. */
static void SCOUT_ON_COPY_THREAD
leave_layer(struct scout__cuda *cuda, struct scout__cuda_lane *lane, struct scout__cuda_span *span)
{
	struct scout__copy_batch *batch = lane->first;

	span->ends_layer = true;
	if (batch->progress)
		atomic_store(&batch->progress->enqueued, lane->end_layer);
	if (lane->end_layer == scout__copy_layers(batch))
		end_first(cuda, lane, 0);
	else
		enter_layer(cuda, lane, lane->end_layer);
}

/* No item of the layers is left after @next. */
static bool
ends_layer(const struct scout__copy_batch *batch, struct scout__cuda_place next)
{
	return next.item == batch->n && !batch->grows;
}

/* The span that was enqueued up to @next is one in flight; step on. */
static void SCOUT_ON_COPY_THREAD
advance(struct scout__cuda *cuda, struct scout__cuda_lane *lane, struct scout__cuda_place next)
{
	struct scout__copy_batch *batch = lane->first;
	struct scout__cuda_span *span = add_span(lane);

	/* The last one may be there in part. */
	span->end_item = next.item < batch->n ? next.item + 1 : batch->n;
	lane->at = next;
	if (lane->end_layer == scout__copy_layers(batch))
		span->n_done = next.item;
	if (ends_layer(batch, next))
		leave_layer(cuda, lane, span);
}

/* What the next span of the first batch waits for. False: that failed, and the batch has ended. */
static bool SCOUT_ON_COPY_THREAD
await_events(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	struct scout__copy_batch *batch = lane->first;
	int rc = lane->begun ? 0 : begin(cuda, lane);

	if (rc == 0 && batch->layer_events && !scout__cuda_is_load(cuda, lane) && !lane->layer_begun &&
	    lane->at.item < batch->n)
		rc = await(lane, batch->layer_events[lane->layer]);
	lane->layer_begun = true;
	if (rc == 0)
		return true;
	say_failed(cuda, batch, rc, "an event of the caller's cannot be awaited");
	end_first(cuda, lane, SCOUT_ERR_DEVICE);
	return false;
}

/* The next span of the first batch; there is a place for it. */
static void SCOUT_ON_COPY_THREAD
enqueue_one(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	struct scout__copy_batch *batch = lane->first;
	struct scout__cuda_place next = {0, 0};
	struct scout__cuda_found found = {.bytes = 0};
	int rc;

	if (!await_events(cuda, lane))
		return;
	if (!scout__cuda_lane_find(cuda, lane, batch->items[lane->at.item].slot, &found)) {
		end_first(cuda, lane, SCOUT_ERR_DEVICE); /* the memory is gone */
		return;
	}
	rc = scout__cuda_enqueue(cuda, lane, span_at(lane, lane->n), &next);
	rc = rc ? rc : record_events(cuda, lane, ends_layer(batch, next));
	if (rc)
		bury(cuda, lane, rc);
	else
		advance(cuda, lane, next);
}

/* The first batch has nothing to copy in its next layers. */
static bool SCOUT_ON_COPY_THREAD
is_layer_empty(const struct scout__cuda *cuda, const struct scout__cuda_lane *lane)
{
	return (lane->begun ? lane->at : scout__cuda_next_item(cuda, lane->first, 0, 0, 1)).item == lane->first->n;
}

/* Those layers and the empty ones behind them: their events alone, as one span; there is a place for it. */
static void SCOUT_ON_COPY_THREAD
enqueue_events(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	struct scout__copy_batch *batch = lane->first;
	uint32_t n_layers = scout__copy_layers(batch);
	struct scout__cuda_span *span;
	int rc;

	if (!await_events(cuda, lane))
		return;
	span_at(lane, lane->n)->pieces = 0;
	span_at(lane, lane->n)->bytes = 0;
	while (lane->end_layer < n_layers &&
	       scout__cuda_next_item(cuda, batch, 0, lane->end_layer, lane->end_layer + 1).item == batch->n)
		lane->end_layer++;
	rc = record_events(cuda, lane, true);
	if (rc) {
		bury(cuda, lane, rc);
		return;
	}
	span = add_span(lane);
	span->n_done = lane->end_layer == n_layers ? batch->n : 0;
	leave_layer(cuda, lane, span);
}

/* If the first batch grows, take over the items that have come. False: all that is there is enqueued, and more will come. */
static bool SCOUT_ON_COPY_THREAD
take_items(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	struct scout__copy_batch *batch = lane->first;
	uint32_t before = batch->n;

	if (!batch->grows)
		return true;
	batch->grows = !atomic_load(&batch->is_whole); /* before the items are counted */
	batch->n = atomic_load(&batch->n_there);
	if (lane->begun && lane->at.item == before)
		lane->at = scout__cuda_next_item(cuda, batch, before, lane->layer, lane->end_layer);
	return !batch->grows || !is_layer_empty(cuda, lane);
}

/* Whatever the next span is enqueued as, there is room for it. */
static bool SCOUT_ON_COPY_THREAD
has_room(const struct scout__cuda_lane *lane)
{
	return lane->pieces + SCOUT__CUDA_PIECES <= SCOUT__CUDA_OUTSTANDING;
}

/* In a late lane, the first batch is not stuck behind other events than its own. */
static bool SCOUT_ON_COPY_THREAD
may_begin(const struct scout__cuda *cuda, const struct scout__cuda_lane *lane)
{
	bool is_late = lane - cuda->lanes >= 2;

	return !is_late || lane->begun || lane->n == 0 ||
	       (lane->first->after == lane->after && last_layer(lane->first) == lane->last_layer);
}

/*
 * Copying unpinned memory from the GPU keeps this thread until the copy is done. So such a save is enqueued when what it waits for is
 * over: the event may stand behind a retrieve that this thread has yet to enqueue.
 */
static bool SCOUT_ON_COPY_THREAD
must_wait(struct scout__cuda *cuda, const struct scout__cuda_lane *lane)
{
	const struct scout__copy_batch *batch = lane->first;
	void *layer = NULL;

	if (scout__cuda_is_load(cuda, lane) || (lane->begun && !lane->is_pageable))
		return false;
	if (batch->layer_events && !(lane->begun && lane->layer_begun))
		layer = batch->layer_events[lane->begun ? lane->layer : 0];
	return ((!lane->begun && batch->after && scout__cuda_api_event_query(batch->after) == SCOUT__CUDA_NOT_READY) ||
		(layer && scout__cuda_api_event_query(layer) == SCOUT__CUDA_NOT_READY)) &&
	       (lane->begun || !is_pinned(cuda, batch)); /* asked last: it looks up each slot */
}

/* A fence waits for one span at most: a lock that is taken again at once is not for others to have, so they say that they want it. */
static void SCOUT_ON_COPY_THREAD
let_fences_in(struct scout__cuda *cuda)
{
	(void)pthread_mutex_unlock(&cuda->mu);
	(void)pthread_mutex_lock(&cuda->mu);
	while (atomic_load(&cuda->fences) > 0)
		(void)pthread_cond_wait(&cuda->cond, &cuda->mu);
}

bool
scout__cuda_lane_step(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	bool moved = take_off(cuda, lane);

	while (lane->first && lane->n < SCOUT__CUDA_SPANS) {
		let_fences_in(cuda);
		if (cuda->failed)
			end_first(cuda, lane, SCOUT_ERR_DEVICE);
		else if (is_stopped(lane->first))
			end_first(cuda, lane, SCOUT_ERR_CANCELED);
		else if (!may_begin(cuda, lane) || must_wait(cuda, lane) || !has_room(lane) || !take_items(cuda, lane))
			break;
		else if (is_layer_empty(cuda, lane))
			enqueue_events(cuda, lane);
		else
			enqueue_one(cuda, lane);
		moved = true;
	}
	return moved;
}

void
scout__cuda_lane_end(struct scout__cuda *cuda, struct scout__cuda_lane *lane)
{
	/* An error here is the device's, and then nothing runs either; the next look at an event says so. */
	(void)scout__cuda_api_stream_sync(lane->dma);
	(void)scout__cuda_api_stream_sync(lane->kernel);
	while (lane->n > 0 && take_off(cuda, lane))
		;
	while (lane->first) {
		struct scout__copy_batch *batch = lane->first;

		lane->first = batch->next;
		batch->status = SCOUT_ERR_CLOSED;
	}
}
