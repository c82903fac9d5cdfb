/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>

/*
 * Holds the copies of the host backend before their first byte. Shut, it lets a number of items pass (an item is one chunk of one
 * layer); it opens when the test says so, or by itself after HOST_GATE_LOOKS looks once it is armed: then a call that waits for
 * copies has had every chance to return too early.
 */

#define HOST_GATE_LOOKS 200

/* For the gate in scout__copy_faults. */
bool host_gate(void *user);

/* Makes this gate the backend's only fault, and shuts it. */
void host_gate_shut(void);
void host_gate_pass(int n_items);
void host_gate_arm(void);
void host_gate_open(void);
bool host_gate_is_open(void);

/* Items that may still pass; negative: all. */
int host_gate_passes(void);
