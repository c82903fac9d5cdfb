/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "clock.h"

/*
 * DESIGN
 *
 * A call drives its easy handles with a multi handle of its own, on the caller's thread: a single request and the sixteen
 * HEADs of a lookup take the same way, and the loop around multi_poll() looks at the watch 20 times a second,
 * whatever libcurl is doing. (CURLOPT_XFERINFOFUNCTION would be asked once a second on a connection where nothing moves.)
 *
 * The body of a 200 is written to where the caller wants it, by libcurl's thread of control, without a copy of ours
 * between; the body of any other answer is a document that explains, and is kept as text.
 *
 * Rejected: one multi handle and one thread for all (a hash of 2 MiB takes a millisecond, and TLS more: with one thread
 * they would be the limit).
 */

#define TURN_MS 50
#define BUFFER_BYTES (512L * 1024)

uint64_t
scout__s3_bytes(const struct iovec *parts, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += parts[i].iov_len;
	return bytes;
}

/* Copy up to @len bytes between @buffer and the place @at of @parts; returns how many there were. */
static size_t
copy(const struct iovec *parts, uint32_t n, uint64_t at, char *buffer, size_t len, bool is_in)
{
	size_t done = 0;

	for (uint32_t i = 0; i < n && done < len; i++) {
		size_t part;
		char *here;

		if (at >= parts[i].iov_len) {
			at -= parts[i].iov_len;
			continue;
		}
		part = parts[i].iov_len - at < len - done ? parts[i].iov_len - at : len - done;
		here = (char *)parts[i].iov_base + at;
		if (is_in)
			memcpy(here, buffer + done, part);
		else
			memcpy(buffer + done, here, part);
		done += part;
		at = 0;
	}
	return done;
}

static size_t
on_body(char *bytes, size_t one, size_t len, void *user)
{
	struct scout__s3_exchange *x = user;
	long status = 0;
	size_t done;

	(void)one;
	*x->moved += len;
	(void)scout__s3_curl.easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200 || !x->into) {
		scout__s3_put(&x->text, bytes, len);
		return len;
	}
	done = copy(x->into, x->n_into, x->received, bytes, len, true);
	x->received += len;
	return done; /* less than @len ends an answer that is longer than what is wanted, which might never end */
}

static size_t
on_send(char *buffer, size_t one, size_t len, void *user)
{
	struct scout__s3_exchange *x = user;
	size_t n = copy(x->body, x->n_body, x->sent, buffer, one * len, false);

	x->sent += n;
	*x->moved += n;
	return n;
}

/* A connection that was kept had ended, and libcurl sends the body again. */
static int
on_seek(void *user, curl_off_t offset, int origin)
{
	struct scout__s3_exchange *x = user;

	if (origin != SEEK_SET || offset < 0)
		return CURL_SEEKFUNC_CANTSEEK;
	x->sent = (uint64_t)offset;
	return CURL_SEEKFUNC_OK;
}

/* The value of @name in a line of a header, into @ret_text. */
static bool
value_of(const char *line, size_t len, const char *name, char *ret_text, size_t size)
{
	size_t name_len = strlen(name);

	if (len <= name_len || strncasecmp(line, name, name_len) != 0 || line[name_len] != ':')
		return false;
	line += name_len + 1;
	len -= name_len + 1;
	for (; len && (*line == ' ' || *line == '\t'); len--)
		line++;
	while (len && (line[len - 1] == '\r' || line[len - 1] == '\n' || line[len - 1] == ' '))
		len--;
	if (len >= size)
		return false;
	memcpy(ret_text, line, len);
	ret_text[len] = '\0';
	return true;
}

static size_t
on_header(char *line, size_t one, size_t len, void *user)
{
	struct scout__s3_exchange *x = user;
	char text[64];

	(void)one;
	if (value_of(line, len, "Date", text, sizeof(text))) {
		time_t at = scout__s3_curl.getdate(text, NULL);

		x->server_seconds = at > 0 ? (int64_t)at : 0;
	}
	(void)value_of(line, len, "x-amz-bucket-region", x->region, sizeof(x->region));
	return len;
}

