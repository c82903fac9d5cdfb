/* SPDX-License-Identifier: Apache-2.0 */
#include "fake_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "thread.h"

/* Everything is G:mu but where it says otherwise. */

#define MAX_RANGES 512
#define MAX_STREAMS 64
#define GATE_NS 20000

enum op_kind {
	OP_COPY,
	OP_LAUNCH,
	OP_RECORD,
	OP_WAIT,
	OP_HOLD
};

struct event {
	uint64_t recorded, executed;  /* numbers of records; 0: none */
	struct stream *captured_from; /* last recorded in this stream while it was captured; NULL: it was not */
};

struct op {
	struct op *next;
	enum op_kind kind;
	void *to;
	const void *from;
	size_t bytes;
	struct scout__tile_span span;
	struct event *event;
	uint64_t number; /* of a record */
};

struct stream {
	bool in_use;
	bool capturing, invalid; /* captured; and something has broken the capture */
	bool blocking;           /* orders itself with the legacy stream */
	struct op *first, **end;
};

struct range {
	uintptr_t base;
	size_t bytes;
};

static struct {
	pthread_mutex_t mu;
	pthread_cond_t cond;
	pthread_t thread;
	struct fake_cuda_options opt;
	struct fake_cuda_counts counts;
	struct stream streams[MAX_STREAMS];
	struct range device[MAX_RANGES], pinned[MAX_RANGES];
	int broken;
	int last_error;
	uint64_t n_records;
	uint64_t pending; /* copies and launches */
	bool loaded;      /* the kernel */
	bool stop;
} fake = {.mu = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};

static _Thread_local bool entered;

/* The first two are CUDA's own. */
static struct stream *const legacy = &fake.streams[0], *const per_thread = &fake.streams[1];

/* ---- streams that are captured ---- */

/* CUDA's handles of its own streams are small numbers. */
static struct stream *
stream_of(void *handle)
{
	if (handle == SCOUT_STREAM_LEGACY)
		return legacy;
	if (handle == SCOUT_STREAM_PER_THREAD)
		return per_thread;
	if (!handle)
		fake.counts.violations++; /* the engine takes "no stream" for none */
	return handle ? handle : legacy;
}

/* A blocking stream that is captured makes the legacy stream unusable; NULL: there is none. */
static struct stream *
captured_blocking(void)
{
	for (int i = 0; i < MAX_STREAMS; i++)
		if (fake.streams[i].capturing && fake.streams[i].blocking)
			return &fake.streams[i];
	return NULL;
}

/* ---- ranges ---- */

static void
range_add(struct range *ranges, const void *p, size_t bytes)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		if (ranges[i].bytes == 0) {
			ranges[i] = (struct range){(uintptr_t)p, bytes};
			return;
		}
	}
	abort();
}

static bool
range_remove(struct range *ranges, const void *p)
{
	for (int i = 0; i < MAX_RANGES; i++) {
		if (ranges[i].bytes && ranges[i].base == (uintptr_t)p) {
			ranges[i].bytes = 0;
			return true;
		}
	}
	return false;
}

static bool
range_holds(const struct range *ranges, uintptr_t p, size_t bytes)
{
	for (int i = 0; i < MAX_RANGES; i++)
		if (ranges[i].bytes && p >= ranges[i].base && p - ranges[i].base + bytes <= ranges[i].bytes)
			return true;
	return false;
}

/* ---- executing ---- */

/* The host's address of what the GPU knows by @address. */
static uintptr_t
host_of(uintptr_t address)
{
	return range_holds(fake.pinned, address - fake.opt.alias, 1) ? address - fake.opt.alias : address;
}

static void
do_launch(struct scout__tile_span *span)
{
	uint64_t first = scout__tile_locate(span, span->first_tile).slot_at;

	span->slot = host_of(span->slot + first) - first;
	for (uint64_t t = span->first_tile; t < span->end_tile; t++) {
		struct scout__tile tile = scout__tile_locate(span, t);
		uintptr_t in_slot = span->slot + tile.slot_at;

		if (tile.page && !range_holds(fake.device, tile.page, tile.bytes))
			fake.counts.violations++;
		if (!range_holds(fake.device, in_slot, tile.bytes) && !range_holds(fake.pinned, in_slot, tile.bytes))
			fake.counts.violations++;
		for (uint32_t lane = 0; lane < SCOUT__TILE_LANES; lane++)
			scout__tile_do(span, t, lane);
	}
}

