/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include <kvscout/worker.h>

#include "copy.h"
#include "courier.h"
#include "log.h"
#include "mappings.h"
#include "msg.h"
#include "ring.h"
#include "thread.h"
#include "verifier.h"

/*
 * The state of a worker: struct scout_worker and its parts. The public calls (worker*.c) and the jobs (this folder)
 * share it; each field says which thread owns it.
 *
 * A job lives in one of max_jobs slots. The caller fills a slot and pushes its number; from then on the courier owns
 * the slot, until it pushes the number into the done ring; poll frees the slot. Meanwhile both sides touch only
 * `phase` and `stop`.
 */

/* Words of the courier's ring: these, or a job's number. */
#define SCOUT__WORD_REGISTER 1u
#define SCOUT__WORD_FORGET 2u /* give up a registration */
#define SCOUT__WORD_KICK 3u   /* jobs were dropped: look for them */
#define SCOUT__WORD_RESET 4u  /* reset_to has changed */
#define SCOUT__WORD_LAYER 5u  /* layers are ready: jobs in granted may go on */
#define SCOUT__WORD_CLEAR 6u  /* clear_to has changed */

/* Job number = sequence << SLOT_BITS | slot, the sequence from 1: never one of the words above. */
#define SCOUT__SLOT_BITS 20
#define SCOUT__SLOT_MASK ((UINT64_C(1) << SCOUT__SLOT_BITS) - 1)

/*
 * Chunks of one STORE: few enough for every frame limit, and for the server's handlers to stay short. Longer jobs
 * send several STOREs, in order.
 */
#define SCOUT__STORE_PART 4096u

/*
 * How a job uses its memory. The courier goes WAITING -> ENQUEUED before it starts a copy, and on when the copy has
 * ended; the caller may go WAITING -> DROPPED. Both by compare-and-swap, so exactly one of "the copy starts" and "the
 * job is dropped" happens.
 */
enum scout__phase {
	SCOUT__PHASE_WAITING = 0,
	SCOUT__PHASE_DROPPED, /* nothing more will be copied; the job ends as cancelled */
	SCOUT__PHASE_ENQUEUED,
	SCOUT__PHASE_OVER /* no copy will follow */
};

/* What the courier does with a job now. */
enum scout__stage {
	SCOUT__STAGE_ASK = 0, /* in to_ask */
	SCOUT__STAGE_ASKED,   /* STORE or RETRIEVE is in flight */
	SCOUT__STAGE_GRANTED, /* in `granted`: a segment is not here yet */
	SCOUT__STAGE_COPYING,
	SCOUT__STAGE_COMPARING, /* verify: the verifier has a chunk of it */
	SCOUT__STAGE_TOLD       /* store: waits for the reply to STORE_DONE */
};

/* The pages of one group, as passed to scout_worker_register(). */
struct scout__table {
	uint16_t group, dtype;
	uint32_t block_tokens;
	uint32_t unit_tokens;             /* of the group's objects */
	struct scout__copy_layout layout; /* blocks_per_chunk: blocks of one object */
	int64_t null_block;
	uint64_t shard_bytes;
	char layout_tag[SCOUT_MAX_NAME + 1];
	/* caller's */
	uint64_t *marks; /* fence: one bit for each block */
	uint32_t *uses;  /* for each block: how often live jobs name it; n_blocks, mapped lazily */
};

/* A job's chunks of one group: a run of them. Const after submit. */
struct scout__job_group {
	uint32_t table;            /* its place in the worker's tables */
	uint16_t number;           /* of the group */
	uint32_t hashes_per_chunk; /* unit_tokens / hash_tokens */
	uint32_t blocks_per_chunk;
	uint32_t first_chunk;    /* retrieve: index of the first chunk in the prompt, in the group's units */
	uint32_t at, n;          /* among the job's chunks */
	uint64_t ids_at;         /* where the blocks of these chunks begin in the job's ids */
	uint64_t from_block;     /* retrieve: block index in the prompt of the caller's first id */
	uint64_t missing_at;     /* retrieve: place of that id, counted on from group to group */
	int64_t low_id, high_id; /* caller: range of its ids, without -1; high_id is below low_id if there are none */
};

/* All memory of one job, allocated at submit: nothing allocates afterwards. A chunk is an object of any group. */
struct scout__job_data {
	struct scout__job_data *next_dead; /* caller: reported jobs, freed by the next poll */

