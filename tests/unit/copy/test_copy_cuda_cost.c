/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CUDA backend asks of the driver for a job, and how long that takes: its own thread, its lanes, methods and tiles, on
 * a driver that moves no byte but has a clock. Each call costs what it costs on a GPU machine, the link moves 55 GB/s in each
 * direction, and a nap of the thread lasts as long as the thread wanted. So figures are the same in each run, on any machine; they
 * say what the code's calls allow. What a GPU does, only a GPU says.
 */
#include <stdio.h>
#include <sys/mman.h>

#include "copy_world.h"
#include "cuda_driver.h"
#include "cuda_engine.h"
#include "pinning_of.h"
#include "check_main.h"

/* ---- the clock, and who moves it ---- */

/* Nanoseconds. */
#define LAUNCH_COST 2200
#define COPY_COST 1800
#define EVENT_COST 600 /* to record one, or to make a stream wait for one */
#define QUERY_COST 500
#define DESCRIPTOR_COST 500 /* of each copy in a batch of copies */
#define LINK_BYTES_PER_US UINT64_C(55000)
#define GPU_BYTES_PER_US UINT64_C(1000000) /* a small kernel in the GPU's own memory */

struct cost_stream {
	uint64_t free_at; /* ns: when what is enqueued has been executed */
};

struct cost_event {
	uint64_t over_at;
	bool ends_span; /* it is the engine's, behind the last step of a span */
};

/* The copy thread's while it runs, the test's while the thread stands at the gate. */
static struct {
	uint64_t now;
	uint64_t link_free_at[2]; /* to the host, to the device */
	uint64_t calls, spans, descriptors;
	uint64_t naps_to_gate;          /* the thread waits at the gate in that nap; 0: in none */
	uint64_t locked_at, longest_ns; /* the engine's lock */
} sim;
static pthread_mutex_t *lock_of_engine; /* NULL: nobody wants to know */

/* The copy thread, when it has nothing to do, waits here until the test lets it go. */
static struct {
	pthread_mutex_t mu;
	pthread_cond_t cond;
	bool is_waiting, may_go; /* G:mu */
	bool is_over;            /* G:mu: from now on it sleeps as ever */
} gate_of_thread = {.mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

void __real_scout__copy_queue_park(struct scout__copy_queue *q, int64_t timeout_ns);
void __wrap_scout__copy_queue_park(struct scout__copy_queue *q, int64_t timeout_ns);

void
__wrap_scout__copy_queue_park(struct scout__copy_queue *q, int64_t timeout_ns)
{
	bool is_over;

	if (timeout_ns >= 0) {
		sim.now += (uint64_t)timeout_ns;
		if (sim.naps_to_gate == 0 || --sim.naps_to_gate > 0)
			return;
	}
	pthread_mutex_lock(&gate_of_thread.mu);
	gate_of_thread.is_waiting = true;
	pthread_cond_broadcast(&gate_of_thread.cond);
	while (!gate_of_thread.may_go && !gate_of_thread.is_over)
		pthread_cond_wait(&gate_of_thread.cond, &gate_of_thread.mu);
	gate_of_thread.may_go = false;
	gate_of_thread.is_waiting = false;
	is_over = gate_of_thread.is_over;
	pthread_mutex_unlock(&gate_of_thread.mu);
	if (is_over)
		__real_scout__copy_queue_park(q, timeout_ns);
}

int __real_pthread_mutex_lock(pthread_mutex_t *mu);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mu);
int __real_pthread_mutex_unlock(pthread_mutex_t *mu);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mu);

int
__wrap_pthread_mutex_lock(pthread_mutex_t *mu)
{
	int rc = __real_pthread_mutex_lock(mu);

	if (mu == lock_of_engine)
		sim.locked_at = sim.now;
	return rc;
}

int
__wrap_pthread_mutex_unlock(pthread_mutex_t *mu)
{
	if (mu == lock_of_engine && sim.now - sim.locked_at > sim.longest_ns)
		sim.longest_ns = sim.now - sim.locked_at;
	return __real_pthread_mutex_unlock(mu);
}

static void
wait_for_thread(void)
{
	pthread_mutex_lock(&gate_of_thread.mu);
	while (!gate_of_thread.is_waiting || gate_of_thread.may_go)
		pthread_cond_wait(&gate_of_thread.cond, &gate_of_thread.mu);
	pthread_mutex_unlock(&gate_of_thread.mu);
}

/* Let the thread do all that there is. */
static void
let_thread_go(void)
{
	wait_for_thread();
	pthread_mutex_lock(&gate_of_thread.mu);
	gate_of_thread.may_go = true;
	pthread_cond_broadcast(&gate_of_thread.cond);
	pthread_mutex_unlock(&gate_of_thread.mu);
	wait_for_thread();
}

