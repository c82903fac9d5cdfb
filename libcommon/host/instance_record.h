/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "thread.h"

/*
 * What the lock file of an instance says: lines of "key = value", the last of them "end". Only the holder of the lock writes; the
 * others read without it.
 */

#define SCOUT__SERVER_KEYS_MAX 4096u /* bytes of server_keys */

enum scout__instance_state {
	SCOUT__INSTANCE_UNKNOWN = 0, /* nothing was written yet, or it is being written */
	SCOUT__INSTANCE_STARTING,
	SCOUT__INSTANCE_SERVING,
	SCOUT__INSTANCE_STOPPED /* the server has ended by itself, or by a signal */
};

struct scout__instance_record {
	enum scout__instance_state state;
	long pid;                              /* pid of the server; while it starts, of the process that starts it */
	uint32_t wire;                         /* protocol version of the server */
	uint32_t failures;                     /* starts in a row that ended before the server served */
	uint64_t since_ms;                     /* when that state began, CLOCK_BOOTTIME */
	char version[32];                      /* version of the server's software */
	char keys[SCOUT__SERVER_KEYS_MAX + 1]; /* the keys with which it was started: "key=value key=value" */
};

/* If the file is torn or empty, the state is UNKNOWN. */
SCOUT_ON_ANY void scout__record_read(int fd, struct scout__instance_record *ret_record);
/* False: errno says why. */
SCOUT_ON_ANY bool scout__record_write(int fd, const struct scout__instance_record *record);
SCOUT_ON_ANY uint64_t scout__boot_ms(void);