	/* const after submit */
	int kind;
	uint16_t tenant_len;
	uint64_t ticket;
	uint64_t weights_gen; /* the worker's weights_gen at the submit */
	uint64_t submitted_us;
	uint64_t deadline_us;  /* for the first copy */
	uint64_t registration; /* the worker's registration at the submit: its ids are of those tables */
	uint32_t n_chunks;     /* of all groups */
	uint32_t null_chunks;  /* store: how many were left out */
	uint32_t n_groups;     /* a store has 1 */
	struct scout__job_group *groups;
	int64_t *ids;          /* group by group, chunk by chunk: the ids of its blocks; retrieve: -1 is not touched */
	uint8_t *hashes;       /* store */
	char *tenant;          /* store */
	uint8_t *descriptions; /* store: for each chunk its length, u16, and its bytes; NULL: none */
	void *after;           /* an event, or NULL */
	void *event;           /* retrieve: as after */
	uint32_t n_layers;     /* 0: none */
	uint32_t *first_plane; /* (n_layers + 1) * the worker's tables, as in struct scout__copy_batch */
	void **layer_events;   /* n_layers; NULL: none */
	bool announced;        /* store: a layer is copied when `ready` says so */

	/* courier */
	uint32_t part_first, part_n; /* chunks that are being asked for or copied now */
	struct scout__grant *grants; /* of this part */
	struct scout__copy_item *items;
	struct scout__mapping **mappings; /* of each item */
	uint32_t *item_chunk;             /* for each item: its place in grants */
	uint8_t *filled;                  /* retrieve: for each chunk; verify: as in RETRIEVE_DONE */
	uint32_t *missing;                /* retrieve */
	struct scout_verified *verified;  /* verify */
	struct scout__copy_batch batch;
	uint32_t next; /* the next chunk of the part to add to the batch; verify: to compare */
	uint8_t *slot; /* verify: of the chunk in the batch */
	uint32_t mismatches;
	uint32_t layers_done, layers_end; /* announced: leading layers copied; those with the running batch */

	/* caller -> courier */
	atomic_uint ready; /* atomic: leading layers that are computed */

	/* the engine's; any thread reads it */
	struct scout__copy_progress progress;
	atomic_int outcome; /* courier, read by the caller: SCOUT_NOT_YET until finish(), then status */

	/* courier, then read by poll */
	int status;
	uint64_t bytes;
	uint32_t chunks, present, no_room, n_missing, n_verified, mismatched;
	uint64_t queued_us, server_us, copy_us; /* until `since_us` */
	uint64_t since_us;                      /* when the stage began; after the job's end: when it ended */
};

struct scout__grant_record;

struct scout__job {
	uint64_t id;                       /* caller; const while the job is the courier's. 0: the slot is free */
	struct scout__job_data *data;      /* as id */
	TAILQ_ENTRY(scout__job) live_link; /* caller */
	/* caller: a store of several groups is one job for each group, under the number of the first. */
	uint32_t leader;     /* slot of the first job plus 1; 0: this is the first */
	uint32_t next_group; /* slot of the next job plus 1; 0: there is none */
	uint32_t n_running;  /* in the first job: how many have not ended */
	atomic_uint phase;   /* atomic: enum scout__phase */
	atomic_bool stop;    /* atomic: start nothing more (cancel) */
	/* courier */
	enum scout__stage stage;
	bool timed;            /* in `timed`: nothing was enqueued yet */
	uint64_t asked_before; /* how often we had asked for our version of the weights when the job came */
	struct scout__grant_record *record;
	TAILQ_ENTRY(scout__job) open_link;
	TAILQ_ENTRY(scout__job) timed_link;
	TAILQ_ENTRY(scout__job) queue_link; /* to_ask or granted */
};
TAILQ_HEAD(scout__job_list, scout__job);

/*
 * The record of one STORE or RETRIEVE and its DONE. It outlives its job: what the server has granted must be given
 * back, however the job ended. There are two records for each job slot, and no operation is sent without one: that
 * bounds the DONEs that wait for a server.
 */
enum scout__grant_state {
	SCOUT__GRANT_FREE = 0,
	SCOUT__GRANT_ASKED, /* the operation is in flight */
	SCOUT__GRANT_HELD,  /* granted */
	SCOUT__GRANT_DUE,   /* DONE is to be sent */
	SCOUT__GRANT_TOLD,  /* DONE is in flight */
	SCOUT__GRANT_KEPT   /* there will be no DONE: the device may write into the slots until this process ends */
};

