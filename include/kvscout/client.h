/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_CLIENT_H
#define KVSCOUT_CLIENT_H

/*
 * The scheduler's side: how many leading tokens of this prompt are cached outside the GPU?
 *
 * THREADS  A client has one caller: all functions that take a client are called by one thread at a time (the scheduler
 * loop), except where a function says "any". Debug builds check this. Each client has one thread of its own, the
 * courier, which owns every socket; the caller and the courier share only a ring of jobs and a table of slots.
 *
 * A request is named by its id, a string of 1..255 bytes. It goes through
 *
 *     scout_try_lookup ... scout_try_lookup -> answer -> scout_admit -> scout_finish
 *
 * and scout_finish is legal at any point of it.
 *
 * SIZES  Each structure may grow at its end in a later version. The calls below are inline and pass the sizes that the
 * caller was compiled with to a function of the same name with _sized at its end (kvscout/client_sized.h); a language
 * that cannot call inline functions calls that one, with the size of its own copy of the structure. In a structure
 * that the library reads, missing fields count as 0, and bytes that it does not know must be 0. In a structure that it
 * writes, it sets such bytes to 0. A size below the first version's, or an unknown byte that is not 0, gives
 * SCOUT_ERR_UNSUPPORTED.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/client_feed.h>
#include <kvscout/client_keys.h>
#include <kvscout/client_sized.h>
#include <kvscout/client_stats.h>
#include <kvscout/error.h>
#include <kvscout/types.h>
#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

struct scout_client;

/* Lookup modes of scout_lookup(). */
enum scout_lookup_mode {
	SCOUT_LOOKUP_ASYNC = 0, /* scout_lookup() is scout_try_lookup() */
	SCOUT_LOOKUP_POLLED = 1 /* scout_lookup() is scout_wait_lookup() */
};

/*
 * Configuration. Set up by scout_client_config_init(), changed by scout_client_config_set() or by assigning fields; 0
 * and NULL always mean "default". Strings are borrowed until scout_client_new() returns, which copies them. The table
 * of all keys, with defaults and ranges, is in docs/configuration.md and comes from scout_client_config_help().
 */
struct scout_client_config {
	uint32_t size;          /* of this structure; set by scout_client_config_init() */
	const char *endpoint;   /* NULL or "auto": the server of this host; else one or several, separated by blanks */
	const char *name_space; /* key "namespace" */
	uint32_t chunk_tokens;  /* tokens in a chunk, default 256 */
	uint32_t kv_ranks;      /* default 1 */
	uint32_t readers;       /* default 1 */
	uint32_t hash_bytes;    /* default 32 */
	uint32_t lookup_mode;   /* enum scout_lookup_mode */
	uint32_t lookup_timeout_ms;            /* default 500; a lookup may have a longer one of its own */
	uint32_t lookup_poll_interval_ms;      /* default 5 */
	uint32_t lookup_poll_key_timeout_ms;   /* default 0: one shot. The server waits for late keys if */
	uint32_t lookup_poll_key_intervals_ms; /* both times are set. Default 0: one shot */
	uint32_t lookup_poll_key_all;          /* 1: also for lookups whose expect_tokens is 0; default 0 */
	uint32_t heartbeat_ms;                 /* of an idle connection, default 1000 */
	uint32_t connect_timeout_ms;           /* default 400: how long lookups wait for the first connection */
	uint32_t max_lookups;                  /* live requests, default 65536 */
	uint32_t spin_us;     /* the background thread and waiting calls spin so long before they sleep, default 0 */
	uint64_t arena_bytes; /* hashes that wait for the courier, default 544 MiB */
	uint64_t weights_version; /* 0: the version that the server has */
	scout_log_fn log;         /* NULL: silent */
	void *log_user;
	void *owned; /* strings that scout_client_config_set() made; see _fini */
	/* CURVE: both or none; NULL: no encryption. */
	const char *curve_secret_file; /* with this side's secret key */
	const char *curve_server_key;  /* the server's public key */
	uint32_t local_transport;      /* enum scout_local_transport: for a server on this machine */
	uint32_t lookup_refresh_ms; /* default 1000: answers older than this are asked anew; SCOUT_NEVER: not at all */
	const char *cpus;           /* of the threads: "auto" (default), "inherit" or a list as "0-3,8" */
	uint32_t step_wait_us;      /* default 0: a budget for the waits of scout_lookup() in each step */
	/* The groups of the model, separated by blanks and numbered from 0. NULL: one group with policy "all".
	   docs/configuration.md says how an item is written. */
	const char *group;
	uint32_t hash_tokens; /* tokens from one hash of a prompt to the next, default chunk_tokens */
	/* For endpoint=auto: kvscoutd by its absolute path, and "key=value key=value" for it; NULL: none. */
	const char *server_program;
	const char *server_keys;
};

