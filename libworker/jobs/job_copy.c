/* SPDX-License-Identifier: Apache-2.0 */
#include "link.h"
#include "job_internal.h"

#include <string.h>

#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: from grants to a batch of the copy engine, and from an ended batch to the chunks of it that are
 * good. The rules are in job.c.
 *
 * The batch and its arrays are part of the job's memory, which stays where it is until the job is reported; a job
 * has one batch at a time. A segment counts the items of batches that use it, so it stays mapped under them,
 * whatever becomes of its server.
 *
 * Threads: the courier's. The engine reads the batch between start and poll.
 */

#define MISMATCH_LOG_US 1000000u

/* Build the items of the batch from grants [0, part_n). False: a segment has not come yet. */
static bool build_retrieve(struct scout_worker *w, struct scout__work *work) SCOUT_ON_COURIER;
static bool build_store(struct scout_worker *w, struct scout__work *work) SCOUT_ON_COURIER;

static void
add_item(struct scout__work *work, const struct scout__work_group *group, uint32_t grant,
	 struct scout__mapping *mapping, uint8_t *slot)
{
	uint32_t i = work->batch.n++;

	work->items[i].slot = slot;
	work->items[i].block_ids = scout__work_ids(work, group, work->part_first + grant);
	work->items[i].table = group->table;
	work->mappings[i] = mapping;
	work->item_chunk[i] = grant;
}

/* Whether there is a slot behind a grant; a server that grants something else has a bug. */
static bool SCOUT_ON_COURIER
find_slot(struct scout_worker *w, const struct scout__mapping *mapping, const struct scout__work_group *group,
	  const struct scout__grant *grant, uint8_t **ret_slot, const _Atomic uint64_t **ret_word)
{
	uint64_t shard_bytes = w->tables[group->table].shard_bytes;

	if (!mapping->base)
		return false;
	if (scout__mapping_slot(mapping, grant->offset, shard_bytes, ret_slot, ret_word))
		return true;
	scout__log_limited(&w->log, &w->mismatch_limit, scout__now_us(), MISMATCH_LOG_US, SCOUT_LOG_ERROR,
			   "the server granted segment %u offset %llu, which is no slot of %llu bytes",
			   (unsigned)grant->segment, (unsigned long long)grant->offset,
			   (unsigned long long)shard_bytes);
	return false;
}

static bool
wants_blocks(const struct scout__work *work, const struct scout__work_group *group, uint32_t chunk)
{
	const int64_t *ids = scout__work_ids(work, group, chunk);

	for (uint32_t b = 0; b < group->blocks_per_chunk; b++)
		if (ids[b] >= 0)
			return true;
	return false;
}

static void SCOUT_ON_COURIER
mismatch(struct scout_worker *w, struct scout__work *work, const struct scout__grant *grant, const char *when)
{
	work->mismatches++;
	scout__log_limited(&w->log, &w->mismatch_limit, scout__now_us(), MISMATCH_LOG_US, SCOUT_LOG_ERROR,
			   "slot at segment %u offset %llu changed %s: its bytes were not used",
			   (unsigned)grant->segment, (unsigned long long)grant->offset, when);
}

static bool
build_retrieve(struct scout_worker *w, struct scout__work *work)
{
	work->batch.n = 0;
	work->mismatches = 0;
	for (uint32_t i = 0; i < work->part_n; i++) {
		const struct scout__work_group *group = scout__work_group_of(work, i);
		const struct scout__grant *grant = &work->grants[i];
		const _Atomic uint64_t *word;
		struct scout__mapping *mapping;
		uint8_t *slot;

		if (grant->state != SCOUT_GRANT_GRANTED || !wants_blocks(work, group, i))
			continue;
		mapping = scout__mappings_find(&w->mappings, grant->segment);
		if (!mapping)
			return false;
		if (!find_slot(w, mapping, group, grant, &slot, &word))
			continue;
		if (atomic_load_explicit(word, memory_order_acquire) != grant->generation)
			mismatch(w, work, grant, "before its copy");
		else
			add_item(work, group, i, mapping, slot);
	}
	return true;
}

