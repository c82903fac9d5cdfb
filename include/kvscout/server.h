/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_SERVER_H
#define KVSCOUT_SERVER_H

/*
 * The cache server inside any process: the same code as kvscoutd. It keeps metadata only and copies no KV bytes.
 * Production uses kvscoutd: libzmq may abort its process when file descriptors run out.
 */

#include <stddef.h>
#include <stdint.h>

#include <kvscout/error.h>
#include <kvscout/server_sized.h>
#include <kvscout/types.h>
#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

struct scout_server;

/* Whether the pool's memory is of huge pages of 2 MiB, which must have been reserved (sysctl vm.nr_hugepages). */
enum scout_huge_pages {
	SCOUT_HUGE_PAGES_TRY =
		0, /* while enough of them are free, and rounding up to them wastes less than an eighth */
	SCOUT_HUGE_PAGES_OFF = 1,    /* never: they are somebody else's */
	SCOUT_HUGE_PAGES_REQUIRE = 2 /* the server does not start without them, and the pool does not grow */
};

/* When chunks are brought from L2 into the pool. */
enum scout_prefetch {
	SCOUT_PREFETCH_ON_RETRIEVE = 0,  /* when a worker retrieves them */
	SCOUT_PREFETCH_ON_LOOKUP = 1,    /* from the lookup on, which is answered at once */
	SCOUT_PREFETCH_BEFORE_ANSWER = 2 /* the lookup's answer counts chunks that have arrived by its deadline */
};

/* What becomes of chunks in the pool that came from L2. */
enum scout_l2_objects {
	SCOUT_L2_RETAIN = 0,   /* treated like any other chunk */
	SCOUT_L2_TEMPORARY = 1 /* first to be evicted after their last reader */
};

/* As struct scout_client_config: 0 and NULL mean default, strings are copied by scout_server_start(). */
struct scout_server_config {
	uint32_t size;           /* of this structure; set by scout_server_config_init() */
	const char *listen;      /* ipc:///path or tcp://host:port; default: ipc in a private folder */
	const char *eviction;    /* policy, default hdc; see scout_server_config_help() */
	uint64_t l1_bytes;       /* bytes of slots in host memory, default 1 GiB */
	uint64_t extent_bytes;   /* the pool grows by this much at a time; default: 64 MiB, more as l1_bytes needs */
	uint64_t max_promised;   /* bytes that promises may pin, default half of l1_bytes */
	uint32_t max_sessions;   /* default 65536 */
	uint32_t max_peers;      /* default 1024 */
	uint32_t dead_writer_ms; /* default 30000 */
	uint32_t credits;        /* unanswered operations for each peer, default 4096 */
	uint32_t reply_delay_us; /* test aid of the tools: each LOOKUP reply is deferred by this much, default 0 */
	scout_log_fn log;
	void *log_user;
	void *owned;
	/*
	 * URLs of L2, in the order of preference, separated by blanks (a URL has none); NULL: no L2.
	 * scout_server_config_set() adds URLs to the list. A URL may hold a password: it stays in memory until
	 * scout_server_stop(), and no message or log line shows it.
	 */
	const char *l2;
	uint64_t l2_queue_bytes; /* bytes that may wait to be written to L2, default an eighth of l1_bytes */
	uint32_t prefetch;       /* enum scout_prefetch */
	uint32_t l2_objects;     /* enum scout_l2_objects */
	uint32_t l2_timeout_ms;  /* an L2 operation without progress for so long is a miss, default 1000 */
	uint32_t bad_key_ms;     /* a chunk whose load failed does not count for this long, default 30000 */
	/*
	 * CURVE: both or none; NULL: no encryption, every process that reaches the endpoint can connect. The files are
	 * read once, at start.
	 */
	const char *curve_secret_file;  /* the server's secret key */
	const char *curve_clients_file; /* the public keys that may connect */
	uint32_t spin_us;               /* after a message the loop spins for this long before it sleeps, default 0 */
	/*
	 * HTTP for operators on "HOST:PORT": /metrics (Prometheus), /healthz, /status (JSON). Plain, without a
	 * password, so bind a loopback or private address. Port 0: the kernel chooses one, and a log line names it.
	 * NULL: none.
	 */
	const char *metrics;
	uint32_t local_transport;      /* enum scout_local_transport: what peers on this machine are offered */
	uint32_t l2_lookup_timeout_ms; /* a lookup waits so long to hear what L2 has, default 500 */
	uint32_t max_namespaces;       /* default 256 */
	const char *cpus;              /* of the threads: "auto" (default), "inherit" or a list as "0-3,8" */
	uint32_t peer_timeout_ms;      /* how long a peer without a lease connection may be silent, default 10000 */
	uint32_t idle_exit_s; /* without a peer for so long the server ends, see scout_server_fd(); default 0: never */
	/*
	 * Fair shares, "NAME:PERCENT%" separated by blanks; scout_server_config_set() adds items. NULL: no tenant is
	 * guaranteed anything, and namespaces share the pool in equal parts. See scout_server_set().
	 */
	const char *tenant_share;    /* of the namespace's memory */
	const char *namespace_share; /* of the pool */
	/*
	 * 1: from the first registration on the pool grows in the background, without a need, to l1_bytes; with several
	 * namespaces each to its share. Workers map and pin it as it grows. Default 0: it grows as it fills.
	 */
	uint32_t prealloc;
	uint32_t l1_huge_pages; /* enum scout_huge_pages */
	/*
	 * Bytes that live requests may take besides the pool: sessions, and operations that wait with their messages.
	 * Default a 32nd of l1_bytes, at least 256 MiB.
	 */
	uint64_t max_request_bytes;
	/*
	 * Bytes of the feeds, in which clients read what became a hit and what stopped being one: at most so many for the
	 * newest events, while clients read them, and at most so many for the descriptions that STORE gave, of all
	 * namespaces. Without readers and descriptions it takes nothing. Default 16 MiB.
	 */
	uint64_t feed_bytes;
	const char *curve_rights_file; /* what each CURVE key may do, see docs/security.md. NULL: everything */
	const char *socket_group; /* its members may use the Unix sockets, as engines. NULL: only our user and root */
};

