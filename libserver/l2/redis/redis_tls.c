/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"
#include "secret.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

/*
 * DESIGN
 *
 * TLS on the sockets of redis_link.c: OpenSSL encrypts between its two calls that move bytes and the socket. The server's
 * certificate is always verified, and its name too: that of the node, or the option server_name. TLS 1.2 is the oldest.
 *
 * A write that would block is tried again with the same bytes, perhaps more behind them, at another address:
 * redis_link.c keeps what it has to write, or closes the connection. SIGPIPE is blocked on the adapter's thread.
 *
 * What OpenSSL has decrypted is not seen by epoll: after each read, redis_reply.c takes what is pending.
 *
 * Threads: open and close run on the server's starter, all others on the adapter's.
 */

static int
fail_file(const char *option, const char *path, char *err, size_t err_len)
{
	const char *why = ERR_reason_error_string(ERR_peek_error());

	return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "%s %s cannot be used (%s)", option, path,
			   why ? why : "it is no PEM file of the right kind");
}

/* OpenSSL opens them itself, and does not say why it cannot. Returns 0 or the code. */
static int
check_file(const char *option, const char *path, bool is_secret, char *err, size_t err_len)
{
	int fd = is_secret ? scout__secret_open(option, path, SCOUT_ERR_CONFIG_RANGE, err, err_len)
			   : scout__regular_open(option, path, SCOUT_ERR_CONFIG_RANGE, err, err_len);

	if (fd >= 0)
		(void)close(fd); /* read only: nothing is lost */
	return fd < 0 ? fd : 0;
}

static int
use_files(SSL_CTX *ctx, const struct redis_tls_options *o, char *err, size_t err_len)
{
	int rc = o->ca_file ? check_file("ca_file", o->ca_file, false, err, err_len) : 0;

	if (rc == 0 && o->cert_file)
		rc = check_file("cert_file", o->cert_file, false, err, err_len);
	if (rc == 0 && o->key_file)
		rc = check_file("key_file", o->key_file, true, err, err_len);
	if (rc)
		return rc;
	if (o->ca_file ? SSL_CTX_load_verify_file(ctx, o->ca_file) != 1 : SSL_CTX_set_default_verify_paths(ctx) != 1)
		return fail_file("ca_file", o->ca_file ? o->ca_file : "(the system's)", err, err_len);
	if (!o->cert_file)
		return 0;
	if (SSL_CTX_use_certificate_chain_file(ctx, o->cert_file) != 1)
		return fail_file("cert_file", o->cert_file, err, err_len);
	if (SSL_CTX_use_PrivateKey_file(ctx, o->key_file, SSL_FILETYPE_PEM) != 1)
		return fail_file("key_file", o->key_file, err, err_len);
	return 0;
}

static int
tls_open(const struct redis_tls_options *options, void **ret_ctx, char *err, size_t err_len)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	int rc;

	ERR_clear_error();
	if (!ctx || SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1) {
		SSL_CTX_free(ctx);
		return scout__fail_no_memory(err, err_len);
	}
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
	(void)SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
	(void)SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	rc = use_files(ctx, options, err, err_len);
	if (rc)
		SSL_CTX_free(ctx);
	else
		*ret_ctx = ctx;
	ERR_clear_error();
	return rc;
}

static void
tls_close(void *ctx)
{
	SSL_CTX_free(ctx);
}

static void
tls_end(struct redis_link *link)
{
	SSL_free(link->ssl);
	link->ssl = NULL;
}

/* The name that the certificate must have; an address is no name for SNI. */
static bool
expect(SSL *ssl, char *name)
{
	uint8_t address[16];

	if (inet_pton(AF_INET, name, address) == 1 || inet_pton(AF_INET6, name, address) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
	return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

static int
tls_begin(struct redis *r, struct redis_link *link)
{
	link->ssl = SSL_new(r->tls_ctx);
	if (!link->ssl || SSL_set_fd(link->ssl, link->fd) != 1 ||
	    !expect(link->ssl, r->tls_name ? r->tls_name : link->node->host)) {
		tls_end(link);
		ERR_clear_error();
		return ENOMEM;
	}
	SSL_set_connect_state(link->ssl);
	return 0;
}

/* After a call that returned @rc: the errno value that means the same; EPROTO has a sentence in tls_text. */
static int
error_of(struct redis *r, struct redis_link *link, int rc)
{
	int kind = SSL_get_error(link->ssl, rc), errnum = errno;
	long verdict = SSL_get_verify_result(link->ssl);
	unsigned long error = ERR_peek_error();
	const char *why = error ? ERR_reason_error_string(error) : NULL;

	ERR_clear_error();
	if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)
		return EAGAIN;
	if (kind == SSL_ERROR_ZERO_RETURN || (kind == SSL_ERROR_SYSCALL && errnum == 0))
		return ECONNRESET;
	if (kind == SSL_ERROR_SYSCALL)
		return errnum;
	if (verdict != X509_V_OK)
		(void)snprintf(r->tls_text, sizeof(r->tls_text), "its certificate is not accepted: %s",
			       X509_verify_cert_error_string(verdict));
	else if (ERR_GET_REASON(error) == SSL_R_WRONG_VERSION_NUMBER)
		(void)snprintf(r->tls_text, sizeof(r->tls_text), "it does not speak TLS at this port");
	else
		(void)snprintf(r->tls_text, sizeof(r->tls_text), "TLS failed: %s",
			       why ? why : "OpenSSL does not say why");
	return EPROTO;
}

static int
tls_handshake(struct redis *r, struct redis_link *link, bool *ret_wants_write)
{
	int rc, error;

	errno = 0;
	rc = SSL_do_handshake(link->ssl);
	if (rc == 1)
		return 0;
	*ret_wants_write = SSL_want_write(link->ssl);
	error = error_of(r, link, rc);
	return error;
}

static ssize_t
tls_write(struct redis *r, struct redis_link *link, const struct iovec *iov, size_t n)
{
	size_t total = 0, done;

	for (size_t i = 0; i < n; i++) {
		if (iov[i].iov_len == 0)
			continue;
		errno = 0;
		if (SSL_write_ex(link->ssl, iov[i].iov_base, iov[i].iov_len, &done) != 1) {
			errno = error_of(r, link, 0);
			return total ? (ssize_t)total : -1;
		}
		total += done;
		if (done < iov[i].iov_len)
			break;
	}
	return (ssize_t)total;
}

static ssize_t
tls_read(struct redis *r, struct redis_link *link, const struct iovec *iov, size_t n)
{
	size_t total = 0, done;

	for (size_t i = 0; i < n; i++) {
		for (size_t at = 0; at < iov[i].iov_len; at += done) {
			errno = 0;
			if (SSL_read_ex(link->ssl, (char *)iov[i].iov_base + at, iov[i].iov_len - at, &done) != 1) {
				errno = error_of(r, link, 0);
				return total ? (ssize_t)total : -1;
			}
			total += done;
		}
	}
	return (ssize_t)total;
}

static bool
tls_has_pending(struct redis_link *link)
{
	return SSL_pending(link->ssl) > 0;
}

const struct redis_tls_calls scout__redis_tls = {
	.open = tls_open,
	.close = tls_close,
	.begin = tls_begin,
	.handshake = tls_handshake,
	.write = tls_write,
	.read = tls_read,
	.has_pending = tls_has_pending,
	.end = tls_end,
};
