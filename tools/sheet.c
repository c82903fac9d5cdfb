/* SPDX-License-Identifier: Apache-2.0 */
#include "sheet.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "log.h"
#include "paint.h"
#include "say.h"
#include "show.h"

#define STORES_MOST 16u /* no server has more; any server may tell any number */

/*
 * DESIGN
 *
 * Counters as sentences. Chunks that L2 alone had are counted apart from all hits (l2.hit_chunks), so the rest was in
 * memory. The server remembers as many evicted chunks as three times the pool has, so the sheet says what four times the
 * memory would hit; for each namespace also what a cache without end would, which the server estimates.
 *
 * Threads: main.
 */

int
sheet_lookups(const struct snapshot *s, const struct snapshot *before)
{
	double full = (double)snapshot_since(s, before, "lookups.full");
	double partial = (double)snapshot_since(s, before, "lookups.partial");
	double none = (double)snapshot_since(s, before, "lookups.none"), all = full + partial + none;
	double asked = (double)snapshot_since(s, before, "lookups.asked_chunks");
	double hit = (double)snapshot_since(s, before, "lookups.hit_chunks");
	double l2 = (double)snapshot_since(s, before, "l2.hit_chunks");
	double known = (double)snapshot_since(s, before, "lookups.known_chunks");
	char a[SHOWN], b[SHOWN], c[SHOWN], d[SHOWN], e[SHOWN];
	static const double shares[] = {0.5, 0.99, 0.999};
	static const char *const names[] = {"half", "99 %", "99.9 %"};

	if (all == 0) {
		say("lookups    none\n");
		return 1;
	}
	say("lookups    %s (%s): %s all cached, %s in part, %s not\n", show_count(a, (uint64_t)all),
	    show_rate(b, all, snapshot_seconds(s, before)), show_percent(c, full, all), show_percent(d, partial, all),
	    show_percent(e, none, all));
	say("hit ratio  %s of the chunks asked for: %s in memory, %s in L2 only\n", show_percent(a, hit, asked),
	    show_percent(b, hit > l2 ? hit - l2 : 0, asked), show_percent(c, l2, asked));
	if (known > hit)
		say("           with four times the memory: %s or more\n", show_percent(a, known, asked));
	say("latency    ");
	for (int i = 0; i < 3; i++) {
		uint32_t us = snapshot_within_us(s, before, shares[i]);

		say("%s%s %s %s", i ? ", " : "", names[i], us == UINT32_MAX ? "over" : "within",
		    show_us(a, us == UINT32_MAX ? 10000000 : us));
	}
	say("\n");
	return 3 + (known > hit);
}

const char *
sheet_ceiling(char buf[SHOWN + 1], const struct snapshot *s, const struct snapshot *before, const char *ns)
{
	double asked = (double)snapshot_ns_since(s, before, ns, "asked_chunks");
	double ceiling = (double)snapshot_ns_since(s, before, ns, "ceiling_chunks");
	uint64_t sample = snapshot_ns(s, ns, "ceiling_sample");

	buf[0] = '~';
	/* An estimate may be above all that was asked for. */
	(void)show_percent(buf + 1, ceiling < asked ? ceiling : asked, sample ? asked : 0);
	return asked > 0 && sample > 1 ? buf : buf + 1;
}

int
sheet_pool(const struct snapshot *s, const struct snapshot *before)
{
	double limit = (double)snapshot_value(s, "l1.bytes_limit"), used = (double)snapshot_value(s, "l1.bytes_used");
	double promised = (double)snapshot_value(s, "l1.bytes_promised");
	uint64_t evicted = snapshot_since(s, before, "l1.evictions");
	char a[SHOWN], b[SHOWN], c[SHOWN], d[SHOWN];

	say("pool       %s of %s used (%s), %s chunks\n", show_bytes(a, used), show_bytes(b, limit),
	    show_percent(c, used, limit), show_count(d, snapshot_value(s, "l1.chunks")));
	say("           promised %s (%s of its limit), held %s\n", show_bytes(a, promised),
	    show_percent(b, promised, (double)snapshot_value(s, "l1.bytes_promised_limit")),
	    show_bytes(c, (double)snapshot_value(s, "l1.bytes_held")));
	say("           evicted %s chunks (%s); namespaces have reserved %s\n", show_count(a, evicted),
	    show_rate(b, (double)evicted, snapshot_seconds(s, before)),
	    show_bytes(c, (double)snapshot_value(s, "l1.bytes_pool")));
	return 3;
}

static const char *
l2_row(char buf[64], uint64_t i, const char *name)
{
	(void)snprintf(buf, 64, "l2.%llu.%s", (unsigned long long)i, name);
	return buf;
}

/* "l2.0.url fs:///path" has its text in its name, as has "l2.0.words ...". */
static const char *
l2_text(const struct snapshot *s, uint64_t i, const char *name)
{
	char prefix[64];

	(void)l2_row(prefix, i, name);
	for (uint32_t at = 0; at < s->n; at++)
		if (strncmp(s->items[at].name, prefix, strlen(prefix)) == 0)
			return s->items[at].name + strlen(prefix);
	return "";
}

