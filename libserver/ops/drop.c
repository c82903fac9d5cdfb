/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index.h"
#include "clears.h"
#include "fetch.h"
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "reply.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * DROP: an operator drops what a namespace has cached, or one tenant of it. The operator is no peer, so nothing here waits:
 * the reply says how many stores of L2 have yet to record the drop, and the operator asks again under the same name.
 *
 * A CLEAR puts workers out that have not joined it, because only their engine knows whether their KV is as old as what
 * was cleared. An operator cannot tell an engine to join, and a cache that no worker may use is not what a drop is for.
 * So workers stay in.
 *
 * Without L2, a drop has no name that peers or stores learn of (clears.c): there is nothing that could come back.
 *
 * A tenant cannot be dropped in L2. Objects there are known by a digest of their key; the tenant goes into that digest, so
 * the objects of one tenant cannot be listed. They would come back after the drop, so the server refuses it.
 *
 * Threads: loop.
 */

SCOUT_ON_LOOP static uint64_t
drop_all(struct scout_server *s, struct scout__ns *ns, uint64_t generation)
{
	uint64_t bytes = 0;

	for (uint32_t g = 0; g < ns->groups.n; g++)
		if (ns->by_group[g].index)
			bytes += scout__index_used_bytes(ns->by_group[g].index);
	return scout__clears_drop(s, ns, generation) ? bytes : 0;
}

void
scout__serve_drop(struct scout_server *s, struct scout__request *req)
{
	struct scout__drop_reply reply;
	struct scout__drop_msg m;
	struct scout__writer *w;
	const char *field = "";
	struct scout__ns *ns;
	size_t op_at;
	int status = scout__get_drop(req->op, &m, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	ns = scout__require_namespace(s, req, &m.name_space);
	if (!ns)
		return;
	if ((m.flags & SCOUT_DROP_TENANT) && s->fetch) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_UNSUPPORTED,
			      "this server has L2, where one tenant cannot be dropped: its chunks would come back from "
			      "there. Give the tenant another name (vLLM: another cache_salt), and nothing under the "
			      "old name is found again; or drop the whole namespace");
		return;
	}
	reply.bytes =
		m.flags & SCOUT_DROP_TENANT ? scout__ns_drop_tenant(s, ns, &m.tenant) : drop_all(s, ns, m.generation);
	reply.stores = s->fetch ? s->fetch->n : 0;
	reply.pending = scout__records_pending(s, ns);
	w = scout__reply_begin(s, req->dest, req->op->opcode, SCOUT_WIRE_OK, req->op->corr, SCOUT__DROP_REPLY_BYTES,
			       &op_at);
	if (!w)
		return;
	scout__put_drop_reply(w, &reply);
	scout__reply_end(s, req->dest, op_at);
}
