/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_LOOP_H
#define SCOUT_SERVER_LOOP_H

#include "thread.h"

SCOUT_ON_ANY void *scout__loop_main(void *arg);

#endif
