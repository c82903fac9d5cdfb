/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <kvscout/client.h>
#include <kvscout/worker.h>

#include "assert_rc.h"
#include "clock.h"
#include "waiting.h"
#include "wire_peer.h"

/*
 * kvscoutd and actors as processes of their own, on an ipc endpoint in a private folder. An actor (actor.c) is
 * a scheduler and some workers under commands; the test sees the server through STATUS and through what the
 * actors got.
 *
 * Blocks have 16 tokens, chunks 4 blocks; a shard takes FAULT_SHARD_BYTES, so a pool has exactly as many chunks
 * as it is said to have. Page bytes follow from (prompt, rank, block of the prompt), so wrong ones are seen.
 *
 * Environment: KVSCOUT_KVSCOUTD and KVSCOUT_ACTOR name the programs. RIG_LOG=1 shows the server's and the
 * actors' logs.
 */

/* Times that are as short as they may be: a sanitizer makes any machine a slow one. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAULT_SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FAULT_SANITIZED true
#endif
#endif
#ifndef FAULT_SANITIZED
#define FAULT_SANITIZED false
#endif
/* Short where many of them are to pass; but a machine that stands still for half a second is no silent server (after four). */
#define FAULT_HEARTBEAT_MS (FAULT_SANITIZED ? 500u : 200u)
/* The server's peer_timeout_ms is ten of them: it has forgotten by then who was silent, if it may. */
#define FAULT_FORGOTTEN_US (UINT64_C(12000) * FAULT_HEARTBEAT_MS)
#define FAULT_SHARD_BYTES 4096u
#define FAULT_CHUNK_TOKENS 64u
#define FAULT_BLOCK_TOKENS 16u
#define FAULT_BPC (FAULT_CHUNK_TOKENS / FAULT_BLOCK_TOKENS)
#define FAULT_BLOCKS 512u /* pages of each worker */
#define FAULT_ACTORS 8
#define FAULT_MORE_OPTIONS 12

struct fault_actor {
	pid_t pid; /* 0: none */
	int to, from;
	char line[8192]; /* the last reply */
};

struct fault {
	/* Set before fault_up(); 0 is a default. */
	uint32_t pool_chunks; /* 8 */
	uint32_t readers;     /* 1 */
	uint32_t kv_ranks;    /* 1 */
	uint32_t heartbeat_ms, transfer_timeout_ms;
	uint32_t dead_writer_ms; /* 300 */
	uint32_t reply_delay_us;
	uint64_t l1_bytes;                    /* pool_chunks of them */
	uint64_t nofile;                      /* the server's limit of open files */
	int log_fd;                           /* the server's standard error; the caller closes it */
	const char *more[FAULT_MORE_OPTIONS]; /* of the server: key, value, key, value ... */

	char folder[96];
	char endpoint[160];
	pid_t server;   /* 0: none */
	int server_out; /* its stdout */
	int life[2];    /* its end ends the forked children of actors */
	bool watching;  /* status is open */
	struct wire_peer status;
	struct fault_actor actors[FAULT_ACTORS];
	uint32_t n_actors;
	uint32_t next_prompt; /* of fault_pressure() */
};

/* The folder of this binary; removed, with all that is in it, when the process that called this ends. */
void fault_make_home(void);
const char *fault_home(void);

/* A server that serves. */
void fault_up(struct fault *f);
/* The same with a scheduler and a worker; and with a second worker, unless @ret_other is NULL. */
void fault_up_with(struct fault *f, struct fault_actor **ret_sched, struct fault_actor **ret_worker,
		   struct fault_actor **ret_other);
/*
 * Everything leaves in good order; then nothing may be promised, held, open or set aside, and the server's end
 * must leave nothing behind.
 */
void fault_down(struct fault *f);
/* The same, without an end: only what the living ones may have is left. Waits with a deadline. */
void fault_settle(struct fault *f);

void fault_server_start(struct fault *f);
void fault_server_kill(struct fault *f);
/* SIGTERM; and until it has ended by it, in good order. */
void fault_server_terminate(struct fault *f);
void fault_server_await_end(struct fault *f);
/* Run kvscoutd with these options until it ends; its exit status, and its stdout and stderr in @text. */
int fault_server_run(char *const argv[], char *text, size_t len);
const char *fault_kvscoutd(void);

uint64_t fault_status(struct fault *f, const char *name);
void fault_wait(struct fault *f, const char *name, uint64_t value);

/* ---- actors ---- */

