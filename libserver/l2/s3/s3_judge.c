/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_client.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/*
 * See s3_client.h. Threads: any; nothing here changes anything but the ask.
 *
 * An answer is judged by its status, and by the <Code> of the document with it where one status has several meanings. A
 * HEAD has no document: there a clock that is off by more than the fifteen minutes that S3 allows says RequestTimeTooSkewed.
 */

#define MAX_SKEW_S 900

static bool
is_put(const struct scout__s3_ask *ask)
{
	return strcmp(ask->method, "PUT") == 0;
}

static enum scout__s3_verdict
over(struct scout__s3_ask *ask, enum scout_l2_outcome result)
{
	ask->result = result;
	return SCOUT__S3_IS_OVER;
}

/* No answer, or not all of it. */
static enum scout__s3_verdict
judge_connection(const struct scout__s3_exchange *x, struct scout__s3_ask *ask)
{
	(void)snprintf(ask->why, sizeof(ask->why), "%s", *x->error ? x->error : scout__s3_curl.easy_strerror(x->code));
	ask->result = SCOUT_L2_FAILED;
	switch (x->code) {
	case CURLE_COULDNT_CONNECT:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_GOT_NOTHING:
	case CURLE_PARTIAL_FILE:
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_SEND_FAIL_REWIND:
	case CURLE_SSL_CONNECT_ERROR:
		return SCOUT__S3_AGAIN_LATER;
	case CURLE_OPERATION_TIMEDOUT:
		return over(ask, SCOUT_L2_TIMEOUT);
	case CURLE_ABORTED_BY_CALLBACK:
		return over(ask, SCOUT_L2_GAVE_UP);
	default:
		return SCOUT__S3_IS_OVER;
	}
}

static enum scout__s3_verdict
judge_good(const struct scout__s3_exchange *x, struct scout__s3_ask *ask)
{
	uint64_t wanted = scout__s3_bytes(ask->parts, ask->n_parts);

	if (strcmp(ask->method, "GET") == 0 && ask->parts && x->received != wanted) {
		(void)snprintf(ask->why, sizeof(ask->why), "the object has %llu bytes%s, not %llu",
			       (unsigned long long)x->received, x->code == CURLE_OK ? "" : " or more",
			       (unsigned long long)wanted);
		return over(ask, SCOUT_L2_WRONG_SIZE);
	}
	return over(ask, SCOUT_L2_DONE);
}

/* A document says it, or the answer to a HEAD does. */
static bool
is_skewed(const struct scout__s3_exchange *x, const char *code)
{
	int64_t off = x->server_seconds ? x->server_seconds - (int64_t)time(NULL) : 0;

	if (strcmp(code, "RequestTimeTooSkewed") == 0)
		return true;
	return !*code && x->status == 403 && (off > MAX_SKEW_S || off < -MAX_SKEW_S);
}

static bool
wants_other_keys(const struct scout__s3_exchange *x, const char *code)
{
	static const char *const codes[] = {"ExpiredToken", "InvalidToken", "TokenRefreshRequired",
					    "InvalidAccessKeyId"};

	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		if (strcmp(code, codes[i]) == 0)
			return true;
	}
	return !*code && (x->status == 403 || x->status == 400);
}

static enum scout__s3_verdict
refused(const struct scout__s3_client *client, const struct scout__s3_exchange *x, const char *code,
	struct scout__s3_ask *ask)
{
	if (x->status >= 300 && x->status < 400)
		(void)snprintf(ask->why, sizeof(ask->why),
			       "the bucket is in another region%s%s, not in %s: set region= and endpoint= (status %ld)",
			       *x->region ? ", " : "", x->region, client->region, x->status);
	else
		(void)snprintf(ask->why, sizeof(ask->why), "%ld%s%s: %s was refused%s", x->status, *code ? " " : "",
			       code, ask->method,
			       x->status == 403 && !is_put(ask) && (!*code || strcmp(code, "AccessDenied") == 0)
				       ? "; without the right s3:ListBucket also what is absent is refused"
				       : "");
	return over(ask, SCOUT_L2_FAILED);
}

/* 4xx and 3xx, apart from those that a busy store sends. */
static enum scout__s3_verdict
judge_refusal(const struct scout__s3_client *client, const struct scout__s3_exchange *x, bool was_plain,
	      const char *code, struct scout__s3_ask *ask)
{
	bool was_conditional = is_put(ask) && ask->must_be_new && !was_plain;

	if (x->status == 412 && was_conditional)
		return over(ask, SCOUT_L2_PRESENT);
	if (is_skewed(x, code)) {
		(void)refused(client, x, code, ask);
		return SCOUT__S3_AGAIN_WITH_CLOCK;
	}
	if (strcmp(code, "QuotaExceeded") == 0 || x->status == 507) {
		(void)refused(client, x, code, ask);
		return over(ask, SCOUT_L2_FULL);
	}
	if (wants_other_keys(x, code) && !(x->status == 400 && was_conditional && !*code)) {
		(void)refused(client, x, code, ask);
		return SCOUT__S3_AGAIN_WITH_KEYS;
	}
	if ((x->status == 400 || x->status == 501) && was_conditional) {
		(void)refused(client, x, code, ask);
		return SCOUT__S3_AGAIN_PLAIN;
	}
	if (x->status == 404 && !is_put(ask) && ask->key && strcmp(code, "NoSuchBucket") != 0)
		return over(ask, SCOUT_L2_ABSENT);
	return refused(client, x, code, ask);
}

enum scout__s3_verdict
scout__s3_judge(const struct scout__s3_client *client, const struct scout__s3_exchange *x, bool was_plain,
		struct scout__s3_ask *ask)
{
	char code[64] = "";

	ask->why[0] = '\0';
	ask->status = x->status;
	if (x->code == CURLE_WRITE_ERROR && x->received > 0) /* on_body() wants no more of it */
		return judge_good(x, ask);
	if (x->code != CURLE_OK)
		return judge_connection(x, ask);
	if (x->status >= 200 && x->status < 300)
		return judge_good(x, ask);
	(void)scout__s3_xml(x->text.at, "Code", code, sizeof(code), NULL);
	(void)refused(client, x, code, ask);
	switch (x->status) {
	case 408:
	case 409:
	case 429:
	case 500:
	case 502:
	case 503:
	case 504:
		return SCOUT__S3_AGAIN_LATER;
	default:
		if (strcmp(code, "RequestTimeout") == 0 || strcmp(code, "OperationAborted") == 0)
			return SCOUT__S3_AGAIN_LATER;
		return judge_refusal(client, x, was_plain, code, ask);
	}
}
