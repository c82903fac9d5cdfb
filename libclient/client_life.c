/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How a client begins and ends, on the caller's thread: its memory, the content of its HELLO, and its courier. One destroy() also
 * takes what is half built. The courier's thread is started last and joined first, so nothing else runs while there is only a part
 * of the client.
 */
#include "client_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client_config.h"
#include "cpus.h"
#include "group_list.h"
#include "instance_paths.h"
#include "lookup_internal.h"
#include "option_list.h"

/* KV ranks are spread over the servers in the order of the list, evenly. */
static void
fill_hellos(const struct scout_client *client, struct scout__hello *hello)
{
	const struct scout_client_config *cfg = &client->cfg;
	uint32_t each = cfg->kv_ranks / client->n_links;

	for (uint32_t i = 0; i < client->n_links; i++) {
		hello[i] = (struct scout__hello){
			.role = SCOUT_ROLE_CLIENT,
			.hash_bytes = (uint16_t)cfg->hash_bytes,
			.chunk_tokens = cfg->chunk_tokens,
			.rank_first = (uint16_t)(i * each),
			.rank_count = (uint16_t)each,
			.kv_ranks = (uint16_t)cfg->kv_ranks,
			.readers = (uint16_t)cfg->readers,
			.heartbeat_ms = cfg->heartbeat_ms,
			.hash_tokens = cfg->hash_tokens,
			.weights = cfg->weights_version,
			.name_space = {cfg->name_space, (uint16_t)strlen(cfg->name_space)},
		};
		hello[i].groups = client->groups;
	}
}

static int
start_courier(struct scout_client *client, const char *const *endpoints, char *err, size_t err_len)
{
	struct scout__hello hello[SCOUT__ENDPOINTS_MAX];
	const struct scout__starter_config instance = {
		.endpoint = endpoints[0],
		.server_program = client->cfg.server_program,
		.server_keys = client->cfg.server_keys,
		.log = &client->log,
	};
	struct scout__courier_config cc = {
		.ops = &scout__lookup_ops,
		.user = client,
		.name = "scout-courier",
		.log = &client->log,
		.ring_words = client->n_slots * SCOUT__WORDS_PER_SLOT + 8,
		.user_fd = -1,
		.spin_us = client->cfg.spin_us,
		.heartbeat_ms = client->cfg.heartbeat_ms,
		.connect_timeout_ms = client->cfg.connect_timeout_ms,
		.endpoints = endpoints,
		.instance = scout__instance_is_auto(endpoints[0]) ? &instance : NULL,
		.n_links = client->n_links,
		.hello = hello,
		.curve_secret_file = client->cfg.curve_secret_file,
		.curve_server_key = client->cfg.curve_server_key,
		.shm = client->cfg.local_transport == SCOUT_LOCAL_SHM,
	};

	fill_hellos(client, hello);
	return scout__courier_new(&cc, &client->courier, err, err_len);
}

static int
init_ready(struct scout_client *client)
{
	pthread_condattr_t attr;
	int rc;

	if (pthread_condattr_init(&attr) != 0)
		return SCOUT_ERR_NOMEM;
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	rc = pthread_cond_init(&client->ready_cond, &attr);
	(void)pthread_condattr_destroy(&attr);
	if (rc != 0)
		return SCOUT_ERR_NOMEM;
	(void)pthread_mutex_init(&client->ready_mu, NULL); /* cannot fail on Linux */
	return 0;
}

static int
init_give_back(struct scout_client *client)
{
	client->give_back = calloc(client->n_links, sizeof(*client->give_back));
	if (!client->give_back)
		return SCOUT_ERR_NOMEM;
	for (uint32_t what = 0; what < SCOUT__BROADCASTS; what++) {
		client->broadcasts[what].links = calloc(client->n_links, sizeof(*client->broadcasts[what].links));
		if (!client->broadcasts[what].links)
			return SCOUT_ERR_NOMEM;
	}
	for (uint32_t i = 0; i < client->n_links; i++) {
		client->give_back[i].cap = 4 * client->n_slots;
		client->give_back[i].tickets = scout__lazy_alloc(client->give_back[i].cap * sizeof(uint64_t));
		if (!client->give_back[i].tickets)
			return SCOUT_ERR_NOMEM;
	}
	return 0;
}

static void
destroy(struct scout_client *client)
{
	for (uint32_t i = 0; client->give_back && i < client->n_links; i++)
		scout__lazy_free(client->give_back[i].tickets, client->give_back[i].cap * sizeof(uint64_t));
	free(client->give_back);
	for (uint32_t what = 0; what < SCOUT__BROADCASTS; what++)
		free(client->broadcasts[what].links);
	for (uint32_t i = 0; client->slots && i < client->n_seen; i++) {
		scout__ahead_free(&client->slots[i]);
		scout__lengths_free(&client->slots[i]);
	}
	scout__ring_fini(&client->freed);
	scout__arena_fini(&client->arena);
	scout__table_fini(client);
	if (client->event_fd >= 0)
		(void)close(client->event_fd);
	(void)pthread_cond_destroy(&client->ready_cond);
	(void)pthread_mutex_destroy(&client->ready_mu);
	scout_client_config_fini(&client->cfg);
	free(client);
}

