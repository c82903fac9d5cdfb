/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_request.h"

#include <stdlib.h>
#include <string.h>

#include "utf8.h"
#include "sized.h"

/*
 * DESIGN
 *
 * Purpose: makes a request into a job of the courier, on the caller's thread: check, copy, hand over.
 *
 * Every fault of a request is found before anything starts (worker_request.c has the checks of all kinds).
 *
 * Pages. The caller's ids may begin before the range of the job and end after it (its whole block table, say); ids outside are
 * not looked at. A job of several groups has one such list for each.
 *
 * Positions. A retrieve is rounded outwards to whole chunks (objects of each group); `ids` has one entry for each block of these
 * chunks, -1 where nothing is to be written (outside the range, null). Chunks at either end without any block to write are cut
 * off: they are not asked for, and need not be there. So the job asks only for the part of a sliding window for which the caller
 * has pages, and only for the last object of a state. A store keeps only the chunks of its reader, and only whole ones: a chunk
 * with a null block has no KV for that block, and would be a hit with zeros. Presence is by chunk, so the chunks after it are
 * stored.
 *
 * Groups. A retrieve is one job for all groups: the server turns their promises into one hold, and its events are recorded after
 * all of it. A store is one job for each group, because a STORE has one group; the caller knows the number of the first job, and
 * poll reports them together. (worker_poll.c, worker_layers.c)
 */

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

/* ---- what both kinds fill in ---- */

static void
fill_group(const struct scout_worker *w, const struct scout__named *named, struct scout__job_group *group)
{
	group->table = named->number;
	group->number = named->table->group;
	group->hashes_per_chunk = named->table->unit_tokens / w->cfg.hash_tokens;
	group->blocks_per_chunk = named->table->layout.blocks_per_chunk;
}

/* Where the planes of group @g of the job begin in each layer. */
static void
fill_layers(const struct scout_worker *w, struct scout__job_data *data, const struct scout__all_named *all, uint32_t g,
	    const uint32_t *layer_planes)
{
	uint32_t *first_plane = data->first_plane + all->of[g].number;

	if (data->n_layers == 0)
		return;
	first_plane[0] = 0;
	for (size_t l = 0; l < data->n_layers; l++)
		first_plane[(l + 1) * w->n_tables] = first_plane[l * w->n_tables] + layer_planes[l * all->n + g];
}

static void
fill_events(struct scout__job_data *data, void *const *events)
{
	if (data->layer_events)
		memcpy(data->layer_events, events, data->n_layers * sizeof(*events));
}

/* ---- retrieve ---- */

static int
check_retrieve(struct scout_worker *w, const struct scout_retrieve *r, struct scout__all_named *all)
{
	int rc = scout__request_check_layers(w, all, r->n_layers, r->layer_planes, r->layer_events);

	if (rc)
		return rc;
	if ((r->after || r->event) && scout__worker_is_host(w))
		return scout__request_refuse(w, all, SCOUT_ERR_UNSUPPORTED,
					     "after or event: the host backend knows no events");
	if (r->ticket == 0)
		return scout__request_refuse(w, all, SCOUT_ERR_INVALID,
					     "ticket = 0: must be the ticket of an answered lookup");
	if (r->from_token > r->to_token || r->to_token > (uint64_t)SCOUT_MAX_CHUNKS * w->cfg.hash_tokens)
		return scout__request_refuse(w, all, SCOUT_ERR_INVALID,
					     "from_token = %llu, to_token = %llu: must ascend, up to %llu",
					     (unsigned long long)r->from_token, (unsigned long long)r->to_token,
					     (unsigned long long)SCOUT_MAX_CHUNKS * w->cfg.hash_tokens);
	for (uint32_t g = 0; g < all->n && rc == 0; g++) {
		uint32_t block_tokens = all->of[g].table->block_tokens;

		if (r->from_token % block_tokens != 0)
			return scout__request_refuse(
				w, all, SCOUT_ERR_INVALID,
				"from_token = %llu: must be a multiple of block_tokens = %u of group %u",
				(unsigned long long)r->from_token, (unsigned)block_tokens,
				(unsigned)all->of[g].blocks.group);
		rc = scout__request_find_pages(w, all, &all->of[g], r->from_token / block_tokens,
					       (r->to_token + block_tokens - 1) / block_tokens);
	}
	return rc;
}

