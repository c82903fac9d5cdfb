/* SPDX-License-Identifier: Apache-2.0 */
#include "option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "log.h"
#include "option_list.h"
#include "option_parse.h"
#include "sized.h"

/*
 * DESIGN
 *
 * Purpose: everything that configuration structures have in common, driven by one table for each.
 *
 * A user's structure starts with the size that its program was compiled with, which may be smaller or larger than
 * ours. A field that does not lie entirely within that size does not exist for that user, and nothing outside the
 * structure is ever touched.
 *
 * Invariants: a string that a setter stored stays in the structure's owned list until _fini(), even when it was
 * replaced: the user may have kept the pointer. A field that is 0 means its default, so a table may allow 0 only if
 * the default is 0, too (a test checks every table for this). Nothing is written to a structure when a value is
 * refused.
 *
 * Threads: any; a structure belongs to the thread that fills it.
 */

#define MAX_KEY_BYTES 64u /* length of keys that are compared for a suggestion */

struct owned_text {
	struct owned_text *next;
	char text[];
};

static uint32_t
size_of(const void *cfg)
{
	uint32_t size;

	memcpy(&size, cfg, sizeof(size));
	return size;
}

static size_t
width_of(const struct scout__option *option)
{
	switch (option->type) {
	case SCOUT_OPTION_U64:
	case SCOUT_OPTION_SIZE:
		return sizeof(uint64_t);
	case SCOUT_OPTION_STRING:
	case SCOUT_OPTION_LIST:
		return sizeof(const char *);
	case SCOUT_OPTION_U32:
	case SCOUT_OPTION_I32:
	case SCOUT_OPTION_BOOL:
	case SCOUT_OPTION_WORD:
		break;
	}
	return sizeof(uint32_t);
}

static bool
is_within(const struct scout__option *option, size_t size)
{
	return option->offset + width_of(option) <= size;
}

static bool
is_text(const struct scout__option *option)
{
	return option->type == SCOUT_OPTION_STRING || option->type == SCOUT_OPTION_LIST;
}

static void
write_number(const struct scout__option *option, void *cfg, uint64_t number)
{
	char *field = (char *)cfg + option->offset;
	uint32_t narrow = (uint32_t)number;

	if (width_of(option) == sizeof(number))
		memcpy(field, &number, sizeof(number));
	else
		memcpy(field, &narrow, sizeof(narrow));
}

static uint64_t
read_number(const struct scout__option *option, const void *cfg)
{
	const char *field = (const char *)cfg + option->offset;
	uint64_t number;
	uint32_t narrow;

	if (width_of(option) == sizeof(number)) {
		memcpy(&number, field, sizeof(number));
		return number;
	}
	memcpy(&narrow, field, sizeof(narrow));
	return option->type == SCOUT_OPTION_I32 ? (uint64_t)(int64_t)(int32_t)narrow : narrow;
}

static void
write_string(const struct scout__option *option, void *cfg, const char *text)
{
	memcpy((char *)cfg + option->offset, &text, sizeof(text));
}

static const char *
read_string(const struct scout__option *option, const void *cfg)
{
	const char *text;

	memcpy(&text, (const char *)cfg + option->offset, sizeof(text));
	return text;
}

static void
write_default(const struct scout__option *option, void *cfg)
{
	if (is_text(option))
		write_string(option, cfg, option->def_text);
	else
		write_number(option, cfg, option->def);
}

static struct owned_text *
read_owned(const struct scout__option_table *table, const void *cfg)
{
	struct owned_text *owned;

	memcpy(&owned, (const char *)cfg + table->owned_offset, sizeof(void *));
	return owned;
}

static void
write_owned(const struct scout__option_table *table, void *cfg, struct owned_text *owned)
{
	memcpy((char *)cfg + table->owned_offset, &owned, sizeof(void *));
}

/* A copy of @text that lives until scout__options_fini(). */
static int
store_string(const struct scout__option_table *table, const struct scout__option *option, void *cfg, const char *text)
{
	size_t room = strlen(text) + 1;
	struct owned_text *owned = malloc(sizeof(*owned) + room);

	if (!owned)
		return SCOUT_ERR_NOMEM;
	memcpy(owned->text, text, room);
	owned->next = read_owned(table, cfg);
	write_owned(table, cfg, owned);
	write_string(option, cfg, owned->text);
	return 0;
}

