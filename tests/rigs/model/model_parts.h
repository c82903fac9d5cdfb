/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_MODEL_PARTS_H
#define KVSCOUT_TESTS_MODEL_PARTS_H

#include "model.h"

/* What the files of the model have of each other. */

#define MUST(x) ((x) ? (void)0 : abort())

/* ---- model.c ---- */
int model_refuse(struct model *m, int status);
struct model_session *model_session_in_ns(struct model *m, uint32_t peer, uint64_t ticket);
uint32_t model_n_sessions(const struct model *m, uint32_t ns);
void model_end_session(struct model *m, struct model_session *s, bool touches);
bool model_weights_fit(const struct model *m, uint32_t peer);

/* ---- model_chunks.c ---- */
struct model_chunk *model_find_key(struct model *m, uint32_t tenant, uint32_t key);
struct model_chunk *model_find_serial(struct model *m, uint32_t serial);
uint32_t model_shards(const struct model_chunk *c, enum model_shard state);
bool model_is_pinned(const struct model_chunk *c);
uint32_t model_n_chunks(const struct model *m);
uint32_t model_n_promised(const struct model *m);
/* Chunks that a retrieve reads or a store writes. */
uint32_t model_n_held(const struct model *m);
void model_drop(struct model_chunk *c);
/* A pin is gone. The last one: the chunk may be evicted from now on, or is of no use to anybody. */
void model_let_go(struct model *m, struct model_chunk *c);
/* A new chunk, at the cost of another one if need be. NULL: all are pinned. */
struct model_chunk *model_create(struct model *m, uint32_t tenant, uint32_t key, uint64_t user);

/* ---- model_transfer.c ---- */
uint32_t model_n_holds(const struct model *m);
/* The first @commit chunks are complete. Returns how many became readable as a whole. */
uint32_t model_end_write(struct model *m, struct model_hold *h, uint32_t commit);
void model_end_read(struct model *m, struct model_hold *h);

#endif
