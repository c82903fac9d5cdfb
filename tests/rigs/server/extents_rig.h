/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>

#include "link.h"
#include "wire_peer.h"
#include "worker_internal.h"
#include "worker_rig.h"

/* A pool of small extents that moves from namespace to namespace, and a worker in a process of its own. */

#define SLOT_BYTES 768u

#define CHUNKS 64u /* in the pool: 8 extents of 8 */

extern struct rig rig;
extern struct wire_peer status;

/* A worker in a process of its own: does what it is told by one byte, answers with one. */
struct helper {
	pid_t pid;
	int to, from;
};

void open_status(void);
uint64_t counter(const char *name);
void start_worker_in(struct rig *r, uint32_t i, const char *name_space);

/* Store @n chunks of @prompt from worker @w. Returns how many got no room. */
uint32_t store_some(struct rig *r, uint32_t w, uint32_t prompt, size_t n);

/* Retrieve all @n chunks of @prompt through @client and worker @w, and compare every byte. */
void expect_bytes(uint32_t w, uint32_t prompt, size_t n);

/* How many pool segments a process maps (0: this one), and their bytes. */
uint32_t count_mapped(pid_t pid, uint64_t *ret_bytes);
void wait_mapped(uint32_t n);

/* After rig_start_server(), which says where the server is; before any client or worker. */
struct helper helper_fork(const char *name_space);
void helper_do(const struct helper *h, char c);
void helper_end(struct helper *h, int sig);
