/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "option.h"

/*
 * The rows that more than one option table has, so that names, ranges, defaults and texts cannot drift. The table's file
 * defines FIELD(name): the offset of that field in its structure. If the key means something else in each program, the
 * row takes the text as an argument.
 */

static const char *const scout__local_transport_words[] = {"shm", "socket", NULL};

#define SCOUT__OPTION_NAMESPACE                                                                                        \
	{                                                                                                              \
		.name = "namespace", .type = SCOUT_OPTION_STRING, .offset = FIELD(name_space), .min = 1,               \
		.max = SCOUT_MAX_NAME, .def_text = "default",                                                          \
		.doc = "Name of the model and its layout; caches of other names are kept apart",                       \
	}

#define SCOUT__OPTION_CHUNK_TOKENS                                                                                     \
	SCOUT__OPTION(U32, chunk_tokens, .def = 256, .min = 1, .max = 1048576, .doc = "Tokens in a chunk")

#define SCOUT__OPTION_READERS                                                                                          \
	SCOUT__OPTION(U32, readers, .def = 1, .min = 1, .max = SCOUT_MAX_READERS,                                      \
		      .doc = "Workers that read each KV rank's shard")

#define SCOUT__OPTION_CURVE_SERVER_KEY                                                                                 \
	SCOUT__OPTION(STRING, curve_server_key, .min = 40, .max = 40, .doc = "CURVE: the server's public key")

#define SCOUT__OPTION_HEARTBEAT_MS                                                                                     \
	SCOUT__OPTION(                                                                                                 \
		U32, heartbeat_ms, .def = 1000, .min = 10, .max = 600000,                                              \
		.doc = "PING on an idle connection after this time; after three times as long without an answer, the " \
		       "server counts as gone. While a call waits for an answer, that takes less than half a "         \
		       "second, whatever is set here")

#define SCOUT__OPTION_HASH_BYTES                                                                                       \
	SCOUT__OPTION(U32, hash_bytes, .def = 32, .min = 16, .max = SCOUT_MAX_HASH,                                    \
		      .doc = "Length of a chunk's hash in bytes")

#define SCOUT__OPTION_WEIGHTS_VERSION                                                                                  \
	SCOUT__OPTION(U64, weights_version, .max = UINT64_MAX,                                                         \
		      .doc = "Version of the model's weights; 0: whatever the server has")

#define SCOUT__OPTION_SERVER_PROGRAM                                                                                   \
	SCOUT__OPTION(STRING, server_program, .min = 1, .max = 4095,                                                   \
		      .doc = "endpoint=auto: absolute path of the kvscoutd to start; unset: the one of this "          \
			     "installation, then the one of PATH")

#define SCOUT__OPTION_SERVER_KEYS                                                                                      \
	SCOUT__OPTION(LIST, server_keys, .min = 1, .max = 4096, .max_items = 60,                                       \
		      .doc = "endpoint=auto: keys for a server that this process starts, `key=value "                  \
			     "key=value`, also config=FILE; a running server keeps its own keys, and a "               \
			     "warning names the keys that differ")

#define SCOUT__OPTION_KV_RANKS(doc_)                                                                                   \
	SCOUT__OPTION(U32, kv_ranks, .def = 1, .min = 1, .max = SCOUT_MAX_RANKS, .doc = (doc_))

#define SCOUT__OPTION_CURVE_SECRET_FILE(doc_)                                                                          \
	SCOUT__OPTION(STRING, curve_secret_file, .min = 1, .max = 4095, .doc = (doc_))

#define SCOUT__OPTION_CONNECT_TIMEOUT_MS(doc_)                                                                         \
	SCOUT__OPTION(U32, connect_timeout_ms, .def = 400, .min = 1, .max = 600000, .doc = (doc_))

#define SCOUT__OPTION_SPIN_US(doc_) SCOUT__OPTION(U32, spin_us, .max = 1000000, .doc = (doc_))

#define SCOUT__OPTION_LOCAL_TRANSPORT(doc_)                                                                            \
	SCOUT__OPTION(WORD, local_transport, .def = SCOUT_LOCAL_SHM, .max = SCOUT_LOCAL_SOCKET,                        \
		      .words = scout__local_transport_words, .doc = (doc_))

#define SCOUT__OPTION_CPUS(doc_) SCOUT__OPTION(STRING, cpus, .min = 1, .max = 1024, .def_text = "auto", .doc = (doc_))
