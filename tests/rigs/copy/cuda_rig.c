/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_rig.h"

#include "pinning_of.h"

const char *const methods[] = {"staged", "batch", "auto"};

struct world world;

atomic_int gate_steps;

char last_log[600];

bool
gate(void *user)
{
	int left = atomic_load(&gate_steps);

	(void)user;
	if (left < 0)
		return false;
	while (left > 0)
		if (atomic_compare_exchange_weak(&gate_steps, &left, left - 1))
			return false;
	return true;
}

void
keep_log(void *user, int level, const char *text)
{
	(void)user;
	if (level <= SCOUT_LOG_WARN)
		snprintf(last_log, sizeof(last_log), "%s", text);
}

const struct scout__log test_log = {.fn = keep_log, .who = "test"};

struct fake_cuda_options
options(void)
{
	return (struct fake_cuda_options){.n_devices = 1, .seed = 11 + (uint64_t)getpid()};
}

struct fake_cuda_options
gated(void)
{
	struct fake_cuda_options opt = options();

	opt.gate = gate;
	atomic_store(&gate_steps, -1);
	return opt;
}

void
gpu_start(struct world *w, const struct fake_cuda_options *opt)
{
	ops = &scout__copy_cuda;
	fake_cuda_start(opt);
	for (uint32_t p = 0; p < w->layout.n_planes; p++)
		fake_cuda_device_range(w->planes[p].base, w->layout.n_blocks * w->planes[p].stride);
}

int
try_open(struct world *w, const char *method, char *err, size_t err_len)
{
	struct scout__copy_config cfg = {
		.layout = w->layout, .max_batches = 16, .method = method, .stage_bytes = 1 << 20, .log = &test_log};

	last_log[0] = 0;
	return ops->open(&cfg, &w->engine, err, err_len);
}

void
wait_pinned(void *engine, const uint8_t *slots)
{
	struct scout__cuda_memory *memory = &((struct scout__cuda *)engine)->memory;

	wait_until(pinning_of(memory, slots) != SCOUT__CUDA_PINNING)
		;
}

void
add_slots(struct world *w)
{
	struct scout__copy_memory memory = {.base = w->slots,
					    .bytes = slots_span(w),
					    .first_slot = GUARD,
					    .stride = w->shard_bytes + (uint64_t)2 * GUARD};

	ck_assert_int_eq(ops->add_memory(w->engine, &memory), 0);
}

void
gpu_open(struct world *w, const char *method)
{
	char err[300] = "";
	int rc = try_open(w, method, err, sizeof(err));

	ck_assert_msg(rc == 0, "open: %d %s", rc, err);
	add_slots(w);
	wait_pinned(w->engine, slot_in(w, w->slots, 0));
}

void
gpu_begin(struct world *w, const struct fake_cuda_options *opt, const char *method)
{
	gpu_start(w, opt);
	gpu_open(w, method);
}

void
fake_end(void **engine)
{
	struct fake_cuda_counts counts;

	atomic_store(&gate_steps, -1);
	if (*engine)
		ops->close(*engine);
	*engine = NULL;
	counts = fake_cuda_stop();
	ck_assert_uint_eq(counts.violations, 0);
	ck_assert_uint_eq(counts.live, 0);
}

void
gpu_end(struct world *w)
{
	fake_end(&w->engine);
	world_fini(w);
}

void
world_layered(struct world *w, uint32_t n_slots)
{
	memset(w, 0, sizeof(*w));
	w->seed = 7;
	w->planes[0] = (struct scout__copy_plane){.block_bytes = 96, .stride = 96};
	w->planes[1] = (struct scout__copy_plane){.block_bytes = 33, .stride = 40};
	w->planes[2] = (struct scout__copy_plane){.block_bytes = 17000, .stride = 17008};
	world_fill(w, 3, 4, 4 * (uint64_t)n_slots + 8, n_slots);
}

const uint32_t two_layers[3] = {0, 2, 3};

void
run_one_op(void)
{
	struct fake_cuda_counts before = fake_cuda_counts(), now = before;

	atomic_store(&gate_steps, 1);
	wait_until(now.ops != before.ops && now.queries >= before.queries + 3) {
		now = fake_cuda_counts();
		if (now.ops == before.ops)
			before.queries = now.queries;
	}
}

void
wait_queries(uint64_t n)
{
	uint64_t before = fake_cuda_counts().queries;

	wait_until(fake_cuda_counts().queries >= before + n)
		;
}
