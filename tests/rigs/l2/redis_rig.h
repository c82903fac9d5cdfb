/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <hiredis/hiredis.h>

/*
 * Real redis-servers, on loopback, with ports that the kernel chose, in a private folder. They end with the process that
 * started them, however it ends. Nothing of the system's own Redis is touched.
 */

struct redis_server {
	pid_t pid; /* 0: none */
	uint16_t port;
	char folder[96];
	bool cluster;
	char extra[4][64]; /* names and values of further options; kept over a restart */
	const char *password;
	redisContext *control;
};

#define REDIS_NODES 3

struct redis_cluster {
	struct redis_server nodes[REDIS_NODES];
};

/* That of store.h. */
extern struct redis_server store_redis_server;

/* The main() of these tests: all of them are skipped where there is no redis-server. */
int redis_rig_main(Suite *suite);

/* Starts and waits until it answers. @extra: up to 4 words, NULL-terminated, or NULL. */
void redis_start(struct redis_server *s, const char *const *extra);
/* The same port and options, no data. */
void redis_restart(struct redis_server *s);
/* SIGKILL, and reaped. */
void redis_kill(struct redis_server *s);
void redis_freeze(struct redis_server *s);
void redis_thaw(struct redis_server *s);

/* One command; fails the test unless there is an answer, and on an error reply. Freed by the caller. */
__attribute__((format(printf, 2, 3))) redisReply *redis_do(struct redis_server *s, const char *format, ...);
/* The same, for what must be OK, or a number. */
__attribute__((format(printf, 2, 3))) void redis_ok(struct redis_server *s, const char *format, ...);
__attribute__((format(printf, 2, 3))) long long redis_number(struct redis_server *s, const char *format, ...);
/* SET of any bytes. */
void redis_set(struct redis_server *s, const char *key, const void *value, size_t len);

/* Three masters that serve all slots and know each other; a third of the slots each. */
void redis_cluster_start(struct redis_cluster *c);
void redis_cluster_kill(struct redis_cluster *c);
/* Which node serves a slot, as the nodes see it; the slot of a key as the servers compute it. */
uint32_t redis_cluster_owner(struct redis_cluster *c, uint16_t slot);
uint16_t redis_cluster_slot(struct redis_cluster *c, const char *key);
/* Begin to move a slot: new keys are asked for at @to, old ones are still at @from. */
void redis_cluster_open_move(struct redis_cluster *c, uint16_t slot, uint32_t from, uint32_t to);
/* Move the keys. */
void redis_cluster_migrate(struct redis_cluster *c, uint16_t slot, uint32_t from, uint32_t to);
/* The slot is @to's. */
void redis_cluster_close_move(struct redis_cluster *c, uint16_t slot, uint32_t to);

/* A port that somebody else than redis listens on: accepts, and never reads or answers. Ends with the process. */
uint16_t redis_deaf_listener(int *ret_fd);
