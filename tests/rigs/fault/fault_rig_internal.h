/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "fault_rig.h"

#define NAME_SPACE "rig"

const char *fault_program(const char *variable);
pid_t fault_spawn(char *const argv[], const int fds[4]);
void fault_pipe(int fds[2]);
/* A line without its end that answers @what, or what there is when the other side is gone. Returns its length, -1 for nothing. */
int fault_read_line(int fd, const char *what, char *line, size_t size);
int fault_wait_exit(pid_t pid);
