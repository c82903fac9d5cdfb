/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/client.h>

#include "clock.h"
#include "hist.h"
#include "keys.h"
#include "settings.h"
#include "spread.h"

/*
 * The parts of kvscout-latency.
 *
 *   kvscout-latency.c  server, rounds
 *   lat_stop.c         signals
 *   lat_common.c       pace, counts, progress
 *   lat_keys.c         prompts with a known answer, stored through a real worker
 *   lat_async.c        the scheduler loop on scout_try_lookup(), and `polled`: the same with scout_wait_lookup()
 *   lat_sync.c         blocking round trips of a bare socket that speaks the protocol
 *   lat_floor.c        two threads, one ping-pong, no protocol
 *   lat_peer.c         another program that does the same (bench/scripts/peer_python.py), run beside
 *   lat_options.c      the command line
 *   lat_report.c       the table
 *   lat_json.c         JSON
 *   lat_plot.c         SVG
 *
 * Everything runs on the main thread but the floor's echo and the libraries' own threads. Time is in nanoseconds of the
 * monotonic clock.
 */

#define LAT_CHUNK_TOKENS 16u
#define LAT_HASH_BYTES 32u
#define LAT_ERR_BYTES 512
/* A sentence with an error in it. */
#define LAT_LINE_BYTES (LAT_ERR_BYTES + 64)
#define LAT_TEXT_BYTES 256
#define LAT_MAX_ROUNDS SPREAD_MAX
/* Of a lookup, beside the delay that the user asked for. */
#define LAT_TIMEOUT_MS 5000u

enum lat_mode {
	LAT_ASYNC,
	LAT_POLLED,
	LAT_SYNC,
	LAT_FLOOR,
	LAT_PEER, /* not to be chosen by name: --peer */
	LAT_N_MODES
};

extern const char *const lat_mode_names[LAT_N_MODES];

/* What a mode measures. */
enum lat_metric {
	LAT_SUBMIT,  /* a call that queues a lookup */
	LAT_PENDING, /* a call that answers "not yet" */
	LAT_LANDED,  /* submit's start to the answer's publishing */
	LAT_SEEN,    /* submit's start - in the open loop the intended start - to the caller's having the answer */
	LAT_SERVICE, /* open loop: submit's start to the caller's having the answer */
	LAT_STALL,   /* of one step: time in calls */
	LAT_RTT,     /* one blocking round trip */
	LAT_N_METRICS
};

extern const char *const lat_metric_names[LAT_N_METRICS];

struct lat_options {
	const char *endpoint; /* NULL: embedded server */
	struct keys_option keys;
	struct settings settings;
	const char *name_space;
	const char *json, *plot;
	const char *peer; /* command; NULL: none */
	const char *pin;  /* as typed */
	int cpus[2];      /* of the main thread, and of all others; -1: anywhere */
	unsigned int mode;
	bool compare;
	bool verify;
	uint64_t requests; /* of each mode, without the warm-up */
	uint64_t warmup;
	uint64_t rounds;
	uint64_t chunks;
	uint64_t inflight; /* of each client */
	uint64_t clients;
	uint64_t rate; /* arrivals per second; 0: closed loop */
	uint64_t step_us;
	double hit_ratio;
	uint64_t prompts; /* 0: chosen by chunks */
	uint64_t server_delay_us;
	uint64_t l1_bytes; /* 0: what the prompts need */
	uint64_t spin_us;
	uint64_t server_spin_us;
	uint64_t seed;
};

/* Different prompts of `chunks` hashes each, of which the first truth[i] are stored. */
struct lat_keys {
	uint8_t *hashes;
	uint32_t *truth;
	uint64_t n_prompts;
	uint64_t chunks;
};

struct lat_result {
	struct scout__hist metrics[LAT_N_METRICS];
	struct scout__hist asks; /* async: calls that said "not yet", the submit among them, before the answer */
	uint64_t wall_ns;
	uint64_t switches;       /* context switches of all threads */
	uint64_t others_ns;      /* CPU time of all threads but the scheduler's */
	uint64_t server_ns;      /* of these the embedded server's loop; 0: there is none */
	uint64_t landed_in_step; /* async: answers published before the next step began */
	uint64_t requests;       /* ended */
	uint64_t steps;
	uint64_t hit_chunks;
	uint64_t asked_chunks;
	uint64_t busy;   /* submits that were put off */
	uint64_t failed; /* timeout, unreachable, refused: not in any metric */
	uint64_t wrong;  /* not the known truth */
	char first_failure[LAT_TEXT_BYTES];
	char first_wrong[LAT_TEXT_BYTES];
};

struct lat {
	const struct lat_options *opt;
	const char *endpoint;
	struct lat_keys keys;
	struct lat_result results[LAT_N_MODES];
	struct lat_result scratch;                                      /* of one round, or of the warm-up */
	uint64_t round_p50[LAT_MAX_ROUNDS][LAT_N_MODES][LAT_N_METRICS]; /* 0: not measured */
	struct scout__hist clock;                                       /* what two readings of the clock take */
	uint64_t start_ns;                                              /* of measuring */
	uint64_t progress_ns;                                           /* when to say so next */
	uint64_t done;                                                  /* requests of all modes, warm-up included */
	uint64_t total;
	char err[LAT_ERR_BYTES];
	char failure[LAT_ERR_BYTES]; /* what ended the run early; "": nothing did */
	int exit_status;             /* with err: 2 if a value of the command line is wrong; 0: not known */
};

