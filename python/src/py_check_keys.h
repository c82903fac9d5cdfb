/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kvscout_py.h"

struct scout_server_config;

/* A method of the module, METH_VARARGS | METH_KEYWORDS. */
PyObject *scout__py_check_keys(PyObject *module, PyObject *args, PyObject *kwargs);
extern const char scout__py_check_keys_doc[];

/* What start would refuse in @cfg, as an exception of @call: 0, or -1. */
int scout__py_check_server(struct scout__py_state *state, const char *call, const struct scout_server_config *cfg);
