/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Words to the courier, and steps, on the caller's thread: a word that is pushed between scout_step_begin() and scout_step_end() is
 * marked as held, so the courier sends nothing for it before the word that ends the step. The caller rings once for all.
 *
 * For scout_step_wait() the lookups of a step are in a list, the last one first: lookups that the step submitted, and pending
 * lookups ahead that it was the first to ask for. A later step that asks for a lookup again does not wait for it again: an answer
 * that takes longer than one wait (from a slow L2) would cost every step a wait. scout_step_wait() sleeps on the last lookup:
 * answers of one frame come together, so when the last one is there the others are too, and the caller seldom sleeps twice. A slot
 * is in the list if it has the number of the step, so a new step forgets the old list without a walk.
 */
#include "client_internal.h"

#include "clock.h"
#include "answer_word.h"

void
scout__step_add(struct scout_client *client, uint32_t i)
{
	struct scout__lookup_slot *slot = &client->slots[i];

	slot->step.no = client->step_no;
	slot->step.prev = SCOUT__NO_SLOT;
	slot->step.next = client->step_head;
	if (client->step_head != SCOUT__NO_SLOT)
		client->slots[client->step_head].step.prev = i;
	client->step_head = i;
}

void
scout__step_remove(struct scout_client *client, uint32_t i)
{
	struct scout__lookup_slot *slot = &client->slots[i];

	if (slot->step.no != client->step_no)
		return;
	slot->step.no = 0;
	if (slot->step.prev == SCOUT__NO_SLOT)
		client->step_head = slot->step.next;
	else
		client->slots[slot->step.prev].step.next = slot->step.next;
	if (slot->step.next != SCOUT__NO_SLOT)
		client->slots[slot->step.next].step.prev = slot->step.prev;
}

void
scout__client_push(struct scout_client *client, uint64_t word)
{
	if (client->in_step) {
		word |= SCOUT__WORD_HELD;
		client->step_dirty = true;
	}
	SCOUT_ASSERT(scout__courier_push(client->courier, word)); /* room was set aside: client_internal.h */
	if (!client->in_step && scout__courier_ring(client->courier))
		client->stats.rings++;
}

void
scout__client_push_on(struct scout_client *client)
{
	if (!client->step_dirty)
		return;
	client->step_dirty = false;
	SCOUT_ASSERT(scout__courier_push(client->courier, SCOUT__WORD(SCOUT__WORD_STEP_END, 0)));
	if (scout__courier_ring(client->courier))
		client->stats.rings++;
}

void
scout_step_begin(struct scout_client *client)
{
	if (!client || scout__courier_forked(client->courier))
		return;
	if (!client->in_step) {
		client->step_left_us = client->cfg.step_wait_us;
		client->step_head = SCOUT__NO_SLOT;
		if (++client->step_no == 0) /* 0 marks slots that are in no list */
			client->step_no = 1;
	}
	client->in_step = true;
}

void
scout_step_end(struct scout_client *client)
{
	if (!client || scout__courier_forked(client->courier))
		return;
	client->in_step = false;
	scout__client_push_on(client);
}

int
scout_step_wait(struct scout_client *client, uint32_t us)
{
	uint64_t until_us;
	bool landed = true;

	if (!client)
		return SCOUT_ERR_INVALID;
	if (!scout__client_enter(client))
		return SCOUT_ERR_FORKED;
	until_us = scout__now_us() + us;
	scout__client_push_on(client);
	while (landed && client->step_head != SCOUT__NO_SLOT) {
		uint32_t i = client->step_head;

		landed = scout__answer_await(client, &client->slots[i], until_us);
		if (landed)
			scout__step_remove(client, i);
	}
	return scout__client_leave(client, landed ? 0 : SCOUT_NOT_YET);
}
