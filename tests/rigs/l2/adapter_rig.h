/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "l2.h"
#include "object.h"
#include "url.h"
#include "waiting.h"

/*
 * One adapter of L2 without l2_submit: the test is the loop. Completions are counted, so that a second one for the
 * same operation, or none, is seen.
 */

struct adapter_rig {
	const struct scout__l2_adapter *vt; /* set by the test */
	uint32_t timeout_ms;                /* 0: 1000 */
	uint32_t max_ops;                   /* 0: 1024 */
	void *adapter;
	struct scout__l2_url url;
	struct scout__log log;
	pthread_mutex_t mu;
	char text[65536]; /* G:mu; all log lines */
	size_t text_len;  /* G:mu */
};

/* One object, and one operation on it at a time. */
struct adapter_object {
	struct scout__l2_key key;
	uint8_t *data; /* what it must be */
	uint8_t *slot; /* what operations are given */
	uint64_t bytes;
	struct scout__l2_op op;
	struct scout__l2_digest *digests; /* EXISTS */
	atomic_uint ended;
};

void adapter_up(struct adapter_rig *rig, const char *url);
void adapter_down(struct adapter_rig *rig);
/* Opens only; the code, and the message. */
int adapter_try(struct adapter_rig *rig, const char *url, char *err, size_t err_len);
/* Whether a log line has this in it; how often. */
uint32_t adapter_logged(struct adapter_rig *rig, const char *what);
/* Until it has; with a deadline. */
void adapter_wait_logged(struct adapter_rig *rig, const char *what);

/* Any operation; @ended counts its ends. */
void adapter_submit(struct adapter_rig *rig, struct scout__l2_op *op, atomic_uint *ended);
/* Its result; the test fails if it does not end, or ends twice. */
enum scout__l2_result adapter_end(const struct scout__l2_op *op, const atomic_uint *ended);
enum scout__l2_result adapter_run(struct adapter_rig *rig, struct scout__l2_op *op);

/* Bytes that tell @number from others, and each place from the next. */
void object_fill(uint8_t *data, uint64_t bytes, uint32_t number);
/* Object @number of @bytes; other numbers, other keys and bytes. */
void object_init(struct adapter_object *o, uint32_t number, uint64_t bytes);
void object_fini(struct adapter_object *o);

void object_begin(struct adapter_rig *rig, struct adapter_object *o, enum scout__l2_what what, uint32_t timeout_ms);
/* EXISTS of @n objects, in the operation of @o. */
void object_begin_exists(struct adapter_rig *rig, struct adapter_object *o, const struct adapter_object *of, uint32_t n,
			 uint32_t timeout_ms);
enum scout__l2_result object_end(struct adapter_object *o);

enum scout__l2_result object_store(struct adapter_rig *rig, struct adapter_object *o);
/* A LOAD that is OK has brought the right bytes. */
enum scout__l2_result object_load(struct adapter_rig *rig, struct adapter_object *o);
enum scout__l2_result object_remove(struct adapter_rig *rig, struct adapter_object *o);
/* How many of @n are there. */
uint32_t object_exists(struct adapter_rig *rig, const struct adapter_object *of, uint32_t n);
