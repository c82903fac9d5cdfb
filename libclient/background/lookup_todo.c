/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Keeps the slots that have something unsent; courier thread only. This file owns three lists: `todo`, from which each turn takes
 * what the links have room for, and `blocked`, with slots whose link was away or full when they were looked at. Blocked slots are
 * looked at again when a credit or a connection has come, never just because a turn is made: a scheduler may have 65,536 requests
 * waiting for 4,096 credits, and each frame of replies is a turn. The third list, `held`, has the slots of the open step: the mark
 * that ends the step appends them to `todo`, and what is in the other two lists travels meanwhile. The lists are linked in both
 * directions, so a request that is finished while it waits leaves at once.
 */
#include "lookup_internal.h"

static void SCOUT_ON_COURIER
append(struct scout_client *c, struct scout__lookup_list *list, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	slot->work.in_todo = true;
	slot->work.todo_prev = list->tail;
	slot->work.todo_next = SCOUT__NO_SLOT;
	if (list->tail == SCOUT__NO_SLOT)
		list->head = i;
	else
		c->slots[list->tail].work.todo_next = i;
	list->tail = i;
}

void
scout__todo_remove(struct scout_client *c, uint32_t i)
{
	struct scout__lookup_slot *slot = &c->slots[i];

	if (!slot->work.in_todo)
		return;
	slot->work.in_todo = false;
	for (unsigned k = 0; k < 3; k++) { /* the ends of the lists tell in which list the slot is */
		struct scout__lookup_list *list = k == 0 ? &c->todo : k == 1 ? &c->blocked : &c->held;

		if (list->head == i)
			list->head = slot->work.todo_next;
		if (list->tail == i)
			list->tail = slot->work.todo_prev;
	}
	if (slot->work.todo_prev != SCOUT__NO_SLOT)
		c->slots[slot->work.todo_prev].work.todo_next = slot->work.todo_next;
	if (slot->work.todo_next != SCOUT__NO_SLOT)
		c->slots[slot->work.todo_next].work.todo_prev = slot->work.todo_prev;
}

void
scout__todo_add(struct scout_client *c, uint32_t i)
{
	scout__todo_remove(c, i);
	append(c, c->is_held ? &c->held : &c->todo, i);
}

void
scout__todo_block(struct scout_client *c, uint32_t i)
{
	append(c, &c->blocked, i);
}

/* `todo` becomes @first and then @second; @emptied is one of them. */
static void SCOUT_ON_COURIER
join(struct scout_client *c, struct scout__lookup_list first, struct scout__lookup_list second,
     struct scout__lookup_list *emptied)
{
	*emptied = (struct scout__lookup_list){SCOUT__NO_SLOT, SCOUT__NO_SLOT};
	if (first.tail != SCOUT__NO_SLOT && second.head != SCOUT__NO_SLOT) {
		c->slots[first.tail].work.todo_next = second.head;
		c->slots[second.head].work.todo_prev = first.tail;
	}
	c->todo.head = first.head != SCOUT__NO_SLOT ? first.head : second.head;
	c->todo.tail = second.tail != SCOUT__NO_SLOT ? second.tail : first.tail;
}

void
scout__todo_unblock(struct scout_client *c)
{
	c->may_unblock = false;
	join(c, c->blocked, c->todo, &c->blocked);
}

void
scout__todo_end_step(struct scout_client *c)
{
	join(c, c->todo, c->held, &c->held);
}
