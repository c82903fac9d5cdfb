/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvscout/client.h>

#include "server_rig.h"

/* A server, a peer on the socket that watches it, and peers with a channel. */

#define CHUNKS 64u

extern struct scout_server *server;
extern struct wire_peer watcher; /* through the socket: what STATUS says */
void up_with(const char *key, const char *value);
void up(void);
void down(void);
uint64_t status(const char *name);

/* A client that talks through a channel. */
void open_peer(struct wire_peer *p);
void open_worker(struct wire_peer *p);
