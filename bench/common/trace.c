/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: a trace comes from another machine, so nothing in it is trusted: line and array lengths are
 * bounded before they cost memory, every field's type and range is checked, and each refusal names file, line and
 * field. Lines are read here and not by jansson's file reader, because that one would not say in which line of a
 * JSONL file an error lies.
 */
#include "trace.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <kvscout/error.h>

#include "log.h"
#include "mix.h"

struct trace {
	FILE *file;
	char *path;
	char *line;
	size_t cap;
	uint64_t line_number;
	uint64_t bytes_read;
	uint64_t bytes_total; /* 0: unknown */
	uint64_t *ids;
	size_t ids_cap;
};

static int
file_error(const char *path, const char *what, int number, char *err, size_t err_len)
{
	char text[128];

	/* The GNU strerror_r(): returns the text, in our buffer or in a constant. */
	return scout__fail(err, err_len, SCOUT_ERR_FORMAT, "trace file %s cannot be %s: %s", path, what,
			   strerror_r(number, text, sizeof(text)));
}

int
trace_open(const char *path, struct trace **ret_trace, char *err, size_t err_len)
{
	struct trace *trace = calloc(1, sizeof(*trace));
	struct stat st;
	int rc = SCOUT_ERR_NOMEM;

	if (!trace)
		return scout__fail(err, err_len, rc, "%s", scout_strerror(rc));
	trace->path = strdup(path);
	if (!trace->path) {
		scout__fail(err, err_len, rc, "%s", scout_strerror(rc));
		goto err_free;
	}
	trace->file = fopen(path, "re");
	if (!trace->file) {
		rc = file_error(path, "opened", errno, err, err_len);
		goto err_free_path;
	}
	if (fstat(fileno(trace->file), &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0)
		trace->bytes_total = (uint64_t)st.st_size;
	*ret_trace = trace;
	return 0;

err_free_path:
	free(trace->path);
err_free:
	free(trace);
	return rc;
}

void
trace_close(struct trace *trace)
{
	if (!trace)
		return;
	(void)fclose(trace->file); /* was only read */
	free(trace->path);
	free(trace->line);
	free(trace->ids);
	free(trace);
}

double
trace_progress(const struct trace *trace)
{
	if (trace->bytes_total == 0)
		return 0;
	if (trace->bytes_read >= trace->bytes_total)
		return 1;
	return (double)trace->bytes_read / (double)trace->bytes_total;
}

__attribute__((format(printf, 4, 5))) static int
line_error(const struct trace *trace, char *err, size_t err_len, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a text that is cut is still a text */
	va_end(ap);
	return scout__fail(err, err_len, SCOUT_ERR_FORMAT, "%s:%" PRIu64 ": %s", trace->path, trace->line_number, text);
}

/* Room for one more byte of the line. */
static int
line_grow(struct trace *trace, size_t used)
{
	size_t cap = trace->cap ? trace->cap * 2 : 4096;
	char *line;

	if (used < trace->cap)
		return 0;
	line = realloc(trace->line, cap);
	if (!line)
		return SCOUT_ERR_NOMEM;
	trace->line = line;
	trace->cap = cap;
	return 0;
}

/* One line without its newline. Returns 1, 0 at the end of the file, or an error. */
static int
read_line(struct trace *trace, size_t *ret_len, char *err, size_t err_len)
{
	size_t len = 0;
	int c;

	trace->line_number++;
	while ((c = getc(trace->file)) != EOF && c != '\n') {
		if (len == TRACE_MAX_LINE)
			return line_error(trace, err, err_len, "the line is longer than %zu bytes", TRACE_MAX_LINE);
		if (line_grow(trace, len) < 0)
			return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
		trace->line[len++] = (char)c;
	}
	if (c == EOF && ferror(trace->file))
		return file_error(trace->path, "read", errno, err, err_len);
	trace->bytes_read += len + (c == '\n');
	if (c == EOF && len == 0)
		return 0;
	*ret_len = len;
	return 1;
}

static bool
is_blank(const char *line, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isspace((unsigned char)line[i]))
			return false;
	return true;
}

