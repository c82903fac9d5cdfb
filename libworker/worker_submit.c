/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_internal.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "utf8.h"
#include "sized.h"

/*
 * DESIGN
 *
 * Purpose: from a request to a job of the courier, on the caller's thread: check, copy, hand over.
 *
 * Everything that can be wrong with a job is found before anything starts. A job's memory is one allocation that is
 * laid out in advance for its whole life, so nothing later can fail for want of memory.
 *
 * Pages. The caller's ids may begin before the range of the job and end behind it (its whole block table, say); what lies outside
 * is not looked at. Of several groups a job has one such list each; this version works with one.
 *
 * Positions. A retrieve is rounded outwards to whole chunks; `ids` has one entry for each block of these chunks, -1
 * where nothing is to be written (outside the range, null). Chunks at either end without any block to write
 * are cut off: they are not asked for, and need not be there. A store keeps only the chunks of its reader, and of those
 * only whole ones: a chunk with a null block has no KV for it, and would be a hit with zeros. Presence is by chunk, so
 * the chunks behind it are stored.
 */

#define ALIGN 16u

/* Sizes of the arrays of one job, added up with overflow seen. */
struct plan {
	size_t bytes;
	bool overflow;
};

/* The offset of an array of @n elements. */
static size_t
place(struct plan *plan, size_t n, size_t size)
{
	size_t bytes, at = plan->bytes;

	if (__builtin_mul_overflow(n, size, &bytes) || __builtin_add_overflow(bytes, (size_t)ALIGN - 1, &bytes) ||
	    __builtin_add_overflow(at, bytes & ~(size_t)(ALIGN - 1), &plan->bytes))
		plan->overflow = true;
	return at;
}

struct shape {
	int kind;
	uint32_t n_chunks;
	uint32_t n_grants; /* at once */
	size_t n_blocks;   /* retrieve: of its range, for the missing list */
	size_t hash_bytes; /* of all hashes */
	size_t tenant_len;
	uint32_t n_layers;
	bool has_events; /* one for each layer */
};

static void *
at(struct scout__work *work, size_t offset)
{
	return (uint8_t *)work + offset;
}

/* One allocation for the job and all its arrays; only those that its kind needs. */
static struct scout__work *
work_new(const struct scout_worker *w, const struct shape *s)
{
	bool is_retrieve = s->kind == SCOUT_JOB_RETRIEVE;
	struct plan plan = {.bytes = 0};
	struct scout__work *work;
	size_t n_ids = (size_t)s->n_chunks * w->layout.blocks_per_chunk;
	size_t head = place(&plan, 1, sizeof(*work));
	size_t ids = place(&plan, n_ids, sizeof(*work->ids));
	size_t grants = place(&plan, s->n_grants, sizeof(*work->grants));
	size_t items = place(&plan, s->n_grants, sizeof(*work->items));
	size_t mappings = place(&plan, s->n_grants, sizeof(struct scout__mapping *));
	size_t item_chunk = place(&plan, s->n_grants, sizeof(*work->item_chunk));
	size_t filled = place(&plan, is_retrieve ? s->n_chunks : 0, sizeof(*work->filled));
	size_t missing = place(&plan, is_retrieve ? s->n_blocks : 0, sizeof(*work->missing));
	size_t hashes = place(&plan, s->hash_bytes, 1);
	size_t tenant = place(&plan, s->tenant_len, 1);
	size_t first_plane = place(&plan, s->n_layers ? (size_t)s->n_layers + 1 : 0, sizeof(*work->first_plane));
	size_t layer_events = place(&plan, s->has_events ? s->n_layers : 0, sizeof(void *));

	if (plan.overflow)
		return NULL;
	work = malloc(plan.bytes);
	if (!work)
		return NULL;
	memset(work, 0, sizeof(*work));
	(void)head;
	work->kind = s->kind;
	work->n_chunks = s->n_chunks;
	work->ids = at(work, ids);
	work->grants = at(work, grants);
	work->items = at(work, items);
	work->mappings = at(work, mappings);
	work->item_chunk = at(work, item_chunk);
	work->filled = at(work, filled);
	work->missing = at(work, missing);
	work->hashes = at(work, hashes);
	work->tenant = at(work, tenant);
	work->n_layers = s->n_layers;
	work->first_plane = at(work, first_plane);
	work->layer_events = s->has_events ? at(work, layer_events) : NULL;
	atomic_init(&work->outcome, SCOUT_NOT_YET);
	if (is_retrieve)
		memset(work->filled, 0, s->n_chunks);
	return work;
}

