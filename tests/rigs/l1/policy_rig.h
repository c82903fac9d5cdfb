/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "chunk_index.h"

/*
 * A policy without a chunk index: entries as the chunk index would have them, driven by hand. One to a test: each is a
 * process of its own (Check forks).
 */

#define RIG_MAX_ENTRIES 4096u

extern struct scout__entry rig_entries[RIG_MAX_ENTRIES];
extern const struct scout__evict_ops *rig_ops;
extern void *rig_state;
extern uint64_t rig_random;
void rig_open(const char *text, uint32_t n);
void rig_close(void);
uint64_t rig_draw(uint64_t below);
void rig_set_key(struct scout__entry *entry, uint32_t key);
void rig_create(uint32_t entry, uint32_t key);
void rig_pin(uint32_t entry);
void rig_unpin(uint32_t entry);
void rig_drop(uint32_t entry);
void rig_read(uint32_t entry);
void rig_stored(uint32_t entry);

/* Evict everything; the order must be @expected. */
void rig_expect(const uint32_t *expected, uint32_t n);
