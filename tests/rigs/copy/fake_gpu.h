/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_FAKE_GPU_H
#define KVSCOUT_TESTS_FAKE_GPU_H

/* The insides of the stand-in for CUDA, shared by fake_gpu.c (the device, and what tests do to it) and fake_cuda.c (the calls). */
#include <pthread.h>

#include "fake_cuda.h"

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

struct fake_event {
	uint64_t recorded, executed;       /* numbers of records; 0: none */
	struct fake_stream *captured_from; /* last recorded in this stream while it was captured; NULL: it was not */
};

struct fake_op {
	struct fake_op *next;
	enum op_kind kind;
	void *to;
	const void *from;
	size_t bytes;
	struct scout__tile_span span;
	uint32_t threads; /* of the launch */
	struct fake_event *event;
	uint64_t number; /* of a record */
};

struct fake_stream {
	bool in_use;
	bool capturing, invalid; /* captured; and something has broken the capture */
	bool blocking;           /* orders itself with the legacy stream */
	struct fake_op *first, **end;
};

struct fake_range {
	uintptr_t base;
	size_t bytes;
};

/* Everything is G:mu but where it says otherwise. */
struct fake_gpu {
	pthread_mutex_t mu;
	pthread_cond_t cond;
	pthread_t thread;
	struct fake_cuda_options opt;
	struct fake_cuda_counts counts;
	struct fake_stream streams[MAX_STREAMS];
	struct fake_range device[MAX_RANGES], pinned[MAX_RANGES];
	int broken;
	uint64_t n_records;
	uint64_t pending; /* copies and launches */
	bool may_upload;  /* an engine has asked for its kernel, and its planes come next */
	bool stop;
};
extern struct fake_gpu fake_gpu;

/* Whether this thread has told CUDA its device, and that its calls disturb no capture. */
extern _Thread_local bool fake_gpu_entered;
/* ... and before it entered for some calls. */
extern _Thread_local bool fake_gpu_outside;

/* The first two streams are CUDA's own. */
#define LEGACY (&fake_gpu.streams[0])
#define PER_THREAD (&fake_gpu.streams[1])

/* With the lock held, except fake_gpu_begin_call(), which takes the lock, also if it fails. */
struct fake_stream *fake_gpu_stream_of(void *handle);
struct fake_stream *fake_gpu_captured_blocking(void);
void fake_gpu_range_add(struct fake_range *ranges, const void *p, size_t bytes);
bool fake_gpu_range_remove(struct fake_range *ranges, const void *p);
bool fake_gpu_range_holds(const struct fake_range *ranges, uintptr_t p, size_t bytes);
int fake_gpu_push(void *handle, struct fake_op op);
/* Each call that can fail begins and ends with these. */
int fake_gpu_begin_call(void);
int fake_gpu_end_call(int rc);

#endif
