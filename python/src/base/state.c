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

int
scout__py_add_type(PyObject *module, enum scout__py_type which, PyType_Spec *spec, const char *name)
{
	struct scout__py_state *state = scout__py_state_of(module);
	PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);

	state->types[which] = (PyTypeObject *)type;
	if (!type)
		return -1;
	return name ? PyModule_AddObjectRef(module, name, type) : 0;
}
