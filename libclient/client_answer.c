/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The lengths of an answer, and admitting one of them, on the caller's thread.
 *
 * If all groups have policy `all`, any part of a hit can be restored that ends where objects of all groups end. Shorter lengths
 * then follow from the longest, a token count is rounded down to such a length, and the answer may be one token short of its last
 * object. Windows and states are there for their own length only: such an answer knows its longest length and the lengths that
 * want_lengths asked for. Any other length is refused, because what it needs is not promised.
 *
 * Lookups ahead are sent before the engine knows how many leading tokens the GPU has. The answer says for each object whether it is
 * there (lookup_answer.c), and all objects that are there are promised. The first scout_try_lookup() settles the answer:
 * computed_tokens says what the GPU has, so chunks at the start that the server evicted and the GPU still has are no miss;
 * restorable.h has the rules that find the lengths; and a SETTLE word gives back what the longest length does not need. (If the caller
 * wants to hear of other lengths, its admit gives that back.) From then on it is an answer like any other.
 *
 * Several servers that hold windows or states are always asked in this way: only the objects that each server has tell which lengths
 * all of them can restore.
 *
 * If a lookup ahead failed, the first ask returns that failure, and it is renewed like any failure. An answer from before a restart
 * of a server starts over, as all answers do.
 *
 * Renewals keep an answer fresh until it is admitted. A request may wait for minutes while another one stores its prefix, or while others hold what max_promised allows. So an ask that
 * finds its answer older than lookup_refresh_ms returns it and lets the courier ask anew; a later ask takes over the newer answer. Nothing else takes it over, so an answer never
 * changes between an ask and its admit. No timer renews: an answer that the caller no longer asks for is not renewed either.
 *
 * By then the arena has freed the hashes. The caller passes them with each ask, and they are copied once more; a poll, which has no
 * hashes, returns SCOUT_NEED_QUERY when its answer has its turn. A full arena, a server that is known to be gone, or the bound below
 * only delays the renewal to a later ask. None of them is an error.
 *
 * Bound: RENEWALS_PER_S for each client, and RENEWALS_BURST at once, which is also the most that may be unanswered. Without the
 * bound, a queue of thousands that is asked for in each step would be looked up again each second. The first ask of a step has
 * the first turn: a scheduler asks in the order in which it will admit, so the requests that are admitted next have the
 * youngest answers. Rejected: a turn for each, oldest answer first. With 2,000 waiting the head of the queue would be 8 s old.
 *
 * A newer answer brings its own lengths, which replace the others when it is taken over. The answer to a lookup ahead is not
 * renewed if it has several lengths of windows and states: until its admit the servers promise all that they have.
 *
 * An answer with a session (hit, miss, limited) is renewed in it: promised chunks stay promised, and tokens only grow. One without a
 * session (timeout, unreachable, refused) is asked under a new ticket.
 */
#include "client_internal.h"

#include <string.h>

#include "clock.h"
#include "restorable.h"

/* The length that a slot's answer says, in hashes. */
static uint32_t
slot_hit(const struct scout_client *client, const struct scout__lookup_slot *slot)
{
	uint32_t hash_tokens = client->cfg.hash_tokens, hit;

	if (client->is_plain && hash_tokens == client->cfg.chunk_tokens)
		return slot->landed.hit.chunks;
	hit = (uint32_t)((slot->landed.hit.tokens + hash_tokens - 1) / hash_tokens);
	/* With a hash for each token, the one token that is left to compute costs a whole hash of the last object: count it. */
	if (client->is_run && hash_tokens == 1 && hit % client->stride != 0 && (hit + 1) % client->stride == 0 &&
	    hit + UINT64_C(1) == slot->terms.prompt_tokens)
		hit++;
	return hit;
}

/* Find the slot of a request that is answered and not admitted. 0, SCOUT_ERR_REQUEST_ID, SCOUT_ERR_STATE. */
static int
answered(const struct scout_client *client, const char *id, uint32_t *ret_slot)
{
	const struct scout__lookup_slot *slot;
	uint32_t i;
	int rc = scout__table_find_id(client, id, &i);

	if (rc != 0)
		return rc;
	if (i == SCOUT__NO_SLOT)
		return SCOUT_ERR_STATE;
	slot = &client->slots[i];
	if (slot->entry.admitted || slot->question.n_parts > 0 || slot->question.ahead ||
	    atomic_load_explicit(&slot->answer, memory_order_acquire) == SCOUT__PENDING)
		return SCOUT_ERR_STATE;
	*ret_slot = i;
	return 0;
}

