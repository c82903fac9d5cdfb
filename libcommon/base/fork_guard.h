/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sys/types.h>

/*
 * Descriptors that a forked child must not keep: while the child has a copy, the other end of a connection does not see that
 * ours was closed, a lock stays taken, memory stays allocated. The child closes them before fork() returns there. Descriptors
 * are CLOEXEC anyway; this is for children that do not exec. Any thread.
 */
void scout__fork_guard_add(int fd);
/*
 * open(), O_CLOEXEC, at descriptor @lowest or above, guarded with no fork in between: a lock of an open file stays taken while any
 * process has it. -1: errno says why.
 */
int scout__fork_guard_open(const char *path, int flags, mode_t mode, int lowest);
/* Close @fd, guarded or not; -1 is ignored. */
void scout__fork_guard_close(int fd);
