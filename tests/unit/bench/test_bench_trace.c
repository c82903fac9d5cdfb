/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "check_main.h"
#include "trace.h"

#define GOOD                                                                                                           \
	"{\"timestamp\": 27, \"input_length\": 6758, \"output_length\": 500, \"hash_ids\": [0, 14, 9007199254740993]}"

static char dir[] = "/tmp/kvscout-trace-XXXXXX";
static char path[PATH_MAX];
static char err[512];

static void
setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_lt(snprintf(path, sizeof(path), "%s/trace.jsonl", dir), (int)sizeof(path));
	err[0] = '\0';
}

static void
teardown(void)
{
	(void)unlink(path); /* some tests make none */
	ck_assert_int_eq(rmdir(dir), 0);
}

static struct trace *
trace_of(const void *bytes, size_t len)
{
	FILE *file = fopen(path, "we");
	struct trace *trace;

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(bytes, 1, len, file), len);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(trace_open(path, &trace, err, sizeof(err)), 0);
	return trace;
}

/* The lines before @line are good; it is refused, and the error begins with file and line and then has @text. */
static void
assert_refused(const char *bytes, size_t len, uint64_t line, const char *text)
{
	struct trace *trace = trace_of(bytes, len);
	struct trace_request request = {.line = 77};
	char begin[PATH_MAX + 32];

	for (uint64_t i = 1; i < line; i++)
		ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), 1);
	request.line = 77;
	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), SCOUT_ERR_FORMAT);
	ck_assert_uint_eq(request.line, 77);
	(void)snprintf(begin, sizeof(begin), "%s:%llu: ", path, (unsigned long long)line);
	ck_assert_msg(strncmp(err, begin, strlen(begin)) == 0, "\"%s\" does not begin with \"%s\"", err, begin);
	ck_assert_msg(strstr(err, text) != NULL, "\"%s\" does not say \"%s\"", err, text);
	trace_close(trace);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(a_request_has_every_field)
{
	struct trace *trace = trace_of(GOOD "\n", strlen(GOOD) + 1);
	struct trace_request request;

	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), 1);
	ck_assert_uint_eq(request.line, 1);
	ck_assert_double_eq(request.timestamp_ms, 27);
	ck_assert_uint_eq(request.input_tokens, 6758);
	ck_assert_uint_eq(request.output_tokens, 500);
	ck_assert_uint_eq(request.n, 3);
	ck_assert_uint_eq(request.ids[0], 0);
	ck_assert_uint_eq(request.ids[1], 14);
	ck_assert_uint_eq(request.ids[2], UINT64_C(9007199254740993)); /* no double could hold it */
	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), 0);
	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), 0);
	ck_assert_double_eq(trace_progress(trace), 1);
	trace_close(trace);
}
END_TEST

START_TEST(blank_lines_and_a_missing_last_newline_are_no_errors)
{
	static const char text[] = "\n \t\r\n" GOOD "\r\n\n" GOOD;
	struct trace *trace = trace_of(text, strlen(text));
	struct trace_request request;

	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), 1);
	ck_assert_uint_eq(request.line, 3);
	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), 1);
	ck_assert_uint_eq(request.line, 5);
	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), 0);
	trace_close(trace);
}
END_TEST

START_TEST(an_empty_file_has_no_request)
{
	struct trace *trace = trace_of("", 0);
	struct trace_request request;

	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), 0);
	ck_assert_double_eq(trace_progress(trace), 0);
	trace_close(trace);
}
END_TEST

START_TEST(a_request_without_blocks_and_other_fields_are_taken)
{
	static const char text[] = "{\"timestamp\": 1.5, \"input_length\": 0, \"output_length\": 0, \"hash_ids\": [], "
				   "\"user\": \"somebody\"}";
	struct trace *trace = trace_of(text, strlen(text));
	struct trace_request request;

	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), 1);
	ck_assert_uint_eq(request.n, 0);
	ck_assert_double_eq(request.timestamp_ms, 1.5);
	trace_close(trace);
}
END_TEST

START_TEST(a_missing_file_is_named)
{
	struct trace *trace = NULL;

	ck_assert_int_eq(trace_open(path, &trace, err, sizeof(err)), SCOUT_ERR_FORMAT);
	ck_assert_ptr_null(trace);
	ck_assert_ptr_nonnull(strstr(err, path));
	ck_assert_ptr_nonnull(strstr(err, "No such file"));
}
END_TEST

START_TEST(a_folder_is_no_trace)
{
	struct trace_request request;
	struct trace *trace;

	ck_assert_int_eq(trace_open(dir, &trace, err, sizeof(err)), 0);
	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), SCOUT_ERR_FORMAT);
	ck_assert_ptr_nonnull(strstr(err, dir));
	trace_close(trace);
}
END_TEST

#define LINE(timestamp, input, output, ids)                                                                            \
	"{\"timestamp\": " timestamp ", \"input_length\": " input ", \"output_length\": " output                       \
	", \"hash_ids\": " ids "}"