/* ---- checks ---- */

static int
check_worker(const struct scout_worker *w, const void *request, const uint64_t *ret_job)
{
	if (!w || !request || !ret_job)
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(w->courier))
		return SCOUT_ERR_FORKED;
	return 0;
}

/* The caller's pages for the blocks [first, end) of the prompt. */
struct page_range {
	const int64_t *ids; /* of block `first` on */
	uint64_t first, end;
	uint64_t base; /* block of the caller's ids[0]; at most `first` */
};

/* Layers that take the table's planes exactly, and events where the backend knows any. */
static int
check_layers(const struct scout_worker *w, uint32_t n, const uint32_t *layer_planes, const void *events)
{
	uint64_t sum = 0;

	if (events && scout__worker_is_host(w))
		return SCOUT_ERR_UNSUPPORTED;
	if (n == 0)
		return events || layer_planes ? SCOUT_ERR_INVALID : 0;
	if (!layer_planes || n > w->layout.n_planes)
		return SCOUT_ERR_INVALID;
	for (uint32_t l = 0; l < n; l++) {
		if (layer_planes[l] == 0)
			return SCOUT_ERR_INVALID;
		sum += layer_planes[l];
	}
	return sum == w->layout.n_planes ? 0 : SCOUT_ERR_INVALID;
}

/* The one entry of a job's @blocks, @size bytes each in the caller's version of the headers. */
static int
take_blocks(const struct scout_blocks *blocks, size_t n_groups, size_t size, struct scout_blocks *ret)
{
	struct scout_blocks own;
	int rc;

	if (!blocks || n_groups == 0)
		return SCOUT_ERR_INVALID;
	rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_blocks, n), blocks, size);
	if (rc)
		return rc;
	if (own.group >= SCOUT__WORKER_GROUPS || n_groups > SCOUT__WORKER_GROUPS)
		return SCOUT_ERR_GROUP;
	*ret = own;
	return 0;
}

/* The pages in @blocks of the blocks [first, end). All of them must be there, and be pages of ours. */
static int
find_pages(const struct scout_worker *w, const struct scout_blocks *blocks, uint64_t first, uint64_t end,
	   struct page_range *ret)
{
	uint64_t base = blocks->first_token / w->block_tokens;

	if (blocks->first_token % w->block_tokens != 0 || base > first)
		return SCOUT_ERR_INVALID;
	if (end - base > blocks->n || (end > first && !blocks->ids))
		return SCOUT_ERR_INVALID;
	*ret = (struct page_range){
		.ids = blocks->ids ? blocks->ids + (first - base) : NULL, .first = first, .end = end, .base = base};
	return scout__worker_check_ids(w, ret->ids, (size_t)(end - first));
}

static int
check_retrieve(const struct scout_worker *w, const struct scout_retrieve *r, const struct scout_blocks *blocks,
	       struct page_range *ret_pages)
{
	int rc = check_layers(w, r->n_layers, r->layer_planes, r->layer_events);

