/* SPDX-License-Identifier: Apache-2.0 */
#include "server_config.h"

#include <string.h>

#include "log.h"
#include "option_list.h"
#include "share_list.h"
#include "shared_options.h"

/* The server's option table, and the public calls on it; option.h lists what a new key needs. Any thread. */

static const char *const prefetch_words[] = {"on_retrieve", "on_lookup", "before_answer", NULL};
static const char *const l2_objects_words[] = {"retain", "temporary", NULL};

#define MIN_REQUEST_BYTES (UINT64_C(256) << 20) /* 25 lookups of the longest prompts */

#define FIELD(name) offsetof(struct scout_server_config, name)

static const struct scout__option options[] = {
	{
		.name = "listen",
		.type = SCOUT_OPTION_STRING,
		.offset = FIELD(listen),
		.min = 1,
		.max = 4096,
		.check_item = scout__list_check_listen,
		.doc = "`ipc:///path` or `tcp://host:port`; none: ipc in a private folder (kvscoutd: as `endpoint=auto`)",
	},
	{
		.name = "eviction",
		.type = SCOUT_OPTION_STRING,
		.offset = FIELD(eviction),
		.min = 1,
		.max = 64,
		.def_text = "hdc",
		.doc = "Policy that chooses what leaves the pool: hdc, lru, s3fifo[:SHARE]",
	},
	{
		.name = "l1_bytes",
		.type = SCOUT_OPTION_SIZE,
		.offset = FIELD(l1_bytes),
		.def = UINT64_C(1) << 30,
		.min = 1,
		.max = UINT64_C(1) << 50,
		.doc = "Host memory for chunks",
	},
	{
		.name = "extent_bytes",
		.type = SCOUT_OPTION_SIZE,
		.offset = FIELD(extent_bytes),
		.min = 0,
		.max = UINT64_C(1) << 50,
		.def_text = "64Mi, and more as l1_bytes needs",
		.doc = "The pool grows, and moves between namespaces, by this much at a time; at most an eighth of l1_bytes, "
		       "at least one chunk. By default at least 16 chunks, and so much that the memfds of the whole pool, one "
		       "for each KV rank of an extent, are 8192 at most, or half of the descriptors and mappings that the "
		       "process has left; 0: the default",
	},
	{
		.name = "prealloc",
		.type = SCOUT_OPTION_BOOL,
		.offset = FIELD(prealloc),
		.max = 1,
		.doc = "From the first registration on the pool grows to l1_bytes in the background, and workers pin it, so that "
		       "no store waits for it; else it grows as it fills",
	},
	{
		.name = "max_promised",
		.type = SCOUT_OPTION_SIZE,
		.offset = FIELD(max_promised),
		.min = 0,
		.max = UINT64_C(1) << 50,
		.def_text = "half of l1_bytes",
		.doc = "Bytes that promises to waiting requests may pin; clients within their share have up to an eighth more; 0: the "
		       "default",
	},
	{
		.name = "max_request_bytes",
		.type = SCOUT_OPTION_SIZE,
		.offset = FIELD(max_request_bytes),
		.min = 0,
		.max = UINT64_C(1) << 50,
		.def_text = "a 32nd of l1_bytes, at least 256Mi",
		.doc = "Host memory that live requests may take besides the pool: what sessions remember of their prompts, and "
		       "operations that wait, with their messages. Beyond that, the server refuses lookups and stores; the last "
		       "quarter is for peers with less than an equal part; 0: the default",
	},
	{
		.name = "feed_bytes",
		.type = SCOUT_OPTION_SIZE,
		.offset = FIELD(feed_bytes),
		.def = 16 << 20,
		.min = 16 << 10,
		.max = UINT64_C(1) << 30,
		.doc = "Feed of each namespace, in which clients read what became a hit and what stopped being one: at most so "
		       "many bytes for the newest events, while a client reads them, and at most so many for what STORE said of "
		       "its chunks. A client that reads too slowly starts over",
	},
	{
		.name = "tenant_share",
		.type = SCOUT_OPTION_LIST,
		.offset = FIELD(tenant_share),
		.min = 1,
		.max = 65536,
		.max_items = SCOUT__SHARE_ITEMS,
		.check_item = scout__share_check_item,
		.doc = "Fair shares: `NAME:PERCENT%` guarantees the tenant that part of its namespace's memory; without a "
		       "name: requests without a tenant; `*`: each tenant not named here; unset: none",
	},
	{
		.name = "namespace_share",
		.type = SCOUT_OPTION_LIST,
		.offset = FIELD(namespace_share),
		.min = 1,
		.max = 65536,
		.max_items = SCOUT__SHARE_ITEMS,
		.check_item = scout__share_check_item,
		.doc = "Fair shares: `NAME:PERCENT%` of the pool for each namespace named; the others have equal parts of "
		       "what is left; unset: all have equal parts",
	},
	{
		.name = "max_sessions",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(max_sessions),
		.def = 65536,
		.min = 1,
		.max = 16777216,
		.doc = "Requests that may be live at once, of all clients; clients within their share have up to an eighth more",
	},
	{
		.name = "max_peers",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(max_peers),
		.def = 1024,
		.min = 1,
		.max = 65536,
		.doc = "Clients and workers that may be connected at once",
	},
	{
		.name = "max_namespaces",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(max_namespaces),
		.def = 256,
		.min = 1,
		.max = 4096,
		.doc = "Namespaces that may exist at once; for one more, the server drops the namespace that all peers left first, "
		       "namespaces without chunks before others",
	},
	{
		.name = "peer_timeout_ms",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(peer_timeout_ms),
		.def = 10000,
		.min = 10,
		.max = 3600000,
		.doc = "A peer without a lease connection (on another machine) that is silent for this long is forgotten, and its "
		       "promises are free; if its heartbeat_ms is longer than a third of this time, after three heartbeats",
	},
	{
		.name = "idle_exit_s",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(idle_exit_s),
		.min = 0,
		.max = 31536000,
		.doc = "The server ends after this many seconds without a peer; 0: never. A server that endpoint=auto started has 60",
	},
	{
		.name = "dead_writer_ms",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(dead_writer_ms),
		.def = 30000,
		.min = 10,
		.max = 3600000,
		.doc = "Slots that a dead worker was writing are set aside for this long: its device may finish late",
	},
	{
		.name = "l2",
		.type = SCOUT_OPTION_LIST,
		.offset = FIELD(l2),
		.min = 1,
		.max = 16384,
		.max_items = SCOUT__L2_STORES_MAX,
		.check_item = scout__list_check_url,
		.doc = "L2: URLs of stores in the order of preference, `fs:///path`, `redis://host:port`, `s3://bucket/prefix` or `plugin:///path/lib.so`",
	},
	{
		.name = "prefetch",
		.type = SCOUT_OPTION_WORD,
		.offset = FIELD(prefetch),
		.def = SCOUT_PREFETCH_ON_RETRIEVE,
		.max = SCOUT_PREFETCH_BEFORE_ANSWER,
		.words = prefetch_words,
		.doc = "When chunks go from L2 to the pool: with the retrieve, already with the lookup, or before "
		       "the lookup is answered",
	},
	{
		.name = "l2_objects",
		.type = SCOUT_OPTION_WORD,
		.offset = FIELD(l2_objects),
		.def = SCOUT_L2_RETAIN,
		.max = SCOUT_L2_TEMPORARY,
		.words = l2_objects_words,
		.doc = "Chunks in the pool that were loaded from L2: kept like others (retain), or evicted first after "
		       "their last reader (temporary)",
	},
	{
		.name = "l2_timeout_ms",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(l2_timeout_ms),
		.def = 1000,
		.min = 1,
		.max = 600000,
		.doc = "An operation on L2 that makes no progress for this long is a miss; the wait for its turn "
		       "does not count, nor the time while bytes move",
	},
	{
		.name = "l2_lookup_timeout_ms",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(l2_lookup_timeout_ms),
		.def = 500,
		.min = 1,
		.max = 600000,
		.doc = "How long a lookup waits for the answer of L2, unless its own time is over first",
	},
	{
		.name = "l2_queue_bytes",
		.type = SCOUT_OPTION_SIZE,
		.offset = FIELD(l2_queue_bytes),
		.min = 0,
		.max = UINT64_C(1) << 50,
		.def_text = "an eighth of l1_bytes",
		.doc = "Bytes that may wait for their write to L2; beyond that the oldest write is dropped; at most a "
		       "quarter of l1_bytes; 0: the default",
	},
	{
		.name = "bad_key_ms",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(bad_key_ms),
		.def = 30000,
		.min = 1,
		.max = 86400000,
		.doc = "A chunk whose load failed does not count for this long, whatever L2 says",
	},
	SCOUT__OPTION_CURVE_SECRET_FILE(
		"CURVE: file with the server's secret key, which only its owner may read; unset: no encryption"),
	{
		.name = "curve_clients_file",
		.type = SCOUT_OPTION_STRING,
		.offset = FIELD(curve_clients_file),
		.min = 1,
		.max = 4095,
		.doc = "CURVE: file with the public keys of the clients and workers that may connect, one on each line",
	},
	{
		.name = "metrics",
		.type = SCOUT_OPTION_STRING,
		.offset = FIELD(metrics),
		.min = 1,
		.max = 512,
		.doc = "HTTP for operators, `HOST:PORT` (an address as 127.0.0.1 or [::1]; port 0: the kernel chooses): "
		       "/metrics, /healthz, /status. Plain HTTP, so "
		       "bind a loopback or private address; unset: none",
	},
	SCOUT__OPTION_SPIN_US(
		"How long the loop looks for the next message before it sleeps; takes a core while it does"),
	SCOUT__OPTION_LOCAL_TRANSPORT(
		"Whether peers on this machine are offered shared memory (shm), or all use the socket"),
	{
		.name = "shm_bytes",
		.type = SCOUT_OPTION_SIZE,
		.offset = FIELD(shm_bytes),
		.def = 256 << 10,
		.min = 4 << 10,
		.max = 1 << 20, /* the loop copies that much in one step */
		.doc = "Shared memory that each peer on this machine sends through; a quarter more is for the answers",
	},
	{
		.name = "credits",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(credits),
		.def = 4096,
		.min = 1,
		.max = 65536,
		.doc = "Unanswered operations that each peer may have",
	},
	{
		.name = "reply_delay_us",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(reply_delay_us),
		.min = 0,
		.max = 60000000,
		.doc = "For tests: the server holds answers back by this much, within the lookup's time",
	},
	{
		.name = "reply_jitter_us",
		.type = SCOUT_OPTION_U32,
		.offset = FIELD(reply_jitter_us),
		.min = 0,
		.max = 60000000,
		.doc = "For tests: the server holds them back by up to this much more, evenly distributed",
	},
	SCOUT__OPTION_CPUS(
		"CPUs of the server's threads: a list (0-3,8), inherit (those of the thread that starts it), or auto: all that the process may use, however that thread is pinned; kvscoutd's auto is inherit"),
};

