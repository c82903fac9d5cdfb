/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the files of the extension _kvscout share: the module's state, errors, configuration, arguments.
 *
 * LIMITED API  The extension is compiled against CPython's limited API of 3.11, so that one file serves 3.11 and everything newer.
 * THREADS      Everything here runs with the GIL held, unless a function says otherwise. No Python is called from a thread of the
 *              library.
 * RULE         A conversion of an argument may run Python code, which may close the object or let another thread in. So each method
 *              converts its arguments first, then asks scout__py_use_check() (use.h), then calls the library.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exceptions; errors.c says which codes belong to which. */
enum scout__py_error_class {
	SCOUT__PY_ERROR = 0, /* KVScoutError, the base of the others */
	SCOUT__PY_ARGUMENT_ERROR,
	SCOUT__PY_CONFIG_ERROR,
	SCOUT__PY_BUSY_ERROR,
	SCOUT__PY_CLOSED_ERROR,
	SCOUT__PY_STATE_ERROR,
	SCOUT__PY_SERVER_ERROR,
	SCOUT__PY_ERRORS
};

/* Types that C code makes objects of, or compares with. */
enum scout__py_type {
	SCOUT__PY_CLIENT = 0,
	SCOUT__PY_HIT,
	SCOUT__PY_KEYS,
	SCOUT__PY_STEP,
	SCOUT__PY_SERVER,
	SCOUT__PY_WORKER,
	SCOUT__PY_DONE,
	SCOUT__PY_TYPES
};

/* The module's state. An object keeps a pointer to it: its type keeps the module alive. */
struct scout__py_state {
	PyObject *errors[SCOUT__PY_ERRORS];
	PyTypeObject *types[SCOUT__PY_TYPES];
};

/* PyMethodDef's type for a function that takes its arguments as an array. */
#define SCOUT__PY_METHOD(function) ((PyCFunction)(void (*)(void))(function))

/* -1, with the exception that @raise sets, for functions that return an int. */
#define SCOUT__PY_FAILED(raise) ((void)(raise), -1)

/* The spec of a type with the slots `slots`; @more: flags. */
#define SCOUT__PY_SPEC(type_name, object, more)                                                                        \
	{                                                                                                              \
		.name = "kvscout." type_name, .basicsize = sizeof(object),                                             \
		.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | (more), .slots = slots                        \
	}

/* A row of a PyMemberDef table: @field of the library's structure @part, which the object has a copy of. */
#define SCOUT__PY_MEMBER(object, part, field, type, doc)                                                               \
	{                                                                                                              \
#field, type, offsetof(object, part.field), READONLY, doc                                              \
	}

/* Counters of the library by name: a row for each of @values' fields. */
struct scout__py_counter {
	const char *name;
	size_t at;
};
#define SCOUT__PY_COUNTER(counters, field)                                                                             \
	{                                                                                                              \
#field, offsetof(struct counters, field)                                                               \
	}

/* ---- state.c ---- */

/* The dict of what @values has, which is a structure of counters with the fields of @rows. NULL: an exception is set. */
PyObject *scout__py_counters(const void *values, const struct scout__py_counter *rows, size_t n);

/* Of the module itself, or of a type that cannot have subclasses. */
struct scout__py_state *scout__py_state_of(PyObject *module);
struct scout__py_state *scout__py_state_of_type(PyTypeObject *type);

/* ---- what module.c puts into the module ---- */

int scout__py_errors_add(PyObject *module);
extern PyType_Spec scout__py_client_spec, scout__py_hit_spec, scout__py_keys_spec, scout__py_step_spec,
	scout__py_server_spec, scout__py_worker_spec, scout__py_done_spec;

/* ---- errors.c ---- */

/*
 * Set the exception of a SCOUT_ERR_* code. Its text is the formatted one (PyUnicode_FromFormat's letters), or the library's own
 * sentence if @format is NULL, with the code's name and number behind it. Returns NULL.
 */
