/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/protocol.h>

#include "clock.h"
#include "latency.h"
#include "list.h"
#include "log.h"
#include "thread.h"

/*
 * L2 keeps what outlives or outgrows host memory. Its adapters (files, Redis) share one vtable; l2_submit stands
 * between them and the server's loop.
 *
 *   loop ── submit ──▶ breaker ──▶ adapter's own threads ── complete ──▶ ring + eventfd ──▶ scout__l2_reap() on the loop
 *
 * An object is one shard: the KV of one chunk of one KV rank. An operation (scout__l2_op) is the loop's before submit,
 * L2's from then on, and the loop's again when it comes out of scout__l2_reap(). It comes out exactly once, however
 * late: memory that it names (a slot of the pool) is untouchable until then. The loop never waits: a caller that needs
 * an answer by some time has its own timer, and goes on without the answer.
 *
 * Clocks of an operation:
 *
 *   it waits       from the submit until the adapter begins it: after others, in the list of l2_submit or the adapter's
 *                  queue. This has no deadline and says nothing about the store. Only if the store hangs, or is
 *                  switched off, it ends.
 *   it progresses  from scout__l2_moved() on, which the adapter calls when it begins an operation and each time that
 *                  bytes of it have moved. The time since the last call must stay below op->timeout_us; the total
 *                  may be any.
 *   it is late     that much time has passed without progress: it counts as a failure of the store, op->late() is
 *                  called, and nothing waits for it any more. What it brings later changes no breaker.
 *
 * An adapter whose threads cannot hang (Redis: non-blocking sockets) needs no scout__l2_moved(): it ends each operation
 * itself, as TIMEOUT, by the same rule.
 *
 * The loop takes no lock here: operations travel to the adapters and back through rings.
 */

#define SCOUT__L2_MAX_ADAPTERS 4u
#define SCOUT__L2_MAX_KEYS 8192u     /* of one EXISTS or UNPIN */
#define SCOUT__L2_KEY_BYTES_MAX 384u /* of a key as it is written into an object's header */
#define SCOUT__L2_WHY_BYTES 200u     /* of a store's own words */

/*
 * Which object. The digest is XXH3-128 over the canonical bytes of the whole key (see object.h), seedless, the same on
 * every machine: it names files and Redis keys, and catalogues keep nothing else. The whole key stands in each object's
 * header and is compared on load, so that two keys with the same digest are a miss and never wrong bytes.
 */
struct scout__l2_digest {
	uint64_t lo, hi;
};

struct scout__l2_key {
	struct scout__l2_digest digest;
	uint16_t len;
	uint8_t bytes[SCOUT__L2_KEY_BYTES_MAX];
};

enum scout__l2_what {
	SCOUT__L2_EXISTS = 1, /* n digests; found[] is written */
	SCOUT__L2_UNPIN,      /* n digests, each pinned once by an EXISTS with pin; never fails */
	SCOUT__L2_LOAD,       /* one object into data: exactly `bytes` bytes, else it fails */
	SCOUT__L2_STORE,      /* one object from data; an object that is there already stays */
	SCOUT__L2_REMOVE, /* one object: a LOAD found it CORRUPT. Files look again first; Redis removes what is there */
	/*
	 * A small record named by one digest, apart from the objects: never evicted. `bytes` bytes, to or from `data`.
	 */
	SCOUT__L2_RECORD_READ, /* found[0] is 1 if there is a record; another length is read as zeros */
	SCOUT__L2_RECORD_WRITE /* replaces the record; durable, and whole or not at all */
};
#define SCOUT__L2_WHATS 8u

