/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "model.h"

/* What the files of the model have of each other. */

#define MUST(x) ((x) ? (void)0 : abort())

/* ---- model.c ---- */
void model_withdraw(struct model *m, struct model_kept *k, uint32_t i);
/* Object @i of @group counts: promise @c to all readers of all ranks. False: max_promised does not allow it. */
bool model_promise(struct model *m, struct model_session *s, uint32_t group, uint32_t i, struct model_chunk *c);
int model_refuse(struct model *m, int status);
struct model_session *model_session_in_ns(struct model *m, uint32_t peer, uint64_t ticket);
uint32_t model_n_sessions(const struct model *m, uint32_t ns);
void model_end_session(struct model *m, struct model_session *s, bool touches);
/* The same, and it stays. */
void model_end_parts(struct model *m, struct model_session *s, bool touches);
bool model_weights_fit(const struct model *m, uint32_t peer);

/* ---- model_groups.c ---- */
/* What an answer says, of a session that is new (s->of is empty) or is renewed. */
void model_walk_groups(struct model *m, struct model_session *s, const struct model_ask *ask, struct model_hit *ret);
/* 0, or why @s cannot be renewed by this. */
int model_may_renew(struct model *m, const struct model_session *s, const struct model_ask *ask);
/* Object @i of @group is needed to restore @length keys, of which the GPU has @skip. */
bool model_needs(const struct model *m, const struct model_group *group, uint32_t skip, uint32_t length, uint32_t i);
/* The session promises all that a restore of @length needs, and all groups allow that length. */
bool model_keeps(struct model *m, const struct model_session *s, uint32_t skip, uint32_t length);

/* ---- model_unneeded.c ---- */
/* What FINISH says of the objects of one group, from the last that the session stored to the first that it found. */
struct model_end {
	uint32_t needs;       /* objects that one length needs, at most; MODEL_ALL: all before it */
	uint32_t diverges_at; /* what it stored up to here, counted from 1, are beginnings that prompts share */
	uint32_t n_behind;
};
#define MODEL_ALL UINT32_MAX
struct model_end model_end_of(const struct model *m, const struct model_session *s, uint32_t group);
/* The @i-th that it stored of this group. */
void model_end_stored(struct model *m, struct model_end *end, uint32_t i, uint32_t serial, bool present);
/* It goes before what is not unneeded, unless it is promised. */
void model_unneeded(struct model *m, struct model_chunk *c);
void model_end_found(struct model *m, struct model_end *end, uint32_t serial);

/* ---- model_keeps.c ---- */
struct model_wish model_end_with_wish(struct model *m, struct model_session *s, const struct model_wish *wish);
/* The end of @s has touched the object at this place: promise it anew, if it is kept. */
void model_keep_one(struct model *m, struct model_session *s, uint32_t group, uint32_t at);
void model_unkeep(struct model *m, struct model_session *s);

/* ---- model_chunks.c ---- */
/* It is promised, held or touched. */
void model_use(struct model_chunk *c);
struct model_chunk *model_find_key(struct model *m, uint32_t group, uint32_t tenant, uint32_t key);
struct model_chunk *model_find_serial(struct model *m, uint32_t serial);
uint32_t model_shards(const struct model_chunk *c, enum model_shard state);
bool model_is_pinned(const struct model_chunk *c);
uint32_t model_n_chunks(const struct model *m);
uint64_t model_bytes_promised(const struct model *m);
/* Of chunks that a retrieve reads or a store writes. */
uint64_t model_bytes_held(const struct model *m);
uint64_t model_bytes_used(const struct model *m);
void model_drop(struct model_chunk *c);
/* A pin is gone. The last one: the chunk may be evicted from now on, or is of no use to anybody. */
void model_let_go(struct model *m, struct model_chunk *c);
/* A new chunk, at the cost of another one if need be. NULL: all are pinned. */
struct model_chunk *model_create(struct model *m, uint32_t group, uint32_t tenant, uint32_t key, uint64_t user);

/* ---- model_transfer.c ---- */
uint32_t model_n_holds(const struct model *m);
/* The first @commit chunks are complete. Returns how many became readable as a whole. */
uint32_t model_end_write(struct model *m, struct model_hold *h, uint32_t commit);
void model_end_read(struct model *m, struct model_hold *h);