/* In place of a time, if the key accepts the word "never". */
#define SCOUT_NEVER UINT32_MAX

/** Fill @cfg with the defaults. Any thread, does not block. */
static inline void
scout_client_config_init(struct scout_client_config *cfg)
{
	scout_client_config_init_sized(cfg, (uint32_t)sizeof(*cfg));
}

/**
 * Set one option by its name, as in a file or on a command line.
 *
 * @cfg    initialised by scout_client_config_init().
 * @key    borrowed for the call; one of the keys in docs/configuration.md.
 * @value  borrowed for the call; copied.
 * @err    receives one sentence that names the key, the value and the values that are allowed; may be NULL.
 *
 * Thread:   any.
 * Blocks:   no.
 * Returns:  0, or SCOUT_ERR_INVALID (NULL argument), SCOUT_ERR_CONFIG_KEY, SCOUT_ERR_CONFIG_SYNTAX,
 *           SCOUT_ERR_CONFIG_RANGE, SCOUT_ERR_GROUP_LIMIT (key `group`), SCOUT_ERR_NOMEM. @cfg is unchanged on error.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_client_config_set(struct scout_client_config *cfg, const char *key,
						       const char *value, char *err, size_t err_len);

/**
 * Read "key = value" lines ('#' at the start or after a blank begins a comment) from @path.
 *
 * @err    receives the line number and the fault; may be NULL.
 *
 * Thread:   any.
 * Blocks:   on the file.
 * Returns:  0, the codes of scout_client_config_set(), or SCOUT_ERR_FORMAT (no such file, a line without '=').
 *           Lines before the wrong one have been applied.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_client_config_load(struct scout_client_config *cfg, const char *path, char *err,
							size_t err_len);

/**
 * Read the environment: KVSCOUT_<KEY in capitals> for every key. Never done implicitly; ignored in setuid programs.
 * A variable that misspells a key is SCOUT_ERR_CONFIG_KEY; one that is close to no key is left alone.
 *
 * Thread:   any that may call getenv().
 * Blocks:   no.
 * Returns:  as scout_client_config_set().
 */
SCOUT_API SCOUT_MUST_CHECK int scout_client_config_load_env(struct scout_client_config *cfg, char *err, size_t err_len);

/**
 * Describe configuration key number @i: name, default, range, meaning. For help texts; keys are numbered from 0
 * without gaps.
 *
 * @ret_row  written on success.
 *
 * Thread:   any.
 * Blocks:   no.
 * Returns:  0, SCOUT_ERR_INVALID (@i is beyond the last key, NULL), SCOUT_ERR_UNSUPPORTED (structure size).
 */
static inline SCOUT_MUST_CHECK int
scout_client_config_help(size_t i, struct scout_config_row *ret_row)
{
	return scout_client_config_help_sized(i, ret_row, sizeof(*ret_row));
}

/** Free what scout_client_config_set() allocated. Legal at once after scout_client_new(), and twice. */
SCOUT_API void scout_client_config_fini(struct scout_client_config *cfg);

