/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Worker.register(): from planes, or tables of planes, to struct scout_table. The tables become the worker's only when the library has
 * taken them, so a refused call leaves nothing behind, and may be repeated.
 */
#include "py_worker.h"

#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#define ERR_BYTES 512

static const struct scout__py_signature of_register = {"Worker.register",
						       0,
						       2,
						       9,
						       {"planes", "block_tokens", "n_blocks", "dtype", "null_block",
							"block_dim", "layout_tag", "timeout_ms", "tables"}};

enum {
	PLANES,
	BLOCK_TOKENS,
	N_BLOCKS,
	DTYPE,
	NULL_BLOCK,
	BLOCK_DIM,
	LAYOUT_TAG,
	TIMEOUT_MS,
	TABLES
};

static const struct scout__py_signature of_table = {
	"Worker.register",
	2,
	0,
	8,
	{"planes", "block_tokens", "n_blocks", "dtype", "null_block", "block_dim", "layout_tag", "group"}};

enum {
	GROUP = TIMEOUT_MS
};

static const struct {
	const char *name; /* ours, or torch's and numpy's */
	uint32_t dtype;
} dtypes[] = {
	{"opaque", SCOUT_DTYPE_OPAQUE},       {"f16", SCOUT_DTYPE_F16},         {"float16", SCOUT_DTYPE_F16},
	{"bf16", SCOUT_DTYPE_BF16},           {"bfloat16", SCOUT_DTYPE_BF16},   {"f32", SCOUT_DTYPE_F32},
	{"float32", SCOUT_DTYPE_F32},         {"f8_e4m3", SCOUT_DTYPE_F8_E4M3}, {"float8_e4m3fn", SCOUT_DTYPE_F8_E4M3},
	{"f8_e5m2", SCOUT_DTYPE_F8_E5M2},     {"i8", SCOUT_DTYPE_I8},           {"int8", SCOUT_DTYPE_I8},
	{"float8_e5m2", SCOUT_DTYPE_F8_E5M2},
};

const struct scout__py_table *
scout__py_worker_table(const struct scout__py_worker *self, uint32_t group)
{
	for (uint32_t i = 0; i < self->n_tables; i++)
		if (self->tables[i].group == group)
			return &self->tables[i];
	return NULL;
}

static void
free_tables(struct scout__py_table *tables, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		scout__py_planes_free(&tables[i].planes);
		Py_XDECREF(tables[i].layout_tag);
	}
	free(tables);
}

void
scout__py_tables_free(struct scout__py_worker *self)
{
	struct scout__py_table *tables = self->tables;
	uint32_t n = self->n_tables;

	self->tables = NULL;
	self->n_tables = 0;
	free_tables(tables, n);
}

/* str(torch.bfloat16) is "torch.bfloat16". */
static int
read_dtype(struct scout__py_state *state, const struct scout__py_signature *sig, PyObject *arg, uint32_t *ret)
{
	static const char allowed[] =
		"'opaque', 'f16', 'bf16', 'f32', 'f8_e4m3', 'f8_e5m2', 'i8', a torch.dtype of these, or None";
	PyObject *text;
	const char *name;

	if (!arg || arg == Py_None)
		return 0;
	text = PyObject_Str(arg);
	name = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
	if (name && strncmp(name, "torch.", 6) == 0)
		name += 6;
	for (size_t i = 0; name && i < sizeof(dtypes) / sizeof(dtypes[0]); i++)
		if (strcmp(name, dtypes[i].name) == 0) {
			*ret = dtypes[i].dtype;
			Py_DECREF(text);
			return 0;
		}
	Py_XDECREF(text);
	return name ? scout__py_arg_value_error(state, sig, DTYPE, arg, allowed) : -1;
}

/* A number that must not be 0 where it is given. */
static int
read_count(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
	   uint64_t max, uint64_t *ret)
{
	if (!arg || arg == Py_None)
		return 0;
	if (scout__py_arg_u64(state, sig, i, arg, max, ret) < 0)
		return -1;
	return *ret > 0 ? 0 : scout__py_arg_value_error(state, sig, i, arg, "1 or more");
}

/* What both forms have in common; @table is to be freed in any case. */
static int
read_table(struct scout__py_worker *self, const struct scout__py_signature *sig, PyObject *args[],
	   struct scout__py_table *table, struct scout_table *out)
{
	struct scout__py_state *state = self->state;
	uint64_t block_tokens = 0, n_blocks = 0, block_dim = 0;
	const char *tag = NULL;