void
scout__options_init(const struct scout__option_table *table, void *cfg, uint32_t cfg_size)
{
	if (!cfg || cfg_size < sizeof(cfg_size))
		return;
	memset(cfg, 0, cfg_size);
	memcpy(cfg, &cfg_size, sizeof(cfg_size));
	for (size_t i = 0; i < table->n; i++) {
		if (is_within(&table->options[i], cfg_size))
			write_default(&table->options[i], cfg);
	}
}

/*
 * Levenshtein distance of two short words, by one row of the usual matrix. Longer words count as far apart: no
 * misspelt key is so long.
 */
static unsigned
distance(const char *a, const char *b)
{
	size_t b_len = strnlen(b, MAX_KEY_BYTES + 1);
	unsigned row[MAX_KEY_BYTES + 1];

	if (b_len > MAX_KEY_BYTES || strnlen(a, MAX_KEY_BYTES + 1) > MAX_KEY_BYTES)
		return MAX_KEY_BYTES;
	for (unsigned j = 0; j <= b_len; j++)
		row[j] = j;
	for (unsigned i = 1; a[i - 1]; i++) {
		unsigned diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_len; j++) {
			unsigned best = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[b_len];
}

const char *
scout__options_closest(const struct scout__option_table *table, const char *key)
{
	const char *closest = NULL;
	unsigned closest_distance = 3;

	for (size_t i = 0; i < table->n; i++) {
		const struct scout__option *option = &table->options[i];
		unsigned d = distance(option->name, key);

		if (d == 0 || (option->alias && strcmp(option->alias, key) == 0))
			return NULL;
		if (d == 3 && strncmp(option->name, key, strlen(key)) == 0)
			d = 2; /* the key lacks its unit: _ms, _us */
		if (d < closest_distance) {
			closest = option->name;
			closest_distance = d;
		}
	}
	return closest;
}

static int
fail_unknown(const struct scout__option_table *table, const char *key, char *err, size_t err_len)
{
	const char *closest = scout__options_closest(table, key);
	char shown[SCOUT__OPTION_TEXT];

	scout__option_quote(shown, key);
	if (closest)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_KEY,
				   "\"%s\" is no configuration key; did you mean %s?", shown, closest);
	return scout__fail(err, err_len, SCOUT_ERR_CONFIG_KEY,
			   "\"%s\" is no configuration key; docs/configuration.md lists them", shown);
}

static const struct scout__option *
find(const struct scout__option_table *table, const char *key)
{
	for (size_t i = 0; i < table->n; i++) {
		const struct scout__option *option = &table->options[i];

		if (strcmp(option->name, key) == 0 || (option->alias && strcmp(option->alias, key) == 0))
			return option;
	}
	return NULL;
}

/* An item of a list may hold a password, and a message may end in a log: so no message shows a whole list. */
static int
check_text(const struct scout__option *option, const char *value, char *err, size_t err_len)
{
	bool is_list = option->type == SCOUT_OPTION_LIST;
	int rc = scout__option_check(option, strlen(value), is_list ? "..." : value, err, err_len);

	if (rc)
		return rc;
	if (is_list)
		return scout__list_check(option, value, err, err_len);
	return option->check_item ? option->check_item(option->name, value, err, err_len) : 0;
}

static int
set_text(const struct scout__option_table *table, const struct scout__option *option, void *cfg, const char *value,
	 char *err, size_t err_len)
{
	int rc = check_text(option, value, err, err_len);

	if (rc)
		return rc;
	rc = store_string(table, option, cfg, value);
	return rc ? scout__fail(err, err_len, rc, "%s: out of memory", option->name) : 0;
}

/* Append to the items that the field holds, including items that the user assigned to it. */
static int
add_to_list(const struct scout__option_table *table, const struct scout__option *option, void *cfg, const char *value,
	    char *err, size_t err_len)
{
	/* A value without an item is an error, not an addition of nothing. */
	int rc = scout__list_check(option, value, err, err_len);
	char *joined;

	if (rc)
		return rc;
	joined = scout__list_join(read_string(option, cfg), value);
	if (!joined)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s: out of memory", option->name);
	rc = set_text(table, option, cfg, joined, err, err_len);
	free(joined);
	return rc;
}