int
scout_lookup_kept(struct scout_client *client, const char *id)
{
	uint32_t i = 0;
	int rc;

	if (!client)
		return SCOUT_ERR_INVALID;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	rc = answered(client, id, &i);
	return scout__client_leave(client, rc ? rc : client->slots[i].landed.kept);
}

/* ---- lengths ---- */

static int
lengths_of(const struct scout_client *client, const char *id, uint64_t *ret_tokens, size_t n)
{
	const struct scout__lookup_slot *slot;
	uint64_t hash_tokens = client->cfg.hash_tokens;
	size_t known = 1;
	uint32_t i, hit;
	int rc = answered(client, id, &i);

	if (rc)
		return rc;
	slot = &client->slots[i];
	if (n == 0 || slot->landed.hit.tokens == 0)
		return 0;
	ret_tokens[0] = slot->landed.hit.tokens;
	n = n < slot->question.want ? n : slot->question.want;
	hit = slot_hit(client, slot);
	if (client->is_run)
		/* A length within the part that the GPU has does not count, and the longest length is not repeated. */
		while (known < n && hit > client->stride && hit - client->stride > slot->question.skip) {
			hit -= client->stride;
			if (hit * hash_tokens < slot->landed.hit.tokens)
				ret_tokens[known++] = hit * hash_tokens;
		}
	else
		for (; known < n && known <= slot->landed.n_lengths; known++)
			ret_tokens[known] = slot->lengths[known - 1] * hash_tokens;
	return (int)known;
}

int
scout_lookup_lengths(struct scout_client *client, const char *id, uint64_t *ret_tokens, size_t n)
{
	if (!client || (n > 0 && !ret_tokens))
		return SCOUT_ERR_INVALID;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	return scout__client_leave(client, lengths_of(client, id, ret_tokens, n));
}

/* ---- admit ---- */

/*
 * One end of an admitted range, in tokens: negative counts from the end of the hit, values beyond it are clamped, and the token
 * count that was reported (which may be one short of the last object's end) means the end.
 */
static uint64_t
clamp_token(const struct scout_hit *hit, int64_t token, uint64_t end)
{
	if (token < 0)
		return (uint64_t) - (token + 1) + 1 >= end ? 0 : end - (uint64_t)-token;
	return (uint64_t)token >= hit->tokens ? end : (uint64_t)token;
}

/* Whether the answer says that @length can be restored. */
static bool
is_told(const struct scout__lookup_slot *slot, uint32_t hit, uint32_t length)
{
	if (length == hit)
		return true;
	for (uint32_t i = 0; i < slot->landed.n_lengths; i++)
		if (slot->lengths[i] == length)
			return true;
	return false;
}

static int
admit(struct scout_client *client, const char *id, int64_t from_token, int64_t to_token)
{
	uint32_t hash_tokens = client->cfg.hash_tokens, i, hit;
	int rc = answered(client, id, &i);
	struct scout__lookup_slot *slot;
	uint64_t from, to;

	if (rc)
		return rc;
	slot = &client->slots[i];
	hit = slot_hit(client, slot);
	from = clamp_token(&slot->landed.hit, from_token, (uint64_t)hit * hash_tokens);
	to = clamp_token(&slot->landed.hit, to_token, (uint64_t)hit * hash_tokens);
	/* For windows and states only a promised length can be admitted; an empty range gives back all. */
	if (!client->is_run && from < to &&
	    (to % hash_tokens != 0 || !is_told(slot, hit, (uint32_t)(to / hash_tokens))))
		return SCOUT_ERR_NOT_RESTORABLE;
	scout__renew_forget(client, slot);
	/* A retrieve starts at a block, anywhere in an object, and needs that whole object: only the end is rounded inwards. */
	slot->admit.from = (uint32_t)(from / hash_tokens);
	slot->admit.to = (uint32_t)(to / hash_tokens);
	if (client->is_run && slot->admit.to < hit)
		slot->admit.to -= slot->admit.to % client->stride;
	slot->entry.admitted = true;
	if (slot->entry.submitted)
		scout__client_push(client, SCOUT__WORD(SCOUT__WORD_ADMIT, i));
	return 0;
}

int
scout_admit(struct scout_client *client, const char *id, int64_t from_token, int64_t to_token)
{
	if (!client)
		return SCOUT_ERR_INVALID;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	return scout__client_leave(client, admit(client, id, from_token, to_token));
}

