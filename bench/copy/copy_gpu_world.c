/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: a KV cache as engines have it, and one copy in it.
 *
 * Pages: plane behind plane in one large allocation, at random places all over it, no page followed by its neighbour.
 * Slots: at random places of sealed memfds that the engine pins, as the pool's are. Each method has an engine and
 * slots of its own, because memory is pinned once; all share the pages. Several groups are what they are to the copy
 * engine: a table each (pieces of other sizes, page ids of their own), and a copy is one batch with items of all.
 *
 * Ways take the same bytes: COPY_CONTIGUOUS is one cudaMemcpyAsync (one each way) between memory that the driver
 * pinned and plain GPU memory.
 *
 * Every wait has a deadline, because a driver may hang.
 */
#include "copy_gpu_world.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvscout/error.h>

#include "clock.h"
#include "copy_slots.h"
#include "say.h"

#define WAIT_MS 20000u
#define PIN_MS 60000u
#define SLOT_BYTES (UINT64_C(32) << 20)
#define POOL_BYTES (UINT64_C(17) << 30) /* planes do not fill it to the last byte, and 16 GiB of it should be in use */
#define SPREAD_BYTES (UINT64_C(16) << 30)

void
copy_check_cuda(int rc, const char *what)
{
	if (rc)
		copy_die(EXIT_WRONG, "%s: %s", what, scout__cuda_api_error_name(rc));
}
void
copy_world_wait(void *stream, void *mark)
{
	uint64_t until_us = scout__now_us() + WAIT_MS * UINT64_C(1000);
	int rc;

	CHECK(scout__cuda_api_event_record(mark, stream));
	while ((rc = scout__cuda_api_event_query(mark)) == SCOUT__CUDA_NOT_READY)
		if (scout__now_us() > until_us)
			copy_die(EXIT_WRONG, "a stream did not end in %u s", WAIT_MS / 1000);
	copy_check_cuda(rc, "a stream");
}

/* ---- what the engines log ---- */

static pthread_mutex_t log_mu = PTHREAD_MUTEX_INITIALIZER;
static char last_log[160]; /* G:log_mu */

/* Any thread. A warning belongs to the output of the run, and the last one to the reason of a failure. */
static void
on_log(void *user, int level, const char *text)
{
	(void)user;
	if (level > SCOUT_LOG_WARN)
		return;
	complain("%s", text);
	(void)pthread_mutex_lock(&log_mu);
	(void)snprintf(last_log, sizeof(last_log), "%s", text);
	(void)pthread_mutex_unlock(&log_mu);
}

static const struct scout__log engine_log = {.fn = on_log, .who = "engine"};

__attribute__((noreturn)) static void
die_of_engine(unsigned int way, const char *what, int rc)
{
	char why[sizeof(last_log)];

	(void)pthread_mutex_lock(&log_mu);
	memcpy(why, last_log, sizeof(why));
	(void)pthread_mutex_unlock(&log_mu);
	copy_die(EXIT_WRONG, "method %s %s (%s)%s%s", copy_way_names[way], what, scout_err_name(rc), why[0] ? ": " : "",
		 why);
}

/* The engine also copies slots that it could not pin, but slowly: such a figure would mean nothing. */
static bool
is_pinned(void)
{
	bool is;

	(void)pthread_mutex_lock(&log_mu);
	is = !strstr(last_log, "cannot pin");
	(void)pthread_mutex_unlock(&log_mu);
	return is;
}

/* ---- what is there for all points ---- */

static void *
gpu_alloc(uint64_t bytes)
{
	void *p = NULL;

	CHECK(scout__cuda_api_malloc(&p, bytes));
	return p;
}

