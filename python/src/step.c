/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What Client.step() returns: a context manager that begins a step and ends it, also when its body raises.
 */
#include "py_client.h"

#include <kvscout/client.h>

struct scout__py_step {
	PyObject_HEAD PyObject *client; /* kvscout.Client */
};

PyObject *
scout__py_step_new(struct scout__py_client *client)
{
	struct scout__py_step *self = PyObject_New(struct scout__py_step, client->state->types[SCOUT__PY_STEP]);

	if (self)
		self->client = Py_NewRef((PyObject *)client);
	return (PyObject *)self;
}

static void
step_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	Py_DECREF(((struct scout__py_step *)self)->client);
	PyObject_Free(self);
	Py_DECREF(type);
}

static struct scout__py_client *
client_of(PyObject *self)
{
	return (struct scout__py_client *)((struct scout__py_step *)self)->client;
}

static PyObject *
step_enter(PyObject *self, PyObject *unused)
{
	struct scout__py_client *client = client_of(self);

	(void)unused;
	if (scout__py_use_check(client->state, &client->use, "Client.step") < 0)
		return NULL;
	scout_step_begin(client->client);
	return Py_NewRef((PyObject *)client);
}

/* A client that was closed inside the step has nothing to end; that is no error to hide the body's own with. */
static PyObject *
step_exit(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
	struct scout__py_client *client = client_of(self);

	(void)args;
	(void)n;
	if (client->use.closed)
		Py_RETURN_FALSE;
	if (scout__py_use_check(client->state, &client->use, "Client.step") < 0)
		return NULL;
	scout_step_end(client->client);
	Py_RETURN_FALSE;
}

static PyMethodDef methods[] = {
	{"__enter__", step_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nBegin the step; returns the client."},
	{"__exit__", SCOUT__PY_METHOD(step_exit), METH_FASTCALL,
	 "__exit__($self, /, *args)\n--\n\nEnd the step: what was asked in it is sent."},
	{0},
};

static const char doc[] = "A step of the scheduler, from Client.step(): with client.step(): ...";

static PyType_Slot slots[] = {
	{Py_tp_dealloc, (void *)step_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_doc, (void *)doc},
	{0, NULL},
};

PyType_Spec scout__py_step_spec = SCOUT__PY_SPEC("Step", struct scout__py_step, Py_TPFLAGS_DISALLOW_INSTANTIATION);