struct scout__grant_record {
	enum scout__grant_state state; /* courier, like all fields */
	int kind;
	struct scout__job *job; /* NULL: the job has ended */
	const uint8_t *found;   /* verify, while the job ends: of each granted chunk, as RETRIEVE_DONE says it */
	uint64_t epoch;
	uint64_t id; /* store_id or retrieve_id: the correlation id of the operation; 0: nothing was granted */
	uint32_t n;
	uint32_t result;                       /* store: committed; retrieve: mismatches */
	TAILQ_ENTRY(scout__grant_record) link; /* free or due */
};
TAILQ_HEAD(scout__grant_list, scout__grant_record);

enum scout__reg_state {
	SCOUT__REG_NONE = 0,
	SCOUT__REG_WANTED,
	SCOUT__REG_OK,
	SCOUT__REG_FAILED /* the courier tries again, unless the caller takes it back */
};

/* The step whose answer is awaited. */
enum scout__adopt_step {
	SCOUT__ADOPT_NONE = 0,
	SCOUT__ADOPT_ASK,     /* HELLO without a version: which version has the server? */
	SCOUT__ADOPT_COMPARE, /* HELLO with a version that we left */
	SCOUT__ADOPT_RESET,
	SCOUT__ADOPT_SAY /* HELLO with our version */
};

#define SCOUT__LEFT_VERSIONS 8u

/* How the server of this connection learns our version of the weights, see worker_weights.c. The courier's. */
struct scout__adopt {
	uint64_t version; /* our version; 0: whatever the server has */
	bool pending;     /* the server does not treat us as a worker of `version` yet: no job may ask */
	bool wanted;      /* ask, even if no job waits for it */
	enum scout__adopt_step step;
	uint64_t said;                       /* `version` at that step: if it has changed since, the answer is void */
	uint64_t n_asked;                    /* how often we have asked */
	uint64_t seen;                       /* the server's version that was logged last */
	uint64_t left[SCOUT__LEFT_VERSIONS]; /* the latest versions that we had before; 0: none */
	uint32_t next_left;
	uint32_t n_races; /* steps in a row that came too late: the server had changed since the step before */
};

#define SCOUT__TEXT_BYTES 384
struct scout_worker {
	/* const after start */
	struct scout_worker_config cfg; /* own copy of the strings */
	struct scout__groups groups;
	struct scout__log log;
	struct scout__log_gate log_gate; /* of log */
	char who[32];
	bool may_use_cuda; /* backend is "auto", and this build has CUDA */
	struct scout__courier *courier;
	int done_fd;  /* eventfd: readable while the done ring has something */
	int epoll_fd; /* the courier's user_fd: an engine is opened later than the courier */

	/* caller, before WORD_REGISTER; const from then on, until a WORD_FORGET was answered */
	const struct scout__copy_ops *copy;
	void *engine;
	struct scout__copy_plane *planes; /* of all tables */
	struct scout__table *tables;      /* n_tables, by ascending group */
	uint32_t n_tables;
	uint16_t numa; /* node that the server should prefer, plus 1; 0: none */
	bool has_node_cpus;
	cpu_set_t node_cpus; /* CPUs of that node */

	/* caller */
	bool registered;       /* the layout was taken: jobs may come */
	uint64_t registration; /* counts registrations */
	uint64_t next_seq;
	struct scout__job *jobs; /* max_jobs, mapped lazily: slots from 0 to n_used were used; see struct scout__job */
	uint32_t *free_slots;    /* max_jobs, mapped lazily: a stack */
	uint32_t n_free;         /* entries of free_slots: slots that were used before, and are taken first */
	uint32_t n_used;
	struct scout__job_list live_jobs; /* submitted, and not reported by poll */
	uint32_t n_live;
	uint32_t n_led;               /* of these: jobs under another job's number */
	struct scout__job_data *dead; /* freed by the next poll */
	uint64_t version;             /* version of the weights that was last given to us */
	uint64_t reset_at; /* `weights_gen` after the last reset; older jobs ended by the reset, others by a clear */
	struct scout__log_limit refusal_limit;
	struct scout_worker_counters stats; /* counters of the caller; a read adds the others */

