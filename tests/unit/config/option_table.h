/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "option.h"
#include "config_settings.h"

/* An option table on a structure of the tests' own, with one field of each type. */
struct config {
	uint32_t size;
	uint32_t flags;
	const char *path;
	const char *name;
	uint32_t count;
	int32_t device;
	uint64_t version;
	uint64_t bytes;
	uint64_t any_bytes;
	uint32_t is_on;
	uint32_t mode;
	int32_t offset;
	uint32_t any_count;
	void *owned;
	uint32_t late; /* came after the first version */
	uint32_t padding;
	const char *late_name;
	const char *late_list;
};

#define V1_SIZE (offsetof(struct config, owned) + sizeof(void *))

extern const char *const modes[];

#define ROW(key, kind, field) .name = key, .type = kind, .offset = offsetof(struct config, field)

extern const struct scout__option options[];
extern const struct scout__option_table table;
extern struct config cfg;
extern struct config taken;
extern char err[256];
void setup(void);
void teardown(void);

/* Each field of @config has its default. */
void check_defaults(const struct config *config);
int set(const char *key, const char *value);
