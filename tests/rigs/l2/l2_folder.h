/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * A folder of the files adapter seen from outside: what is in it, byte by byte, with nothing assumed from the adapter. And
 * processes that are killed in the middle of their work.
 */

struct l2_folder_report {
	uint32_t objects;     /* whole, verified, under the right name */
	uint32_t damaged;     /* under an object's name, but not one */
	uint32_t temporaries; /* in tmp/ */
	uint32_t foreign;     /* any other name */
	uint64_t bytes;       /* of the objects' files: st_blocks */
	char first_bad[256];  /* path of the first that is damaged, temporary or foreign */
};

/*
 * A new folder under $TMPDIR or /tmp, or if that can be in memory; the caller frees the path. Aborts when it cannot. The end of the program
 * removes what is left of a case that failed.
 */
char *l2_folder_make(bool in_memory);
/* Remove it with everything in it. */
void l2_folder_remove(const char *path);
/* Read and verify everything. */
void l2_folder_check(const char *path, struct l2_folder_report *ret_report);
/* The same for a folder of examples/folder_store.c: files without folders, the payload right behind the header. */
void l2_folder_check_flat(const char *path, struct l2_folder_report *ret_report);

/* Run @main in a child that dies with this process; it must not return. */
pid_t crash_start(void (*main)(void *arg), void *arg);
/* SIGKILL, and wait until it is gone. False: it had ended by itself before. */
bool crash_kill(pid_t pid);
