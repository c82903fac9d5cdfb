/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_PY_ENSURE_SERVER_H
#define SCOUT_PY_ENSURE_SERVER_H

#include "kvscout_py.h"

/* A method of the module, METH_VARARGS | METH_KEYWORDS. */
PyObject *scout__py_ensure_server(PyObject *module, PyObject *args, PyObject *kwargs);
extern const char scout__py_ensure_server_doc[];

#endif
