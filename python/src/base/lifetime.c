/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Interpreter exit. What is still open then is closed by a function of the module `atexit`, newest object first: threads that are not
 * daemons have ended by then, `logging` still works, and no object has been destroyed yet. So copies that run are waited for while the
 * pages are still there, and what the library logs meanwhile is handed over. Were it left to the destructors, the pages could go
 * before the worker that copies them.
 *
 * An object that a daemon thread is inside of cannot be freed, and its call may last. It is given a reference that is never taken
 * back: the object and its pages stay until the process ends, which ends the threads.
 *
 * In a forked child the list holds the parent's objects, too. Closing them there frees nothing of the library (see
 * scout_worker_free()), and waits for nothing.
 *
 * The thread for log lines is Python's (kvscout/_logs.py): it is started with the first object, sleeps without the GIL, and is the
 * only one that runs handlers. Rejected: to drain the ring in the next call. A handler may take milliseconds, which would be the
 * scheduler's; and a worker that is idle would say that its server is gone only when it is next used.
 */
#include "lifetime.h"

#include <string.h>

#include <kvscout/error.h>

#include "log_ring.h"
#include "use.h"

static struct scout__py_open *newest; /* G:GIL */
static bool exiting;                  /* G:GIL */

int
scout__py_open_prepare(struct scout__py_state *state, const char *type_name)
{
	PyObject *logs, *none;

	if (exiting)
		return SCOUT__PY_FAILED(
			scout__py_raise(state, SCOUT_ERR_STATE, "%s(): the interpreter is exiting", type_name));
	scout__py_log_guard_forks();
	logs = PyImport_ImportModule("kvscout._logs");
	none = logs ? PyObject_CallMethod(logs, "start", NULL) : NULL;
	Py_XDECREF(logs);
	Py_XDECREF(none);
	return none ? 0 : -1;
}

void
scout__py_open_add(struct scout__py_open *open, PyObject *object, const struct scout__py_use *use,
		   const char *type_name, void (*close)(PyObject *))
{
	*open = (struct scout__py_open){
		.next = newest, .object = object, .close = close, .use = use, .type_name = type_name};
	if (newest)
		newest->prev = open;
	newest = open;
}

void
scout__py_open_remove(struct scout__py_open *open)
{
	if (!open->object)
		return;
	if (open->next)
		open->next->prev = open->prev;
	if (open->prev)
		open->prev->next = open->next;
	else
		newest = open->next;
	open->object = NULL;
}

void
scout__py_open_warn(const struct scout__py_open *open)
{
	PyObject *type, *value, *traceback;

	if (!open->object || scout__py_use_forked(open->use))
		return;
	PyErr_Fetch(&type, &value, &traceback);
	/* An error where a filter makes one of the warning: no caller is there to catch it. */
	if (PyErr_ResourceWarning(NULL, 1, "unclosed kvscout.%s: call close(), or use it in a with statement",
				  open->type_name) < 0)
		PyErr_WriteUnraisable(NULL);
	PyErr_Restore(type, value, traceback);
}

static PyObject *
close_all(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	exiting = true;
	while (newest) {
		struct scout__py_open *open = newest;
		PyObject *object = Py_NewRef(open->object);

		if (open->use->inside && !scout__py_use_forked(open->use)) {
			scout__py_open_remove(open); /* and the reference stays */
			continue;
		}
		open->close(object);
		scout__py_open_remove(open); /* whatever close() did */
		Py_DECREF(object);
	}
	Py_RETURN_NONE;
}

/* ---- log lines ---- */

static PyObject *
log_wait(PyObject *module, PyObject *unused)
{
	bool more;

	(void)module;
	(void)unused;
	Py_BEGIN_ALLOW_THREADS more = scout__py_log_wait();
	Py_END_ALLOW_THREADS return PyBool_FromLong(more);
}

static PyObject *
log_pop(PyObject *module, PyObject *unused)
{
	struct scout__py_log_line line;

	(void)module;
	(void)unused;
	if (!scout__py_log_pop(&line))
		Py_RETURN_NONE;
	/* The library has made sure that it is UTF-8, unless it cut a character at the line's end. */
	return Py_BuildValue("(idKN)", line.level, (double)line.time_us / 1e6, (unsigned long long)line.lost,
			     PyUnicode_DecodeUTF8(line.text, (Py_ssize_t)strlen(line.text), "replace"));
}

static PyObject *
log_stop(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	scout__py_log_stop();
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
	{"_close_all", close_all, METH_NOARGS, NULL},
	{"_log_wait", log_wait, METH_NOARGS, NULL},
	{"_log_pop", log_pop, METH_NOARGS, NULL},
	{"_log_stop", log_stop, METH_NOARGS, NULL},
	{0},
};

int
scout__py_lifetime_add(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}

/* ---- what clients, workers and servers have alike ---- */

PyObject *
scout__py_owner_close(PyObject *object, PyObject *unused)
{
	(void)unused;
	((struct scout__py_owner *)object)->open.close(object);
	Py_RETURN_NONE;
}

PyObject *
scout__py_owner_enter(PyObject *object, PyObject *unused)
{
	struct scout__py_owner *self = (struct scout__py_owner *)object;
	char call[64];

	(void)unused;
	(void)PyOS_snprintf(call, sizeof(call), "%s.__enter__", self->open.type_name);
	return scout__py_use_check(self->state, &self->use, call) < 0 ? NULL : Py_NewRef(object);
}

PyObject *
scout__py_owner_exit(PyObject *object, PyObject *const *args, Py_ssize_t n)
{
	(void)args;
	(void)n;
	return scout__py_owner_close(object, NULL);
}

PyObject *
scout__py_owner_closed(PyObject *object, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct scout__py_owner *)object)->use.closed);
}
