/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine on two hosts, with keys (CURVE). Each host has a server and a worker with one of the two KV ranks; the scheduler asks both
 * servers, and a hit is what both have. Here both hosts are this machine, so the servers are embedded, on ports that the kernel chooses.
 * On a real host: kvscoutd --listen tcp://0.0.0.0:5570 --curve_secret_file server.key --curve_clients_file clients.keys
 *
 *   kvscoutd --curve-keygen server.key >server.pub      the secret key of both servers; the public key is printed
 *   kvscoutd --curve-keygen engine.key >clients.keys    the engine's; the servers let in who is on this list
 *   cc two_hosts.c $(pkg-config --cflags --libs kvscout-client kvscout-worker kvscout-server) -o two_hosts && ./two_hosts "$(cat server.pub)"
 */
#include <err.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#define HOSTS 2
#define CHUNK 256 /* tokens; here a block of the engine is as long */
#define BYTES 4096

static unsigned char pages[HOSTS][BYTES]; /* each rank has the KV of its own heads */
static char why[512];

static struct scout_server *
start_server(void)
{
	struct scout_server_config cfg;
	struct scout_server *server;

	scout_server_config_init(&cfg);
	cfg.listen = "tcp://127.0.0.1:0";
	cfg.curve_secret_file = "server.key";
	cfg.curve_clients_file = "clients.keys";
	if (scout_server_start(&cfg, &server, why, sizeof(why)) != 0)
		errx(1, "server: %s", why);
	return server;
}

/* A worker connects to the server of its own host, over loopback, and stores its part of the chunk. */
static struct scout_worker *
store_on(uint32_t host, const char *endpoint, const char *server_key, struct scout_store *store)
{
	struct scout_plane plane = {pages[host], BYTES, BYTES};
	struct scout_table table = {
		.block_tokens = CHUNK, .n_planes = 1, .planes = &plane, .n_blocks = 1, .null_block = -1};
	struct scout_worker_config cfg;
	struct scout_worker *worker;
	struct scout_done done;
	uint64_t job;

	scout_worker_config_init(&cfg);
	cfg.name_space = "two-hosts";
	cfg.endpoint = endpoint;
	cfg.curve_secret_file = "engine.key";
	cfg.curve_server_key = server_key;
	cfg.kv_ranks = HOSTS; /* of the model */
	cfg.kv_rank = host;
	cfg.rank_first = host; /* which of them this host's server holds */
	cfg.rank_count = 1;
	if (scout_worker_new(&cfg, &worker, why, sizeof(why)) != 0 ||
	    scout_worker_register(worker, &table, 1, 10000, why, sizeof(why)) != 0)
		errx(1, "worker %u: %s", host, why);
	memset(pages[host], 'a' + (int)host, BYTES);
	if (scout_worker_store(worker, store, &job) != 0)
		errx(1, "store");
	while (scout_worker_poll(worker, &done, 1) != 1)
		poll(&(struct pollfd){.fd = scout_worker_fd(worker), .events = POLLIN}, 1, -1);
	if (done.status != 0)
		errx(1, "store: %s", scout_strerror(done.status));
	return worker;
}

int
main(int argc, char **argv)
{
	static const uint8_t hash[32] = "the only chunk of this prompt";
	static const int64_t id = 0;
	char endpoints[256], request[] = "request 0";
	struct scout_query query = {.id = request, .hashes = hash, .hash_len = 32, .n = 1, .prompt_tokens = CHUNK + 1};
	struct scout_blocks block = {.ids = &id, .n = 1};
	struct scout_store store = {.hashes = hash, .hash_len = 32, .n = 1, .blocks = &block, .n_groups = 1};
	struct scout_server *servers[HOSTS];
	struct scout_worker *workers[HOSTS];
	struct scout_client_config cfg;
	struct scout_client *client;
	struct scout_hit hit;

	if (argc != 2)
		errx(1, "usage: two_hosts PUBLIC_KEY_OF_THE_SERVERS");
	servers[0] = start_server();
	servers[1] = start_server();
	(void)snprintf(endpoints, sizeof(endpoints), "%s %s", scout_server_endpoint(servers[0]),
		       scout_server_endpoint(servers[1]));
	scout_client_config_init(&cfg);
	cfg.name_space = "two-hosts";
	cfg.endpoint = endpoints;
	cfg.curve_secret_file = "engine.key";
	cfg.curve_server_key = argv[1];
	cfg.kv_ranks = HOSTS;
	if (scout_client_config_load_env(&cfg, why, sizeof(why)) != 0 ||
	    scout_client_new(&cfg, &client, why, sizeof(why)) != 0 ||
	    scout_client_wait_ready(client, 10000, why, sizeof(why)) != 0)
		errx(1, "client: %s", why);
	scout_client_config_fini(&cfg);

	for (uint32_t host = 0; host <= HOSTS; host++) { /* ask before the first store, and after each */
		request[sizeof(request) - 2]++;
		if (scout_wait_lookup(client, &query, &hit) != 0)
			errx(1, "lookup");
		printf("%u of %d hosts have stored: %s, %llu tokens\n", host, HOSTS, scout_reason_name(hit.reason),
		       (unsigned long long)hit.tokens);
		scout_finish(client, request);
		if (host == HOSTS)
			break;
		workers[host] = store_on(host, scout_server_endpoint(servers[host]), argv[1], &store);
	}
	scout_client_free(client);
	for (int host = 0; host < HOSTS; host++) {
		scout_worker_free(workers[host]);
		scout_server_stop(servers[host]);
	}
	return 0;
}
