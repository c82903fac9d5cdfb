/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_credentials.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/*
 * See s3_credentials.h. Threads: any. One thread asks the source with the mutex held, and the others wait, since none of
 * them could do anything without a key.
 */

#define RENEW_S 300
/* A store that refuses everything must not make us ask for credentials with each request. */
#define ASK_AGAIN_S 10

bool
scout__s3_credentials_init(struct scout__s3_credentials *c, const char *file, const char *region, uint32_t timeout_ms)
{
	memset(c, 0, sizeof(*c));
	c->file = file;
	c->region = region;
	c->timeout_ms = timeout_ms;
	return pthread_mutex_init(&c->mu, NULL) == 0;
}

void
scout__s3_credentials_fini(struct scout__s3_credentials *c)
{
	(void)pthread_mutex_destroy(&c->mu);
	explicit_bzero(&c->keys, sizeof(c->keys));
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
is_fresh(const struct scout__s3_credentials *c, const struct scout__s3_keys *refused)
{
	if (!c->is_known || (c->keys.ends && c->keys.ends - RENEW_S < (int64_t)time(NULL)))
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
	if (!is_fresh(c, refused)) {
		int rc = ask(&from, &keys);

		if (refused)
			c->asked_s = (int64_t)time(NULL);
		if (rc == 1)
			c->keys = keys;
		/* Those that end soon are good until the store says otherwise. */
		c->is_known = rc == 1 || (c->is_known && !refused);
		explicit_bzero(&keys, sizeof(keys));
	}
	is_known = c->is_known;
	if (is_known)
		*ret_keys = c->keys;
	(void)pthread_mutex_unlock(&c->mu);
	return is_known;
}
