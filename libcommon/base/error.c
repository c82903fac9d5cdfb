/* SPDX-License-Identifier: Apache-2.0 */
#include <kvscout/error.h>

#include <stddef.h>

#include <kvscout/version.h>

/*
 * DESIGN
 *
 * Purpose: what an error code means, as text and as properties. All comes from the one table in error.h, so names, texts,
 * scopes and numbers cannot drift apart.
 *
 * Threads: any, also in a signal handler: only constants are read.
 */

struct error_row {
	const char *name;
	const char *text;
	int code;
	int scope;
	bool is_retriable;
};

static const struct error_row rows[] = {
#define SCOUT_X(name, number, scope, retriable, text)                                                                  \
	{"SCOUT_ERR_" #name, text, number, SCOUT_SCOPE_##scope, retriable},
	SCOUT_ERROR_TABLE(SCOUT_X)
#undef SCOUT_X
};

static const struct error_row *
find(int code)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (rows[i].code == code)
			return &rows[i];
	}
	return NULL;
}

const char *
scout_version(void)
{
	return SCOUT_VERSION_STRING;
}

const char *
scout_err_name(int code)
{
	const struct error_row *row = find(code);

	if (row)
		return row->name;
	if (code == 0)
		return "SCOUT_OK";
	if (code == SCOUT_NEED_QUERY)
		return "SCOUT_NEED_QUERY";
	return code == SCOUT_NOT_YET ? "SCOUT_NOT_YET" : "SCOUT_ERR_?";
}

const char *
scout_strerror(int code)
{
	const struct error_row *row = find(code);

	if (row)
		return row->text;
	if (code == 0)
		return "success";
	if (code == SCOUT_NEED_QUERY)
		return "the id alone is not enough; ask with the hashes";
	return code == SCOUT_NOT_YET ? "the answer is not there yet" : "unknown error code";
}

int
scout_err_scope(int code)
{
	const struct error_row *row = find(code);

	return row ? row->scope : 0;
}

bool
scout_err_is_retriable(int code)
{
	const struct error_row *row = find(code);

	return row && row->is_retriable;
}
