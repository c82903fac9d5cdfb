/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: the engine's KV memory, from whatever object holds it to planes: one base address, one stride from block to block, and
 * the number of bytes of a block that are dense there.
 *
 * Every kind of object is first read into one form, a base with shapes and strides (struct strided), and only that form is cut. So no
 * tensor library is imported, and one rule serves all layouts of KV caches: (blocks, 2, tokens, heads, dim) is one plane;
 * (2, blocks, tokens, heads, dim) with block_dim=1 is two, K and V; heads before tokens in memory is still one plane, as the bytes of a
 * block need only be dense, whatever axis comes first; one layer of a tensor over all layers has a stride longer than its block.
 *
 * A copy may run until the worker is closed, so the memory must not vanish before: the owners are held, and of buffers also the
 * view, which forbids a bytearray or mmap to resize.
 */
#include "planes.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DIMS 16

struct strided {
	uint64_t base;
	uint64_t item; /* bytes of an element */
	uint32_t n;
	uint64_t shape[MAX_DIMS];
	int64_t strides[MAX_DIMS]; /* bytes */
	bool has_strides;          /* else C order */
};

/* Where an error belongs: planes[3] of Worker.register(). */
struct plane_place {
	struct scout__py_state *state;
	const char *call, *name;
	Py_ssize_t index;
};

#define RAISE(p, format, ...)                                                                                          \
	(scout__py_raise((p)->state, SCOUT_ERR_INVALID, "%s(): %s[%zd]: " format, (p)->call, (p)->name, (p)->index,    \
			 __VA_ARGS__),                                                                                 \
	 -1)

void
scout__py_planes_free(struct scout__py_planes *planes)
{
	struct scout__py_planes own = *planes; /* letting go may run Python */

	*planes = (struct scout__py_planes){0};
	for (uint32_t i = 0; i < own.n_views; i++)
		PyBuffer_Release(&own.views[i]);
	free(own.views);
	free(own.planes);
	Py_XDECREF(own.owners);
}

int
scout__py_planes_visit(struct scout__py_planes *planes, visitproc visit, void *arg)
{
	Py_VISIT(planes->owners);
	for (uint32_t i = 0; i < planes->n_views; i++)
		Py_VISIT(planes->views[i].obj);
	return 0;
}

/* ---- numbers ---- */

/* An int of 64 bits without sign, from an attribute or item; @what names it. Steals @number, which may be NULL (an exception is set). */
static int
take_u64(const struct plane_place *p, const char *what, PyObject *number, uint64_t *ret)
{
	bool fits = number && scout__py_is_int(number) && scout__py_u64(number, UINT64_MAX, ret) > 0;

	if (!fits && number) {
		PyErr_Clear();
		(void)RAISE(p, "%s must be an int of 0..2^64-1, not %.80R", what, number);
	}
	Py_XDECREF(number);
	return fits ? 0 : -1;
}

static int
take_i64(const struct plane_place *p, const char *what, PyObject *number, int64_t *ret)
{
	bool is_int = number && scout__py_is_int(number);
	long long value = is_int ? PyLong_AsLongLong(number) : -1;
	bool fits = is_int && (value != -1 || !PyErr_Occurred());

	if (!fits && number) {
		PyErr_Clear();
		(void)RAISE(p, "%s must be an int of 64 bits, not %.80R", what, number);
	}
	Py_XDECREF(number);
	if (!fits)
		return -1;
	*ret = value;
	return 0;
}

/* The result of a method without arguments, or the attribute itself where it is no method. */
static PyObject *
ask(PyObject *object, const char *name)
{
	PyObject *value = PyObject_GetAttrString(object, name), *result;

	if (!value || !PyCallable_Check(value))
		return value;
	result = PyObject_CallNoArgs(value);
	Py_DECREF(value);
	return result;
}

