/* SPDX-License-Identifier: Apache-2.0 */
#include "server_config.h"

#include <string.h>

#include "log.h"
#include "option_list.h"
#include "share_list.h"
#include "shared_options.h"

/* The server's option table, and the public calls on it; option.h lists what a new key needs. Any thread. */

static const char *const prefetch_words[] = {"on_retrieve", "on_lookup", "before_answer", NULL};
static const char *const huge_pages_words[] = {"try", "off", "require", NULL};
static const char *const l2_objects_words[] = {"retain", "temporary", NULL};

#define MIN_REQUEST_BYTES (UINT64_C(256) << 20) /* 25 lookups of the longest prompts */

#define FIELD(name) offsetof(struct scout_server_config, name)

/* Keys that need no more than a default (0: none) and a range, or a greatest length. */
#define U32(key, normal, least, most, text)                                                                            \
	SCOUT__OPTION(U32, key, .def = (normal), .min = (least), .max = (most), .doc = (text))
#define TEXT(key, most, text) SCOUT__OPTION(STRING, key, .min = 1, .max = (most), .doc = (text))

static const struct scout__option options[] = {
	SCOUT__OPTION(
		STRING, listen, .min = 1, .max = 4096, .check_item = scout__list_check_listen,
		.doc = "`ipc:///path` or `tcp://host:port`; none: ipc in a private folder (kvscoutd: as `endpoint=auto`)"),
	SCOUT__OPTION(STRING, eviction, .min = 1, .max = 64, .def_text = "hdc",
		      .doc = "Policy that chooses what leaves the pool: hdc, lru, s3fifo[:SHARE]"),
	SCOUT__OPTION(SIZE, l1_bytes, .def = UINT64_C(1) << 30, .min = 1, .max = UINT64_C(1) << 50,
		      .doc = "Host memory for chunks"),
	SCOUT__OPTION(
		SIZE, extent_bytes, .max = UINT64_C(1) << 50,
		.def_text = "a 64th of l1_bytes up to 64Mi, and more as l1_bytes needs",
		.doc = "The pool grows, and moves between namespaces, by this much at a time; at most an eighth of l1_bytes, "
		       "at least one chunk. By default at least 16 chunks if the pool has 1,024, and so much that the memfds of the whole pool, one "
		       "for each KV rank of an extent, are 8192 at most, or half of the descriptors and mappings that the "
		       "process has left; 0: the default"),
	SCOUT__OPTION(
		BOOL, prealloc, .max = 1,
		.doc = "From the first registration on the pool grows to l1_bytes in the background, and workers pin it, so that "
		       "no store waits for it; else it grows as it fills"),
	SCOUT__OPTION(
		WORD, l1_huge_pages, .def = SCOUT_HUGE_PAGES_TRY, .max = SCOUT_HUGE_PAGES_REQUIRE,
		.words = huge_pages_words,
		.doc = "The pool's memory is of huge pages of 2 MiB, which must be reserved (vm.nr_hugepages): as long as "
		       "enough of them are free (try), never (off), or the server does not start without them (require)"),
	SCOUT__OPTION(
		SIZE, max_promised, .max = UINT64_C(1) << 50, .def_text = "half of l1_bytes",
		.doc = "Bytes that promises to waiting requests may pin; clients within their share have up to an eighth more; 0: the "
		       "default"),
	SCOUT__OPTION(
		SIZE, max_request_bytes, .max = UINT64_C(1) << 50, .def_text = "a 32nd of l1_bytes, at least 256Mi",
		.doc = "Host memory that live requests may take besides the pool: what sessions remember of their prompts, and "
		       "operations that wait, with their messages. Beyond that, the server refuses lookups and stores; the last "
		       "quarter is for peers with less than an equal part, and less than a quarter; 0: the default"),
	SCOUT__OPTION(
		SIZE, feed_bytes, .def = 16 << 20, .min = 16 << 10, .max = UINT64_C(1) << 30,
		.doc = "Feeds, in which clients read what became a hit and what stopped being one: at most so many bytes for the "
		       "newest events, while clients read them, and at most so many for what STORE said of chunks, of all "
		       "namespaces. A client that reads too slowly starts over"),
	SCOUT__OPTION(
		LIST, tenant_share, .min = 1, .max = 65536, .max_items = SCOUT__SHARE_ITEMS,
		.check_item = scout__share_check_item,
		.doc = "Fair shares: `NAME:PERCENT%` guarantees the tenant that part of its namespace's memory; without a "
		       "name: requests without a tenant; `*`: each tenant not named here; unset: none"),
	SCOUT__OPTION(
		LIST, namespace_share, .min = 1, .max = 65536, .max_items = SCOUT__SHARE_ITEMS,
		.check_item = scout__share_check_item,
		.doc = "Fair shares: `NAME:PERCENT%` of the pool for each namespace named; the others have equal parts of "
		       "what is left; unset: all have equal parts"),
	U32(max_sessions, 65536, 1, 16777216,
	    "Requests that may be live at once, of all clients; clients within their share have up to an eighth more"),
	U32(max_peers, 1024, 1, 65536,
	    "Clients and workers that may be connected at once; one process, or one address of another machine, may have a quarter of them, or 64"),
	U32(max_namespaces, 256, 1, 4096,
	    "Namespaces that may exist at once; for one more, the server drops the namespace that all peers left first, "
	    "namespaces without chunks before others"),
	U32(peer_timeout_ms, 10000, 10, 3600000,
	    "A peer without a lease connection (on another machine) that is silent for this long is forgotten, and its "
	    "promises are free; if its heartbeat_ms is longer than a third of this time, after three heartbeats"),
	U32(idle_exit_s, 0, 0, 31536000,
	    "The server ends after this many seconds without a peer; 0: never. A server that endpoint=auto started has 60"),
	U32(dead_writer_ms, 30000, 10, 3600000,
	    "Slots that a dead worker was writing are set aside for this long: its device may finish late"),
	SCOUT__OPTION(
		LIST, l2, .min = 1, .max = 16384, .max_items = SCOUT__L2_STORES_MAX,
		.check_item = scout__list_check_url,
		.doc = "L2: URLs of stores in the order of preference, `fs:///path`, `redis://host:port`, `s3://bucket/prefix` or `plugin:///path/lib.so`"),
	SCOUT__OPTION(
		WORD, prefetch, .def = SCOUT_PREFETCH_ON_RETRIEVE, .max = SCOUT_PREFETCH_BEFORE_ANSWER,
		.words = prefetch_words,
		.doc = "When chunks go from L2 to the pool: with the retrieve, already with the lookup, or before "
		       "the lookup is answered"),
	SCOUT__OPTION(
		WORD, l2_objects, .def = SCOUT_L2_RETAIN, .max = SCOUT_L2_TEMPORARY, .words = l2_objects_words,
		.doc = "Chunks in the pool that were loaded from L2: kept like others (retain), or evicted first after "
		       "their last reader (temporary)"),
	U32(l2_timeout_ms, 1000, 1, 600000,
	    "A load from L2 that makes no progress for this long is a miss; the wait for its turn does not count, nor "
	    "the time while bytes move. Writes have timeout_ms in the URL of their store"),
	U32(l2_lookup_timeout_ms, 500, 1, 600000,
	    "How long a lookup waits for the answer of L2, unless its own time is over first"),
	SCOUT__OPTION(
		SIZE, l2_queue_bytes, .max = UINT64_C(1) << 50, .def_text = "an eighth of l1_bytes",
		.doc = "Bytes that keep their slots while they wait for their write to L2; beyond that they wait without; at most a "
		       "quarter of l1_bytes; 0: the default"),
	U32(bad_key_ms, 30000, 1, 86400000,
	    "A chunk whose load failed does not count for this long, or until L2 has written it anew; after an error that may be the store's, for a sixtieth"),
	SCOUT__OPTION_CURVE_SECRET_FILE(
		"CURVE: file with the server's secret key, which only its owner may read; unset: no encryption"),
	TEXT(curve_clients_file, 4095,
	     "CURVE: file with the public keys of the clients and workers that may connect, one on each line"),
	TEXT(curve_rights_file, 4095,
	     "CURVE: file with lines `KEY engine NAMESPACE...` and `KEY operator`; keys without a line may do everything"),
	TEXT(socket_group, 255,
	     "Group, by name or number, whose members may use the Unix sockets as engines; unset: none"),
	TEXT(metrics, 512,
	     "HTTP for operators, `HOST:PORT` (an address as 127.0.0.1 or [::1]; port 0: the kernel chooses): "
	     "/metrics, /healthz, /status. Plain HTTP, so "
	     "bind a loopback or private address; unset: none"),
	SCOUT__OPTION_SPIN_US(
		"How long the loop looks for the next message before it sleeps; takes a core while it does"),
	SCOUT__OPTION_LOCAL_TRANSPORT(
		"Whether peers on this machine are offered shared memory (shm), or all use the socket"),
	U32(credits, 4096, 1, 65536, "Unanswered operations that each peer may have"),
	U32(reply_delay_us, 0, 0, 60000000,
	    "For tests: the server holds answers back by this much, within the lookup's time"),
	SCOUT__OPTION_CPUS(
		"CPUs of the server's threads: a list (0-3,8), inherit (those of the thread that starts it), or auto: all that the process may use, however that thread is pinned; kvscoutd's auto is inherit"),
};

const struct scout__option_table scout__server_options =
	SCOUT__OPTION_TABLE(scout_server_config, options, .env_prefix = NULL);

SCOUT__OPTION_CALLS(server, &scout__server_options)

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