PyObject *scout__py_raise(struct scout__py_state *state, int code, const char *format, ...);
/* The library's sentence with the name of the call in front: "Client.admit('a'): not legal now ...". @id may be NULL. */
PyObject *scout__py_raise_call(struct scout__py_state *state, int code, const char *call, PyObject *id);
/* As scout__py_raise(), but the exception is returned, not set. NULL: another one is set. */
PyObject *scout__py_error_make(struct scout__py_state *state, int code, const char *format, ...);
PyObject *scout__py_error_of(PyObject *module, PyObject *const *args, Py_ssize_t n);
PyObject *scout__py_error_name(PyObject *module, PyObject *code);

/* ---- hash_blocks.c ---- */

PyObject *scout__py_hash_blocks(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

/* ---- config.c ---- */

/* scout_client_config_set() and its sisters, behind one type. */
typedef int (*scout__py_set_fn)(void *cfg, const char *key, const char *value, char *err, size_t err_len);
/*
 * Apply the keyword arguments of a constructor; @kwargs may be NULL. The constructor takes nothing else: @args is its tuple. 0, or -1
 * with an exception.
 */
int scout__py_config_apply(struct scout__py_state *state, const char *type_name, PyObject *args, PyObject *kwargs,
			   scout__py_set_fn set, void *cfg);

/* ---- args.c ---- */

/* A wait of the library is cut into pieces of this length, and the handlers of signals run between them. */
#define SCOUT__PY_SLICE_MS 50u

#define SCOUT__PY_ARGS_MAX 13

/* Which arguments a call takes. All of them may be given by name; the first n_positional by position, too. */
struct scout__py_signature {
	const char *call; /* "Client.try_lookup", for error texts */
	uint32_t n_required, n_positional, n;
	const char *names[SCOUT__PY_ARGS_MAX];
};

/* Which argument has the @name, a str; -1: none. */
int scout__py_arg_find(const struct scout__py_signature *sig, PyObject *name);
/*
 * Sort the arguments of a METH_FASTCALL|METH_KEYWORDS call by @sig. ret[i] is a borrowed reference, NULL where nothing was given.
 * 0, or -1 with TypeError.
 */
int scout__py_args(const struct scout__py_signature *sig, PyObject *const *args, Py_ssize_t n, PyObject *kwnames,
		   PyObject *ret[]);
/*
 * Conversions of argument @i; each names the argument, what it was and what is allowed. NULL and None leave *ret as it is where a
 * function says so. 0, or -1 with an exception.
 */
/* An int, or what has __index__(); but no bool: True in the place of a number is a mistake. */
bool scout__py_is_int(PyObject *object);
/* The number of @object, which is such an int. 1; 0: it is not 0..max; -1: an exception of its own. */
int scout__py_u64(PyObject *object, uint64_t max, uint64_t *ret);
/* An int of 0..max, or what has __index__(). NULL: unchanged. */
int scout__py_arg_u64(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
		      uint64_t max, uint64_t *ret);
/* Argument 0, a weights_version: not 0. */
int scout__py_arg_version(struct scout__py_state *state, const struct scout__py_signature *sig, PyObject *arg,
			  uint64_t *ret);
/* An int of 64 bits, with sign. NULL: unchanged. */
int scout__py_arg_i64(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
		      int64_t *ret);
/* A str without NUL: its UTF-8, which lives as long as the object. NULL and None: unchanged. */
int scout__py_arg_text(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
		       const char **ret, size_t *ret_len);
/* TypeError: "Client.try_lookup(): id must be a str, not 5 (int)". Returns -1. */
int scout__py_arg_type_error(const struct scout__py_signature *sig, uint32_t i, PyObject *arg, const char *allowed);
/* ArgumentError (SCOUT_ERR_INVALID): "Client.try_lookup(): stride must be 1..1024, not 0". Returns -1. */
int scout__py_arg_value_error(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i,
			      PyObject *arg, const char *allowed);
