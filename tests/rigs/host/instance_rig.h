/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <kvscout/instance.h>

#include "instance_paths.h"
#include "instance_record.h"

/*
 * The server that engines share, in a private folder: real kvscoutd processes, which are no children of the test. The
 * environment's KVSCOUT_KVSCOUTD names the program. One place for each test process; it is in /tmp.
 */

struct place {
	char folder[64];
	char endpoint[96]; /* auto:///FOLDER */
	struct scout__instance paths;
	const char *program;
	char warnings[4096]; /* that the library has logged by place_log() */
	unsigned n_warnings;
};

void place_up(struct place *place);
/* Ends the server, if there is one, and removes the folder. Waits for both. */
void place_down(struct place *place);

/* A scout_log_fn with the place as its user: keeps warnings. Any thread; the fields are read when no other thread logs. */
void place_log(void *user, int level, const char *text);
/* Waits until a warning has @word. */
void place_wait_warned(struct place *place, const char *word);

/* scout_ensure_server() there, with these keys or NULL. The text of a failure in @err. */
int place_ensure(struct place *place, const char *keys, char *err, size_t err_len);
/* What the lock file says, and whether its lock is held. */
struct scout__instance_record place_record(const struct place *place);
bool place_is_locked(const struct place *place);
/* The lock itself, held by this test; waits for the server's end. To be closed. */
int place_lock(const struct place *place);
/* The server that serves; fails the test if none does. */
pid_t place_server(const struct place *place);
/* SIGKILL to the server, and wait for its end. */
void place_kill(const struct place *place);
/* The server's log, as a string of static storage. */
const char *place_server_log(const struct place *place);
/* The most starts, each of which failed, that the pauses of 0.1 s, 0.2 s, 0.4 s ... leave room for since @since_us. */
unsigned place_most_starts(uint64_t since_us);
/* How often @word is in @text. */
unsigned count_words(const char *text, const char *word);
/* All of a file of /proc, as a string of static storage. */
const char *proc_text(pid_t pid, const char *name);
