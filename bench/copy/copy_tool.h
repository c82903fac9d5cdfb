/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "spread.h"

/* What the files of kvscout-copy share. Main thread only. */

#define COPY_MAX_REPEAT SPREAD_MAX
#define COPY_MIN_TOTAL (UINT64_C(1) << 20)
#define COPY_MAX_TOTAL (UINT64_C(8) << 30)
#define COPY_SMALLEST_PIECE 256u
#define COPY_LARGEST_PIECE (2u << 20)
#define COPY_MAX_GROUPS 4u

enum {
	EXIT_WRONG = 1,
	EXIT_USAGE = 2,    /* as CLI_EXIT_USAGE */
	EXIT_NOT_HERE = 77 /* as a skipped test */
};

struct copy_options {
	const char *backend;
	const char *direction;
	const char *method;
	const char *json;  /* NULL: none */
	const char *lines; /* cuda; NULL: none */
	uint64_t piece_bytes;
	uint64_t pieces;
	uint64_t total_bytes; /* of one copy on cuda */
	uint64_t pool_bytes;  /* cuda: GPU memory that the pages are spread over */
	uint64_t seed;
	uint64_t repeat;
	uint64_t budget_s; /* cuda; 0: none */
	uint64_t groups;   /* cuda; 0: as planned */
	/* cuda, as in struct scout__copy_config; 0: the default */
	uint64_t stage_bytes;
	int device;
	bool sweep, quick;
	bool has_piece_bytes, has_pieces, has_method, has_repeat; /* were given */
};

/* ---- copy_options.c ---- */

/* False: leave with *ret_status: after --help, --version, --devices or a wrong command line. */
bool copy_options_parse(struct copy_options *opt, int argc, char **argv, int *ret_status);

/* ---- copy_common.c ---- */

__attribute__((format(printf, 2, 3), noreturn)) void copy_die(int status, const char *fmt, ...);
/* What copy_die() calls first; NULL: nothing. It need not return. */
extern void (*copy_on_death)(int status, const char *text);
void *copy_alloc(uint64_t bytes);
/* A random order in which no page is followed by its neighbour. */
void copy_shuffle(int64_t *ids, uint64_t n, uint64_t *seed);
/* "4 KiB" */
void copy_size_text(char *buf, size_t len, uint64_t bytes);
void copy_json_string(FILE *out, const char *text);
void copy_json_summary(FILE *out, const char *name, struct spread s, uint64_t n);
/* The member "environment" of an object. */
void copy_json_environment(FILE *out);
/* Closes @out. */
void copy_finish(FILE *out, const char *path);

/* ---- copy_host.c ---- */

/* `--backend host`. Returns the exit status. */
int copy_host_run(const struct copy_options *opt);

/* ---- copy_cuda.c ---- */

/* `--backend cuda`. Returns the exit status. */
int copy_cuda_run(const struct copy_options *opt);
/*
 * Print the CUDA devices, or why there is none. Returns the exit status: 0, EXIT_NOT_HERE without a driver or a device,
 * EXIT_WRONG where there is a driver and it cannot be used.
 */
int copy_cuda_devices(void);
