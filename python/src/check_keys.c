/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * _kvscout.check_keys(): keys of a Client, Worker or Server, checked by the library's own functions without making one. vLLM's connector
 * and tier ask it before a model is loaded: a wrong key then ends the start, and not the work of minutes.
 */
#include "py_check_keys.h"

#include <string.h>

#include <kvscout/client.h>
#include <kvscout/server.h>
#include <kvscout/worker.h>

#define ERR_BYTES 512

struct checked {
	const char *kind;
	struct scout_client_config client;
	struct scout_worker_config worker;
	struct scout_server_config server;
};

static int
set(void *cfg, const char *key, const char *value, char *err, size_t err_len)
{
	struct checked *c = cfg;

	if (strcmp(c->kind, "Client") == 0)
		return scout_client_config_set(&c->client, key, value, err, err_len);
	if (strcmp(c->kind, "Worker") == 0)
		return scout_worker_config_set(&c->worker, key, value, err, err_len);
	return scout_server_config_set(&c->server, key, value, err, err_len);
}

int
scout__py_check_server(struct scout__py_state *state, const char *call, const struct scout_server_config *cfg)
{
	char err[ERR_BYTES] = "";
	int rc = scout_server_config_check(cfg, err, sizeof(err));

	if (rc != 0)
		scout__py_raise(state, rc, "%s(): %s", call, err[0] ? err : scout_strerror(rc));
	return rc == 0 ? 0 : -1;
}

static int
check(struct scout__py_state *state, struct checked *c, PyObject *kwargs)
{
	PyObject *none = PyTuple_New(0);
	int rc = none ? scout__py_config_apply(state, c->kind, none, kwargs, set, c) : -1;

	Py_XDECREF(none);
	if (rc == 0 && strcmp(c->kind, "Server") == 0)
		rc = scout__py_check_server(state, c->kind, &c->server);
	return rc;
}

static bool
is_kind(const char *text)
{
	return text && (strcmp(text, "Client") == 0 || strcmp(text, "Worker") == 0 || strcmp(text, "Server") == 0);
}

PyObject *
scout__py_check_keys(PyObject *module, PyObject *args, PyObject *kwargs)
{
	struct checked c;
	PyObject *kind = PyTuple_Size(args) == 1 ? PyTuple_GetItem(args, 0) : NULL;
	int rc;

	c.kind = kind && PyUnicode_Check(kind) ? PyUnicode_AsUTF8AndSize(kind, NULL) : NULL;
	if (!is_kind(c.kind)) {
		PyErr_Clear();
		PyErr_SetString(PyExc_TypeError,
				"check_keys() takes 'Client', 'Worker' or 'Server', then keys by name");
		return NULL;
	}
	scout_client_config_init(&c.client);
	scout_worker_config_init(&c.worker);
	scout_server_config_init(&c.server);
	c.server.l1_bytes = 1; /* unset: a server that is started in the background takes what the machine has */
	rc = check(scout__py_state_of(module), &c, kwargs);
	scout_client_config_fini(&c.client);
	scout_worker_config_fini(&c.worker);
	scout_server_config_fini(&c.server);
	return rc == 0 ? Py_NewRef(Py_None) : NULL;
}

const char scout__py_check_keys_doc[] =
	"check_keys(kind, /, **keys)\n--\n\n"
	"Whether a 'Client', 'Worker' or 'Server' would take these keys; none is made, and no server or store is asked.\n\n"
	"Raises ConfigError (a key or its value), KVScoutError (l1_bytes is more than the memory of this machine).";