/* The reason for an answer. */
enum scout_reason {
	SCOUT_REASON_NONE = 0,
	SCOUT_REASON_HIT = 1,         /* at least one chunk: all chunks that the servers have */
	SCOUT_REASON_MISS = 2,        /* the server has nothing, or the prompt has no full chunk */
	SCOUT_REASON_TIMEOUT = 3,     /* no answer before the deadline (timeout_ms of struct scout_query) */
	SCOUT_REASON_UNREACHABLE = 4, /* a server is not there; @error says more */
	SCOUT_REASON_REFUSED = 5,     /* a server refused; @error is its reason */
	SCOUT_REASON_CLOSED = 6,      /* the client is being closed */
	/* The hit was cut, to 0 or more tokens: other requests hold all that max_promised of a server allows. The
	   tokens of the hit are promised, as with HIT. An ask after lookup_refresh_ms may find more. */
	SCOUT_REASON_LIMITED = 7
};

/**
 * A static word for @reason: "hit", "miss", "timeout", "unreachable", "refused", "closed", "limited". Any thread,
 * never NULL.
 */
SCOUT_API const char *scout_reason_name(int reason);

#define SCOUT_LOOKUP_TIMEOUT_MAX_MS 3600000u

/* One question. All pointers are borrowed for the call; hashes are copied by the call that submits. */
struct scout_query {
	const char *id;           /* request id, 1..255 bytes, NUL-terminated */
	const void *hashes;       /* n chained hashes of hash_len bytes each, one for every hash_tokens tokens from
				     from_token on, without gaps */
	size_t hash_len;          /* 16..32, the configured hash_bytes */
	size_t n;                 /* hashes, at most (prompt_tokens - from_token) / hash_tokens; n * hash_len bytes
				     fit into half of arena_bytes. 0 is legal and answers 0 at once */
	uint64_t prompt_tokens;   /* length of the prompt */
	uint64_t computed_tokens; /* leading tokens that the GPU's own cache has already, at most prompt_tokens */
	/* Leading tokens that should be cached by now or soon (disaggregated prefill): with lookup_poll_key_timeout_ms
	   and lookup_poll_key_intervals_ms both set, the server waits for late chunks. 0: no expectation, or, with
	   lookup_poll_key_all, all n chunks. */
	uint64_t expect_tokens;
	const char *tenant; /* cache salt, at most 255 bytes; NULL = "" */
	/* This lookup's own timeout, at most SCOUT_LOOKUP_TIMEOUT_MAX_MS; 0: none. The deadline is the largest of this,
	   lookup_timeout_ms and, for a lookup that waits for late keys, lookup_poll_key_timeout_ms. A server with
	   prefetch=before_answer counts what it can load until then: give long prompts more. */
	uint32_t timeout_ms;
	/* How many restorable lengths scout_lookup_lengths() should tell, the longest first: at most 64; 0 counts as 1.
	   What all of them need is promised. With windows or states, an answer with several is not renewed. */
	uint32_t want_lengths;
	/* The hashes begin after this many leading tokens, which the engine has itself: a multiple of hash_tokens, at
	   most computed_tokens. */
	uint64_t from_token;
	uint32_t flags; /* SCOUT_QUERY_*, 0: none */
};

/* Load what is in L2 only into host memory now, also if the server would wait for the retrieve: a request with this prompt
   comes soon. What has not begun to load when this one is finished is not loaded; so keep it open, or finish it with keep_ms,
   until then. */
#define SCOUT_QUERY_LOAD 1u

/* One answer. */
struct scout_hit {
	/* Leading tokens that are cached, at most prompt_tokens - 1. Usable as it stands. If a group has another policy
	   than `all`: the longest length up to prompt_tokens - 1 that can be restored. */
	uint64_t tokens;
	uint64_t ticket;    /* names the session; for the workers' retrieve and store. 0: no session */
	uint32_t chunks;    /* whole chunks that @tokens stands for */
	uint32_t l1_chunks; /* of them in host memory; with several groups: of the objects that are needed */
	uint32_t l2_chunks; /* likewise, in L2 */
	int reason;         /* enum scout_reason */
	int error;          /* 0, or the SCOUT_ERR_* that explains unreachable, refused and timeout */
	int endpoint;       /* index of the endpoint that was unreachable or refused, else -1 */
};