void
copy_world_open(struct copy_world *w, const struct copy_options *opt, const struct copy_gpu *gpu)
{
	char err[300] = "";
	void *p;

	*w = (struct copy_world){.opt = opt, .gpu = gpu};
	if (gpu->ops->probe(opt->device, err, sizeof(err)) != 0)
		copy_die(EXIT_NOT_HERE, "SCOUT_ERR_DEVICE: %s", err);
	CHECK(scout__cuda_api_enter_thread(opt->device));
	CHECK(gpu->info(opt->device, &w->info));
	w->total = opt->total_bytes / 4096 * 4096;
	w->pool_bytes = opt->pool_bytes ? opt->pool_bytes : POOL_BYTES;
	if (!opt->pool_bytes && w->pool_bytes > w->info.free_bytes / 2)
		w->pool_bytes = w->info.free_bytes / 2;
	if (w->pool_bytes < w->total * 2)
		copy_die(EXIT_NOT_HERE, "%" PRIu64 " MiB of free GPU memory are too few for copies of %" PRIu64 " MiB",
			 w->info.free_bytes >> 20, w->total >> 20);
	w->pool = gpu_alloc(w->pool_bytes);
	w->flat = gpu_alloc(w->total);
	w->spoiled = gpu_alloc(w->total);
	w->wrong = gpu_alloc(sizeof(*w->wrong));
	CHECK(gpu->host_alloc(&p, w->total));
	w->host_flat = p;
	CHECK(gpu->host_alloc(&p, 2 * sizeof(*w->host_wrong)));
	w->host_wrong = p;
	w->host_wrong[1] = 0;
	CHECK(scout__cuda_api_stream_new(&w->up));
	CHECK(scout__cuda_api_stream_new(&w->down));
	CHECK(scout__cuda_api_stream_new(&w->work));
	CHECK(scout__cuda_api_event_new(&w->mark_up));
	CHECK(scout__cuda_api_event_new(&w->mark_down));
	for (unsigned int d = 0; d < 2; d++)
		for (unsigned int l = 0; l < COPY_MAX_PLANES; l++)
			CHECK(scout__cuda_api_event_new(&w->layer_events[d][l]));
	for (uint64_t i = 0; i < w->total / 8; i++)
		((uint64_t *)(void *)w->host_flat)[i] = copy_pattern_word(i);
	CHECK(gpu->flat(COPY_SPOIL, w->spoiled, w->total, 0, w->wrong, w->work));
	copy_world_wait(w->work, w->mark_up);
}

static void
unmap_region(struct copy_region *region)
{
	if (region->base)
		copy_slots_unmap(region->base, region->bytes);
	*region = (struct copy_region){.base = NULL};
}

void
copy_world_close(struct copy_world *w)
{
	copy_world_clear(w);
	for (unsigned int way = 0; way < COPY_N_WAYS; way++)
		for (uint32_t g = 0; g < COPY_MAX_GROUPS; g++)
			unmap_region(&w->regions[way][g]);
	for (unsigned int d = 0; d < 2; d++)
		for (unsigned int l = 0; l < COPY_MAX_PLANES; l++)
			scout__cuda_api_event_free(w->layer_events[d][l]);
	scout__cuda_api_event_free(w->mark_up);
	scout__cuda_api_event_free(w->mark_down);
	scout__cuda_api_stream_free(w->up);
	scout__cuda_api_stream_free(w->down);
	scout__cuda_api_stream_free(w->work);
	scout__cuda_api_free(w->wrong);
	scout__cuda_api_free(w->spoiled);
	scout__cuda_api_free(w->flat);
	scout__cuda_api_free(w->pool);
	w->gpu->host_free(w->host_wrong);
	w->gpu->host_free(w->host_flat);
}

/* ---- layout ---- */

static void
lay_out_planes(struct copy_world *w, struct copy_group *group, uint64_t n_planes, uint64_t n_blocks)
{
	group->layout = (struct scout__copy_layout){.planes = group->planes,
						    .n_planes = (uint32_t)n_planes,
						    .blocks_per_chunk = COPY_BLOCKS_PER_CHUNK,
						    .n_blocks = n_blocks};
	for (uint64_t p = 0; p < n_planes; p++)
		group->planes[p] =
			(struct scout__copy_plane){.base = w->pool + group->pool_at + p * n_blocks * group->piece,
						   .stride = group->piece,
						   .block_bytes = group->piece};
}

/* Two planes (keys and values) of each group make a layer; groups with fewer planes have none in the last ones. */
static void
lay_out_layers(struct copy_world *w)
{
	w->n_layers = 1;
	for (uint32_t g = 0; g < w->n_groups; g++)
		if (w->groups[g].layout.n_planes / 2 > w->n_layers)
			w->n_layers = w->groups[g].layout.n_planes / 2;
	for (uint32_t g = 0; g < w->n_groups; g++) {
		uint32_t n_planes = w->groups[g].layout.n_planes;

		for (uint32_t l = 0; l < w->n_layers; l++)
			w->first_plane[l * w->n_groups + g] = 2 * l < n_planes ? 2 * l : n_planes;
		w->first_plane[w->n_layers * w->n_groups + g] = n_planes;
	}
}