/* Only leading slots can be committed: the first one that cannot be used is the end. */
static bool
build_store(struct scout_worker *w, struct scout__work *work)
{
	work->batch.n = 0;
	for (uint32_t i = 0; i < work->part_n; i++) {
		const struct scout__grant *grant = &work->grants[i];
		const _Atomic uint64_t *word;
		struct scout__mapping *mapping;
		uint8_t *slot;

		if (grant->state != SCOUT_GRANT_GRANTED)
			continue;
		mapping = scout__mappings_find(&w->mappings, grant->segment);
		if (!mapping)
			return false;
		if (!find_slot(w, mapping, &work->groups[0], grant, &slot, &word)) {
			work->status = SCOUT_ERR_DEVICE;
			return true;
		}
		add_item(work, &work->groups[0], i, mapping, slot);
	}
	return true;
}

static void settle(struct scout_worker *w, struct scout__transfer *job) SCOUT_ON_COURIER;

static void SCOUT_ON_COURIER
use_mappings(struct scout_worker *w, struct scout__work *work, bool in_use)
{
	for (uint32_t i = 0; i < work->batch.n; i++) {
		if (in_use)
			scout__mapping_use(work->mappings[i]);
		else
			scout__mapping_release(&w->mappings, work->mappings[i]);
	}
}

static bool
has_more(const struct scout__work *work)
{
	return work->part_first + work->part_n < work->n_chunks;
}

/* Leading layers that may be read. */
static uint32_t
ready_layers(const struct scout__work *work)
{
	return work->announced ? atomic_load(&work->ready) : work->n_layers;
}

/* It has slots to fill, and the next layer is not computed yet. */
static bool SCOUT_ON_COURIER
waits_for_layer(const struct scout__transfer *job)
{
	const struct scout__work *work = job->work;

	return work->announced && job->record->n > 0 && ready_layers(work) <= work->layers_done;
}

/* Give the batch to the engine. False: it has no room now; nothing has changed. */
static bool SCOUT_ON_COURIER
enqueue(struct scout_worker *w, struct scout__transfer *job)
{
	struct scout__work *work = job->work;
	struct scout__copy_batch *batch = &work->batch;

	batch->direction = work->kind == SCOUT_JOB_STORE ? SCOUT__COPY_SAVE : SCOUT__COPY_LOAD;
	batch->items = work->items;
	batch->n_layers = work->n_layers;
	batch->first_plane = work->first_plane;
	if (work->announced) {
		work->layers_end = ready_layers(work);
		batch->n_layers = work->layers_end - work->layers_done;
		batch->first_plane = work->first_plane + (size_t)work->layers_done * w->n_tables;
	}
	batch->after = work->after;
	batch->event = work->event;
	batch->layer_events = work->layer_events;
	batch->stop = &job->stop;
	/* A job of several parts has no layers: it is copied when its last part is. Of announced layers, goes_on() tells. */
	batch->progress = has_more(work) || work->announced ? NULL : &work->progress;
	batch->cookie = job->id;
	batch->status = 0;
	batch->n_done = 0;
	batch->bytes = 0;
	use_mappings(w, work, true);
	if (w->copy->start(w->engine, batch) == 0)
		return true;
	use_mappings(w, work, false);
	return false;
}

