/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kvscout_py.h"
#include "use.h"

/*
 * The objects of this process that own something of the library: clients, workers, servers. They are closed at the interpreter's exit
 * if nobody has closed them before. GIL held.
 */
struct scout__py_open {
	struct scout__py_open *next, *prev; /* G:GIL */
	PyObject *object;                   /* borrowed; NULL: not open */
	void (*close)(PyObject *object);    /* const; lets the GIL go where it blocks */
	const struct scout__py_use *use;    /* const, the object's */
	const char *type_name;              /* const */
};

/* How such an object begins, and the methods that all of them have. */
#define SCOUT__PY_OWNER_HEAD                                                                                           \
	PyObject_HEAD struct scout__py_state *state;                                                                   \
	struct scout__py_use use;                                                                                      \
	struct scout__py_open open;                                                                                    \
	PyObject *endpoint; /* str, const */

struct scout__py_owner {
	SCOUT__PY_OWNER_HEAD
};

PyObject *scout__py_owner_close(PyObject *object, PyObject *unused);
PyObject *scout__py_owner_enter(PyObject *object, PyObject *unused);
PyObject *scout__py_owner_exit(PyObject *object, PyObject *const *args, Py_ssize_t n);
PyObject *scout__py_owner_closed(PyObject *object, void *unused);

/*
 * Before the object is made: start the thread that hands log lines to `logging`, and have exit told of us. 0, or -1 with an exception
 * (StateError: the interpreter is exiting).
 */
int scout__py_open_prepare(struct scout__py_state *state, const char *type_name);
/* The object is open; its close() calls _remove. */
void scout__py_open_add(struct scout__py_open *open, PyObject *object, const struct scout__py_use *use,
			const char *type_name, void (*close)(PyObject *));
void scout__py_open_remove(struct scout__py_open *open);
/*
 * The object is gone without close(): ResourceWarning, unless it is closed already or belongs to a parent process. An
 * exception that is set stays as it is.
 */
void scout__py_open_warn(const struct scout__py_open *open);

/* Functions of the module for kvscout/_logs.py, which says what they are for. 0, or -1 with an exception. */
int scout__py_lifetime_add(PyObject *module);