static void
do_op(struct op *op)
{
	switch (op->kind) {
	case OP_COPY:
		memcpy(op->to, op->from, op->bytes);
		fake.counts.copies++;
		fake.pending--;
		break;
	case OP_LAUNCH:
		do_launch(&op->span);
		fake.counts.launches++;
		fake.pending--;
		break;
	case OP_RECORD:
		if (op->number > op->event->executed)
			op->event->executed = op->number;
		break;
	case OP_WAIT:
	case OP_HOLD:
		break;
	}
	fake.counts.ops++;
	if (fake.opt.break_op && fake.counts.ops >= fake.opt.break_op)
		fake.broken = fake.opt.break_error;
}

static bool
can_run(const struct stream *stream)
{
	const struct op *op = stream->first;

	if (!op || (op->kind == OP_HOLD && op->number == 0))
		return false;
	return op->kind != OP_WAIT || op->event->executed >= op->number;
}

/* A stream that can go on, at random if that is wanted. */
static struct stream *
pick(void)
{
	struct stream *found = NULL;
	uint64_t n = 0;

	for (int i = 0; i < MAX_STREAMS; i++) {
		if (!can_run(&fake.streams[i]))
			continue;
		n++;
		if (!found) {
			found = &fake.streams[i];
		} else if (fake.opt.seed) {
			fake.opt.seed = fake.opt.seed * 6364136223846793005u + 1442695040888963407u;
			if ((fake.opt.seed >> 33) % n == 0)
				found = &fake.streams[i];
		}
	}
	return found;
}

static void
drop_ops(void)
{
	for (int i = 0; i < MAX_STREAMS; i++) {
		while (fake.streams[i].first) {
			struct op *op = fake.streams[i].first;

			fake.streams[i].first = op->next;
			free(op);
		}
		fake.streams[i].end = &fake.streams[i].first;
	}
	fake.pending = 0;
}

static bool
gate_is_shut(void)
{
	return fake.opt.gate && fake.opt.gate(fake.opt.user);
}

static void *
fake_main(void *arg)
{
	const struct timespec pause = {.tv_nsec = GATE_NS};
	struct stream *stream;
	struct op *op;

	(void)arg;
	pthread_mutex_lock(&fake.mu);
	while (!fake.stop) {
		stream = pick();
		if (!stream || gate_is_shut()) {
			pthread_cond_broadcast(&fake.cond);
			pthread_mutex_unlock(&fake.mu);
			nanosleep(&pause, NULL);
			pthread_mutex_lock(&fake.mu);
			continue;
		}
		op = stream->first;
		stream->first = op->next;
		if (!stream->first)
			stream->end = &stream->first;
		do_op(op);
		free(op);
		if (fake.broken)
			drop_ops();
		/* Let others in between two operations. */
		pthread_mutex_unlock(&fake.mu);
		pthread_mutex_lock(&fake.mu);
	}
	pthread_mutex_unlock(&fake.mu);
	return NULL;
}

/* ---- calls ---- */

static int
fail(int error)
{
	fake.last_error = error;
	return error;
}

/* Each call that can fail begins with this, with the lock. */
static int
begin_call(void)
{
	pthread_mutex_lock(&fake.mu);
	fake.counts.calls++;
	fake.counts.inits++;
	if (!entered)
		fake.counts.violations++;
	if (fake.broken)
		return fail(fake.broken);
	if (fake.opt.fail_call && --fake.opt.fail_call == 0)
		return fail(fake.opt.fail_error);
	return 0;
}

static int
end_call(int rc)
{
	pthread_mutex_unlock(&fake.mu);
	return rc;
}

static int
push(void *handle, struct op op)
{
	struct stream *stream = handle;
	struct op *copy = malloc(sizeof(*copy));

	if (!copy || fake.broken)
		abort();
	*copy = op;
	copy->next = NULL;
	*stream->end = copy;
	stream->end = &copy->next;
	fake.pending += op.kind == OP_COPY || op.kind == OP_LAUNCH;
	if (fake.pending > fake.counts.most_pending)
		fake.counts.most_pending = fake.pending;
	return 0;
}

