/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_L2_FRONT_H
#define SCOUT_L2_FRONT_H

#include <stdatomic.h>

#include "adapters.h"
#include "breaker.h"
#include "l2.h"
#include "ring.h"
#include "url.h"

/* The front's own structures, between l2.c (life and death) and front.c (operations). */

/* First in, first out, by op->next. */
struct scout__l2_list {
	struct scout__l2_op *head;
	struct scout__l2_op *tail;
};

/* What tries reads again: the operation that failed last before the breaker opened, once more, into memory of its own. */
struct scout__l2_trial {
	struct scout__l2_op op;
	struct scout__l2_key key;
	struct scout__l2_digest digest;
	uint8_t found;
	uint8_t what;
	uint64_t bytes;
	uint8_t *buffer; /* for a LOAD; kept for the next */
	uint64_t buffer_bytes;
	bool is_running;
};

/* One adapter. All is the loop's but what says otherwise. */
struct scout__l2_port {
	struct scout__l2 *l2;
	const struct scout__l2_adapter *ops;
	void *adapter;
	struct scout__l2_url url;
	pthread_mutex_t mu;           /* adapter's threads: pushing into done */
	struct scout__ring done;      /* operations that have ended: adapter's threads to the loop */
	struct scout__l2_op *running; /* list by next_running */
	uint32_t n_running;
	uint64_t due_us;              /* no deadline of running is earlier */
	struct scout__l2_list unpins; /* wait for room */
	uint64_t unpins_us;           /* when to try them again, if nothing ends before */
	struct scout__l2_switch sides[2];
	struct scout__l2_trial trial;     /* of reads */
	struct scout__l2_op *write_trial; /* a STORE of the server; compared only */
	struct scout__l2_counters counters;
	struct scout__log_limit limit;
	bool hangs; /* did not stop */
};

struct scout__l2 {
	const struct scout__log *log;
	uint64_t timeout_us;
	uint32_t max_ops;
	uint32_t n;
	int fd;
	atomic_bool is_signalled;    /* fd is readable, or about to be */
	struct scout__l2_list ended; /* what no adapter had: refused, or after the stop */
	uint32_t turn;               /* whose ring comes first in the next reap */
	bool is_stopped;
	struct scout__l2_port ports[SCOUT__L2_MAX_ADAPTERS];
};

void scout__l2_list_push(struct scout__l2_list *list, struct scout__l2_op *op);
struct scout__l2_op *scout__l2_list_pop(struct scout__l2_list *list);

/* @op ends with @result without having been an adapter's. */
SCOUT_ON_LOOP void scout__l2_end(struct scout__l2 *l2, struct scout__l2_op *op, enum scout__l2_result result);

#endif