/* Drop blocks without a page at either end, and chunks that have only such blocks. */
static void
cut_ends(struct scout__named *named)
{
	uint64_t low = 0, high = named->end - named->first, bpc = named->table->layout.blocks_per_chunk;

	while (low < high && scout__worker_plain_id(named->table, named->ids[low]) < 0)
		low++;
	while (high > low && scout__worker_plain_id(named->table, named->ids[high - 1]) < 0)
		high--;
	named->from = named->to = 0;
	if (low == high)
		return;
	named->from = (named->first + low) / bpc;
	named->to = (named->first + high - 1) / bpc + 1;
}

static void
fill_retrieve(struct scout__job_data *data, const struct scout__named *named, struct scout__job_group *group)
{
	uint64_t n_ids = (uint64_t)group->n * group->blocks_per_chunk;
	uint64_t first = named->from * group->blocks_per_chunk;
	int64_t *ids = data->ids + group->ids_at;

	for (uint64_t i = 0; i < n_ids; i++) {
		uint64_t block = first + i;

		ids[i] = block < named->first || block >= named->end
				 ? -1
				 : scout__worker_plain_id(named->table, named->ids[block - named->first]);
	}
}

/* Compute how large the job is; 0 or SCOUT_ERR_INVALID. */
static int
shape_retrieve(struct scout_worker *w, struct scout__all_named *all, struct scout__job_shape *shape)
{
	uint64_t hashes = 0;

	for (uint32_t g = 0; g < all->n; g++) {
		struct scout__named *named = &all->of[g];
		uint64_t n;

		cut_ends(named);
		n = named->to - named->from;
		hashes += n * (named->table->unit_tokens / w->cfg.hash_tokens);
		shape->n_chunks += (uint32_t)n;
		shape->n_ids += (size_t)n * named->table->layout.blocks_per_chunk;
		shape->n_blocks += (size_t)(named->end - named->first);
	}
	shape->n_grants = shape->n_chunks;
	if (all->n > 1 && hashes > SCOUT_MAX_CHUNKS)
		return scout__request_refuse(w, all, SCOUT_ERR_INVALID,
					     "the groups cover %llu hashes together: must be at most %u",
					     (unsigned long long)hashes, (unsigned)SCOUT_MAX_CHUNKS);
	return 0;
}

/* @kind: of a retrieve, or of a verification. */
static int
retrieve(struct scout_worker *w, const struct scout_retrieve *r, int kind, struct scout__all_named *all,
	 uint64_t *ret_job)
{
	struct scout__job_shape shape = {
		.kind = kind, .n_groups = all->n, .n_layers = r->n_layers, .has_events = r->layer_events != NULL};
	int rc = check_retrieve(w, r, all);
	uint64_t ids_at = 0, missing_at = 0;
	const struct scout__job *job;
	struct scout__job_data *data;
	uint32_t at = 0;

	if (rc)
		return rc;
	if (w->n_live == w->cfg.max_jobs)
		return SCOUT_ERR_BUSY;
	rc = shape_retrieve(w, all, &shape);
	if (rc)
		return rc;
	data = scout__job_data_new(w, &shape);
	if (!data)
		return SCOUT_ERR_NOMEM;
	data->ticket = r->ticket;
	data->after = r->after;
	data->event = r->event;
	if (data->n_layers > 0)
		memset(data->first_plane, 0, ((size_t)data->n_layers + 1) * w->n_tables * sizeof(*data->first_plane));
	fill_events(data, r->layer_events);
	for (uint32_t g = 0; g < all->n; g++) {
		const struct scout__named *named = &all->of[g];
		struct scout__job_group *group = &data->groups[g];

		*group = (struct scout__job_group){.at = at,
						   .n = (uint32_t)(named->to - named->from),
						   .first_chunk = (uint32_t)named->from,
						   .ids_at = ids_at,
						   .from_block = named->blocks.first_token / named->table->block_tokens,
						   .missing_at = missing_at};
		fill_group(w, named, group);
		fill_layers(w, data, all, g, r->layer_planes);
		fill_retrieve(data, named, group);
		at += group->n;
		ids_at += (uint64_t)group->n * group->blocks_per_chunk;
		missing_at += named->blocks.n;
	}
	job = scout__job_submit(w, data, r->timeout_ms);
	if (!job) {
		free(data);
		return SCOUT_ERR_BUSY;
	}
	scout__worker_count_submit(w, kind);
	*ret_job = job->id;
	return 0;
}

static int
count_busy(struct scout_worker *w, int rc)
{
	w->stats.busy += rc == SCOUT_ERR_BUSY;
	return rc;
}

