/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_WORKER_H
#define KVSCOUT_WORKER_H

/*
 * The GPU worker's side: moves the KV of whole requests between the engine's pages and the pool.
 *
 * THREADS  As for the client: one caller per worker, one courier thread for each worker, and the copy engine's
 * threads. Jobs are asynchronous: submit, then scout_worker_poll() or wait on scout_worker_fd().
 *
 * SIZES  As for the client (client.h): the inline calls pass the sizes of the caller's structures to functions with
 * _sized in their name.
 *
 * PAGES  The engine's paged KV memory is described as a list of planes. A plane is one base address, a stride from one
 * block to the next and a number of bytes per block; block b of a plane lies at base + b * stride. One tensor per
 * layer, K and V apart or together, all layers in one tensor: each of these is a list of planes. A slot of the pool
 * holds the chunk's blocks plane by plane: first all blocks of plane 0 in token order, then plane 1, and so on.
 *
 * GROUPS  A group is a set of layers whose KV is needed under one policy (key `group`). Most models have one group,
 * number 0, and every chunk of it is needed: they register one table, and pass one struct scout_blocks to each job. A
 * model with several groups registers one table for each group that has layers on this worker, and passes the pages of
 * all of them to one job. All tables of a worker are copied by one backend.
 */

#include <stddef.h>
#include <stdint.h>

#include <kvscout/error.h>
#include <kvscout/types.h>
#include <kvscout/version.h>
#include <kvscout/worker_sized.h>
#include <kvscout/worker_stats.h>

