/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Exceptions. Each has the code's number and name, its scope, and whether the same call may succeed later; the classes are made after
 * what a caller does about it: a wrong argument is the caller's bug, a busy client is asked again at the next step, a closed one is
 * made anew, a server's refusal waits for an operator. What fits none of these is the base class.
 *
 * Wrong types are Python's own TypeError. ArgumentError is a ValueError, too, so code that knows nothing of kvscout handles it.
 */
#include "kvscout_py.h"

#include <stdarg.h>
#include <stddef.h>

#include <kvscout/error.h>

struct error_class {
	const char *name; /* with the module in front of it */
	enum scout__py_error_class base;
	const char *doc;
};

static const struct error_class classes[SCOUT__PY_ERRORS] = {
	[SCOUT__PY_ERROR] =
		{"kvscout.KVScoutError", SCOUT__PY_ERROR,
		 "An error of the library.\n\n"
		 "code: the number of the code, negative and fixed for ever.\n"
		 "name: its name, for example 'SCOUT_ERR_BUSY'.\n"
		 "scope: what is in doubt: 'call' (nothing but this call), 'request', 'connection', 'client'\n"
		 "(the whole object) or 'device'.\n"
		 "retriable: whether the same call may succeed later without a change by the caller.\n\n"
		 "docs/errors.md lists all codes."},
	[SCOUT__PY_ARGUMENT_ERROR] =
		{"kvscout.ArgumentError", SCOUT__PY_ERROR,
		 "An argument has a value that is not allowed; the text names it. Also a ValueError."},
	[SCOUT__PY_CONFIG_ERROR] = {"kvscout.ConfigError", SCOUT__PY_ARGUMENT_ERROR,
				    "A configuration key is unknown, or its value is not allowed."},
	[SCOUT__PY_BUSY_ERROR] =
		{"kvscout.BusyError", SCOUT__PY_ERROR,
		 "A queue or table of this object is full; nothing was done. Ask again at the next step."},
	[SCOUT__PY_CLOSED_ERROR] = {"kvscout.ClosedError", SCOUT__PY_ERROR,
				    "The object was closed, or it was made in another process (before a fork)."},
	[SCOUT__PY_STATE_ERROR] =
		{"kvscout.StateError", SCOUT__PY_ERROR,
		 "The call is not legal now; the text says why. Also: another thread is using the object."},
	[SCOUT__PY_SERVER_ERROR] = {"kvscout.ServerError", SCOUT__PY_ERROR,
				    "A server cannot be reached, or it refused."},
};

static enum scout__py_error_class
class_of(int code)
{
	switch (code) {
	case SCOUT_ERR_INVALID:
	case SCOUT_ERR_UNSUPPORTED:
	case SCOUT_ERR_REQUEST_ID:
	case SCOUT_ERR_HASH_LEN:
	case SCOUT_ERR_TENANT:
	case SCOUT_ERR_BLOCK_ID:
	case SCOUT_ERR_GROUP:
	case SCOUT_ERR_KEY_COUNT:
		return SCOUT__PY_ARGUMENT_ERROR;
	case SCOUT_ERR_CONFIG_KEY:
	case SCOUT_ERR_CONFIG_RANGE:
	case SCOUT_ERR_CONFIG_SYNTAX:
	case SCOUT_ERR_FORMAT:
	case SCOUT_ERR_GROUP_LIMIT:
	case SCOUT_ERR_POOL_SIZE:
		return SCOUT__PY_CONFIG_ERROR;
	case SCOUT_ERR_BUSY:
		return SCOUT__PY_BUSY_ERROR;
	case SCOUT_ERR_CLOSED:
	case SCOUT_ERR_FORKED:
		return SCOUT__PY_CLOSED_ERROR;
	case SCOUT_ERR_STATE:
	case SCOUT_ERR_NOT_REGISTERED:
		return SCOUT__PY_STATE_ERROR;
	default:
		return scout_err_scope(code) == SCOUT_SCOPE_CONNECTION ? SCOUT__PY_SERVER_ERROR : SCOUT__PY_ERROR;
	}
}

static const char *
scope_name(int code)
{
	static const char *const names[] = {
		[SCOUT_SCOPE_CALL] = "call",
		[SCOUT_SCOPE_REQUEST] = "request",
		[SCOUT_SCOPE_CONNECTION] = "connection",
		[SCOUT_SCOPE_CLIENT] = "client",
		[SCOUT_SCOPE_DEVICE] = "device",
	};
	int scope = scout_err_scope(code);

	return scope > 0 ? names[scope] : "";
}

/* The class's attributes until an instance has its own, so that one made by Python code has them, too. */
static PyObject *
defaults(void)
{
	return Py_BuildValue("{s:i,s:s,s:s,s:O}", "code", 0, "name", "", "scope", "", "retriable", Py_False);
}

