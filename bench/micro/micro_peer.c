/* SPDX-License-Identifier: Apache-2.0 */
#include "micro_peer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "mix.h"
#include "say.h"

#define READY_MS 10000u
#define LINE_BYTES 64u

struct scout_server *
micro_start_server(struct scout_server_config *cfg)
{
	struct scout_server *server;
	char err[256] = "";

	if (scout_server_start(cfg, &server, err, sizeof(err)) != 0)
		die("server: %s", err);
	scout_server_config_fini(cfg);
	return server;
}

struct scout_client *
micro_start_client(struct scout_client_config *cfg)
{
	struct scout_client *client;
	char err[256] = "";

	if (scout_client_new(cfg, &client, err, sizeof(err)) != 0 ||
	    scout_client_wait_ready(client, READY_MS, err, sizeof(err)) != 0)
		die("client: %s", err);
	scout_client_config_fini(cfg);
	return client;
}

void
micro_questions_init(struct micro_questions *q, uint64_t n, uint64_t chunks)
{
	uint64_t bytes = chunks * MICRO_HASH_BYTES;

	*q = (struct micro_questions){.n = n, .chunks = chunks};
	q->hashes = aligned_alloc(LINE_BYTES, (n * bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES);
	q->ids = calloc(n, sizeof(*q->ids));
	q->lookups = calloc(n, sizeof(*q->lookups));
	if (!q->hashes || !q->ids || !q->lookups)
		die("out of memory");
	for (uint64_t i = 0; i < n * bytes; i++)
		q->hashes[i] = (uint8_t)((i * MIX_STEP) >> 56);
	for (uint64_t i = 0; i < n; i++)
		q->lookups[i] = (struct scout_query){
			.id = q->ids[i],
			.hashes = q->hashes + i * bytes,
			.hash_len = MICRO_HASH_BYTES,
			.n = chunks,
			.prompt_tokens = chunks * MICRO_CHUNK_TOKENS + 1,
		};
}

void
micro_questions_fini(struct micro_questions *q)
{
	free(q->hashes);
	free(q->ids);
	free(q->lookups);
}

void
micro_questions_rename(struct micro_questions *q)
{
	for (uint64_t i = 0; i < q->n; i++)
		(void)snprintf(q->ids[i], MICRO_ID_BYTES, "cmpl-7f3a1c52-40d8-4be1-%012" PRIx64, q->next_id++);
}