struct scout__s3_line *
scout__s3_line_new(const char *ca_file)
{
	struct scout__s3_line *line = calloc(1, sizeof(*line));

	if (!line || !scout__s3_curl_open(NULL, 0))
		goto err_free_line;
	line->multi = scout__s3_curl.multi_init();
	if (!line->multi)
		goto err_free_line;
	(void)scout__s3_curl.multi_setopt(line->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
	for (uint32_t i = 0; i < SCOUT__S3_AT_ONCE; i++) {
		CURL *easy = scout__s3_curl.easy_init();

		line->easy[i] = easy;
		if (!easy)
			goto err_free_line;
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_PROXY, "");
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, BUFFER_BYTES);
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_READFUNCTION, on_send);
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_SEEKFUNCTION, on_seek);
		/* Instead of the system's authorities, of which libcurl has a file and a folder. */
		if (ca_file && (scout__s3_curl.easy_setopt(easy, CURLOPT_CAINFO, ca_file) != CURLE_OK ||
				scout__s3_curl.easy_setopt(easy, CURLOPT_CAPATH, NULL) != CURLE_OK))
			goto err_free_line;
	}
	return line;

err_free_line:
	scout__s3_line_free(line);
	return NULL;
}

void
scout__s3_line_free(struct scout__s3_line *line)
{
	if (!line)
		return;
	for (uint32_t i = 0; i < SCOUT__S3_AT_ONCE && line->easy[i]; i++)
		scout__s3_curl.easy_cleanup(line->easy[i]);
	if (line->multi)
		(void)scout__s3_curl.multi_cleanup(line->multi);
	free(line);
}

static bool
add_header(struct scout__s3_exchange *x, const char *name, const char *value)
{
	size_t size = strlen(name) + strlen(value) + 3;
	char *text = malloc(size);
	struct curl_slist *list = NULL;

	if (text) {
		(void)snprintf(text, size, "%s: %s", name, value);
		list = scout__s3_curl.slist_append(x->list, text);
		free(text);
	}
	if (list)
		x->list = list;
	return list != NULL;
}

static void
set_body(struct scout__s3_exchange *x, bool *is_good)
{
	uint64_t bytes = scout__s3_bytes(x->body, x->n_body);

	if (strcmp(x->method, "POST") == 0) {
		(void)scout__s3_curl.easy_setopt(x->easy, CURLOPT_POST, 1L);
		(void)scout__s3_curl.easy_setopt(x->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)bytes);
	} else {
		(void)scout__s3_curl.easy_setopt(x->easy, CURLOPT_UPLOAD, 1L);
		(void)scout__s3_curl.easy_setopt(x->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)bytes);
	}
	/* An empty value takes the header out, which libcurl would send from 1 MiB on: not every store and proxy answers it. */
	*is_good = *is_good && add_header(x, "Expect", "");
}

/* False: no memory. */
static bool
begin(struct scout__s3_line *line, CURL *easy, struct scout__s3_exchange *x, uint32_t timeout_ms, uint64_t *moved)
{
	bool is_good = true;

	x->easy = easy;
	x->list = NULL;
	x->moved = moved;
	x->sent = x->received = 0;
	x->status = 0;
	x->server_seconds = 0;
	x->region[0] = x->error[0] = '\0';
	x->code = CURLE_ABORTED_BY_CALLBACK;
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_PRIVATE, x);
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_ERRORBUFFER, x->error);
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_WRITEDATA, x);
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_HEADERDATA, x);
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_READDATA, x);
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_SEEKDATA, x);
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)timeout_ms);
	/* GET first: it takes back what the request before has set. */
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_NOBODY, 0L);
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_UPLOAD, 0L);
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_HTTPGET, 1L);
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_CUSTOMREQUEST, NULL);
	if (strcmp(x->method, "HEAD") == 0)
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_NOBODY, 1L);
	else if (x->body)
		set_body(x, &is_good);
	else if (strcmp(x->method, "GET") != 0)
		(void)scout__s3_curl.easy_setopt(easy, CURLOPT_CUSTOMREQUEST, x->method);
	for (uint32_t i = 0; i < x->n_headers && is_good; i++)
		is_good = add_header(x, x->headers[i].name, x->headers[i].value);
	(void)scout__s3_curl.easy_setopt(easy, CURLOPT_HTTPHEADER, x->list);
	return is_good && scout__s3_curl.easy_setopt(easy, CURLOPT_URL, x->url) == CURLE_OK &&
	       scout__s3_curl.multi_add_handle(line->multi, easy) == CURLM_OK;
}

