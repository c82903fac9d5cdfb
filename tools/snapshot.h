/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "operator.h"
#include "text.h"

/* What STATUS said at one time, by name. Main thread. */

struct snapshot_item {
	const char *name; /* in snapshot.names */
	uint64_t value;
};

struct snapshot {
	struct snapshot_item *items; /* as the server lists them */
	uint32_t n;
	char *names;
	char **ns; /* names of the namespaces that are listed one by one */
	uint32_t n_ns;
};

/* Ask. Returns 0, or an exit status after saying why: then *ret is empty. */
int snapshot_take(struct operator* op, struct snapshot *ret);
/* @now becomes @before, unless it is empty. */
void snapshot_next(struct snapshot *now, struct snapshot *before);
void snapshot_free(struct snapshot *s);
/* Names and numbers as members of a JSON object, a comma before each. */
void snapshot_json(const struct snapshot *s, struct scout__text *text);

/* The value of that name; 0 if the server does not tell one. */
uint64_t snapshot_value(const struct snapshot *s, const char *name);
/* Likewise, or @other. */
uint64_t snapshot_value_or(const struct snapshot *s, const char *name, uint64_t other);
/* "ns.NAMESPACE.@name" */
uint64_t snapshot_ns(const struct snapshot *s, const char *name_space, const char *name);

/* How much a counter has grown since @before; all of it if @before is empty, or of another start of the server. */
uint64_t snapshot_since(const struct snapshot *s, const struct snapshot *before, const char *name);
uint64_t snapshot_ns_since(const struct snapshot *s, const struct snapshot *before, const char *name_space,
			   const char *name);
/* Seconds that it covers. */
double snapshot_seconds(const struct snapshot *s, const struct snapshot *before);
/* Within how many microseconds @share of these lookups were answered; 0: there were none; UINT32_MAX: more than 10 s. */
uint32_t snapshot_within_us(const struct snapshot *s, const struct snapshot *before, double share);
