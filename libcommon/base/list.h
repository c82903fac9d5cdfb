/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/*
 * An intrusive circular list: the head and each node have the same form, and each object has a node for each list that it may be in.
 * The owner of a list owns the links of its nodes.
 */
struct scout__list {
	struct scout__list *prev, *next;
};

/* The object that @ptr is the @member of. */
#define SCOUT__OWNER(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* For each @node of @list, from the first on. The body may remove only later nodes. */
#define SCOUT__LIST_EACH(node, list)                                                                                   \
	for (struct scout__list *node = (list)->next; (node) != (list); (node) = (node)->next)

static inline void
scout__list_init(struct scout__list *list)
{
	list->prev = list;
	list->next = list;
}

static inline bool
scout__list_empty(const struct scout__list *list)
{
	return list->next == list;
}

/* Append @node. */
static inline void
scout__list_add(struct scout__list *list, struct scout__list *node)
{
	node->prev = list->prev;
	node->next = list;
	list->prev->next = node;
	list->prev = node;
}

static inline void
scout__list_add_first(struct scout__list *list, struct scout__list *node)
{
	scout__list_add(list->next, node);
}

/* Remove the first node; NULL if there is none. */
static inline struct scout__list *
scout__list_pop(struct scout__list *list)
{
	struct scout__list *node = list->next;

	if (node == list)
		return NULL;
	list->next = node->next;
	list->next->prev = list;
	scout__list_init(node);
	return node;
}

/* Also for a node that is in no list, if it was initialised as one. */
static inline void
scout__list_del(struct scout__list *node)
{
	node->prev->next = node->next;
	node->next->prev = node->prev;
	scout__list_init(node);
}
