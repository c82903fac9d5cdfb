/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TYPES_H
#define KVSCOUT_TYPES_H

/*
 * What clients, workers and servers share: log levels and the log callback, transports, element
 * types of KV, and the description of a configuration key.
 */

#include <stddef.h>
#include <stdint.h>

#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Levels of the log callback. */
enum scout_log_level {
	SCOUT_LOG_ERROR = 1,
	SCOUT_LOG_WARN = 2,
	SCOUT_LOG_INFO = 3,
	SCOUT_LOG_DEBUG = 4
};

/**
 * Receives log lines. Off by default: the libraries write nowhere by themselves.
 *
 * @user    the pointer given with the callback.
 * @level   enum scout_log_level.
 * @text    one line without newline; borrowed for the call.
 *
 * The libraries call it from the caller's, the courier's and the server's threads, without holding
 * a lock. It must be thread-safe, must not block for long, and must not call back into the object
 * that logs, except its scout_*_log_off().
 */
typedef void (*scout_log_fn)(void *user, int level, const char *text);

/*
 * How client, worker and server of one machine talk. HELLO and peers on other machines use the
 * socket in any case.
 */
enum scout_local_transport {
	SCOUT_LOCAL_SHM = 0,   /* through shared memory, if both sides want it */
	SCOUT_LOCAL_SOCKET = 1 /* through the socket */
};

/* Element type of KV, part of the layout's fingerprint. */
#define SCOUT_DTYPE_OPAQUE 0
#define SCOUT_DTYPE_F16 1
#define SCOUT_DTYPE_BF16 2
#define SCOUT_DTYPE_F32 3
#define SCOUT_DTYPE_F8_E4M3 4
#define SCOUT_DTYPE_F8_E5M2 5
#define SCOUT_DTYPE_I8 6
#define SCOUT_DTYPE_LAST 6

/* What the caller of scout_finish_hint() expects of a conversation. The numbers are those of the wire. */
enum scout_hint {
	SCOUT_HINT_UNKNOWN = 0,
	SCOUT_HINT_LIKELY = 1,  /* the conversation goes on: the answer ended in a tool call, the user is still there */
	SCOUT_HINT_UNLIKELY = 2 /* the conversation is over: the chat was closed, the batch is done */
};

/*
 * One configuration key, as scout_client_config_help(), scout_worker_config_help() and
 * scout_server_config_help() describe it.
 */
struct scout_config_row {
	const char *name;    /* static, as all strings here */
	const char *alias;   /* another spelling; NULL: none */
	const char *meaning; /* one sentence, without full stop */
	char def[64];        /* the default, as a person would write it */
	char range[256];     /* the values that are allowed */
};

#ifdef __cplusplus
}
#endif

#endif
