/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "secret.h"

/*
 * The options of a client, and its lines. See s3_client.h.
 *
 * A line is taken for a call and given back after it, so there are as many as calls that run at once, and a connection
 * stays open from one call to the next. Threads: any.
 */

static bool
put(char *to, size_t size, const char *value)
{
	return (size_t)snprintf(to, size, "%s", value) < size;
}

static bool
is_bucket(const char *name)
{
	size_t len = strlen(name);

	return len >= 3 && len <= 63 && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") == len;
}

/* Scheme and host; false: it is no endpoint. */
static bool
set_endpoint(struct scout__s3_client *client, const struct scout__s3_options *o, bool by_path)
{
	const char *bucket = by_path ? "" : o->bucket, *dot = by_path ? "" : ".";
	const char *host;
	size_t len;

	if (!o->endpoint) {
		(void)put(client->scheme, sizeof(client->scheme), "https");
		return (size_t)snprintf(client->host, sizeof(client->host), "%s%ss3.%s.amazonaws.com", bucket, dot,
					client->region) < sizeof(client->host);
	}
	host = strstr(o->endpoint, "://");
	if (!host || (strncmp(o->endpoint, "https://", 8) != 0 && strncmp(o->endpoint, "http://", 7) != 0))
		return false;
	(void)snprintf(client->scheme, sizeof(client->scheme), "%.*s", (int)(host - o->endpoint), o->endpoint);
	host += 3;
	len = strcspn(host, "/?#");
	if (len == 0 || strchr("/", host[len]) == NULL || (host[len] && host[len + 1]) || memchr(host, '@', len))
		return false;
	return (size_t)snprintf(client->host, sizeof(client->host), "%s%s%.*s", bucket, dot, (int)len, host) <
	       sizeof(client->host);
}

/* The signature covers the Host header, from which libcurl leaves out the scheme's own port: so the host has none here either. */
static void
drop_own_port(struct scout__s3_client *client)
{
	const char *port = strcmp(client->scheme, "https") == 0 ? ":443" : ":80";
	size_t len = strlen(client->host), port_len = strlen(port);

	if (len > port_len && strcmp(client->host + len - port_len, port) == 0)
		client->host[len - port_len] = '\0';
}

static bool
check(struct scout__s3_client *client, const struct scout__s3_options *o, char *err, size_t err_len)
{
	bool by_path = o->style ? strcmp(o->style, "path") == 0 : o->endpoint != NULL;

	err[0] = '\0';
	if (!o->bucket || !is_bucket(o->bucket))
		(void)snprintf(err, err_len, "a bucket has 3 to 63 lower-case letters, digits, dots and hyphens");
	else if (o->style && !by_path && strcmp(o->style, "host") != 0)
		(void)snprintf(err, err_len, "style is path or host");
	else if (!put(client->region, sizeof(client->region), o->region ? o->region : "us-east-1"))
		(void)snprintf(err, err_len, "region is too long");
	else if (!put(client->prefix, SCOUT__S3_MAX_KEY - 64, o->prefix ? o->prefix : ""))
		(void)snprintf(err, err_len, "the prefix is longer than %u bytes", SCOUT__S3_MAX_KEY - 64);
	else if (!set_endpoint(client, o, by_path))
		(void)snprintf(err, err_len, "endpoint is https://HOST[:PORT] or http://HOST[:PORT]");
	else if (o->unsigned_payload && strcmp(client->scheme, "https") != 0)
		(void)snprintf(err, err_len,
			       "payload=unsigned needs an endpoint with https: only TLS protects it then");
	else if (by_path)
		(void)put(client->bucket, sizeof(client->bucket), o->bucket);
	return err[0] == '\0';
}

/* Whether the files of the options can be read now: a store without them would never work. */
static bool
has_files(const struct scout__s3_options *o, char *err, size_t err_len)
{
	int ca = o->ca_file ? scout__regular_open("ca", o->ca_file, -1, err, err_len) : -1;
	int keys = o->credentials_file ? scout__secret_open("credentials", o->credentials_file, -1, err, err_len) : -1;

	if (ca >= 0)
		(void)close(ca); /* read only: nothing is lost */
	if (keys >= 0)
		(void)close(keys);
	return (!o->ca_file || ca >= 0) && (!o->credentials_file || keys >= 0);
}

bool
scout__s3_client_init(struct scout__s3_client *client, const struct scout__s3_options *o, char *err, size_t err_len)
{
	memset(client, 0, sizeof(*client));
	if (!check(client, o, err, err_len) || !has_files(o, err, err_len) || !scout__s3_curl_open(err, err_len))
		return false;
	drop_own_port(client);
	for (size_t len = strlen(client->prefix); len && client->prefix[len - 1] == '/'; len--)
		client->prefix[len - 1] = '\0';
	client->hashes_payloads = !o->unsigned_payload;
	client->timeout_ms = o->timeout_ms ? o->timeout_ms : 5000;
	client->ca_file = o->ca_file ? strdup(o->ca_file) : NULL;
	client->credentials_file = o->credentials_file ? strdup(o->credentials_file) : NULL;
	if ((!client->ca_file && o->ca_file) || (!client->credentials_file && o->credentials_file) ||
	    pthread_mutex_init(&client->mu, NULL) != 0)
		goto err_free;
	if (!scout__s3_credentials_init(&client->credentials, client->credentials_file, client->region, client->ca_file,
					client->timeout_ms))
		goto err_fini_mu;
	return true;

err_fini_mu:
	(void)pthread_mutex_destroy(&client->mu);
err_free:
	free(client->ca_file);
	free(client->credentials_file);
	(void)snprintf(err, err_len, "no memory");
	return false;
}

void
scout__s3_client_fini(struct scout__s3_client *client)
{
	struct scout__s3_line *line;

	while ((line = client->lines) != NULL) {
		client->lines = line->next;
		scout__s3_line_free(line);
	}
	scout__s3_credentials_fini(&client->credentials);
	(void)pthread_mutex_destroy(&client->mu);
	free(client->ca_file);
	free(client->credentials_file);
}
