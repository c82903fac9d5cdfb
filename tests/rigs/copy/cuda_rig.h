/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The world of copy_world.h with its pages in the memory of a fake GPU. One to a test. */
#include <stdio.h>
#include <unistd.h>

#include "fake_cuda.h"
#include "copy_world.h"

extern const char *const methods[];
extern struct world world;
extern atomic_int gate_steps; /* looks that may pass; negative: all */
extern char last_log[600];
bool gate(void *user);
void keep_log(void *user, int level, const char *text);
extern const struct scout__log test_log;
struct fake_cuda_options options(void);
/* With the gate, which is open. */
struct fake_cuda_options gated(void);

/* After world_fill(): start the fake, say what is GPU memory. */
void gpu_start(struct world *w, const struct fake_cuda_options *opt);
int try_open(struct world *w, const char *method, char *err, size_t err_len);
void wait_pinned(void *engine, const uint8_t *slots);
void add_slots(struct world *w);
void gpu_open(struct world *w, const char *method);
void gpu_begin(struct world *w, const struct fake_cuda_options *opt, const char *method);

/* Everything given back, and nothing done that CUDA forbids. */
void fake_end(void **engine);
void gpu_end(struct world *w);
void world_layered(struct world *w, uint32_t n_slots);
extern const uint32_t two_layers[3];

/* With the gate shut: let one operation pass, and the engine look at its events twice. */
void run_one_op(void);
void wait_queries(uint64_t n);