static int
read_retrieve(struct scout_worker *w, const struct scout_retrieve *request, size_t size, size_t blocks_size, int kind,
	      uint64_t *ret_job)
{
	int rc = check_worker(w, request, ret_job);
	struct scout__all_named all = {.call = kind == SCOUT_JOB_VERIFY ? "verify" : "retrieve", .n = 0};
	struct scout_retrieve own;

	if (rc == 0)
		rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_retrieve, timeout_ms), request,
				       size);
	if (rc == 0)
		rc = w->registered ? scout__request_take_blocks(w, own.blocks, own.n_groups, blocks_size, &all)
				   : SCOUT_ERR_NOT_REGISTERED;
	if (rc == 0 && kind == SCOUT_JOB_VERIFY && (own.n_layers || own.event || own.layer_events))
		rc = scout__request_refuse(w, &all, SCOUT_ERR_INVALID,
					   "a verification has no layers, and records no events");
	return rc ? rc : count_busy(w, retrieve(w, &own, kind, &all, ret_job));
}

int
scout_worker_retrieve_sized(struct scout_worker *w, const struct scout_retrieve *request, size_t size,
			    size_t blocks_size, uint64_t *ret_job)
{
	return read_retrieve(w, request, size, blocks_size, SCOUT_JOB_RETRIEVE, ret_job);
}

int
scout_worker_verify_sized(struct scout_worker *w, const struct scout_retrieve *request, size_t size, size_t blocks_size,
			  uint64_t *ret_job)
{
	return read_retrieve(w, request, size, blocks_size, SCOUT_JOB_VERIFY, ret_job);
}

/* ---- store ---- */

/* Check that each page stands for one block: else the chunk of one of two blocks would be stored with bytes of another one. */
static int
check_once(struct scout_worker *w, const struct scout__all_named *all, const struct scout__named *named)
{
	uint64_t *marks = named->table->marks, n = named->end - named->first, i = 0;
	int64_t id = -1;

	for (; i < n; i++) {
		id = scout__worker_plain_id(named->table, named->ids[i]);
		if (id >= 0 && marks[id / 64] >> (id % 64) & 1)
			break;
		if (id >= 0)
			marks[id / 64] |= (uint64_t)1 << (id % 64);
	}
	for (uint64_t k = 0; k < i; k++)
		if (scout__worker_plain_id(named->table, named->ids[k]) >= 0)
			marks[named->ids[k] / 64] = 0;
	if (i == n)
		return 0;
	return scout__request_refuse(w, all, SCOUT_ERR_BLOCK_ID,
				     "block id %lld of group %u stands for two blocks of the store: must be for one",
				     (long long)id, (unsigned)named->blocks.group);
}

/* Find the chunks of a group that end in the range of the hashes, and whose first page is among the caller's. */
static int
find_chunks(struct scout_worker *w, const struct scout_store *s, const struct scout__all_named *all,
	    struct scout__named *named)
{
	uint64_t unit = named->table->unit_tokens, bpc = named->table->layout.blocks_per_chunk;
	uint64_t ids_from = (named->blocks.first_token + unit - 1) / unit;
	int rc;

	if (named->blocks.first_token > s->first_token)
		return scout__request_refuse(
			w, all, SCOUT_ERR_INVALID,
			"the ids of group %u begin at token %llu, the hashes at %llu: must begin there or before",
			(unsigned)named->blocks.group, (unsigned long long)named->blocks.first_token,
			(unsigned long long)s->first_token);
	named->from = s->first_token / unit;
	named->to = (s->first_token + s->n * (uint64_t)w->cfg.hash_tokens) / unit;
	named->from = named->from > ids_from ? named->from : ids_from;
	named->to = named->to > named->from ? named->to : named->from;
	rc = scout__request_find_pages(w, all, named, named->from * bpc, named->to * bpc);
	return rc ? rc : check_once(w, all, named);
}

