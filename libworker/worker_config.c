/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_config.h"

#include <string.h>

#include <kvscout/protocol.h>

#include "group_list.h"
#include "log.h"
#include "option_list.h"
#include "instance_paths.h"
#include "shared_options.h"
#include "utf8.h"
#include "numa.h"

/* The worker's option table, and the public calls on it; option.h lists what a new key needs. Any thread. */

#define FIELD(name) offsetof(struct scout_worker_config, name)

static const struct scout__option options[] = {
	SCOUT__OPTION(STRING, endpoint, .min = 1, .max = 4096, .check_item = scout__list_check_one_endpoint,
		      .doc = "Where the server of this machine listens: `ipc:///path` or `tcp://host:port`"),
	SCOUT__OPTION_NAMESPACE,
	SCOUT__OPTION(STRING, backend, .min = 1, .max = 64, .def_text = "auto",
		      .doc = "Copy engine: host, cuda, or auto: cuda for pages in the memory of a CUDA device"),
	SCOUT__OPTION_CHUNK_TOKENS,
	SCOUT__OPTION_HASH_TOKENS,
	SCOUT__OPTION_GROUP,
	SCOUT__OPTION_KV_RANKS("KV ranks of the model"),
	SCOUT__OPTION(U32, rank_first, .max = SCOUT_MAX_RANKS - 1, .doc = "First KV rank that this server holds"),
	SCOUT__OPTION(U32, rank_count, .max = SCOUT_MAX_RANKS, .def_text = "kv_ranks",
		      .doc = "How many KV ranks this server holds; 0: the default"),
	SCOUT__OPTION(U32, kv_rank, .max = SCOUT_MAX_RANKS - 1, .doc = "KV rank of this worker"),
	SCOUT__OPTION_READERS,
	SCOUT__OPTION(U32, reader, .max = SCOUT_MAX_READERS - 1, .doc = "Which of these readers this worker is"),
	SCOUT__OPTION_HASH_BYTES,
	SCOUT__OPTION(U32, transfer_timeout_ms, .def = 30000, .min = 1, .max = 3600000,
		      .doc = "A job that could not start its first copy ends after this time"),
	SCOUT__OPTION_CURVE_SECRET_FILE(
		"CURVE: file with the secret key of this side, which only its owner may read; unset: no encryption"),
	SCOUT__OPTION_CURVE_SERVER_KEY,
	SCOUT__OPTION_HEARTBEAT_MS,
	SCOUT__OPTION_CONNECT_TIMEOUT_MS(
		"How long jobs wait for the first connection; after that they end at once until the connection is there"),
	SCOUT__OPTION(U32, max_jobs, .def = 4096, .min = 1, .max = SCOUT__MAX_JOBS,
		      .doc = "Jobs that poll has not reported yet, at most; memory is taken as they are used"),
	SCOUT__OPTION_SPIN_US("How long the courier spins before it sleeps"),
	SCOUT__OPTION_WEIGHTS_VERSION,
	SCOUT__OPTION(STRING, copy_method, .min = 1, .max = 16, .def_text = "auto",
		      .doc = "How the cuda backend copies: staged, batch, or auto, by the size of the pieces"),
	SCOUT__OPTION(SIZE, stage_bytes, .def = 128 << 20, .min = 512 << 10, .max = 16ull << 30,
		      .doc = "GPU memory that the cuda backend takes for each direction"),
	SCOUT__OPTION(
		STRING, numa_node, .min = 1, .max = 4, .def_text = "auto",
		.doc = "NUMA node for the pool's memory of this KV rank: a number, none, or auto: the GPU's node if "
		       "the kernel names one, else the node that the worker registers on; with several readers the first to "
		       "register decides"),
	SCOUT__OPTION_LOCAL_TRANSPORT(
		"Frames to a server on the same machine travel through shared memory (shm) or the socket"),
	SCOUT__OPTION_CPUS(
		"CPUs of this library's threads: a list (0-3,8), inherit (those of the calling thread), or auto: all that the process may use on the NUMA node of the pages, however that thread is pinned"),
	SCOUT__OPTION_SERVER_PROGRAM,
	SCOUT__OPTION_SERVER_KEYS,
};

const struct scout__option_table scout__worker_options =
	SCOUT__OPTION_TABLE(scout_worker_config, options, .env_prefix = NULL);

SCOUT__OPTION_CALLS(worker, &scout__worker_options)

/* Checks that one row of the table cannot express. */
static int
check(const struct scout_worker_config *cfg, char *err, size_t err_len)
{
	uint16_t node;

	if (cfg->rank_first + cfg->rank_count > cfg->kv_ranks)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "rank_first = %u, rank_count = %u: kv_ranks = %u is exceeded",
				   (unsigned)cfg->rank_first, (unsigned)cfg->rank_count, (unsigned)cfg->kv_ranks);
	if (scout__instance_is_auto(cfg->endpoint) && cfg->rank_count < cfg->kv_ranks)
		return scout__fail(
			err, err_len, SCOUT_ERR_CONFIG_RANGE,
			"endpoint is not set or auto, and of kv_ranks = %u this server holds rank_count = %u: the "
			"others are on other nodes, which do not share a server; start one kvscoutd on each node, set endpoint to it "
			"in the workers of that node, and to the list of all in the client",
			(unsigned)cfg->kv_ranks, (unsigned)cfg->rank_count);
	if (cfg->kv_rank < cfg->rank_first || cfg->kv_rank >= cfg->rank_first + cfg->rank_count)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "kv_rank = %u: must be %u..%u, the KV ranks of this server", (unsigned)cfg->kv_rank,
				   (unsigned)cfg->rank_first, (unsigned)(cfg->rank_first + cfg->rank_count - 1));
	if (!scout__numa_parse(cfg->numa_node, "", &node))
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "numa_node = \"%s\": must be auto, none or 0..%u", cfg->numa_node,
				   SCOUT__NUMA_MAX - 1);
	if (cfg->reader >= cfg->readers)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "reader = %u: must be 0..%u, below readers",
				   (unsigned)cfg->reader, (unsigned)(cfg->readers - 1));
	if (cfg->name_space && !scout__utf8_is_name(cfg->name_space, strlen(cfg->name_space)))
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE,
				   "namespace must be UTF-8 text without control characters");
	return 0;
}

int
scout__worker_config_accept(struct scout_worker_config *dst, const struct scout_worker_config *src, char *err,
			    size_t err_len)
{
	int rc = scout__options_accept(&scout__worker_options, dst, src, err, err_len);

	if (rc)
		return rc;
	if (!dst->rank_count)
		dst->rank_count = dst->kv_ranks;
	rc = check(dst, err, err_len);
	if (rc == 0)
		rc = scout__groups_accept(dst->group, dst->chunk_tokens, &dst->hash_tokens, dst->readers, err, err_len);
	if (rc) {
		scout_worker_config_fini(dst);
		memset(dst, 0, sizeof(*dst));
	}
	return rc;
}
