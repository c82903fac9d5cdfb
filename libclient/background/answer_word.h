/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "client_internal.h"

/* Courier: the slot's answer was just set; wake the caller if it sleeps on the slot. Makes a system call only then. */
void scout__answer_wake(struct scout__lookup_slot *slot) SCOUT_ON_COURIER;

/* Caller: wait for the answer until @until_us at the latest. Returns whether the answer is there. */
bool scout__answer_await(const struct scout_client *client, struct scout__lookup_slot *slot, uint64_t until_us);