const struct scout__option_table scout__server_options = {
	.options = options,
	.n = sizeof(options) / sizeof(options[0]),
	.struct_size = sizeof(struct scout_server_config),
	/* Fixed for ever: the fields of 0.1. */
	.v1_size = FIELD(owned) + sizeof(void *),
	.owned_offset = FIELD(owned),
	.env_prefix = NULL,
};

void
scout_server_config_init_sized(struct scout_server_config *cfg, uint32_t size)
{
	scout__options_init(&scout__server_options, cfg, size);
}

int
scout_server_config_set(struct scout_server_config *cfg, const char *key, const char *value, char *err, size_t err_len)
{
	return scout__options_set(&scout__server_options, cfg, key, value, err, err_len);
}

int
scout_server_config_load(struct scout_server_config *cfg, const char *path, char *err, size_t err_len)
{
	return scout__options_load(&scout__server_options, cfg, path, err, err_len);
}

int
scout_server_config_help_sized(size_t i, struct scout_config_row *ret_row, size_t size)
{
	return scout__options_row(&scout__server_options, i, ret_row, size);
}

void
scout_server_config_fini(struct scout_server_config *cfg)
{
	scout__options_fini(&scout__server_options, cfg);
}

/* Check all items of a list together. */
static int
check_shares(const char *key, const char *list, char *err, size_t err_len)
{
	struct scout__share_list shares = {0};
	int rc = scout__shares_parse(key, list, &shares, err, err_len);

	if (rc == 0)
		scout__shares_fini(&shares);
	return rc;
}

int
scout__server_config_accept(struct scout_server_config *dst, const struct scout_server_config *src, char *err,
			    size_t err_len)
{
	int rc = scout__options_accept(&scout__server_options, dst, src, err, err_len);

	if (rc)
		return rc;
	rc = check_shares("tenant_share", dst->tenant_share, err, err_len);
	if (rc == 0)
		rc = check_shares("namespace_share", dst->namespace_share, err, err_len);
	if (rc) {
		scout_server_config_fini(dst);
		return rc;
	}
	/* Rounded up, so that a pool of one byte may promise its byte. */
	if (!dst->max_promised)
		dst->max_promised = dst->l1_bytes - dst->l1_bytes / 2;
	if (!dst->max_request_bytes)
		dst->max_request_bytes =
			dst->l1_bytes / 32 > MIN_REQUEST_BYTES ? dst->l1_bytes / 32 : MIN_REQUEST_BYTES;
	if (!dst->l2_queue_bytes)
		dst->l2_queue_bytes = (dst->l1_bytes + 7) / 8;
	return 0;
}
