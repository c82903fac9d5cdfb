/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The CURVE keys of a connecting socket: read from the option values, given to the socket. Any thread; no state. A copy of the keys
 * on the stack is wiped before the function returns.
 */
#include "keys.h"

#include <string.h>
#include <zmq.h>

#include <kvscout/error.h>

#include "log.h"

int
scout__curve_load(const char *secret_file, const char *server_key, struct scout__curve_keys *ret_keys, char *err,
		  size_t err_len)
{
	struct scout__curve_keys keys;
	int rc;

	if (!secret_file || !server_key)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "curve_secret_file and curve_server_key must be set both, or none");
	if (!zmq_has("curve"))
		return scout__fail(
			err, err_len, SCOUT_ERR_UNSUPPORTED,
			"this libzmq was built without CURVE: use one that was built with libsodium, or unset the CURVE keys");
	if (!scout__curve_is_key(server_key))
		return scout__fail(
			err, err_len, SCOUT_ERR_INVALID,
			"curve_server_key = \"%s\": must be the server's public key, 40 characters of Z85, as it logs it at start",
			server_key);
	rc = scout__curve_read_secret(secret_file, keys.secret, err, err_len);
	if (rc)
		return rc;
	memcpy(keys.server, server_key, sizeof(keys.server));
	if (zmq_curve_public(keys.public, keys.secret) == 0)
		*ret_keys = keys;
	else
		rc = scout__fail(
			err, err_len, SCOUT_ERR_FORMAT,
			"key file %s: the key in it is no secret key; `kvscoutd --curve-keygen FILE` makes one",
			secret_file);
	explicit_bzero(&keys, sizeof(keys));
	return rc;
}

bool
scout__curve_use(void *socket, const struct scout__curve_keys *keys)
{
	return zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, keys->server, sizeof(keys->server)) == 0 &&
	       zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, keys->public, sizeof(keys->public)) == 0 &&
	       zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, keys->secret, sizeof(keys->secret)) == 0;
}