	if (rc)
		return rc;
	if ((r->after || r->event) && scout__worker_is_host(w))
		return SCOUT_ERR_UNSUPPORTED;
	if (r->ticket == 0 || r->from_token > r->to_token || r->from_token % w->block_tokens != 0)
		return SCOUT_ERR_INVALID;
	if (r->to_token > (uint64_t)SCOUT_MAX_CHUNKS * w->cfg.chunk_tokens)
		return SCOUT_ERR_INVALID;
	return find_pages(w, blocks, r->from_token / w->block_tokens,
			  (r->to_token + w->block_tokens - 1) / w->block_tokens, ret_pages);
}

static int
check_store(const struct scout_worker *w, const struct scout_store *s, const struct scout_blocks *blocks,
	    struct page_range *ret_pages)
{
	int rc = check_layers(w, s->n_layers, s->layer_planes, s->layer_events);
	uint64_t first;

	if (rc)
		return rc;
	if (s->hash_len != w->cfg.hash_bytes)
		return SCOUT_ERR_HASH_LEN;
	if (s->tenant && (strnlen(s->tenant, SCOUT_MAX_NAME + 1) > SCOUT_MAX_NAME ||
			  !scout__utf8_is_name(s->tenant, strlen(s->tenant))))
		return SCOUT_ERR_TENANT;
	if (s->event && scout__worker_is_host(w))
		return SCOUT_ERR_UNSUPPORTED;
	if (s->n > SCOUT_MAX_CHUNKS || (s->n > 0 && !s->hashes))
		return SCOUT_ERR_INVALID;
	if (s->announced && !scout__worker_is_host(w))
		return SCOUT_ERR_UNSUPPORTED;
	if (s->announced > 1 || (s->announced && s->n_layers == 0))
		return SCOUT_ERR_INVALID;
	/* One part: layer by layer means one pass over the chunks for each layer. */
	if (s->n_layers > 0 && s->n > SCOUT__STORE_PART)
		return SCOUT_ERR_INVALID;
	if (s->first_token % w->cfg.chunk_tokens != 0 || s->first_token > UINT64_MAX / 2)
		return SCOUT_ERR_INVALID;
	first = s->first_token / w->block_tokens;
	return find_pages(w, blocks, first, first + s->n * (uint64_t)w->layout.blocks_per_chunk, ret_pages);
}

/* ---- submit ---- */

static void
fill_layers(struct scout__work *work, const uint32_t *layer_planes, void *const *events)
{
	if (work->n_layers == 0)
		return;
	work->first_plane[0] = 0;
	for (uint32_t l = 0; l < work->n_layers; l++)
		work->first_plane[l + 1] = work->first_plane[l] + layer_planes[l];
	if (events)
		memcpy(work->layer_events, events, work->n_layers * sizeof(*events));
}

static void
find_bounds(const struct scout_worker *w, struct scout__work *work)
{
	uint64_t n = (uint64_t)work->n_chunks * w->layout.blocks_per_chunk;

	work->low_id = INT64_MAX;
	work->high_id = -1;
	for (uint64_t i = 0; i < n; i++) {
		if (work->ids[i] < 0)
			continue;
		work->low_id = work->ids[i] < work->low_id ? work->ids[i] : work->low_id;
		work->high_id = work->ids[i] > work->high_id ? work->ids[i] : work->high_id;
	}
}

/* Hand a job to the courier. Takes @work on success. @timeout_ms 0: the configured one. */
static int
submit(struct scout_worker *w, struct scout__work *work, uint32_t timeout_ms, uint64_t *ret_job)
{
	uint32_t slot = w->n_free > 0 ? w->free_slots[w->n_free - 1] : w->n_used;
	struct scout__transfer *job = &w->jobs[slot];
	uint64_t id = w->next_seq << SCOUT__SLOT_BITS | slot;

	find_bounds(w, work);
	work->submitted_us = scout__now_us();
	work->since_us = work->submitted_us;
	work->deadline_us =
		work->submitted_us + (uint64_t)(timeout_ms ? timeout_ms : w->cfg.transfer_timeout_ms) * 1000;
	work->weights_gen = atomic_load_explicit(&w->weights_gen, memory_order_relaxed);
	job->work = work;
	job->id = id;
	atomic_store(&job->phase, SCOUT__PHASE_WAITING);
	atomic_store(&job->stop, false);
	if (!scout__courier_push(w->courier, id)) {
		job->id = 0;
		job->work = NULL;
		return SCOUT_ERR_BUSY;
	}
	if (w->n_free > 0)
		w->n_free--;
	else
		w->n_used++;
	TAILQ_INSERT_TAIL(&w->live_jobs, job, live_link);
	scout__worker_count_uses(w, work, 1);
	w->n_live++;
	w->next_seq++;
	scout__worker_count_submit(w, work->kind);
	(void)scout__courier_ring(w->courier);
	*ret_job = id;
	return 0;
}

