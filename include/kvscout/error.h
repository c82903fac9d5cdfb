/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_ERROR_H
#define KVSCOUT_ERROR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Every call returns 0, a positive count, SCOUT_NOT_YET, SCOUT_NEED_QUERY, or one of the negative
 * codes below. The numbers are fixed: a code keeps its number for ever, and is not an errno. Scope
 * says how far the damage reaches: only this call's arguments, this request, the connection, the
 * whole client or worker, or the device.
 *
 * libkvscout-client, libkvscout-worker and libkvscout-server each export the functions of this header
 * and of version.h, and all three answer alike.
 *
 *   name, number, scope, retriable, text
 */
#define SCOUT_ERROR_TABLE(X)                                                                                           \
	X(INVALID, -1, CALL, false, "an argument is NULL or outside its documented range")                             \
	X(NOMEM, -2, CALL, true, "out of memory")                                                                      \
	X(BUSY, -3, CALL, true, "the queue, the hash arena or the slot table is full; ask again at the next step")     \
	X(CLOSED, -4, CLIENT, false, "the client or worker was closed")                                                \
	X(STATE, -5, REQUEST, false,                                                                                   \
	  "not legal now: other hashes for a live request id, no answer to admit, no such job, or registered before")  \
	X(UNSUPPORTED, -6, CALL, false, "not supported by this version, build, backend or structure size")             \
	X(FORKED, -7, CLIENT, false, "called in a forked child; only the process that made the object may use it")     \
	X(TIMEOUT, -8, REQUEST, true, "the deadline passed before an answer came")                                     \
	X(CANCELED, -9, REQUEST, false, "the job was cancelled before all of it was copied")                           \
	X(UNREACHABLE, -10, CONNECTION, true, "the server does not answer")                                            \
	X(CONFIG_KEY, -11, CALL, false, "unknown configuration key")                                                   \
	X(CONFIG_RANGE, -12, CALL, false, "configuration value outside its range")                                     \
	X(CONFIG_SYNTAX, -13, CALL, false, "configuration value is not a number, size, flag or one of the words")      \
	X(REQUEST_ID, -14, CALL, false, "request id is NULL, empty or longer than 255 bytes")                          \
	X(HASH_LEN, -15, CALL, false, "hash_len is outside 16..32 bytes, or is not the configured hash_bytes")         \
	X(NAMESPACE, -16, CONNECTION, false, "namespace mismatch: chunk_tokens, kv_ranks, readers or layout differ")   \
	X(SHARD_BYTES, -17, CONNECTION, false, "this KV rank was registered with another layout or shard size")        \
	X(BIND, -18, CALL, false, "the endpoint cannot be bound")                                                      \
	X(IN_USE, -19, CALL, false, "the endpoint is held by a living server")                                         \
	X(POOL_SIZE, -20, CALL, false, "l1_bytes is larger than the memory of this machine")                           \
	X(NO_ROOM, -21, REQUEST, true, "the pool is full of pinned chunks")                                            \
	X(PROTOCOL, -22, CONNECTION, true, "the peer sent something that the protocol does not allow")                 \
	X(VERSION, -23, CONNECTION, false, "the peer speaks another protocol version")                                 \
	X(EPOCH, -24, CONNECTION, true, "the server was restarted; what it knew is gone")                              \
	X(NO_SESSION, -25, REQUEST, false, "the ticket names no session: never looked up, finished or reset")          \
	X(CORRUPT, -26, REQUEST, false, "a slot changed under a copy; the bytes were not used")                        \
	X(MISSING, -27, REQUEST, false, "some blocks were not filled; the completion names them")                      \
	X(DEVICE, -28, DEVICE, false, "the device failed")                                                             \
	X(SYSTEM, -29, CALL, false, "a system call failed; the text and the log name it")                              \
	X(BLOCK_ID, -30, CALL, false, "a block id is outside the registered pages")                                    \
	X(LIMIT, -31, CONNECTION, true, "the server refused: a configured limit (peers, sessions, queue) is reached")  \
	X(WEIGHTS, -32, REQUEST, false, "the weights version changed; what was asked belongs to the old one")          \
	X(FORMAT, -33, CALL, false, "a file is missing or malformed; the text names the line")                         \
	X(PERMISSION, -34, CALL, false, "the path or peer may not be used by this user")                               \
	X(TENANT, -35, CALL, false, "tenant is longer than 255 bytes, or not UTF-8 without control characters")        \
	X(CLEARED, -36, REQUEST, false, "the cache was cleared; the ticket or the worker belongs to the time before")  \
	X(GROUP, -37, CALL, false,                                                                                     \
	  "unknown group: not one of the key group, without a registered table, or named twice")                       \
	X(GROUP_LIMIT, -38, CALL, false, "the key group names more than 32 groups")                                    \
	X(GROUPS_DIFFER, -39, CONNECTION, false, "the namespace has other groups: number, policy or a size differs")   \
	X(NOT_RESTORABLE, -40, REQUEST, false,                                                                         \
	  "the answer names no such length; with windows and states no other is promised")                             \
	X(KEY_COUNT, -41, CALL, false, "no keys, or more than one question may name: 16384, or half of arena_bytes")   \
	X(NOT_REGISTERED, -42, CALL, false, "the worker has no pages: call scout_worker_register() first")

/* What one code puts in doubt. */
enum scout_scope {
	SCOUT_SCOPE_CALL = 1,       /* only this call; nothing else changed */
	SCOUT_SCOPE_REQUEST = 2,    /* this request or job */
	SCOUT_SCOPE_CONNECTION = 3, /* one server connection */
	SCOUT_SCOPE_CLIENT = 4,     /* the client or worker object */
	SCOUT_SCOPE_DEVICE = 5      /* the GPU */
};

enum scout_error {
#define SCOUT_X(name, number, scope, retriable, text) SCOUT_ERR_##name = (number),
	SCOUT_ERROR_TABLE(SCOUT_X)
#undef SCOUT_X
};

/* Positive: the answer is not there yet. Not an error. */
#define SCOUT_NOT_YET 1
/*
 * Positive: what scout_poll_lookup() cannot answer without the query; scout_try_lookup() can. Not
 * an error.
 */
#define SCOUT_NEED_QUERY 2

/**
 * The name of @code ("SCOUT_ERR_BUSY"), "SCOUT_OK" for 0, "SCOUT_NOT_YET" for 1, "SCOUT_NEED_QUERY"
 * for 2.
 *
 * Thread:   any. Async-signal-safe.
 * Blocks:   no.
 * Returns:  a static string; "SCOUT_ERR_?" for an unknown code. Never NULL.
 */
SCOUT_API const char *scout_err_name(int code);

/**
 * One sentence for a person, without full stop. Same rules as scout_err_name().
 */
SCOUT_API const char *scout_strerror(int code);

/**
 * Which scope @code has.
 *
 * Thread:   any.
 * Blocks:   no.
 * Returns:  enum scout_scope, or 0 for codes that are no error or unknown.
 */
SCOUT_API int scout_err_scope(int code);

/**
 * Whether the same call may succeed later without a change by the caller. Same rules as
 * scout_err_scope().
 */
SCOUT_API bool scout_err_is_retriable(int code);

#ifdef __cplusplus
}
#endif

#endif
