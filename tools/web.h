/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "http_server.h"
#include "operator.h"
#include "text.h"

/* What `kvscout web` shows: the main thread fills it (cmd_web.c), the HTTP thread answers from it (web_answers.c). */

#define WEB_POINTS 1800u /* an hour, at one every 2 s */

/* What happened since the question before. */
struct web_point {
	uint64_t at_ms; /* Unix time; grows from point to point */
	uint64_t ms, lookups, asked, hit, hit_l2, known;
	uint64_t ceiling; /* 0: the server tells none */
	uint64_t pool_bytes;
	uint32_t p50_us, p99_us; /* UINT32_MAX: over 10 s */
};

struct web {
	pthread_mutex_t mu;
	struct scout__text server;            /* G:mu: the last answer, as a JSON object; empty: there was none */
	char why[OPERATOR_WHY];               /* G:mu: why there is none now; empty: there is one */
	uint64_t since_ms;                    /* G:mu: Unix time since which there is none */
	struct web_point points[WEB_POINTS];  /* G:mu */
	uint64_t n_points;                    /* G:mu: ever; the last WEB_POINTS are there */
	uint64_t interval_ms;                 /* const after start */
	char hosts[3][SCOUT__HTTP_ADDRESS];   /* const after start: what a browser may call us */
	char policy[512];                     /* const after start */
	struct scout__http_header headers[4]; /* const after start */
};

uint64_t web_now_ms(void);

/* Set hosts and headers, for the address that scout__http_listen() told. */
void web_answers_init(struct web *web, const char *address);
/* As struct scout__http_service says; @user: the struct web. HTTP thread. */
void web_get(void *user, const char *path, const char *host, struct scout__http_answer *answer);
