/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http_server.h"
#include "stats.h"

/*
 * The HTTP endpoint for operators: /metrics, /healthz, /status. Optional when built (libmicrohttpd) and when run (key
 * `metrics`); without either, server.metrics is NULL and nothing here costs anything.
 *
 *   metrics_snapshot.c         what goes from the loop to the HTTP thread
 *   metrics_text.c    a block of values as a page
 *   metrics_http.c    what is answered, on the thread of libserver/http
 *   metrics_none.c    instead of all these in a build without libmicrohttpd
 */

#define SCOUT__METRICS_HUNG_US 3000000u /* a loop that has not turned for this long hangs; it turns 50 times a second */

enum scout__metrics_phase {
	SCOUT__METRICS_STARTING = 0,
	SCOUT__METRICS_SERVING,
	SCOUT__METRICS_DRAINING,
	SCOUT__METRICS_ENDED
};

struct scout__metrics;

/* ---- for the server ---- */

/*
 * Without the key: 0, and server.metrics stays NULL. Else bind the socket and start the HTTP thread; the server answers
 * "starting" until the loop does. Returns 0, SCOUT_ERR_UNSUPPORTED (built without libmicrohttpd),
 * SCOUT_ERR_CONFIG_SYNTAX, _CONFIG_RANGE, _BIND, _IN_USE, _PERMISSION, _NOMEM, _SYSTEM. On the starting thread.
 */
int scout__metrics_open(struct scout_server *s, char *err, size_t err_len);
/* After the loop. Ends in bounded time, whatever HTTP clients do. */
void scout__metrics_close(struct scout_server *s);
/* The loop's thread has been started. On the starting thread, so that every user of the server finds it healthy. */
void scout__metrics_serve(struct scout_server *s);
/* Note that the loop has turned. */
SCOUT_ON_LOOP void scout__metrics_beat(struct scout_server *s);
/* Enter the phase DRAINING or ENDED. */
SCOUT_ON_LOOP void scout__metrics_enter(struct scout_server *s, enum scout__metrics_phase phase);
/* The HTTP thread wants new values. */
SCOUT_ON_LOOP void scout__metrics_asked(struct scout_server *s);

/* ---- for the HTTP thread ---- */

/* What is known besides the block of values. */
struct scout__metrics_facts {
	const char *endpoint, *eviction, *prefetch, *l2_objects;
	uint64_t start_time_s; /* Unix time */
	uint64_t heartbeat_age_us, snapshot_age_us;
	uint64_t loop_cpu_us, process_cpu_us;
	uint64_t resident_bytes, open_fds, max_fds; /* of the process; UINT64_MAX: unknown */
	bool healthy;
	char reason[128]; /* why it is not healthy */
};

/* The newest values that the loop gives in time, and all facts. HTTP thread. */
const struct scout__stats *scout__metrics_look(struct scout__metrics *m, struct scout__metrics_facts *ret_facts);
/* "127.0.0.1:9570", with the port that the kernel chose. */
const char *scout__metrics_address(const struct scout__metrics *m);

/* ---- metrics_text.c ---- */

/* Prometheus' text format 0.0.4. */
void scout__metrics_text(const struct scout__stats *stats, const struct scout__metrics_facts *facts,
			 struct scout__text *text);
/* What /healthz says of a server that is healthy: a line of its own, and one for each store that fails. */
void scout__metrics_health(const struct scout__stats *stats, struct scout__text *text);
/* JSON: the facts, and under "status" the values of STATUS. */
void scout__metrics_json(const struct scout__stats *stats, const struct scout__metrics_facts *facts,
			 struct scout__text *text);

/* ---- metrics_http.c ---- */

/* As struct scout__http_service says; @user: the struct scout__metrics. HTTP thread. */
void scout__metrics_get(void *user, const char *path, const char *host, struct scout__http_answer *answer);