/* ---- lookups ahead ---- */

/*
 * Returns the longest length from @from on, and writes to slot->lengths the shorter ones that the caller wants to hear of. Without
 * memory for the maps, only the leading run is known, or the longest length of the only server.
 */
static uint32_t
find_lengths(const struct scout_client *client, struct scout__lookup_slot *slot, uint32_t from)
{
	struct scout__presence presence[SCOUT__GROUPS_MAX];
	struct scout__restorable walk;
	uint32_t length, n = slot->lengths ? slot->question.want - 1u : 0;

	slot->landed.n_lengths = 0;
	if (!slot->objects.bits) {
		/* The shortest of several servers' lengths need not be restorable on the others. */
		bool is_told = client->is_run || client->n_links == 1;

		return is_told && slot->work.least > from && slot->work.least <= slot->terms.at_most ? slot->work.least
												     : from;
	}
	for (uint32_t g = 0; g < client->groups.n; g++) {
		presence[g].bits = scout__group_maps(client, slot, g).there;
		presence[g].n = (uint32_t)((uint64_t)slot->objects.known * client->cfg.hash_tokens /
					   client->groups.group[g].unit_tokens);
	}
	scout__restorable_init(&walk, &client->groups, client->cfg.hash_tokens, presence, from);
	length = scout__restorable_next(&walk, slot->terms.at_most < slot->objects.known ? slot->terms.at_most
											 : slot->objects.known);
	if (length < from)
		return from;
	for (uint32_t below = length; below > from && slot->landed.n_lengths < n;) {
		below = scout__restorable_next(&walk, below - 1);
		if (below > from)
			slot->lengths[slot->landed.n_lengths++] = below;
	}
	return length;
}

/* Count the objects that a restore of [@from, @to) reads, and how many of them are in L2 only. An empty restore reads
   none, so the object in which @from lies may be missing. */
static uint32_t
count_objects(const struct scout_client *client, const struct scout__lookup_slot *slot, uint32_t from, uint32_t to,
	      uint32_t *ret_l2)
{
	uint32_t n = 0, l2 = 0;

	for (uint32_t g = 0; slot->objects.bits && from < to && g < client->groups.n; g++) {
		const uint8_t *in_l2 = scout__group_maps(client, slot, g).in_l2;
		struct scout__need need;

		if (!scout__need_of(&client->groups.group[g], client->cfg.hash_tokens, from, to, &need))
			continue;
		n += need.to - need.from;
		for (uint32_t i = need.from; i < need.to; i++)
			l2 += in_l2[i / 8] >> i % 8 & 1;
	}
	*ret_l2 = l2;
	return slot->objects.bits ? n : to - from;
}

void
scout__request_settle(struct scout_client *client, uint32_t i, uint64_t computed_tokens)
{
	struct scout__lookup_slot *slot = &client->slots[i];
	uint64_t hash_tokens = client->cfg.hash_tokens, tokens;
	uint32_t from, to, n;

	slot->question.ahead = false;
	from = computed_tokens / hash_tokens < slot->terms.at_most ? (uint32_t)(computed_tokens / hash_tokens)
								   : slot->terms.at_most;
	from = from > slot->terms.first ? from : slot->terms.first;
	slot->question.skip = from;
	if (slot->landed.hit.error != 0)
		return;
	to = find_lengths(client, slot, from);
	tokens = to * hash_tokens;
	n = count_objects(client, slot, from, to, &slot->settle.l2);
	slot->settle.from = from;
	slot->settle.to = to;
	/* Keep all promises: the other lengths need them. */
	slot->settle.keeps = slot->landed.n_lengths > 0;
	slot->landed.hit.tokens = tokens < slot->terms.prompt_tokens ? tokens : slot->terms.prompt_tokens - 1;
	slot->landed.hit.chunks = (uint32_t)(tokens / client->cfg.chunk_tokens);
	slot->landed.hit.l2_chunks = slot->settle.l2;
	slot->landed.hit.l1_chunks = n - slot->settle.l2;
	slot->landed.hit.reason = slot->objects.known_limited && to >= slot->objects.known ? SCOUT_REASON_LIMITED
				  : to > 0                                                 ? SCOUT_REASON_HIT
											   : SCOUT_REASON_MISS;
	client->stats.hits += to > 0;
	client->stats.hit_tokens += slot->landed.hit.tokens;
	scout__client_push(client, SCOUT__WORD(SCOUT__WORD_SETTLE, i));
}

