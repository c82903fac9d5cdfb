/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * From the arguments of a lookup to struct scout_query. Numbers, texts and the buffer come first, for they may run Python code; the
 * hashes are collected last, when nothing runs any more, into a buffer of the client. A buffer whose hashes are all wanted is not
 * copied.
 *
 * The hash of a chunk is that of its last block, so with a stride of s the hashes number s, 2s, 3s ... count, and a rest of fewer than
 * s blocks at the end is no full chunk.
 */
#include "py_client.h"

#include <string.h>

#include <kvscout/error.h>

int
scout__py_arg_id(const struct scout__py_client *self, const struct scout__py_signature *sig, PyObject *arg,
		 const char **ret)
{
	if (arg == Py_None)
		return scout__py_arg_type_error(sig, SCOUT__PY_ID, Py_None, "a str");
	return scout__py_arg_text(self->state, sig, SCOUT__PY_ID, arg, ret, NULL);
}

static int
take_numbers(struct scout__py_query *query, const struct scout__py_client *self, const struct scout__py_signature *sig,
	     PyObject *const a[])
{
	struct scout__py_state *state = self->state;
	uint64_t stride = 1, timeout_ms = 0;

	if (scout__py_arg_u64(state, sig, SCOUT__PY_PROMPT, a[SCOUT__PY_PROMPT], UINT64_MAX, &query->q.prompt_tokens) <
		    0 ||
	    scout__py_arg_u64(state, sig, SCOUT__PY_COMPUTED, a[SCOUT__PY_COMPUTED], UINT64_MAX,
			      &query->q.computed_tokens) < 0 ||
	    scout__py_arg_u64(state, sig, SCOUT__PY_EXPECT, a[SCOUT__PY_EXPECT], UINT64_MAX, &query->q.expect_tokens) <
		    0 ||
	    scout__py_arg_u64(state, sig, SCOUT__PY_STRIDE, a[SCOUT__PY_STRIDE], UINT32_MAX, &stride) < 0 ||
	    scout__py_arg_u64(state, sig, SCOUT__PY_TIMEOUT, a[SCOUT__PY_TIMEOUT], SCOUT_LOOKUP_TIMEOUT_MAX_MS,
			      &timeout_ms) < 0)
		return -1;
	if (stride == 0)
		return scout__py_arg_value_error(state, sig, SCOUT__PY_STRIDE, a[SCOUT__PY_STRIDE], "1..4294967295");
	query->stride = stride;
	query->q.timeout_ms = (uint32_t)timeout_ms;
	return 0;
}

static const char wanted[] = "a list or tuple of bytes, or a buffer (bytes, memoryview, numpy array)";

/* Where the hashes are: `items` or `view`. */
static int
take_hashes(struct scout__py_query *query, const struct scout__py_signature *sig, PyObject *hashes)
{
	query->is_list = PyList_Check(hashes);
	if (query->is_list || PyTuple_Check(hashes)) {
		query->items = Py_NewRef(hashes);
		return 0;
	}
	if (PyObject_CheckBuffer(hashes)) {
		if (PyObject_GetBuffer(hashes, &query->view, PyBUF_SIMPLE) == 0)
			return 0;
		query->view.obj = NULL;
		if (!PyErr_ExceptionMatches(PyExc_BufferError))
			return -1;
		PyErr_Clear();
		return scout__py_arg_type_error(sig, SCOUT__PY_HASHES, hashes, "contiguous, if it is a buffer");
	}
	/* An engine's own kind of list. */
	if (!PySequence_Check(hashes) || PyUnicode_Check(hashes) || PyDict_Check(hashes))
		return scout__py_arg_type_error(sig, SCOUT__PY_HASHES, hashes, wanted);
	query->items = PySequence_List(hashes);
	query->is_list = true;
	return query->items ? 0 : -1;
}

int
scout__py_query_init(struct scout__py_query *query, const struct scout__py_client *self,
		     const struct scout__py_signature *sig, PyObject *const a[])
{
	*query = (struct scout__py_query){.q.hash_len = self->hash_bytes};
	if (scout__py_arg_id(self, sig, a[SCOUT__PY_ID], &query->q.id) < 0 ||
	    scout__py_arg_text(self->state, sig, SCOUT__PY_TENANT, a[SCOUT__PY_TENANT], &query->q.tenant, NULL) < 0 ||
	    take_numbers(query, self, sig, a) < 0)
		return -1;
	return take_hashes(query, sig, a[SCOUT__PY_HASHES]);
}

static int
hash_error(const struct scout__py_client *self, const struct scout__py_signature *sig, PyObject *item, Py_ssize_t at)
{
	if (PyBytes_Check(item)) {
		scout__py_raise(self->state, SCOUT_ERR_HASH_LEN,
				"%s(): hashes[%zd] must have %d bytes (the configured hash_bytes), not %zd", sig->call,
				at, (int)self->hash_bytes, PyBytes_Size(item));
		return -1;
	}
	PyErr_Format(PyExc_TypeError, "%s(): hashes[%zd] must be bytes, not %.80R", sig->call, at, item);
	return -1;
}