static int
check_store(struct scout_worker *w, const struct scout_store *s, struct scout__all_named *all)
{
	int rc = scout__request_check_layers(w, all, s->n_layers, s->layer_planes, s->layer_events);

	if (rc)
		return rc;
	if (s->hash_len != w->cfg.hash_bytes)
		return SCOUT_ERR_HASH_LEN;
	if (s->tenant && (strnlen(s->tenant, SCOUT_MAX_NAME + 1) > SCOUT_MAX_NAME ||
			  !scout__utf8_is_name(s->tenant, strlen(s->tenant))))
		return SCOUT_ERR_TENANT;
	if (s->event && scout__worker_is_host(w))
		return scout__request_refuse(w, all, SCOUT_ERR_UNSUPPORTED, "event: the host backend knows no events");
	if (s->announced && !scout__worker_is_host(w))
		return scout__request_refuse(w, all, SCOUT_ERR_UNSUPPORTED,
					     "announced: the cuda backend takes layer_events");
	if (s->announced > 1 || (s->announced && s->n_layers == 0))
		return scout__request_refuse(w, all, SCOUT_ERR_INVALID,
					     "announced = %u with n_layers = %u: must be 0, or 1 with layers",
					     (unsigned)s->announced, (unsigned)s->n_layers);
	/* With layers all chunks are one part: each layer is one pass over them. */
	if (s->n > (s->n_layers > 0 ? SCOUT__STORE_PART : SCOUT_MAX_CHUNKS) || (s->n > 0 && !s->hashes))
		return scout__request_refuse(w, all, SCOUT_ERR_INVALID, "n = %zu hashes%s: must be at most %u%s", s->n,
					     s->hashes ? "" : " (NULL)",
					     (unsigned)(s->n_layers > 0 ? SCOUT__STORE_PART : SCOUT_MAX_CHUNKS),
					     s->n_layers > 0 ? " with layers" : "");
	for (size_t i = 0; s->descriptions && i < s->n; i++)
		if (s->description_lens[i] > SCOUT_MAX_DESCRIPTION)
			return scout__request_refuse(w, all, SCOUT_ERR_INVALID,
						     "description %zu has %zu bytes: must be at most %u", i,
						     s->description_lens[i], (unsigned)SCOUT_MAX_DESCRIPTION);
	if (s->first_token % w->cfg.hash_tokens != 0 || s->first_token > UINT64_MAX / 2)
		return scout__request_refuse(w, all, SCOUT_ERR_INVALID,
					     "first_token = %llu: must be a multiple of hash_tokens = %u, below 2^63",
					     (unsigned long long)s->first_token, (unsigned)w->cfg.hash_tokens);
	for (uint32_t g = 0; g < all->n && rc == 0; g++)
		rc = find_chunks(w, s, all, &all->of[g]);
	return rc;
}

/* Whether this worker stores chunk @i of the prompt, among the workers that have the same shard of the group. */
static bool
is_ours(const struct scout_worker *w, const struct scout__named *named, uint64_t i)
{
	uint32_t readers = w->groups.group[named->table->group].readers;

	return i % readers == (w->cfg.kv_rank * w->cfg.readers + w->cfg.reader) % readers;
}

/* The pages of chunk @i of the prompt. */
static const int64_t *
pages_of_chunk(const struct scout__named *named, uint64_t i)
{
	return named->ids + (i - named->from) * named->table->layout.blocks_per_chunk;
}

/* Whether each block of chunk @i of the prompt has a page. */
static bool
is_whole(const struct scout__named *named, uint64_t i)
{
	const int64_t *ids = pages_of_chunk(named, i);

	for (uint32_t b = 0; b < named->table->layout.blocks_per_chunk; b++)
		if (scout__worker_plain_id(named->table, ids[b]) < 0)
			return false;
	return true;
}

/* Which of the caller's hashes chunk @i of the prompt ends with. */
static size_t
hash_of_chunk(const struct scout_worker *w, const struct scout_store *s, const struct scout__named *named, uint64_t i)
{
	uint32_t hashes_per_chunk = named->table->unit_tokens / w->cfg.hash_tokens;

	return (size_t)((i + 1) * hashes_per_chunk - 1 - s->first_token / w->cfg.hash_tokens);
}

/* Put the description of hash @i at @at. Returns where it ends. */
static uint8_t *
put_description(const struct scout_store *s, size_t i, uint8_t *at)
{
	uint16_t len = (uint16_t)s->description_lens[i];

	at[0] = (uint8_t)len;
	at[1] = (uint8_t)(len >> 8);
	if (len > 0)
		memcpy(at + 2, s->descriptions[i], len);
	return at + 2 + len;
}

static void
fill_store(const struct scout_worker *w, const struct scout_store *s, const struct scout__named *named,
	   struct scout__job_data *data)
{
	const struct scout__job_group *group = &data->groups[0];
	uint8_t *description = data->descriptions;
	uint32_t bpc = group->blocks_per_chunk;
	size_t n = 0;

	for (uint64_t i = named->from; i < named->to; i++) {
		size_t at = hash_of_chunk(w, s, named, i);

		if (!is_ours(w, named, i) || !is_whole(named, i))
			continue;
		memcpy(data->hashes + n * s->hash_len, (const uint8_t *)s->hashes + at * s->hash_len, s->hash_len);
		if (description)
			description = put_description(s, at, description);
		memcpy(data->ids + n * bpc, pages_of_chunk(named, i), bpc * sizeof(*data->ids));
		n++;
	}
	if (data->tenant_len > 0)
		memcpy(data->tenant, s->tenant, data->tenant_len);
}

