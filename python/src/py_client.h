/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_PY_CLIENT_H
#define SCOUT_PY_CLIENT_H

#include "kvscout_py.h"
#include "lifetime.h"
#include "use.h"

struct scout_client;

/* A kvscout.Client. G:GIL, all of it; `client` is NULL once it is closed. */
struct scout__py_client {
	PyObject_HEAD struct scout__py_state *state;
	struct scout_client *client;
	struct scout__py_use use;
	struct scout__py_open open;
};

#endif
