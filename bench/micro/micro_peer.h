/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kvscout/client.h>
#include <kvscout/server.h>

/*
 * What micro programs have around a measurement: an embedded server, a client, and questions for it. A failure ends
 * the process.
 */

#define MICRO_HASH_BYTES 32u
#define MICRO_CHUNK_TOKENS 256u
#define MICRO_ID_BYTES 40

/* Start it, and free what the configuration holds. */
struct scout_server *micro_start_server(struct scout_server_config *cfg);
/* The same; the client is connected. */
struct scout_client *micro_start_client(struct scout_client_config *cfg);

/* Lookups of as many requests, none of whose hashes is stored. */
struct micro_questions {
	uint64_t n, chunks;
	uint8_t *hashes;
	char (*ids)[MICRO_ID_BYTES];
	struct scout_query *lookups;
	uint64_t next_id;
};

void micro_questions_init(struct micro_questions *q, uint64_t n, uint64_t chunks);
void micro_questions_fini(struct micro_questions *q);
/* All are new requests from now on. Ids are as engines make them: as long as a UUID. */
void micro_questions_rename(struct micro_questions *q);