/* What follows from the groups. */
static void
take_groups(struct scout_client *client)
{
	const struct scout_client_config *cfg = &client->cfg;
	struct scout__group_keys keys = {cfg->chunk_tokens, cfg->hash_tokens, cfg->readers};
	const struct scout__group *first = &client->groups.group[0];
	uint64_t tokens = cfg->hash_tokens;

	scout__groups_of(cfg->group, &keys, &client->groups);
	client->is_run = true;
	for (uint32_t g = 0; g < client->groups.n; g++) {
		uint64_t a = tokens, b = client->groups.group[g].unit_tokens;

		client->is_run = client->is_run && client->groups.group[g].policy == SCOUT__POLICY_ALL;
		while (b != 0) { /* a becomes the greatest common divisor */
			uint64_t rest = a % b;

			a = b;
			b = rest;
		}
		tokens = tokens / a * client->groups.group[g].unit_tokens;
		if (tokens > (uint64_t)SCOUT_MAX_CHUNKS * cfg->hash_tokens)
			tokens = ((uint64_t)SCOUT_MAX_CHUNKS + 1) * cfg->hash_tokens; /* longer than any prompt */
	}
	client->stride = (uint32_t)(tokens / cfg->hash_tokens);
	client->is_plain = client->groups.n == 1 && client->is_run && first->unit_tokens == cfg->hash_tokens &&
			   first->margin_tokens == 0;
}

static int
allocate(struct scout_client *client)
{
	take_groups(client);
	client->n_slots = 2 * client->cfg.max_lookups;
	client->step_no = 1;
	client->step_head = SCOUT__NO_SLOT;
	client->todo = client->blocked = (struct scout__lookup_list){SCOUT__NO_SLOT, SCOUT__NO_SLOT};
	scout__deadlines_init(client);
	if (scout__table_init(client) != 0 || scout__arena_init(&client->arena, client->cfg.arena_bytes) != 0 ||
	    scout__ring_init(&client->freed, client->n_slots) != 0 || init_give_back(client) != 0)
		return SCOUT_ERR_NOMEM;
	client->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return client->event_fd < 0 ? SCOUT_ERR_SYSTEM : 0;
}

static bool
has_auto(const char *const *endpoints, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (scout__instance_is_auto(endpoints[i]))
			return true;
	return false;
}

static int
start(struct scout_client *client, char *err, size_t err_len)
{
	const char *endpoint = client->cfg.endpoint ? client->cfg.endpoint : "auto";
	const char **endpoints;
	int rc;

	/* Until the courier has something to say. */
	(void)snprintf(client->ready_text, sizeof(client->ready_text), "%s", endpoint);
	rc = scout__list_split(endpoint, &endpoints, &client->n_links);
	if (rc)
		return scout__fail(err, err_len, rc, "endpoint: out of memory");
	if (client->n_links > 1 && has_auto(endpoints, client->n_links))
		rc = scout__fail(err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
				 "endpoint = \"%s\": auto is the server of this host, and cannot be one of several",
				 endpoint);
	else if (client->cfg.kv_ranks % client->n_links != 0)
		rc = scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				 "kv_ranks = %u: must be a multiple of the number of endpoints (%u)",
				 client->cfg.kv_ranks, client->n_links);
	else if ((rc = allocate(client)) != 0)
		rc = scout__fail(err, err_len, rc, "%s", scout_strerror(rc));
	else
		rc = start_courier(client, endpoints, err, err_len);
	free(endpoints);
	return rc;
}

static int
start_on_cpus(struct scout_client *client, char *err, size_t err_len)
{
	struct scout__cpus_scope cpus;
	int rc = scout__cpus_enter(&cpus, client->cfg.cpus, NULL, err, err_len);

	if (rc)
		return rc;
	rc = start(client, err, err_len);
	scout__cpus_leave(&cpus);
	return rc;
}

int
scout_client_new(const struct scout_client_config *cfg, struct scout_client **ret_client, char *err, size_t err_len)
{
	struct scout_client *client;
	int rc;

	if (!cfg || !ret_client)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "cfg and ret_client must not be NULL");
	client = aligned_alloc(_Alignof(struct scout_client), sizeof(*client));
	if (!client)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	memset(client, 0, sizeof(*client));
	client->event_fd = -1;
	if (init_ready(client) != 0) {
		free(client);
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "out of memory");
	}
	rc = scout__client_config_accept(&client->cfg, cfg, err, err_len);
	client->log = (struct scout__log){client->cfg.log, client->cfg.log_user, "client", &client->log_gate};
	if (rc == 0)
		rc = start_on_cpus(client, err, err_len);
	if (rc != 0) {
		destroy(client);
		return rc;
	}
	*ret_client = client;
	return 0;
}

void
scout_client_free(struct scout_client *client)
{
	if (!client || scout__courier_forked(client->courier))
		return; /* a child's copy: the parent's courier uses the original, and here no thread does */
	scout__courier_free(client->courier);
	destroy(client);
}

void
scout_client_log_off(struct scout_client *client)
{
	/* A child's copy of the gate may count a call that only the parent will end. */
	if (client && !scout__courier_forked(client->courier))
		scout__log_shut(&client->log_gate);
}
