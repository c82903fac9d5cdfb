/* SPDX-License-Identifier: Apache-2.0 */
#include "chunk_index.h"
#include "clears.h"
#include "fetch.h"
#include "group_list.h"
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
 * With L2, a namespace that no peer has named since the server's start may have content there. It is made for the drop, with
 * parameters that the first HELLO replaces (hello.c), and dropped when its records have been read: the drop is to be later than they are.
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

/* A namespace for its records alone; NULL: there is no place. */
SCOUT_ON_LOOP static struct scout__ns *
make_unseen(struct scout_server *s, const struct scout__str *name)
{
	const struct scout__group_keys keys = {256, 256, 1};
	struct scout__hello hello = {
		.hash_bytes = 32,
		.chunk_tokens = keys.chunk_tokens,
		.hash_tokens = keys.hash_tokens,
		.rank_count = 1,
		.kv_ranks = 1,
		.readers = 1,
		.name_space = *name,
	};
	struct scout__ns *ns;

	scout__groups_of(NULL, &keys, &hello.groups);
	ns = scout__ns_make(s, &hello);
	if (ns)
		scout__records_open(s, ns);
	return ns;
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
	ns = scout__ns_find(s, &m.name_space);
	if (!ns && s->fetch && !(m.flags & SCOUT_DROP_TENANT))
		ns = make_unseen(s, &m.name_space);
	if (!ns) {
		(void)scout__require_namespace(s, req, &m.name_space);
		return;
	}
	if ((m.flags & SCOUT_DROP_TENANT) && s->fetch) {
		scout__refuse(s, req->dest, req->op->opcode, req->op->corr, SCOUT_WIRE_UNSUPPORTED,
			      "this server has L2, where one tenant cannot be dropped: its chunks would come back from "
			      "there. Give the tenant another name (vLLM: another cache_salt), and nothing under the "
			      "old name is found again; or drop the whole namespace");
		return;
	}
	reply.bytes = s->fetch && !scout__records_known(ns) ? 0
		      : m.flags & SCOUT_DROP_TENANT         ? scout__ns_drop_tenant(s, ns, &m.tenant)
							    : drop_all(s, ns, m.generation);
	reply.stores = s->fetch ? s->fetch->n : 0;
	reply.pending = scout__records_known(ns) ? scout__records_pending(s, ns) : reply.stores;
	w = scout__reply_begin(s, req->dest, req->op->opcode, SCOUT_WIRE_OK, req->op->corr, SCOUT__DROP_REPLY_BYTES,
			       &op_at);
	if (!w)
		return;
	scout__put_drop_reply(w, &reply);
	scout__reply_end(s, req->dest, op_at);
}