/* The pages of the items, at random among all. */
static void
choose_pages(struct copy_world *w, struct copy_group *group, uint64_t *seed)
{
	uint64_t n_ids = group->n_items * COPY_BLOCKS_PER_CHUNK, bytes = n_ids * sizeof(*group->ids);
	void *ids = NULL;

	group->ids = copy_alloc(group->layout.n_blocks * sizeof(*group->ids));
	copy_shuffle(group->ids, group->layout.n_blocks, seed);
	group->ids_on_gpu = gpu_alloc(bytes);
	CHECK(w->gpu->host_alloc(&ids, bytes));
	memcpy(ids, group->ids, bytes);
	CHECK(scout__cuda_api_copy(group->ids_on_gpu, ids, bytes, true, w->work));
	copy_world_wait(w->work, w->mark_up);
	w->gpu->host_free(ids);
	group->pages = (struct copy_pages){.base = w->pool + group->pool_at,
					   .ids = group->ids_on_gpu,
					   .piece = group->piece,
					   .n_planes = group->layout.n_planes,
					   .n_blocks = group->layout.n_blocks,
					   .blocks_per_chunk = COPY_BLOCKS_PER_CHUNK,
					   .first_word = group->first_word};
}

static uint64_t
least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Group @g has smaller pieces than the first, as groups of one model have. */
static uint64_t
piece_of(uint64_t piece, uint32_t g)
{
	static const unsigned int shifts[COPY_MAX_GROUPS] = {0, 2, 1, 3};
	uint64_t bytes = (piece >> shifts[g]) / 8 * 8;

	return bytes < COPY_SMALLEST_PIECE ? least(piece, COPY_SMALLEST_PIECE) : bytes;
}

static bool
lay_out(struct copy_world *w, char *text, size_t len)
{
	uint64_t each = w->total / w->n_groups, pool_each = w->pool_bytes / w->n_groups / 4096 * 4096, words = 0, chunk,
		 n_items = 0;
	uint64_t seed = w->opt->seed + w->point.piece_bytes, planes;

	for (uint32_t g = 0; g < w->n_groups; g++) {
		struct copy_group *group = &w->groups[g];

		*group = (struct copy_group){.piece = piece_of(w->point.piece_bytes, g), .first_word = words};
		group->pool_at = g * pool_each;
		chunk = group->piece * COPY_BLOCKS_PER_CHUNK;
		planes = least(least(COPY_MAX_PLANES, SLOT_BYTES / chunk), each / 2 / chunk);
		if (planes == 0) {
			(void)snprintf(text, len, "copies of %" PRIu64 " bytes hold no two chunks of 16 such pieces",
				       each);
			return false;
		}
		group->slot_bytes = planes * chunk;
		group->n_items = each / group->slot_bytes;
		words += group->n_items * group->slot_bytes / 8;
		lay_out_planes(w, group, planes, pool_each / (planes * group->piece));
		choose_pages(w, group, &seed);
		n_items += group->n_items;
	}
	for (int d = 0; d < 2; d++)
		w->items[d] = copy_alloc(n_items * sizeof(struct scout__copy_item));
	lay_out_layers(w);
	return true;
}

/* ---- engines and slots ---- */

static void
wait_fd(const struct copy_world *w, void *engine, unsigned int ms)
{
	struct pollfd pfd = {.fd = w->gpu->ops->fd(engine), .events = POLLIN};

	if (poll(&pfd, 1, (int)ms) == 0)
		copy_die(EXIT_WRONG, "the engine said nothing for %u s", ms / 1000);
}

/* A slot is right from the start; each copy leaves it so. */
static void
fill_slots(struct copy_world *w, unsigned int way, uint32_t g)
{
	const struct copy_group *group = &w->groups[g];
	const struct copy_region *region = &w->regions[way][g];
	uint64_t words = group->slot_bytes / 8;

	for (uint64_t i = 0; i < group->n_items; i++) {
		uint64_t *slot = (uint64_t *)(void *)(region->base + (uint64_t)region->slots[i] * group->slot_bytes);

		for (uint64_t k = 0; k < words; k++)
			slot[k] = copy_pattern_word(group->first_word + i * words + k);
	}
}