static const char *
type_name(const json_t *value)
{
	static const char *const names[] = {
		[JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array",  [JSON_STRING] = "a string",
		[JSON_INTEGER] = "an integer", [JSON_REAL] = "a fraction", [JSON_TRUE] = "true",
		[JSON_FALSE] = "false",        [JSON_NULL] = "null",
	};

	return names[json_typeof(value)];
}

static int
get_tokens(const struct trace *trace, const json_t *object, const char *name, uint64_t *ret_value, char *err,
	   size_t err_len)
{
	const json_t *field = json_object_get(object, name);
	json_int_t value;

	if (!field)
		return line_error(trace, err, err_len, "field \"%s\" is missing", name);
	if (!json_is_integer(field))
		return line_error(trace, err, err_len, "field \"%s\" is %s, not an integer", name, type_name(field));
	value = json_integer_value(field);
	if (value < 0)
		return line_error(trace, err, err_len, "field \"%s\" is negative", name);
	if ((uint64_t)value > TRACE_MAX_TOKENS)
		return line_error(trace, err, err_len, "field \"%s\" is %lld, more than %llu", name, (long long)value,
				  (unsigned long long)TRACE_MAX_TOKENS);
	*ret_value = (uint64_t)value;
	return 0;
}

static int
get_timestamp(const struct trace *trace, const json_t *object, double *ret_ms, char *err, size_t err_len)
{
	const json_t *field = json_object_get(object, "timestamp");

	if (!field)
		return line_error(trace, err, err_len, "field \"timestamp\" is missing");
	if (!json_is_number(field))
		return line_error(trace, err, err_len, "field \"timestamp\" is %s, not a number", type_name(field));
	if (json_number_value(field) < 0)
		return line_error(trace, err, err_len, "field \"timestamp\" is negative");
	*ret_ms = json_number_value(field);
	return 0;
}

static int
ids_reserve(struct trace *trace, size_t n)
{
	uint64_t *ids;

	if (n <= trace->ids_cap)
		return 0;
	ids = realloc(trace->ids, n * sizeof(*ids)); /* n <= TRACE_MAX_IDS */
	if (!ids)
		return SCOUT_ERR_NOMEM;
	trace->ids = ids;
	trace->ids_cap = n;
	return 0;
}

static int
get_ids(struct trace *trace, const json_t *object, struct trace_request *request, char *err, size_t err_len)
{
	const json_t *field = json_object_get(object, "hash_ids");
	const json_t *item;
	size_t n, i;

	if (!field)
		return line_error(trace, err, err_len, "field \"hash_ids\" is missing");
	if (!json_is_array(field))
		return line_error(trace, err, err_len, "field \"hash_ids\" is %s, not an array", type_name(field));
	n = json_array_size(field);
	if (n > TRACE_MAX_IDS)
		return line_error(trace, err, err_len, "field \"hash_ids\" has %zu ids, more than %u", n,
				  TRACE_MAX_IDS);
	if (ids_reserve(trace, n) < 0)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s", scout_strerror(SCOUT_ERR_NOMEM));
	for (i = 0; i < n; i++) {
		item = json_array_get(field, i);
		if (!json_is_integer(item))
			return line_error(trace, err, err_len, "hash_ids[%zu] is %s, not an integer", i,
					  type_name(item));
		if (json_integer_value(item) < 0)
			return line_error(trace, err, err_len, "hash_ids[%zu] is negative", i);
		trace->ids[i] = (uint64_t)json_integer_value(item);
	}
	request->n = n;
	request->ids = trace->ids;
	return 0;
}

static int
get_request(struct trace *trace, const json_t *object, struct trace_request *ret_request, char *err, size_t err_len)
{
	struct trace_request request = {.line = trace->line_number};
	int rc;

	if (!json_is_object(object))
		return line_error(trace, err, err_len, "the line is %s, not an object", type_name(object));
	rc = get_timestamp(trace, object, &request.timestamp_ms, err, err_len);
	if (rc == 0)
		rc = get_tokens(trace, object, "input_length", &request.input_tokens, err, err_len);
	if (rc == 0)
		rc = get_tokens(trace, object, "output_length", &request.output_tokens, err, err_len);
	if (rc == 0)
		rc = get_ids(trace, object, &request, err, err_len);
	if (rc == 0)
		*ret_request = request;
	return rc;
}

int
trace_next(struct trace *trace, struct trace_request *ret_request, char *err, size_t err_len)
{
	json_error_t error;
	json_t *object;
	size_t len = 0;
	int rc;

	do {
		rc = read_line(trace, &len, err, err_len);
		if (rc <= 0)
			return rc;
	} while (is_blank(trace->line, len));
	if (len > 0 && memchr(trace->line, '\0', len)) /* jansson would take it for the end of the text */
		return line_error(trace, err, err_len, "the line has a NUL byte in it");
	object = json_loadb(trace->line, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
	if (!object)
		return line_error(trace, err, err_len, "not JSON at byte %d: %s", error.position, error.text);
	rc = get_request(trace, object, ret_request, err, err_len);
	json_decref(object);
	return rc < 0 ? rc : 1;
}

void
trace_hash(uint64_t id, uint8_t ret_hash[TRACE_HASH_BYTES])
{
	uint64_t state = id; /* the first word is a bijection of the id, so no two ids share a hash */

	for (size_t i = 0; i < TRACE_HASH_BYTES; i += sizeof(uint64_t)) {
		uint64_t word = mix_next(&state);

		memcpy(ret_hash + i, &word, sizeof(word));
	}
}