/* @numbers is stolen and may be NULL. Strides are multiplied by @factor. */
static int
take_shape(const struct plane_place *p, PyObject *numbers, struct strided *s)
{
	Py_ssize_t n = numbers ? PySequence_Size(numbers) : -1;
	int rc = n < 0 ? -1 : 0;

	if (n > MAX_DIMS)
		rc = RAISE(p, "it has %zd dimensions; at most %d are allowed", n, MAX_DIMS);
	for (Py_ssize_t i = 0; rc == 0 && i < n; i++)
		rc = take_u64(p, "a size in its shape", PySequence_GetItem(numbers, i), &s->shape[i]);
	Py_XDECREF(numbers);
	s->n = rc == 0 ? (uint32_t)n : 0;
	return rc;
}

static int
take_strides(const struct plane_place *p, PyObject *numbers, uint64_t factor, struct strided *s)
{
	Py_ssize_t n = numbers ? PySequence_Size(numbers) : -1;
	int rc = n < 0 ? -1 : 0;

	if (rc == 0 && n != (Py_ssize_t)s->n)
		rc = RAISE(p, "it has %zd strides for %d dimensions", n, (int)s->n);
	for (Py_ssize_t i = 0; rc == 0 && i < n; i++) {
		rc = take_i64(p, "a stride", PySequence_GetItem(numbers, i), &s->strides[i]);
		if (rc == 0 && __builtin_mul_overflow(s->strides[i], (int64_t)factor, &s->strides[i]))
			rc = RAISE(p, "its stride of dimension %zd is too large", i);
	}
	Py_XDECREF(numbers);
	s->has_strides = true;
	return rc;
}

/* ---- from objects to struct strided ---- */

static int
read_tensor(const struct plane_place *p, PyObject *object, struct strided *s)
{
	const char *item = PyObject_HasAttrString(object, "element_size") ? "element_size" : "itemsize";
	const char *strides = PyObject_HasAttrString(object, "stride") ? "stride" : "strides";

	if (take_u64(p, "data_ptr()", ask(object, "data_ptr"), &s->base) < 0 ||
	    take_u64(p, "element_size()", ask(object, item), &s->item) < 0 ||
	    take_shape(p, PyObject_GetAttrString(object, "shape"), s) < 0)
		return -1;
	return take_strides(p, ask(object, strides), s->item, s);
}

static int
read_typestr(const struct plane_place *p, PyObject *typestr, uint64_t *ret_item)
{
	const char *text = typestr && PyUnicode_Check(typestr) ? PyUnicode_AsUTF8AndSize(typestr, NULL) : NULL;
	char *end = NULL;

	*ret_item = text && strlen(text) > 2 ? strtoull(text + 2, &end, 10) : 0;
	if (*ret_item == 0 || *ret_item > UINT16_MAX || *end != '\0')
		return RAISE(p, "typestr must say the size of an element, as '<f2' does, not %R",
			     typestr ? typestr : Py_None);
	return 0;
}

/* __array_interface__ and __cuda_array_interface__ have the same fields, as far as we read them. */
static int
read_interface(const struct plane_place *p, PyObject *dict, struct strided *s)
{
	PyObject *data = PyDict_Check(dict) ? PyDict_GetItemString(dict, "data") : NULL;
	PyObject *shape = data ? PyDict_GetItemString(dict, "shape") : NULL;
	PyObject *strides = data ? PyDict_GetItemString(dict, "strides") : NULL;
	int is_read_only;

	if (!data || !shape || !PyTuple_Check(data) || PyTuple_Size(data) != 2)
		return RAISE(p, "its array interface lacks data or shape: %.120R", dict);
	is_read_only = PyObject_IsTrue(PyTuple_GetItem(data, 1));
	if (is_read_only < 0)
		return -1;
	if (is_read_only)
		return RAISE(p, "%s", "its memory is read-only; a worker writes into its pages");
	if (read_typestr(p, PyDict_GetItemString(dict, "typestr"), &s->item) < 0 ||
	    take_u64(p, "the address of its data", Py_NewRef(PyTuple_GetItem(data, 0)), &s->base) < 0 ||
	    take_shape(p, Py_NewRef(shape), s) < 0)
		return -1;
	if (!strides || strides == Py_None)
		return 0;
	return take_strides(p, Py_NewRef(strides), 1, s);
}

