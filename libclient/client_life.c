/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How a client begins and ends, on the caller's thread: its memory, the content of its HELLO, and its courier. One destroy() also
 * frees a half-built client. The courier's thread is started last and joined first, so no second thread ever sees a part of a
 * client.
 *
 * Calls that look at a client: its event descriptor, its counters, and whether its servers are there. Only
 * scout_client_wait_ready() blocks.
 *
 * A reset (new weights) and a clear (drop what is cached) end the live requests and leave one number for the courier: the version,
 * or the clear's name. lookup_broadcast.c sends the number to every server.
 *
 * The latest one wins. The number lies in one word that a later call overwrites, and at most one word for the number is in the
 * ring: so the call is never refused, however long a server is away. The courier clears `queued` before it reads the number: a
 * call that comes later pushes a word of its own.
 */
#include "client_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "client_config.h"
#include "clock.h"
#include "cpus.h"
#include "doorbell.h"
#include "group_list.h"
#include "instance_paths.h"
#include "lookup_internal.h"
#include "option_list.h"
#include "sized.h"

/* Spread the KV ranks evenly over the servers, in the order of the list. */
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
	free(client->feed.pages[0].body);
	free(client->feed.pages[1].body);
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

/* Set the fields that follow from the groups. */
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
	client->todo = client->blocked = client->held = (struct scout__lookup_list){SCOUT__NO_SLOT, SCOUT__NO_SLOT};
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

	/* The text until the courier has written one. */
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
		return scout__fail_no_memory(err, err_len);
	memset(client, 0, sizeof(*client));
	client->event_fd = -1;
	scout__cond_init(&client->ready_cond);
	(void)pthread_mutex_init(&client->ready_mu, NULL); /* cannot fail on Linux */
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
		return; /* a child's copy: its courier runs only in the parent */
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

/* ---- looking at a client ---- */

int
scout_client_fd(struct scout_client *client)
{
	if (!client)
		return SCOUT_ERR_INVALID;
	if (scout__courier_forked(client->courier))
		return SCOUT_ERR_FORKED;
	if (atomic_exchange(&client->event_armed, 1) == 0)
		scout__eventfd_raise(client->event_fd); /* answers that landed before are not lost: look once */
	return client->event_fd;
}

void
scout_client_fd_clear(struct scout_client *client)
{
	if (client && !scout__courier_forked(client->courier))
		(void)scout__eventfd_lower(client->event_fd);
}

static uint64_t
load(const atomic_uint_fast64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void
collect_stats(struct scout_client *client, struct scout_client_counters *s)
{
	const struct scout__courier_stats *courier = scout__courier_counts(client->courier);

	*s = client->stats;
	s->servers_up = atomic_load_explicit(&courier->servers_up, memory_order_acquire);
	s->answers += load(&client->counts.answers);
	s->dropped = load(&client->counts.dropped);
	s->hits += load(&client->counts.hits);
	s->timeouts += load(&client->counts.timeouts);
	s->unreachable += load(&client->counts.unreachable);
	s->refused += load(&client->counts.refused);
	s->late += load(&client->counts.late) + load(&courier->late_replies);
	s->hit_tokens += load(&client->counts.hit_tokens);
	s->hit_keys = load(&client->counts.hit_keys);
	s->keeps_accepted = load(&client->counts.keeps[SCOUT_OUTCOME_ACCEPTED]);
	s->keeps_clipped = load(&client->counts.keeps[SCOUT_OUTCOME_CLIPPED]);
	s->keeps_rejected = load(&client->counts.keeps[SCOUT_OUTCOME_REJECTED]);
	s->keeps_missing = load(&client->counts.keeps[SCOUT_OUTCOME_MISSING]);
	s->kept_tokens = load(&client->counts.kept_tokens);
	s->frames_sent = load(&courier->frames_sent);
	s->frames_received = load(&courier->frames_received);
	s->reconnects = load(&courier->reconnects);
	s->epochs = load(&courier->epochs);
	s->protocol_errors = load(&courier->protocol_errors);
	s->live = client->n_live;
	for (uint32_t what = 0; what < SCOUT__BROADCASTS; what++) {
		s->servers_untold += atomic_load(&client->broadcasts[what].untold);
		s->stores_behind += atomic_load(&client->broadcasts[what].behind);
	}
}

int
scout_client_stats_sized(struct scout_client *client, struct scout_client_counters *ret_counters, size_t size)
{
	struct scout_client_counters own;
	int rc;

	if (!client || !ret_counters)
		return SCOUT_ERR_INVALID;
	rc = scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_client_counters, dropped), size);
	if (rc == 0) {
		collect_stats(client, &own);
		scout__sized_write(ret_counters, size, &own, sizeof(own));
	}
	return rc;
}

int
scout_client_wait_ready(struct scout_client *client, uint32_t timeout_ms, char *err, size_t err_len)
{
	uint64_t until_us = scout__now_us() + (uint64_t)timeout_ms * 1000;
	int rc = 0;

	if (!client)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "client is NULL");
	if (scout__courier_forked(client->courier))
		return scout__fail(err, err_len, SCOUT_ERR_FORKED, "%s", scout_strerror(SCOUT_ERR_FORKED));
	(void)pthread_mutex_lock(&client->ready_mu);
	/* Unreachable may pass, and a lost epoch too; a refusal will not. */
	while (client->ready_up < client->n_links && rc != ETIMEDOUT &&
	       (client->ready_error == 0 || scout_err_is_retriable(client->ready_error)))
		rc = scout__cond_wait_until(&client->ready_cond, &client->ready_mu, until_us);
	if (client->ready_up >= client->n_links)
		rc = 0;
	else if (client->ready_error != 0 && !scout_err_is_retriable(client->ready_error))
		rc = scout__fail(err, err_len, client->ready_error, "%s", client->ready_text);
	else
		rc = scout__fail(err, err_len, SCOUT_ERR_TIMEOUT, "no answer to HELLO in time: %s", client->ready_text);
	(void)pthread_mutex_unlock(&client->ready_mu);
	return rc;
}

/* ---- reset and clear ---- */

static int
broadcast(struct scout_client *client, enum scout__broadcast_what what, uint64_t number)
{
	struct scout__broadcast *t = &client->broadcasts[what];
	uint32_t bucket = UINT32_MAX, i;

	while ((i = scout__table_any(client, &bucket)) != SCOUT__NO_SLOT)
		scout__client_forget(client, i);
	atomic_store(&t->number, number);
	atomic_store(&t->untold, client->n_links);
	atomic_store(&t->behind, 0);
	if (!atomic_exchange(&t->queued, true))
		scout__client_push(client, SCOUT__WORD(SCOUT__WORD_BROADCAST, (uint32_t)what));
	return 0;
}

int
scout_reset(struct scout_client *client, uint64_t weights_version)
{
	if (!client || weights_version == 0)
		return SCOUT_ERR_INVALID;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	return scout__client_leave(client, broadcast(client, SCOUT__BROADCAST_RESET, weights_version));
}

int
scout_clear(struct scout_client *client, uint64_t generation, uint64_t *ret_generation)
{
	int rc;

	if (!client || generation == SCOUT_GENERATION_ANY || scout__generation_of(generation) != generation)
		return SCOUT_ERR_INVALID;
	if (generation == 0 && !scout__draw_generation(&generation))
		return SCOUT_ERR_BUSY;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	rc = broadcast(client, SCOUT__BROADCAST_CLEAR, generation);
	if (ret_generation)
		*ret_generation = generation;
	return scout__client_leave(client, rc);
}
