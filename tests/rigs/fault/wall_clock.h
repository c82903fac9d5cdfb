/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_WALL_CLOCK_H
#define KVSCOUT_TESTS_WALL_CLOCK_H

/* From now on the wall clock of this process is @seconds off. */
void wall_clock_jump(long seconds);

#endif
