/* SPDX-License-Identifier: Apache-2.0 */
#include "server_curve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "curve.h"
#include "rights.h"
#include "secret.h"
#include "server_core.h"
#include "transport.h"

/*
 * DESIGN
 *
 * CURVE: with `curve_secret_file` set, the ROUTER speaks only to peers whose public key is in `curve_clients_file`.
 * libzmq does the cryptography. It asks over ZAP (RFC 27), an inproc address of our own context, whether a key may
 * connect, and the loop answers; messages then carry the key (rights.c). Both files are read once, at start. Without an allow-list any peer that knows the
 * server's public key could connect, so one is required.
 *
 * A tcp endpoint that others can reach and that has no keys serves any peer that connects: the server logs a warning.
 *
 * Threads: loop; start before it.
 */

#define ZAP_ADDRESS "inproc://zeromq.zap.01"
#define ZAP_DOMAIN "kvscout"
#define KEY_BYTES 32
#define ZAP_PARTS 8
#define ZAP_PART_BYTES 256
#define MAX_CLIENTS 65536u

static int
add_client(struct scout_server *s, const char *text)
{
	uint8_t(*list)[KEY_BYTES];

	if (s->transport->n_curve_clients == MAX_CLIENTS)
		return SCOUT_ERR_LIMIT;
	list = realloc(s->transport->curve_clients, (s->transport->n_curve_clients + 1) * sizeof(*list));
	if (!list)
		return SCOUT_ERR_NOMEM;
	s->transport->curve_clients = list;
	if (!zmq_z85_decode(list[s->transport->n_curve_clients], text))
		return SCOUT_ERR_FORMAT;
	s->transport->n_curve_clients++;
	return 0;
}

static int
read_clients(struct scout_server *s, char *err, size_t err_len)
{
	const char *path = s->cfg.curve_clients_file;
	char key[SCOUT__CURVE_KEY + 1];
	FILE *file;
	unsigned line = 0;
	int rc;

	if (!path)
		return scout__fail(
			err, err_len, SCOUT_ERR_INVALID,
			"curve_secret_file is set without curve_clients_file: set that, too, to the file of the public keys that may connect");
	rc = scout__regular_open("key file", path, SCOUT_ERR_FORMAT, err, err_len);
	if (rc < 0)
		return rc;
	file = fdopen(rc, "r");
	if (!file) {
		(void)close(rc); /* read only: nothing is lost */
		return scout__fail_no_memory(err, err_len);
	}
	while ((rc = scout__curve_next_key(file, &line, key)) == 1)
		if ((rc = add_client(s, key)) != 0)
			break;
	(void)fclose(file); /* read only: nothing is lost */
	if (rc == 0)
		return 0;
	return scout__fail(
		err, err_len, rc, "key file %s, line %u: %s", path, line,
		rc == SCOUT_ERR_FORMAT
			? "must be a public key, 40 characters of Z85, as `kvscoutd --curve-keygen` prints it"
			: scout_strerror(rc));
}

static int
open_zap(struct scout_server *s, char *err, size_t err_len)
{
	const int zero = 0;

	s->transport->zap = zmq_socket(s->transport->zctx, ZMQ_REP);
	if (!s->transport->zap || zmq_setsockopt(s->transport->zap, ZMQ_LINGER, &zero, sizeof(zero)) != 0 ||
	    zmq_bind(s->transport->zap, ZAP_ADDRESS) != 0)
		return scout__fail(err, err_len, SCOUT_ERR_SYSTEM, "ZAP: %s", zmq_strerror(errno));
	return 0;
}

static int
set_keys(struct scout_server *s, char *err, size_t err_len)
{
	char secret[SCOUT__CURVE_KEY + 1], public[SCOUT__CURVE_KEY + 1], key[SCOUT__CURVE_KEY + 1];
	uint32_t n_without_line = 0;
	const int one = 1;
	int rc = scout__curve_read_secret(s->cfg.curve_secret_file, secret, err, err_len);

	if (rc)
		return rc;
	if (zmq_curve_public(public, secret) != 0 ||
	    zmq_setsockopt(s->transport->router, ZMQ_CURVE_SERVER, &one, sizeof(one)) != 0 ||
	    zmq_setsockopt(s->transport->router, ZMQ_CURVE_SECRETKEY, secret, sizeof(secret)) != 0 ||
	    zmq_setsockopt(s->transport->router, ZMQ_ZAP_DOMAIN, ZAP_DOMAIN, sizeof(ZAP_DOMAIN) - 1) != 0)
		rc = scout__fail(
			err, err_len, SCOUT_ERR_FORMAT,
			"key file %s: the key in it is no secret key; `kvscoutd --curve-keygen FILE` makes one",
			s->cfg.curve_secret_file);
	explicit_bzero(secret, sizeof(secret));
	for (uint32_t i = 0; i < s->transport->n_curve_clients; i++)
		n_without_line += !scout__rights_line(s->transport->rights,
						      zmq_z85_encode(key, s->transport->curve_clients[i], KEY_BYTES));
	if (rc == 0)
		scout__log(
			&s->log, s->transport->n_curve_clients ? SCOUT_LOG_INFO : SCOUT_LOG_WARN,
			"CURVE: public key %s, %u clients may connect, %u of them without a line in curve_rights_file",
			public, (unsigned)s->transport->n_curve_clients, (unsigned)n_without_line);
	/* kvscoutd --status connects with the server's own secret key. */
	if (rc == 0 && (rc = add_client(s, public)) != 0)
		rc = scout__fail(err, err_len, rc, "%s", scout_strerror(rc));
	return rc;
}