/* How an operation ended. Counted by name. */
enum scout__l2_result {
	SCOUT__L2_OK = 0,
	SCOUT__L2_ABSENT,   /* LOAD: not there (any more); in Redis also: it has another format version, and stays */
	SCOUT__L2_PRESENT,  /* STORE: it was there already, nothing was written */
	SCOUT__L2_CORRUPT,  /* LOAD: length, key, header or checksum do not match; data may be half written */
	SCOUT__L2_FULL,     /* STORE: no room: on the disk, or within max_bytes with everything pinned */
	SCOUT__L2_TIMEOUT,  /* no progress for timeout_us, as the adapter found */
	SCOUT__L2_ERROR,    /* the store cannot be reached or failed; see `why` and `detail` */
	SCOUT__L2_REFUSED,  /* the breaker was or became open before its turn, or a queue is full: nothing was tried */
	SCOUT__L2_CANCELLED /* the adapter was stopped */
};
#define SCOUT__L2_RESULTS 9u

struct scout__l2_op {
	uint8_t what;                  /* enum scout__l2_what */
	uint8_t adapter;               /* set by scout__l2_submit() */
	uint8_t result;                /* enum scout__l2_result; written by the adapter */
	bool pin;                      /* EXISTS: the adapter does not evict what is found until as many UNPINs */
	bool is_chain;                 /* EXISTS: only how many from the first on are there counts */
	int32_t detail;                /* errno or the like, for the log */
	uint64_t timeout_us;           /* longest time without progress, once it has begun; 0: no limit */
	char why[SCOUT__L2_WHY_BYTES]; /* the store's words for a failure; "": `detail` says all. Cleaned where it is read */
	/* EXISTS, UNPIN */
	uint32_t n;
	struct scout__l2_digest *digests; /* n, the submitter's, untouched until reaped */
	uint8_t *found; /* n, zero at the submit; EXISTS writes 0 or 1 to each, also in a batch that fails in part */
	/* LOAD, STORE, REMOVE */
	const struct scout__l2_key *key; /* the submitter's, untouched until reaped */
	/* STORE: the object before it in its prompt, without which nobody finds this one; zeros: it is the first. */
	struct scout__l2_digest after;
	uint8_t *data; /* in a slot of the pool; LOAD writes, STORE reads */
	uint64_t bytes;
	/* The submitter's. */
	void (*done)(void *user, struct scout__l2_op *op); /* called by scout__l2_reap(), on the loop */
	void (*late)(void *user, struct scout__l2_op *op); /* or NULL; called by scout__l2_tick(), once, before done */
	void *user;
	/* Of l2_submit and of the adapter. */
	struct scout__list node;   /* l2_submit: in the one list where the operation is */
	struct scout__l2_op *next; /* the adapter's, until it completes the operation */
	_Atomic uint64_t moved_us; /* when it was begun, or made progress last; 0: it waits */
	uint64_t submitted_us, given_us;
	bool is_late;
};

/* Note that the adapter begins @op, or that bytes of it have moved. Any thread that has @op. */
static inline void
scout__l2_moved(struct scout__l2_op *op)
{
	atomic_store_explicit(&op->moved_us, scout__now_us(), memory_order_relaxed);
}

/* Whether the adapter has begun @op: if not, its result says nothing about its object. */
static inline bool
scout__l2_has_begun(const struct scout__l2_op *op)
{
	return atomic_load_explicit(&op->moved_us, memory_order_relaxed) != 0;
}

/* Sides of a store, see the breakers below. */
enum scout__l2_side {
	SCOUT__L2_READS = 0,
	SCOUT__L2_WRITES
};

/* ---- adapters ---- */

/*
 * An adapter is a room with a struct scout__l2_adapter; files/files.c and redis/redis.c say how each of the two works.
 * blocking.h has the threads of a store whose calls block, and a recipe. l2_queue.h brings operations from the loop to
 * the threads of any other, object.h has keys and headers, url.h reads its URL.
 *
 * A new one needs, in this order:
 *   its room: NAME.h, NAME.c, meson.build libserver/l2/NAME; meson.build adds to l2_libs and l2_deps
 *   the way to the room                   subdir() in libserver/l2/meson.build
 *   what the room uses, and its lines     tests/abi/rooms.py (a row, and the row libserver)
 *   its place in the list of adapters     libserver/l2_adapters.c
 *   a row in the table of all stores      tests/rigs/l2/store.h: l2_stores and l2_nodes then run on it
 *   a test of what it alone has           tests/unit/NAME or, with a real server, tests/system/NAME; adapter_rig.h
 *   faults before the adapter             tests/rigs/l2/l2_fault.c, then a test in tests/fault
 *   what operators read                   docs/l2.md, the head of url.h, and the text of the key `l2` (server_config.c;
 *                                         `./dev test docs_pages` says how to renew the page). An option table of the
 *                                         adapter on the page: tests/docs/generated.c
 *   a library, if it needs one            meson.build (HAVE_NAME), libserver/meson.build, l2.c (what a build without it
 *                                         says), docs/architecture.md, packaging/third-parties, wheel/finish.py
 */

