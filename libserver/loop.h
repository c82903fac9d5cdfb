/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "thread.h"

SCOUT_ON_ANY void *scout__loop_main(void *arg);
