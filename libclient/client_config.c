/* SPDX-License-Identifier: Apache-2.0 */
#include "client_config.h"

#include <string.h>

#include <kvscout/protocol.h>

#include "group_list.h"
#include "log.h"
#include "option_list.h"
#include "shared_options.h"
#include "utf8.h"

/* The client's option table, and the public calls on it; option.h lists what a new key needs. Any thread. */

#define MAX_LOOKUPS 65536u
/* One step may ask for the whole queue: for each request the hashes of 65,536 tokens, and some room more. */
#define ARENA_BYTES (MAX_LOOKUPS * UINT64_C(8704))

#define FIELD(name) offsetof(struct scout_client_config, name)

static const char *const lookup_modes[] = {
	[SCOUT_LOOKUP_ASYNC] = "async",
	[SCOUT_LOOKUP_POLLED] = "polled",
	NULL,
};

static const struct scout__option options[] = {
	SCOUT__OPTION(
		LIST, endpoint, .min = 1, .max = 4096, .max_items = SCOUT__ENDPOINTS_MAX,
		.check_item = scout__list_check_endpoint,
		.doc = "Where the server listens: `ipc:///path` or `tcp://host:port`. "
		       "Unset or `auto`: the server of this user on this host, which is started if there is none; "
		       "`auto:///folder`: another server, with its files there. Of several servers, each holds some of the KV ranks, and the smallest hit counts"),
	SCOUT__OPTION_NAMESPACE,
	SCOUT__OPTION_CHUNK_TOKENS,
	SCOUT__OPTION_HASH_TOKENS,
	SCOUT__OPTION_GROUP,
	SCOUT__OPTION_KV_RANKS("KV ranks of the model: a chunk is there when all ranks have stored it"),
	SCOUT__OPTION_READERS,
	SCOUT__OPTION(WORD, lookup_mode, .def = SCOUT_LOOKUP_ASYNC, .min = SCOUT_LOOKUP_ASYNC,
		      .max = SCOUT_LOOKUP_POLLED, .words = lookup_modes,
		      .doc = "Whether scout_lookup() returns at once (async) or waits (polled)"),
	SCOUT__OPTION(
		U32, lookup_timeout_ms, .def = 500, .min = 1, .max = SCOUT_LOOKUP_TIMEOUT_MAX_MS,
		.doc = "A lookup without an answer ends as a miss after this time, unless it has a longer timeout of its own or waits "
		       "for late keys"),
	SCOUT__OPTION(
		U32, lookup_refresh_ms, .def = 1000, .min = 1, .max = 3600000, .beyond = "never",
		.doc = "An answer that was not admitted and is this old at the next ask is renewed in the background"),
	SCOUT__OPTION(
		U32, step_wait_us, .max = 1000000,
		.doc = "How long scout_lookup() may wait for answers in each step, all calls together; 0: not at all"),
	SCOUT__OPTION(U32, lookup_poll_interval_ms, .def = 5, .min = 1, .max = 60000,
		      .doc = "How often a waiting lookup looks for its answer"),
	SCOUT__OPTION(
		U32, lookup_poll_key_timeout_ms, .max = 3600000,
		.doc = "How long the server waits for expected chunks (`expect_tokens`), and the lookup for its answer; "
		       "0: not at all"),
	SCOUT__OPTION(U32, lookup_poll_key_intervals_ms, .alias = "lookup_poll_key_interval_ms", .max = 600000,
		      .doc = "How often the server asks for expected chunks again; 0: not at all"),
	SCOUT__OPTION(BOOL, lookup_poll_key_all, .max = 1,
		      .doc = "With both times set, also wait for all chunks of lookups without `expect_tokens`"),
	SCOUT__OPTION_CURVE_SECRET_FILE(
		"CURVE: file with the secret key of this side, which only its owner may read; unset: no encryption"),
	SCOUT__OPTION_CURVE_SERVER_KEY,
	SCOUT__OPTION_HEARTBEAT_MS,
	SCOUT__OPTION_CONNECT_TIMEOUT_MS(
		"How long lookups wait for the first connection; after that they end at once until the connection is there"),
	SCOUT__OPTION(U32, max_lookups, .def = MAX_LOOKUPS, .min = 1, .max = 1048576,
		      .doc = "Live request ids, at most; memory is taken as they are used"),
	SCOUT__OPTION_HASH_BYTES,
	SCOUT__OPTION_SPIN_US(
		"How long the courier looks for work, and scout_wait_lookup() for its answer, before they sleep"),
	SCOUT__OPTION(
		SIZE, arena_bytes, .def = ARENA_BYTES, .min = UINT64_C(64) << 10, .max = UINT64_C(64) << 30,
		.doc = "Memory for hashes that wait for the courier; taken as it is used, so as much as the largest step needs"),
	SCOUT__OPTION_WEIGHTS_VERSION,
	SCOUT__OPTION_LOCAL_TRANSPORT(
		"Frames to a server on the same machine travel through shared memory (shm) or the socket"),
	SCOUT__OPTION_CPUS(
		"CPUs of this library's threads: a list (0-3,8), inherit (those of the thread that makes the client), or auto: all that the process may use, however that thread is pinned"),
	SCOUT__OPTION_SERVER_PROGRAM,
	SCOUT__OPTION_SERVER_KEYS,
};

const struct scout__option_table scout__client_options =
	SCOUT__OPTION_TABLE(scout_client_config, options, .env_prefix = "KVSCOUT_");

SCOUT__OPTION_CALLS(client, &scout__client_options)

int
scout_client_config_load_env(struct scout_client_config *cfg, char *err, size_t err_len)
{
	return scout__options_load_env(&scout__client_options, cfg, err, err_len);
}

/* Checks that one row of the table cannot express. */
static int
check(const struct scout_client_config *cfg, char *err, size_t err_len)
{
	if (cfg->name_space && !scout__utf8_is_name(cfg->name_space, strlen(cfg->name_space)))
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "namespace must be UTF-8 text without control characters");
	return 0;
}

int
scout__client_config_accept(struct scout_client_config *dst, const struct scout_client_config *src, char *err,
			    size_t err_len)
{
	int rc = scout__options_accept(&scout__client_options, dst, src, err, err_len);

	if (rc)
		return rc;
	rc = check(dst, err, err_len);
	if (rc == 0)
		rc = scout__groups_accept(dst->group, dst->chunk_tokens, &dst->hash_tokens, dst->readers, err, err_len);
	if (rc) {
		scout_client_config_fini(dst);
		memset(dst, 0, sizeof(*dst));
	}
	return rc;
}