static int
read_interface_of(const struct plane_place *p, PyObject *object, const char *name, struct strided *s)
{
	PyObject *dict = PyObject_GetAttrString(object, name);
	int rc = dict ? read_interface(p, dict, s) : -1;

	Py_XDECREF(dict);
	return rc;
}

static int
read_buffer(const struct plane_place *p, PyObject *object, struct scout__py_planes *planes, struct strided *s)
{
	Py_buffer *views = realloc(planes->views, (planes->n_views + 1) * sizeof(*views)), *view;

	if (!views)
		return SCOUT__PY_FAILED(PyErr_NoMemory());
	planes->views = views;
	view = &views[planes->n_views];
	if (PyObject_GetBuffer(object, view, PyBUF_STRIDED) < 0) {
		if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError))
			return -1;
		PyErr_Clear();
		return RAISE(p, "%.80R gives no writable memory with plain strides; a worker writes into its pages",
			     object);
	}
	planes->n_views++;
	if (view->ndim > MAX_DIMS)
		return RAISE(p, "it has %d dimensions; at most %d are allowed", view->ndim, MAX_DIMS);
	s->base = (uintptr_t)view->buf;
	s->item = (uint64_t)view->itemsize;
	s->n = (uint32_t)view->ndim;
	s->has_strides = true;
	for (int i = 0; i < view->ndim; i++) {
		s->shape[i] = (uint64_t)view->shape[i];
		s->strides[i] = view->strides[i];
	}
	return 0;
}

/* ---- from struct strided to planes ---- */

static int
add_plane(const struct plane_place *p, uint64_t base, uint64_t stride, uint64_t block_bytes,
	  struct scout__py_planes *planes)
{
	struct scout_plane *grown = planes->planes;
	uint32_t room = planes->room ? planes->room * 2 : 64;

	if (planes->n == SCOUT_MAX_PLANES)
		return RAISE(p, "more than %d planes", (int)SCOUT_MAX_PLANES);
	if (planes->n == planes->room) {
		grown = realloc(grown, room * sizeof(*grown));
		if (!grown)
			return SCOUT__PY_FAILED(PyErr_NoMemory());
		planes->planes = grown;
		planes->room = room;
	}
	planes->planes[planes->n++] = (struct scout_plane){
		.base = (void *)(uintptr_t)base, // NOLINT: the caller's address
		.stride = stride,
		.block_bytes = block_bytes,
	};
	return 0;
}

/* The number of blocks that this plane has must be that of all others. */
static int
agree(const struct plane_place *p, uint64_t n_blocks, struct scout__py_planes *planes)
{
	if (n_blocks == 0)
		return RAISE(p, "%s", "it has no blocks");
	if (planes->n_blocks == 0)
		planes->n_blocks = n_blocks;
	if (planes->n_blocks != n_blocks)
		return RAISE(
			p,
			"it has %llu blocks; n_blocks, or a plane before it, says %llu (block_dim says which dimension counts them)",
			(unsigned long long)n_blocks, (unsigned long long)planes->n_blocks);
	return 0;
}

/* One dimension: bytes without a shape. They are cut into n_blocks parts. */
static int
cut_flat(const struct plane_place *p, const struct strided *s, struct scout__py_planes *planes)
{
	uint64_t bytes;

	if (s->strides[0] != (int64_t)s->item)
		return RAISE(p, "%s",
			     "it has one dimension with gaps; give it a dimension of blocks and one of elements");
	if (__builtin_mul_overflow(s->shape[0], s->item, &bytes))
		return RAISE(p, "%s", "it is too large");
	if (planes->n_blocks == 0)
		return RAISE(p, "%s", "it has one dimension; n_blocks must say into how many equal blocks to cut it");
	if (bytes == 0 || bytes % planes->n_blocks != 0)
		return RAISE(p, "its %llu bytes cannot be cut into %llu equal blocks (n_blocks)",
			     (unsigned long long)bytes, (unsigned long long)planes->n_blocks);
	return add_plane(p, s->base, bytes / planes->n_blocks, bytes / planes->n_blocks, planes);
}

