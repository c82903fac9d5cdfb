/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "latency.h"
#include "say.h"

/*
 * DESIGN
 *
 * STATUS is a list of names and numbers, a few hundred in most servers. It is kept as it came and searched from its start:
 * a sheet of `kvscout top` asks for some hundred names a second. Names that this release does not know do no harm, and
 * names that an older server does not tell count as 0.
 *
 * Threads: main.
 */

/* A namespace's rows begin with its peers and sessions. */
static void
find_namespaces(struct snapshot *s)
{
	for (uint32_t i = 0; i + 1 < s->n; i++) {
		const char *name = s->items[i].name;
		size_t len = name ? strlen(name) : 0; /* each item has one, which analyzers do not see */
		char *ns;

		if (len <= 3 + 6 || strncmp(name, "ns.", 3) != 0 || strcmp(name + len - 6, ".peers") != 0 ||
		    strncmp(s->items[i + 1].name, name, len - 5) != 0 ||
		    strcmp(s->items[i + 1].name + len - 5, "sessions") != 0)
			continue;
		ns = strndup(name + 3, len - 3 - 6);
		if (!ns)
			die("out of memory");
		s->ns[s->n_ns++] = ns;
	}
}

static void
copy_items(struct snapshot *s, uint32_t n, struct scout__reader items, size_t bytes)
{
	struct scout__str name;
	size_t at = 0;

	s->items = calloc(n + (size_t)1, sizeof(*s->items));
	s->ns = calloc(n + (size_t)1, sizeof(*s->ns));
	s->names = malloc(bytes + n + 1);
	if (!s->items || !s->ns || !s->names)
		die("out of memory");
	while (s->n < n && scout__get_status_item(&items, &name, &s->items[s->n].value)) {
		s->items[s->n++].name = s->names + at;
		memcpy(s->names + at, name.p, name.len);
		at += name.len;
		s->names[at++] = '\0';
	}
}

int
snapshot_take(struct operator* op, struct snapshot *ret)
{
	struct scout__reader items;
	struct scout__op reply;
	const char *field = "";
	uint32_t n;
	int rc;

	memset(ret, 0, sizeof(*ret));
	(void)scout__status_client_begin(&op->client, SCOUT_OP_STATUS);
	rc = operator_ask(op, &reply);
	if (rc)
		return rc;
	if (scout__get_status(&reply, &n, &items, &field) != SCOUT_WIRE_OK)
		return operator_bad_reply(op);
	copy_items(ret, n, items, reply.length);
	find_namespaces(ret);
	return 0;
}

void
snapshot_next(struct snapshot *now, struct snapshot *before)
{
	if (!now->items) /* no server answered: what was before is still before */
		return;
	snapshot_free(before);
	*before = *now;
	memset(now, 0, sizeof(*now));
}

void
snapshot_free(struct snapshot *s)
{
	for (uint32_t i = 0; i < s->n_ns; i++)
		free(s->ns[i]);
	free(s->ns);
	free(s->items);
	free(s->names);
	memset(s, 0, sizeof(*s));
}

void
snapshot_json(const struct snapshot *s, struct scout__text *text)
{
	for (uint32_t i = 0; i < s->n; i++) {
		scout__text_add(text, ", \"");
		scout__text_json(text, s->items[i].name, strlen(s->items[i].name));
		/* As in the log; a number so large is none in JSON. */
		scout__text_add(text,
				strcmp(s->items[i].name, "epoch") == 0 ? "\": \"%016" PRIx64 "\"" : "\": %" PRIu64,
				s->items[i].value);
	}
}

uint64_t
snapshot_value_or(const struct snapshot *s, const char *name, uint64_t other)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (strcmp(s->items[i].name, name) == 0)
			return s->items[i].value;
	return other;
}

uint64_t
snapshot_value(const struct snapshot *s, const char *name)
{
	return snapshot_value_or(s, name, 0);
}

static const char *
ns_row(char buf[512], const char *name_space, const char *name)
{
	(void)snprintf(buf, 512, "ns.%s.%s", name_space, name);
	return buf;
}

uint64_t
snapshot_ns(const struct snapshot *s, const char *name_space, const char *name)
{
	char row[512];

	return snapshot_value(s, ns_row(row, name_space, name));
}

static bool
is_same_start(const struct snapshot *s, const struct snapshot *before)
{
	return before->n > 0 && snapshot_value(s, "epoch") == snapshot_value(before, "epoch");
}

uint64_t
snapshot_since(const struct snapshot *s, const struct snapshot *before, const char *name)
{
	uint64_t now = snapshot_value(s, name), then = is_same_start(s, before) ? snapshot_value(before, name) : 0;

	return now > then ? now - then : 0;
}

uint64_t
snapshot_ns_since(const struct snapshot *s, const struct snapshot *before, const char *name_space, const char *name)
{
	char row[512];

	return snapshot_since(s, before, ns_row(row, name_space, name));
}

double
snapshot_seconds(const struct snapshot *s, const struct snapshot *before)
{
	return fmin((double)snapshot_since(s, before, "uptime_ms"), 1e18) / 1000; /* any server may have told it */
}

uint32_t
snapshot_within_us(const struct snapshot *s, const struct snapshot *before, double share)
{
	uint64_t counts[SCOUT__LATENCY_BOUNDS + 1], all = 0, sum = 0;

	for (uint32_t i = 0; i <= SCOUT__LATENCY_BOUNDS; i++) {
		char name[64] = "lookups.time_us.longer";

		if (i < SCOUT__LATENCY_BOUNDS)
			(void)snprintf(name, sizeof(name), "lookups.time_us.%u", (unsigned)scout__latency_bounds_us[i]);
		counts[i] = snapshot_since(s, before, name);
		all += counts[i];
	}
	for (uint32_t i = 0; all > 0 && i < SCOUT__LATENCY_BOUNDS; i++) {
		sum += counts[i];
		if ((double)sum >= share * (double)all)
			return scout__latency_bounds_us[i];
	}
	return all > 0 ? UINT32_MAX : 0;
}
