/* SPDX-License-Identifier: Apache-2.0 */
#include "ops_internal.h"
#include "reply.h"
#include "server_core.h"
#include "stats.h"

/*
 * DESIGN
 *
 * STATUS: what the server counts, by name (stats_items.c). Everything here is read, and only the namespaces are walked,
 * so a peer may ask every second.
 *
 * Threads: loop.
 */

/* Enough for all names and values, generously. */
#define BODY_BYTES                                                                                                     \
	(16384u + SCOUT__L2_MAX_ADAPTERS * 4096u + SCOUT__STATS_NS * 26u * 320u + SCOUT__STATS_GROUPS * 11u * 320u +   \
	 SCOUT__STATS_TENANTS * 5u * 576u)

static void
put_item(void *user, const char *name, uint64_t value)
{
	scout__put_status_item(user, name, value);
}

void
scout__serve_status(struct scout_server *s, struct scout__request *req)
{
	struct scout__writer *w;
	const char *field = "";
	size_t at, op_at;
	int status = scout__get_empty(req->op, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	w = scout__reply_begin(s, req->dest, req->op->opcode, SCOUT_WIRE_OK, req->op->corr, BODY_BYTES, &op_at);
	if (!w)
		return;
	scout__stats_take(s, &req->sender, s->stats);
	at = w->len;
	scout__put_u32(w, 0);
	scout__patch_u32(w, at, scout__stats_each(s->stats, put_item, w));
	scout__reply_end(s, req->dest, op_at);
}
