/* SPDX-License-Identifier: Apache-2.0 */
/* The module's state, and the types in it. */
#include "kvscout_py.h"

struct scout__py_state *
scout__py_state_of(PyObject *module)
{
	return PyModule_GetState(module);
}

struct scout__py_state *
scout__py_state_of_type(PyTypeObject *type)
{
	return PyType_GetModuleState(type);
}

PyObject *
scout__py_counters(const void *values, const struct scout__py_counter *rows, size_t n)
{
	PyObject *dict = PyDict_New();

	for (size_t i = 0; dict && i < n; i++) {
		PyObject *number = PyLong_FromUnsignedLongLong(*(const uint64_t *)((const char *)values + rows[i].at));

		if (!number || PyDict_SetItemString(dict, rows[i].name, number) < 0)
			Py_CLEAR(dict);
		Py_XDECREF(number);
	}
	return dict;
}