/** Fill @cfg with the defaults. Any thread, does not block. */
static inline void
scout_server_config_init(struct scout_server_config *cfg)
{
	scout_server_config_init_sized(cfg, (uint32_t)sizeof(*cfg));
}

/** As scout_client_config_set(), _load(), _help() and _fini(). */
SCOUT_API SCOUT_MUST_CHECK int scout_server_config_set(struct scout_server_config *cfg, const char *key,
						       const char *value, char *err, size_t err_len);
SCOUT_API SCOUT_MUST_CHECK int scout_server_config_load(struct scout_server_config *cfg, const char *path, char *err,
							size_t err_len);

static inline SCOUT_MUST_CHECK int
scout_server_config_help(size_t i, struct scout_config_row *ret_row)
{
	return scout_server_config_help_sized(i, ret_row, sizeof(*ret_row));
}

SCOUT_API void scout_server_config_fini(struct scout_server_config *cfg);

/**
 * Check what scout_server_start() would refuse, without starting: the values, the policy, the shares, the URLs of l2, and
 * whether l1_bytes fits into the memory of this machine and its cgroup. No store is asked, and nothing is made or bound.
 *
 * @cfg  borrowed for the call.
 * @err  receives one sentence with the numbers or names that matter; may be NULL.
 *
 * Thread:   any.
 * Blocks:   no; reads /proc and /sys.
 * Returns:  0, or SCOUT_ERR_INVALID (NULL), SCOUT_ERR_UNSUPPORTED (structure size), SCOUT_ERR_CONFIG_SYNTAX,
 *           SCOUT_ERR_CONFIG_KEY, SCOUT_ERR_CONFIG_RANGE, SCOUT_ERR_POOL_SIZE, SCOUT_ERR_NOMEM.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_server_config_check(const struct scout_server_config *cfg, char *err,
							 size_t err_len);

/**
 * Bind the endpoint and start the loop thread.
 *
 * @cfg  borrowed for the call; copied.
 * @err  receives one sentence with the numbers or names that matter; may be NULL.
 *
 * Thread:   any.
 * Blocks:   shortly, on bind and thread start.
 * Returns:  0, or SCOUT_ERR_INVALID, SCOUT_ERR_UNSUPPORTED (structure size, transport, policy, kernel older than 5.6;
 *           metrics in a build without libmicrohttpd), SCOUT_ERR_CONFIG_SYNTAX (metrics is not HOST:PORT),
 *           SCOUT_ERR_CONFIG_RANGE, SCOUT_ERR_BIND (cannot be bound; path too long),
 *           SCOUT_ERR_IN_USE (held by a living server; @err says which pid), SCOUT_ERR_PERMISSION (others may write
 *           the folder), SCOUT_ERR_POOL_SIZE (l1_bytes is more than this machine's memory), SCOUT_ERR_NOMEM,
 *           SCOUT_ERR_SYSTEM.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_server_start(const struct scout_server_config *cfg,
						  struct scout_server **ret_server, char *err, size_t err_len);

/**
 * The endpoint that clients connect to, with the port that the kernel chose. Owned by the server. Any thread.
 */