/* KVScoutError is an Exception; ArgumentError a ValueError besides. */
static PyObject *
bases_of(struct scout__py_state *state, enum scout__py_error_class which)
{
	if (which == SCOUT__PY_ERROR)
		return Py_BuildValue("(O)", PyExc_Exception);
	if (which == SCOUT__PY_ARGUMENT_ERROR)
		return Py_BuildValue("(OO)", state->errors[SCOUT__PY_ERROR], PyExc_ValueError);
	return Py_BuildValue("(O)", state->errors[classes[which].base]);
}

int
scout__py_errors_add(PyObject *module)
{
	struct scout__py_state *state = scout__py_state_of(module);

	for (int i = 0; i < SCOUT__PY_ERRORS; i++) {
		PyObject *bases = bases_of(state, i), *dict = i == SCOUT__PY_ERROR ? defaults() : NULL;

		if (bases && (dict || i != SCOUT__PY_ERROR))
			state->errors[i] = PyErr_NewExceptionWithDoc(classes[i].name, classes[i].doc, bases, dict);
		Py_XDECREF(bases);
		Py_XDECREF(dict);
		if (!state->errors[i] ||
		    PyModule_AddObjectRef(module, classes[i].name + sizeof("kvscout.") - 1, state->errors[i]) < 0)
			return -1;
	}
	return 0;
}

/* Steals @value, which may be NULL. */
static int
set_attribute(PyObject *object, const char *name, PyObject *value)
{
	int rc = value ? PyObject_SetAttrString(object, name, value) : -1;

	Py_XDECREF(value);
	return rc;
}

/* The exception of @code with @text, which is stolen and may be NULL. */
static PyObject *
make(struct scout__py_state *state, int code, PyObject *text)
{
	const char *name = scout_err_name(code);
	PyObject *whole = text ? PyUnicode_FromFormat("%U (%s, %d)", text, name, code) : NULL, *error = NULL;

	if (whole)
		error = PyObject_CallFunctionObjArgs(state->errors[class_of(code)], whole, NULL);
	Py_XDECREF(text);
	Py_XDECREF(whole);
	if (error && (set_attribute(error, "code", PyLong_FromLong(code)) < 0 ||
		      set_attribute(error, "name", PyUnicode_FromString(name)) < 0 ||
		      set_attribute(error, "scope", PyUnicode_FromString(scope_name(code))) < 0 ||
		      set_attribute(error, "retriable", PyBool_FromLong(scout_err_is_retriable(code))) < 0)) {
		Py_DECREF(error);
		return NULL;
	}
	return error;
}

static PyObject *
raise_text(struct scout__py_state *state, int code, PyObject *text)
{
	PyObject *error = make(state, code, text);

	if (error) {
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
		Py_DECREF(error);
	}
	return NULL;
}

PyObject *
scout__py_raise(struct scout__py_state *state, int code, const char *format, ...)
{
	PyObject *text;
	va_list ap;

	va_start(ap, format);
	text = format ? PyUnicode_FromFormatV(format, ap) : PyUnicode_FromString(scout_strerror(code));
	va_end(ap);
	return raise_text(state, code, text);
}

PyObject *
scout__py_raise_call(struct scout__py_state *state, int code, const char *call, PyObject *id)
{
	const char *sentence = scout_strerror(code);

	return raise_text(state, code,
			  id ? PyUnicode_FromFormat("%s(%R): %s", call, id, sentence)
			     : PyUnicode_FromFormat("%s(): %s", call, sentence));
}

PyObject *
scout__py_error_make(struct scout__py_state *state, int code, const char *format, ...)
{
	PyObject *text;
	va_list ap;

	va_start(ap, format);
	text = PyUnicode_FromFormatV(format, ap);
	va_end(ap);
	return make(state, code, text);
}

/* The number of a code, for the two functions below. */
static int
code_of(PyObject *arg, const char *call, int *ret)
{
	int overflow = 0;
	long code;

	if (!PyLong_Check(arg) || PyBool_Check(arg))
		return SCOUT__PY_FAILED(PyErr_Format(PyExc_TypeError, "%s(): code must be an int, not %R", call, arg));
	code = PyLong_AsLongAndOverflow(arg, &overflow);
	*ret = overflow != 0 || code < INT32_MIN || code > INT32_MAX ? INT32_MIN : (int)code;
	return 0;
}

PyObject *
scout__py_error_of(PyObject *module, PyObject *const *args, Py_ssize_t n)
{
	int code;

	if (n < 1 || n > 2) {
		PyErr_Format(PyExc_TypeError, "error_of() takes a code and optionally a text, not %zd arguments", n);
		return NULL;
	}
	if (code_of(args[0], "error_of", &code) < 0)
		return NULL;
	if (n == 2 && !PyUnicode_Check(args[1])) {
		PyErr_Format(PyExc_TypeError, "error_of(): text must be a str, not %R", args[1]);
		return NULL;
	}
	return make(scout__py_state_of(module), code,
		    n == 2 ? Py_NewRef(args[1]) : PyUnicode_FromString(scout_strerror(code)));
}

PyObject *
scout__py_error_name(PyObject *module, PyObject *arg)
{
	int code;

	(void)module;
	if (code_of(arg, "error_name", &code) < 0)
		return NULL;
	return PyUnicode_FromString(scout_err_name(code));
}