/* Blocks of the prompt that a retrieve has to write: [first, end), empty when there is none. */
struct span {
	uint64_t first;
	uint64_t end;
};

static struct span
wanted_span(const struct scout_worker *w, const struct page_range *pages)
{
	uint64_t low = 0, high = pages->end - pages->first;

	while (low < high && scout__worker_plain_id(w, pages->ids[low]) < 0)
		low++;
	while (high > low && scout__worker_plain_id(w, pages->ids[high - 1]) < 0)
		high--;
	return (struct span){.first = pages->first + low, .end = pages->first + high};
}

static void
fill_retrieve(const struct scout_worker *w, const struct page_range *pages, const struct span *span,
	      struct scout__work *work)
{
	uint64_t n_ids = (uint64_t)work->n_chunks * w->layout.blocks_per_chunk;
	uint64_t first = (uint64_t)work->first_chunk * w->layout.blocks_per_chunk;

	for (uint64_t i = 0; i < n_ids; i++) {
		uint64_t block = first + i;

		work->ids[i] = block < span->first || block >= span->end
				       ? -1
				       : scout__worker_plain_id(w, pages->ids[block - pages->first]);
	}
}

static int
retrieve(struct scout_worker *w, const struct scout_retrieve *r, const struct scout_blocks *blocks, uint64_t *ret_job)
{
	struct shape shape = {
		.kind = SCOUT_JOB_RETRIEVE, .n_layers = r->n_layers, .has_events = r->layer_events != NULL};
	struct page_range pages;
	int rc = check_retrieve(w, r, blocks, &pages);
	struct scout__work *work;
	struct span span;
	uint64_t first = 0, end = 0;

	if (rc)
		return rc;
	if (w->n_live == w->cfg.max_jobs)
		return SCOUT_ERR_BUSY;
	span = wanted_span(w, &pages);
	if (span.first < span.end) {
		first = span.first / w->layout.blocks_per_chunk;
		end = (span.end - 1) / w->layout.blocks_per_chunk + 1;
	}
	shape.n_chunks = (uint32_t)(end - first);
	shape.n_grants = shape.n_chunks;
	shape.n_blocks = (size_t)(pages.end - pages.first);
	work = work_new(w, &shape);
	if (!work)
		return SCOUT_ERR_NOMEM;
	work->ticket = r->ticket;
	work->first_chunk = (uint32_t)first;
	work->from_block = pages.base;
	work->after = r->after;
	work->event = r->event;
	fill_layers(work, r->layer_planes, r->layer_events);
	fill_retrieve(w, &pages, &span, work);
	rc = submit(w, work, r->timeout_ms, ret_job);
	if (rc)
		free(work);
	return rc;
}

static int
count_busy(struct scout_worker *w, int rc)
{
	w->stats.busy += rc == SCOUT_ERR_BUSY;
	return rc;
}

