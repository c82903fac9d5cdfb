/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "server_rig.h"

/*
 * A namespace of several groups, one client and one worker, by frames. The prompt of a test is one chain of keys: hash h
 * (from 0) is key 1 + h. Object i of a group is named by the hash at its end. Every shard has SHARD_BYTES.
 */

struct groups_rig {
	struct scout_server *server;
	struct wire_peer client, worker;
	struct scout__groups groups;
	uint32_t hash_tokens;
};

/* A reply to LOOKUP, with the lengths taken apart. */
struct groups_answer {
	uint32_t hit, l1, l2, limited, n_more, more[SCOUT_MAX_LENGTHS];
};

/* An object of a group, for KEYS. */
struct groups_key {
	uint16_t group;
	uint32_t object;
};

/* A reply to KEYS, with its maps taken apart: 0 not there, 1 a hit, 2 later. */
struct groups_told {
	uint32_t l1, l2, limited;
	uint8_t what[64];
};

/* What a peer says of the groups at its HELLO, before it says it. */
void groups_say(struct wire_peer *p, const struct scout__groups *groups, uint32_t hash_tokens);
/* A server with @cfg, whose groups are registered. */
void groups_up_with(struct groups_rig *rig, struct scout_server_config *cfg, const struct scout__groups *groups,
		    uint32_t hash_tokens);
/* With room for @objects of each group, all of which may be promised. */
void groups_up(struct groups_rig *rig, uint32_t objects, const struct scout__groups *groups, uint32_t hash_tokens);
void groups_down(struct groups_rig *rig);

/* REGISTER with a table of @shard_bytes of each group (bits) of @which. Returns the status. */
int groups_register(struct wire_peer *p, uint16_t kv_rank, uint16_t reader, uint32_t which, uint64_t shard_bytes);
/* The same, with the bytes of each group. */
int groups_register_sizes(struct wire_peer *p, uint16_t kv_rank, uint16_t reader, uint32_t which,
			  const uint64_t *shard_bytes);
/* STORE of the objects [@from, @to) of @group by @p. Returns the status. */
int groups_store_of(struct wire_peer *p, uint64_t ticket, uint16_t group, uint32_t from, uint32_t to,
		    struct wire_grants *ret);
/* The same, and STORE_DONE: all must be granted, or be there already. */
void groups_store(struct wire_peer *p, uint16_t group, uint32_t from, uint32_t to);
/* LOOKUP of the first m->first + m->n hashes of the prompt. Returns the status. */
int groups_lookup(struct wire_peer *p, const struct scout__lookup_msg *m, struct groups_answer *ret);
/* The answer of a LOOKUP that was added as @corr and sent. Returns its status. */
int groups_lookup_answer(struct wire_peer *p, uint64_t corr, struct groups_answer *ret);
/* KEYS of at most 64 objects, by ascending group. Returns the status. */
int groups_keys(struct wire_peer *p, uint64_t ticket, const struct groups_key *keys, uint32_t n,
		struct groups_told *ret);
/* RETRIEVE of the parts of @m. Returns the status. */
int groups_retrieve(struct wire_peer *p, const struct scout__retrieve_msg *m, struct wire_grants *ret);