SCOUT_API const char *scout_server_endpoint(const struct scout_server *server);

/**
 * A descriptor that becomes readable when the server has ended by itself, after idle_exit_s without a peer. The
 * server then serves nothing any more; call scout_server_stop(). Owned by the server until then; for poll() only: do
 * not read it.
 *
 * Thread:   any.
 * Blocks:   no.
 * Returns:  the descriptor, or SCOUT_ERR_INVALID (NULL).
 */
SCOUT_API SCOUT_MUST_CHECK int scout_server_fd(const struct scout_server *server);

/**
 * Change a key of a running server: tenant_share, namespace_share or curve_rights_file. @value replaces the whole list; ""
 * removes all shares or lines. Shares take effect at the next eviction; nothing is evicted because of the change itself.
 * The file is read by this call, and counts from the next operation on.
 *
 * @err  receives one sentence with the numbers or names that matter; may be NULL.
 *
 * Thread:   any but the loop's, also while other calls on the server run; not while it is being stopped.
 * Blocks:   no.
 * Returns:  0, or SCOUT_ERR_INVALID (NULL), SCOUT_ERR_UNSUPPORTED (a key that cannot be changed), SCOUT_ERR_CONFIG_SYNTAX
 *           (an item is not NAME:PERCENT%), SCOUT_ERR_CONFIG_RANGE (more than 100 % together, or a name twice),
 *           SCOUT_ERR_FORMAT, SCOUT_ERR_PERMISSION (the file), SCOUT_ERR_FORKED, SCOUT_ERR_NOMEM.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_server_set(struct scout_server *server, const char *key, const char *value,
						char *err, size_t err_len);

/**
 * Stop: the server takes no new work, sends the replies that are ready, joins its loop thread, and removes sockets and
 * folders. NULL is ignored. Workers keep their own mappings of the pool until they let go. Clients and workers of this
 * process may be freed before or after: they find the server unreachable, and find the next server at the same
 * endpoint. A child of fork() may call it: it then does nothing, and the parent's server goes on.
 *
 * Thread:   any but the loop's.
 * Blocks:   at most about 500 ms; with L2 l2_timeout_ms more, in which it writes its queue, and about 2 s if a store
 *           does not stop. A store that hangs in the system keeps the pool mapped until the process ends.
 */
SCOUT_API void scout_server_stop(struct scout_server *server);

/**
 * Withdraw the log callback: when this returns the callback is not running, and it is never called again. For
 * callbacks that die before the server does: an interpreter ends, a module is unloaded. Legal more than once.
 *
 * Thread:   any, also while other calls on the server run; not while it is being freed. From inside the callback this
 *           call does not wait: the callback that makes it is the last one to end.
 * Blocks:   until calls of the callback that are running have returned. In a forked child: no.
 * Returns:  nothing; NULL is ignored.
 */
SCOUT_API void scout_server_log_off(struct scout_server *server);

#ifdef __cplusplus
}
#endif

#endif