static int
api_device_count(int *ret_n)
{
	pthread_mutex_lock(&fake.mu);
	fake.counts.inits++;
	pthread_mutex_unlock(&fake.mu);
	if (fake.opt.count_error)
		return fake.opt.count_error;
	*ret_n = fake.opt.n_devices;
	return 0;
}

static bool
api_is_in_use(int device)
{
	pthread_mutex_lock(&fake.mu);
	fake.counts.looks++;
	pthread_mutex_unlock(&fake.mu);
	return device < fake.opt.n_devices;
}

static int
api_device_of(const void *p)
{
	int device;

	pthread_mutex_lock(&fake.mu);
	fake.counts.looks++;
	device = fake.opt.n_devices > 0 && range_holds(fake.device, (uintptr_t)p, 1) ? 0 : -1;
	pthread_mutex_unlock(&fake.mu);
	return device;
}

static int
api_enter_thread(int device)
{
	entered = true;
	(void)device;
	return end_call(begin_call());
}

static void
api_clear_error(void)
{
	pthread_mutex_lock(&fake.mu);
	fake.last_error = 0;
	pthread_mutex_unlock(&fake.mu);
}

static const char *
api_error_name(int error)
{
	switch (error) {
	case FAKE_CUDA_OUT_OF_MEMORY:
		return "cudaErrorMemoryAllocation";
	case FAKE_CUDA_NO_DRIVER:
		return "cudaErrorInsufficientDriver";
	case FAKE_CUDA_ILLEGAL_ADDRESS:
		return "cudaErrorIllegalAddress";
	case FAKE_CUDA_NOT_SUPPORTED:
		return "cudaErrorNotSupported";
	case FAKE_CUDA_CAPTURED_EVENT:
		return "cudaErrorCapturedEvent";
	default:
		return "cudaErrorUnknown";
	}
}

static int
api_malloc(void **ret_p, size_t bytes)
{
	int rc = begin_call();

	if (rc == 0) {
		*ret_p = aligned_alloc(256, (bytes + 255) / 256 * 256);
		range_add(fake.device, *ret_p, bytes);
		fake.counts.live++;
	}
	return end_call(rc);
}

static void
api_free(void *p)
{
	pthread_mutex_lock(&fake.mu);
	if (range_remove(fake.device, p))
		fake.counts.live--;
	else
		fake.counts.violations++;
	pthread_mutex_unlock(&fake.mu);
	free(p);
}

static int
api_host_register(void *base, size_t bytes)
{
	const struct timespec pause = {.tv_nsec = GATE_NS};
	int rc;

	while (fake.opt.pin_gate && fake.opt.pin_gate(fake.opt.user))
		nanosleep(&pause, NULL);
	pthread_mutex_lock(&fake.mu);
	if (!entered)
		fake.counts.violations++;
	fake.counts.pins++;
	rc = fake.broken;
	if (fake.opt.fail_pin && fake.counts.pins == fake.opt.fail_pin)
		rc = FAKE_CUDA_OUT_OF_MEMORY;
	for (int i = 0; i < MAX_RANGES && rc == 0; i++)
		if (fake.pinned[i].bytes && fake.pinned[i].base < (uintptr_t)base + bytes &&
		    (uintptr_t)base < fake.pinned[i].base + fake.pinned[i].bytes)
			fake.counts.violations++;
	if (rc == 0) {
		range_add(fake.pinned, base, bytes);
		fake.counts.live++;
	}
	return end_call(rc);
}

static int
api_host_unregister(void *base)
{
	pthread_mutex_lock(&fake.mu);
	fake.counts.unpins++;
	if (range_remove(fake.pinned, base))
		fake.counts.live--;
	else
		fake.counts.violations++;
	return end_call(fake.broken);
}

static int
api_host_device_pointer(void **ret_p, void *host)
{
	*ret_p = (uint8_t *)host + fake.opt.alias;
	return 0;
}