/* C order, where the object did not say. */
static int
fill_strides(const struct plane_place *p, struct strided *s)
{
	uint64_t bytes = s->item;

	for (uint32_t i = s->n; !s->has_strides && i-- > 0;) {
		if (bytes > INT64_MAX)
			return RAISE(p, "%s", "it is too large");
		s->strides[i] = (int64_t)bytes;
		if (__builtin_mul_overflow(bytes, s->shape[i] ? s->shape[i] : 1, &bytes))
			return RAISE(p, "%s", "it is too large");
	}
	return 0;
}

/*
 * Which dimensions are the dense bytes of a block: beginning with single elements, each dimension whose stride is what is dense so far
 * joins. Returns the bytes.
 */
static uint64_t
dense_bytes(const struct strided *s, uint32_t block_dim, bool is_dense[MAX_DIMS])
{
	uint64_t bytes = s->item;
	bool found = true;

	for (uint32_t i = 0; i < s->n; i++)
		is_dense[i] = i == block_dim || s->shape[i] == 1;
	while (found) {
		found = false;
		for (uint32_t i = 0; i < s->n; i++) {
			if (is_dense[i] || s->strides[i] != (int64_t)bytes)
				continue;
			is_dense[i] = true;
			found = true;
			if (__builtin_mul_overflow(bytes, s->shape[i], &bytes))
				return 0;
		}
	}
	return bytes;
}

/* A plane for each index of the dimensions that are not dense, in the order of the dimensions. */
static int
unroll(const struct plane_place *p, const struct strided *s, const bool is_dense[MAX_DIMS], uint64_t stride,
       uint64_t bytes, struct scout__py_planes *planes)
{
	uint64_t at[MAX_DIMS] = {0}, base = s->base;
	int i;

	for (;;) {
		if (add_plane(p, base, stride, bytes, planes) < 0)
			return -1;
		for (i = (int)s->n - 1; i >= 0; i--) {
			if (is_dense[i])
				continue;
			base += (uint64_t)s->strides[i];
			if (++at[i] < s->shape[i])
				break;
			base -= (uint64_t)s->strides[i] * at[i];
			at[i] = 0;
		}
		if (i < 0)
			return 0;
	}
}

static int
cut(const struct plane_place *p, struct strided *s, uint32_t block_dim, struct scout__py_planes *planes)
{
	bool is_dense[MAX_DIMS] = {false};
	uint64_t bytes, stride;

	if (s->n == 0)
		return RAISE(p, "%s", "it has no dimensions");
	if (s->item == 0)
		return RAISE(p, "%s", "its elements have 0 bytes");
	if (fill_strides(p, s) < 0)
		return -1;
	if (s->n == 1)
		return cut_flat(p, s, planes);
	if (block_dim >= s->n)
		return RAISE(p, "block_dim is %d; it has dimensions 0..%d", (int)block_dim, (int)s->n - 1);
	if (agree(p, s->shape[block_dim], planes) < 0)
		return -1;
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->shape[i] == 0)
			return RAISE(p, "its dimension %d is 0", (int)i);
		if (s->shape[i] > 1 && s->strides[i] <= 0)
			return RAISE(p, "its dimension %d has the stride %lld; it must be more than 0", (int)i,
				     (long long)s->strides[i]);
	}
	bytes = dense_bytes(s, block_dim, is_dense);
	stride = s->shape[block_dim] > 1 ? (uint64_t)s->strides[block_dim] : bytes;
	if (bytes == 0 || stride < bytes)
		return RAISE(p,
			     "its blocks overlap: %llu bytes from one to the next, but %llu bytes each (block_dim=%d)",
			     (unsigned long long)stride, (unsigned long long)bytes, (int)block_dim);
	return unroll(p, s, is_dense, stride, bytes, planes);
}

/* ---- one item of the list ---- */

