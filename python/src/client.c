/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * kvscout.Client: its life. An object owns one struct scout_client from its construction to close() or to its end.
 */
#include "py_client.h"

#include <kvscout/client.h>
#include <kvscout/error.h>

#include "log_ring.h"

#define ERR_BYTES 512

static int
set(void *cfg, const char *key, const char *value, char *err, size_t err_len)
{
	return scout_client_config_set(cfg, key, value, err, err_len);
}

static void
close_client(PyObject *object)
{
	struct scout__py_client *self = (struct scout__py_client *)object;
	struct scout_client *client;
	PyThreadState *ts;

	if (!scout__py_use_close(&self->use))
		return;
	scout__py_open_remove(&self->open);
	client = self->client;
	self->client = NULL;
	ts = PyEval_SaveThread();
	scout_client_free(client);
	PyEval_RestoreThread(ts);
	scout__py_use_closed(&self->use);
}

static PyObject *
client_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct scout__py_state *state = scout__py_state_of_type(type);
	struct scout_client_config cfg;
	struct scout__py_client *self = NULL;
	char err[ERR_BYTES] = "";
	int rc;

	scout_client_config_init(&cfg);
	if (scout__py_config_apply(state, "Client", args, kwargs, set, &cfg) == 0 &&
	    scout__py_open_prepare(state, "Client") == 0)
		self = (struct scout__py_client *)PyType_GenericAlloc(type, 0);
	if (!self) {
		scout_client_config_fini(&cfg);
		return NULL;
	}
	self->state = state;
	scout__py_use_init(&self->use);
	cfg.log = scout__py_log_push;
	rc = scout_client_new(&cfg, &self->client, err, sizeof(err));
	scout_client_config_fini(&cfg);
	if (rc != 0) {
		scout__py_raise(state, rc, "Client(): %s", err[0] ? err : scout_strerror(rc));
		Py_DECREF(self);
		return NULL;
	}
	scout__py_open_add(&self->open, (PyObject *)self, &self->use, close_client);
	return (PyObject *)self;
}

static void
client_dealloc(PyObject *object)
{
	struct scout__py_client *self = (struct scout__py_client *)object;
	PyTypeObject *type = Py_TYPE(object);
	freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

	scout__py_open_warn(&self->open, "Client");
	close_client(object);
	scout__py_use_fini(&self->use);
	free_object(object);
	Py_DECREF(type);
}

static PyObject *
client_close(PyObject *object, PyObject *unused)
{
	(void)unused;
	close_client(object);
	Py_RETURN_NONE;
}

PyDoc_STRVAR(
	close_doc,
	"close($self, /)\n--\n\n"
	"End the client: lookups in flight are dropped, and what they promised is given back. Takes at most about 0.2 s.\n\n"
	"Any thread may call it, and as often as it likes; where another thread is inside a call that waits, it first\n"
	"waits for that call to end. Every later call of any other method raises ClosedError.");

PyDoc_STRVAR(
	client_doc,
	"Client(**config)\n--\n\n"
	"The scheduler's side: how many leading tokens of a prompt are cached outside the GPU?\n\n"
	"Configuration keys are those of docs/configuration.md, as keyword arguments: numbers, words, or text as in a\n"
	"configuration file ('64Mi'); endpoint and cpus may be lists; None means the default. Connecting goes on in the\n"
	"background.\n\n"
	"One thread at a time uses a client; a second one gets StateError. A forked child gets ClosedError.");

static PyMethodDef methods[] = {
	{"close", client_close, METH_NOARGS, close_doc},
	{0},
};

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)client_new},
	{Py_tp_dealloc, (void *)client_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_doc, (void *)client_doc},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "kvscout.Client",
	.basicsize = sizeof(struct scout__py_client),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = slots,
};

int
scout__py_client_add(PyObject *module)
{
	return scout__py_add_type(module, SCOUT__PY_CLIENT, &spec, "Client");
}
