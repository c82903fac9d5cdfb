/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_floor.h"

#include <stddef.h>

const struct l2_floor *const l2_floors[] = {
	&l2_floor_fs,
	NULL,
};