int
scout__curve_open(struct scout_server *s, char *err, size_t err_len)
{
	int rc;

	if (!s->cfg.curve_secret_file && !s->cfg.curve_clients_file && !s->cfg.curve_rights_file)
		return 0;
	if (!s->cfg.curve_secret_file)
		return scout__fail(
			err, err_len, SCOUT_ERR_INVALID,
			"%s is set without curve_secret_file: set that, too, to the file of the server's secret key",
			s->cfg.curve_clients_file ? "curve_clients_file" : "curve_rights_file");
	if (!zmq_has("curve"))
		return scout__fail(
			err, err_len, SCOUT_ERR_UNSUPPORTED,
			"this libzmq was built without CURVE: use one that was built with libsodium, or unset the CURVE keys");
	rc = read_clients(s, err, err_len);
	if (rc == 0 && s->cfg.curve_rights_file)
		rc = scout__rights_read(s->cfg.curve_rights_file, &s->transport->rights, err, err_len);
	if (rc == 0)
		rc = open_zap(s, err, err_len);
	if (rc == 0)
		rc = set_keys(s, err, err_len);
	return rc;
}

void
scout__curve_close(struct scout_server *s)
{
	if (s->transport->zap)
		(void)zmq_close(s->transport->zap);
	s->transport->zap = NULL;
	free(s->transport->curve_clients);
	s->transport->curve_clients = NULL;
	s->transport->n_curve_clients = 0;
	free(s->transport->rights);
	s->transport->rights = NULL;
}

void
scout__curve_warn(const struct scout_server *s)
{
	static const char *const local[] = {"tcp://127.", "tcp://localhost:", "tcp://[::1]:"};

	if (s->transport->zap || strncmp(s->endpoint, "tcp://", 6) != 0)
		return;
	for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
		if (strncmp(s->endpoint, local[i], strlen(local[i])) == 0)
			return;
	scout__log(
		&s->log, SCOUT_LOG_WARN,
		"%s can be reached from other machines and has no keys: every process that reaches it can connect and read along; "
		"see curve_secret_file",
		s->endpoint);
}

/* ---- ZAP ---- */

struct zap_part {
	uint8_t bytes[ZAP_PART_BYTES];
	size_t len;
};

/* Receive the parts of one request, which arrive together. Returns their number; 0: there is no request. */
SCOUT_ON_LOOP static unsigned
receive_request(struct scout_server *s, struct zap_part parts[ZAP_PARTS])
{
	unsigned n = 0;
	int more = 1;

	while (more) {
		struct zap_part spare, *part = n < ZAP_PARTS ? &parts[n] : &spare;
		size_t size = sizeof(more);
		int len = zmq_recv(s->transport->zap, part->bytes, sizeof(part->bytes), ZMQ_DONTWAIT);

		if (len < 0 || zmq_getsockopt(s->transport->zap, ZMQ_RCVMORE, &more, &size) != 0)
			return 0;
		part->len = (size_t)len < sizeof(part->bytes) ? (size_t)len : sizeof(part->bytes);
		n++;
	}
	return n;
}

/* version, request id, domain, address, identity, mechanism, key */
SCOUT_ON_LOOP static bool
is_allowed(const struct scout_server *s, const struct zap_part *parts, unsigned n)
{
	if (n != 7 || parts[5].len != 5 || memcmp(parts[5].bytes, "CURVE", 5) != 0 || parts[6].len != KEY_BYTES)
		return false;
	for (uint32_t i = 0; i < s->transport->n_curve_clients; i++)
		if (memcmp(s->transport->curve_clients[i], parts[6].bytes, KEY_BYTES) == 0)
			return true;
	return false;
}

SCOUT_ON_LOOP static void
note_refusal(struct scout_server *s, const struct zap_part *parts, unsigned n, const char *key)
{
	s->count.curve_refused++;
	scout__log_limited(&s->log, &s->limit_curve, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			   "a peer at %.*s is refused: its public key %s is not in %s", n > 3 ? (int)parts[3].len : 0,
			   n > 3 ? (const char *)parts[3].bytes : "", key, s->cfg.curve_clients_file);
}

SCOUT_ON_LOOP static void
reply(struct scout_server *s, const struct zap_part *request_id, const char *status, const char *text, const char *user)
{
	/*
	 * The socket is ours and has one request in hand: no send here can fail, and if one did, the peer would time
	 * out.
	 */
	(void)zmq_send(s->transport->zap, "1.0", 3, ZMQ_SNDMORE);
	(void)zmq_send(s->transport->zap, request_id->bytes, request_id->len, ZMQ_SNDMORE);
	(void)zmq_send(s->transport->zap, status, strlen(status), ZMQ_SNDMORE);
	(void)zmq_send(s->transport->zap, text, strlen(text), ZMQ_SNDMORE);
	(void)zmq_send(s->transport->zap, user, strlen(user), ZMQ_SNDMORE);
	(void)zmq_send(s->transport->zap, "", 0, 0);
}

void
scout__curve_answer(struct scout_server *s)
{
	struct zap_part parts[ZAP_PARTS];
	unsigned n;

	while (s->transport->zap && (n = receive_request(s, parts)) > 0) {
		const struct zap_part *id = n > 1 ? &parts[1] : &parts[0];
		char key[SCOUT__CURVE_KEY + 1] = "none";

		if (n == 7 && parts[6].len == KEY_BYTES)
			(void)zmq_z85_encode(key, parts[6].bytes, KEY_BYTES);
		if (is_allowed(s, parts, n)) {
			reply(s, id, "200", "OK", key);
		} else {
			note_refusal(s, parts, n, key);
			reply(s, id, "400", "this key may not connect", "");
		}
	}
}