#ifdef __cplusplus
extern "C" {
#endif

struct scout_worker;

struct scout_worker_config {
	uint32_t size;          /* of this structure; set by scout_worker_config_init() */
	const char *endpoint;   /* where the server of this machine listens; NULL and "auto": see kvscout/instance.h */
	const char *name_space; /* key "namespace" */
	const char *backend;    /* copy engine: "auto" (default), "host" or "cuda" */
	uint32_t chunk_tokens;  /* default 256 */
	uint32_t kv_ranks;      /* default 1 */
	uint32_t rank_first;    /* first KV rank that this server holds, default 0 */
	uint32_t rank_count;    /* KV ranks that this server holds, default kv_ranks */
	uint32_t kv_rank;       /* of this worker */
	uint32_t readers;       /* default 1 */
	uint32_t reader;        /* of this worker, 0 .. readers - 1 */
	uint32_t hash_bytes;    /* default 32 */
	/* A job that has not started its first copy after this time ends, unless it has a timeout of its own; default
	   30000. */
	uint32_t transfer_timeout_ms;
	uint32_t heartbeat_ms;       /* of an idle connection, default 1000 */
	uint32_t connect_timeout_ms; /* how long jobs wait for the first connection, default 400 */
	uint32_t max_jobs;           /* default 4096; memory is taken as jobs are used */
	uint32_t spin_us;            /* default 0 */
	/* 0: the version that the server has; else jobs end SCOUT_ERR_WEIGHTS while the server has another version:
	   after a scout_reset() to another one, until scout_worker_reset(). */
	uint64_t weights_version;
	const char *numa_node; /* "auto" (default), "none" or a number: where this KV rank's pool memory should be */
	scout_log_fn log;
	void *log_user;
	void *owned;
	const char *copy_method; /* method of the cuda backend: "auto" (default), "staged" or "batch" */
	uint64_t stage_bytes;    /* GPU memory that the cuda backend takes for each direction, default 128 MiB */
	/* CURVE: both or none; NULL: no encryption. */
	const char *curve_secret_file; /* with this side's secret key */
	const char *curve_server_key;  /* the server's public key */
	uint32_t local_transport;      /* enum scout_local_transport: for a server on this machine */
	const char *cpus;              /* of the threads: "auto" (default), "inherit" or a list as "0-3,8" */
	/* As in struct scout_client_config; the same for all clients and workers of a namespace. */
	const char *group;
	uint32_t hash_tokens;
	const char *server_program, *server_keys; /* as in struct scout_client_config */
};

/** Fill @cfg with the defaults. Any thread, does not block. */
static inline void
scout_worker_config_init(struct scout_worker_config *cfg)
{
	scout_worker_config_init_sized(cfg, (uint32_t)sizeof(*cfg));
}

/** As scout_client_config_set(), _load(), _help() and _fini(). */
SCOUT_API SCOUT_MUST_CHECK int scout_worker_config_set(struct scout_worker_config *cfg, const char *key,
						       const char *value, char *err, size_t err_len);
SCOUT_API SCOUT_MUST_CHECK int scout_worker_config_load(struct scout_worker_config *cfg, const char *path, char *err,
							size_t err_len);

static inline SCOUT_MUST_CHECK int
scout_worker_config_help(size_t i, struct scout_config_row *ret_row)
{
	return scout_worker_config_help_sized(i, ret_row, sizeof(*ret_row));
}

SCOUT_API void scout_worker_config_fini(struct scout_worker_config *cfg);

/* One plane of paged KV memory. */
struct scout_plane {
	void *base;      /* of block 0; host or GPU memory, by backend. Stays the engine's; must outlive the worker. */
	uint64_t stride; /* bytes from one block to the next, >= block_bytes */
	uint64_t block_bytes; /* bytes of one block in this plane, not 0 */
};

/* The page table of one group: where its KV lies. All of a group's layers on this worker are in one table. */
struct scout_table {
	uint32_t group;        /* number of the group in the key `group`, from 0; one table for each group */
	uint32_t dtype;        /* SCOUT_DTYPE_* of types.h; 0 = opaque */
	uint32_t block_tokens; /* tokens in a block; the group's unit (chunk_tokens) is a multiple */
	uint32_t n_planes;
	const struct scout_plane *planes; /* borrowed for the call; copied. No two of a table share memory */
	uint64_t n_blocks;                /* blocks in every plane; ids are 0 .. n_blocks - 1 */
	int64_t null_block;               /* an id that is never read or written, like negative ids; -1 = none */
	/* Order of the elements inside a block, in the engine's words ("NHD"); UTF-8, at most 255 bytes, borrowed for
	   the call; NULL = "". Workers with different tags do not share KV, even if their sizes are equal. */
	const char *layout_tag;
};

/**
 * Make a worker and start its courier and copy engine.
 *
 * Backend "auto" is cuda if the registered pages lie in the memory of a CUDA device, else host, and a log line says
 * so. It calls nothing of CUDA before scout_worker_register(), so this process may still fork others that use CUDA,
 * and it never initialises CUDA in a process that has not done so itself. Backend "cuda" initialises CUDA here;
 * without a device this returns SCOUT_ERR_DEVICE. All pages must lie on one device; the worker uses that device.
 *
 * @cfg  borrowed for the call; copied.
 * @err  receives one sentence on error; may be NULL.
 *
 * Thread:   any.
 * Blocks:   no, but allocates and starts threads.
 * Returns:  0, or SCOUT_ERR_INVALID, SCOUT_ERR_CONFIG_RANGE, SCOUT_ERR_CONFIG_SYNTAX and SCOUT_ERR_GROUP_LIMIT (key
 *           `group`), SCOUT_ERR_UNSUPPORTED (structure size, unknown backend, an inproc:// endpoint),
 *           SCOUT_ERR_DEVICE, SCOUT_ERR_NOMEM, SCOUT_ERR_SYSTEM; with endpoint "auto" those of
 *           scout_client_new(), and SCOUT_ERR_CONFIG_RANGE for rank_count below kv_ranks.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_worker_new(const struct scout_worker_config *cfg, struct scout_worker **ret_worker,
						char *err, size_t err_len);

/**
 * Ask whether workers can copy to and from CUDA devices here: whether there is a driver for CUDA 12.0 or newer. An
 * engine asks at its start: scout_worker_register() would refuse the pages only after the model is loaded. The call
 * initialises nothing, so this process may still fork others that use CUDA. It does not count devices.
 *
 * @err  receives one sentence on error, with what to do; may be NULL.
 *
 * Thread:   any.
 * Blocks:   no, but reads a library from disk.
 * Returns:  0, or SCOUT_ERR_DEVICE (no driver, or an older one).
 */
SCOUT_API SCOUT_MUST_CHECK int scout_worker_probe_cuda(char *err, size_t err_len);

/**
 * Describe the KV pages. The worker's background thread registers them with the server, as soon as there is one and
 * again after each of its restarts; the caller may wait for the first time, and need not.
 *
 * Jobs may be submitted from then on. While the server is not there they end with SCOUT_ERR_UNREACHABLE at once
 * (within connect_timeout_ms of scout_worker_new() they wait for the server), so an engine runs on without a cache;
 * while the server has not answered the registration yet, they wait within their own timeouts. If the server refuses
 * the registration (text in the log, once for each reason), jobs end with the refusal's error; the worker registers
 * again every second.
 *
 * @tables      one page table for each group that has layers on this worker; borrowed for the call; copied. The pages
 *              stay the engine's.
 * @timeout_ms  0: do not wait. Else for how long.
 * @err         receives one sentence on error; may be NULL.
 *
 * Thread:   the caller's.
 * Blocks:   up to @timeout_ms, for the server's answer. The copy engine is opened in any case: some milliseconds; on a
 *           GPU more.
 * Returns:  0: registered, or with @timeout_ms 0: going on. SCOUT_ERR_TIMEOUT: not registered yet, going on; do not
 *           call again. After any other error nothing is kept, and the caller may call again: SCOUT_ERR_INVALID (@err
 *           names the field; also: pages that this process cannot read, on the host backend, or that are not all
 *           memory of the configured device, on cuda), SCOUT_ERR_GROUP (a table's group is not in the key `group`, or
 *           has a second table), SCOUT_ERR_UNSUPPORTED (structure size), SCOUT_ERR_STATE (registered already, see
 *           scout_worker_unregister()), SCOUT_ERR_FORKED, SCOUT_ERR_NOMEM, SCOUT_ERR_DEVICE, SCOUT_ERR_SYSTEM. With
 *           @timeout_ms > 0 also refusals of the server: SCOUT_ERR_NAMESPACE, SCOUT_ERR_GROUPS_DIFFER,
 *           SCOUT_ERR_SHARD_BYTES, SCOUT_ERR_WEIGHTS, SCOUT_ERR_NO_ROOM (the pool is smaller than one chunk) or
 *           another one.
 */
static inline SCOUT_MUST_CHECK int
scout_worker_register(struct scout_worker *worker, const struct scout_table *tables, size_t n_tables,
		      uint32_t timeout_ms, char *err, size_t err_len)
{
	return scout_worker_register_sized(worker, tables, n_tables, sizeof(*tables), sizeof(*tables->planes),
					   timeout_ms, err, err_len);
}

/**
 * Withdraw the pages ("sleep"): no copy touches them when this returns, and other tables may be registered later
 * ("wake"). Jobs whose copy has not started are dropped (they end SCOUT_ERR_CANCELED), and the call waits for running
 * copies; poll reports all jobs. Jobs are refused with SCOUT_ERR_NOT_REGISTERED until the next scout_worker_register().
 * What is cached stays cached; pages of another layout can be registered if this worker is the only one of its KV rank.
 *
 * Thread:   the caller's.
 * Blocks:   until the running copies are done, and for the copy engine to close (as scout_worker_free()).
 * Returns:  0, also if nothing is registered; SCOUT_ERR_INVALID (NULL), SCOUT_ERR_FORKED.
 */
SCOUT_API int scout_worker_unregister(struct scout_worker *worker);

/**
 * Close: jobs that have not started end as closed; the call waits for running copies, then frees everything. NULL is
 * ignored.
 *
 * Thread:   the caller's.
 * Blocks:   until the running copies are done, then at most about 200 ms. On cuda also until the kernels that run on
 *           the device are done: CUDA waits for them before it frees memory.
 */
SCOUT_API void scout_worker_free(struct scout_worker *worker);

/*
 * STREAMS  cuda backend only; each is a cudaStream_t, passed as it is: `(void *)stream`. NULL is no stream. CUDA also
 * names its legacy default stream by handle 0 (`torch.cuda.current_stream().cuda_stream` is 0 if no other stream was
 * made current): scout_stream() turns 0 into the name that this library accepts. CUDA's default streams belong to the
 * calling thread and its current device.
 */
#define SCOUT_STREAM_LEGACY ((void *)0x1)     /* cudaStreamLegacy */
#define SCOUT_STREAM_PER_THREAD ((void *)0x2) /* cudaStreamPerThread */

/**
 * What to pass as a stream: @cuda_stream, or for handle 0 CUDA's name of the legacy default stream.
 *
 * Thread:   any.
 * Blocks:   never.
 */
static inline void *
scout_stream(void *cuda_stream)
{
	return cuda_stream ? cuda_stream : SCOUT_STREAM_LEGACY;
}

/*
 * LAYERS  A job can be copied layer by layer, so that the forward pass of layer 0 starts while layer 1 is still on its
 * way, or layer 0 is stored while layer 1 is computed. A layer is the next layer_planes[l] planes of the table, of all
 * the job's blocks; in a job of several groups it takes the next layer_planes[l * n_groups + g] planes of the table of
 * blocks[g], which may be 0 for some groups, but not for all. A plane that holds several layers of a model is in one
 * layer of a job, so scout_worker_wait_layer() waits for all of them. A layer is copied when it is copied for all
 * groups. A store whose layers are not announced copies group after group, so none of its layers is copied before the
 * last group is begun: an engine must not wait for one layer before it computes the next. scout_worker_progress() says
 * how many leading layers are copied, scout_worker_wait_layer() waits for one. On the cuda backend each layer can have
 * an event, too; on the host backend the caller announces what it has computed: scout_worker_layer_ready().
 *
 * EVENTS  cuda backend only; each is a cudaEvent_t, passed as it is: `.event = (void *)event`. An event that a job
 * waits for must have been recorded before the job is submitted: CUDA treats an event that was never recorded as over.
 * (In a stream that is being captured record it with cudaEventRecordExternal, and submit the job when the graph has
 * been launched; otherwise the event stands for nothing that runs, and the job ends SCOUT_ERR_DEVICE.) An event that a
 * job records is recorded only when its copies are enqueued, some time after the submit, and until then
 * cudaStreamWaitEvent() on it waits for nothing: ask scout_worker_progress() first. A job with nothing to copy records
 * its events, too; a job that ends early may not. All events must live until the job has ended.
 * A job whose `after`, `event` or `layer_events` have not come holds up no other: later ones pass it.
 */

/*
 * Pages of one group of a request: ids[i] is the page of the block_tokens tokens from first_token + i * block_tokens
 * on. ids may be the request's whole block table, from token 0 on: a job uses only the ids that it needs. A negative
 * or null id is a token range without a page. No other id stands for two blocks of a store.
 */
struct scout_blocks {
	uint32_t group;       /* number of the group, as in struct scout_table */
	uint64_t first_token; /* where ids[0] begins in the prompt; a multiple of block_tokens */
	const int64_t *ids;   /* borrowed for the call; copied */
	size_t n;
};

/* Pool to pages. All pointers are borrowed for the call; copied. */
struct scout_retrieve {
	uint64_t ticket;     /* from scout_hit */
	uint64_t from_token; /* multiple of block_tokens; pages of tokens before it are not written */
	uint64_t to_token;   /* rounded up to a whole block */
	/* One for each group, by ascending group; its ids reach from @from_token or before to @to_token. Each group is
	   loaded from its first to its last block with a page: give null ids to blocks that a window or a state does
	   not need. */
	const struct scout_blocks *blocks;
	size_t n_groups;              /* how many @blocks: 1 for a model with one group */
	uint32_t n_layers;            /* 0: all planes at once */
	const uint32_t *layer_planes; /* n_layers * n_groups, see LAYERS; together all planes of the tables */
	void *after;                  /* cuda: no page is written before this event; NULL: at once */
	void *event;                  /* cuda: recorded after the last copy; NULL */
	void *const *layer_events;    /* cuda: n_layers events, each recorded after the copies of its layer; NULL */
	uint32_t timeout_ms;          /* if no copy has started by then, the job ends; 0: transfer_timeout_ms */
};

/* Pages to pool. All pointers are borrowed for the call; copied. */
struct scout_store {
	uint64_t ticket;    /* session that the keys belong to; 0 = none */
	const void *hashes; /* n hashes of hash_bytes each: of consecutive runs of hash_tokens tokens */
	size_t hash_len;    /* the configured hash_bytes */
	size_t n;           /* with layers at most 4096 */
	/* Where the first of these runs begins in its prompt; a multiple of hash_tokens. The job stores the objects of
	   each group (chunks, if the unit is chunk_tokens) that end in one of these runs. With several readers, reader
	   r stores the objects whose index in the prompt mod readers is r. */
	uint64_t first_token;
	/* One for each group, by ascending group; its ids reach from @first_token or before to the end of the last
	   object. An object that begins before the ids is left out. An object with a null or negative id is left out,
	   too, and counted in scout_done.null_chunks; the objects after it are stored. */
	const struct scout_blocks *blocks;
	size_t n_groups;    /* how many @blocks: 1 for a model with one group */
	const char *tenant; /* NULL = "" */
	void *event; /* cuda: of the forward pass, before which no page is read; NULL: at once; host backend: NULL */
	uint32_t n_layers;            /* 0: all planes at once */
	const uint32_t *layer_planes; /* as in struct scout_retrieve */
	void *const *layer_events;    /* cuda: n_layers events; no page of a layer is read before its own; NULL */
	uint32_t announced;  /* host: 1: no page of a layer is read before scout_worker_layer_ready() announced it */
	uint32_t timeout_ms; /* as in struct scout_retrieve */
	/* For readers of the feed (client_feed.h), which get it with each object: n descriptions, of the objects that end
	   with each hash, of at most 4096 bytes; the server does not look into them. NULL, or a length of 0: none. Where
	   4096 objects together have more than 8 MiB, none of these is sent. */
	const void *const *descriptions;
	const size_t *description_lens; /* n */
};

/**
 * Start a retrieve, a store, or a verification: a comparison of what the pool has with pages that the engine computed
 * itself. A verification changes neither. Its chunks are copied one after another, each into memory of the worker when
 * no retrieve waits for a copy or is being copied, and compared there by a thread of low priority; L2 is asked for what
 * the pool lacks. One verification works at a time, later ones wait. Its request is that of a retrieve of the range,
 * without layers and events to record; `after` is the event of the forward pass, before which no page is read. It ends
 * when its time is over, also between two chunks. See struct scout_verified.
 *
 * @ret_job  the job's number, never 0, unique for the life of the worker; written on success.
 *
 * The job uses the pages until scout_worker_poll() reports its end, also when it was cancelled.
 *
 * Thread:   the caller's.
 * Blocks:   never.
 * Returns:  0, or SCOUT_ERR_INVALID (also: ids that do not reach over all tokens of the job), SCOUT_ERR_GROUP (a group
 *           without a registered table, or not above the one before it), SCOUT_ERR_HASH_LEN, SCOUT_ERR_TENANT,
 *           SCOUT_ERR_BLOCK_ID (a block id of the job is outside the registered pages, or stands for two blocks
 *           of a store; nothing was started),
 *           SCOUT_ERR_NOT_REGISTERED, SCOUT_ERR_BUSY (max_jobs are live), SCOUT_ERR_UNSUPPORTED (structure
 *           size; an event on the host backend), SCOUT_ERR_NOMEM, SCOUT_ERR_FORKED. A line in the worker's log says
 *           what was wrong with a request (which group, which field, what is allowed), at most one in ten seconds.
 */
static inline SCOUT_MUST_CHECK int
scout_worker_retrieve(struct scout_worker *worker, const struct scout_retrieve *retrieve, uint64_t *ret_job)
{
	return scout_worker_retrieve_sized(worker, retrieve, sizeof(*retrieve), sizeof(*retrieve->blocks), ret_job);
}

static inline SCOUT_MUST_CHECK int
scout_worker_store(struct scout_worker *worker, const struct scout_store *store, uint64_t *ret_job)
{
	return scout_worker_store_sized(worker, store, sizeof(*store), sizeof(*store->blocks), ret_job);
}

static inline SCOUT_MUST_CHECK int
scout_worker_verify(struct scout_worker *worker, const struct scout_retrieve *verify, uint64_t *ret_job)
{
	return scout_worker_verify_sized(worker, verify, sizeof(*verify), sizeof(*verify->blocks), ret_job);
}

enum scout_job_kind {
	SCOUT_JOB_RETRIEVE = 1,
	SCOUT_JOB_STORE = 2,
	SCOUT_JOB_VERIFY = 3
};

/*
 * One compared chunk. The measures are taken for each plane and block on numbers of the table's dtype, and the greatest
 * counts. Opaque bytes are equal (0) or not (1). A number that is infinite or NaN on one side only counts as a share of 1.
 * This structure will not grow.
 */
struct scout_verified {
	uint32_t group;
	uint32_t chunk;     /* index in the prompt, in objects of the group */
	uint32_t plane;     /* of the group's table: the one with the greatest norm_error */
	uint32_t differs;   /* 1: a measure is above the bounds of the dtype (docs/engines.md) */
	float norm_error;   /* norm of the difference, divided by the norm of the pages */
	float share;        /* of the numbers that differ by more than the bound */
	uint64_t stored_by; /* id of the worker that stored it, as in PEERS and logs; 0: not known (it came from L2) */
	uint64_t stored_s;  /* when, in Unix seconds; 0: not known */
};

/* The end of one job. */
struct scout_done {
	uint64_t job;
	uint64_t ticket;
	int kind; /* enum scout_job_kind */
	/* 0: everything copied, or compared (see @mismatched). Retrieve: SCOUT_ERR_MISSING (see @missing),
	   SCOUT_ERR_CORRUPT, SCOUT_ERR_NO_SESSION. Verify: these without CORRUPT.
	   All: SCOUT_ERR_TIMEOUT, SCOUT_ERR_CANCELED, SCOUT_ERR_UNREACHABLE, SCOUT_ERR_EPOCH, SCOUT_ERR_WEIGHTS,
	   SCOUT_ERR_CLEARED, SCOUT_ERR_LIMIT or another refusal of the server, SCOUT_ERR_DEVICE, SCOUT_ERR_CLOSED. */
	int status;
	uint64_t bytes; /* copied */
	/* Retrieve: chunks read. Store: chunks that this job made a hit (other ranks had theirs). Verify: chunks compared. */
	uint32_t chunks;
	/* Store: chunks that were there already, that another store is writing, or whose writer died less than the
	   server's dead_writer_ms ago. */
	uint32_t present;
	uint32_t no_room;     /* store: chunks at the end that got no slot */
	uint32_t null_chunks; /* store: chunks with a null or negative block id. They are not stored */
	uint32_t n_missing;   /* retrieve: blocks that were not filled and must be recomputed; verify: not compared */
	/* Positions of these blocks in the ids of the job, ascending, counted on from one group to the next: with one
	   group the index into its ids. Borrowed until the next poll. After a failure: all of the range. */
	const uint32_t *missing;
	/* Where its time went, in microseconds. total_us, from the submit to the end, is the sum of the other three. */
	/* waiting in the worker: for its registration, the copy engine, an announced layer */
	uint64_t queued_us;
	uint64_t server_us; /* waiting for the server's answers; a retrieve: for loads from L2, too */
	uint64_t copy_us;   /* being copied, or compared; cuda: with the wait for its events */
	uint64_t total_us;
	uint32_t mismatched;                   /* verify: chunks that differ */
	uint32_t n_verified;                   /* verify: as @chunks */
	const struct scout_verified *verified; /* verify: the compared chunks; borrowed until the next poll */
};

/**
 * Collect ended jobs.
 *
 * Thread:   the caller's.
 * Blocks:   never.
 * Returns:  how many of @done were written, at most @max, or SCOUT_ERR_INVALID, SCOUT_ERR_UNSUPPORTED (structure
 *           size), SCOUT_ERR_FORKED.
 */
static inline SCOUT_MUST_CHECK int
scout_worker_poll(struct scout_worker *worker, struct scout_done *done, size_t max)
{
	return scout_worker_poll_sized(worker, done, sizeof(*done), max);
}

/* How far a job is. */
struct scout_progress {
	uint32_t layers;   /* of the job; 1 without layers */
	uint32_t enqueued; /* leading layers whose copies are enqueued and whose events are recorded */
	uint32_t copied;   /* leading layers that are copied: their bytes are there, but not verified before poll */
};

/**
 * Ask how far a job is, before poll reports its end. A layer is in one of three states: copied, not yet (both in
 * @ret_progress), or failed (the job's error).
 *
 * @ret_progress  written on success.
 *
 * Thread:   the caller's.
 * Blocks:   never; makes no system call.
 * Returns:  0, or the status of a job that has ended otherwise than by success, or SCOUT_ERR_STATE (no such job, or
 *           poll has reported it), SCOUT_ERR_INVALID, SCOUT_ERR_UNSUPPORTED (structure size), SCOUT_ERR_FORKED.
 */
static inline SCOUT_MUST_CHECK int
scout_worker_progress(struct scout_worker *worker, uint64_t job, struct scout_progress *ret_progress)
{
	return scout_worker_progress_sized(worker, job, ret_progress, sizeof(*ret_progress));
}

/**
 * Wait until leading layers of a job are copied: to take the layers of a model in turn, call with 1, 2 and so on. The
 * thread sleeps meanwhile, and a layer that is there already costs no system call. As with scout_worker_progress(),
 * copied is not verified.
 *
 * @layers      how many, at most the job's (1 for a job without layers); 0 only asks how the job is.
 * @timeout_ms  0: do not wait.
 *
 * Thread:   the caller's.
 * Blocks:   up to @timeout_ms.
 * Returns:  0: they are copied. SCOUT_ERR_TIMEOUT: not yet; the job goes on. The status of a job that has ended
 *           otherwise than by success. SCOUT_ERR_STATE (no such job, or poll has reported it), SCOUT_ERR_INVALID (more
 *           layers than the job has), SCOUT_ERR_FORKED.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_worker_wait_layer(struct scout_worker *worker, uint64_t job, uint32_t layers,
						       uint32_t timeout_ms);

/**
 * The first @layers layers of a store that was submitted with `announced` are computed: their pages may be read. The
 * worker's other copies go on meanwhile, and the slots are reserved from the submit on. If some layers are never
 * announced, the store stays until it is cancelled, its connection is lost or the worker is freed; if none is, until
 * its time is over.
 *
 * @layers  at most the job's layers; a number below an earlier one changes nothing.
 *
 * Thread:   the caller's.
 * Blocks:   never.
 * Returns:  0, also for a store that has ended and that poll has not reported yet. SCOUT_ERR_STATE (no such job, or
 *           poll has reported it), SCOUT_ERR_INVALID (more layers than the job has, or a job without `announced`),
 *           SCOUT_ERR_FORKED.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_worker_layer_ready(struct scout_worker *worker, uint64_t job, uint32_t layers);

/**
 * Ask a job to end early. Copies that are enqueued run to their end; poll reports the job in any case.
 *
 * Thread:   the caller's.
 * Blocks:   never.
 * Returns:  0, SCOUT_ERR_STATE (no such job), SCOUT_ERR_FORKED, SCOUT_ERR_INVALID.
 */
SCOUT_API int scout_worker_cancel(struct scout_worker *worker, uint64_t job);

/**
 * Make pages of a group reusable. Jobs that use any of @block_ids are dropped if their copies are not enqueued (they
 * end as cancelled). On the host backend the caller waits for the other jobs, on cuda @stream does (see STREAMS; if
 * it is NULL, or cannot wait because it is being captured, the caller waits, and the capture goes on undisturbed).
 * What is enqueued in @stream from then on may use the pages; poll reports the jobs later, and names what was not
 * copied as missing.
 *
 * @group  number of the group, as in struct scout_table; 0 for a model with one group.
 *
 * Thread:   the caller's.
 * Blocks:   if the caller waits, until the running copies on these pages are done; else while one copy is being
 *           enqueued.
 * Returns:  0, SCOUT_ERR_INVALID, SCOUT_ERR_GROUP (no registered table is of @group), SCOUT_ERR_FORKED.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_worker_fence(struct scout_worker *worker, uint32_t group, const int64_t *block_ids,
						  size_t n, void *stream);

/**
 * The model got new weights: this worker changes to their version, without being made anew. The registration, the
 * copy engine and the mapped pool stay.
 *
 * Every job that was submitted before, and that poll has not reported, belongs to the old weights. When this returns,
 * no copy of such a job starts any more; a running copy goes on to its end (the pages are the job's until then, see
 * scout_worker_fence()). Poll reports all these jobs, and none as good: SCOUT_ERR_WEIGHTS, or another error that came
 * first. A retrieve names all its blocks as missing, and `chunks` is 0.
 *
 * From now on the worker has this version, as if it had been made with it, also if it was made with 0. The server
 * treats this call like scout_reset(); call client and workers in any order: the first call makes everything older
 * unreadable for all, and a peer with another version gets SCOUT_ERR_WEIGHTS until its own call. A late call with a
 * version that the others have left again does not take them back: this worker's jobs end SCOUT_ERR_WEIGHTS until it
 * is called with their version. (Versions are names. A worker treats as older only versions that it was itself reset
 * away from; any other version needs a client's scout_reset().) After a restart of the server there is nothing to
 * repeat: the worker tells each server that it meets.
 *
 * If the worker has this version already, nothing changes, so this may be called again to be sure. A second call
 * overtakes the first. Legal before scout_worker_register() too.
 *
 * @weights_version  not 0.
 *
 * Thread:   the caller's.
 * Blocks:   never.
 * Returns:  0, SCOUT_ERR_INVALID (@worker is NULL, @weights_version 0), SCOUT_ERR_FORKED.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_worker_reset(struct scout_worker *worker, uint64_t weights_version);

/* For scout_worker_clear(): whatever generation the namespace has. */
#define SCOUT_GENERATION_NEWEST UINT64_MAX

/**
 * The cache was cleared (see scout_clear()), or will be: this worker changes to the new generation. After any clear
 * of its namespace, its own engine's or another's, a worker without a weights_version neither stores nor loads until
 * this call: its jobs end SCOUT_ERR_CLEARED.
 *
 * Jobs that were submitted before, and that poll has not reported, belong to the old generation: as for
 * scout_worker_reset(), no copy of them starts after this call, and poll reports them as SCOUT_ERR_CLEARED, or with
 * another error that came first. Jobs that are submitted afterwards wait until the server has recorded the clear.
 *
 * Three uses:
 * - @generation from scout_clear() of the same engine, passed on in the engine's own metadata: joins that clear, and
 *   carries it out if the server has not heard of it. Client and workers may call in any order. If another engine has
 *   cleared the namespace after that, this worker stays out, and the log says so.
 * - 0: a new clear, like scout_clear(client, 0, ...): everything is dropped, and all other workers are out until they
 *   are called with @ret_generation.
 * - SCOUT_GENERATION_NEWEST: drops nothing that is cached, but joins the generation that the namespace has when the
 *   server reads this. For an engine that shares a namespace with another one that has cleared it, and whose weights
 *   are the same. (If a clear is still on its way to the server, that is the generation before the clear.)
 *
 * There is nothing to wait for, and nothing to repeat after a restart of the server or a lost connection. A later
 * call overtakes one that is still on its way. Legal before scout_worker_register() too.
 *
 * @ret_generation  written on success; may be NULL.
 *
 * Thread:   the caller's.
 * Blocks:   never.
 * Returns:  0, SCOUT_ERR_INVALID (@worker is NULL; no call has returned @generation), SCOUT_ERR_BUSY (no random number yet, at boot), SCOUT_ERR_FORKED.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_worker_clear(struct scout_worker *worker, uint64_t generation,
						  uint64_t *ret_generation);

/**
 * A descriptor that is readable while scout_worker_poll() has something to report. Owned by the worker.
 *
 * Thread:   the caller's.
 * Blocks:   no.
 * Returns:  the descriptor, or SCOUT_ERR_INVALID.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_worker_fd(struct scout_worker *worker);

/** Withdraw the log callback, as scout_client_log_off() does; its comment holds for a worker, too. */
SCOUT_API void scout_worker_log_off(struct scout_worker *worker);

#ifdef __cplusplus
}
#endif

#endif
