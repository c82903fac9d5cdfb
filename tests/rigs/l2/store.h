/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "l2.h"

/*
 * The stores of L2 as a table, so that a case which holds for each of them stands once. A program runs on the one that the variable
 * KVSCOUT_STORE names, `files` without it; meson runs it again for each of the others. They are what users have: a folder, the plugin
 * of examples/, a redis-server (`rediss`: over TLS), and Swift with its s3api behind stand_fail().
 */

#define STORE_URL 512u

struct test_store {
	const char *name;
	const struct scout__l2_adapter *adapter;
	uint32_t timeout_ms; /* of an adapter on it */
	uint32_t payload_at; /* where the payload begins in an object's raw bytes */
	uint32_t each;       /* a case that could try every byte tries those at the front, and each n-th */
	uint32_t many;       /* operations that it is given at once */
	bool looks_again;    /* REMOVE leaves an object that is sound */
	bool keeps_formats;  /* an object of another format version is a miss, and stays */
	bool judges_first;   /* nothing gets into the slot behind a header that is not sound */
	bool is_atomic;      /* of many stores of one object, one writes */
	bool sees_gaps; /* a question about a prompt finds the chunk that is missing in the middle; else the load does */
	int (*run)(Suite *suite);
	const char *shared; /* the options of a URL that several servers have at once */
	/* For each case: an empty store, and its URL. */
	void (*start)(char ret_url[STORE_URL]);
	void (*stop)(void);
	/* An object's raw bytes, as whoever else uses the store sees them: how many; -1: it is not there. Fails the test beyond @size. */
	int64_t (*get)(struct scout__l2_digest digest, uint8_t *bytes, size_t size);
	void (*put)(struct scout__l2_digest digest, const uint8_t *bytes, size_t n);
	/* NULL: it cannot be stopped. */
	void (*freeze)(bool is_frozen);
};

extern const struct test_store store_redis, store_rediss, store_s3;

/* The one of this run. Ends the program where this build has none of that name. */
const struct test_store *store_of_this_run(void);
/* What main() returns: the cases on that store, or "1..0 # SKIP" where it cannot be had. */
int store_main(void);