static void
open_engine(struct copy_world *w, unsigned int way)
{
	struct scout__copy_layout more[COPY_MAX_GROUPS];
	struct scout__copy_config cfg = {.layout = w->groups[0].layout,
					 .more = more,
					 .n_more = w->n_groups - 1,
					 .log = &engine_log,
					 .max_batches = 2,
					 .method = copy_way_names[way],
					 .stage_bytes = w->opt->stage_bytes};
	void **engine = &w->engines[way];
	char err[300] = "";
	int rc;

	for (uint32_t g = 1; g < w->n_groups; g++)
		more[g - 1] = w->groups[g].layout;
	rc = w->gpu->ops->open(&cfg, engine, err, sizeof(err));
	if (rc)
		copy_die(EXIT_WRONG, "method %s: %s (%s)", copy_way_names[way], err, scout_err_name(rc));
	for (uint32_t g = 0; g < w->n_groups; g++) {
		const struct copy_region *region = &w->regions[way][g];
		struct scout__copy_memory memory = {
			.base = region->base, .bytes = region->bytes, .stride = w->groups[g].slot_bytes};

		rc = w->gpu->ops->add_memory(*engine, &memory);
		if (rc)
			die_of_engine(way, "takes no slots", rc);
		/* They are pinned when the descriptor says so. */
		wait_fd(w, *engine, PIN_MS);
		(void)w->gpu->ops->poll(*engine);
		if (!is_pinned())
			die_of_engine(way, "has slots that are not pinned", SCOUT_ERR_DEVICE);
	}
}

/* A mapping that another layout had serves again: its pages are there. */
static bool
map_region(const struct copy_world *w, uint32_t g, struct copy_region *region, char *text, size_t len)
{
	uint64_t want = w->total / w->n_groups / 4 * 5;

	if (w->point.slots == COPY_WIDE)
		want = SPREAD_BYTES / w->n_groups;
	want = want < w->groups[g].slot_bytes ? w->groups[g].slot_bytes : want;
	if (region->base && region->kind == w->point.slots && region->want == want)
		return true;
	unmap_region(region);
	region->base = copy_slots_map(w->point.slots, want, &region->bytes, text, len);
	region->kind = w->point.slots;
	region->want = want;
	return region->base != NULL;
}

bool
copy_world_set_up(struct copy_world *w, const struct copy_point *point, char *text, size_t len)
{
	uint64_t seed = w->opt->seed;

	copy_world_clear(w);
	w->point = *point;
	w->n_groups = point->groups;
	if (!lay_out(w, text, len))
		return false;
	for (unsigned int way = COPY_STAGED; way < COPY_N_WAYS; way++) {
		for (uint32_t g = 0; g < w->n_groups && copy_is_wanted(w->opt, point, way); g++) {
			struct copy_region *region = &w->regions[way][g];

			if (!map_region(w, g, region, text, len))
				return false;
			region->slots = copy_alloc(region->bytes / w->groups[g].slot_bytes * sizeof(*region->slots));
			copy_shuffle(region->slots, region->bytes / w->groups[g].slot_bytes, &seed);
			fill_slots(w, way, g);
		}
		if (copy_is_wanted(w->opt, point, way))
			open_engine(w, way);
	}
	return true;
}

void
copy_world_clear(struct copy_world *w)
{
	for (unsigned int way = 0; way < COPY_N_WAYS; way++) {
		for (uint32_t g = 0; w->engines[way] && g < w->n_groups; g++)
			w->gpu->ops->remove_memory(w->engines[way], w->regions[way][g].base);
		if (w->engines[way])
			w->gpu->ops->close(w->engines[way]);
		w->engines[way] = NULL;
		for (uint32_t g = 0; g < COPY_MAX_GROUPS; g++) {
			struct copy_region *region = &w->regions[way][g];

			free(region->slots);
			region->slots = NULL;
			/* Large ones, and those of other points, are not kept. */
			if (region->kind != COPY_MEMFD)
				unmap_region(region);
		}
	}
	for (uint32_t g = 0; g < w->n_groups; g++) {
		free(w->groups[g].ids);
		if (w->groups[g].ids_on_gpu)
			scout__cuda_api_free(w->groups[g].ids_on_gpu);
		w->groups[g] = (struct copy_group){.piece = 0};
	}
	for (int d = 0; d < 2; d++) {
		free(w->items[d]);
		w->items[d] = NULL;
	}
	w->n_groups = 0;
}

/* ---- one copy ---- */

struct copy_share
copy_world_share(const struct copy_world *w, uint32_t g, enum copy_course course)
{
	uint64_t n = w->groups[g].n_items, part = course == COPY_BOTH ? n / 2 : n;

	part = part ? part : 1;
	switch (course) {
	case COPY_H2D:
		return (struct copy_share){part, 0};
	case COPY_D2H:
		return (struct copy_share){0, part};
	default:
		return (struct copy_share){part, part};
	}
}