/* ---- renewals ---- */

#define RENEWALS_PER_S 256u
#define RENEWALS_BURST 32u

/* The time that has passed allows more renewals. */
static void
refill_turns(struct scout_client *client, uint64_t now_us)
{
	uint64_t more = (now_us - client->renew_refill_us) * RENEWALS_PER_S / 1000000u;

	if (more > 0) {
		client->renew_refill_us = now_us;
		client->renew_tokens = client->renew_tokens + more < RENEWALS_BURST
					       ? client->renew_tokens + (uint32_t)more
					       : RENEWALS_BURST;
	}
}

/* Whether one more renewal may be asked for now. */
static bool
has_turn(const struct scout_client *client)
{
	return client->renew_tokens > 0 && client->n_renewing < RENEWALS_BURST;
}

static bool
has_session(const struct scout_hit *hit)
{
	return hit->reason == SCOUT_REASON_HIT || hit->reason == SCOUT_REASON_MISS ||
	       hit->reason == SCOUT_REASON_LIMITED;
}

void
scout__renew_ask(struct scout_client *client, uint32_t i, const struct scout_query *q)
{
	struct scout__lookup_slot *slot = &client->slots[i];
	uint64_t ticket = 0, pos;

	if (q->n != slot->question.n - slot->terms.first)
		return; /* a session is renewed by the hashes that it was opened with */
	if (!has_session(&slot->landed.hit) && (ticket = scout__client_ticket(client)) == 0)
		return;
	pos = scout__arena_take(&client->arena, q->n * q->hash_len);
	if (pos == UINT64_MAX)
		return;
	memcpy(scout__arena_at(&client->arena, pos), q->hashes, q->n * q->hash_len);
	slot->ask.arena_pos = pos;
	slot->renewal.ticket = ticket;
	slot->ask.deadline_us = scout__now_us() + (uint64_t)slot->terms.timeout_ms * 1000;
	slot->renewal.is_open = true;
	slot->entry.submitted = true;
	client->n_renewing++;
	client->renew_tokens--;
	client->stats.renewals++;
	scout__client_push(client, SCOUT__WORD(SCOUT__WORD_RENEW, i));
}

/* The newer answer replaces the old one, unless it says less: within a server's life tokens never decrease. */
static void
take_over(struct scout_client *client, struct scout__lookup_slot *slot, uint64_t now_us)
{
	const struct scout_hit *newer = &slot->newer.hit;

	scout__renew_forget(client, slot);
	slot->renewal.ended_us = now_us;
	atomic_store_explicit(&slot->answer, SCOUT__ANSWERED, memory_order_relaxed);
	if (!has_session(newer) || (has_session(&slot->landed.hit) && newer->tokens < slot->landed.hit.tokens))
		return;
	client->stats.renewed += newer->tokens > slot->landed.hit.tokens;
	if (slot->newer.n_lengths > 0)
		memcpy(slot->lengths, slot->lengths + slot->question.want - 1,
		       slot->newer.n_lengths * sizeof(*slot->lengths));
	slot->landed = slot->newer;
}

bool
scout__renew_look(struct scout_client *client, uint32_t i)
{
	struct scout__lookup_slot *slot = &client->slots[i];
	uint64_t now_us, since_us;

	if (client->cfg.lookup_refresh_ms == SCOUT_NEVER || slot->settle.keeps)
		return false;
	now_us = scout__now_us();
	if (atomic_load_explicit(&slot->answer, memory_order_acquire) == SCOUT__RENEWED)
		take_over(client, slot, now_us);
	since_us = slot->renewal.ended_us > slot->landed_us ? slot->renewal.ended_us : slot->landed_us;
	if (slot->renewal.is_open || now_us < since_us + (uint64_t)client->cfg.lookup_refresh_ms * 1000)
		return false;
	/* After a restart of a server the caller starts over anyway. */
	if (slot->landed.epochs != atomic_load_explicit(&client->epochs, memory_order_relaxed))
		return false;
	if (!has_session(&slot->landed.hit) && atomic_load_explicit(&client->down, memory_order_relaxed))
		return false;
	refill_turns(client, now_us);
	return has_turn(client);
}

void
scout__renew_forget(struct scout_client *client, struct scout__lookup_slot *slot)
{
	client->n_renewing -= slot->renewal.is_open;
	slot->renewal.is_open = false;
}