struct scout__l2_url; /* url.h */
struct scout__l2_port;

/* What an adapter counts itself. Its threads write with relaxed atomics; any thread reads. */
struct scout__l2_gauges {
	uint64_t objects, bytes;      /* as far as it knows; UINT64_MAX: unknown */
	uint64_t max_bytes;           /* UINT64_MAX: no limit of its own */
	uint64_t evictions;           /* objects it removed to make room */
	uint64_t pinned;              /* objects */
	uint64_t recovered, leftover; /* at start: objects taken over, remains of a crash removed */
	uint64_t reconnects;          /* connections made anew */
	uint64_t moved, asked;        /* answers that sent an operation to another node: for good, or this once */
	uint64_t login_refused;       /* connections that the store did not let in: user or password */
	bool ready;                   /* false while a catalogue is rebuilt or no server was reached yet */
};

struct scout__l2_open {
	const struct scout__l2_url *url;
	struct scout__l2_port *port;  /* for scout__l2_complete() */
	const struct scout__log *log; /* outlives the adapter; any thread */
	uint32_t max_ops;             /* never more are submitted at once */
	uint32_t timeout_ms;          /* l2_timeout_ms, for work without an operation: connecting */
	uint32_t write_timeout_ms;    /* timeout_ms of the URL, see struct scout__l2_store */
};

struct scout__l2_adapter {
	const char *scheme; /* scheme of its URLs: "fs", "redis" */
	bool keeps_records; /* it knows RECORD_READ and RECORD_WRITE */
	/* How long a STORE, REMOVE or RECORD_WRITE may make no progress, if that is more than l2_timeout_ms; 0: no longer than that. */
	uint32_t write_timeout_ms;
	/*
	 * Check what the URL says, without a look at the store: the same codes and sentences as from open. Any thread.
	 */
	int (*check)(const struct scout__l2_url *url, char *err, size_t err_len);
	/*
	 * Check everything that can be checked at once and start. A store that cannot be reached now is no error, since
	 * it may come later: the log says so. Returns 0 or SCOUT_ERR_CONFIG_RANGE, _CONFIG_KEY (an option in the URL),
	 * _PERMISSION, _IN_USE, _NOMEM, _SYSTEM, with a sentence in @err. On the thread that starts the server.
	 */
	int (*open)(const struct scout__l2_open *args, void **ret_adapter, char *err, size_t err_len);
	/*
	 * On the loop; never blocks, takes no lock. False: the operation stays the caller's. If the caller honours
	 * max_ops, room is never the reason.
	 */
	bool (*submit)(void *adapter, struct scout__l2_op *op);
	/*
	 * How many LOADs (READS), or STOREs and REMOVEs (WRITES), the adapter wants at once: those that it works on,
	 * and as many more as keep its threads busy. Others wait in l2_submit. Const after open. NULL: no limit.
	 */
	uint32_t (*at_once)(const void *adapter, enum scout__l2_side side);
	/*
	 * End every operation (those that were not begun: CANCELLED) and the threads. Waits until @deadline_us at most;
	 * false: a thread hangs in the kernel. Then nothing is freed, and memory of its operations must stay mapped.
	 */
	bool (*stop)(void *adapter, uint64_t deadline_us);
	/* After a stop that returned true. */
	void (*close)(void *adapter);
	void (*gauges)(void *adapter, struct scout__l2_gauges *ret_gauges);
};

