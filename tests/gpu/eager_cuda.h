/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_EAGER_CUDA_H
#define KVSCOUT_TESTS_EAGER_CUDA_H

/* Between the files of the eager runtime: eager_memory.c (devices and memory) and eager_cuda.c (streams, events, copies). */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <cuda.h>
#include <cuda_runtime_api.h>

#define MAX_RANGES 4096
#define MAX_STREAMS 256

struct eager_range {
	uintptr_t base;
	size_t bytes;
	int fd; /* of its memory; -1: none */
	bool is_host;
};

enum eager_kind {
	EAGER_COPY,
	EAGER_FILL,
	EAGER_RECORD,
	EAGER_NOTHING
};

struct eager_event {
	struct eager_stream *captured; /* last recorded in this stream while it was captured */
	bool recorded;
};

struct eager_node {
	struct eager_node *next;
	enum eager_kind kind;
	void *to;
	const void *from;
	size_t bytes;
	int value;
	struct eager_event *event;
};

struct eager_graph {
	struct eager_node *first, **end;
};

struct eager_stream {
	bool is_blocking, is_capturing, is_invalid;
	enum cudaStreamCaptureMode mode;
	struct eager_graph *graph;
};

/* All of it G:eager_mu, but the thread's own. */
extern pthread_mutex_t eager_mu;
extern struct eager_stream *eager_streams[MAX_STREAMS];
extern int eager_n_streams;
extern atomic_bool eager_is_initialised;
extern int eager_sticky;
extern _Thread_local int eager_last_error;
extern _Thread_local enum cudaStreamCaptureMode eager_thread_mode;

/* All with the lock. */
int eager_fail(int error);
struct eager_range *eager_range_of(uintptr_t p);
void eager_range_add(const void *p, size_t bytes, int fd, bool is_host);
/* Whether all of it is the GPU's to touch; it may lie in several ranges side by side. */
bool eager_is_known(uintptr_t p, size_t bytes);
/* A call that CUDA takes for unsafe while a stream is captured, from a thread that has not said that it knows better. */
int eager_unsafe_call(void);

#endif