int
scout_worker_retrieve_sized(struct scout_worker *w, const struct scout_retrieve *request, size_t size,
			    size_t blocks_size, uint64_t *ret_job)
{
	int rc = check_worker(w, request, ret_job);
	struct scout_retrieve own;
	struct scout_blocks blocks;

	if (rc == 0)
		rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_retrieve, timeout_ms), request,
				       size);
	if (rc == 0)
		rc = w->registered ? take_blocks(own.blocks, own.n_groups, blocks_size, &blocks) : SCOUT_ERR_STATE;
	return rc ? rc : count_busy(w, retrieve(w, &own, &blocks, ret_job));
}

/* Chunk @i of a store is this reader's. */
static bool
is_ours(const struct scout_worker *w, const struct scout_store *s, size_t i)
{
	return (s->first_token / w->cfg.chunk_tokens % w->cfg.readers + i) % w->cfg.readers == w->cfg.reader;
}

/* Each block of chunk @i of a store has a page. */
static bool
is_whole(const struct scout_worker *w, const struct page_range *pages, size_t i)
{
	uint32_t bpc = w->layout.blocks_per_chunk;

	for (uint32_t b = 0; b < bpc; b++)
		if (scout__worker_plain_id(w, pages->ids[i * bpc + b]) < 0)
			return false;
	return true;
}

static void
fill_store(const struct scout_worker *w, const struct scout_store *s, const struct page_range *pages,
	   struct scout__work *work)
{
	uint32_t bpc = w->layout.blocks_per_chunk;
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		if (!is_ours(w, s, i) || !is_whole(w, pages, i))
			continue;
		memcpy(work->hashes + n * s->hash_len, (const uint8_t *)s->hashes + i * s->hash_len, s->hash_len);
		memcpy(work->ids + n * bpc, pages->ids + i * bpc, bpc * sizeof(*work->ids));
		n++;
	}
	if (work->tenant_len > 0)
		memcpy(work->tenant, s->tenant, work->tenant_len);
}

static int
store(struct scout_worker *w, const struct scout_store *s, const struct scout_blocks *blocks, uint64_t *ret_job)
{
	struct shape shape = {.kind = SCOUT_JOB_STORE, .n_layers = s->n_layers, .has_events = s->layer_events != NULL};
	struct page_range pages;
	int rc = check_store(w, s, blocks, &pages);
	struct scout__work *work;
	uint32_t n_null = 0;

	if (rc)
		return rc;
	if (w->n_live == w->cfg.max_jobs)
		return SCOUT_ERR_BUSY;
	for (size_t i = 0; i < s->n; i++) {
		if (!is_ours(w, s, i))
			continue;
		if (is_whole(w, &pages, i))
			shape.n_chunks++;
		else
			n_null++;
	}
	shape.n_grants = shape.n_chunks < SCOUT__STORE_PART ? shape.n_chunks : SCOUT__STORE_PART;
	shape.hash_bytes = shape.n_chunks * s->hash_len;
	shape.tenant_len = s->tenant ? strlen(s->tenant) : 0;
	work = work_new(w, &shape);
	if (!work)
		return SCOUT_ERR_NOMEM;
	work->ticket = s->ticket;
	work->null_chunks = n_null;
	work->announced = s->announced;
	work->tenant_len = (uint16_t)shape.tenant_len;
	work->after = s->event;
	fill_layers(work, s->layer_planes, s->layer_events);
	fill_store(w, s, &pages, work);
	rc = submit(w, work, s->timeout_ms, ret_job);
	if (rc)
		free(work);
	return rc;
}

int
scout_worker_store_sized(struct scout_worker *w, const struct scout_store *request, size_t size, size_t blocks_size,
			 uint64_t *ret_job)
{
	int rc = check_worker(w, request, ret_job);
	struct scout_store own;
	struct scout_blocks blocks;

	if (rc == 0)
		rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_store, timeout_ms), request,
				       size);
	if (rc == 0)
		rc = w->registered ? take_blocks(own.blocks, own.n_groups, blocks_size, &blocks) : SCOUT_ERR_STATE;
	return rc ? rc : count_busy(w, store(w, &own, &blocks, ret_job));
}
