/* SPDX-License-Identifier: Apache-2.0 */
#include "copy_world.h"

const struct scout__copy_ops *ops = &scout__copy_host;

uint64_t
next_random(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t
random_below(uint64_t *seed, uint64_t n)
{
	return next_random(seed) % n;
}

void *
must_alloc(size_t bytes)
{
	void *p = malloc(bytes);

	ck_assert_ptr_nonnull(p);
	return p;
}

static uint8_t *
random_bytes(uint64_t *seed, size_t bytes)
{
	uint8_t *p = must_alloc(bytes);
	uint64_t word;

	for (size_t i = 0; i < bytes; i += sizeof(word)) {
		word = next_random(seed);
		memcpy(p + i, &word, bytes - i < sizeof(word) ? bytes - i : sizeof(word));
	}
	return p;
}

static uint8_t *
same_bytes(const uint8_t *from, size_t bytes)
{
	uint8_t *p = must_alloc(bytes);

	memcpy(p, from, bytes);
	return p;
}

size_t
plane_span(const struct world *w, uint32_t p)
{
	return w->layout.n_blocks * w->planes[p].stride + 2 * GUARD;
}

size_t
slots_span(const struct world *w)
{
	return w->n_slots * (w->shard_bytes + 2 * GUARD);
}

uint8_t *
slot_in(const struct world *w, uint8_t *slots, uint32_t i)
{
	return slots + i * (w->shard_bytes + 2 * GUARD) + GUARD;
}

void
world_fill(struct world *w, uint32_t n_planes, uint32_t blocks_per_chunk, uint64_t n_blocks, uint32_t n_slots)
{
	w->layout.planes = w->planes;
	w->layout.n_planes = n_planes;
	w->layout.blocks_per_chunk = blocks_per_chunk;
	w->layout.n_blocks = n_blocks;
	w->n_slots = n_slots;
	w->shard_bytes = scout__copy_shard_bytes(&w->layout);
	for (uint32_t p = 0; p < n_planes; p++) {
		w->pages[p] = random_bytes(&w->seed, plane_span(w, p));
		w->model_pages[p] = same_bytes(w->pages[p], plane_span(w, p));
		w->planes[p].base = w->pages[p] + GUARD;
	}
	w->slots = random_bytes(&w->seed, slots_span(w));
	w->model_slots = same_bytes(w->slots, slots_span(w));
}

void
world_open(struct world *w, uint32_t max_batches)
{
	struct scout__copy_config cfg = {.layout = w->layout, .max_batches = max_batches};
	char err[200] = "";
	int rc = ops->open(&cfg, &w->engine, err, sizeof(err));

	ck_assert_msg(rc == 0, "open: %d %s", rc, err);
}

void
world_fini(struct world *w)
{
	scout__copy_host_faults(NULL);
	if (w->engine)
		ops->close(w->engine);
	for (uint32_t p = 0; p < w->layout.n_planes; p++) {
		free(w->pages[p]);
		free(w->model_pages[p]);
	}
	free(w->slots);
	free(w->model_slots);
}

void
world_small(struct world *w, uint32_t n_slots, uint32_t max_batches)
{
	memset(w, 0, sizeof(*w));
	w->seed = 7;
	w->planes[0] = (struct scout__copy_plane){.block_bytes = 96, .stride = 96};
	w->planes[1] = (struct scout__copy_plane){.block_bytes = 33, .stride = 40};
	world_fill(w, 2, 4, 4 * (uint64_t)n_slots + 8, n_slots);
	world_open(w, max_batches);
}

void
model_copy(struct world *w, enum scout__copy_direction direction, uint32_t slot, const int64_t *ids)
{
	uint8_t *at = slot_in(w, w->model_slots, slot), *page;
	uint64_t len;

	for (uint32_t p = 0; p < w->layout.n_planes; p++) {
		len = w->planes[p].block_bytes;
		for (uint32_t b = 0; b < w->layout.blocks_per_chunk; b++, at += len) {
			if (ids[b] < 0) {
				if (direction == SCOUT__COPY_SAVE)
					memset(at, 0, len);
				continue;
			}
			page = w->model_pages[p] + GUARD + (uint64_t)ids[b] * w->planes[p].stride;
			if (direction == SCOUT__COPY_SAVE)
				memcpy(at, page, len);
			else
				memcpy(page, at, len);
		}
	}
}

void
assert_as_model(const struct world *w, const char *when)
{
	for (uint32_t p = 0; p < w->layout.n_planes; p++)
		ck_assert_msg(memcmp(w->pages[p], w->model_pages[p], plane_span(w, p)) == 0, "plane %u %s", p, when);
	ck_assert_msg(memcmp(w->slots, w->model_slots, slots_span(w)) == 0, "slots %s", when);
}

bool
readable(int fd, int timeout_ms)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	int n;

	do
		n = poll(&pfd, 1, timeout_ms);
	while (n < 0 && errno == EINTR);
	ck_assert_int_ge(n, 0);
	return n == 1 && (pfd.revents & POLLIN) != 0;
}

