/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "reply.h"
#include "shares.h"

/*
 * DESIGN
 *
 * TENANTS: an operator asks which tenants of a namespace have most in the pool. STATUS and /metrics name only tenants that
 * have a share of their own, because the others may be very many and each would be a time series for ever. Here the
 * largest are picked while the spaces of the namespace are walked once: about 0.2 ms for 65536 of them.
 *
 * Threads: loop.
 */

struct largest {
	uint32_t account; /* of the last new tenant: accounts have the order of the first spaces of tenants */
	struct one {
		uint64_t bytes;
		uint32_t space;     /* in ns.spaces */
	} of[SCOUT_MAX_LISTED + 1]; /* a heap with the smallest at 1, so that the order of offers costs nothing */
};

SCOUT_ON_LOOP static void
offer(struct largest *l, const struct scout__ns *ns, uint32_t space)
{
	uint32_t account = ns->tenants->spaces[space].account, at = 1;
	struct one new = {scout__account_bytes(&ns->l1, &ns->l1.accounts[account]), space};

	/* A tenant of several groups has a space for each, and one account. */
	if (account <= l->account || new.bytes <= l->of[1].bytes)
		return;
	l->account = account;
	for (uint32_t next; (next = 2 * at) <= SCOUT_MAX_LISTED; at = next) {
		next += next < SCOUT_MAX_LISTED && l->of[next + 1].bytes < l->of[next].bytes;
		if (l->of[next].bytes >= new.bytes)
			break;
		l->of[at] = l->of[next];
	}
	l->of[at] = new;
}

static int
larger_first(const void *a, const void *b)
{
	const struct one *x = a, *y = b;

	return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

void
scout__serve_tenants(struct scout_server *s, struct scout__request *req)
{
	struct largest largest = {.account = 0};
	const struct scout__ns *ns;
	struct scout__str name;
	struct scout__writer *w;
	const char *field = "";
	uint32_t n = 0;
	size_t op_at;
	int status = scout__get_tenants(req->op, &name, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	ns = scout__require_namespace(s, req, &name);
	if (!ns)
		return;
	for (uint32_t i = 0; i < ns->tenants->n_spaces; i++)
		offer(&largest, ns, i);
	qsort(largest.of + 1, SCOUT_MAX_LISTED, sizeof(largest.of[0]), larger_first);
	while (n < SCOUT_MAX_LISTED && largest.of[n + 1].bytes)
		n++;
	w = scout__reply_begin(s, req->dest, req->op->opcode, SCOUT_WIRE_OK, req->op->corr,
			       8 + n * (SCOUT__TENANT_ITEM_BYTES + SCOUT_MAX_NAME), &op_at);
	if (!w)
		return;
	scout__put_list_head(w, scout__ns_count_tenants(ns), n);
	for (uint32_t i = 1; i <= n; i++) {
		const struct scout__space *space = &ns->tenants->spaces[largest.of[i].space];

		scout__put_tenant_item(
			w, &(struct scout__tenant_item){largest.of[i].bytes, {space->tenant, space->tenant_len}});
	}
	scout__reply_end(s, req->dest, op_at);
}
