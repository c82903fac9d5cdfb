/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_credentials.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "thread.h"

/*
 * See s3_credentials.h. Threads: any. One thread asks the source with the mutex held, and the others wait, since none of
 * them could do anything without a key. Keys that end soon are renewed by a thread that nobody waits for: a service that
 * hangs takes nothing while they are good.
 */

#define RENEW_S 300
/* A store that refuses everything must not make us ask for credentials with each request. */
#define ASK_AGAIN_S 10

static const char *const env_names[SCOUT__S3_ENV] = {
	[SCOUT__S3_ACCESS_KEY_ID] = "AWS_ACCESS_KEY_ID",
	[SCOUT__S3_SECRET_ACCESS_KEY] = "AWS_SECRET_ACCESS_KEY",
	[SCOUT__S3_SESSION_TOKEN] = "AWS_SESSION_TOKEN",
	[SCOUT__S3_CREDENTIALS_FILE] = "AWS_SHARED_CREDENTIALS_FILE",
	[SCOUT__S3_PROFILE] = "AWS_PROFILE",
	[SCOUT__S3_HOME] = "HOME",
	[SCOUT__S3_WEB_IDENTITY_TOKEN_FILE] = "AWS_WEB_IDENTITY_TOKEN_FILE",
	[SCOUT__S3_ROLE_ARN] = "AWS_ROLE_ARN",
	[SCOUT__S3_ROLE_SESSION_NAME] = "AWS_ROLE_SESSION_NAME",
	[SCOUT__S3_ENDPOINT_STS] = "AWS_ENDPOINT_URL_STS",
	[SCOUT__S3_CONTAINER_RELATIVE_URI] = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
	[SCOUT__S3_CONTAINER_FULL_URI] = "AWS_CONTAINER_CREDENTIALS_FULL_URI",
	[SCOUT__S3_CONTAINER_TOKEN] = "AWS_CONTAINER_AUTHORIZATION_TOKEN",
	[SCOUT__S3_CONTAINER_TOKEN_FILE] = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
	[SCOUT__S3_METADATA_ENDPOINT] = "AWS_EC2_METADATA_SERVICE_ENDPOINT",
	[SCOUT__S3_METADATA_DISABLED] = "AWS_EC2_METADATA_DISABLED",
};

/* Here alone, since the host's other threads may change the environment while a thread of the store reads it. */
static bool
read_environment(struct scout__s3_credentials *c)
{
	bool is_good = true;

	for (size_t i = 0; i < SCOUT__S3_ENV; i++) {
		const char *value = secure_getenv(env_names[i]);

		if (value && *value)
			c->env[i] = strdup(value);
		is_good = is_good && (!value || !*value || c->env[i]);
	}
	return is_good;
}

static void
free_environment(struct scout__s3_credentials *c)
{
	for (size_t i = 0; i < SCOUT__S3_ENV; i++) {
		if (c->env[i])
			explicit_bzero(c->env[i], strlen(c->env[i]));
		free(c->env[i]);
	}
}

bool
scout__s3_credentials_init(struct scout__s3_credentials *c, const char *file, const char *region, const char *ca_file,
			   uint32_t timeout_ms)
{
	memset(c, 0, sizeof(*c));
	c->file = file;
	c->region = region;
	c->ca_file = ca_file;
	c->timeout_ms = timeout_ms;
	if (read_environment(c) && pthread_mutex_init(&c->mu, NULL) == 0)
		return true;
	free_environment(c);
	return false;
}

void
scout__s3_credentials_fini(struct scout__s3_credentials *c)
{
	atomic_store(&c->ends, true);
	if (c->has_renewer)
		(void)pthread_join(c->renewer, NULL);
	(void)pthread_mutex_destroy(&c->mu);
	explicit_bzero(&c->keys, sizeof(c->keys));
	free_environment(c);
}

