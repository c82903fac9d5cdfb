/* SPDX-License-Identifier: Apache-2.0 */
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
	uint32_t n;
	struct {
		uint32_t account;
		uint32_t space; /* in ns.spaces */
		uint64_t bytes;
	} of[SCOUT_MAX_LISTED]; /* the largest first */
};

/* A tenant of several groups has a space for each, and one account. */
SCOUT_ON_LOOP static void
offer(struct largest *l, const struct scout__ns *ns, uint32_t space)
{
	uint32_t account = ns->spaces[space].account, at = l->n;
	uint64_t bytes = ns->l1.accounts[account].bytes;

	if (bytes == 0 || (l->n == SCOUT_MAX_LISTED && bytes <= l->of[l->n - 1].bytes))
		return;
	for (uint32_t i = 0; ns->groups.n > 1 && i < l->n; i++)
		if (l->of[i].account == account)
			return;
	if (l->n < SCOUT_MAX_LISTED)
		l->n++;
	else
		at--;
	for (; at > 0 && l->of[at - 1].bytes < bytes; at--)
		l->of[at] = l->of[at - 1];
	l->of[at].account = account;
	l->of[at].space = space;
	l->of[at].bytes = bytes;
}

void
scout__serve_tenants(struct scout_server *s, struct scout__request *req)
{
	struct largest largest = {.n = 0};
	const struct scout__ns *ns;
	struct scout__str name;
	struct scout__writer *w;
	const char *field = "";
	size_t op_at;
	int status = scout__get_tenants(req->op, &name, &field);

	if (!scout__require_only_report(s, req))
		return;
	if (status) {
		scout__refuse_body(s, req->dest, req->op, status, field);
		return;
	}
	ns = scout__require_namespace(s, req, &name);
	if (!ns)
		return;
	for (uint32_t i = 0; i < ns->n_spaces; i++)
		offer(&largest, ns, i);
	w = scout__reply_begin(s, req->dest, req->op->opcode, SCOUT_WIRE_OK, req->op->corr,
			       8 + largest.n * (SCOUT__TENANT_ITEM_BYTES + SCOUT_MAX_NAME), &op_at);
	if (!w)
		return;
	scout__put_list_head(w, scout__ns_count_tenants(ns), largest.n);
	for (uint32_t i = 0; i < largest.n; i++) {
		const struct scout__space *space = &ns->spaces[largest.of[i].space];

		scout__put_tenant_item(
			w, &(struct scout__tenant_item){largest.of[i].bytes, {space->tenant, space->tenant_len}});
	}
	scout__reply_end(s, req->dest, op_at);
}
