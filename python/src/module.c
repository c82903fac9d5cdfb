/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The module kvscout._kvscout: its state, functions and types. Each type's file adds its own (scout__py_*_add()).
 *
 * One interpreter: the library's objects have threads, and what a second interpreter in the same process makes of use after fork, of
 * interpreter exit and of the log is not tested, so import is refused there with a sentence. Importing the module a second time in
 * the same interpreter makes a second module with types of its own, as for any module written in Python.
 */
#include "kvscout_py.h"

#include <inttypes.h>

#include <kvscout/version.h>

#include "lifetime.h"

/* What each type's file adds, in this order. */
static int (*const parts[])(PyObject *module) = {
	scout__py_errors_add, scout__py_hit_add,    scout__py_step_add,
	scout__py_client_add, scout__py_server_add, scout__py_lifetime_add,
};

static int
refuse_subinterpreter(void)
{
	int64_t id = PyInterpreterState_GetID(PyInterpreterState_Get());

	if (id == 0)
		return 0;
	if (id > 0)
		PyErr_SetString(PyExc_ImportError,
				"kvscout cannot be imported in a subinterpreter; import it in the main one");
	return -1;
}

static int
exec(PyObject *module)
{
	if (refuse_subinterpreter() < 0)
		return -1;
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i](module) < 0)
			return -1;
	return PyModule_AddStringConstant(module, "__version__", scout_version());
}

static int
traverse(PyObject *module, visitproc visit, void *arg)
{
	struct scout__py_state *state = scout__py_state_of(module);

	for (int i = 0; state && i < SCOUT__PY_ERRORS; i++)
		Py_VISIT(state->errors[i]);
	for (int i = 0; state && i < SCOUT__PY_TYPES; i++)
		Py_VISIT(state->types[i]);
	return 0;
}

static int
clear(PyObject *module)
{
	struct scout__py_state *state = scout__py_state_of(module);

	for (int i = 0; state && i < SCOUT__PY_ERRORS; i++)
		Py_CLEAR(state->errors[i]);
	for (int i = 0; state && i < SCOUT__PY_TYPES; i++)
		Py_CLEAR(state->types[i]);
	return 0;
}

static void
free_state(void *module)
{
	(void)clear(module);
}

PyDoc_STRVAR(error_of_doc,
	     "error_of(code, text=..., /)\n--\n\n"
	     "The exception that belongs to a code, such as Done.status or Hit.error: raise error_of(done.status).\n\n"
	     "code: a negative number of docs/errors.md. text: instead of the library's sentence.");
PyDoc_STRVAR(error_name_doc,
	     "error_name(code, /)\n--\n\n"
	     "The name of a code: 'SCOUT_ERR_BUSY' for -3, 'SCOUT_OK' for 0, 'SCOUT_ERR_?' for an unknown one.");

static PyMethodDef functions[] = {
	{"error_of", SCOUT__PY_METHOD(scout__py_error_of), METH_FASTCALL, error_of_doc},
	{"error_name", scout__py_error_name, METH_O, error_name_doc},
	{0},
};

static PyModuleDef_Slot slots[] = {
	{Py_mod_exec, (void *)exec},
	{0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "_kvscout",
	.m_doc = "kvscout's C library for Python; import kvscout.",
	.m_size = sizeof(struct scout__py_state),
	.m_methods = functions,
	.m_slots = slots,
	.m_traverse = traverse,
	.m_clear = clear,
	.m_free = free_state,
};

PyMODINIT_FUNC PyInit__kvscout(void);

PyMODINIT_FUNC
PyInit__kvscout(void)
{
	return PyModuleDef_Init(&definition);
}