static int
api_stream_new(void **ret_stream, int priority)
{
	int rc = begin_call();

	(void)priority;
	for (int i = 2; i < MAX_STREAMS && rc == 0; i++) {
		if (!fake.streams[i].in_use) {
			fake.streams[i] = (struct stream){.in_use = true, .end = &fake.streams[i].first};
			fake.counts.live++;
			*ret_stream = &fake.streams[i];
			return end_call(0);
		}
	}
	return end_call(rc ? rc : fail(FAKE_CUDA_OUT_OF_MEMORY));
}

static void
api_stream_free(void *handle)
{
	struct stream *stream = handle;

	pthread_mutex_lock(&fake.mu);
	if (stream->first)
		fake.counts.violations++;
	stream->in_use = false;
	fake.counts.live--;
	pthread_mutex_unlock(&fake.mu);
}

static int
api_stream_sync(void *handle)
{
	int rc = begin_call();
	struct stream *stream = stream_of(handle);

	while (rc == 0 && stream->first && !fake.broken)
		pthread_cond_wait(&fake.cond, &fake.mu);
	return end_call(rc ? rc : fake.broken);
}

/* What a capture makes of a wait, with the lock: 0, or an error. */
static int
wait_and_captures(struct stream *stream, const struct event *event)
{
	struct stream *other = captured_blocking();

	if (stream == legacy && other) {
		other->invalid = true;
		return fail(FAKE_CUDA_CAPTURE_IMPLICIT);
	}
	if (stream->capturing && event->recorded && event->captured_from != stream) {
		stream->invalid = true;
		return fail(FAKE_CUDA_CAPTURE_ISOLATION);
	}
	/* CUDA would draw the stream into the capture, and what is enqueued in it later would never be executed. */
	if (!stream->capturing && event->captured_from)
		fake.counts.violations++;
	return 0;
}

static int
api_stream_wait(void *handle, void *event_handle)
{
	struct event *event = event_handle;
	int rc = begin_call();
	struct stream *stream = stream_of(handle);

	rc = rc ? rc : wait_and_captures(stream, event);
	if (rc == 0 && event->recorded && !event->captured_from)
		rc = push(stream, (struct op){.kind = OP_WAIT, .event = event, .number = event->recorded});
	return end_call(rc);
}

static bool
api_is_capturing(void *handle)
{
	struct stream *stream;
	bool capturing;

	pthread_mutex_lock(&fake.mu);
	stream = stream_of(handle);
	capturing = stream->capturing || (stream == legacy && captured_blocking());
	pthread_mutex_unlock(&fake.mu);
	return capturing;
}

static int
api_event_new(void **ret_event)
{
	int rc = begin_call();

	if (rc == 0) {
		*ret_event = calloc(1, sizeof(struct event));
		fake.counts.live++;
	}
	return end_call(rc);
}

static void
api_event_free(void *event)
{
	pthread_mutex_lock(&fake.mu);
	fake.counts.live--;
	pthread_mutex_unlock(&fake.mu);
	free(event);
}

static int
api_event_record(void *handle, void *stream_handle)
{
	struct event *event = handle;
	int rc = begin_call();
	struct stream *stream = stream_of(stream_handle);

	if (rc == 0) {
		event->recorded = ++fake.n_records;
		event->captured_from = stream->capturing ? stream : NULL;
	}
	if (rc == 0 && !stream->capturing)
		rc = push(stream, (struct op){.kind = OP_RECORD, .event = event, .number = event->recorded});
	return end_call(rc);
}

static int
api_event_query(void *handle)
{
	struct event *event = handle;
	int rc;

	pthread_mutex_lock(&fake.mu);
	if (!entered)
		fake.counts.violations++;
	fake.counts.queries++;
	rc = event->executed >= event->recorded ? SCOUT__CUDA_OK : SCOUT__CUDA_NOT_READY;
	if (event->captured_from) {
		event->captured_from->invalid = true;
		rc = fail(FAKE_CUDA_CAPTURED_EVENT);
	}
	if (fake.broken)
		rc = fake.broken;
	return end_call(rc);
}

/* With the lock; @host by the host's address. The upload of the planes is the one copy from memory that is not pinned. */
static void
check_copy(const void *device, const void *host, size_t bytes)
{
	if (!range_holds(fake.device, (uintptr_t)device, bytes))
		fake.counts.violations++;
	if (!range_holds(fake.pinned, (uintptr_t)host, bytes) && fake.counts.ops > 0)
		fake.counts.violations++;
}