static void
end(struct scout__s3_line *line, struct scout__s3_exchange *x)
{
	(void)scout__s3_curl.easy_getinfo(x->easy, CURLINFO_RESPONSE_CODE, &x->status);
	(void)scout__s3_curl.multi_remove_handle(line->multi, x->easy);
	(void)scout__s3_curl.easy_setopt(x->easy, CURLOPT_HTTPHEADER, NULL);
	(void)scout__s3_curl.easy_setopt(x->easy, CURLOPT_ERRORBUFFER, NULL);
	scout__s3_curl.slist_free_all(x->list);
	x->list = NULL;
	x->easy = NULL;
}

/* Take out what has ended. */
static uint32_t
reap(struct scout__s3_line *line)
{
	struct scout__s3_exchange *x;
	uint32_t n = 0;
	CURLMsg *message;
	int left;

	while ((message = scout__s3_curl.multi_info_read(line->multi, &left)) != NULL) {
		CURLcode code = message->data.result;

		if (scout__s3_curl.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&x) != CURLE_OK)
			continue;
		end(line, x);
		x->code = code;
		n++;
	}
	return n;
}

static bool
goes_on(const struct scout__s3_watch *watch)
{
	return !watch || watch->goes_on(watch->user, watch->moved);
}

bool
scout__s3_run(struct scout__s3_line *line, struct scout__s3_exchange *exchanges, uint32_t n, uint32_t timeout_ms,
	      struct scout__s3_watch *watch)
{
	uint64_t own = 0, *moved = watch ? &watch->moved : &own, before = *moved, since_ms = scout__now_ns() / 1000000;
	CURLcode rest = CURLE_ABORTED_BY_CALLBACK;
	uint32_t running = 0;
	bool is_wanted = true;
	int ignored;

	for (uint32_t i = 0; i < n; i++) {
		if (begin(line, line->easy[i], &exchanges[i], timeout_ms, moved)) {
			running++;
			continue;
		}
		end(line, &exchanges[i]);
		exchanges[i].code = CURLE_OUT_OF_MEMORY;
	}
	while (running > 0) {
		uint32_t ended;

		if (scout__s3_curl.multi_perform(line->multi, &ignored) != CURLM_OK)
			break;
		ended = reap(line);
		running -= ended;
		*moved += ended;
		if (*moved != before)
			since_ms = scout__now_ns() / 1000000;
		before = *moved;
		is_wanted = goes_on(watch);
		if (!is_wanted)
			break;
		if (scout__now_ns() / 1000000 - since_ms > timeout_ms) {
			rest = CURLE_OPERATION_TIMEDOUT;
			break;
		}
		if (running > 0)
			(void)scout__s3_curl.multi_poll(line->multi, NULL, 0, TURN_MS, NULL);
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!exchanges[i].easy)
			continue;
		end(line, &exchanges[i]);
		exchanges[i].code = rest;
	}
	return is_wanted;
}

bool
scout__s3_pause(struct scout__s3_line *line, uint32_t ms, struct scout__s3_watch *watch)
{
	uint64_t end_ms = scout__now_ns() / 1000000 + ms;

	for (uint64_t at = scout__now_ns() / 1000000; at < end_ms; at = scout__now_ns() / 1000000) {
		if (!goes_on(watch))
			return false;
		(void)scout__s3_curl.multi_poll(line->multi, NULL, 0,
						end_ms - at < TURN_MS ? (int)(end_ms - at) : TURN_MS, NULL);
	}
	return true;
}
