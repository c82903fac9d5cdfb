/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "files.h"
#include "l2_folder.h"
#include "object.h"
#include "url.h"

/*
 * The files adapter by its vtable, without l2_submit: this file is the port that operations come back through. Everything else
 * is real. One adapter at a time, unless a test opens others by rig_open_url().
 */

#define RIG_MAX_OPS 256u
#define RIG_WAIT_US 60000000u

struct rig {
	char *folder; /* removed by rig_fini() */
	void *adapter;
	char err[512];
	char log[65536]; /* all lines */
	size_t log_len;
	struct scout__log to; /* ours: while the adapter is open */
};

extern pthread_mutex_t rig_mu;

/* op->user is the place of a flag: done. */
void scout__l2_complete(struct scout__l2_port *port, struct scout__l2_op *op);
bool rig_wait_until(const bool *done, uint64_t us);
void rig_wait(const bool *done);
void rig_log(void *user, int level, const char *text);
bool rig_logged(struct rig *rig, const char *text);
void rig_init(struct rig *rig, bool in_memory);

/* @query: "" or "?threads=1..." */
int rig_open_url(struct rig *rig, const char *url_text, void **ret_adapter);
int rig_try_open(struct rig *rig, const char *query);
struct scout__l2_gauges rig_gauges(const struct rig *rig);
void rig_open(struct rig *rig, const char *query);
void rig_close(struct rig *rig);
void rig_fini(struct rig *rig);

/* ---- keys and payloads ---- */

struct scout__l2_key rig_key_of(uint32_t i, const char *name_space);
struct scout__l2_key rig_key(uint32_t i);

/* Bytes that tell @i from each other and each place from the next. */
void rig_fill(uint8_t *data, uint64_t bytes, uint32_t i);
char *rig_path(const struct rig *rig, const struct scout__l2_key *key);

/* ---- operations ---- */

void rig_submit(void *adapter, struct scout__l2_op *op, bool *done);
enum scout__l2_result rig_run(const struct rig *rig, struct scout__l2_op *op);
enum scout__l2_result rig_store_bytes(const struct rig *rig, const struct scout__l2_key *key, uint8_t *data,
				      uint64_t bytes);
enum scout__l2_result rig_load_bytes(const struct rig *rig, const struct scout__l2_key *key, uint8_t *data,
				     uint64_t bytes);

/* Object @i with its own bytes. */
enum scout__l2_result rig_store(const struct rig *rig, uint32_t i, uint64_t bytes);

/* OK only if it is what was stored; anything else that says OK fails the test. */
enum scout__l2_result rig_load(const struct rig *rig, uint32_t i, uint64_t bytes);
bool rig_exists(const struct rig *rig, uint32_t i, bool pin);
void rig_unpin(const struct rig *rig, uint32_t i);

/* Nothing but whole objects, @n of them. */
void rig_check_folder(const struct rig *rig, uint32_t n);