/* 1, 0 or -1 as the sources return. */
static int
ask(struct scout__s3_source *from, struct scout__s3_keys *ret_keys)
{
	static int (*const sources[])(struct scout__s3_source *, struct scout__s3_keys *) = {
		scout__s3_from_environment, scout__s3_from_file, scout__s3_from_web_identity, scout__s3_from_container,
		scout__s3_from_instance};
	int rc = 0;

	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]) && rc == 0; i++) {
		memset(ret_keys, 0, sizeof(*ret_keys));
		rc = sources[i](from, ret_keys);
	}
	if (rc == 0)
		(void)snprintf(
			from->err, from->err_len,
			"there are no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the option "
			"credentials=FILE");
	return rc;
}

static bool
goes_on(void *user, uint64_t moved)
{
	const struct scout__s3_credentials *c = user;

	(void)moved;
	return !atomic_load(&c->ends);
}

/* The thread of one renewal. */
static void *
renew(void *arg)
{
	struct scout__s3_credentials *c = arg;
	struct scout__s3_line *line = scout__s3_line_new(c->ca_file);
	struct scout__s3_watch watch = {goes_on, c, 0};
	char err[SCOUT__S3_SENTENCE];
	struct scout__s3_source from = {.c = c, .line = line, .watch = &watch, .err = err, .err_len = sizeof(err)};
	struct scout__s3_keys keys;

	if (line && ask(&from, &keys) == 1) {
		(void)pthread_mutex_lock(&c->mu);
		c->keys = keys;
		(void)pthread_mutex_unlock(&c->mu);
	}
	explicit_bzero(&keys, sizeof(keys));
	scout__s3_line_free(line);
	atomic_store(&c->renews, false);
	return NULL;
}

/* Holds the mutex. */
static void
begin_renewal(struct scout__s3_credentials *c)
{
	int64_t now_s = (int64_t)time(NULL);

	if (c->renewed_s == now_s || atomic_load(&c->renews))
		return;
	if (c->has_renewer)
		(void)pthread_join(c->renewer, NULL); /* it has ended */
	c->renewed_s = now_s;
	atomic_store(&c->renews, true);
	c->has_renewer = scout__thread_start(&c->renewer, "scout-s3-keys", renew, c) == 0;
	if (!c->has_renewer)
		atomic_store(&c->renews, false);
}

static bool
is_fresh(const struct scout__s3_credentials *c, const struct scout__s3_keys *refused)
{
	if (!c->is_known || (c->keys.ends && c->keys.ends <= (int64_t)time(NULL)))
		return false;
	if (refused && c->asked_s && (int64_t)time(NULL) - c->asked_s < ASK_AGAIN_S)
		return true;
	/* Another thread may have renewed them already. */
	return !refused || strcmp(refused->access, c->keys.access) != 0 || strcmp(refused->token, c->keys.token) != 0;
}

bool
scout__s3_credentials_get(struct scout__s3_credentials *c, struct scout__s3_line *line, struct scout__s3_watch *watch,
			  const struct scout__s3_keys *refused, struct scout__s3_keys *ret_keys, char *err,
			  size_t err_len)
{
	struct scout__s3_source from = {.c = c, .line = line, .watch = watch, .err = err, .err_len = err_len};
	struct scout__s3_keys keys;
	bool is_known;

	(void)pthread_mutex_lock(&c->mu);
	if (is_fresh(c, refused)) {
		if (c->keys.ends && c->keys.ends - RENEW_S < (int64_t)time(NULL))
			begin_renewal(c);
	} else {
		int rc = ask(&from, &keys);

		if (refused)
			c->asked_s = (int64_t)time(NULL);
		if (rc == 1)
			c->keys = keys;
		/* Those that have ended are used until the store refuses them. */
		c->is_known = rc == 1 || (c->is_known && !refused);
		explicit_bzero(&keys, sizeof(keys));
	}
	is_known = c->is_known;
	if (is_known)
		*ret_keys = c->keys;
	(void)pthread_mutex_unlock(&c->mu);
	return is_known;
}