	*out = (struct scout_table){.null_block = -1};
	if (read_count(state, sig, BLOCK_TOKENS, args[BLOCK_TOKENS], UINT32_MAX, &block_tokens) < 0 ||
	    read_count(state, sig, N_BLOCKS, args[N_BLOCKS], INT64_MAX, &n_blocks) < 0 ||
	    read_dtype(state, sig, args[DTYPE], &out->dtype) < 0 ||
	    scout__py_arg_i64(state, sig, NULL_BLOCK, args[NULL_BLOCK], &out->null_block) < 0 ||
	    scout__py_arg_u64(state, sig, BLOCK_DIM, args[BLOCK_DIM], 15, &block_dim) < 0 ||
	    scout__py_arg_text(state, sig, LAYOUT_TAG, args[LAYOUT_TAG], &tag, NULL) < 0)
		return -1;
	if (!args[PLANES] || block_tokens == 0)
		return SCOUT__PY_FAILED(PyErr_Format(PyExc_TypeError, "%s() needs the argument %s", sig->call,
						     args[PLANES] ? "block_tokens" : "planes"));
	if (self->chunk_tokens % block_tokens != 0)
		return SCOUT__PY_FAILED(scout__py_raise(
			state, SCOUT_ERR_INVALID,
			"%s(): block_tokens is %llu; chunk_tokens, which is %u, must be a multiple of it", sig->call,
			(unsigned long long)block_tokens, (unsigned)self->chunk_tokens));
	table->layout_tag = Py_XNewRef(tag ? args[LAYOUT_TAG] : NULL);
	if (scout__py_planes_add(state, sig->call, "planes", args[PLANES], n_blocks, (uint32_t)block_dim,
				 &table->planes) < 0)
		return -1;
	out->block_tokens = (uint32_t)block_tokens;
	out->n_planes = table->planes.n;
	out->planes = table->planes.planes;
	out->n_blocks = table->planes.n_blocks;
	out->layout_tag = tag;
	return 0;
}

static void
note_table(struct scout__py_table *table, const struct scout_table *out)
{
	table->group = out->group;
	table->block_tokens = out->block_tokens;
	table->n_planes = out->n_planes;
	table->n_blocks = out->n_blocks;
}

/* One dict of `tables`: its items are sorted like arguments. */
static int
read_dict(struct scout__py_worker *self, PyObject *dict, struct scout__py_table *table, struct scout_table *out)
{
	PyObject *args[SCOUT__PY_ARGS_MAX] = {NULL}, *key, *value;
	uint64_t group = 0;
	Py_ssize_t at = 0;

	if (!PyDict_Check(dict))
		return SCOUT__PY_FAILED(PyErr_Format(
			PyExc_TypeError, "Worker.register(): each of tables must be a dict, not %.80R", dict));
	while (PyDict_Next(dict, &at, &key, &value)) {
		int i = PyUnicode_Check(key) ? scout__py_arg_find(&of_table, key) : -1;

		if (i < 0)
			return SCOUT__PY_FAILED(PyErr_Format(
				PyExc_TypeError,
				"Worker.register(): a table has planes, block_tokens, n_blocks, dtype, null_block, block_dim, "
				"layout_tag and group, but no %R",
				key));
		args[i] = value;
	}
	if (scout__py_arg_u64(self->state, &of_table, GROUP, args[GROUP], SCOUT__PY_MAX_GROUPS - 1, &group) < 0 ||
	    read_table(self, &of_table, args, table, out) < 0)
		return -1;
	out->group = (uint32_t)group;
	return 0;
}

/* The library's turn. Returns its code; @waits: the GIL is let go in any case, for opening the copy engine takes milliseconds. */
static int
call(struct scout__py_worker *self, const struct scout_table *tables, uint32_t n, uint32_t timeout_ms, char *err)
{
	PyThreadState *ts = scout__py_use_enter(&self->use, "Worker.register");
	int rc = scout_worker_register(self->worker, tables, n, timeout_ms, err, ERR_BYTES);

	scout__py_use_leave(&self->use, ts);
	return rc;
}

static PyObject *
is_registered(struct scout__py_worker *self)
{
	struct scout_worker_counters counters;

	if (scout_worker_stats(self->worker, &counters) != 0)
		Py_RETURN_FALSE;
	return PyBool_FromLong(counters.registered != 0);
}

