/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "l2_fault.h"

/* From now on @disk rules over what lies below @folder. Not while an adapter is open. */
void l2_fault_disk_init(const char *folder, struct l2_fault_disk *disk);
/* Over nothing, before the library that has this code is unloaded. */
void l2_fault_disk_fini(void);
