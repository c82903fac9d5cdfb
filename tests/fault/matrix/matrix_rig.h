/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fake_server.h"
#include "fault_rig.h"
#include "proxy.h"

/*
 * One row of the fault matrix: a scheduler loop that asks every millisecond, inside steps, while something breaks. Every request
 * must be answered by its deadline, nothing may stay promised, and lookups must work again.
 */

#define MATRIX_REQUESTS 64
#define MATRIX_PROMPT 1u /* what the worker has stored, and how much of it */
#define MATRIX_CHUNKS 4u

struct matrix_request {
	char id[24];
	uint32_t n;
	bool accepted, answered, finished;
	uint64_t accepted_us;
	struct scout_hit hit;
	uint32_t late_steps; /* after the deadline, without an answer */
};

struct matrix {
	/* Set before matrix_client(); 0 is a default. */
	uint32_t heartbeat_ms, timeout_ms, connect_timeout_ms, max_lookups;
	uint64_t arena_bytes;

	struct scout_client *client;
	struct fault real;
	struct fault_actor *worker;
	struct fake_server *fake;
	struct proxy *proxy;
	struct matrix_request requests[MATRIX_REQUESTS];
	uint32_t n_requests;
	uint32_t n_busy; /* refusals of a full queue */
	uint64_t worst_us, longest_step_us;
	uint64_t left;
	bool works;
};

struct matrix_row {
	const char *name;
	void (*run)(struct matrix *m, const struct matrix_row *row);
	unsigned opcode, arg;
	int how;
	bool is_scripted; /* its peer is fake_server, which speaks through the socket only, or it goes through a proxy */
	bool is_long;     /* only with KVSCOUT_LONG=1 */
};

/* ---- what breaks ---- */

/* kvscoutd, and a worker that has stored MATRIX_CHUNKS of MATRIX_PROMPT. */
void matrix_real(struct matrix *m);
/* A scripted peer that hits as much. */
void matrix_fake(struct matrix *m);
/* Before matrix_client(): it connects through a proxy. */
void matrix_proxy(struct matrix *m);
void matrix_client(struct matrix *m);
void matrix_client_at(struct matrix *m, const char *endpoint);
void matrix_ready(struct matrix *m);
void matrix_stop(pid_t pid);
void matrix_cont(pid_t pid);

/* ---- the scheduler ---- */

/* New requests, asked for from the next step on. */
void matrix_ask(struct matrix *m, uint32_t count);
/* One step: asks all that have no answer. Insists that none is late. */
void matrix_step(struct matrix *m);
void matrix_steps_ms(struct matrix *m, uint32_t ms);
/* Steps until all are answered. */
void matrix_answers(struct matrix *m);
/* @count requests that hit, as the first ones of the row: the state that a fault begins with. */
void matrix_hits(struct matrix *m, uint32_t count);
/* For rows that must not notice anything: a busy machine is not taken for a silent server. */
void matrix_patient(struct matrix *m);
/* The requests from @first on failed, or hit. */
void matrix_all_failed(const struct matrix *m, uint32_t first);
void matrix_all_hit(const struct matrix *m, uint32_t first);
void matrix_finish(struct matrix *m);
struct scout_client_counters matrix_stats(struct matrix *m);

/* ---- afterwards ---- */

/* Asks until an answer has no error; of a worker's server that was restarted: stores and asks until it hits. */
void matrix_works(struct matrix *m, bool must_hit);
void matrix_refill(struct matrix *m);
/* Finishes everything, waits until nothing is left at the server, ends everything. */
void matrix_end(struct matrix *m);

extern const struct matrix_row matrix_scripted_rows[], matrix_server_rows[], matrix_worker_rows[], matrix_proxy_rows[],
	matrix_local_rows[], matrix_limits_rows[], matrix_process_rows[];
