/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Looking at a client: its event descriptor, its counters, and whether its servers are there. The caller's thread;
 * scout_client_wait_ready() is the only call here that blocks.
 */
#include "client_internal.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "doorbell.h"
#include "sized.h"

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
	s->frames_sent = load(&courier->frames_sent);
	s->frames_received = load(&courier->frames_received);
	s->reconnects = load(&courier->reconnects);
	s->epochs = load(&courier->epochs);
	s->protocol_errors = load(&courier->protocol_errors);
	s->live = client->n_live;
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
	uint64_t end_ns = scout__now_ns() + (uint64_t)timeout_ms * 1000000u;
	struct timespec until = {.tv_sec = (time_t)(end_ns / 1000000000u), .tv_nsec = (long)(end_ns % 1000000000u)};
	int rc = 0;

	if (!client)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "client is NULL");
	if (scout__courier_forked(client->courier))
		return scout__fail(err, err_len, SCOUT_ERR_FORKED, "%s", scout_strerror(SCOUT_ERR_FORKED));
	(void)pthread_mutex_lock(&client->ready_mu);
	/* Unreachable may pass, and a lost epoch too; a refusal will not. */
	while (client->ready_up < client->n_links && rc != ETIMEDOUT &&
	       (client->ready_error == 0 || scout_err_is_retriable(client->ready_error)))
		rc = pthread_cond_timedwait(&client->ready_cond, &client->ready_mu, &until);
	if (client->ready_up >= client->n_links)
		rc = 0;
	else if (client->ready_error != 0 && !scout_err_is_retriable(client->ready_error))
		rc = scout__fail(err, err_len, client->ready_error, "%s", client->ready_text);
	else
		rc = scout__fail(err, err_len, SCOUT_ERR_TIMEOUT, "no answer to HELLO within %u ms: %s", timeout_ms,
				 client->ready_text);
	(void)pthread_mutex_unlock(&client->ready_mu);
	return rc;
}
