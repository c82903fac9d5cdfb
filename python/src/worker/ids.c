/* SPDX-License-Identifier: Apache-2.0 */
#include "ids.h"

#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

void
scout__py_ids_release(struct scout__py_ids *ids)
{
	if (ids->has_view)
		PyBuffer_Release(&ids->view);
	ids->has_view = false;
	ids->ids = NULL;
	ids->n = 0;
}

void
scout__py_ids_free(struct scout__py_ids *ids)
{
	scout__py_ids_release(ids);
	free(ids->own);
	*ids = (struct scout__py_ids){0};
}

static int
reserve(struct scout__py_ids *ids, size_t n)
{
	int64_t *grown;

	if (n <= ids->room)
		return 0;
	grown = n <= SIZE_MAX / 2 / sizeof(*grown) ? realloc(ids->own, n * sizeof(*grown)) : NULL;
	if (!grown)
		return SCOUT__PY_FAILED(PyErr_NoMemory());
	ids->own = grown;
	ids->room = n;
	return 0;
}

/* An item that is no int of 64 bits; the exception of its conversion is set. */
static int
refuse_item(struct scout__py_state *state, const char *call, const char *name, Py_ssize_t i, PyObject *item)
{
	if (PyErr_ExceptionMatches(PyExc_TypeError)) {
		PyErr_Clear();
		PyErr_Format(PyExc_TypeError, "%s(): %s[%zd] must be an int, not %.80R", call, name, i, item);
	} else if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
		PyErr_Clear();
		scout__py_raise(state, SCOUT_ERR_INVALID, "%s(): %s[%zd] must be an int of 64 bits, not %.80R", call,
				name, i, item);
	}
	return -1;
}

/* @items is a list or a tuple. An item's __index__() may change the list, so each access is one that checks. */
static int
read_items(struct scout__py_state *state, const char *call, const char *name, PyObject *items,
	   struct scout__py_ids *ids)
{
	bool is_tuple = PyTuple_Check(items);
	Py_ssize_t n = is_tuple ? PyTuple_Size(items) : PyList_Size(items);

	if (reserve(ids, (size_t)n) < 0)
		return -1;
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = is_tuple ? PyTuple_GetItem(items, i) : PyList_GetItem(items, i);
		long long value;

		if (!item)
			return -1;
		Py_INCREF(item);
		value = -1;
		if (scout__py_is_int(item))
			value = PyLong_AsLongLong(item);
		else
			PyErr_SetNone(PyExc_TypeError);
		if (value == -1 && PyErr_Occurred()) {
			int rc = refuse_item(state, call, name, i, item);

			Py_DECREF(item);
			return rc;
		}
		Py_DECREF(item);
		ids->own[i] = value;
	}
	ids->ids = ids->own;
	ids->n = (size_t)n;
	return 0;
}

/* The size of a signed integer in native order; 0: something else. */
static size_t
int_size(const Py_buffer *view)
{
	const char *format = view->format ? view->format : "B";

	if (*format == '@' || *format == '=' || *format == '<')
		format++;
	return strlen(format) == 1 && strchr("ilq", *format) && (view->itemsize == 4 || view->itemsize == 8)
		       ? (size_t)view->itemsize
		       : 0;
}

static int
read_buffer(struct scout__py_state *state, const char *call, const char *name, PyObject *object,
	    struct scout__py_ids *ids)
{
	if (PyObject_GetBuffer(object, &ids->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
		if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError))
			return -1;
		PyErr_Clear();
		return SCOUT__PY_FAILED(scout__py_raise(state, SCOUT_ERR_INVALID,
							"%s(): %s must be a buffer without gaps, not %.80R", call, name,
							object));
	}
	ids->has_view = true;
	if (ids->view.ndim != 1 || int_size(&ids->view) == 0)
		return SCOUT__PY_FAILED(scout__py_raise(
			state, SCOUT_ERR_INVALID,
			"%s(): %s must be a list of ints, or a buffer of int64 or int32 with one dimension, not format '%s' "
			"with %d",
			call, name, ids->view.format ? ids->view.format : "B", ids->view.ndim));
	ids->n = (size_t)ids->view.len / (size_t)ids->view.itemsize;
	if (ids->view.itemsize == 8 && (uintptr_t)ids->view.buf % _Alignof(int64_t) == 0) {
		ids->ids = ids->view.buf;
		return 0;
	}
	if (reserve(ids, ids->n) < 0)
		return -1;
	if (ids->view.itemsize == 8) {
		memcpy(ids->own, ids->view.buf, ids->n * sizeof(*ids->own));
	} else {
		for (size_t i = 0; i < ids->n; i++) {
			int32_t id;

			memcpy(&id, (const uint8_t *)ids->view.buf + i * sizeof(id), sizeof(id));
			ids->own[i] = id;
		}
	}
	ids->ids = ids->own;
	return 0;
}

int
scout__py_ids_read(struct scout__py_state *state, const char *call, const char *name, PyObject *list,
		   struct scout__py_ids *ids)
{
	scout__py_ids_release(ids);
	if (PyList_Check(list) || PyTuple_Check(list))
		return read_items(state, call, name, list, ids);
	if (PyObject_CheckBuffer(list))
		return read_buffer(state, call, name, list, ids);
	if (PySequence_Check(list) && !PyUnicode_Check(list)) {
		PyObject *items = PySequence_List(list);
		int rc = items ? read_items(state, call, name, items, ids) : -1;

		Py_XDECREF(items);
		return rc;
	}
	return SCOUT__PY_FAILED(PyErr_Format(PyExc_TypeError,
					     "%s(): %s must be a list of ints or a buffer of int64 or int32, not %.80R",
					     call, name, list));
}
