/* SPDX-License-Identifier: Apache-2.0 */
#include "watch.h"

#include <sys/epoll.h>

#include "fork_guard.h"
#include "server_core.h"

/*
 * Descriptors that the loop's epoll descriptor watches. Their owners hold the struct scout__watch; the loop finds it in
 * each event.
 *
 * Threads: loop; the starting one before it.
 */

int
scout__watch_add(struct scout_server *s, struct scout__watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN, .data = {.ptr = watch}};

	return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event);
}

void
scout__watch_end(struct scout_server *s, struct scout__watch *watch)
{
	if (watch->fd < 0)
		return;
	(void)epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL); /* cannot fail: it was added */
	scout__fork_guard_close(watch->fd);
	watch->fd = -1;
}
