/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_CLIENT_SIZED_H
#define KVSCOUT_CLIENT_SIZED_H

/*
 * What the inline calls of <kvscout/client.h> call: functions that take the sizes of their structures. That header
 * includes this one. C and C++ use the inline calls. A language that has none calls these, with the sizes of its own
 * copies of the structures. The comment of an inline call holds for its function here, too; the head of client.h
 * says which sizes are legal.
 */

#include <stddef.h>
#include <stdint.h>

#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

struct scout_client;
struct scout_client_config;
struct scout_client_counters;
struct scout_config_row;
struct scout_feed_event;
struct scout_finish;
struct scout_hit;
struct scout_key_answer;
struct scout_key_query;
struct scout_query;

/* ---- client.h ---- */

SCOUT_API void scout_client_config_init_sized(struct scout_client_config *cfg, uint32_t size);
SCOUT_API SCOUT_MUST_CHECK int scout_client_config_help_sized(size_t i, struct scout_config_row *ret_row, size_t size);
SCOUT_API SCOUT_MUST_CHECK int scout_try_lookup_sized(struct scout_client *client, const struct scout_query *query,
						      size_t query_size, struct scout_hit *ret_hit, size_t hit_size);
SCOUT_API SCOUT_MUST_CHECK int scout_poll_lookup_sized(struct scout_client *client, const char *id,
						       uint64_t computed_tokens, struct scout_hit *ret_hit,
						       size_t hit_size);
SCOUT_API SCOUT_MUST_CHECK int scout_lookup_ahead_sized(struct scout_client *client, const struct scout_query *query,
							size_t query_size);
SCOUT_API SCOUT_MUST_CHECK int scout_wait_lookup_sized(struct scout_client *client, const struct scout_query *query,
						       size_t query_size, struct scout_hit *ret_hit, size_t hit_size);
SCOUT_API SCOUT_MUST_CHECK int scout_lookup_sized(struct scout_client *client, const struct scout_query *query,
						  size_t query_size, struct scout_hit *ret_hit, size_t hit_size);
SCOUT_API int scout_finish_keep_sized(struct scout_client *client, const char *id, const struct scout_finish *finish,
				      size_t size);

/* ---- client_keys.h ---- */

SCOUT_API SCOUT_MUST_CHECK int scout_lookup_keys_sized(struct scout_client *client, const struct scout_key_query *query,
						       size_t query_size, uint8_t *ret_states,
						       struct scout_key_answer *ret_answer, size_t answer_size);

/* ---- client_feed.h ---- */

SCOUT_API SCOUT_MUST_CHECK int scout_feed_sized(struct scout_client *client, struct scout_feed_event *ret_events,
						size_t event_size, size_t max);

/* ---- client_stats.h ---- */

SCOUT_API SCOUT_MUST_CHECK int scout_client_stats_sized(struct scout_client *client,
							struct scout_client_counters *ret_counters, size_t size);

#ifdef __cplusplus
}
#endif

#endif