/* Takes @tables in any case. */
static PyObject *
submit(struct scout__py_worker *self, struct scout__py_table *tables, const struct scout_table *out, uint32_t n,
       uint32_t timeout_ms)
{
	char err[ERR_BYTES] = "";
	int rc = scout__py_use_check(self->state, &self->use, "Worker.register");
	bool has_tables = self->tables != NULL;

	if (rc < 0 || has_tables) {
		free_tables(tables, n);
		if (rc == 0)
			scout__py_raise(self->state, SCOUT_ERR_STATE,
					"Worker.register(): the pages are registered already");
		return NULL;
	}
	for (uint32_t i = 0; i < n; i++)
		note_table(&tables[i], &out[i]);
	self->tables = tables; /* before the call: another thread may close the worker when it returns */
	self->n_tables = n;
	rc = call(self, out, n, timeout_ms, err);
	if (rc == 0)
		return self->worker ? is_registered(self) : Py_NewRef(Py_False);
	if (rc == SCOUT_ERR_TIMEOUT)
		Py_RETURN_FALSE;
	if (self->worker)
		scout__py_tables_free(self);
	scout__py_raise(self->state, rc, "Worker.register(): %s", err[0] ? err : scout_strerror(rc));
	return NULL;
}

/* `tables` alone. */
static int
read_tables(struct scout__py_worker *self, PyObject *list, struct scout__py_table *tables, struct scout_table *out,
	    uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		PyObject *dict = PySequence_GetItem(list, i);
		int rc = dict ? read_dict(self, dict, &tables[i], &out[i]) : -1;

		Py_XDECREF(dict);
		if (rc < 0)
			return -1;
	}
	return 0;
}

/* How many tables there will be; -1: exception. */
static Py_ssize_t
count_tables(struct scout__py_worker *self, PyObject *args[])
{
	Py_ssize_t n;

	if (!args[TABLES] || args[TABLES] == Py_None)
		return 1;
	for (uint32_t i = 0; i < TIMEOUT_MS; i++)
		if (args[i])
			return SCOUT__PY_FAILED(PyErr_Format(PyExc_TypeError,
							     "Worker.register(): give %s or tables, not both",
							     of_register.names[i]));
	if (!PyList_Check(args[TABLES]) && !PyTuple_Check(args[TABLES]))
		return scout__py_arg_type_error(&of_register, TABLES, args[TABLES], "a list of dicts");
	n = PySequence_Size(args[TABLES]);
	if (n < 1 || n > (Py_ssize_t)SCOUT__PY_MAX_GROUPS)
		return scout__py_arg_value_error(self->state, &of_register, TABLES, args[TABLES],
						 "a list of 1..32 tables");
	return n;
}

PyObject *
scout__py_worker_register(PyObject *object, PyObject *const *raw, Py_ssize_t n_raw, PyObject *kwnames)
{
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	PyObject *args[SCOUT__PY_ARGS_MAX];
	struct scout_table out[SCOUT__PY_MAX_GROUPS];
	struct scout__py_table *tables;
	uint64_t timeout_ms = 0;
	Py_ssize_t n;
	int rc;

	if (scout__py_args(&of_register, raw, n_raw, kwnames, args) < 0 ||
	    scout__py_arg_u64(self->state, &of_register, TIMEOUT_MS, args[TIMEOUT_MS], UINT32_MAX, &timeout_ms) < 0)
		return NULL;
	n = count_tables(self, args);
	if (n < 0)
		return NULL;
	tables = calloc((size_t)n, sizeof(*tables));
	if (!tables)
		return PyErr_NoMemory();
	rc = args[TABLES] && args[TABLES] != Py_None ? read_tables(self, args[TABLES], tables, out, (uint32_t)n)
						     : read_table(self, &of_register, args, &tables[0], &out[0]);
	if (rc < 0) {
		free_tables(tables, (uint32_t)n);
		return NULL;
	}
	return submit(self, tables, out, (uint32_t)n, (uint32_t)timeout_ms);
}

/* The tables, and with them what owns the pages, are let go when no copy touches them any more. */
PyObject *
scout__py_worker_unregister(PyObject *object, PyObject *unused)
{
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	PyThreadState *ts;
	int rc;

	(void)unused;
	if (scout__py_use_check(self->state, &self->use, "Worker.unregister") < 0)
		return NULL;
	ts = scout__py_use_enter(&self->use, "Worker.unregister");
	rc = scout_worker_unregister(self->worker);
	scout__py_use_leave(&self->use, ts);
	if (rc < 0)
		return scout__py_raise_call(self->state, rc, "Worker.unregister", NULL);
	if (self->worker) /* else another thread has closed it meanwhile */
		scout__py_tables_free(self);
	Py_RETURN_NONE;
}