/* An adapter's thread has ended @op. Any thread; exactly once for each operation that submit took. Never fails. */
SCOUT_ON_ANY void scout__l2_complete(struct scout__l2_port *port, struct scout__l2_op *op);

/* ---- for the server ---- */

/*
 * Each adapter has two breakers, since a store that can be read but not written (a full or read-only disk) is still
 * worth reading. SCOUT__L2_READS stands for EXISTS and LOAD, SCOUT__L2_WRITES for STORE and REMOVE; UNPIN passes
 * always.
 *
 * A failure is an ERROR, a TIMEOUT, an operation that is late, or FULL with a `detail` (the store itself is full; FULL
 * without one is the adapter's own limit with everything pinned, and no failure). SCOUT__L2_FAILURES of one kind in a
 * row open the breaker; so does a store that hangs as a whole: whatever it has begun is late, and more is waiting.
 * Waiting operations then end as REFUSED, and operations that the adapter has but did not begin are late, without a
 * failure. Records pass the breakers, and do not count for them; they count for the store's state.
 *
 * The store is tried again after 1 s, then 2, 4 ... 30 s (less up to a quarter, so that many servers do not come at
 * once): reads by an operation of L2's own, so that no lookup pays for it; writes by the next STORE, one at a time.
 */
#define SCOUT__L2_FAILURES 5u

enum scout__l2_breaker {
	SCOUT__L2_CLOSED = 0,
	SCOUT__L2_OPEN,     /* REFUSED until a trial is due */
	SCOUT__L2_HALF_OPEN /* being tried: all but the trial is REFUSED */
};

enum scout__l2_verdict {
	SCOUT__L2_NOTHING, /* says nothing about the store */
	SCOUT__L2_WORKED,
	SCOUT__L2_FAILED
};

/* What the result of @op says. */
enum scout__l2_verdict scout__l2_verdict_of(const struct scout__l2_op *op);
/* How a store does, from how all operations on it end. */
enum scout__l2_state {
	SCOUT__L2_STARTING = 0, /* nothing has worked yet, its catalogue is not complete, or it has no connection */
	SCOUT__L2_WORKS,
	SCOUT__L2_FAILING, /* something fails */
	SCOUT__L2_OFF      /* a breaker is not closed */
};

struct scout__l2_health {
	enum scout__l2_state state;
	uint64_t since_ms; /* Unix time of the last change of state */
	uint64_t retry_ms; /* OFF: until the next try */
	const char *words; /* FAILING, OFF: why, in the store's own words. Good until the next call of L2 */
};

/* What L2 counts for one adapter, for STATUS. Loop. */
struct scout__l2_counters {
	uint64_t submitted[SCOUT__L2_WHATS];                  /* by enum scout__l2_what */
	uint64_t results[SCOUT__L2_WHATS][SCOUT__L2_RESULTS]; /* by what and result */
	uint64_t overdue[SCOUT__L2_WHATS]; /* operations that were late; counted in results, too, once they end */
	uint64_t late;                     /* late operations that have ended */
	uint64_t keys_asked, keys_found;   /* EXISTS */
	uint64_t bytes_loaded, bytes_stored;
	uint64_t opened[2];                          /* times that a breaker opened, by enum scout__l2_side */
	struct scout__latency took[SCOUT__L2_WHATS]; /* by what: from submit to reap, unless refused or cancelled */
};

/* What others may know of a store. */
struct scout__l2_store {
	/* const after open */
	const char *name;   /* the URL without its password */
	const char *scheme; /* "fs", "redis" */
	bool keeps_records;
	/*
	 * How long a STORE, REMOVE or RECORD_WRITE may make no progress: timeout_ms of the URL, or the larger of l2_timeout_ms and the
	 * adapter's own. The caller puts it into the operation.
	 */
	uint64_t write_timeout_us;
	uint32_t at_once
		[2]; /* LOADs (READS), or STOREs and REMOVEs (WRITES), that it works on; others wait in l2_submit */
	/* loop */
	uint32_t n_running; /* operations that it has, without those that wait in l2_submit */
	struct scout__l2_counters counters;
};

struct scout__l2;