static const struct {
	const char *line;
	const char *text;
} bad[] = {
	{"{\"timestamp\": 1,", "not JSON"},
	{"nonsense", "not JSON"},
	{GOOD GOOD, "not JSON"},
	{"\"text\"", "the line is a string, not an object"},
	{"[1, 2]", "the line is an array, not an object"},
	{"{\"input_length\": 1, \"output_length\": 1, \"hash_ids\": []}", "\"timestamp\" is missing"},
	{"{\"timestamp\": 1, \"output_length\": 1, \"hash_ids\": []}", "\"input_length\" is missing"},
	{"{\"timestamp\": 1, \"input_length\": 1, \"hash_ids\": []}", "\"output_length\" is missing"},
	{"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}", "\"hash_ids\" is missing"},
	{LINE("\"1\"", "1", "1", "[]"), "\"timestamp\" is a string, not a number"},
	{LINE("-1", "1", "1", "[]"), "\"timestamp\" is negative"},
	{LINE("1", "1.5", "1", "[]"), "\"input_length\" is a fraction, not an integer"},
	{LINE("1", "-1", "1", "[]"), "\"input_length\" is negative"},
	{LINE("1", "4294967297", "1", "[]"), "\"input_length\" is 4294967297, more than 4294967296"},
	{LINE("1", "1", "null", "[]"), "\"output_length\" is null, not an integer"},
	{LINE("1", "1", "1", "{}"), "\"hash_ids\" is an object, not an array"},
	{LINE("1", "1", "1", "[1, true]"), "hash_ids[1] is true, not an integer"},
	{LINE("1", "1", "1", "[-7]"), "hash_ids[0] is negative"},
	{LINE("1", "1", "1", "[99999999999999999999]"), "not JSON"},
	{LINE("1, \"timestamp\": 2", "1", "1", "[]"), "not JSON"},
};
#define N_BAD ((int)(sizeof(bad) / sizeof(bad[0])))

START_LOOP_TEST(a_bad_line_is_refused_with_its_number_and_field, 0, N_BAD)
{
	char text[1024];
	int len = snprintf(text, sizeof(text), "%s\n%s\n%s\n", GOOD, GOOD, bad[_i].line);

	ck_assert_int_lt(len, (int)sizeof(text));
	assert_refused(text, (size_t)len, 3, bad[_i].text);
}
END_TEST

START_TEST(a_nul_byte_is_refused)
{
	static const char text[] = GOOD "\n{\"timestamp\": 1\0}\n";

	assert_refused(text, sizeof(text) - 1, 2, "NUL byte");
}
END_TEST

START_TEST(a_line_that_is_too_long_is_refused)
{
	size_t len = strlen(GOOD) + 1 + TRACE_MAX_LINE + 1;
	char *text = malloc(len);

	ck_assert_ptr_nonnull(text);
	memset(text, ' ', len);
	memcpy(text, GOOD "\n", strlen(GOOD) + 1);
	assert_refused(text, len, 2, "longer than");
	free(text);
}
END_TEST

/* "[1,1,...]" with @n ids. Returns the length. */
static size_t
many_ids(char *text, size_t n)
{
	char *at =
		text + sprintf(text, "{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": [1");

	for (size_t i = 1; i < n; i++) {
		*at++ = ',';
		*at++ = '1';
	}
	at += sprintf(at, "]}\n");
	return (size_t)(at - text);
}

START_TEST(too_many_ids_are_refused_and_as_many_as_allowed_are_not)
{
	char *text = malloc(2 * TRACE_MAX_IDS + 1024);
	struct trace_request request;
	struct trace *trace;

	ck_assert_ptr_nonnull(text);
	trace = trace_of(text, many_ids(text, TRACE_MAX_IDS));
	ck_assert_int_eq(trace_next(trace, &request, err, sizeof(err)), 1);
	ck_assert_uint_eq(request.n, TRACE_MAX_IDS);
	trace_close(trace);
	assert_refused(text, many_ids(text, TRACE_MAX_IDS + 1), 1, "ids, more than");
	free(text);
}
END_TEST

START_TEST(other_ids_have_other_hashes)
{
	static uint8_t hashes[512][TRACE_HASH_BYTES];
	uint8_t again[TRACE_HASH_BYTES];
	unsigned same_words = 0;

	for (uint64_t id = 0; id < 512; id++) {
		trace_hash(id, hashes[id]);
		trace_hash(id, again);
		ck_assert_mem_eq(hashes[id], again, sizeof(again));
		for (uint64_t other = 0; other < id; other++)
			for (size_t i = 0; i < TRACE_HASH_BYTES; i += 8)
				same_words += memcmp(hashes[other] + i, hashes[id] + i, 8) == 0;
	}
	ck_assert_uint_eq(same_words, 0);
}
END_TEST