	/* shared */
	atomic_uint_fast64_t weights_gen; /* caller: counts resets and clears; a job with an older number is over */
	atomic_uint_fast64_t reset_to;    /* caller -> courier: version of the weights */
	atomic_bool reset_queued;         /* a WORD_RESET is on its way */
	atomic_uint_fast64_t clear_to;    /* caller -> courier: name of a clear */
	atomic_bool clear_queued;         /* a WORD_CLEAR is on its way */
	struct scout__ring done;          /* courier -> caller: job numbers; room for all jobs */
	atomic_bool kicked;               /* a WORD_KICK is on its way */
	atomic_bool layer_queued;         /* a WORD_LAYER is on its way */
	atomic_bool fd_raised;            /* done_fd is readable; written under mu */
	atomic_bool is_up;                /* courier, read by the caller: `up`, and the server knows our pages */
	atomic_bool is_registered;
	pthread_mutex_t mu;
	pthread_cond_t cond;               /* signals that a phase or the registration changed */
	enum scout__reg_state reg;         /* G:mu */
	int reg_code;                      /* G:mu: the error of REG_FAILED */
	int down_code;                     /* G:mu: why there is no connection; 0 = there is one, or nothing is known */
	char reg_text[SCOUT__TEXT_BYTES];  /* G:mu */
	char down_text[SCOUT__TEXT_BYTES]; /* G:mu */

	/* courier */
	struct scout__link *link; /* NULL until the link was first reported up or down */
	bool up;
	bool closing;
	int down_pending;        /* why the connection was lost, while the jobs have not been told */
	uint64_t drain_until_us; /* 0: still copying */
	uint64_t epoch;          /* of the last connection */
	bool reg_wanted;
	bool reg_in_flight;
	uint64_t reg_epoch;   /* the epoch in which we are registered; 0 = none */
	uint64_t reg_attempt; /* names the REGISTER in flight */
	uint64_t reg_retry_us;
	int reg_error; /* error of the last refused REGISTER on this connection */
	struct scout__mappings mappings;
	struct scout__job_list open;  /* all jobs of the courier */
	struct scout__job_list timed; /* jobs that have enqueued nothing yet, by deadline */
	struct scout__job_list to_ask;
	struct scout__job_list granted;      /* jobs that wait for a segment */
	struct scout__grant_record *records; /* 2 * max_jobs, mapped lazily: from 0 to n_used_records were used */
	uint32_t n_used_records;
	struct scout__grant_list free_records; /* of these */
	struct scout__grant_list due;
	uint32_t n_told;    /* DONEs in flight */
	uint32_t n_copying; /* batches in the engine; one that was copied to be compared, until it is */
	uint32_t n_loading; /* of these: of retrieves */
	struct scout__verifier verifier;
	struct scout__adopt adopt;
	struct {
		uint64_t generation; /* the latest name that the caller gave */
		uint64_t said;       /* the name that is in flight */
		bool pending;        /* the CLEAR was not answered: no job may ask */
		bool in_flight;
		bool looks; /* the server says that we are out: ask which clear it has */
	} clear;            /* see worker_clear.c */
	struct scout__log_limit clear_limit;
	struct scout__log_limit mismatch_limit;
};

/* Cookies of operations: kind in the low bits. */
enum scout__cookie_kind {
	SCOUT__COOKIE_REGISTER = 0,
	SCOUT__COOKIE_GRANTS = 1,
	SCOUT__COOKIE_DONE = 2,
	SCOUT__COOKIE_ADOPT = 3,
	SCOUT__COOKIE_CLEAR = 4,
	SCOUT__COOKIE_LOOK = 5
};
#define SCOUT__COOKIE_BITS 3

/* Whether a reset or clear came after the job's submit. */
static inline bool
scout__worker_outdated(const struct scout_worker *w, const struct scout__job_data *data)
{
	return data->weights_gen != atomic_load(&w->weights_gen);
}

/* The block id; -1 for a block that is never touched. */
static inline int64_t
scout__worker_plain_id(const struct scout__table *table, int64_t id)
{
	return id < 0 || id == table->null_block ? -1 : id;
}

/* The first block of chunk @chunk of the job, which is one of @group's. */
static inline int64_t *
scout__job_ids(const struct scout__job_data *data, const struct scout__job_group *group, uint32_t chunk)
{
	return data->ids + group->ids_at + (uint64_t)(chunk - group->at) * group->blocks_per_chunk;
}

/* The group of chunk @chunk. */
static inline const struct scout__job_group *
scout__job_group_of(const struct scout__job_data *data, uint32_t chunk)
{
	const struct scout__job_group *group = data->groups;

	while (chunk >= group->at + group->n)
		group++;
	return group;
}

/* Whether the copy engine has no events and no streams. */
static inline bool
scout__worker_is_host(const struct scout_worker *w)
{
	return !w->copy->fence;
}

/* The server does not know our registration, or we gave it up. */
static inline SCOUT_ON_COURIER void
scout__worker_unregistered(struct scout_worker *w)
{
	w->reg_epoch = 0;
	atomic_store(&w->is_registered, false);
}
