/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <hiredis/read.h>

#include "object.h"
#include "thread.h"
#include "wire.h"

/*
 * What goes over the wire to Redis and comes back, without sockets: commands as bytes, keys and their hash slots,
 * errors and what they ask for, the slot map. Pure functions; any thread.
 */

#define SCOUT__REDIS_SLOTS 16384u
#define SCOUT__REDIS_KEY_BYTES 42u /* "kvscout:3:" and 32 hex digits */
#define SCOUT__REDIS_HOST_BYTES 256u
/* Redis refuses longer strings (its proto-max-bulk-len, 512 MiB unless configured). */
#define SCOUT__REDIS_MAX_VALUE (UINT64_C(512) << 20)

/* The key of an object, NUL-terminated. */
SCOUT_ON_ANY void scout__redis_key(struct scout__l2_digest digest, char ret_key[SCOUT__REDIS_KEY_BYTES + 1]);
/* The key of a record: "kvscout:r:" instead of "kvscout:3:". */
SCOUT_ON_ANY void scout__redis_record_key(struct scout__l2_digest digest, char ret_key[SCOUT__REDIS_KEY_BYTES + 1]);
/* CRC16 (XMODEM) modulo 16384 of a key without braces, as Redis Cluster computes it. */
SCOUT_ON_ANY uint16_t scout__redis_slot(const char *key, size_t len);

/* "*ARGC\r\n"; then each argument as "$LEN\r\nBYTES\r\n". */
SCOUT_ON_ANY void scout__redis_put_argc(struct scout__writer *w, uint32_t argc);
SCOUT_ON_ANY void scout__redis_put_arg(struct scout__writer *w, const char *arg, size_t len);
/* Only "$LEN\r\n": the bytes and their "\r\n" are the caller's to send. */
SCOUT_ON_ANY void scout__redis_put_length(struct scout__writer *w, uint64_t len);
/* A command of NUL-terminated words; @words ends with NULL. */
SCOUT_ON_ANY void scout__redis_put_words(struct scout__writer *w, const char *const *words);

/*
 * The line of a bulk string's length at @p: returns the bytes of the line (with its end), 0 when the line is not all
 * there yet, -1 when it is no such line. *ret_len is -1 for nil.
 */
SCOUT_ON_ANY int scout__redis_bulk_line(const uint8_t *p, size_t n, int64_t *ret_len);

enum scout__redis_error {
	SCOUT__REDIS_MOVED = 1, /* the slot is served elsewhere, for good */
	SCOUT__REDIS_ASK,       /* this key, this time, elsewhere */
	SCOUT__REDIS_TRYAGAIN,  /* in the middle of a move */
	SCOUT__REDIS_DOWN,      /* CLUSTERDOWN, MASTERDOWN */
	SCOUT__REDIS_LOADING,   /* the server is reading its own data */
	SCOUT__REDIS_READONLY,  /* the server is a replica */
	SCOUT__REDIS_OOM,       /* maxmemory, and nothing may be evicted */
	SCOUT__REDIS_AUTH,      /* NOAUTH, WRONGPASS */
	SCOUT__REDIS_NOPERM,    /* the user may not do this */
	SCOUT__REDIS_MISCONF,   /* it takes no writes, nor PING: it cannot save its own data */
	SCOUT__REDIS_OTHER
};

struct scout__redis_redirect {
	uint16_t slot;
	uint16_t port;
	char host[SCOUT__REDIS_HOST_BYTES]; /* "": the host of the node that said so */
};

/* What the text of an error reply (without '-') says. @ret_redirect is written for MOVED and ASK only; malformed ones are OTHER. */
SCOUT_ON_ANY enum scout__redis_error scout__redis_kind_of(const char *text, struct scout__redis_redirect *ret_redirect);
/* The first sentence of an error, without what may repeat an argument. Of AUTH's, whose argument is a password, the first word. */
SCOUT_ON_ANY void scout__redis_error_words(const char *text, bool is_of_auth, char *ret_words, size_t len);

struct redisReply;
/*
 * A reply to CLUSTER SLOTS: @add is called for each range with its master; an unknown host is "". Returns the slots
 * that are served, or -1 if the reply is not of that form (then @add may have been called).
 */
SCOUT_ON_ANY int scout__redis_read_slots(const struct redisReply *reply,
					 bool (*add)(void *user, uint16_t first, uint16_t last, const char *host,
						     uint16_t port),
					 void *user);