static void
open_gate(void)
{
	pthread_mutex_lock(&gate_of_thread.mu);
	gate_of_thread.is_over = true;
	pthread_cond_broadcast(&gate_of_thread.cond);
	pthread_mutex_unlock(&gate_of_thread.mu);
}

/* ---- the driver ---- */

static uint64_t
later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static void
call(uint64_t cost)
{
	sim.calls++;
	sim.now += cost;
}

int
scout__cuda_driver_version(void)
{
	return 12080;
}

int
scout__cuda_api_device_count(int *ret_n)
{
	*ret_n = 1;
	return 0;
}

bool
scout__cuda_api_is_in_use(int device)
{
	return device == 0;
}

int
scout__cuda_api_device_of(const void *p)
{
	(void)p;
	return 0;
}

int
scout__cuda_api_bus_id(char *ret_id, int len, int device)
{
	(void)ret_id;
	(void)len;
	(void)device;
	return 1;
}

int
scout__cuda_api_enter(int device)
{
	return device;
}

int
scout__cuda_api_enter_thread(int device)
{
	return device;
}

void
scout__cuda_api_leave(void)
{
}

const char *
scout__cuda_api_error_name(int error)
{
	(void)error;
	return "an error";
}

/* Nobody looks into it. */
int
scout__cuda_api_malloc(void **ret_p, size_t bytes)
{
	*ret_p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return *ret_p == MAP_FAILED;
}

void
scout__cuda_api_free(void *p)
{
	(void)p; /* the process ends soon */
}

int
scout__cuda_api_host_register(void *base, size_t bytes)
{
	(void)base;
	(void)bytes;
	return 0;
}

int
scout__cuda_api_host_unregister(void *base)
{
	(void)base;
	return 0;
}

int
scout__cuda_api_host_device_pointer(void **ret_p, void *host)
{
	*ret_p = host;
	return 0;
}

int
scout__cuda_api_stream_new(void **ret_stream)
{
	*ret_stream = calloc(1, sizeof(struct cost_stream));
	return !*ret_stream;
}

void
scout__cuda_api_stream_free(void *stream)
{
	free(stream);
}

void
scout__cuda_api_event_free(void *event)
{
	free(event);
}

int
scout__cuda_api_stream_sync(void *handle)
{
	struct cost_stream *stream = handle;

	sim.now = later(sim.now, stream->free_at);
	return 0;
}

int
scout__cuda_api_stream_wait(void *handle, void *event_handle)
{
	struct cost_stream *stream = handle;
	struct cost_event *event = event_handle;

	call(EVENT_COST);
	stream->free_at = later(stream->free_at, event->over_at);
	return 0;
}

bool
scout__cuda_api_is_capturing(void *stream)
{
	(void)stream;
	return false;
}

int
scout__cuda_api_event_new(void **ret_event)
{
	*ret_event = calloc(1, sizeof(struct cost_event));
	return !*ret_event;
}

int
scout__cuda_api_event_record(void *handle, void *stream_handle)
{
	struct cost_event *event = handle;
	struct cost_stream *stream = stream_handle;

	call(EVENT_COST);
	sim.spans += event->ends_span;
	event->over_at = later(sim.now, stream->free_at);
	return 0;
}

int
scout__cuda_api_event_query(void *handle)
{
	struct cost_event *event = handle;

	call(QUERY_COST);
	return event->over_at <= sim.now ? SCOUT__CUDA_OK : SCOUT__CUDA_NOT_READY;
}

static void
use_link(struct cost_stream *stream, uint64_t bytes, bool to_device)
{
	uint64_t begin = later(later(sim.now, stream->free_at), sim.link_free_at[to_device]);

	stream->free_at = begin + bytes * 1000 / LINK_BYTES_PER_US;
	sim.link_free_at[to_device] = stream->free_at;
}

int
scout__cuda_api_copy(void *to, const void *from, size_t bytes, bool to_device, void *stream)
{
	(void)to;
	(void)from;
	call(COPY_COST);
	use_link(stream, bytes, to_device);
	return 0;
}

bool
scout__cuda_api_has_batch(void)
{
	return true;
}

int
scout__cuda_api_copy_batch(void **to, void **from, size_t *bytes, size_t n, bool to_device, void *stream)
{
	uint64_t sum = 0;

	(void)to;
	(void)from;
	for (size_t i = 0; i < n; i++)
		sum += bytes[i];
	call(COPY_COST + n * DESCRIPTOR_COST);
	sim.descriptors += n;
	use_link(stream, sum, to_device);
	return 0;
}

