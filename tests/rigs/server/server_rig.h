/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/server.h>

#include "clock.h"
#include "wire_peer.h"

/*
 * A server in this process with a pool of SHARD_BYTES slots, and peers on a real socket. Everything is one test's: the server
 * starts in the test, after any fork, and what a test leaves open ends with its process. Set RIG_LOG=1 to see the log.
 */

#define SHARD_BYTES 4096u

/* The pool is one extent, so its size in chunks is exact. */
struct scout_server_config rig_config(uint32_t chunks);
void rig_log(void *user, int level, const char *text);
struct scout_server *rig_start(struct scout_server_config *cfg);
void rig_client(struct wire_peer *p, const char *endpoint);

/* A peer of a namespace of @ranks * @readers, not registered. */
void rig_worker_unregistered(struct wire_peer *p, const char *endpoint, uint16_t ranks, uint16_t readers);
void rig_worker(struct wire_peer *p, const char *endpoint);

/* Store and commit; the number that became readable. */
uint32_t rig_store(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n);
uint32_t rig_granted(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n, uint64_t *ret_id);

/* The hit of @n keys, under a session of its own that stays open. */
uint32_t rig_hit(struct wire_peer *p, uint64_t ticket, uint64_t first_key, uint32_t n);
void rig_finish(struct wire_peer *p, uint64_t ticket);

/* A look at the cache that leaves nothing behind but a touch of what it hit. */
uint32_t rig_peek(struct wire_peer *p, uint64_t first_key, uint32_t n);

/* One server, one client, one worker: what most tests need. */
struct rig {
	struct scout_server *server;
	const char *endpoint;
	struct wire_peer client, worker;
};

void rig_up_with(struct rig *rig, struct scout_server_config *cfg);
void rig_up(struct rig *rig, uint32_t chunks);

/* A pool of @chunks; keys 1 to @n are stored and, under ticket 9, promised to the client. */
void rig_up_promised(struct rig *rig, uint32_t chunks, uint32_t n);
void rig_down(struct rig *rig);

/* Chunks that are promised, as STATUS says. */
uint64_t rig_promised(struct rig *rig);
