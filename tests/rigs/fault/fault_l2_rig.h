/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_FAULT_L2_RIG_H
#define KVSCOUT_TESTS_FAULT_L2_RIG_H

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

/* A server with files as its L2, whose faults can be switched on. */

#define POOL_CHUNKS 32u

#define MAX_FILES 64u

#define PAYLOAD_AT 4096u /* in a file of the files adapter */

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

/* With L2 whose operations have @timeout_ms. */
void up_with(uint32_t pool_chunks, const char *timeout_ms, const char *bad_key_ms);
void up(const char *timeout_ms, const char *bad_key_ms);

/* All ends in order; the folder holds whole objects and nothing else. */
void down(void);

/* A counter that is not listed while it is 0. */
uint64_t count(const char *name);
void wait_count(const char *name, uint64_t least);

/* Stored in both tiers. */
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

#endif
