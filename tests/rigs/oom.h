/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/*
 * Lets one allocation of our own code fail: the linker puts oom.c before malloc() and its like in what is linked statically
 * into the test, so libraries allocate as ever. The failing one is the @nth from oom_arm() on, on those threads that count.
 */
enum oom_threads {
	OOM_ALL,
	OOM_SERVER,   /* only those of the server, which runs in this process */
	OOM_NO_SERVER /* all the others */
};

/* @nth 0: none fails. */
void oom_arm(unsigned nth, enum oom_threads threads);
/* Whether one failed since. */
bool oom_failed(void);
bool oom_disarm(void);
/* Blocks that the threads of the last oom_arm() have allocated and not freed. */
long oom_live(void);
