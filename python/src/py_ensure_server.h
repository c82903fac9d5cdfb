/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kvscout_py.h"

/* A method of the module, METH_VARARGS | METH_KEYWORDS. */
PyObject *scout__py_ensure_server(PyObject *module, PyObject *args, PyObject *kwargs);
extern const char scout__py_ensure_server_doc[];
