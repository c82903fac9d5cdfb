/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_rig.h"
#include "l2.h"
#include "l2_fault.h"
#include "l2_folder.h"
#include "object.h"

/* A server with an L2 whose faults can be switched on. */

/* A kind of store, and how it differs for the cases. */
struct fault_l2_store {
	bool is_plugin;
	uint32_t payload_at;    /* in the file of an object */
	int level;              /* of those files, below the folder */
	uint32_t begins;        /* loads at once; what waits behind one that hangs is no bad key */
	uint32_t writes_behind; /* that wait while loads hang, the trial too: they have the same threads */
	uint32_t stuck;         /* rule `hang` for a call that ends with the rule only */
	uint32_t failed;        /* rule `fail` for an error */
	void (*check)(const char *path, struct l2_folder_report *ret_report);
};

/*
 * Fixtures, for what up() starts: a server with files behind a layer of faults (l2_fault.h); the server that
 * KVSCOUT_SHIPPED names with the plugin that KVSCOUT_FAULTY_STORE names (faulty_store.c).
 */
void on_files(void);
void on_plugin(void);
extern const struct fault_l2_store *on;

#define POOL_CHUNKS 32u

#define MAX_FILES 64u

#define PAYLOAD_AT (on->payload_at)

#define LOADS_AT_ONCE 4u /* of two threads, which is what the folder here has: as many again wait for them */

#define WRITES_AT_ONCE 1u /* one less than threads */

#define FILE_BYTES (PAYLOAD_AT + FAULT_SHARD_BYTES)

extern struct fault f;
extern struct fault_actor *sched, *worker;
extern struct l2_fault_control *control;
extern char folder[128];
extern char l2_url[512];
extern char files[MAX_FILES][160];
int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at);

/* l2_lookup_timeout_ms of the next server. */
extern const char *question_ms;

/* Of the next server: its log; 0: nowhere. */
extern int log_fd;

/* With L2 whose operations have @timeout_ms. */
void up_with(uint32_t pool_chunks, const char *timeout_ms, const char *bad_key_ms);
void up(const char *timeout_ms, const char *bad_key_ms);

/* All ends in order; the folder holds whole objects and nothing else. The loop never waited for the store. */
void down(void);
void check_folder(void);
/* The example does not clean up after a server that was killed; files do. */
void unlink_temporaries(void);
/* Of the server that runs: no step of its loop was late. */
void check_loop(void);

/* A counter that is not listed while it is 0. */
uint64_t count(const char *name);
void wait_count(const char *name, uint64_t least);

/* Wait until nothing is being written or waits for its turn; what a store cannot take now is put off. */
void writes_at_rest(void);

/* Stored in both tiers, if the second takes it. */
void store(uint32_t prompt, uint32_t n);

/* What was stored before is in L2 only. */
void out_of_the_pool(void);
void list_files(uint32_t expected);

/* Look up and retrieve: what is not named is right, what is named is untouched. How many chunks were filled. */
uint32_t fetch(uint32_t prompt, uint32_t n, struct fault_done *ret_done);

/* All of it comes, sooner or later: bad keys are forgotten, breakers close. */
void comes_back(uint32_t prompt, uint32_t n);

/* Also what was lost, once it is computed again and stored again. */
void heals(uint32_t prompt, uint32_t n);

/* The pool alone does its work. */
void check_pool(uint32_t prompt);
