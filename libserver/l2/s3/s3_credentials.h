/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "s3_http.h"

/*
 * Where the access key comes from, in the order in which they are tried, and under the names that the tools of AWS use:
 *
 *   environment   AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
 *   file          the option `credentials`, AWS_SHARED_CREDENTIALS_FILE, or ~/.aws/credentials: aws_access_key_id,
 *                 aws_secret_access_key, aws_session_token of the section AWS_PROFILE ("default"); mode 0600, of its owner alone
 *   web identity  AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, asked at AWS_ENDPOINT_URL_STS or https://sts.REGION.amazonaws.com
 *   container     AWS_CONTAINER_CREDENTIALS_FULL_URI, or _RELATIVE_URI at 169.254.170.2; AWS_CONTAINER_AUTHORIZATION_TOKEN
 *                 or _TOKEN_FILE
 *   instance      IMDSv2 at AWS_EC2_METADATA_SERVICE_ENDPOINT or 169.254.169.254, unless AWS_EC2_METADATA_DISABLED is true
 *
 * The first source that is set decides: where it fails, the others are not tried. Credentials that end are renewed five
 * minutes before their end; those of a file are read again when the store calls them expired.
 */

#define SCOUT__S3_ACCESS_TEXT 160u
#define SCOUT__S3_TOKEN_TEXT 8192u
#define SCOUT__S3_SENTENCE 512u

struct scout__s3_keys {
	char access[SCOUT__S3_ACCESS_TEXT], secret[SCOUT__S3_ACCESS_TEXT];
	char token[SCOUT__S3_TOKEN_TEXT]; /* "": none */
	int64_t ends;                     /* seconds since 1970; 0: unknown */
};

enum scout__s3_env {
	SCOUT__S3_ACCESS_KEY_ID,
	SCOUT__S3_SECRET_ACCESS_KEY,
	SCOUT__S3_SESSION_TOKEN,
	SCOUT__S3_CREDENTIALS_FILE,
	SCOUT__S3_PROFILE,
	SCOUT__S3_HOME,
	SCOUT__S3_WEB_IDENTITY_TOKEN_FILE,
	SCOUT__S3_ROLE_ARN,
	SCOUT__S3_ROLE_SESSION_NAME,
	SCOUT__S3_ENDPOINT_STS,
	SCOUT__S3_CONTAINER_RELATIVE_URI,
	SCOUT__S3_CONTAINER_FULL_URI,
	SCOUT__S3_CONTAINER_TOKEN,
	SCOUT__S3_CONTAINER_TOKEN_FILE,
	SCOUT__S3_METADATA_ENDPOINT,
	SCOUT__S3_METADATA_DISABLED,
	SCOUT__S3_ENV
};

struct scout__s3_credentials {
	const char *file;   /* the option; NULL: not given. Const after init */
	const char *region; /* const after init */
	const char *ca_file;
	uint32_t timeout_ms;
	char *env[SCOUT__S3_ENV]; /* of the environment at the init, by enum scout__s3_env; const after it */
	pthread_mutex_t mu;
	bool is_known;              /* G:mu */
	int64_t asked_s;            /* G:mu; when refused ones were renewed last; 0: never */
	int64_t renewed_s;          /* G:mu; when a renewal began last */
	struct scout__s3_keys keys; /* G:mu */
	pthread_t renewer;          /* G:mu */
	bool has_renewer;           /* G:mu; to be joined */
	atomic_bool renews, ends;
};

/* @file, @region and @ca_file are borrowed until the fini. Reads the environment. Returns whether there was memory. */
bool scout__s3_credentials_init(struct scout__s3_credentials *c, const char *file, const char *region,
				const char *ca_file, uint32_t timeout_ms);
/* Waits for a renewal, whose request ends within 100 ms. */
void scout__s3_credentials_fini(struct scout__s3_credentials *c);

/*
 * Copy the credentials. Asks the source when there are none yet, they have ended, or @refused are those that the store has
 * refused (NULL: none). Any thread; blocks for @timeout_ms a request, or until @watch gives up; one thread asks, others wait for it.
 * Those that end soon are used while a thread of their own asks for others, once a second at most.
 * False: @err says why, in a sentence without a secret.
 */
bool scout__s3_credentials_get(struct scout__s3_credentials *c, struct scout__s3_line *line,
			       struct scout__s3_watch *watch, const struct scout__s3_keys *refused,
			       struct scout__s3_keys *ret_keys, char *err, size_t err_len);

/* ---- s3_sources.c: each returns 1 (found), 0 (this source is not set) or -1 (it failed, @err says why) ---- */

struct scout__s3_source {
	const struct scout__s3_credentials *c;
	struct scout__s3_line *line;
	struct scout__s3_watch *watch;
	char *err;
	size_t err_len;
};

int scout__s3_from_environment(struct scout__s3_source *from, struct scout__s3_keys *ret_keys);
int scout__s3_from_file(struct scout__s3_source *from, struct scout__s3_keys *ret_keys);
int scout__s3_from_web_identity(struct scout__s3_source *from, struct scout__s3_keys *ret_keys);
int scout__s3_from_container(struct scout__s3_source *from, struct scout__s3_keys *ret_keys);
int scout__s3_from_instance(struct scout__s3_source *from, struct scout__s3_keys *ret_keys);