struct scout__copy_batch *
next_ended(void *engine)
{
	struct scout__copy_batch *batch;

	while ((batch = ops->poll(engine)) == NULL)
		ck_assert_msg(readable(ops->fd(engine), wait_limit_ms()), "the descriptor missed a batch");
	return batch;
}

void
assert_goes_quiet(void *engine)
{
	ck_assert_ptr_null(ops->poll(engine));
	wait_until(!readable(ops->fd(engine), 0))
		ck_assert_ptr_null(ops->poll(engine));
}

void
run_batch(void *engine, struct scout__copy_batch *batch)
{
	ck_assert_int_eq(ops->start(engine, batch), 0);
	ck_assert_ptr_eq(next_ended(engine), batch);
}

void
random_ids(struct world *w, int64_t *ids)
{
	uint64_t n = w->layout.n_blocks, j;
	uint64_t want = (uint64_t)w->n_slots * w->layout.blocks_per_chunk;
	uint64_t null_in = 2 + random_below(&w->seed, 8);
	bool shuffled = random_below(&w->seed, 2) == 0, nulls = random_below(&w->seed, 3) > 0;
	int64_t *all = must_alloc(n * sizeof(*all)), swap;

	for (uint64_t i = 0; i < n; i++)
		all[i] = (int64_t)i;
	for (uint64_t i = 0; i < n; i++) {
		if (!shuffled && random_below(&w->seed, 8) > 0)
			continue;
		j = i + random_below(&w->seed, n - i);
		swap = all[i];
		all[i] = all[j];
		all[j] = swap;
	}
	for (uint64_t i = 0; i < want; i++)
		ids[i] = nulls && random_below(&w->seed, null_in) == 0 ? -1 - (int64_t)random_below(&w->seed, 3)
								       : all[i];
	free(all);
}

void
copy_all(struct world *w, enum scout__copy_direction direction, const int64_t *ids)
{
	struct scout__copy_item items[MAX_ITEMS];
	struct scout__copy_batch batch = {.direction = direction, .n = w->n_slots, .items = items, .cookie = 77};
	uint32_t n = w->layout.blocks_per_chunk;
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < w->n_slots; i++) {
		items[i] = (struct scout__copy_item){slot_in(w, w->slots, i), ids + (size_t)i * n};
		model_copy(w, direction, i, ids + (size_t)i * n);
		for (uint32_t b = 0; b < n; b++)
			bytes += ids[(size_t)i * n + b] < 0 ? 0 : w->shard_bytes / n;
	}
	run_batch(w->engine, &batch);
	ck_assert_int_eq(batch.status, 0);
	ck_assert_uint_eq(batch.n_done, w->n_slots);
	ck_assert_uint_eq(batch.bytes, bytes);
	ck_assert_uint_eq(batch.cookie, 77);
}

void
single_init(struct single *s, struct world *w, enum scout__copy_direction direction, uint32_t slot)
{
	memset(s, 0, sizeof(*s));
	for (int64_t b = 0; b < 4; b++)
		s->ids[b] = (int64_t)slot * 4 + 3 - b;
	s->item.slot = slot_in(w, w->slots, slot);
	s->item.block_ids = s->ids;
	s->batch.direction = direction;
	s->batch.n = 1;
	s->batch.items = &s->item;
	s->batch.cookie = slot;
	s->batch.status = 12345;
}

void
assert_copied(const struct single *s, const struct world *w)
{
	ck_assert_int_eq(s->batch.status, 0);
	ck_assert_uint_eq(s->batch.n_done, 1);
	ck_assert_uint_eq(s->batch.bytes, w->shard_bytes);
}

bool
gate_is_shut(void *user)
{
	struct gate *gate = user;

	atomic_fetch_add(&gate->looks, 1);
	return atomic_load(&gate->shut);
}

void
gate_shut(struct gate *gate, bool reverse)
{
	struct scout__copy_faults set = {.reverse = reverse, .gate = gate_is_shut, .user = gate};

	atomic_store(&gate->looks, 0);
	atomic_store(&gate->shut, true);
	scout__copy_host_faults(&set);
}

void
wait_looks(struct gate *gate, unsigned int n)
{
	unsigned int before = atomic_load(&gate->looks);

	wait_until(atomic_load(&gate->looks) - before >= n)
		;
}

unsigned int
count_dir(const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	unsigned int n = 0;

	ck_assert_ptr_nonnull(dir);
	while ((entry = readdir(dir)) != NULL)
		n += entry->d_name[0] != '.';
	closedir(dir);
	return n;
}