/**
 * Make a client and start its courier. Connecting goes on in the background: lookups are accepted at once.
 *
 * Without an endpoint, or with "auto", the background thread finds the server of this host, and starts kvscoutd as a
 * process of its own if there is none, now and whenever it is gone (kvscout/instance.h). Until it serves, lookups wait
 * connect_timeout_ms and then answer 0 tokens, `unreachable`, as with any server; if another version serves, `refused`
 * with SCOUT_ERR_VERSION. The log has one warning for each reason, and scout_client_wait_ready() reports it.
 *
 * @cfg         borrowed for the call; copied.
 * @err         receives one sentence on error; may be NULL.
 * @ret_client  written on success only.
 *
 * Thread:   any.
 * Blocks:   no, but allocates and starts a thread.
 * Returns:  0, or SCOUT_ERR_INVALID, SCOUT_ERR_CONFIG_RANGE (a field is out of range; @err names it),
 *           SCOUT_ERR_CONFIG_SYNTAX and SCOUT_ERR_GROUP_LIMIT (key `group`), SCOUT_ERR_UNSUPPORTED
 *           (structure size; an inproc:// endpoint), SCOUT_ERR_NOMEM, SCOUT_ERR_SYSTEM; with "auto"
 *           also SCOUT_ERR_PERMISSION (the folder of the server belongs to another user),
 *           SCOUT_ERR_CONFIG_SYNTAX, SCOUT_ERR_CONFIG_KEY (server_keys is not KEY=VALUE, or has a key
 *           that such a server cannot be given; a key that kvscoutd does not know is in the text of
 *           scout_client_wait_ready() and of the log).
 */
SCOUT_API SCOUT_MUST_CHECK int scout_client_new(const struct scout_client_config *cfg, struct scout_client **ret_client,
						char *err, size_t err_len);

/**
 * Close the client: lookups in flight end with reason `closed`, promises are given back if the server listens, the
 * courier is joined. NULL is ignored. A child of fork() may call it: it then frees nothing that belongs to the parent.
 *
 * Thread:   the caller's, or another one once the caller has stopped using the client.
 * Blocks:   at most about 200 ms.
 */
SCOUT_API void scout_client_free(struct scout_client *client);

/**
 * Wait until every endpoint has answered HELLO. For program start; the scheduler loop need not call it.
 *
 * @err    receives the server's or the library's sentence, with the endpoint; may be NULL.
 *
 * Thread:   the caller's.
 * Blocks:   up to @timeout_ms.
 * Returns:  0, SCOUT_ERR_TIMEOUT, SCOUT_ERR_NAMESPACE or another refusal of the server (final until the configuration
 *           changes), SCOUT_ERR_FORKED, SCOUT_ERR_INVALID.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_client_wait_ready(struct scout_client *client, uint32_t timeout_ms, char *err,
						       size_t err_len);

/**
 * Ask, or ask again. The first call for an id queues the lookup; later calls read one slot. The answer stays readable
 * until scout_admit() or scout_finish(). A call with a smaller computed_tokens than the lookup was asked with starts a
 * new lookup.
 *
 * An answer grows old while its request waits: others store its prefix, or finish and leave room for promises. A call
 * that finds an answer older than lookup_refresh_ms, not admitted yet, returns it and lets the server be asked anew in
 * the background; a later call returns what came. Nothing else changes an answer, so it is the same from an ask to its
 * admit. `tokens` only grows, except after a restart of the server: its earlier answers end, and the next call is
 * SCOUT_NOT_YET, with a new ticket and a new deadline. At most 256 answers a second are renewed for each client, at
 * most 32 at once: first the answers that are asked for first. A renewal needs the hashes again, so pass them with
 * every call, or ask by scout_poll_lookup(), which says when they are needed. With a full arena a renewal comes later;
 * a renewal is never BUSY.
 *
 * "Other hashes" are recognised by hash_len, n, tenant length and the last hash, which in a chain covers all hashes
 * before it.
 *
 * @query    borrowed for the call.
 * @ret_hit  written when 0 is returned.
 *
 * Thread:   the caller's.
 * Blocks:   never. No lock, no allocation; no system call while the answer is pending; a submit rings the courier at
 *           most once.
 * Returns:  0 (answered), SCOUT_NOT_YET, or SCOUT_ERR_INVALID (no pointer; n or timeout_ms beyond what struct
 *           scout_query allows), SCOUT_ERR_UNSUPPORTED (structure size),
 *           SCOUT_ERR_REQUEST_ID (no id, an empty or too long one), SCOUT_ERR_HASH_LEN (also with n = 0),
 *           SCOUT_ERR_TENANT, SCOUT_ERR_STATE (other hashes for a live id), SCOUT_ERR_BUSY (slots or arena full),
 *           SCOUT_ERR_FORKED, SCOUT_ERR_CLOSED.
 */
