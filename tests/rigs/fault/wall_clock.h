/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* From now on the wall clock of this process is @seconds off. */
void wall_clock_jump(long seconds);
