/* SPDX-License-Identifier: Apache-2.0 */
#include "host_gate.h"

#include <stdatomic.h>

#include "copy.h"

static atomic_int passes = -1; /* items that may still pass; negative: all */
static atomic_int looks;
static atomic_bool armed;

bool
host_gate(void *user)
{
	int left = atomic_load(&passes);

	(void)user;
	while (left > 0)
		if (atomic_compare_exchange_weak(&passes, &left, left - 1))
			return false;
	if (left == 0 && atomic_load(&armed) && atomic_fetch_add(&looks, 1) > HOST_GATE_LOOKS)
		host_gate_open();
	return !host_gate_is_open();
}

void
host_gate_shut(void)
{
	struct scout__copy_faults faults = {.gate = host_gate};

	atomic_store(&looks, 0);
	atomic_store(&armed, false);
	atomic_store(&passes, 0);
	scout__copy_host_faults(&faults);
}

void
host_gate_pass(int n_items)
{
	atomic_fetch_add(&passes, n_items);
}

void
host_gate_arm(void)
{
	atomic_store(&armed, true);
}

void
host_gate_open(void)
{
	atomic_store(&passes, -1);
}

bool
host_gate_is_open(void)
{
	return host_gate_passes() < 0;
}

int
host_gate_passes(void)
{
	return atomic_load(&passes);
}