/* A job that is in `granted`: start its copy if everything is here. */
void
scout__transfer_start(struct scout_worker *w, struct scout__transfer *job)
{
	struct scout__work *work = job->work;

	if (waits_for_layer(job))
		return;
	if (!(work->kind == SCOUT_JOB_STORE ? build_store(w, work) : build_retrieve(w, work)))
		return;
	if (work->batch.n == 0 && !scout__transfer_has_events(work)) {
		scout__transfer_unqueue(w, job);
		scout__transfer_enter(job, SCOUT__STAGE_COPYING);
		work->batch.status = 0;
		work->batch.n_done = 0;
		work->batch.bytes = 0;
		settle(w, job);
		return;
	}
	if (!scout__transfer_move_phase(job, SCOUT__PHASE_WAITING, SCOUT__PHASE_ENQUEUED)) {
		scout__transfer_end_early(w, job, SCOUT_ERR_CANCELED);
		return;
	}
	if (!enqueue(w, job)) {
		scout__transfer_publish_phase(w, job, SCOUT__PHASE_WAITING);
		return;
	}
	scout__transfer_unqueue(w, job);
	scout__transfer_untime(w, job);
	scout__transfer_enter(job, SCOUT__STAGE_COPYING);
	w->n_copying++;
}

/*
 * What of a retrieve is good: copied, and its slot is still what was granted. The engine's poll() has acquired what its
 * thread (or the device's event) released after the last byte was read, so the words are loaded after that.
 */
static void SCOUT_ON_COURIER
verify(struct scout_worker *w, struct scout__work *work)
{
	for (uint32_t i = 0; i < work->batch.n_done; i++) {
		const struct scout__grant *grant = &work->grants[work->item_chunk[i]];
		const _Atomic uint64_t *word;
		uint8_t *slot;

		/* The same address as before the copy, found in the same way. */
		if (!find_slot(w, work->mappings[i], scout__work_group_of(work, work->item_chunk[i]), grant, &slot,
			       &word))
			continue;
		if (atomic_load_explicit(word, memory_order_acquire) != grant->generation) {
			mismatch(w, work, grant, "under a copy");
			continue;
		}
		work->filled[work->item_chunk[i]] = 1;
		work->chunks++;
	}
	work->bytes += work->batch.bytes;
}

static void SCOUT_ON_COURIER
settle_retrieve(struct scout_worker *w, struct scout__transfer *job)
{
	struct scout__work *work = job->work;
	struct scout__grant_record *record = job->record;
	int status = work->batch.status;

	scout__transfer_name_missing(work);
	if (work->mismatches)
		status = SCOUT_ERR_CORRUPT;
	else if (!status && work->n_missing)
		status = SCOUT_ERR_MISSING;
	scout__transfer_detach(job);
	if (record) { /* or nothing was asked for */
		scout__transfer_grant_due(w, record, work->mismatches);
		scout__transfer_send_dones(w);
	}
	scout__transfer_finish(w, job, status);
}

/* The next part of a store, or its end. Its last DONE is answered, or was not needed. */
void
scout__transfer_next_part(struct scout_worker *w, struct scout__transfer *job)
{
	struct scout__work *work = job->work;
	uint32_t at = work->part_first + work->part_n;
	int status = work->status;

	if (!status && at < work->n_chunks && w->closing)
		status = SCOUT_ERR_CLOSED;
	if (!status && at < work->n_chunks &&
	    (atomic_load(&job->stop) || atomic_load(&job->phase) == SCOUT__PHASE_DROPPED))
		status = SCOUT_ERR_CANCELED;
	if (status || at == work->n_chunks || work->no_room) {
		if (!status)
			work->no_room += work->n_chunks - at;
		scout__transfer_finish(w, job, status);
		return;
	}
	work->part_first = at;
	scout__transfer_enter(job, SCOUT__STAGE_ASK);
	TAILQ_INSERT_TAIL(&w->to_ask, job, queue_link);
}

