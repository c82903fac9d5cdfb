/* SPDX-License-Identifier: Apache-2.0 */
#include "msg.h"
#include "ns.h"
#include "ops_internal.h"
#include "peer.h"
#include "reply.h"
#include "server_core.h"
#include "state.h"
#include "unsent.h"

/*
 * DESIGN
 *
 * PEERS: an operator asks who is connected, and what each peer holds and has queued. The numbers are counters that each
 * peer has anyway. A reply lists at most SCOUT_MAX_LISTED peers and looks at SLOTS slots, so it takes some 10 us; the
 * operator asks again from `next` on. A peer that comes or leaves between two replies may be missing.
 *
 * Threads: loop.
 */

#define SLOTS 4096u /* places of peers that one reply looks at */

SCOUT_ON_LOOP static void
put_peer(const struct scout_server *s, const struct scout__peer *peer, struct scout__writer *w)
{
	uint64_t silent_ms = s->now_us > peer->seen_us ? (s->now_us - peer->seen_us) / 1000 : 0;
	bool has_rank = peer->rank >= 0;

	scout__put_peer_item(
		w, &(struct scout__peer_item){
			   .id = peer->id,
			   .role = peer->role,
			   .kv_rank = has_rank ? (uint16_t)(peer->ns->rank_first + (uint32_t)peer->rank + 1) : 0,
			   .pid = (uint32_t)peer->pid,
			   .unread_bytes = peer->dest.shm.channel.backlog_bytes + scout__unsent_of(&peer->dest),
			   .silent_ms = silent_ms < UINT32_MAX ? (uint32_t)silent_ms : UINT32_MAX,
			   .waiting = peer->unanswered,
			   .sessions = peer->n_sessions,
			   .holds = peer->n_holds,
			   .name_space = {peer->ns->name, peer->ns->name_len}});
}

void
scout__serve_peers(struct scout_server *s, struct scout__request *req)
{
	const struct scout__state *state = s->state;
	uint32_t first, end, n = 0;
	struct scout__writer *w;
	const char *field = "";
	size_t at, op_at;
	int status = scout__get_peers(req->op, &first, &field);

	if (status && scout__refuse_body(s, req->dest, req->op, status, field))
		return;
	w = scout__reply_begin(s, req->dest, req->op->opcode, SCOUT_WIRE_OK, req->op->corr,
			       8 + SCOUT_MAX_LISTED * (SCOUT__PEER_ITEM_BYTES + SCOUT_MAX_NAME), &op_at);
	if (!w)
		return;
	at = w->len;
	scout__put_list_head(w, 0, 0);
	end = s->cfg.max_peers;
	if (first < end && end - first > SLOTS)
		end = first + SLOTS;
	for (; first < end && n < SCOUT_MAX_LISTED; first++) {
		if (!state->peers[first] || state->peers[first]->leaving)
			continue;
		put_peer(s, state->peers[first], w);
		n++;
	}
	scout__patch_u32(w, at, first < s->cfg.max_peers ? first : 0);
	scout__patch_u32(w, at + 4, n);
	scout__reply_end(s, req->dest, op_at);
}
