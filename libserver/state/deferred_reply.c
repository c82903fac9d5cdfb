/* SPDX-License-Identifier: Apache-2.0 */
#include "deferred_reply.h"

#include "peer.h"

/*
 * Replies that wait until everything is given back. Ended sessions and holds owe such replies; the operation that ended
 * one writes its reply. Loop thread.
 */

void
scout__deferred_reply_note(struct scout__deferred_reply *deferred, struct scout__peer *peer,
			   void (*reply)(struct scout_server *s, struct scout__peer *peer, uint64_t corr, uint32_t n),
			   uint64_t corr)
{
	*deferred = (struct scout__deferred_reply){reply, corr, peer->connection};
	peer->unanswered++;
}

void
scout__deferred_reply_send(struct scout_server *s, const struct scout__deferred_reply *deferred,
			   struct scout__peer *peer, uint32_t n)
{
	if (!deferred->reply)
		return;
	if (peer->connection != deferred->connection)
		return;
	peer->unanswered--;
	deferred->reply(s, peer, deferred->corr, n);
}