static int
api_copy(void *to, const void *from, size_t bytes, bool to_device, void *stream)
{
	int rc = begin_call();

	if (rc == 0) {
		check_copy(to_device ? to : from, to_device ? from : to, bytes);
		rc = push(stream, (struct op){.kind = OP_COPY, .to = to, .from = from, .bytes = bytes});
	}
	return end_call(rc);
}

static bool
api_has_batch(void)
{
	return !fake.opt.no_batch;
}

static int
api_copy_batch(void **to, void **from, size_t *bytes, size_t n, bool to_device, void *stream)
{
	int rc = begin_call();

	if (rc == 0 && fake.opt.refuse_batch)
		rc = fail(fake.opt.refuse_batch);
	fake.counts.batch_calls += rc == 0;
	fake.counts.refused += rc != 0;
	/* In no particular order: here, backwards. */
	for (size_t i = n; rc == 0 && i-- > 0;) {
		const uint8_t *host = to_device ? from[i] : to[i];

		host -= fake.opt.alias;
		check_copy(to_device ? to[i] : from[i], host, bytes[i]);
		rc = push(stream, (struct op){.kind = OP_COPY,
					      .to = to_device ? to[i] : (uint8_t *)to[i] - fake.opt.alias,
					      .from = to_device ? host : from[i],
					      .bytes = bytes[i]});
	}
	return end_call(rc);
}

static int
api_load_kernel(void)
{
	int rc = begin_call();

	fake.loaded |= rc == 0;
	return end_call(rc);
}

static int
api_launch(const struct scout__tile_span *span, uint32_t n_groups, void *stream)
{
	int rc = begin_call();

	if (rc == 0 && !range_holds(fake.device, (uintptr_t)span->planes, sizeof(*span->planes)))
		fake.counts.violations++;
	if (n_groups == 0 || !fake.loaded)
		fake.counts.violations++;
	if (rc == 0)
		rc = push(stream, (struct op){.kind = OP_LAUNCH, .span = *span});
	return end_call(rc);
}

const struct scout__cuda_api fake_cuda = {
	.device_count = api_device_count,
	.is_in_use = api_is_in_use,
	.device_of = api_device_of,
	.enter_thread = api_enter_thread,
	.clear_error = api_clear_error,
	.error_name = api_error_name,
	.malloc = api_malloc,
	.free = api_free,
	.host_register = api_host_register,
	.host_unregister = api_host_unregister,
	.host_device_pointer = api_host_device_pointer,
	.stream_new = api_stream_new,
	.stream_free = api_stream_free,
	.stream_sync = api_stream_sync,
	.stream_wait = api_stream_wait,
	.is_capturing = api_is_capturing,
	.event_new = api_event_new,
	.event_free = api_event_free,
	.event_record = api_event_record,
	.event_query = api_event_query,
	.copy = api_copy,
	.has_batch = api_has_batch,
	.copy_batch = api_copy_batch,
	.load_kernel = api_load_kernel,
	.launch = api_launch,
};

static int
ops_probe(int32_t device, char *err, size_t err_len)
{
	return scout__cuda_probe(&fake_cuda, device, err, err_len);
}

static bool
ops_claims(const struct scout__copy_layout *layout)
{
	return scout__cuda_claims(&fake_cuda, layout);
}

static int
ops_open(const struct scout__copy_config *cfg, void **ret_engine, char *err, size_t err_len)
{
	return scout__cuda_open(&fake_cuda, cfg, ret_engine, err, err_len);
}

const struct scout__copy_ops fake_cuda_ops = {
	.name = "cuda",
	.probe = ops_probe,
	.claims = ops_claims,
	.open = ops_open,
	.close = scout__cuda_close,
	.add_memory = scout__cuda_add_memory,
	.remove_memory = scout__cuda_remove_memory,
	.start = scout__cuda_start,
	.poll = scout__cuda_poll,
	.fd = scout__cuda_fd,
	.fence = scout__cuda_fence,
};

/* ---- for tests ---- */