struct copy_share
copy_world_share_bytes(const struct copy_world *w, enum copy_course course)
{
	struct copy_share bytes = {0, 0};

	for (uint32_t g = 0; g < w->n_groups; g++) {
		struct copy_share items = copy_world_share(w, g, course);

		bytes.up += items.up * w->groups[g].slot_bytes;
		bytes.down += items.down * w->groups[g].slot_bytes;
	}
	return bytes;
}

uint64_t
copy_world_bytes(const struct copy_world *w, enum copy_course course)
{
	struct copy_share bytes = copy_world_share_bytes(w, course);

	return bytes.up + bytes.down;
}

uint8_t *
copy_world_slot(const struct copy_world *w, unsigned int way, uint32_t g, uint64_t item)
{
	const struct copy_region *region = &w->regions[way][g];

	return region->base + (uint64_t)region->slots[item] * w->groups[g].slot_bytes;
}

/* The contiguous copy takes the first bytes up, and those behind them down. */
static uint64_t
copy_contiguous(struct copy_world *w, enum copy_course course)
{
	struct copy_share bytes = copy_world_share_bytes(w, course);

	if (bytes.up)
		CHECK(scout__cuda_api_copy(w->flat, w->host_flat, bytes.up, true, w->up));
	if (bytes.down)
		CHECK(scout__cuda_api_copy(w->host_flat + bytes.up, w->flat + bytes.up, bytes.down, false, w->down));
	if (bytes.up)
		copy_world_wait(w->up, w->mark_up);
	if (bytes.down)
		copy_world_wait(w->down, w->mark_down);
	return bytes.up + bytes.down;
}

/* Until @left batches have ended. */
static void
wait_batches(struct copy_world *w, unsigned int way, unsigned int left)
{
	uint64_t until_us = scout__now_us() + WAIT_MS * UINT64_C(1000);
	struct pollfd pfd = {.fd = w->gpu->ops->fd(w->engines[way]), .events = POLLIN};

	while (left > 0) {
		while (w->gpu->ops->poll(w->engines[way]))
			left--;
		if (left > 0 && (scout__now_us() > until_us || poll(&pfd, 1, (int)WAIT_MS) == 0))
			copy_die(EXIT_WRONG, "method %s did not end a batch in %u s", copy_way_names[way],
				 WAIT_MS / 1000);
	}
}

/* Items [@first, @first + @n) of a group, to the end of the batch. */
static void
add_items(struct copy_world *w, unsigned int way, uint32_t g, struct scout__copy_batch *batch, uint64_t first,
	  uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++)
		batch->items[batch->n++] =
			(struct scout__copy_item){.slot = copy_world_slot(w, way, g, i),
						  .block_ids = w->groups[g].ids + i * COPY_BLOCKS_PER_CHUNK,
						  .table = g};
}

/* Start the batch of one direction; returns how many there are. */
static unsigned int
start_batch(struct copy_world *w, unsigned int way, struct scout__copy_batch *batch, bool layered)
{
	int rc;

	if (batch->n == 0)
		return 0;
	if (layered) {
		batch->n_layers = w->n_layers;
		batch->first_plane = w->first_plane;
		batch->layer_events = w->layer_events[batch->direction == SCOUT__COPY_SAVE];
	}
	rc = w->gpu->ops->start(w->engines[way], batch);
	if (rc)
		die_of_engine(way, "refuses a batch", rc);
	return 1;
}

uint64_t
copy_world_copy(struct copy_world *w, unsigned int way, enum copy_course course, bool layered)
{
	struct scout__copy_batch up = {.direction = SCOUT__COPY_LOAD, .items = w->items[0]};
	struct scout__copy_batch down = {.direction = SCOUT__COPY_SAVE, .items = w->items[1]};
	unsigned int started;

	if (way == COPY_CONTIGUOUS)
		return copy_contiguous(w, course);
	for (uint32_t g = 0; g < w->n_groups; g++) {
		struct copy_share items = copy_world_share(w, g, course);

		add_items(w, way, g, &up, 0, items.up);
		add_items(w, way, g, &down, w->groups[g].n_items - items.down, items.down);
	}
	started = start_batch(w, way, &up, layered);
	started += start_batch(w, way, &down, layered);
	wait_batches(w, way, started);
	if (up.status || down.status)
		die_of_engine(way, "failed a copy", up.status ? up.status : down.status);
	return copy_world_bytes(w, course);
}