static const char *
l2_state(char buf[128], const struct snapshot *s, uint64_t i)
{
	char row[64], since[32], wait[SHOWN];
	time_t at = (time_t)(snapshot_value(s, l2_row(row, i, "state_since_ms")) / 1000 % (UINT64_C(1) << 36));
	bool reads = snapshot_value(s, l2_row(row, i, "breaker.reads"));
	bool writes = snapshot_value(s, l2_row(row, i, "breaker.writes"));
	uint64_t wait_ms = snapshot_value(s, l2_row(row, i, "next_try_ms"));
	struct tm tm;

	switch (snapshot_value_or(s, l2_row(row, i, "state"), snapshot_value(s, l2_row(row, i, "ready")))) {
	case 0:
		return "starting";
	case 1:
		return "works";
	case 2:
		(void)strftime(since, sizeof(since), "%F %T UTC", gmtime_r(&at, &tm));
		(void)snprintf(buf, 128, "failing since %s", since);
		return buf;
	default:
		(void)snprintf(buf, 128, "%soff, next try %s%s",
			       reads && writes ? ""
			       : reads         ? "reads are "
					       : "writes are ",
			       wait_ms ? "in " : "with the next write", wait_ms ? show_time(wait, wait_ms) : "");
		return buf;
	}
}

int
sheet_l2(const struct snapshot *s, const struct snapshot *before)
{
	double seconds = snapshot_seconds(s, before);
	int lines = 0;

	for (uint64_t i = 0; i < snapshot_value(s, "l2.adapters") && i < STORES_MOST; i++) {
		double loaded, stored;
		uint64_t limit, bytes;
		char row[64], url[SHOW_LONG], state[128], a[SHOWN], b[SHOWN], c[SHOWN], d[SHOWN];
		const char *words = l2_text(s, i, "words ");

		say("L2 %-7llu %s: %s\n", (unsigned long long)i,
		    show_name(url, sizeof(url), l2_text(s, i, "url "), show_width(32)), l2_state(state, s, i));
		if (*words) {
			say("           %s\n", show_name(url, sizeof(url), words, show_width(68)));
			lines++;
		}
		loaded = (double)snapshot_since(s, before, l2_row(row, i, "bytes_loaded"));
		stored = (double)snapshot_since(s, before, l2_row(row, i, "bytes_stored"));
		bytes = snapshot_value_or(s, l2_row(row, i, "bytes"), UINT64_MAX);
		limit = snapshot_value_or(s, l2_row(row, i, "bytes_limit"), UINT64_MAX);
		if (bytes != UINT64_MAX) {
			say("           %s%s%s, %s objects\n", show_bytes(a, (double)bytes),
			    limit != UINT64_MAX && limit ? " of " : "",
			    limit != UINT64_MAX && limit ? show_bytes(b, (double)limit) : "",
			    show_count(c, snapshot_value(s, l2_row(row, i, "objects"))));
			lines++;
		}
		say("           loaded %s (%s/s), stored %s (%s/s)\n", show_bytes(a, loaded),
		    show_bytes(b, seconds > 0 ? loaded / seconds : 0), show_bytes(c, stored),
		    show_bytes(d, seconds > 0 ? stored / seconds : 0));
		lines += 2;
	}
	return lines;
}

/* What has happened, and what to look at; docs/operations.md says more. */
void
sheet_attention_lines(const struct snapshot *s, const struct snapshot *before, unsigned width,
		      void (*add)(void *user, const char *line), void *user)
{
	uint64_t growth_errno = snapshot_value(s, "l1.growth_errno");
	const struct {
		const char *name, *about;
	} rows[] = {
		{"verify.mismatches", "compared chunks were other KV; see kvscout verify"},
		{"bugs.mismatches", "slots changed under a copy: a bug, report it with the log"},
		{"out_of_memory", "allocations failed: the machine has too little memory"},
		{"lookups.limited", "lookups were cut short: max_promised is reached"},
		{"l1.refusals", growth_errno ? "stores got no room: the pool cannot grow"
					     : "stores got no room: everything in the pool is pinned"},
		{"l1.growth_failures", "times the pool could not grow; the log says why"},
		{"peers.dropped", "connections ended: their peers did not read; see kvscout peers"},
		{"peers.died", "peers died"},
		{"connections.refused", "connections were refused: max_peers is reached"},
		{"l2.writes.dropped",
		 "writes to L2 were given up: it was off or slow, and the pool had replaced the chunks"},
		{"l2.loads.failed", "loads from L2 failed"},
		{"l2.writes.failed", "writes to L2 failed"},
	};
	char line[SHOW_LONG + SHOWN], text[SHOW_LONG], n[SHOWN];

	if (snapshot_value(s, "draining"))
		add(user, "the server is stopping");
	if (growth_errno) {
		(void)snprintf(line, sizeof(line), "the pool cannot grow beyond %s: %s",
			       show_bytes(n, (double)snapshot_value(s, "l1.bytes_extents")),
			       scout__errno_text((int)growth_errno));
		add(user, line);
	}
	for (uint64_t i = 0; i < snapshot_value(s, "l2.adapters") && i < STORES_MOST; i++) {
		const char *words = l2_text(s, i, "words ");

		if (!*words)
			continue;
		(void)snprintf(line, sizeof(line), "L2 %llu: %s", (unsigned long long)i,
			       show_name(text, sizeof(text), words, width));
		add(user, line);
	}
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t count = snapshot_since(s, before, rows[i].name);

		if (count == 0)
			continue;
		(void)snprintf(line, sizeof(line), "%s %s", show_count(n, count), rows[i].about);
		add(user, line);
	}
}

static void
say_attention(void *user, const char *line)
{
	int *lines = user;

	say("%-10s %s\n", *lines ? "" : "attention ", line);
	++*lines;
}

int
sheet_attention(const struct snapshot *s, const struct snapshot *before)
{
	int lines = 0;

	paint(PAINT_ALARM);
	sheet_attention_lines(s, before, show_width(62), say_attention, &lines);
	paint(PAINT_NONE);
	if (lines == 0)
		say_attention(&lines, "nothing");
	return lines;
}
