/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user's program, built against the installed headers and libraries only, as C and as C++: the headers must be complete
 * by themselves, and every public name must link. Prints its versions and exits 0.
 */
#include <stdio.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/error.h>
#include <kvscout/hash.h>
#include <kvscout/protocol.h>
#include <kvscout/server.h>
#include <kvscout/version.h>
#include <kvscout/worker.h>

/* Never run: taking part in the link is the point. */
static int
every_call(struct scout_client *c, struct scout_worker *w, struct scout_server *s)
{
	struct scout_query q;
	struct scout_hit hit;
	struct scout_key_query keys;
	struct scout_key_answer key_answer;
	uint8_t states[1];
	struct scout_client_counters stats;
	struct scout_worker_counters worker_stats;
	struct scout_retrieve retrieve;
	struct scout_store store;
	struct scout_done done;
	struct scout_table layout;
	struct scout_worker_config config;
	uint64_t job = 0, lengths[1];
	int rc = 0;

	memset(&q, 0, sizeof(q));
	memset(&keys, 0, sizeof(keys));
	memset(&retrieve, 0, sizeof(retrieve));
	memset(&store, 0, sizeof(store));
	memset(&layout, 0, sizeof(layout));
	scout_worker_config_init(&config);
	memset(&stats, 0, sizeof(stats));
	memset(&worker_stats, 0, sizeof(worker_stats));
	rc += scout_client_wait_ready(c, 1, NULL, 0);
	scout_step_begin(c);
	rc += scout_poll_lookup(c, "id", 0, &hit);
	rc += scout_try_lookup(c, &q, &hit) + scout_wait_lookup(c, &q, &hit) + scout_lookup(c, &q, &hit) +
	      scout_lookup_lengths(c, "id", lengths, 1) + scout_lookup_keys(c, &keys, states, &key_answer);
	scout_step_end(c);
	rc += scout_admit(c, "id", 0, SCOUT_TO_END) + scout_finish(c, "id") + scout_reset(c, 1) +
	      scout_clear(c, 0, NULL);
	rc += scout_client_fd(c) + scout_client_stats(c, &stats);
	scout_client_fd_clear(c);
	rc += scout_worker_register(w, &layout, 1, 1, NULL, 0) + scout_worker_retrieve(w, &retrieve, &job) +
	      scout_worker_store(w, &store, &job) + scout_worker_poll(w, &done, 1) + scout_worker_cancel(w, job) +
	      scout_worker_fence(w, 0, NULL, 0, NULL) + scout_worker_fd(w) + scout_worker_reset(w, 1) +
	      scout_worker_clear(w, 0, NULL) + scout_worker_wait_layer(w, job, 1, 1) +
	      scout_worker_layer_ready(w, job, 1);
	rc += scout_worker_stats(w, &worker_stats);
	rc += scout_worker_config_load(&config, "worker.conf", NULL, 0);
	scout_client_free(c);
	scout_worker_free(w);
	scout_server_stop(s);
	return rc + (int)scout_server_endpoint(s)[0];
}

int
main(int argc, char **argv)
{
	struct scout_client_config client;
	struct scout_worker_config worker;
	struct scout_server_config server;
	struct scout_hasher_config hasher;

	(void)argv;
	if (argc > 1000)
		return every_call(NULL, NULL, NULL);
	scout_client_config_init(&client);
	scout_worker_config_init(&worker);
	scout_server_config_init(&server);
	scout_hasher_config_init(&hasher);
	if (client.size != sizeof(client) || client.chunk_tokens != 256 || worker.size != sizeof(worker) ||
	    server.size != sizeof(server) || strcmp(scout_version(), SCOUT_VERSION_STRING) != 0)
		return 1;
	printf("kvscout %s, BUSY is %d, %s\n", scout_version(), SCOUT_ERR_BUSY, scout_err_name(SCOUT_ERR_BUSY));
	return 0;
}
