/* SPDX-License-Identifier: Apache-2.0 */
#include "live.h"

#include <pthread.h>
#include <stddef.h>

/*
 * DESIGN
 *
 * A process-wide list, since the question "is this pointer still one of ours" is about the process. It is walked at close only,
 * and nothing in it is looked at but addresses and links, which belong to objects that are still there.
 *
 * An object that is made anew at the address of an old one is taken for it: whoever frees twice and makes another one in between
 * frees that. No list can tell.
 *
 * fork() takes the lock around itself, so that a child does not inherit it taken by a thread that it does not have.
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct scout__live *first; /* G:lock */

static void
before_fork(void)
{
	(void)pthread_mutex_lock(&lock);
}

static void
after_fork(void)
{
	(void)pthread_mutex_unlock(&lock);
}

static void
install(void)
{
	(void)pthread_atfork(before_fork, after_fork, after_fork); /* fails on ENOMEM only: then as without it */
}

void
scout__live_add(struct scout__live *node)
{
	(void)pthread_once(&once, install);
	(void)pthread_mutex_lock(&lock);
	node->next = first;
	first = node;
	(void)pthread_mutex_unlock(&lock);
}

bool
scout__live_take(const struct scout__live *node)
{
	struct scout__live **at = &first;
	bool found;

	(void)pthread_mutex_lock(&lock);
	while (*at && *at != node)
		at = &(*at)->next;
	found = *at != NULL;
	if (found)
		*at = (*at)->next;
	(void)pthread_mutex_unlock(&lock);
	return found;
}