/* Make the job of group @g; NULL: no memory. */
static struct scout__job_data *
store_work(const struct scout_worker *w, const struct scout_store *s, const struct scout__all_named *all, uint32_t g)
{
	const struct scout__named *named = &all->of[g];
	struct scout__job_shape shape = {
		.kind = SCOUT_JOB_STORE, .n_groups = 1, .n_layers = s->n_layers, .has_events = s->layer_events != NULL};
	struct scout__job_data *data;
	uint32_t n_null = 0;

	for (uint64_t i = named->from; i < named->to; i++) {
		if (!is_ours(w, named, i))
			continue;
		if (!is_whole(named, i)) {
			n_null++;
			continue;
		}
		shape.n_chunks++;
		if (s->descriptions)
			shape.description_bytes += 2 + s->description_lens[hash_of_chunk(w, s, named, i)];
	}
	shape.n_ids = (size_t)shape.n_chunks * named->table->layout.blocks_per_chunk;
	shape.n_grants = shape.n_chunks < SCOUT__STORE_PART ? shape.n_chunks : SCOUT__STORE_PART;
	shape.hash_bytes = shape.n_chunks * s->hash_len;
	shape.tenant_len = s->tenant ? strlen(s->tenant) : 0;
	data = scout__job_data_new(w, &shape);
	if (!data)
		return NULL;
	data->ticket = s->ticket;
	data->null_chunks = n_null;
	data->announced = s->announced;
	data->tenant_len = (uint16_t)shape.tenant_len;
	data->after = s->event;
	data->groups[0] = (struct scout__job_group){.n = shape.n_chunks};
	fill_group(w, named, &data->groups[0]);
	if (data->n_layers > 0)
		memset(data->first_plane, 0, ((size_t)data->n_layers + 1) * w->n_tables * sizeof(*data->first_plane));
	fill_layers(w, data, all, g, s->layer_planes);
	fill_events(data, s->layer_events);
	fill_store(w, s, named, data);
	return data;
}

static void
free_works(struct scout__job_data *const *works, uint32_t n)
{
	for (uint32_t g = 0; g < n; g++)
		free(works[g]);
}

static int
store(struct scout_worker *w, const struct scout_store *s, struct scout__all_named *all, uint64_t *ret_job)
{
	struct scout__job_data *works[SCOUT__GROUPS_MAX] = {NULL}; /* at least one group, which gcc does not see */
	struct scout__job *first, *last;
	int rc = check_store(w, s, all);

	if (rc)
		return rc;
	if (w->n_live + all->n > w->cfg.max_jobs)
		return SCOUT_ERR_BUSY;
	for (uint32_t g = 0; g < all->n; g++) {
		works[g] = store_work(w, s, all, g);
		if (works[g])
			continue;
		free_works(works, g);
		return SCOUT_ERR_NOMEM;
	}
	first = last = scout__job_submit(w, works[0], s->timeout_ms);
	if (!first) {
		free_works(works, all->n);
		return SCOUT_ERR_BUSY;
	}
	for (uint32_t g = 1; g < all->n; g++) {
		struct scout__job *job = scout__job_submit(w, works[g], s->timeout_ms);

		SCOUT_ASSERT(job); /* the ring has room for max_jobs */
		job->leader = (uint32_t)(first - w->jobs) + 1;
		last->next_group = (uint32_t)(job - w->jobs) + 1;
		last = job;
		first->n_running++;
		w->n_led++;
	}
	scout__worker_count_submit(w, SCOUT_JOB_STORE);
	*ret_job = first->id;
	return 0;
}

int
scout_worker_store_sized(struct scout_worker *w, const struct scout_store *request, size_t size, size_t blocks_size,
			 uint64_t *ret_job)
{
	int rc = check_worker(w, request, ret_job);
	struct scout__all_named all = {.call = "store", .n = 0};
	struct scout_store own;

	if (rc == 0)
		rc = scout__sized_read(&own, sizeof(own), SCOUT__SIZE_UP_TO(struct scout_store, timeout_ms), request,
				       size);
	if (rc == 0 && own.descriptions && !own.description_lens)
		rc = SCOUT_ERR_INVALID;
	if (rc == 0)
		rc = w->registered ? scout__request_take_blocks(w, own.blocks, own.n_groups, blocks_size, &all)
				   : SCOUT_ERR_NOT_REGISTERED;
	return rc ? rc : count_busy(w, store(w, &own, &all, ret_job));
}
