/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * kvscout.ensure_server(): the server of this host, by scout_ensure_server(). Its keyword arguments are written as those of a
 * constructor (config.c); three are the call's own, the rest are keys of a server that is started, which the library takes as one text
 * of "key=value" with blanks between.
 */
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>
#include <kvscout/instance.h>
#include <kvscout/server.h>

#include "kvscout_py.h"
#include "lifetime.h"
#include "log_ring.h"
#include "py_check_keys.h"
#include "py_ensure_server.h"

#define ERR_BYTES 1024 /* a path and the last words of kvscoutd */
#define ENDPOINT_BYTES 256

/* Strings are owned. */
struct ensure_args {
	char *endpoint, *server_program, *server_keys;
	struct scout_server_config
		checked; /* takes the server's keys, to know at once what kvscoutd would say in its log */
	uint32_t timeout_ms;
};

static int
keep(char **ret, const char *value)
{
	char *copy = strdup(value);

	if (!copy)
		return SCOUT_ERR_NOMEM;
	free(*ret);
	*ret = copy;
	return 0;
}

static int
add_key(struct ensure_args *a, const char *key, const char *value, char *err, size_t err_len)
{
	size_t old = a->server_keys ? strlen(a->server_keys) : 0, n = strlen(key) + strlen(value) + 3;
	char *grown;
	int rc = scout_server_config_set(&a->checked, key, value, err, err_len);

	if (rc)
		return rc;
	if (strpbrk(value, " \t\n")) {
		(void)PyOS_snprintf(err, err_len, "%s: \"%s\" must not hold blanks; give several values as a list", key,
				    value);
		return SCOUT_ERR_CONFIG_SYNTAX;
	}
	grown = realloc(a->server_keys, old + n);
	if (!grown)
		return SCOUT_ERR_NOMEM;
	a->server_keys = grown;
	(void)PyOS_snprintf(grown + old, n, "%s%s=%s", old ? " " : "", key, value);
	return 0;
}

static int
set(void *cfg, const char *key, const char *value, char *err, size_t err_len)
{
	struct ensure_args *a = cfg;
	char *end = NULL;
	unsigned long ms;

	if (strcmp(key, "endpoint") == 0)
		return keep(&a->endpoint, value);
	if (strcmp(key, "server_program") == 0)
		return keep(&a->server_program, value);
	if (strcmp(key, "timeout_ms") != 0)
		return add_key(a, key, value, err, err_len);
	ms = strtoul(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end != '\0' || ms < 1 || ms > 3600000) {
		(void)PyOS_snprintf(err, err_len, "timeout_ms: \"%s\" must be 1..3600000", value);
		return SCOUT_ERR_CONFIG_RANGE;
	}
	a->timeout_ms = (uint32_t)ms;
	return 0;
}

static PyObject *
ensure(struct scout__py_state *state, const struct ensure_args *a)
{
	char endpoint[ENDPOINT_BYTES], err[ERR_BYTES] = "";
	struct scout_instance_config cfg;
	uint32_t left_ms = a->timeout_ms ? a->timeout_ms : 5000;
	PyThreadState *ts;
	int rc;

	scout_instance_config_init(&cfg);
	cfg.endpoint = a->endpoint;
	cfg.server_program = a->server_program;
	cfg.server_keys = a->server_keys;
	cfg.log = scout__py_log_push;
	do {
		cfg.timeout_ms = left_ms < SCOUT__PY_SLICE_MS ? left_ms : SCOUT__PY_SLICE_MS;
		ts = PyEval_SaveThread();
		rc = scout_ensure_server(&cfg, endpoint, sizeof(endpoint), err, sizeof(err));
		PyEval_RestoreThread(ts);
		if (PyErr_CheckSignals() < 0)
			return NULL;
		left_ms -= cfg.timeout_ms;
	} while (rc == SCOUT_ERR_TIMEOUT && left_ms > 0);
	if (rc != 0)
		return scout__py_raise(state, rc, "ensure_server(): %s", err[0] ? err : scout_strerror(rc));
	return PyUnicode_DecodeFSDefault(endpoint);
}

const char scout__py_ensure_server_doc[] =
	"ensure_server(*, endpoint='auto', timeout_ms=5000, server_program=None, **server_keys)\n--\n\n"
	"Find the server of this host, or start one, and wait until it serves. Returns its endpoint, for Client and Worker.\n\n"
	"A server that is started is a process of its own: it outlives this one, and ends idle_exit_s (60) after its last peer\n"
	"has left. Clients and workers without an endpoint do all of this by themselves in the background, and again when the\n"
	"server is gone; this call is for programs that want the server, or the reason why there is none, before they go on.\n\n"
	"endpoint: 'auto', or 'auto:///FOLDER' for a server with its files there. server_program: kvscoutd by its absolute path;\n"
	"by default the one of this installation. All other arguments are keys of a server that is started, as for Server.\n\n"
	"Raises ConfigError (an argument; no kvscoutd was found), ServerError (another version serves, or it ends before it\n"
	"serves; the text has its last words and the path of its log), KVScoutError (timeout, permission, system). Lets the GIL\n"
	"go; waits up to timeout_ms, and not longer than until a signal's handler raises. Legal in a forked child.";

PyObject *
scout__py_ensure_server(PyObject *module, PyObject *args, PyObject *kwargs)
{
	struct scout__py_state *state = scout__py_state_of(module);
	struct ensure_args a = {0};
	PyObject *endpoint = NULL;

	scout_server_config_init(&a.checked);
	a.checked.l1_bytes = 1; /* unset: the server takes what the machine has */
	if (scout__py_config_apply(state, "ensure_server", args, kwargs, set, &a) == 0 &&
	    scout__py_check_server(state, "ensure_server", &a.checked) == 0 &&
	    scout__py_open_prepare(state, "ensure_server") == 0)
		endpoint = ensure(state, &a);
	scout_server_config_fini(&a.checked);
	free(a.endpoint);
	free(a.server_program);
	free(a.server_keys);
	return endpoint;
}
