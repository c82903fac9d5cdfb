/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * kvscout.Server: the cache server inside this process, for tests and tools. It starts when the object is made, and ends at stop(), at
 * the end of the object, or at the interpreter's exit.
 *
 * In a forked child the object belongs to the parent: its thread is not there, and the library's stop() would wait for it, so the
 * child never calls that.
 */
#include <kvscout/error.h>
#include <kvscout/server.h>

#include "kvscout_py.h"
#include "lifetime.h"
#include "log_ring.h"
#include "use.h"

#define ERR_BYTES 512

/* G:GIL, all of it; `server` is NULL once it is stopped. */
struct scout__py_server {
	SCOUT__PY_OWNER_HEAD
	struct scout_server *server;
};

static int
set(void *cfg, const char *key, const char *value, char *err, size_t err_len)
{
	return scout_server_config_set(cfg, key, value, err, err_len);
}

static void
stop_server(PyObject *object)
{
	struct scout__py_server *self = (struct scout__py_server *)object;
	struct scout_server *server;
	PyThreadState *ts;

	if (!scout__py_use_close(&self->use))
		return;
	scout__py_open_remove(&self->open);
	server = self->server;
	self->server = NULL;
	if (server && !scout__py_use_forked(&self->use)) {
		ts = PyEval_SaveThread();
		scout_server_stop(server);
		PyEval_RestoreThread(ts);
	}
	scout__py_use_closed(&self->use);
}

/* The GIL is let go: a pool of many GiB takes its time. Nobody else knows the object yet. */
static int
start_server(struct scout__py_server *self, struct scout_server_config *cfg, char *err)
{
	PyThreadState *ts;
	int rc;

	cfg->log = scout__py_log_push;
	ts = PyEval_SaveThread();
	rc = scout_server_start(cfg, &self->server, err, ERR_BYTES);
	PyEval_RestoreThread(ts);
	return rc;
}

static PyObject *
server_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct scout__py_state *state = scout__py_state_of_type(type);
	struct scout_server_config cfg;
	struct scout__py_server *self = NULL;
	char err[ERR_BYTES] = "";
	int rc;

	scout_server_config_init(&cfg);
	if (scout__py_config_apply(state, "Server", args, kwargs, set, &cfg) == 0 &&
	    scout__py_open_prepare(state, "Server") == 0)
		self = (struct scout__py_server *)PyType_GenericAlloc(type, 0);
	if (!self) {
		scout_server_config_fini(&cfg);
		return NULL;
	}
	self->state = state;
	scout__py_use_init(&self->use);
	rc = start_server(self, &cfg, err);
	scout_server_config_fini(&cfg);
	if (rc != 0)
		scout__py_raise(state, rc, "Server(): %s", err[0] ? err : scout_strerror(rc));
	else
		self->endpoint = PyUnicode_FromString(scout_server_endpoint(self->server));
	if (!self->endpoint) {
		Py_DECREF(self);
		return NULL;
	}
	scout__py_open_add(&self->open, (PyObject *)self, &self->use, "Server", stop_server);
	return (PyObject *)self;
}

static void
server_dealloc(PyObject *object)
{
	struct scout__py_server *self = (struct scout__py_server *)object;
	PyTypeObject *type = Py_TYPE(object);
	freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

	scout__py_open_warn(&self->open);
	stop_server(object);
	scout__py_use_fini(&self->use);
	Py_XDECREF(self->endpoint);
	free_object(object);
	Py_DECREF(type);
}

static PyObject *
server_repr(PyObject *object)
{
	struct scout__py_server *self = (struct scout__py_server *)object;
	const char *word = scout__py_use_word(&self->use);

	return PyUnicode_FromFormat("<kvscout.Server endpoint=%R %s>", self->endpoint, word ? word : "serves");
}

static PyObject *
server_endpoint(PyObject *object, void *unused)
{
	(void)unused;
	return Py_NewRef(((struct scout__py_server *)object)->endpoint);
}

PyDoc_STRVAR(
	server_doc,
	"Server(**config)\n--\n\n"
	"The cache server inside this process: the code of kvscoutd, for tests and tools. Production uses kvscoutd, which\n"
	"outlives engines and does not share their file descriptors.\n\n"
	"Configuration keys are those of the server in docs/configuration.md, as keyword arguments; None means the default.\n"
	"It serves when the constructor returns, and ends at stop() or at the end of a with statement. Any thread may use it.\n\n"
	"Raises ConfigError (a key or its value), ArgumentError (not in this build), KVScoutError (the endpoint is in use or\n"
	"cannot be bound, memory, system).");
PyDoc_STRVAR(
	stop_doc,
	"stop($self, /)\n--\n\n"
	"End the server: replies that are ready go out, and the endpoint is free again. Takes at most about 0.5 s, with L2\n"
	"longer (l2_timeout_ms). Lets the GIL go. Legal more than once. In a forked child it leaves the parent's server alone.");
PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\nThe same as stop().");

static PyMethodDef methods[] = {
	{"stop", scout__py_owner_close, METH_NOARGS, stop_doc},
	{"close", scout__py_owner_close, METH_NOARGS, close_doc},
	{"__enter__", scout__py_owner_enter, METH_NOARGS, NULL},
	{"__exit__", SCOUT__PY_METHOD(scout__py_owner_exit), METH_FASTCALL, NULL},
	{0},
};

static PyGetSetDef properties[] = {
	{"endpoint", server_endpoint, NULL, "Where clients and workers find it, with the port that the kernel chose.",
	 NULL},
	{"closed", scout__py_owner_closed, NULL, "Whether stop() has been called.", NULL},
	{0},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)server_new},
	{Py_tp_dealloc, (void *)server_dealloc},
	{Py_tp_repr, (void *)server_repr},
	{Py_tp_methods, methods},
	{Py_tp_getset, properties},
	{Py_tp_doc, (void *)server_doc},
	{0, NULL},
};

PyType_Spec scout__py_server_spec = SCOUT__PY_SPEC("Server", struct scout__py_server, 0);
