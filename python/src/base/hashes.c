/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Hashes are taken in two steps: _take may run Python code, _gather does not, so what it finds is still there when the library is
 * called. A buffer whose hashes are all wanted is not copied.
 */
#include "hashes.h"

#include <string.h>

#include <kvscout/error.h>

static const char wanted[] = "a list or tuple of bytes, or a buffer (bytes, memoryview, numpy array)";

/* Whether a buffer is one of bytes, alone or several in an element: not of numbers, whose bytes are no hashes. */
static bool
is_bytes(const Py_buffer *view)
{
	size_t len = view->format ? strlen(view->format) : 0;

	return view->itemsize == 1 || (len > 0 && strchr("sx", view->format[len - 1]));
}

/* The stride must lead from the end of one chunk to the end of the next. */
int
scout__py_arg_stride(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
		     uint32_t hash_tokens, uint64_t *ret)
{
	if (scout__py_arg_u64(state, sig, i, arg, UINT32_MAX, ret) < 0)
		return -1;
	if (*ret > 0 && hash_tokens % *ret == 0)
		return 0;
	return SCOUT__PY_FAILED(scout__py_raise(
		state, SCOUT_ERR_INVALID,
		"%s(): %s must divide hash_tokens (by default chunk_tokens), which is %u: it is %u divided by the "
		"engine's block size, not %R",
		sig->call, sig->names[i], (unsigned)hash_tokens, (unsigned)hash_tokens, arg));
}

int
scout__py_hashes_take(const struct scout__py_signature *sig, uint32_t i, PyObject *arg, struct scout__py_hashes *hashes)
{
	*hashes = (struct scout__py_hashes){.is_list = PyList_Check(arg)};
	if (hashes->is_list || PyTuple_Check(arg)) {
		hashes->items = Py_NewRef(arg);
		return 0;
	}
	if (PyObject_CheckBuffer(arg)) {
		if (PyObject_GetBuffer(arg, &hashes->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0)
			return is_bytes(&hashes->view)
				       ? 0
				       : scout__py_arg_type_error(sig, i, arg, "of bytes, if it is a buffer");
		hashes->view.obj = NULL;
		if (!PyErr_ExceptionMatches(PyExc_BufferError))
			return -1;
		PyErr_Clear();
		return scout__py_arg_type_error(sig, i, arg, "contiguous, if it is a buffer");
	}
	/* An engine's own kind of list. */
	if (!PySequence_Check(arg) || PyUnicode_Check(arg) || PyDict_Check(arg))
		return scout__py_arg_type_error(sig, i, arg, wanted);
	hashes->items = PySequence_List(arg);
	hashes->is_list = true;
	return hashes->items ? 0 : -1;
}

static int
make_room(struct scout__py_hash_room *room, size_t bytes)
{
	uint8_t *bigger;

	if (bytes <= room->size)
		return 0;
	bigger = PyMem_Realloc(room->bytes, bytes * 2);
	if (!bigger)
		return SCOUT__PY_FAILED(PyErr_NoMemory());
	room->bytes = bigger;
	room->size = bytes * 2;
	return 0;
}

static int
item_error(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *item,
	   Py_ssize_t at, size_t hash_bytes)
{
	if (PyBytes_Check(item))
		return SCOUT__PY_FAILED(
			scout__py_raise(state, SCOUT_ERR_HASH_LEN,
					"%s(): %s[%zd] must have %d bytes (the configured hash_bytes), not %zd",
					sig->call, sig->names[i], at, (int)hash_bytes, PyBytes_Size(item)));
	return SCOUT__PY_FAILED(PyErr_Format(PyExc_TypeError, "%s(): %s[%zd] must be bytes, not %.80R", sig->call,
					     sig->names[i], at, item));
}

static int
gather_items(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i,
	     const struct scout__py_hashes *hashes, size_t stride, size_t len, uint8_t *to, size_t n)
{
	PyObject *(*get)(PyObject *, Py_ssize_t) = hashes->is_list ? PyList_GetItem : PyTuple_GetItem;

	for (size_t k = 0, at = stride - 1; k < n; k++, at += stride, to += len) {
		PyObject *item = get(hashes->items, (Py_ssize_t)at);
		Py_ssize_t bytes;
		char *hash;

		if (!PyBytes_Check(item) || PyBytes_AsStringAndSize(item, &hash, &bytes) < 0 || (size_t)bytes != len)
			return item_error(state, sig, i, item, (Py_ssize_t)at, len);
		if (len == 32)
			memcpy(to, hash, 32);
		else
			memcpy(to, hash, len);
	}
	return 0;
}

int
scout__py_hashes_gather(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i,
			const struct scout__py_hashes *hashes, size_t stride, size_t len, size_t max_n,
			struct scout__py_hash_room *room, const void **ret, size_t *ret_n)
{
	size_t n, size = (size_t)hashes->view.len;

	if (hashes->items) {
		n = (size_t)(hashes->is_list ? PyList_Size(hashes->items) : PyTuple_Size(hashes->items)) / stride;
		n = n < max_n ? n : max_n;
		if (make_room(room, n * len) < 0 ||
		    gather_items(state, sig, i, hashes, stride, len, room->bytes, n) < 0)
			return -1;
		*ret = room->bytes;
		*ret_n = n;
		return 0;
	}
	if (size % len != 0)
		return SCOUT__PY_FAILED(scout__py_raise(
			state, SCOUT_ERR_HASH_LEN,
			"%s(): %s must be a buffer of whole hashes of %d bytes (the configured hash_bytes), not %zd bytes",
			sig->call, sig->names[i], (int)len, hashes->view.len));
	n = size / len / stride < max_n ? size / len / stride : max_n;
	*ret = hashes->view.buf;
	*ret_n = n;
	if (stride == 1)
		return 0;
	if (make_room(room, n * len) < 0)
		return -1;
	for (size_t k = 0; k < n; k++)
		memcpy(room->bytes + k * len, (const uint8_t *)hashes->view.buf + ((k + 1) * stride - 1) * len, len);
	*ret = room->bytes;
	return 0;
}

void
scout__py_hashes_release(struct scout__py_hashes *hashes)
{
	Py_CLEAR(hashes->items);
	if (hashes->view.obj)
		PyBuffer_Release(&hashes->view);
}