int
scout__cuda_api_load_kernel(int device, struct scout__cuda_kernel *ret_kernel)
{
	(void)device;
	ret_kernel->module = &sim;
	return 0;
}

void
scout__cuda_api_free_kernel(const struct scout__cuda_kernel *kernel)
{
	(void)kernel;
}

static uint64_t
bytes_of_launch(const struct scout__tile_span *span)
{
	return span->n_tiles * SCOUT__TILE_BYTES;
}

int
scout__cuda_api_launch(const struct scout__cuda_kernel *kernel, const struct scout__tile_span *span, void *handle)
{
	struct cost_stream *stream = handle;

	(void)kernel;
	call(LAUNCH_COST);
	stream->free_at = later(sim.now, stream->free_at) + bytes_of_launch(span) * 1000 / GPU_BYTES_PER_US;
	return 0;
}

/* ---- jobs ---- */

#define MAX_SLOTS 2560u
#define BLOCKS 8u /* of a chunk */

/* All planes are alike, and so are both directions. */
struct shape {
	const char *name;
	uint32_t n_planes, block_bytes, n_slots;
	bool by_layers;
	/* What a job takes at most; its speed at least. */
	uint64_t spans, calls, descriptors;
	double gb_per_s;
};

static const struct shape shapes[] = {
	{"64 blocks of 80 layers of 8 KiB, idle", 80, 8192, 8, false, 5, 71, 2, 52.8},
	{"the same, layer by layer", 80, 8192, 8, true, 11, 108, 88, 53.4},
	{"the same, all layers of a block in one piece", 1, 80 * 8192, 8, false, 3, 44, 64, 53},
	{"64 slots of 208 KiB", 26, 1024, 64, false, 2, 26, 0, 48.7},
	{"2560 slots of 208 KiB", 26, 1024, 2560, false, 80, 1017, 30, 54.7},
	{"16 slots of 80 layers of 2 KiB, layer by layer", 80, 2048, 16, true, 6, 57, 96, 50.3},
};
#define N_SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

static struct {
	struct scout__copy_plane planes[MAX_PLANES];
	struct scout__copy_item items[MAX_SLOTS];
	int64_t ids[MAX_SLOTS * BLOCKS];
	uint32_t first_plane[MAX_PLANES + 1];
	uint8_t *slots;
	uint64_t shard_bytes;
	struct scout__cuda *cuda;
} job;

static void
open_engine(const struct shape *shape)
{
	struct scout__copy_config cfg = {.layout = {.planes = job.planes,
						    .n_planes = shape->n_planes,
						    .blocks_per_chunk = BLOCKS,
						    .n_blocks = UINT64_C(2) * MAX_SLOTS * BLOCKS},
					 .max_batches = 16};
	struct scout__copy_memory memory;
	char err[300] = "";
	void *engine, *pages;

	for (uint32_t p = 0; p < shape->n_planes; p++) {
		ck_assert_int_eq(scout__cuda_api_malloc(&pages, cfg.layout.n_blocks * shape->block_bytes), 0);
		job.planes[p] = (struct scout__copy_plane){pages, shape->block_bytes, shape->block_bytes};
		job.first_plane[p + 1] = p + 1;
	}
	job.shard_bytes = scout__copy_shard_bytes(&cfg.layout);
	memory = (struct scout__copy_memory){.bytes = shape->n_slots * job.shard_bytes, .stride = job.shard_bytes};
	memory.base = mmap(NULL, memory.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory.base, MAP_FAILED);
	job.slots = memory.base;
	ck_assert_msg(scout__cuda_open(&cfg, &engine, err, sizeof(err)) == 0, "%s", err);
	job.cuda = engine;
	ck_assert_int_eq(scout__cuda_add_memory(engine, &memory), 0);
	wait_until(pinning_of(&job.cuda->memory, job.slots + memory.bytes - 1) == SCOUT__CUDA_PINNED)
		;
	wait_for_thread();
	for (uint32_t i = 0; i < SCOUT__CUDA_LANES * SCOUT__CUDA_SPANS; i++)
		((struct cost_event *)job.cuda->lanes[i % SCOUT__CUDA_LANES].spans[i / SCOUT__CUDA_LANES].done)
			->ends_span = true;
	memset(&sim, 0, sizeof(sim));
}

static void
close_engine(void)
{
	open_gate();
	scout__cuda_close(job.cuda);
}

