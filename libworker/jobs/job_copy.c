/* SPDX-License-Identifier: Apache-2.0 */
#include "link.h"
#include "job_internal.h"

#include <string.h>

#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: makes a batch for the copy engine from grants, and finds the good chunks of an ended batch. The rules are
 * in job.c.
 *
 * The batch and its arrays are part of the job's memory, which stays where it is until the job is reported; a job has
 * one batch at a time. A segment counts the batch items that use it, so it stays mapped while they do, even if its
 * server ends.
 *
 * A large batch grows, if its engine lets it: the engine begins with its first slots while this thread looks at the others. What makes the
 * job wait is known before: that all of its segments are here, and that all memory is pinned. A slot that turns out to be no slot, or to
 * have changed, is left out, as in a batch that is built first.
 *
 * Threads: the courier's. The engine reads the batch between start and poll.
 */

#define MISMATCH_LOG_US 1000000u
/* A batch grows after so many bytes: the link takes 0.6 ms to move them, in which this thread looks at 20,000 slots. */
#define FIRST_BYTES (UINT64_C(32) << 20)

/* Of the batch that is being built or copied. */
static uint32_t
n_items(const struct scout__job_data *data)
{
	return atomic_load_explicit(&data->batch.n_there, memory_order_relaxed);
}

static void
add_item(struct scout__job_data *data, const struct scout__job_group *group, uint32_t grant,
	 struct scout__mapping *mapping, uint8_t *slot)
{
	uint32_t i = n_items(data);

	data->items[i].slot = slot;
	data->items[i].block_ids = scout__job_ids(data, group, data->part_first + grant);
	data->items[i].table = group->table;
	data->mappings[i] = mapping;
	data->item_chunk[i] = grant;
	atomic_store_explicit(&data->batch.n_there, i + 1, memory_order_release);
}

