/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Keyword arguments of a constructor become calls of scout_*_config_set(), so the library's table of options is the only one: names,
 * ranges and error sentences are the library's. What is decided here is how a Python value is written:
 *
 *   str           as it stands             int           decimal
 *   bool          true or false            os.PathLike   its path
 *   None          the default (not set)    list, tuple   of the keys in `lists` below only
 *
 * A float is refused: no key takes one, and 0.5 must not silently become 0.
 */
#include "kvscout_py.h"

#include <stddef.h>
#include <string.h>

#include <kvscout/error.h>

#define ERR_BYTES 512

/* Keys that hold several values. NUL: each is set by itself, which adds to those before it; else what is between them. */
static const struct {
	const char *key;
	char between;
} lists[] = {{"endpoint", '\0'}, {"l2", '\0'}, {"group", '\0'}, {"server_keys", '\0'}, {"cpus", ','}};

static PyObject *
type_error(const char *type_name, PyObject *key, PyObject *value, bool is_list)
{
	PyErr_Format(PyExc_TypeError, "%s(): %U must be a str, int, bool, path or None%s, not %R", type_name, key,
		     is_list ? ", or a list of these" : "", value);
	return NULL;
}

/* The value as text, a new reference; NULL with an exception. @value is neither None nor a list. */
static PyObject *
text_of(const char *type_name, PyObject *key, PyObject *value, bool is_list)
{
	PyObject *path;

	if (PyUnicode_Check(value))
		return Py_NewRef(value);
	if (PyBool_Check(value))
		return PyUnicode_FromString(value == Py_True ? "true" : "false"); /* a number takes neither */
	if (PyLong_Check(value))
		return PyObject_Str(value);
	if (PyObject_HasAttrString(value, "__fspath__")) {
		path = PyOS_FSPath(value);
		if (path && PyBytes_Check(path)) {
			PyObject *decoded = PyUnicode_DecodeFSDefault(PyBytes_AsString(path));

			Py_DECREF(path);
			return decoded;
		}
		return path;
	}
	if (PyIndex_Check(value)) { /* numpy's integers */
		PyObject *number = PyNumber_Index(value), *text = number ? PyObject_Str(number) : NULL;

		Py_XDECREF(number);
		return text;
	}
	return type_error(type_name, key, value, is_list);
}

/* The library's setter with @text, whose sentence becomes the exception's. */
static int
set_text(struct scout__py_state *state, const char *type_name, PyObject *key, PyObject *text, scout__py_set_fn set,
	 void *cfg)
{
	Py_ssize_t len;
	const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
	const char *value = name ? PyUnicode_AsUTF8AndSize(text, &len) : NULL;
	char err[ERR_BYTES] = "";
	int rc;

	if (!value)
		return -1;
	if (strlen(value) != (size_t)len)
		return SCOUT__PY_FAILED(scout__py_raise(state, SCOUT_ERR_CONFIG_SYNTAX,
							"%s(): %U = %R: must not hold a NUL character", type_name, key,
							text));
	rc = set(cfg, name, value, err, sizeof(err));
	if (rc != 0)
		scout__py_raise(state, rc, "%s(): %s", type_name, err[0] ? err : scout_strerror(rc));
	return rc == 0 ? 0 : -1;
}

static int
set_one(struct scout__py_state *state, const char *type_name, PyObject *key, PyObject *value, scout__py_set_fn set,
	void *cfg)
{
	PyObject *text = text_of(type_name, key, value, false);
	int rc = text ? set_text(state, type_name, key, text, set, cfg) : -1;

	Py_XDECREF(text);
	return rc;
}

/* The items as texts: a new list. */
static PyObject *
texts_of(const char *type_name, PyObject *key, PyObject *items)
{
	PyObject *texts = PyList_New(0);
	Py_ssize_t n = PySequence_Size(items);

	for (Py_ssize_t i = 0; texts && i < n; i++) {
		PyObject *item = PySequence_GetItem(items, i);
		PyObject *text = item ? text_of(type_name, key, item, true) : NULL;

		if (!text || PyList_Append(texts, text) < 0)
			Py_CLEAR(texts);
		Py_XDECREF(item);
		Py_XDECREF(text);
	}
	return texts;
}

static int
set_list(struct scout__py_state *state, const char *type_name, PyObject *key, PyObject *items, scout__py_set_fn set,
	 void *cfg)
{
	PyObject *texts, *between, *joined;
	size_t at = 0;
	int rc = 0;

	while (at < sizeof(lists) / sizeof(lists[0]) && PyUnicode_CompareWithASCIIString(key, lists[at].key) != 0)
		at++;
	if (at == sizeof(lists) / sizeof(lists[0]))
		return SCOUT__PY_FAILED(type_error(type_name, key, items, false));
	texts = texts_of(type_name, key, items);
	if (!texts)
		return -1;
	if (lists[at].between) {
		between = PyUnicode_FromFormat("%c", lists[at].between);
		joined = between ? PyUnicode_Join(between, texts) : NULL;
		rc = joined ? set_text(state, type_name, key, joined, set, cfg) : -1;
		Py_XDECREF(between);
		Py_XDECREF(joined);
	}
	for (Py_ssize_t i = 0; !lists[at].between && rc == 0 && i < PyList_Size(texts); i++)
		rc = set_text(state, type_name, key, PyList_GetItem(texts, i), set, cfg);
	Py_DECREF(texts);
	return rc;
}

int
scout__py_config_apply(struct scout__py_state *state, const char *type_name, PyObject *args, PyObject *kwargs,
		       scout__py_set_fn set, void *cfg)
{
	PyObject *key, *value;
	Py_ssize_t at = 0;

	if (PyTuple_Size(args) != 0)
		return SCOUT__PY_FAILED(PyErr_Format(
			PyExc_TypeError,
			"%s() takes configuration keys by name only, as %s(endpoint='ipc:///run/kvscout.sock')",
			type_name, type_name));
	while (kwargs && PyDict_Next(kwargs, &at, &key, &value)) {
		int rc;

		if (value == Py_None)
			continue;
		if (PyList_Check(value) || PyTuple_Check(value))
			rc = set_list(state, type_name, key, value, set, cfg);
		else
			rc = set_one(state, type_name, key, value, set, cfg);
		if (rc < 0)
			return -1;
	}
	return 0;
}
