/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Passwords and keys: who may read a file. Any thread. */

/*
 * Files of passwords and keys, under one rule. The owner is root or the process's effective user. Others have no rights. A group has
 * rights only if the process is in it: Kubernetes mounts secrets as root:fsGroup with mode 0440, through symbolic links, which may be.
 */

/*
 * Open a regular file for reading, with O_CLOEXEC; a fifo or a device is refused and never waited for. @what stands before @path in the
 * text: "password_file". Returns the descriptor, SCOUT_ERR_PERMISSION if it may not be read, or else @code.
 */
int scout__regular_open(const char *what, const char *path, int code, char *err, size_t err_len);
/* The same for a file that holds a secret: SCOUT_ERR_PERMISSION also if it breaks the rule. The text names mode and owner. */
int scout__secret_open(const char *what, const char *path, int code, char *err, size_t err_len);
/* Whether the open file keeps the rule: 0 or SCOUT_ERR_PERMISSION. */
int scout__secret_judge(int fd, const char *what, const char *path, char *err, size_t err_len);