static inline SCOUT_MUST_CHECK int
scout_try_lookup(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit)
{
	return scout_try_lookup_sized(client, query, sizeof(*query), ret_hit, sizeof(*ret_hit));
}

/**
 * Ask again by the id alone: scout_try_lookup() without the hashes, for the many asks of a request that waits. It
 * answers as that call would. If it cannot answer without the query, it returns SCOUT_NEED_QUERY and changes nothing;
 * the caller then calls scout_try_lookup(). The cases are: the id is not known (never asked, finished, reset) or was
 * admitted; @computed_tokens is smaller than the lookup was asked with; a server was restarted since it answered; the
 * answer is older than lookup_refresh_ms and has its turn to be renewed.
 *
 * @id               as in struct scout_query; borrowed for the call.
 * @computed_tokens  as in struct scout_query. The first ask after scout_lookup_ahead() may be this one.
 * @ret_hit          written when 0 is returned.
 *
 * Thread:   the caller's.
 * Blocks:   never, as scout_try_lookup().
 * Returns:  0 (answered), SCOUT_NOT_YET, SCOUT_NEED_QUERY, or SCOUT_ERR_REQUEST_ID (no id, an empty or too long one),
 *           SCOUT_ERR_INVALID (no pointer), SCOUT_ERR_UNSUPPORTED (structure size), SCOUT_ERR_FORKED.
 */
static inline SCOUT_MUST_CHECK int
scout_poll_lookup(struct scout_client *client, const char *id, uint64_t computed_tokens, struct scout_hit *ret_hit)
{
	return scout_poll_lookup_sized(client, id, computed_tokens, ret_hit, sizeof(*ret_hit));
}

/**
 * Ask before the engine knows what the GPU has: when it learns of a request, ahead of the step that schedules it. The
 * servers promise the chunks that they have (within max_promised), each chunk by itself. The first scout_try_lookup()
 * of the id then reads the answer with its computed_tokens: leading chunks that the servers evicted and the GPU still
 * has are no miss, and the promise on chunks that the GPU has, or that lie after the first gap, is given back. From
 * then on it is a lookup like any other; if it is never asked for, scout_finish() ends it.
 *
 * @query    as for scout_try_lookup(), which later gets the same query; computed_tokens is ignored. Borrowed for the
 *           call.
 *
 * Thread:   the caller's.
 * Blocks:   never, as scout_try_lookup(): inside a step nothing is sent before its end.
 * Returns:  0: the lookup is on its way; or the id is known already, the prompt has no full chunk, or a server is
 *           known to be unreachable, and nothing was asked. Else the errors of scout_try_lookup(); after
 *           SCOUT_ERR_BUSY only time is lost.
 */
static inline SCOUT_MUST_CHECK int
scout_lookup_ahead(struct scout_client *client, const struct scout_query *query)
{
	return scout_lookup_ahead_sized(client, query, sizeof(*query));
}

/**
 * Ask and wait for the answer: scout_try_lookup(), then a wait. Sends no second request.
 *
 * Thread:   the caller's.
 * Blocks:   until the answer lands, at the latest until the lookup's deadline (timeout_ms of struct scout_query; then
 *           0 tokens, reason `timeout`, and a warning in the log). At once when a server is known to be unreachable.
 * Returns:  0 or the errors of scout_try_lookup(); never SCOUT_NOT_YET.
 */
