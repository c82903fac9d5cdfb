/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <sys/types.h>
#include <unistd.h>

/*
 * A child, or a test that fails. Nothing is checked in the child: a check allocates, and another thread may have held the
 * allocator's lock at the fork. AddressSanitizer's, unlike the C library's, is not made free for the child.
 */
static inline pid_t
checked_fork(void)
{
	pid_t pid = fork();

	if (pid < 0)
		ck_abort_msg("there is no child");
	return pid;
}
