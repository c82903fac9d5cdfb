/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "channel.h"
#include "list.h"
#include "thread.h"
#include "watch.h"

struct scout_server;
struct scout__packet;
struct scout__dest;

/* A peer's channel through shared memory, see shm.c. */
struct scout__shm {
	struct scout__watch watch; /* its bell; fd -1: there is none */
	struct scout__channel channel;
	struct scout__list node;      /* in transport.shm_hot or .shm_warm; alone: asleep */
	struct scout__packet *packet; /* the frame that arrives; NULL: between two frames */
	bool is_used;                 /* a frame has come: answers go there */
	bool is_deaf;                 /* its peer does not read: the next read of channels ends it */
	bool was_asked;               /* the peer asked for a channel since the last HELLO */
};

SCOUT_ON_LOOP void scout__shm_init(struct scout__dest *dest);
/*
 * Answer a request for a channel on the lease connection @lease_fd: with a new channel, or that there is none. Returns
 * 0, or the errno of a channel that could not be made.
 */
SCOUT_ON_LOOP int scout__shm_open(struct scout_server *s, struct scout__dest *dest, int lease_fd);
/* Close the channel of @dest with all that is in it. */
SCOUT_ON_LOOP void scout__shm_close(struct scout_server *s, struct scout__dest *dest);
SCOUT_ON_LOOP void scout__shm_rang(struct scout_server *s, struct scout__dest *dest);
/* Execute the frames that are there, until @end_us. Returns whether there may be more. */
SCOUT_ON_LOOP bool scout__shm_receive(struct scout_server *s, uint64_t end_us);
/* While spinning: find channels that have bytes. */
SCOUT_ON_LOOP void scout__shm_look(struct scout_server *s);
/* Before the loop sleeps: arm all bells. False: a channel has bytes, so do not sleep. */
SCOUT_ON_LOOP bool scout__shm_park(struct scout_server *s);
/* 0 or an errno: EAGAIN, the peer does not read. */
SCOUT_ON_LOOP int scout__shm_send(struct scout_server *s, struct scout__dest *dest, const uint8_t *buf, size_t len);