/* The copy of a part is over: commit it. */
static void SCOUT_ON_COURIER
settle_store(struct scout_worker *w, struct scout__transfer *job)
{
	struct scout__work *work = job->work;
	struct scout__grant_record *record = job->record;
	bool lost = record->id != 0 && w->up && record->epoch != w->epoch;

	work->bytes += work->batch.bytes;
	if (work->batch.status)
		work->status = work->batch.status;
	for (uint32_t i = 0; i < work->part_n; i++) {
		work->present += work->grants[i].state == SCOUT_GRANT_PRESENT;
		work->no_room += work->grants[i].state == SCOUT_GRANT_NO_ROOM;
	}
	scout__transfer_enter(job, SCOUT__STAGE_TOLD);
	if (record->id == 0 || lost) {
		scout__transfer_grant_free(w, record);
		if (lost)
			work->status = SCOUT_ERR_EPOCH;
		scout__transfer_next_part(w, job);
		return;
	}
	if (work->batch.may_write_on) {
		/* The server frees the slots when it sees that the process is gone. */
		record->state = SCOUT__GRANT_KEPT;
		w->link->goes_silently = true;
		scout__transfer_detach(job);
		scout__transfer_finish(w, job, work->status);
		return;
	}
	scout__transfer_grant_due(w, record, scout__worker_outdated(w, work) ? 0 : work->batch.n_done);
	if (w->up) {
		scout__transfer_send_dones(w);
		return;
	}
	scout__transfer_detach(job);
	work->status = SCOUT_ERR_UNREACHABLE;
	scout__transfer_finish(w, job, work->status);
}

static void
settle(struct scout_worker *w, struct scout__transfer *job)
{
	struct scout__work *work = job->work;

	if (work->kind == SCOUT_JOB_STORE)
		settle_store(w, job);
	else
		settle_retrieve(w, job);
}

/*
 * The layers of a batch are copied. True: others are to be announced, or to be copied, and the job has what
 * it needs for them: it waits in `granted`, or has ended there.
 */
static bool SCOUT_ON_COURIER
goes_on(struct scout_worker *w, struct scout__transfer *job)
{
	struct scout__work *work = job->work;

	if (!work->announced || work->layers_end == work->n_layers)
		return false;
	if (work->batch.status) {
		work->batch.n_done = 0; /* no slot has all its layers */
		return false;
	}
	work->layers_done = work->layers_end;
	work->bytes += work->batch.bytes;
	atomic_store(&work->progress.enqueued, work->layers_done);
	scout__copy_progress_copied(&work->progress, work->layers_done);
	scout__transfer_enter(job, SCOUT__STAGE_GRANTED);
	TAILQ_INSERT_TAIL(&w->granted, job, queue_link);
	/* In this order: fence and cancel set `stop`, then look at the phase. */
	scout__transfer_publish_phase(w, job, SCOUT__PHASE_WAITING);
	if (w->closing)
		scout__transfer_end_early(w, job, SCOUT_ERR_CLOSED);
	else if (atomic_load(&job->stop))
		scout__transfer_end_early(w, job, SCOUT_ERR_CANCELED);
	else if (!w->up)
		scout__transfer_end_early(w, job, SCOUT_ERR_UNREACHABLE);
	else if (job->record->epoch != w->epoch)
		scout__transfer_end_early(w, job, SCOUT_ERR_EPOCH);
	else
		scout__transfer_start(w, job);
	return true;
}

void
scout__transfer_collect(struct scout_worker *w)
{
	struct scout__copy_batch *batch;

	/* Until NULL, also when nothing is running: only that makes the engine's descriptor quiet again. */
	while (w->mappings.engine && (batch = w->copy->poll(w->mappings.engine)) != NULL) {
		struct scout__transfer *job = &w->jobs[batch->cookie & SCOUT__SLOT_MASK];
		struct scout__work *work = job->work;

		SCOUT_ASSERT(job->id == batch->cookie && batch == &work->batch);
		w->n_copying--;
		if (work->kind == SCOUT_JOB_RETRIEVE)
			verify(w, work);
		use_mappings(w, work, false);
		if (goes_on(w, job))
			continue;
		scout__transfer_publish_phase(w, job, has_more(work) ? SCOUT__PHASE_WAITING : SCOUT__PHASE_OVER);
		settle(w, job);
	}
}
