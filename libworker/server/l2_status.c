/* SPDX-License-Identifier: Apache-2.0 */
#include "parts.h"

#include <stdio.h>

#include "tier2.h"

/* STATUS of the second tier: "l2.NAME" for all of it, "l2.N.NAME" for each adapter. Names are only ever added. Loop. */

#define URL_MAX 160 /* of a URL in a name */

static const char *const what_names[] = {"", "exists", "unpin", "load", "store", "remove"};
static const char *const result_names[] = {"ok",      "absent", "present", "corrupt",  "full",
					   "timeout", "error",  "refused", "cancelled"};

_Static_assert(sizeof(result_names) / sizeof(result_names[0]) == SCOUT__L2_RESULTS, "one name for each");

struct list {
	struct scout__writer *w;
	uint32_t n;
	unsigned adapter;
};

SCOUT_ON_LOOP static void
put(struct list *list, const char *name, uint64_t value)
{
	scout__put_status_item(list->w, name, value);
	list->n++;
}

SCOUT_ON_LOOP static void
put_of(struct list *list, const char *name, uint64_t value)
{
	char text[64];

	(void)snprintf(text, sizeof(text), "l2.%u.%s", list->adapter, name);
	put(list, text, value);
}

SCOUT_ON_LOOP static void
put_tier(const struct scout__tier2 *t, struct list *list)
{
	const struct scout__tier2_counters *c = &t->count;

	put(list, "l2.adapters", t->n);
	put(list, "l2.lookups", c->asks);
	put(list, "l2.lookups.late", c->asks_late);
	put(list, "l2.lookups.skipped", c->asks_skipped);
	put(list, "l2.lookups.refused", c->asks_refused);
	put(list, "l2.hit_chunks", c->hit_chunks);
	put(list, "l2.loads", c->loads);
	put(list, "l2.loads.queued", t->n_loads_queued);
	put(list, "l2.loads.running", t->n_loads_running);
	put(list, "l2.loads.done", c->loaded);
	put(list, "l2.loads.failed", c->loads_failed);
	put(list, "l2.loads.late", c->loads_late);
	put(list, "l2.loads.cancelled", c->loads_cancelled);
	put(list, "l2.writes", c->writes_queued);
	put(list, "l2.writes.waiting", t->n_writes_queued + t->n_writes_running);
	put(list, "l2.writes.bytes", t->write_bytes);
	put(list, "l2.writes.done", c->written);
	put(list, "l2.writes.failed", c->writes_failed);
	put(list, "l2.writes.dropped", c->writes_dropped);
	put(list, "l2.writes.outdated", c->writes_outdated);
	put(list, "l2.writes.late", c->writes_late);
	put(list, "l2.bad_keys", c->bad_keys);
}

/* What nobody has seen yet is not listed, but for the usual results. */
SCOUT_ON_LOOP static void
put_results(const struct scout__l2_counters *c, struct list *list)
{
	char name[32];

	for (unsigned what = SCOUT__L2_EXISTS; what <= SCOUT__L2_REMOVE; what++) {
		for (unsigned result = 0; result < SCOUT__L2_RESULTS; result++) {
			if (result != SCOUT__L2_OK && c->results[what][result] == 0)
				continue;
			(void)snprintf(name, sizeof(name), "%s.%s", what_names[what], result_names[result]);
			put_of(list, name, c->results[what][result]);
		}
	}
}

SCOUT_ON_LOOP static void
put_adapter(const struct scout__tier2 *t, struct list *list)
{
	const struct scout__l2_counters *c = scout__l2_counters_of(t->l2, list->adapter);
	struct scout__l2_gauges g;
	char name[URL_MAX + 32];

	(void)snprintf(name, sizeof(name), "l2.%u.url %.*s", list->adapter, URL_MAX,
		       scout__l2_name_of(t->l2, list->adapter));
	put(list, name, 1);
	scout__l2_gauges_of(t->l2, list->adapter, &g);
	put_of(list, "ready", g.ready);
	put_of(list, "reads_off", scout__l2_breaker_of(t->l2, list->adapter, SCOUT__L2_READS) != SCOUT__L2_CLOSED);
	put_of(list, "writes_off", scout__l2_breaker_of(t->l2, list->adapter, SCOUT__L2_WRITES) != SCOUT__L2_CLOSED);
	put_of(list, "reads_switched_off", c->opened[SCOUT__L2_READS]);
	put_of(list, "writes_switched_off", c->opened[SCOUT__L2_WRITES]);
	put_of(list, "late", c->late);
	put_of(list, "keys_asked", c->keys_asked);
	put_of(list, "keys_found", c->keys_found);
	put_of(list, "bytes_loaded", c->bytes_loaded);
	put_of(list, "bytes_stored", c->bytes_stored);
	if (g.objects != UINT64_MAX)
		put_of(list, "objects", g.objects);
	if (g.bytes != UINT64_MAX)
		put_of(list, "bytes", g.bytes);
	if (g.max_bytes != UINT64_MAX)
		put_of(list, "bytes_limit", g.max_bytes);
	put_of(list, "evictions", g.evictions);
	put_of(list, "pinned", g.pinned);
	put_of(list, "recovered", g.recovered);
	put_of(list, "leftovers", g.leftover);
	put_of(list, "reconnects", g.reconnects);
	put_of(list, "moved", g.moved);
	put_of(list, "asked", g.asked);
	put_of(list, "login_refused", g.login_refused);
	put_results(c, list);
}

uint32_t
scout__tier2_status(const struct scout_server *s, struct scout__writer *w)
{
	struct list list = {.w = w};

	if (!s->tier2)
		return 0;
	put_tier(s->tier2, &list);
	for (; list.adapter < s->tier2->n; list.adapter++)
		put_adapter(s->tier2, &list);
	return list.n;
}