/* Pages in no order, every second one. */
static struct scout__copy_batch
whole_job(const struct shape *shape, enum scout__copy_direction direction)
{
	for (uint32_t i = 0; i < shape->n_slots * BLOCKS; i++)
		job.ids[i] = (int64_t)(i * 2 * 37 % (2 * MAX_SLOTS * BLOCKS));
	for (uint32_t i = 0; i < shape->n_slots; i++)
		job.items[i] = (struct scout__copy_item){.slot = job.slots + i * job.shard_bytes,
							 .block_ids = job.ids + (size_t)i * BLOCKS};
	return (struct scout__copy_batch){.direction = direction,
					  .n = shape->n_slots,
					  .items = job.items,
					  .n_layers = shape->by_layers ? shape->n_planes : 0,
					  .first_plane = job.first_plane};
}

/* _i: the shape, and the direction. */
START_LOOP_TEST(a_job_takes_no_more_calls_than_ever, 0, 2 * N_SHAPES)
{
	const struct shape *shape = &shapes[_i / 2];
	struct scout__copy_batch batch;
	double gb_per_s;

	scout__enter_courier();
	open_engine(shape);
	batch = whole_job(shape, _i & 1 ? SCOUT__COPY_SAVE : SCOUT__COPY_LOAD);
	ck_assert_int_eq(scout__cuda_start(job.cuda, &batch), 0);
	let_thread_go();
	ck_assert_ptr_eq(scout__cuda_poll(job.cuda), &batch);
	ck_assert_int_eq(batch.status, 0);
	ck_assert_uint_eq(batch.n_done, batch.n);
	ck_assert_uint_eq(batch.bytes, shape->n_slots * job.shard_bytes);
	gb_per_s = (double)batch.bytes / (double)sim.now;
	printf("# %s, %s: %llu spans, %llu calls, %llu descriptors, %.1f us, %.1f GB/s\n",
	       _i & 1 ? "store" : "retrieve", shape->name, (unsigned long long)sim.spans, (unsigned long long)sim.calls,
	       (unsigned long long)sim.descriptors, (double)sim.now / 1000, gb_per_s);
	fflush(stdout);
	ck_assert_uint_le(sim.spans, shape->spans);
	ck_assert_uint_le(sim.calls, shape->calls);
	ck_assert_uint_le(sim.descriptors, shape->descriptors);
	ck_assert_msg(gb_per_s >= shape->gb_per_s, "%.2f GB/s", gb_per_s);
	close_engine();
}
END_TEST

/*
 * Both directions full of strangers' copies: how long the thread keeps a fence out at most, and how long the fence's stream waits.
 * _i: the shape.
 */
START_LOOP_TEST(a_fence_waits_for_one_span_and_for_no_strangers, 0, N_SHAPES)
{
	struct scout__copy_batch batches[2];
	uint64_t marks[2 * MAX_SLOTS * BLOCKS / 64 + 1] = {0}, called_at, wait_ns;
	struct scout__copy_pages pages = {.marks = marks};
	struct cost_stream stream = {0};

	scout__enter_courier();
	for (uint32_t w = 0; w < 2 * MAX_SLOTS * BLOCKS / 64; w++)
		marks[w] = UINT64_C(0xaaaaaaaaaaaaaaaa); /* the pages that no job has */
	open_engine(&shapes[_i]);
	for (int b = 0; b < 2; b++) {
		batches[b] = whole_job(&shapes[_i], b ? SCOUT__COPY_SAVE : SCOUT__COPY_LOAD);
		ck_assert_int_eq(scout__cuda_start(job.cuda, &batches[b]), 0);
	}
	lock_of_engine = &job.cuda->mu;
	sim.naps_to_gate = 1;
	let_thread_go();
	called_at = sim.now;
	ck_assert_int_eq(scout__cuda_fence(job.cuda, &stream, &pages), 0);
	wait_ns = stream.free_at > called_at ? stream.free_at - called_at : 0;
	printf("# fence, %s: kept out for %.1f us, its call takes %.1f us, its stream waits %.1f us\n", shapes[_i].name,
	       (double)sim.longest_ns / 1000, (double)(sim.now - called_at) / 1000, (double)wait_ns / 1000);
	fflush(stdout);
	let_thread_go();
	printf("# and until the copies end: kept out for %.1f us\n", (double)sim.longest_ns / 1000);
	fflush(stdout);
	ck_assert_uint_le(sim.longest_ns, 22000);
	ck_assert_uint_eq(wait_ns, 0);
	for (int b = 0; b < 2; b++)
		ck_assert_int_eq(scout__cuda_poll(job.cuda)->status, 0);
	lock_of_engine = NULL;
	close_engine();
}
END_TEST
