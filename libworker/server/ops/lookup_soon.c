/* SPDX-License-Identifier: Apache-2.0 */
#include "ns.h"
#include "ops_internal.h"
#include "pending_op.h"
#include "server_core.h"

/*
 * DESIGN
 *
 * What a request waits for is a free hint: it will be asked for soon. A lookup ahead promises it, but only within
 * max_promised, so that waiting requests never pin the whole pool. The chunks behind that limit count as used just now:
 * each becomes the newest of its queue, from the last one to the first, so that the head of the prompt goes last. They
 * can still be evicted, and the eviction policy learns nothing from it: the request may be cancelled.
 *
 * The walk over them is the second part of the lookup's, in slices, from the end. A slice renews what it finds up to
 * its first hole: chunks behind a hole are seldom of use.
 *
 * Threads: loop.
 */

bool
scout__lookup_soon(struct scout_server *s, struct scout__pending_op *pending)
{
	uint32_t n = pending->soon_to - pending->next;

	if (n > SCOUT__SOON)
		n = SCOUT__SOON;
	pending->soon_to -= n;
	s->count.soon_chunks +=
		scout__index_soon(pending->group->index, pending->space,
				  pending->hashes + (size_t)pending->soon_to * pending->ns->hash_bytes, n);
	return pending->soon_to > pending->next;
}