/* Whether a grant names a slot; if not, the server has a bug. */
static bool SCOUT_ON_COURIER
find_slot(struct scout_worker *w, const struct scout__mapping *mapping, const struct scout__job_group *group,
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
wants_blocks(const struct scout__job_data *data, const struct scout__job_group *group, uint32_t chunk)
{
	const int64_t *ids = scout__job_ids(data, group, chunk);

	for (uint32_t b = 0; b < group->blocks_per_chunk; b++)
		if (ids[b] >= 0)
			return true;
	return false;
}

static void SCOUT_ON_COURIER
mismatch(struct scout_worker *w, struct scout__job_data *data, const struct scout__grant *grant, const char *when)
{
	data->mismatches++;
	scout__log_limited(&w->log, &w->mismatch_limit, scout__now_us(), MISMATCH_LOG_US, SCOUT_LOG_ERROR,
			   "slot at segment %u offset %llu changed %s: its bytes were not used",
			   (unsigned)grant->segment, (unsigned long long)grant->offset, when);
}

/*
 * Add an item for chunk @i of the part, if it was granted, and can be read. Returns how many items that is, or -1: its segment has not come
 * yet. Of a store only leading slots can be committed: the first one that cannot be used ends it.
 */
static inline int SCOUT_ON_COURIER
add_chunk(struct scout_worker *w, struct scout__job_data *data, uint32_t i)
{
	const struct scout__job_group *group = scout__job_group_of(data, data->part_first + i);
	const struct scout__grant *grant = &data->grants[i];
	bool is_store = data->kind == SCOUT_JOB_STORE;
	const _Atomic uint64_t *word;
	struct scout__mapping *mapping;
	uint8_t *slot;

	if (grant->state != SCOUT_GRANT_GRANTED || !wants_blocks(data, group, data->part_first + i))
		return 0;
	mapping = scout__mappings_find(&w->mappings, grant->segment);
	if (!mapping)
		return -1;
	if (!find_slot(w, mapping, group, grant, &slot, &word)) {
		data->status = is_store ? SCOUT_ERR_DEVICE : 0;
		return 0;
	}
	if (!is_store && atomic_load_explicit(word, memory_order_acquire) != grant->generation) {
		mismatch(w, data, grant, "before its copy");
		return 0;
	}
	add_item(data, group, i, mapping, slot);
	return 1;
}

/* Add chunks from data->next on, until there are @most items. False: a segment has not come yet. */
static bool SCOUT_ON_COURIER
add_chunks(struct scout_worker *w, struct scout__job_data *data, uint32_t most)
{
	for (; data->next < data->part_n && n_items(data) < most && !data->status; data->next++)
		if (add_chunk(w, data, data->next) < 0)
			return false;
	return true;
}

/* The next chunk, with the verifier's scratch in the place of the slot. */
static bool SCOUT_ON_COURIER
build_verify(struct scout_worker *w, struct scout__job_data *data)
{
	int n = 0;

	while (data->next < data->part_n && (n = add_chunk(w, data, data->next)) == 0)
		data->next++;
	if (n > 0) {
		data->slot = data->items[0].slot;
		data->items[0].slot = w->verifier.scratch;
	}
	return n >= 0;
}

/* So many items are in a batch that grows when it starts. */
static uint32_t
n_first_items(const struct scout_worker *w, const struct scout__job_data *data)
{
	return (uint32_t)(FIRST_BYTES / w->tables[data->groups[0].table].shard_bytes) + 1;
}

/*
 * Whether the batch may grow. One method and one order of layers is chosen at the begin, by what is there: so it has one group, and a store
 * by layers does not grow.
 */
static bool SCOUT_ON_COURIER
may_grow(struct scout_worker *w, const struct scout__job_data *data)
{
	if (!w->copy->may_grow || data->n_groups > 1 || (data->kind == SCOUT_JOB_STORE && data->n_layers) ||
	    data->part_n <= n_first_items(w, data) || !w->copy->may_grow(w->engine))
		return false;
	for (uint32_t i = 0; i < data->part_n; i++)
		if (data->grants[i].state == SCOUT_GRANT_GRANTED &&
		    !scout__mappings_find(&w->mappings, data->grants[i].segment))
			return false;
	return true;
}

/* Build the batch, or the begin of one that grows. False: a segment has not come yet. */
static bool SCOUT_ON_COURIER
build(struct scout_worker *w, struct scout__job_data *data)
{
	atomic_store(&data->batch.n_there, 0);
	if (data->kind == SCOUT_JOB_VERIFY)
		return build_verify(w, data);
	data->next = 0;
	data->mismatches = 0;
	data->batch.grows = may_grow(w, data);
	return add_chunks(w, data, data->batch.grows ? n_first_items(w, data) : UINT32_MAX);
}

/* The engine has begun: add what is left. */
static void SCOUT_ON_COURIER
build_rest(struct scout_worker *w, struct scout__job_data *data)
{
	bool are_here = add_chunks(w, data, UINT32_MAX);

	SCOUT_ASSERT(are_here);
	atomic_store(&data->batch.is_whole, true);
	w->copy->grew(w->engine);
}

static void settle(struct scout_worker *w, struct scout__job *job) SCOUT_ON_COURIER;

static void SCOUT_ON_COURIER
use_mappings(struct scout_worker *w, struct scout__job_data *data, bool in_use)
{
	for (uint32_t i = 0; i < n_items(data); i++) {
		if (in_use)
			scout__mapping_use(data->mappings[i]);
		else
			scout__mapping_release(&w->mappings, data->mappings[i]);
	}
}

static bool
has_more(const struct scout__job_data *data)
{
	return data->part_first + data->part_n < data->n_chunks;
}

/* How many leading layers may be read. */
static uint32_t
ready_layers(const struct scout__job_data *data)
{
	return data->announced ? atomic_load(&data->ready) : data->n_layers;
}

/* The job has slots to fill, and the next layer is not computed yet. */
static bool SCOUT_ON_COURIER
waits_for_layer(const struct scout__job *job)
{
	const struct scout__job_data *data = job->data;

	return data->announced && job->record->n > 0 && ready_layers(data) <= data->layers_done;
}

/* Give the batch to the engine. False: the engine has no room now; nothing has changed. */
static bool SCOUT_ON_COURIER
enqueue(struct scout_worker *w, struct scout__job *job)
{
	struct scout__job_data *data = job->data;
	struct scout__copy_batch *batch = &data->batch;

	batch->direction = data->kind == SCOUT_JOB_RETRIEVE ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE;
	batch->n = n_items(data);
	batch->items = data->items;
	batch->n_layers = data->n_layers;
	batch->first_plane = data->first_plane;
	if (data->announced) {
		data->layers_end = ready_layers(data);
		batch->n_layers = data->layers_end - data->layers_done;
		batch->first_plane = data->first_plane + (size_t)data->layers_done * w->n_tables;
	}
	batch->after = data->after;
	batch->event = data->event;
	batch->layer_events = data->layer_events;
	batch->stop = &job->stop;
	/* A job of several parts has no layers: it is copied when its last part is. For announced layers, goes_on() reports progress. */
	batch->progress = has_more(data) || data->announced || data->kind == SCOUT_JOB_VERIFY ? NULL : &data->progress;
	batch->cookie = job->id;
	batch->status = 0;
	batch->n_done = 0;
	batch->bytes = 0;
	atomic_store(&batch->is_whole, false);
	return w->copy->start(w->engine, batch) == 0;
}

/*
 * Whether a verification may have the copy engine: no other has begun, and no retrieve is being copied or waits for that. False, too:
 * it has ended, because there is no scratch.
 */
static bool SCOUT_ON_COURIER
may_verify(struct scout_worker *w, struct scout__job *job)
{
	const struct scout__job *other;
	uint64_t bytes = 0;
	int rc;

	if ((w->verifier.job && w->verifier.job != job) || w->n_loading > 0)
		return false;
	TAILQ_FOREACH(other, &w->granted, queue_link)
	{
		if (other->data->kind == SCOUT_JOB_RETRIEVE)
			return false;
	}
	for (uint32_t t = 0; t < w->n_tables; t++)
		bytes = w->tables[t].shard_bytes > bytes ? w->tables[t].shard_bytes : bytes;
	w->verifier.job = job;
	rc = scout__verifier_prepare(&w->verifier, &w->mappings, bytes);
	if (rc)
		scout__job_end_early(w, job, rc);
	return rc == 0;
}

/* Start the copy of a job in `granted`, if all its segments are here. */
void
scout__job_start(struct scout_worker *w, struct scout__job *job)
{
	struct scout__job_data *data = job->data;
	bool grows;

	if (waits_for_layer(job) || (data->kind == SCOUT_JOB_VERIFY && !may_verify(w, job)) || !build(w, data))
		return;
	grows = data->batch.grows; /* the engine's, once it has the batch */
	if (n_items(data) == 0 && !scout__job_has_events(data)) {
		scout__job_unqueue(w, job);
		scout__job_enter(job, SCOUT__STAGE_COPYING);
		data->batch.status = 0;
		data->batch.n_done = 0;
		data->batch.bytes = 0;
		settle(w, job);
		return;
	}
	if (!scout__job_move_phase(job, SCOUT__PHASE_WAITING, SCOUT__PHASE_ENQUEUED)) {
		scout__job_end_early(w, job, SCOUT_ERR_CANCELED);
		return;
	}
	if (!enqueue(w, job)) {
		scout__job_publish_phase(w, job, SCOUT__PHASE_WAITING);
		return;
	}
	scout__job_unqueue(w, job);
	/* A verification gives way to retrieves between its chunks, so its time bounds all of it. */
	if (data->kind != SCOUT_JOB_VERIFY)
		scout__job_untime(w, job);
	scout__job_enter(job, SCOUT__STAGE_COPYING);
	w->n_copying++;
	w->n_loading += data->kind == SCOUT_JOB_RETRIEVE;
	if (grows)
		build_rest(w, data);
	use_mappings(w, data, true); /* only this thread looks at their users */
}

/*
 * Find the good chunks of a retrieve, or of a verification: copied, and the slot's generation is still as granted. The engine's poll() has
 * acquired what its thread (or the device's event) released after the last byte was read, so the words are loaded after
 * that.
 */
static void SCOUT_ON_COURIER
find_good(struct scout_worker *w, struct scout__job_data *data)
{
	for (uint32_t i = 0; i < data->batch.n_done; i++) {
		const struct scout__grant *grant = &data->grants[data->item_chunk[i]];
		const _Atomic uint64_t *word;
		uint8_t *slot;

		/* The same address as before the copy, found in the same way. */
		if (!find_slot(w, data->mappings[i], scout__job_group_of(data, data->item_chunk[i]), grant, &slot,
			       &word))
			continue;
		if (atomic_load_explicit(word, memory_order_acquire) != grant->generation) {
			mismatch(w, data, grant, "under a copy");
			continue;
		}
		data->filled[data->item_chunk[i]] = 1;
		data->chunks++;
	}
	data->bytes += data->batch.bytes;
}

static void SCOUT_ON_COURIER
settle_retrieve(struct scout_worker *w, struct scout__job *job)
{
	struct scout__job_data *data = job->data;
	struct scout__grant_record *record = job->record;
	int status = data->batch.status;

	scout__job_name_missing(data);
	if (data->batch.may_write_on)
		w->verifier.scratch = NULL; /* lost: the device may write into it until this process ends */
	if (data->mismatches && data->kind == SCOUT_JOB_RETRIEVE)
		status = SCOUT_ERR_CORRUPT;
	else if (!status && data->n_missing)
		status = SCOUT_ERR_MISSING;
	scout__job_detach(job);
	if (record) { /* or the job asked for nothing */
		record->found = data->n_verified && record->n == data->part_n ? data->filled : NULL;
		scout__grant_record_due(w, record, data->mismatches);
		scout__jobs_send_dones(w);
		record->found = NULL; /* sent, or nobody will be told */
	}
	scout__job_finish(w, job, status);
}

/* Start the next part of a store, or end it. Its last DONE is answered, or was not needed. */
void
scout__job_next_part(struct scout_worker *w, struct scout__job *job)
{
	struct scout__job_data *data = job->data;
	uint32_t at = data->part_first + data->part_n;
	int status = data->status;

	if (!status && at < data->n_chunks && w->closing)
		status = SCOUT_ERR_CLOSED;
	if (!status && at < data->n_chunks &&
	    (atomic_load(&job->stop) || atomic_load(&job->phase) == SCOUT__PHASE_DROPPED))
		status = SCOUT_ERR_CANCELED;
	if (status || at == data->n_chunks || data->no_room) {
		if (!status)
			data->no_room += data->n_chunks - at;
		scout__job_finish(w, job, status);
		return;
	}
	data->part_first = at;
	scout__job_enter(job, SCOUT__STAGE_ASK);
	TAILQ_INSERT_TAIL(&w->to_ask, job, queue_link);
}

/* The copy of a part is over: commit the part. */
static void SCOUT_ON_COURIER
settle_store(struct scout_worker *w, struct scout__job *job)
{
	struct scout__job_data *data = job->data;
	struct scout__grant_record *record = job->record;
	bool lost = record->id != 0 && w->up && record->epoch != w->epoch;

	data->bytes += data->batch.bytes;
	if (data->batch.status)
		data->status = data->batch.status;
	for (uint32_t i = 0; i < data->part_n; i++) {
		data->present += data->grants[i].state == SCOUT_GRANT_PRESENT;
		data->no_room += data->grants[i].state == SCOUT_GRANT_NO_ROOM;
	}
	scout__job_enter(job, SCOUT__STAGE_TOLD);
	if (record->id == 0 || lost) {
		scout__grant_record_free(w, record);
		if (lost)
			data->status = SCOUT_ERR_EPOCH;
		scout__job_next_part(w, job);
		return;
	}
	if (data->batch.may_write_on) {
		/* The server frees the slots when it sees that the process is gone. */
		record->state = SCOUT__GRANT_KEPT;
		w->link->goes_silently = true;
		scout__job_detach(job);
		scout__job_finish(w, job, data->status);
		return;
	}
	scout__grant_record_due(w, record, scout__worker_outdated(w, data) ? 0 : data->batch.n_done);
	if (w->up) {
		scout__jobs_send_dones(w);
		return;
	}
	scout__job_detach(job);
	data->status = SCOUT_ERR_UNREACHABLE;
	scout__job_finish(w, job, data->status);
}

static void
settle(struct scout_worker *w, struct scout__job *job)
{
	struct scout__job_data *data = job->data;

	if (data->kind == SCOUT_JOB_STORE)
		settle_store(w, job);
	else
		settle_retrieve(w, job);
}

/* The job goes on with its grants: it waits in `granted` for its next copy, or ends there. */
static void SCOUT_ON_COURIER
wait_granted(struct scout_worker *w, struct scout__job *job)
{
	scout__job_enter(job, SCOUT__STAGE_GRANTED);
	TAILQ_INSERT_TAIL(&w->granted, job, queue_link);
	/* In this order: fence and cancel set `stop`, then look at the phase. */
	scout__job_publish_phase(w, job, SCOUT__PHASE_WAITING);
	if (w->closing)
		scout__job_end_early(w, job, SCOUT_ERR_CLOSED);
	else if (atomic_load(&job->stop))
		scout__job_end_early(w, job, SCOUT_ERR_CANCELED);
	else if (!w->up)
		scout__job_end_early(w, job, SCOUT_ERR_UNREACHABLE);
	else if (job->record->epoch != w->epoch)
		scout__job_end_early(w, job, SCOUT_ERR_EPOCH);
	else if (job->data->kind == SCOUT_JOB_VERIFY && !job->timed)
		scout__job_end_early(w, job, SCOUT_ERR_TIMEOUT);
	else
		scout__job_start(w, job);
}

/*
 * The layers of a batch are copied. True: more layers will be announced or copied, and the job has the slots for
 * them: it waits in `granted`, or has ended there.
 */
static bool SCOUT_ON_COURIER
goes_on(struct scout_worker *w, struct scout__job *job)
{
	struct scout__job_data *data = job->data;

	if (!data->announced || data->layers_end == data->n_layers)
		return false;
	if (data->batch.status) {
		data->batch.n_done = 0; /* no slot has all its layers */
		return false;
	}
	data->layers_done = data->layers_end;
	data->bytes += data->batch.bytes;
	atomic_store(&data->progress.enqueued, data->layers_done);
	scout__copy_progress_copied(&data->progress, data->layers_done);
	wait_granted(w, job);
	return true;
}

/* ---- verify ---- */

/* A batch has ended. True: it was a chunk of a verification, which is being compared now. */
static bool SCOUT_ON_COURIER
compare(struct scout_worker *w, struct scout__job *job)
{
	struct scout__job_data *data = job->data;
	const struct scout__table *table;

	if (data->kind != SCOUT_JOB_VERIFY || data->batch.status || data->batch.n_done == 0)
		return false;
	table = &w->tables[data->items[0].table];
	scout__job_enter(job, SCOUT__STAGE_COMPARING);
	scout__verifier_start(&w->verifier, &(struct scout__verifier_task){&table->layout, table->dtype,
									   data->items[0].block_ids, data->slot});
	/* The pages are free from here on: a fence waits for the copy alone. */
	scout__job_publish_phase(w, job, SCOUT__PHASE_WAITING);
	return true;
}

/* A slot that has changed under the comparison counts as missing. */
void
scout__jobs_collect_compared(struct scout_worker *w, bool wait)
{
	struct scout__job *job = w->verifier.job;
	const struct scout__job_group *group;
	struct scout__job_data *data;
	static const float bounds[SCOUT_FOUND_BOUNDS] = {0, 0.001F, 0.003F, 0.01F, 0.03F, 0.1F, 0.3F, 1};
	struct scout_verified *v;
	uint32_t chunk;

	if (!scout__verifier_take(&w->verifier, wait))
		return;
	data = job->data;
	chunk = data->item_chunk[0];
	group = scout__job_group_of(data, chunk);
	v = &data->verified[data->n_verified];
	*v = w->verifier.result;
	v->group = group->number;
	v->chunk = group->first_chunk + (chunk - group->at);
	scout__mapping_writer(data->mappings[0], data->grants[chunk].offset, &v->stored_by, &v->stored_s);
	find_good(w, data);
	if (data->filled[chunk]) {
		data->n_verified++;
		data->mismatched += v->differs;
		data->filled[chunk] = v->differs ? SCOUT_FOUND_COMPARED | SCOUT_FOUND_DIFFERS : SCOUT_FOUND_COMPARED;
		for (uint32_t i = 0; i < SCOUT_FOUND_BOUNDS; i++)
			data->filled[chunk] += v->norm_error > bounds[i];
	}
	use_mappings(w, data, false);
	w->n_copying--;
	data->next = chunk + 1;
	wait_granted(w, job);
}

void
scout__jobs_collect(struct scout_worker *w)
{
	struct scout__copy_batch *batch;

	/* Poll until NULL, even when nothing is running: only that makes the engine's descriptor unreadable again. */
	while (w->mappings.engine && (batch = w->copy->poll(w->mappings.engine)) != NULL) {
		struct scout__job *job = &w->jobs[batch->cookie & SCOUT__SLOT_MASK];
		struct scout__job_data *data = job->data;

		SCOUT_ASSERT(job->id == batch->cookie && batch == &data->batch);
		w->n_loading -= data->kind == SCOUT_JOB_RETRIEVE;
		if (compare(w, job))
			continue;
		w->n_copying--;
		if (data->kind == SCOUT_JOB_RETRIEVE)
			find_good(w, data);
		use_mappings(w, data, false);
		if (goes_on(w, job))
			continue;
		scout__job_publish_phase(w, job, has_more(data) ? SCOUT__PHASE_WAITING : SCOUT__PHASE_OVER);
		settle(w, job);
	}
	scout__jobs_collect_compared(w, false);
}