struct fault_actor *fault_actor(struct fault *f);
/* Its weights version. */
struct fault_actor *fault_actor_of(struct fault *f, uint64_t weights);
/* An actor with worker 0; with a client. */
struct fault_actor *fault_worker(struct fault *f);
struct fault_actor *fault_scheduler(struct fault *f);
/* SIGKILL, and reaped. */
void fault_kill(struct fault_actor *a);
void fault_freeze(struct fault_actor *a);
void fault_thaw(struct fault_actor *a);

/* One command, one reply. fault_ask() insists on success and returns what follows "ok ". */
__attribute__((format(printf, 2, 3))) const char *fault_ask(struct fault_actor *a, const char *fmt, ...);
__attribute__((format(printf, 2, 3))) const char *fault_try(struct fault_actor *a, const char *fmt, ...);
uint64_t fault_number(const char *reply);
/* The two halves of fault_ask(), for what takes its time. */
__attribute__((format(printf, 2, 3))) void fault_send(struct fault_actor *a, const char *fmt, ...);
const char *fault_hear(struct fault_actor *a);

struct fault_hit {
	uint64_t tokens, ticket, us;
	uint32_t chunks;
	int reason, error;
};

struct fault_done {
	uint64_t job;
	int status, kind;
	uint32_t chunks, present, no_room, n_missing;
	char missing[FAULT_BLOCKS + 1]; /* 'M' where a block was named, else '.', up to the last that was */
};

#define assert_reason(reason, expected)                                                                                \
	do {                                                                                                           \
		int reason_ = (reason);                                                                                \
                                                                                                                       \
		ck_assert_msg(reason_ == (expected), "%s is %s, not %s", #reason, scout_reason_name(reason_),          \
			      scout_reason_name(expected));                                                            \
	} while (0)

/* The reply to "lookup", taken apart. */
struct fault_hit fault_hit_of(const char *reply);
struct fault_hit fault_look(struct fault_actor *a, const char *id, uint32_t prompt, uint32_t n);
/* The same with an answer of the server: a server that gets no CPU for half a second is taken for gone, and asked again. */
struct fault_hit fault_lookup(struct fault_actor *a, const char *id, uint32_t prompt, uint32_t n);

/* Worker @w stores @n chunks of @prompt from pages 1.. that hold the bytes of @bytes. */
uint64_t fault_store_begin(struct fault_actor *a, uint32_t w, uint32_t prompt, uint32_t bytes, uint32_t n,
			   uint64_t ticket);
struct fault_done fault_store(struct fault_actor *a, uint32_t w, uint32_t prompt, uint32_t n);
/* Blocks [from, from + n) of a session into pages FAULT_LOAD_PAGE.., which are wiped before. */
#define FAULT_LOAD_PAGE 256u
uint64_t fault_retrieve_begin(struct fault_actor *a, uint32_t w, uint64_t ticket, uint32_t from, uint32_t n);
struct fault_done fault_retrieve(struct fault_actor *a, uint32_t w, uint64_t ticket, uint32_t from, uint32_t n);
/* The job has a copy in the engine, which waits at the gate. */
void fault_enqueued(struct fault_actor *a, uint32_t w, uint64_t job);
/* The next job of worker @w that ends. */
struct fault_done fault_wait_done(struct fault_actor *a, uint32_t w);
/* Of a retrieve of @n blocks of @prompt from block @from: exactly the named blocks are untouched, all others right. */
void fault_check_pages(struct fault_actor *a, uint32_t w, const struct fault_done *done, uint32_t prompt, uint32_t from,
		       uint32_t n);
/* The same, and nothing is named. */
void fault_check_all(struct fault_actor *a, uint32_t w, const struct fault_done *done, uint32_t prompt, uint32_t from,
		     uint32_t n);

/* Worker 0 of @a stores @rounds new prompts of as many chunks as the pool has; how many got no slot. */
uint32_t fault_pressure(struct fault *f, struct fault_actor *a, uint32_t rounds);

/* A bare worker of the same namespace, registered as (rank 0, reader 0); a bare client. */
void fault_bare_worker(struct fault *f, struct wire_peer *p);
void fault_bare_client(struct fault *f, struct wire_peer *p);
/* LOOKUP of @n chunks of @prompt with the actors' hashes; the hit. */
uint32_t fault_bare_lookup(struct wire_peer *p, uint64_t ticket, uint32_t prompt, uint32_t n);
/* The same in two halves; with a time for late keys, or 0. */
uint64_t fault_bare_lookup_begin(struct wire_peer *p, uint64_t ticket, uint32_t prompt, uint32_t n,
				 uint32_t poll_timeout_ms);
uint32_t fault_bare_lookup_end(struct wire_peer *p, uint64_t corr);
