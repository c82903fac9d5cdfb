/* SPDX-License-Identifier: Apache-2.0 */
/* The intrusive list: order, and nodes that are in no list. */
#include "check_main.h"

#include <stddef.h>

#include "list.h"

struct thing {
	int number;
	struct scout__list node;
};

static struct thing things[3] = {{.number = 1}, {.number = 2}, {.number = 3}};
static struct scout__list list;

static int
pop(void)
{
	struct scout__list *node = scout__list_pop(&list);

	return node ? SCOUT__OWNER(node, struct thing, node)->number : 0;
}

START_TEST(what_is_added_last_comes_out_last)
{
	int seen = 0;

	scout__list_init(&list);
	ck_assert(scout__list_empty(&list));
	ck_assert_int_eq(pop(), 0);
	scout__list_add(&list, &things[1].node);
	scout__list_add(&list, &things[2].node);
	scout__list_add_first(&list, &things[0].node);
	SCOUT__LIST_EACH(node, &list)
	ck_assert_int_eq(SCOUT__OWNER(node, struct thing, node)->number, ++seen);
	ck_assert_int_eq(seen, 3);
	ck_assert_int_eq(pop(), 1);
	ck_assert_int_eq(pop(), 2);
	ck_assert_int_eq(pop(), 3);
	ck_assert(scout__list_empty(&list));
}
END_TEST

START_TEST(a_node_leaves_from_anywhere_and_may_leave_again)
{
	scout__list_init(&list);
	for (int i = 0; i < 3; i++)
		scout__list_add(&list, &things[i].node);
	scout__list_del(&things[1].node);
	scout__list_del(&things[1].node);
	ck_assert_int_eq(pop(), 1);
	scout__list_del(&things[0].node);
	ck_assert_int_eq(pop(), 3);
	ck_assert_int_eq(pop(), 0);
}
END_TEST
