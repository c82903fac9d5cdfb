/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Arguments of calls, by hand: PyArg_ParseTupleAndKeywords() needs a tuple and a dictionary, which METH_FASTCALL exists to avoid, and
 * its error texts do not say what is allowed. Names are compared only where a caller uses them.
 */
#include "kvscout_py.h"

#include <stddef.h>
#include <string.h>

#include <kvscout/error.h>

int
scout__py_arg_find(const struct scout__py_signature *sig, PyObject *name)
{
	for (uint32_t i = 0; i < sig->n; i++)
		if (PyUnicode_CompareWithASCIIString(name, sig->names[i]) == 0)
			return (int)i;
	return -1;
}

static int
take_keywords(const struct scout__py_signature *sig, PyObject *const *values, PyObject *kwnames, PyObject *ret[])
{
	Py_ssize_t n = PyTuple_Size(kwnames);

	for (Py_ssize_t k = 0; k < n; k++) {
		PyObject *name = PyTuple_GetItem(kwnames, k);
		int i = scout__py_arg_find(sig, name);

		if (i < 0)
			return SCOUT__PY_FAILED(
				PyErr_Format(PyExc_TypeError, "%s() has no argument named %R", sig->call, name));
		if (ret[i])
			return SCOUT__PY_FAILED(
				PyErr_Format(PyExc_TypeError, "%s() got %s twice", sig->call, sig->names[i]));
		ret[i] = values[k];
	}
	return 0;
}

int
scout__py_args(const struct scout__py_signature *sig, PyObject *const *args, Py_ssize_t n, PyObject *kwnames,
	       PyObject *ret[])
{
	if (n > (Py_ssize_t)sig->n_positional)
		return SCOUT__PY_FAILED(PyErr_Format(PyExc_TypeError,
						     "%s() takes at most %d arguments by position, not %zd", sig->call,
						     (int)sig->n_positional, n));
	for (Py_ssize_t i = 0; i < n; i++)
		ret[i] = args[i];
	for (Py_ssize_t i = n; i < (Py_ssize_t)sig->n; i++)
		ret[i] = NULL;
	if (kwnames && take_keywords(sig, args + n, kwnames, ret) < 0)
		return -1;
	for (uint32_t i = 0; i < sig->n_required; i++)
		if (!ret[i])
			return SCOUT__PY_FAILED(
				PyErr_Format(PyExc_TypeError, "%s() needs the argument %s", sig->call, sig->names[i]));
	return 0;
}

int
scout__py_arg_type_error(const struct scout__py_signature *sig, uint32_t i, PyObject *arg, const char *allowed)
{
	PyObject *type = PyType_GetName(Py_TYPE(arg));

	if (type)
		PyErr_Format(PyExc_TypeError, "%s(): %s must be %s, not %.80R (%U)", sig->call, sig->names[i], allowed,
			     arg, type);
	Py_XDECREF(type);
	return -1;
}

int
scout__py_arg_value_error(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i,
			  PyObject *arg, const char *allowed)
{
	return SCOUT__PY_FAILED(scout__py_raise(state, SCOUT_ERR_INVALID, "%s(): %s must be %s, not %.80R", sig->call,
						sig->names[i], allowed, arg));
}

bool
scout__py_is_int(PyObject *object)
{
	return PyLong_CheckExact(object) || (PyIndex_Check(object) && !PyBool_Check(object));
}

int
scout__py_u64(PyObject *object, uint64_t max, uint64_t *ret)
{
	PyObject *number = PyNumber_Index(object);
	unsigned long long value = number ? PyLong_AsUnsignedLongLong(number) : 0;

	if (!number)
		return -1;
	Py_DECREF(number);
	if (value == (unsigned long long)-1 && PyErr_Occurred()) { /* it is negative or too large */
		PyErr_Clear();
		return 0;
	}
	if (value > max)
		return 0;
	*ret = value;
	return 1;
}

int
scout__py_arg_u64(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
		  uint64_t max, uint64_t *ret)
{
	char allowed[48];
	int rc;

	if (!arg)
		return 0;
	if (!scout__py_is_int(arg))
		return scout__py_arg_type_error(sig, i, arg, "an int");
	rc = scout__py_u64(arg, max, ret);
	if (rc != 0)
		return rc < 0 ? -1 : 0;
	(void)PyOS_snprintf(allowed, sizeof(allowed), "0..%llu", (unsigned long long)max);
	return scout__py_arg_value_error(state, sig, i, arg, allowed);
}

int
scout__py_arg_version(struct scout__py_state *state, const struct scout__py_signature *sig, PyObject *arg,
		      uint64_t *ret)
{
	if (scout__py_arg_u64(state, sig, 0, arg, UINT64_MAX, ret) < 0)
		return -1;
	return *ret > 0 ? 0 : scout__py_arg_value_error(state, sig, 0, arg, "1..2^64-1");
}

int
scout__py_arg_i64(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
		  int64_t *ret)
{
	int overflow = 0;
	PyObject *number;
	long long value;

	if (!arg)
		return 0;
	if (!scout__py_is_int(arg))
		return scout__py_arg_type_error(sig, i, arg, "an int");
	number = PyNumber_Index(arg);
	if (!number)
		return -1;
	value = PyLong_AsLongLongAndOverflow(number, &overflow);
	Py_DECREF(number);
	if (overflow != 0)
		return scout__py_arg_value_error(state, sig, i, arg, "-2^63..2^63-1");
	*ret = value;
	return 0;
}

int
scout__py_arg_text(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
		   const char **ret, size_t *ret_len)
{
	const char *text;
	Py_ssize_t len;

	if (!arg || arg == Py_None)
		return 0;
	if (!PyUnicode_Check(arg))
		return scout__py_arg_type_error(sig, i, arg, "a str");
	text = PyUnicode_AsUTF8AndSize(arg, &len);
	if (!text) {
		if (!PyErr_ExceptionMatches(PyExc_UnicodeError))
			return -1;
		PyErr_Clear();
		return scout__py_arg_value_error(state, sig, i, arg, "text that UTF-8 can hold (no lone surrogates)");
	}
	if (memchr(text, '\0', (size_t)len))
		return scout__py_arg_value_error(state, sig, i, arg, "without a NUL character");
	*ret = text;
	if (ret_len)
		*ret_len = (size_t)len;
	return 0;
}