static inline SCOUT_MUST_CHECK int
scout_wait_lookup(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit)
{
	return scout_wait_lookup_sized(client, query, sizeof(*query), ret_hit, sizeof(*ret_hit));
}

/**
 * With lookup_mode=polled scout_wait_lookup(). With lookup_mode=async scout_try_lookup(), then a wait for a pending
 * answer until step_wait_us is used up: this budget is shared by all calls of a step (scout_step_begin()); outside of
 * steps each call has it for itself. To submit a whole queue first and wait once for all of it, call
 * scout_try_lookup() for each request, then scout_step_wait().
 *
 * Thread:   the caller's.
 * Blocks:   async: for at most step_wait_us (default 0) in each step, and inside a step it sends the queued lookups
 *           before it waits; polled: as scout_wait_lookup().
 * Returns:  as the call that it stands for.
 */
static inline SCOUT_MUST_CHECK int
scout_lookup(struct scout_client *client, const struct scout_query *query, struct scout_hit *ret_hit)
{
	return scout_lookup_sized(client, query, sizeof(*query), ret_hit, sizeof(*ret_hit));
}

/**
 * The lengths that this request can go on from, in tokens: up to each of them every group has what its policy needs,
 * on all KV ranks and servers, and that is promised. They are the lengths of the answer that the last
 * scout_try_lookup() of the id returned, without lengths that the GPU has itself.
 *
 * @ret_tokens  room for @n lengths, the longest (scout_hit.tokens) first; written on success. Not more than
 *              want_lengths of the query are known.
 *
 * Thread:   the caller's.
 * Blocks:   never; makes no system call.
 * Returns:  how many were written (0: nothing is cached), or SCOUT_ERR_REQUEST_ID (no id, an empty or too long one),
 *           SCOUT_ERR_STATE (unknown id, not answered yet, or admitted), SCOUT_ERR_INVALID (NULL), SCOUT_ERR_FORKED.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_lookup_lengths(struct scout_client *client, const char *id, uint64_t *ret_tokens,
						    size_t n);

/**
 * Begin a step: until scout_step_end(), submits are only queued. They then travel in one message, for at most one ring
 * of the courier's doorbell. Steps do not nest; beginning twice is one step. What came before this step, another step
 * or a submit outside of steps, travels while this step is open. So does scout_reset(), with the ends it implies.
 *
 * Thread:   the caller's.
 * Blocks:   never.
 */
SCOUT_API void scout_step_begin(struct scout_client *client);
SCOUT_API void scout_step_end(struct scout_client *client);

/**
 * Wait once until all lookups of this step have landed, or until the time is over: lookups submitted since
 * scout_step_begin(), and lookups of scout_lookup_ahead() that this step is the first to ask for. Legal inside a
 * step, where it sends the queued lookups first, and after its end. It does not wait for finished requests. Then ask
 * again.
 *
 * @us  wait at most so many microseconds; 0: only send the queued lookups.
 *
 * Thread:   the caller's.
 * Blocks:   at most @us, plus the time that the kernel takes to wake a thread.
 * Returns:  0: all have landed, or there were none; SCOUT_NOT_YET: the time is over; SCOUT_ERR_INVALID,
 *           SCOUT_ERR_FORKED.
 */
SCOUT_API int scout_step_wait(struct scout_client *client, uint32_t us);

/* Beyond the end of any prompt: stands for the end of the hit. */
#define SCOUT_TO_END INT64_MAX

