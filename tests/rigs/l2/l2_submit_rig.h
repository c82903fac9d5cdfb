/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "l2_script.h"

#include "breaker.h"

/* l2_submit over a scripted adapter, with a clock that is an argument. */

#define MAX_OPS 8u
#define N 64u
#define S UINT64_C(1000000)

extern struct scout__l2 *l2;
extern struct script *script;
extern struct scout__l2_op ops[N];
extern struct scout__l2_key keys[N];
extern struct scout__l2_digest digests[N];
extern uint8_t found[N];
extern uint8_t data[16];
extern unsigned ended[N];  /* times */
extern unsigned n_late[N]; /* times */
extern struct scout__l2_op *order[4 * N];
extern unsigned n_ended;
extern char err[512];
void on_done(void *user, struct scout__l2_op *op);
void open_front(const char *a, const char *b);
void setup(void);
void teardown(void);

/* The adapter makes progress with @op. */
void moves(struct scout__l2_op *op, uint64_t now_us);

/* Operation @i on adapter 0, which begins it at once: late after a second. */
void submit(unsigned i, enum scout__l2_what what, uint64_t now_us);
void reap(uint64_t now_us);

/* Submit one and have it end; returns the result that came out. */
enum scout__l2_result one(enum scout__l2_what what, enum scout__l2_result result, int detail, uint64_t now_us);
const struct scout__l2_counters *counters(void);
enum scout__l2_breaker breaker(enum scout__l2_side side);
void tick(uint64_t now_us);
uint64_t next_us(void);
struct scout__l2_health health(uint64_t now_us);
void open_breaker(enum scout__l2_what what, uint64_t now_us);
