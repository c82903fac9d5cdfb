/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvscout/types.h>

/*
 * The option table: one row for each configuration key. It drives the string setter, range errors, --help of the tools, the
 * file reader and the table in docs/configuration.md, so none of them can drift from another.
 *
 * A new key needs, in this order:
 *   its field, behind the last one        include/kvscout/server.h, client.h or worker.h. 0 means the default
 *   its row, with default and range       libserver/core/server_config.c, libclient/client_config.c or
 *                                         libworker/worker_config.c; shared_options.h if two of them have it
 *   what one row cannot say               the function _config_accept() of the same file
 *   a value that is not its default       settings in tests/unit/config/test_config_server.c, _client.c or _worker.c
 *   the numbers of a new enum             tests/abi/numbers.c
 *   the page docs/configuration.md        `./dev test docs_pages` says how to renew it
 *   the dump of the ABI                   `./dev check abi --update`; without --update it shows what changes
 */

enum scout__option_type {
	SCOUT_OPTION_U32 = 1,
	SCOUT_OPTION_I32,
	SCOUT_OPTION_U64,
	SCOUT_OPTION_SIZE, /* u64 bytes with an optional suffix: k m g t (1000) or Ki Mi Gi Ti (1024), any case, "B" allowed */
	SCOUT_OPTION_BOOL,   /* u32: 0 1 false true no yes off on */
	SCOUT_OPTION_WORD,   /* u32: index into words */
	SCOUT_OPTION_STRING, /* const char *, copied into the owned list */
	SCOUT_OPTION_LIST    /* as a string, option_list.h: blanks separate the items; each set adds its items */
};

struct scout__option {
	const char *name;
	const char *alias; /* another spelling, or NULL */
	enum scout__option_type type;
	size_t offset;        /* offset of the field in the config structure */
	uint64_t def;         /* numbers: default; a field that is 0 means this */
	uint64_t min, max;    /* strings and lists: of the length in bytes */
	const char *def_text; /* strings: default or NULL; lists: NULL; numbers: how help shows the default, or NULL */
	const char *const *words; /* SCOUT_OPTION_WORD: NULL-terminated */
	const char *beyond; /* SCOUT_OPTION_U32: a word for UINT32_MAX, allowed in addition to min..max; or NULL */
	uint32_t max_items; /* SCOUT_OPTION_LIST: 1 to this many */
	int too_many;       /* ... the code for more, or 0: SCOUT_ERR_CONFIG_RANGE */
	/* Strings, and each item of a list: 0 if well-formed, else SCOUT_ERR_CONFIG_SYNTAX and a sentence that names @key. Or NULL. */
	int (*check_item)(const char *key, const char *item, char *err, size_t err_len);
	const char *doc;
};

/* A row for the field of the key's name, with what else it has. The table's file defines FIELD(name): the field's offset. */
#define SCOUT__OPTION(type_, key, ...)                                                                                 \
	{                                                                                                              \
		.name = #key, .type = SCOUT_OPTION_##type_, .offset = FIELD(key), __VA_ARGS__                          \
	}

struct scout__option_table {
	const struct scout__option *options;
	size_t n;
	size_t struct_size;     /* sizeof the config structure of this build */
	size_t v1_size;         /* the smallest that is accepted */
	size_t owned_offset;    /* offset of its `void *owned` */
	const char *env_prefix; /* "KVSCOUT_" or NULL */
};

/* The table of a structure with @rows; its smallest size, fixed for ever, is that of 0.1, whose last field was `owned`. */
#define SCOUT__OPTION_TABLE(type, rows, ...)                                                                           \
	{                                                                                                              \
		.options = (rows), .n = sizeof(rows) / sizeof((rows)[0]), .struct_size = sizeof(struct type),          \
		.v1_size = FIELD(owned) + sizeof(void *), .owned_offset = FIELD(owned), __VA_ARGS__                    \
	}

/* Zero @cfg (cfg_size bytes), set its leading u32 size and apply every default. */
void scout__options_init(const struct scout__option_table *table, void *cfg, uint32_t cfg_size);

/* The setter of scout_*_config_set(); codes as documented there. */
int scout__options_set(const struct scout__option_table *table, void *cfg, const char *key, const char *value,
		       char *err, size_t err_len);
int scout__options_load(const struct scout__option_table *table, void *cfg, const char *path, char *err,
			size_t err_len);
int scout__options_load_env(const struct scout__option_table *table, void *cfg, char *err, size_t err_len);

/* The key that a misspelt @key was meant to be. NULL: @key is in the table, or close to no key in it. */
const char *scout__options_closest(const struct scout__option_table *table, const char *key);

/* Row @i as a person reads it, into the caller's structure of @size bytes. SCOUT_ERR_INVALID after the last, _UNSUPPORTED (size). */
int scout__options_row(const struct scout__option_table *table, size_t i, struct scout_config_row *ret_row,
		       size_t size);

void scout__options_fini(const struct scout__option_table *table, void *cfg);

/* The public calls of scout_@kind_config on its table. */
#define SCOUT__OPTION_CALLS(kind, table)                                                                               \
	void scout_##kind##_config_init_sized(struct scout_##kind##_config *cfg, uint32_t size)                        \
	{                                                                                                              \
		scout__options_init(table, cfg, size);                                                                 \
	}                                                                                                              \
	int scout_##kind##_config_set(struct scout_##kind##_config *cfg, const char *key, const char *value,           \
				      char *err, size_t err_len)                                                       \
	{                                                                                                              \
		return scout__options_set(table, cfg, key, value, err, err_len);                                       \
	}                                                                                                              \
	int scout_##kind##_config_load(struct scout_##kind##_config *cfg, const char *path, char *err, size_t err_len) \
	{                                                                                                              \
		return scout__options_load(table, cfg, path, err, err_len);                                            \
	}                                                                                                              \
	int scout_##kind##_config_help_sized(size_t i, struct scout_config_row *ret_row, size_t size)                  \
	{                                                                                                              \
		return scout__options_row(table, i, ret_row, size);                                                    \
	}                                                                                                              \
	void scout_##kind##_config_fini(struct scout_##kind##_config *cfg)                                             \
	{                                                                                                              \
		scout__options_fini(table, cfg);                                                                       \
	}

/*
 * Take a user's structure into ours of struct_size bytes: checks the size rule (smaller than v1: error; unknown trailing bytes
 * that are not zero: SCOUT_ERR_UNSUPPORTED; missing fields: default), replaces 0 by the default, checks every range.
 * Strings are strdup'ed into dst's own owned list; scout__options_fini(table, dst) frees them.
 */
int scout__options_accept(const struct scout__option_table *table, void *dst, const void *src, char *err,
			  size_t err_len);
