/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "curve.h"

/* The CURVE keys of a socket that connects. Any thread. The holder wipes them (explicit_bzero). */
struct scout__curve_keys {
	char secret[SCOUT__CURVE_KEY + 1];
	char public[SCOUT__CURVE_KEY + 1];
	char server[SCOUT__CURVE_KEY + 1];
};

/*
 * @secret_file and @server_key as in the option tables; the file is read here. Returns 0 or, with a sentence in @err that never
 * contains the key, SCOUT_ERR_INVALID, SCOUT_ERR_FORMAT, SCOUT_ERR_PERMISSION, SCOUT_ERR_UNSUPPORTED (a libzmq without CURVE).
 */
int scout__curve_load(const char *secret_file, const char *server_key, struct scout__curve_keys *ret_keys, char *err,
		      size_t err_len);

/* Give its keys to a zmq socket that is not connected yet. False: libzmq refused, see zmq_errno(). */
bool scout__curve_use(void *socket, const struct scout__curve_keys *keys);
