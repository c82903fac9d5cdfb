/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/protocol.h>

#include "clock.h"
#include "fake_server.h"
#include "waiting.h"

/* A client on a scripted server, and helpers that the client's tests share. */

#define RIG_CHUNK 256u
#define RIG_HASH 32u
#define RIG_MAX 64u

extern struct fake_server *fake;
extern struct scout_client *client;
extern uint8_t rig_hashes[RIG_MAX * RIG_HASH];
void rig_client(const char *key, const char *value);
void rig_ready(void);

/* Another client on the same server. */
void rig_reopen(const char *key, const char *value);
void rig_up(void);
void rig_down(void);
/* The server is away, or another one runs there, and the client knows. */
void rig_wait_gone(void);
void rig_restart(void);
struct scout_query rig_question(const char *id, size_t n);

/* Ask until there is an answer. */
struct scout_hit rig_answer(const char *id, size_t n);
struct scout_client_counters rig_stats(void);