static int
add_numbers(const struct plane_place *p, PyObject *item, struct scout__py_planes *planes)
{
	uint64_t v[3];
	static const char *const names[] = {"address", "stride", "block_bytes"};

	if (PyTuple_Size(item) != 3)
		return RAISE(p, "a tuple must be (address, stride, block_bytes), not %.80R", item);
	for (int i = 0; i < 3; i++)
		if (take_u64(p, names[i], Py_NewRef(PyTuple_GetItem(item, i)), &v[i]) < 0)
			return -1;
	if (v[0] == 0)
		return RAISE(p, "%s", "address is 0");
	if (v[2] == 0 || v[1] < v[2])
		return RAISE(p, "stride is %llu and block_bytes %llu; wanted: 1 <= block_bytes <= stride",
			     (unsigned long long)v[1], (unsigned long long)v[2]);
	return add_plane(p, v[0], v[1], v[2], planes);
}

static int
add_object(const struct plane_place *p, PyObject *item, uint32_t block_dim, struct scout__py_planes *planes)
{
	struct strided s = {0};
	int rc;

	if (PyObject_HasAttrString(item, "data_ptr")) {
		rc = read_tensor(p, item, &s);
	} else if (PyObject_HasAttrString(item, "__cuda_array_interface__")) {
		rc = read_interface_of(p, item, "__cuda_array_interface__", &s);
	} else if (PyObject_HasAttrString(item, "__array_interface__")) {
		rc = read_interface_of(p, item, "__array_interface__", &s);
	} else if (PyObject_CheckBuffer(item)) {
		rc = read_buffer(p, item, planes, &s);
	} else {
		return SCOUT__PY_FAILED(PyErr_Format(
			PyExc_TypeError,
			"%s(): %s[%zd] must be (address, stride, block_bytes), a tensor, an array or a writable buffer, "
			"not %.80R",
			p->call, p->name, p->index, item));
	}
	if (rc < 0 || PyList_Append(planes->owners, item) < 0)
		return -1;
	if (s.base == 0)
		return RAISE(p, "%s", "its memory has the address 0");
	return cut(p, &s, block_dim, planes);
}

/* No object that is one plane itself: iterating over a tensor would take it apart. */
static bool
is_list(PyObject *list)
{
	return !PyDict_Check(list) && !PyUnicode_Check(list) && !PyObject_CheckBuffer(list) &&
	       !PyObject_HasAttrString(list, "data_ptr") && !PyObject_HasAttrString(list, "__cuda_array_interface__") &&
	       !PyObject_HasAttrString(list, "__array_interface__");
}

int
scout__py_planes_add(struct scout__py_state *state, const char *call, const char *name, PyObject *list,
		     uint64_t n_blocks, uint32_t block_dim, struct scout__py_planes *planes)
{
	struct plane_place p = {.state = state, .call = call, .name = name};
	PyObject *items = is_list(list) ? PySequence_List(list) : NULL;
	int rc = 0;

	if (!items) {
		if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_TypeError))
			return -1;
		PyErr_Clear();
		return SCOUT__PY_FAILED(PyErr_Format(PyExc_TypeError, "%s(): %s must be a list of planes%s, not %.80R",
						     call, name, PyDict_Check(list) ? " (of a dict its values())" : "",
						     list));
	}
	planes->n_blocks = n_blocks;
	if (!planes->owners)
		planes->owners = PyList_New(0);
	if (!planes->owners)
		rc = -1;
	for (p.index = 0; rc == 0 && p.index < PyList_Size(items); p.index++) {
		PyObject *item = PyList_GetItem(items, p.index);

		rc = PyTuple_Check(item) ? add_numbers(&p, item, planes) : add_object(&p, item, block_dim, planes);
	}
	Py_DECREF(items);
	if (rc == 0 && planes->n == 0)
		scout__py_raise(state, SCOUT_ERR_INVALID, "%s(): %s is empty", call, name);
	else if (rc == 0 && planes->n_blocks == 0)
		scout__py_raise(state, SCOUT_ERR_INVALID, "%s(): n_blocks is needed where planes are given as numbers",
				call);
	return rc == 0 && planes->n > 0 && planes->n_blocks > 0 ? 0 : -1;
}
