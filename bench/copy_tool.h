/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_BENCH_COPY_TOOL_H
#define KVSCOUT_BENCH_COPY_TOOL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What the files of kvscout-copy share. Main thread only. */

#define COPY_MAX_REPEAT 1000u
#define COPY_MIN_TOTAL (UINT64_C(64) << 20)
#define COPY_MAX_TOTAL (UINT64_C(8) << 30)

enum {
	EXIT_WRONG = 1,
	EXIT_USAGE = 2,
	EXIT_NOT_HERE = 77 /* as a skipped test */
};

struct copy_options {
	const char *backend;
	const char *direction;
	const char *method;
	const char *json; /* NULL: none */
	const char *svg;  /* NULL: none */
	uint64_t piece_bytes;
	uint64_t pieces;
	uint64_t total_bytes; /* of the sweep on cuda */
	uint64_t seed;
	uint64_t repeat;
	int device;
	bool sweep;
	bool has_piece_bytes, has_method; /* were given */
};

struct copy_summary {
	double min, p50, max;
};

/* kvscout-copy.c */
__attribute__((format(printf, 2, 3), noreturn)) void copy_die(int status, const char *fmt, ...);
uint64_t copy_random(uint64_t *seed);
void *copy_alloc(uint64_t bytes);
/* A random order in which no page is followed by its neighbour. */
void copy_shuffle(int64_t *ids, uint64_t n, uint64_t *seed);
struct copy_summary copy_summarize(const double *values, uint64_t n);
void copy_json_string(FILE *out, const char *text);
void copy_json_summary(FILE *out, const char *name, struct copy_summary s, uint64_t n);
void copy_json_environment(FILE *out);

/* copy_cuda.c, or copy_nocuda.c in builds without CUDA: `--backend cuda`. Returns the exit status. */
int copy_cuda_run(const struct copy_options *opt);
/*
 * Print the CUDA devices, or why there is none. Returns the exit status: 0, EXIT_NOT_HERE without a driver or a device,
 * EXIT_WRONG where there is a driver and it cannot be used.
 */
int copy_cuda_devices(void);

/* ---- the sweep on cuda, and its report (copy_report.c) ---- */

enum copy_way {
	COPY_CONTIGUOUS,
	COPY_STAGED,
	COPY_BATCH,
	COPY_DIRECT,
	COPY_AUTO,
	COPY_N_WAYS
};

enum copy_course {
	COPY_H2D,
	COPY_D2H,
	COPY_BOTH,
	COPY_N_COURSES
};

#define COPY_MAX_POINTS 16u

/* One piece size. */
struct copy_point {
	uint64_t piece_bytes;
	uint64_t pieces;
	bool ran[COPY_N_WAYS];
	struct copy_summary gbps[COPY_N_COURSES][COPY_N_WAYS];
	struct copy_summary ratio[COPY_N_COURSES][COPY_N_WAYS]; /* to contiguous, round by round */
	double slower[COPY_N_WAYS]; /* the matrix product beside copies both ways, in percent; negative: faster */
};

struct copy_sweep {
	const struct copy_options *opt;
	char gpu[256];
	int driver, runtime;
	bool has_batch;
	uint64_t total_bytes;
	uint64_t verified_bytes, wrong_bytes;
	double product_ms;
	unsigned int n_points;
	struct copy_point points[COPY_MAX_POINTS];
};

extern const char *const copy_way_names[COPY_N_WAYS];
extern const char *const copy_course_names[COPY_N_COURSES];

void copy_report_table(const struct copy_sweep *sweep);
void copy_report_json(const struct copy_sweep *sweep, const char *path);
void copy_report_svg(const struct copy_sweep *sweep, const char *path);

#endif