/* Room for @n hashes in the client's buffer. */
static int
make_room(struct scout__py_client *self, size_t n)
{
	size_t bytes = n * self->hash_bytes;
	uint8_t *bigger;

	if (bytes <= self->scratch_bytes)
		return 0;
	bigger = PyMem_Realloc(self->scratch, bytes * 2);
	if (!bigger) {
		PyErr_NoMemory();
		return -1;
	}
	self->scratch = bigger;
	self->scratch_bytes = bytes * 2;
	return 0;
}

static int
gather_items(struct scout__py_query *query, struct scout__py_client *self, const struct scout__py_signature *sig,
	     size_t max_n)
{
	PyObject *(*get)(PyObject *, Py_ssize_t) = query->is_list ? PyList_GetItem : PyTuple_GetItem;
	size_t stride = query->stride, len = self->hash_bytes, n;
	Py_ssize_t size = query->is_list ? PyList_Size(query->items) : PyTuple_Size(query->items);
	uint8_t *to;

	n = (size_t)size / stride < max_n ? (size_t)size / stride : max_n;
	if (make_room(self, n) < 0)
		return -1;
	to = self->scratch;
	for (size_t i = 0, at = stride - 1; i < n; i++, at += stride, to += len) {
		PyObject *item = get(query->items, (Py_ssize_t)at);
		Py_ssize_t bytes;
		char *hash;

		if (!PyBytes_Check(item) || PyBytes_AsStringAndSize(item, &hash, &bytes) < 0 || (size_t)bytes != len)
			return hash_error(self, sig, item, (Py_ssize_t)at);
		if (len == 32)
			memcpy(to, hash, 32);
		else
			memcpy(to, hash, len);
	}
	query->q.hashes = self->scratch;
	query->q.n = n;
	return 0;
}

static int
gather_buffer(struct scout__py_query *query, struct scout__py_client *self, const struct scout__py_signature *sig,
	      size_t max_n)
{
	size_t stride = query->stride, len = self->hash_bytes, bytes = (size_t)query->view.len, n;
	const uint8_t *from = query->view.buf;

	if (bytes % len != 0) {
		scout__py_raise(
			self->state, SCOUT_ERR_HASH_LEN,
			"%s(): hashes must be a buffer of whole hashes of %d bytes (the configured hash_bytes), not %zd bytes",
			sig->call, (int)len, query->view.len);
		return -1;
	}
	n = bytes / len / stride < max_n ? bytes / len / stride : max_n;
	query->q.n = n;
	query->q.hashes = from;
	if (stride == 1)
		return 0;
	if (make_room(self, n) < 0)
		return -1;
	for (size_t i = 0; i < n; i++)
		memcpy(self->scratch + i * len, from + ((i + 1) * stride - 1) * len, len);
	query->q.hashes = self->scratch;
	return 0;
}

int
scout__py_query_gather(struct scout__py_query *query, struct scout__py_client *self,
		       const struct scout__py_signature *sig, PyObject *const a[], size_t max_n)
{
	int rc = query->items ? gather_items(query, self, sig, max_n) : gather_buffer(query, self, sig, max_n);

	if (rc == 0 && query->q.n > query->q.prompt_tokens / self->chunk_tokens) {
		scout__py_raise(
			self->state, SCOUT_ERR_INVALID,
			"%s(): hashes has %zu chunks with a stride of %zu, and prompt_tokens = %S are only %llu chunks of %u "
			"tokens; is the stride chunk_tokens divided by the engine's block size?",
			sig->call, query->q.n, query->stride, a[SCOUT__PY_PROMPT],
			(unsigned long long)(query->q.prompt_tokens / self->chunk_tokens),
			(unsigned)self->chunk_tokens);
		return -1;
	}
	return rc;
}

PyObject *
scout__py_query_raise(const struct scout__py_query *query, const struct scout__py_client *self,
		      const struct scout__py_signature *sig, PyObject *const a[], int rc)
{
	struct scout__py_state *state = self->state;

	switch (rc) {
	case SCOUT_ERR_REQUEST_ID:
		return scout__py_raise(state, rc, "%s(): id must be 1 to 255 bytes of UTF-8, not %.80R", sig->call,
				       a[SCOUT__PY_ID]);
	case SCOUT_ERR_TENANT:
		return scout__py_raise(
			state, rc,
			"%s(): tenant must be at most 255 bytes of UTF-8 without control characters, not %.80R",
			sig->call, a[SCOUT__PY_TENANT]);
	case SCOUT_ERR_INVALID:
		return scout__py_raise(
			state, rc, "%s(): hashes has %zu chunks, which the protocol or half of arena_bytes cannot hold",
			sig->call, query->q.n);
	case SCOUT_ERR_STATE:
		return scout__py_raise(
			state, rc,
			"%s(%R): this id is live with other hashes or another tenant; call finish() before it names "
			"another prompt",
			sig->call, a[SCOUT__PY_ID]);
	default:
		return scout__py_raise_call(state, rc, sig->call, a[SCOUT__PY_ID]);
	}
}

void
scout__py_query_release(struct scout__py_query *query)
{
	Py_CLEAR(query->items);
	if (query->view.obj)
		PyBuffer_Release(&query->view);
}