/* Whether the mode is part of this run, and its metrics: bits, 1 << enum lat_metric. */
bool lat_is_chosen(const struct lat_options *opt, unsigned int mode);
unsigned int lat_metrics(const struct lat *lat, unsigned int mode);

/* One mode. run() does @requests requests and drains; returns 0, also when interrupted, or -1 with lat->err. */
struct lat_runner {
	int (*open)(struct lat *lat, void **ret_self);
	int (*run)(void *self, struct lat_result *result, uint64_t requests);
	void (*close)(void *self);
};

extern const struct lat_runner lat_async_runner;
extern const struct lat_runner lat_polled_runner;
extern const struct lat_runner lat_sync_runner;
extern const struct lat_runner lat_floor_runner;
extern const struct lat_runner lat_peer_runner;

/* ---- lat_stop.c ---- */
/* From here on SIGINT and SIGTERM end the run; a second signal ends the process. */
void lat_catch_signals(void);
/* The signal that ended the run; 0: none. */
int lat_stop_signal(void);
bool lat_is_stopped(void);

/* ---- lat_options.c ---- */
/* False: leave with *ret_status. */
bool lat_options_parse(struct lat_options *opt, int argc, char **argv, int *ret_status);
bool lat_is_stdout(const char *path);

/* Write the sentence into lat->err; returns -1. */
__attribute__((format(printf, 2, 3))) int lat_fail(struct lat *lat, const char *fmt, ...);

/* ---- lat_keys.c ---- */
/* Make all prompts of @opt. The same seed makes the same prompts. */
int lat_keys_init(struct lat *lat);
void lat_keys_fini(struct lat_keys *keys);
/* Store what should be hit, by a worker that is gone again on return. 0 too when interrupted. */
int lat_keys_store(struct lat *lat);
const uint8_t *lat_keys_hashes(const struct lat_keys *keys, uint64_t prompt);

/* ---- lat_common.c ---- */
/* The model step between two rounds of asking: every mode is paced by it, so that all meet equally warm threads. */
struct lat_pace {
	struct lat *lat;
	uint64_t step_ns;
	uint64_t next_ns;
};

void lat_pace_begin(struct lat_pace *pace, struct lat *lat);
/*
 * Sleep until the next step's time; not at all when it is past (steps are not caught up). Shows progress in long
 * runs.
 */
void lat_pace_wait(struct lat_pace *pace);

/*
 * When requests may start. Closed loop: at once. Open loop: at times drawn beforehand (a Poisson process of the rate),
 * whatever the server does; one that finds no place waits, and its waiting counts.
 */
struct lat_arrivals {
	double mean_ns; /* 0: closed loop */
	double next_ns;
	uint64_t state;
	uint64_t left;
};

void lat_arrivals_begin(struct lat_arrivals *arrivals, const struct lat *lat, uint64_t requests);
/* Whether one may start now. True: it is taken; *ret_intended_ns is when it should have; 0 in the closed loop. */
bool lat_arrivals_take(struct lat_arrivals *arrivals, uint64_t now_ns, uint64_t *ret_intended_ns);

/* Count one answer of @hit leading chunks to prompt @prompt. */
void lat_count_answer(struct lat *lat, struct lat_result *result, uint64_t prompt, uint64_t hit);
__attribute__((format(printf, 4, 5))) void lat_count_wrong(struct lat *lat, struct lat_result *result, uint64_t prompt,
							   const char *fmt, ...);
/* Count one that failed: its time says nothing. */
__attribute__((format(printf, 3, 4))) void lat_count_failure(struct lat *lat, struct lat_result *result,
							     const char *fmt, ...);

/* Add the scratch result, which is @mode's in @round, to the mode's. */
void lat_end_round(struct lat *lat, uint64_t round, unsigned int mode);

/*
 * A metric's p50 over the p50 of the floor's round trip: taken within each round, since the machine is not the same
 * in two of them; then the median, and the extremes, of the rounds.
 */
struct lat_ratio {
	uint64_t n; /* rounds that have both; all else is 0 if it is */
	double min, p50, max;
};

struct lat_ratio lat_ratio_to_floor(const struct lat *lat, unsigned int mode, unsigned int metric);

/* What a lookup may take, all told. */
uint32_t lat_timeout_ms(const struct lat_options *opt);

/* Lookups that were answered, in a second of the mode's wall time; 0: unknown. A failure is no answer. */
double lat_lookups_per_s(const struct lat_result *result);
/* Time in calls for each that was answered; 0: unknown. */
double lat_stall_per_request_ns(const struct lat_result *result);

/* One line: why the run is not the whole one. NULL: it is. */
const char *lat_why_ended(const struct lat *lat, char buf[LAT_LINE_BYTES]);

/* ---- lat_async.c ---- */
/* Until a server answers at the endpoint. 0 too when interrupted. */
int lat_wait_for_server(struct lat *lat);

/* ---- lat_sync.c ---- */
/* Frame sizes of one lookup and of its answer, for the floor. */
size_t lat_lookup_bytes(const struct lat_options *opt);
size_t lat_answer_bytes(void);

/* ---- lat_floor.c ---- */
/* What the floor runs on: "ipc" or "tcp", always within this machine. */
const char *lat_floor_transport(const struct lat_options *opt);

/* ---- lat_report.c ---- */
void lat_print_table(const struct lat *lat);

/* ---- lat_json.c, lat_plot.c: 0, or -1 with lat->err. "-" is standard output. ---- */
int lat_write_json(struct lat *lat, const char *path);
int lat_write_plot(struct lat *lat, const char *path);