int
scout__options_set(const struct scout__option_table *table, void *cfg, const char *key, const char *value, char *err,
		   size_t err_len)
{
	const struct scout__option *option;
	uint64_t number;
	int rc;

	if (!cfg || !key || !value)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "the configuration, the key or the value is NULL");
	if (size_of(cfg) < table->v1_size)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID,
				   "size = %u: must be %zu or more; was it initialised?", (unsigned)size_of(cfg),
				   table->v1_size);
	option = find(table, key);
	if (!option || !is_within(option, size_of(cfg)))
		return fail_unknown(table, key, err, err_len);
	if (option->type == SCOUT_OPTION_STRING)
		return set_text(table, option, cfg, value, err, err_len);
	if (option->type == SCOUT_OPTION_LIST)
		return add_to_list(table, option, cfg, value, err, err_len);
	rc = scout__option_parse(option, value, &number, err, err_len);
	if (rc)
		return rc;
	write_number(option, cfg, number);
	return 0;
}

/* Whether @text is in the owned list: only addresses are compared, because @text may point anywhere. */
static bool
is_owned(const struct owned_text *owned, const char *text)
{
	while (owned && owned->text != text)
		owned = owned->next;
	return owned != NULL;
}

void
scout__options_fini(const struct scout__option_table *table, void *cfg)
{
	struct owned_text *owned;

	if (!cfg || size_of(cfg) < table->v1_size)
		return;
	owned = read_owned(table, cfg);
	for (size_t i = 0; i < table->n; i++) {
		const struct scout__option *option = &table->options[i];

		if (is_text(option) && is_within(option, size_of(cfg)) && is_owned(owned, read_string(option, cfg)))
			write_default(option, cfg);
	}
	write_owned(table, cfg, NULL);
	while (owned) {
		struct owned_text *next = owned->next;

		free(owned);
		owned = next;
	}
}

static int
check_size(const struct scout__option_table *table, const void *src, char *err, size_t err_len)
{
	uint32_t size = size_of(src);

	if (size < table->v1_size || size > SCOUT__SIZED_MAX)
		return scout__fail(err, err_len, SCOUT_ERR_UNSUPPORTED,
				   "size = %u: must be %zu..%u; was it initialised?", (unsigned)size, table->v1_size,
				   SCOUT__SIZED_MAX);
	if (scout__sized_has_unknown(src, size, table->struct_size))
		return scout__fail(
			err, err_len, SCOUT_ERR_UNSUPPORTED,
			"size = %u: a field beyond byte %zu is set, which this version of the library does not know",
			(unsigned)size, table->struct_size);
	return 0;
}

static int
accept_string(const struct scout__option_table *table, const struct scout__option *option, void *dst, char *err,
	      size_t err_len)
{
	const char *text = read_string(option, dst);

	/* A default is static and is not copied. */
	if (!text) {
		write_default(option, dst);
		return 0;
	}
	return set_text(table, option, dst, text, err, err_len);
}

static int
accept_number(const struct scout__option *option, void *dst, char *err, size_t err_len)
{
	uint64_t number = read_number(option, dst);
	char shown[SCOUT__OPTION_TEXT];

	if (number == 0) {
		write_default(option, dst);
		return 0;
	}
	scout__option_number(option, number, shown);
	return scout__option_check(option, number, shown, err, err_len);
}

static int
accept_option(const struct scout__option_table *table, const struct scout__option *option, void *dst, size_t src_size,
	      char *err, size_t err_len)
{
	/* A field that fits only in part into the user's structure is padding there. */
	if (!is_within(option, src_size))
		memset((char *)dst + option->offset, 0, width_of(option));
	if (is_text(option))
		return accept_string(table, option, dst, err, err_len);
	return accept_number(option, dst, err, err_len);
}

int
scout__options_accept(const struct scout__option_table *table, void *dst, const void *src, char *err, size_t err_len)
{
	uint32_t size = (uint32_t)table->struct_size;
	size_t src_size;
	int rc;

	if (!src)
		return scout__fail(err, err_len, SCOUT_ERR_INVALID, "the configuration is NULL");
	rc = check_size(table, src, err, err_len);
	if (rc)
		return rc;
	src_size = size_of(src);
	memset(dst, 0, table->struct_size);
	memcpy(dst, src, src_size < table->struct_size ? src_size : table->struct_size);
	memcpy(dst, &size, sizeof(size));
	write_owned(table, dst, NULL);
	for (size_t i = 0; i < table->n; i++) {
		rc = accept_option(table, &table->options[i], dst, src_size, err, err_len);
		if (rc)
			goto err_fini;
	}
	return 0;

err_fini:
	scout__options_fini(table, dst);
	memset(dst, 0, table->struct_size);
	return rc;
}