/**
 * Say which part of the hit will be loaded; the promise on the rest is given back, and the answer is released. The hit
 * is the one that the last scout_try_lookup() returned. If the server was restarted since, it promises nothing: the
 * call succeeds, and the workers' retrieves will name all blocks as missing.
 *
 * @from_token, @to_token  the half-open range. Negative counts from the end of the hit's last chunk; values beyond the
 *                         hit are clamped to it. @from_token is rounded down to a chunk: a retrieve that starts at a
 *                         block inside a chunk (after what the GPU's own cache has) reads from that chunk. @to_token
 *                         is rounded down, too, where hit.tokens itself counts as the end of its last chunk (it may be
 *                         one token short of it). An empty range, from_token >= to_token, gives back everything. If a
 *                         group has another policy than `all`, @to_token is one of scout_lookup_lengths(), or beyond
 *                         the hit: what a window or a state needs at another length is not promised.
 *
 * Thread:   the caller's.
 * Blocks:   never; room was set aside at submit.
 * Returns:  0, SCOUT_ERR_REQUEST_ID (no id, an empty or too long one), SCOUT_ERR_STATE (unknown id, not answered yet,
 *           or admitted already), SCOUT_ERR_NOT_RESTORABLE (@to_token is none of the lengths; nothing has changed, so
 *           admit another length or finish), SCOUT_ERR_INVALID (@client is NULL), SCOUT_ERR_FORKED.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_admit(struct scout_client *client, const char *id, int64_t from_token,
					   int64_t to_token);

/**
 * The request is over (completed, aborted or preempted). Legal in any state and twice; an unknown id is not an error.
 *
 * Thread:   the caller's.
 * Blocks:   never, and is never refused: if scout_try_lookup() accepts client and id, nothing else can be wrong.
 * Returns:  0, SCOUT_ERR_REQUEST_ID (no id, an empty or too long one), SCOUT_ERR_INVALID (@client is NULL),
 *           SCOUT_ERR_FORKED.
 */
SCOUT_API int scout_finish(struct scout_client *client, const char *id);

/**
 * scout_finish() with what the caller knows of the future. Hints change only what the server evicts, and the server
 * learns how much hints are worth: a wrong hint costs little. A hint is lost when the connection is down.
 *
 * Returns:  as scout_finish(); SCOUT_ERR_INVALID, and nothing is finished, also when @hint is none of enum scout_hint
 *           (types.h).
 */
SCOUT_API int scout_finish_hint(struct scout_client *client, const char *id, enum scout_hint hint);

#define SCOUT_KEEP_MAX_MS 3600000u

/* What the caller knows when a request ends. */
struct scout_finish {
	enum scout_hint hint;
	/* The next turn comes within this time, as after a tool call: until then the server evicts nothing of what the
	   request found and stored. More than SCOUT_KEEP_MAX_MS counts as that; 0: nothing is kept. */
	uint32_t keep_ms;
};

/**
 * scout_finish_hint(), and keep the request's chunks for a time. The server keeps what fits: all keeps have a quarter of
 * max_promised, each client an equal part of it, and a tenant with a guaranteed share no more than that; with one group of policy
 * `all` the beginning that fits, else all or nothing. A finish with keep_ms or SCOUT_HINT_UNLIKELY of a request that goes on from
 * a kept one ends the older keep. A clear, new weights and the end of the namespace's last client and worker end keeps, too.
 * Counters of scout_client_stats() say what became of them. A wish is lost when the connection is down.
 *
 * @finish   borrowed for the call.
 *
 * Returns:  as scout_finish_hint(); SCOUT_ERR_INVALID also for no @finish, SCOUT_ERR_UNSUPPORTED (structure size).
 */
static inline int
scout_finish_keep(struct scout_client *client, const char *id, const struct scout_finish *finish)
{
	return scout_finish_keep_sized(client, id, finish, sizeof(*finish));
}

/* What became of keep_ms, as the counters of scout_client_stats() name it; with several servers at the one that kept least. */
enum scout_keep {
	SCOUT_KEEP_UNKNOWN = 0, /* it goes on from none of the last 64 requests with keep_ms whose end was answered */
	SCOUT_KEEP_ACCEPTED,
	SCOUT_KEEP_CLIPPED,
	SCOUT_KEEP_REJECTED,
	SCOUT_KEEP_MISSING
};

/**
 * What became of the keep of the last request that this one goes on from: of a prompt that this prompt begins with, asked for
 * by this client. Part of the lookup's answer, and there as long as that.
 *
 * Thread:   the caller's.
 * Blocks:   never. No system call.
 * Returns:  enum scout_keep, or SCOUT_ERR_STATE (there is no answer; it was admitted; a question for keys),
 *           SCOUT_ERR_REQUEST_ID, SCOUT_ERR_INVALID (no client), SCOUT_ERR_FORKED.
 */
