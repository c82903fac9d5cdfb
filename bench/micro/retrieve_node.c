/* SPDX-License-Identifier: Apache-2.0 */
/* Server, client, worker and a way to the server's counters: what each turn of micro_retrieve starts anew. */
#include "retrieve.h"

#include <poll.h>
#include <stdlib.h>

#include "say.h"

_Noreturn void
retrieve_die(struct micro_retrieve *b, const char *what, int rc)
{
	complain("%s: %s", what, b->err[0] ? b->err : scout_strerror(rc));
	exit(EXIT_FAILURE); // NOLINT(concurrency-mt-unsafe): no other thread calls it
}

void
retrieve_check(struct micro_retrieve *b, int rc, const char *what)
{
	if (rc < 0)
		retrieve_die(b, what, rc);
}

static void
server_up(struct micro_retrieve *b, struct retrieve_node *node, unsigned mode, uint64_t l1_bytes)
{
	struct scout_server_config cfg;
	int rc;

	scout_server_config_init(&cfg);
	cfg.l1_bytes = l1_bytes;
	cfg.extent_bytes = l1_bytes;
	cfg.max_promised = l1_bytes;
	cfg.l2 = b->url;
	cfg.l2_queue_bytes = l1_bytes;
	cfg.prefetch = mode;
	cfg.log = complain_log;
	rc = settings_server(&b->opt.settings, &cfg, b->err, sizeof(b->err));
	if (rc == 0)
		rc = scout_server_start(&cfg, &node->server, b->err, sizeof(b->err));
	scout_server_config_fini(&cfg);
	retrieve_check(b, rc, "server");
}

static void
client_up(struct micro_retrieve *b, struct retrieve_node *node)
{
	struct scout_client_config cfg;
	int rc;

	scout_client_config_init(&cfg);
	cfg.endpoint = scout_server_endpoint(node->server);
	cfg.name_space = TOOL;
	cfg.chunk_tokens = CHUNK_TOKENS;
	cfg.lookup_timeout_ms = (uint32_t)b->opt.lookup_timeout_ms;
	if (b->opt.poll_key_ms) {
		cfg.lookup_poll_key_timeout_ms = (uint32_t)b->opt.lookup_timeout_ms;
		cfg.lookup_poll_key_intervals_ms = (uint32_t)b->opt.poll_key_ms;
	}
	cfg.log = complain_log;
	rc = settings_client(&b->opt.settings, &cfg, b->err, sizeof(b->err));
	if (rc == 0)
		rc = scout_client_new(&cfg, &node->client, b->err, sizeof(b->err));
	scout_client_config_fini(&cfg);
	retrieve_check(b, rc, "client");
	retrieve_check(b, scout_client_wait_ready(node->client, READY_MS, b->err, sizeof(b->err)), "client");
}

static void
worker_up(struct micro_retrieve *b, struct retrieve_node *node)
{
	struct scout_worker_config cfg;
	const struct scout_table layout = {
		.block_tokens = CHUNK_TOKENS / BLOCKS,
		.n_planes = PLANES,
		.planes = b->mem.planes,
		.n_blocks = b->mem.n_blocks,
		.null_block = -1,
	};

	scout_worker_config_init(&cfg);
	cfg.endpoint = scout_server_endpoint(node->server);
	cfg.name_space = TOOL;
	cfg.backend = "host";
	cfg.chunk_tokens = CHUNK_TOKENS;
	cfg.transfer_timeout_ms = PATIENT_MS;
	cfg.log = complain_log;
	retrieve_check(b, scout_worker_new(&cfg, &node->worker, b->err, sizeof(b->err)), "worker");
	retrieve_check(b, scout_worker_register(node->worker, &layout, 1, READY_MS, b->err, sizeof(b->err)), "worker");
}

uint64_t
retrieve_counter(struct micro_retrieve *b, struct retrieve_node *node, const char *name)
{
	uint64_t value = 0;
	int rc = probe_counter(node->probe, name, &value, b->err, sizeof(b->err));

	/* Some are not there while they are 0. */
	b->err[0] = '\0';
	if (rc != SCOUT_ERR_UNSUPPORTED)
		retrieve_check(b, rc, name);
	return value;
}

void
retrieve_wait_counter(struct micro_retrieve *b, struct retrieve_node *node, const char *name, uint64_t value)
{
	while (retrieve_counter(b, node, name) != value)
		(void)poll(NULL, 0, 1);
}

void
retrieve_node_up(struct micro_retrieve *b, struct retrieve_node *node, unsigned mode, uint64_t l1_bytes)
{
	struct probe_config probe = {
		.name_space = TOOL, .chunk_tokens = CHUNK_TOKENS, .kv_ranks = 1, .hash_bytes = HASH_BYTES};

	*node = (struct retrieve_node){.server = NULL};
	server_up(b, node, mode, l1_bytes);
	client_up(b, node);
	worker_up(b, node);
	probe.endpoint = scout_server_endpoint(node->server);
	retrieve_check(b, probe_new(&probe, &node->probe, b->err, sizeof(b->err)), "probe");
	retrieve_wait_counter(b, node, "l2.0.ready", 1);
}

void
retrieve_node_down(struct retrieve_node *node)
{
	probe_free(node->probe);
	scout_worker_free(node->worker);
	scout_client_free(node->client);
	scout_server_stop(node->server);
}

struct scout_done
retrieve_wait_job(struct micro_retrieve *b, struct retrieve_node *node, uint64_t job)
{
	struct pollfd fd = {.fd = scout_worker_fd(node->worker), .events = POLLIN};
	struct scout_done done;
	int n;

	while ((n = scout_worker_poll(node->worker, &done, 1)) == 0)
		(void)poll(&fd, 1, 1000);
	retrieve_check(b, n, "poll");
	if (done.job != job)
		retrieve_die(b, "poll", SCOUT_ERR_STATE);
	return done;
}