/*
 * Whether a server could open these stores, as far as their URLs tell: see check of struct scout__l2_adapter. @urls as
 * for scout__l2_new(). Returns 0 or SCOUT_ERR_CONFIG_RANGE, _CONFIG_KEY, _CONFIG_SYNTAX, _NOMEM; @err names the URL.
 */
SCOUT_ON_ANY int scout__l2_check(const struct scout__l2_adapter *const *adapters, const char *const *urls, uint32_t n,
				 char *err, size_t err_len);

/*
 * @adapters: the adapters that URLs may name, up to a NULL; used during the call. @urls: n of them, in the order of
 * preference. @max_ops: operations that may run at once on each adapter. Returns 0 or the adapter's code; @err names
 * the URL (without its password). On the starting thread, before the loop.
 */
int scout__l2_new(const struct scout__l2_adapter *const *adapters, const char *const *urls, uint32_t n,
		  uint32_t timeout_ms, uint32_t max_ops, const struct scout__log *log, struct scout__l2 **ret_l2,
		  char *err, size_t err_len);
/* Readable while scout__l2_reap() has something. */
SCOUT_ON_ANY int scout__l2_fd(const struct scout__l2 *l2);
/* Whether an EXISTS or LOAD submitted now would be tried, as far as the breaker goes. */
SCOUT_ON_LOOP bool scout__l2_tries_reads(const struct scout__l2 *l2, uint32_t adapter);
/* When a STORE would be tried again; 0: at once; UINT64_MAX: after one that is being tried has ended. */
SCOUT_ON_LOOP uint64_t scout__l2_writes_at_us(const struct scout__l2 *l2, uint32_t adapter);
/*
 * Give @op to an adapter. Always taken: what cannot be tried (breaker, queue) comes out of the next reap as REFUSED; an
 * UNPIN waits for room and is never refused. op->done is never called from here.
 */
SCOUT_ON_LOOP void scout__l2_submit(struct scout__l2 *l2, uint32_t adapter, struct scout__l2_op *op, uint64_t now_us);
/* Call done() of at most @max ended operations. Returns whether there are more. */
SCOUT_ON_LOOP bool scout__l2_reap(struct scout__l2 *l2, uint32_t max, uint64_t now_us);
/* Find what is late (it counts for the breaker), try open breakers and waiting UNPINs. Cheap. Calls late(). */
SCOUT_ON_LOOP void scout__l2_tick(struct scout__l2 *l2, uint64_t now_us);
/* When scout__l2_tick() has something to do next, for the loop's timeout; UINT64_MAX: nothing by itself. */
SCOUT_ON_LOOP uint64_t scout__l2_next_us(const struct scout__l2 *l2);
SCOUT_ON_ANY const struct scout__l2_store *scout__l2_store_of(const struct scout__l2 *l2, uint32_t adapter);
/* HALF_OPEN also while the store's records fail: without them it is not used, and they are tried again and again. */
SCOUT_ON_LOOP enum scout__l2_breaker scout__l2_breaker_of(const struct scout__l2 *l2, uint32_t adapter,
							  enum scout__l2_side side);
SCOUT_ON_LOOP void scout__l2_health_of(const struct scout__l2 *l2, uint32_t adapter, uint64_t now_us,
				       struct scout__l2_health *ret_health);
SCOUT_ON_ANY void scout__l2_gauges_of(const struct scout__l2 *l2, uint32_t adapter,
				      struct scout__l2_gauges *ret_gauges);
/* "load", "absent": for log lines and STATUS. */
SCOUT_ON_ANY const char *scout__l2_what_name(uint8_t what);
SCOUT_ON_ANY const char *scout__l2_result_name(uint8_t result);
/*
 * Stop all adapters, reap everything. False: an adapter hangs; then the pool's mappings must stay as they are (they are
 * leaked) and scout__l2_free() frees only what is safe.
 */
SCOUT_ON_LOOP bool scout__l2_stop(struct scout__l2 *l2, uint32_t timeout_ms);
SCOUT_ON_ANY void scout__l2_free(struct scout__l2 *l2);
