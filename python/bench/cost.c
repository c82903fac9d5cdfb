/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What cost.py compares Python's calls with: an empty call of the limited API, which is the floor of any call, and the C calls
 * themselves in a loop, on a client of its own in the same process.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvscout/client.h>

#define HASH_BYTES 32u
#define MAX_HASHES 256u

static uint64_t
cpu_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static PyObject *
empty(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	(void)module;
	(void)args;
	(void)n;
	(void)kwnames;
	Py_RETURN_NONE;
}

struct bench {
	struct scout_client *client;
	uint8_t hashes[MAX_HASHES * HASH_BYTES];
	struct scout_query q;
};

static int
open_client(struct bench *b, PyObject *endpoint, size_t n_hashes)
{
	struct scout_client_config cfg;
	char err[512] = "";
	int rc;

	scout_client_config_init(&cfg);
	cfg.endpoint = PyUnicode_AsUTF8AndSize(endpoint, NULL);
	if (!cfg.endpoint)
		return -1;
	cfg.name_space = "cost";
	cfg.lookup_timeout_ms = 3600000;
	rc = scout_client_new(&cfg, &b->client, err, sizeof(err));
	if (rc == 0)
		rc = scout_client_wait_ready(b->client, 10000, err, sizeof(err));
	if (rc != 0)
		PyErr_Format(PyExc_RuntimeError, "no client: %s", err);
	for (size_t i = 0; i < sizeof(b->hashes); i++)
		b->hashes[i] = (uint8_t)(i * 7 + i / HASH_BYTES);
	b->q = (struct scout_query){.id = "request-1", .hashes = b->hashes, .hash_len = HASH_BYTES, .n = n_hashes};
	b->q.prompt_tokens = n_hashes * 256 + 1;
	return rc == 0 ? 0 : -1;
}

/* Asks again for a lookup that is pending, by its id or with its hashes. */
static uint64_t
time_pending(struct bench *b, long n, int by_id)
{
	struct scout_hit hit;
	uint64_t start;
	int sum = 0;

	scout_step_begin(b->client);
	sum += scout_try_lookup(b->client, &b->q, &hit);
	start = cpu_ns();
	for (long i = 0; i < n; i++)
		sum += by_id ? scout_poll_lookup(b->client, b->q.id, 0, &hit)
			     : scout_try_lookup(b->client, &b->q, &hit);
	start = cpu_ns() - start;
	scout_step_end(b->client);
	return sum == n + 1 ? start : 0;
}

/* A first ask and its finish, n times in steps of 100. */
static uint64_t
time_submit(struct bench *b, long n)
{
	struct scout_hit hit;
	uint64_t ns = 0;
	int sum = 0;

	for (long i = 0; i < n; i += 100) {
		uint64_t start;

		scout_step_begin(b->client);
		start = cpu_ns();
		for (int k = 0; k < 100; k++) {
			sum += scout_try_lookup(b->client, &b->q, &hit) == SCOUT_NOT_YET;
			(void)scout_finish(b->client, b->q.id);
		}
		ns += cpu_ns() - start;
		scout_step_end(b->client);
		(void)scout_step_wait(b->client, 1000);
	}
	return sum == n ? ns : 0;
}

/* c_call(endpoint, what, n_hashes, n) -> nanoseconds for each call */
static PyObject *
c_call(PyObject *module, PyObject *args)
{
	struct bench *b = calloc(1, sizeof(*b));
	PyObject *endpoint, *result = NULL;
	const char *what;
	Py_ssize_t n_hashes;
	uint64_t ns;
	long n;

	(void)module;
	if (!b || !PyArg_ParseTuple(args, "Usnl", &endpoint, &what, &n_hashes, &n) ||
	    n_hashes > (Py_ssize_t)MAX_HASHES || open_client(b, endpoint, (size_t)n_hashes) < 0)
		goto out;
	ns = strcmp(what, "submit") == 0 ? time_submit(b, n) : time_pending(b, n, strcmp(what, "poll") == 0);
	if (ns == 0)
		PyErr_SetString(PyExc_RuntimeError, "a call did not answer as expected");
	else
		result = PyFloat_FromDouble((double)ns / (double)n);
out:
	if (b)
		scout_client_free(b->client);
	free(b);
	if (!result && !PyErr_Occurred())
		PyErr_SetString(PyExc_RuntimeError, "c_call: wrong arguments");
	return result;
}

static PyMethodDef functions[] = {
	{"empty", (PyCFunction)(void (*)(void))empty, METH_FASTCALL | METH_KEYWORDS, "Does nothing."},
	{"c_call", c_call, METH_VARARGS, "Nanoseconds of one C call."},
	{0},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "_cost",
	.m_size = 0,
	.m_methods = functions,
};

PyMODINIT_FUNC PyInit__cost(void);

PyMODINIT_FUNC
PyInit__cost(void)
{
	return PyModuleDef_Init(&definition);
}