SCOUT_API int scout_lookup_kept(struct scout_client *client, const char *id);

/**
 * The model got new weights: everything that is cached under another version is unreadable from the moment the server
 * has read this. All live requests of this client end as if finished. If the namespace has this version already,
 * nothing changes.
 *
 * Call scout_worker_reset() on each worker, too, before this call or after it. Stores of KV that was computed before
 * are refused (SCOUT_ERR_WEIGHTS) if they name the ticket of a request that was live, or if their worker has a
 * weights_version (it was made with one, or was reset before). Any other store must have ended before this call, or
 * its bytes count as computed with the new weights: call scout_worker_reset() on that worker first, or poll for it, or
 * cancel it and poll.
 *
 * A server that is away is told when it is back. A later call overtakes one that is still on its way: the latest one
 * wins.
 *
 * @weights_version  not 0.
 *
 * Thread:   the caller's.
 * Blocks:   never.
 * Returns:  0, SCOUT_ERR_INVALID, SCOUT_ERR_FORKED.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_reset(struct scout_client *client, uint64_t weights_version);

/**
 * Drop everything that is cached in this namespace, in host memory and in L2, without a new version of the weights
 * ("reset prefix cache"). All live requests of this client end as if finished. From the moment a server has read this
 * nothing older is served, to any client of the namespace; neither a restart of the server nor another server on a
 * shared L2 store brings it back: each store records the clear (files: a small file, Redis: a key), and until it has,
 * this client and its workers tell each server that they meet. Only if server and engine are both killed before the
 * store has the record, a moment after this call, is the store's old content served again. A store that cannot record
 * the clear is not used for the namespace until it has; the logs of client and server say so.
 *
 * A clear is named by its generation. Client and workers of one engine call with the same generation, in any order
 * and as often as they like; the clear is carried out once. So the scheduler calls with 0 and hands @ret_generation
 * to its workers, and each worker calls scout_worker_clear(). Until a worker has made that call, it neither stores
 * nor loads (its jobs end SCOUT_ERR_CLEARED): KV on its GPU may be older than the clear. That holds for workers of
 * other engines in the namespace, too, but not for a worker whose weights_version equals the namespace's. Other
 * clients need not call: their lookups go on, and hit chunks that are stored from now on.
 *
 * A server that is away is told when it is back. A later call overtakes one that is still on its way: the latest one
 * wins.
 *
 * @generation      0: a new generation. Else one that another call returned; never a number of your own.
 * @ret_generation  written on success; may be NULL.
 *
 * Thread:   the caller's.
 * Blocks:   never.
 * Returns:  0, SCOUT_ERR_INVALID (also: no call has returned @generation), SCOUT_ERR_BUSY (no random number yet, at
 *           boot), SCOUT_ERR_FORKED.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_clear(struct scout_client *client, uint64_t generation, uint64_t *ret_generation);

/**
 * A file descriptor that becomes readable when an answer lands, for event loops (level-triggered;
 * scout_client_fd_clear() makes it unreadable again, before looking at the answers). From the first call on, each
 * answer costs the courier a write.
 *
 * Thread:   the caller's.
 * Blocks:   no.
 * Returns:  the descriptor (owned by the client), or SCOUT_ERR_INVALID, SCOUT_ERR_FORKED.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_client_fd(struct scout_client *client);
SCOUT_API void scout_client_fd_clear(struct scout_client *client);

/**
 * Withdraw the log callback: when this returns the callback is not running, and it is never called again. For
 * callbacks that die before the client does: an interpreter ends, a module is unloaded. Legal more than once.
 *
 * Thread:   any, also while other calls on the client run; not while it is being freed. From inside the callback this
 *           call does not wait: the callback that makes it is the last one to end.
 * Blocks:   until calls of the callback that are running have returned. In a forked child: no.
 * Returns:  nothing; NULL is ignored.
 */
SCOUT_API void scout_client_log_off(struct scout_client *client);

#ifdef __cplusplus
}
#endif

#endif