void
fake_cuda_start(const struct fake_cuda_options *options)
{
	pthread_mutex_lock(&fake.mu);
	fake.opt = *options;
	memset(&fake.counts, 0, sizeof(fake.counts));
	memset(fake.streams, 0, sizeof(fake.streams));
	for (int i = 0; i < 2; i++)
		fake.streams[i] = (struct stream){.in_use = true, .end = &fake.streams[i].first};
	memset(fake.device, 0, sizeof(fake.device));
	memset(fake.pinned, 0, sizeof(fake.pinned));
	fake.broken = 0;
	fake.last_error = 0;
	fake.pending = 0;
	fake.loaded = false;
	fake.stop = false;
	pthread_mutex_unlock(&fake.mu);
	if (scout__thread_start(&fake.thread, "fake-gpu", fake_main, NULL) != 0)
		abort();
}

struct fake_cuda_counts
fake_cuda_counts(void)
{
	struct fake_cuda_counts counts;

	pthread_mutex_lock(&fake.mu);
	counts = fake.counts;
	pthread_mutex_unlock(&fake.mu);
	return counts;
}

struct fake_cuda_counts
fake_cuda_stop(void)
{
	pthread_mutex_lock(&fake.mu);
	fake.stop = true;
	pthread_mutex_unlock(&fake.mu);
	pthread_join(fake.thread, NULL);
	drop_ops();
	return fake.counts;
}

void
fake_cuda_fail_call(uint64_t n, int error)
{
	pthread_mutex_lock(&fake.mu);
	fake.opt.fail_call = n;
	fake.opt.fail_error = error;
	pthread_mutex_unlock(&fake.mu);
}

void
fake_cuda_break_at(uint64_t n, int error)
{
	pthread_mutex_lock(&fake.mu);
	fake.opt.break_op = fake.counts.ops + n;
	fake.opt.break_error = error;
	pthread_mutex_unlock(&fake.mu);
}

uint64_t
fake_cuda_pending(void)
{
	uint64_t n;

	pthread_mutex_lock(&fake.mu);
	n = fake.pending;
	pthread_mutex_unlock(&fake.mu);
	return n;
}

void
fake_cuda_device_range(const void *p, size_t bytes)
{
	pthread_mutex_lock(&fake.mu);
	range_add(fake.device, p, bytes);
	pthread_mutex_unlock(&fake.mu);
}

bool
fake_cuda_event_over(void *handle)
{
	struct event *event = handle;
	bool over;

	pthread_mutex_lock(&fake.mu);
	over = event->recorded && event->executed >= event->recorded;
	pthread_mutex_unlock(&fake.mu);
	return over;
}

bool
fake_cuda_event_recorded(void *handle)
{
	struct event *event = handle;
	bool recorded;

	pthread_mutex_lock(&fake.mu);
	recorded = event->recorded != 0;
	pthread_mutex_unlock(&fake.mu);
	return recorded;
}

void
fake_cuda_hold(void *stream)
{
	pthread_mutex_lock(&fake.mu);
	(void)push(stream_of(stream), (struct op){.kind = OP_HOLD});
	pthread_mutex_unlock(&fake.mu);
}

void
fake_cuda_begin_capture(void *handle, bool blocking)
{
	struct stream *stream = handle;

	pthread_mutex_lock(&fake.mu);
	stream->capturing = true;
	stream->invalid = false;
	stream->blocking = blocking;
	pthread_mutex_unlock(&fake.mu);
}

bool
fake_cuda_end_capture(void *handle)
{
	struct stream *stream = handle;
	bool good;

	pthread_mutex_lock(&fake.mu);
	good = !stream->invalid;
	stream->capturing = false;
	stream->blocking = false;
	pthread_mutex_unlock(&fake.mu);
	return good;
}

void
fake_cuda_release(void *handle)
{
	struct stream *stream;

	pthread_mutex_lock(&fake.mu);
	stream = stream_of(handle);
	for (struct op *op = stream->first; op; op = op->next) {
		if (op->kind == OP_HOLD && op->number == 0) {
			op->number = 1;
			break;
		}
	}
	pthread_mutex_unlock(&fake.mu);
}

void
fake_cuda_enter_test_thread(void)
{
	entered = true;
}
