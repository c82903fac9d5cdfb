/* SPDX-License-Identifier: Apache-2.0 */
#include "option_table.h"

#include <stdio.h>

#include <kvscout/error.h>

/* A question mark is never allowed. */
static int
check_item(const char *key, const char *item, char *message, size_t len)
{
	if (!strchr(item, '?'))
		return 0;
	(void)snprintf(message, len, "%s: \"%s\" has a question mark", key, item);
	return SCOUT_ERR_CONFIG_SYNTAX;
}

const char *const modes[] = {"async", "polled", "sync", NULL};

const struct scout__option options[] = {
	{ROW("path", SCOUT_OPTION_STRING, path), .min = 1, .max = 20, .check_item = check_item, .doc = "A path"},
	{ROW("name", SCOUT_OPTION_STRING, name), .max = 8, .def_text = "default", .doc = "A name"},
	{ROW("count", SCOUT_OPTION_U32, count), .alias = "counts", .def = 256, .min = 1, .max = 1000, .doc = "A count"},
	{ROW("device", SCOUT_OPTION_I32, device), .max = 15, .doc = "A device"},
	{ROW("version", SCOUT_OPTION_U64, version), .max = UINT64_MAX, .doc = "A version"},
	{ROW("bytes", SCOUT_OPTION_SIZE, bytes), .def = 8 << 20, .min = 65536, .max = UINT64_C(4) << 30,
	 .doc = "A size"},
	{ROW("any_bytes", SCOUT_OPTION_SIZE, any_bytes), .max = UINT64_MAX, .def_text = "all", .doc = "Any size"},
	{ROW("is_on", SCOUT_OPTION_BOOL, is_on), .max = 1, .doc = "A flag"},
	{ROW("mode", SCOUT_OPTION_WORD, mode), .max = 2, .words = modes, .doc = "A word"},
	{ROW("offset", SCOUT_OPTION_I32, offset), .min = (uint64_t)INT64_C(-2147483648), .max = INT32_MAX,
	 .doc = "A signed number"},
	{ROW("any_count", SCOUT_OPTION_U32, any_count), .max = UINT32_MAX, .doc = "Any count"},
	{ROW("late", SCOUT_OPTION_U32, late), .def = 7, .min = 1, .max = 9, .doc = "A later field"},
	{ROW("late_name", SCOUT_OPTION_STRING, late_name), .min = 1, .max = 9, .def_text = "young",
	 .doc = "A later string"},
	{ROW("late_list", SCOUT_OPTION_LIST, late_list), .min = 2, .max = 12, .max_items = 3, .check_item = check_item,
	 .doc = "A later list"},
};

const struct scout__option_table table = {
	.options = options,
	.n = sizeof(options) / sizeof(options[0]),
	.struct_size = sizeof(struct config),
	.v1_size = V1_SIZE,
	.owned_offset = offsetof(struct config, owned),
	.env_prefix = "KVSCOUT_TEST_",
};

struct config cfg;

struct config taken;

char err[256];

void
setup(void)
{
	scout__options_init(&table, &cfg, sizeof(cfg));
	memset(&taken, 0xa5, sizeof(taken));
	memset(err, 0, sizeof(err));
}

void
teardown(void)
{
	scout__options_fini(&table, &cfg);
}

void
check_defaults(const struct config *config)
{
	static const struct setting defaults[] = {
		{"size", NULL, NUMBER(struct config, size, sizeof(struct config))},
		{"flags", NULL, NUMBER(struct config, flags, 0)},
		{"path", NULL, TEXT(struct config, path, NULL)},
		{"name", NULL, TEXT(struct config, name, "default")},
		{"count", NULL, NUMBER(struct config, count, 256)},
		{"device", NULL, NUMBER(struct config, device, 0)},
		{"version", NULL, NUMBER(struct config, version, 0)},
		{"bytes", NULL, NUMBER(struct config, bytes, 8 << 20)},
		{"mode", NULL, NUMBER(struct config, mode, 0)},
		{"owned", NULL, NUMBER(struct config, owned, 0)},
		{"late", NULL, NUMBER(struct config, late, 7)},
		{"late_name", NULL, TEXT(struct config, late_name, "young")},
	};

	check_settings(config, defaults, N_OF(defaults));
}

int
set(const char *key, const char *value)
{
	return scout__options_set(&table, &cfg, key, value, err, sizeof(err));
}
