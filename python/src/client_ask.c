/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Client.try_lookup() and its sisters, and poll().
 *
 * poll() reads no hashes; but where the library needs them again (SCOUT_NEED_QUERY: an old answer is renewed, a server was restarted,
 * the GPU's own cache shrank), the caller of a Python method should not have to know. So the client keeps, for each id that was asked
 * and not admitted or finished, what it was asked with: references to the caller's own objects, never copies, and the number of
 * chunks. An engine's list of hashes that has grown since is read up to that number. The dictionary is bounded by max_lookups, like
 * the library's table; what does not fit is not kept, and a poll that needs it says so.
 *
 * The GIL is let go only to wait: lookup() and wait_lookup() ask first with the GIL held, and an answer that is there costs no more
 * than try_lookup().
 */
#include "py_client.h"

#include <time.h>

#include <kvscout/client.h>
#include <kvscout/error.h>

#define WAIT_US 5000u /* another lookup of the step that is slower holds a wait for so long */
#define PAUSE_NS 100000

/* One entry of `asked`: the arguments, NULL where none was given, and the number of chunks. */
#define KEPT_N SCOUT__PY_QUERY_ARGS
#define KEPT (SCOUT__PY_QUERY_ARGS + 1)

/* ---- what was asked ---- */

void
scout__py_forget(struct scout__py_client *self, PyObject *id)
{
	if (PyDict_GetItemWithError(self->asked, id))
		(void)PyDict_DelItem(self->asked, id);
}

static PyObject *
entry_of(PyObject *const a[], size_t n)
{
	PyObject *entry = PyTuple_New(KEPT), *number = PyLong_FromSize_t(n);

	if (!entry || !number) {
		Py_XDECREF(entry);
		Py_XDECREF(number);
		return NULL;
	}
	for (int i = 0; i < SCOUT__PY_QUERY_ARGS; i++)
		(void)PyTuple_SetItem(entry, i, Py_NewRef(a[i] ? a[i] : Py_None));
	(void)PyTuple_SetItem(entry, KEPT_N, number);
	return entry;
}

/* The lookup is live: keep what it was asked with, unless that is kept. */
static int
remember(struct scout__py_client *self, PyObject *const a[], size_t n)
{
	PyObject *entry = PyDict_GetItemWithError(self->asked, a[SCOUT__PY_ID]);
	int rc;

	if (entry && PyTuple_GetItem(entry, SCOUT__PY_HASHES) == a[SCOUT__PY_HASHES])
		return 0;
	if (!entry && (PyErr_Occurred() || PyDict_Size(self->asked) >= (Py_ssize_t)self->max_asked))
		return PyErr_Occurred() ? -1 : 0;
	entry = entry_of(a, n);
	if (!entry)
		return -1;
	rc = PyDict_SetItem(self->asked, a[SCOUT__PY_ID], entry);
	Py_DECREF(entry);
	return rc;
}

/* ---- asking ---- */

enum ask {
	ASK_TRY,
	ASK_WAIT,
	ASK_LOOKUP,
	ASK_AHEAD
};

int
scout__py_wait_slice(struct scout__py_client *self, const char *name, bool *asked_before)
{
	PyThreadState *ts = scout__py_use_enter(&self->use, name);
	int rc = scout_step_wait(self->client, WAIT_US);

	if (rc == 0 && *asked_before) /* in an earlier step, whose questions a later one does not wait for */
		(void)nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
	*asked_before = rc == 0;
	scout__py_use_leave(&self->use, ts);
	if (rc < 0)
		return rc;
	/* Meanwhile another thread, or a handler, may have closed the client. */
	return PyErr_CheckSignals() < 0 ? -1 : scout__py_use_check(self->state, &self->use, name);
}

/* The library's call; with a wait behind it where the answer is not there and the caller wants one. */
static int
call(struct scout__py_client *self, enum ask how, const char *name, const struct scout_query *q, struct scout_hit *hit)
{
	bool asked_before = false;
	PyThreadState *ts;
	int rc;

	if (how == ASK_AHEAD)
		return scout_lookup_ahead(self->client, q);
	rc = scout_try_lookup(self->client, q, hit);
	if (rc != SCOUT_NOT_YET || how == ASK_TRY || (how == ASK_LOOKUP && !self->lookup_waits))
		return rc;
	if (how == ASK_LOOKUP && !self->is_polled) {
		ts = scout__py_use_enter(&self->use, name);
		rc = scout_lookup(self->client, q, hit);
		scout__py_use_leave(&self->use, ts);
		return rc;
	}
	/* The lookup's own deadline ends this. */
	while (rc == SCOUT_NOT_YET && scout__py_wait_slice(self, name, &asked_before) == 0)
		rc = scout_try_lookup(self->client, q, hit);
	return rc;
}

/* @max_n: at most so many of the leading chunks, of a list that may have grown. */
static PyObject *
ask(struct scout__py_client *self, enum ask how, const struct scout__py_signature *sig, PyObject *const a[],
    size_t max_n)
{
	struct scout__py_query query;
	struct scout_hit hit;
	PyObject *result = NULL;
	int rc;

	if (scout__py_query_init(&query, self, sig, a) < 0 ||
	    scout__py_use_check(self->state, &self->use, sig->call) < 0 ||
	    scout__py_query_gather(&query, self, sig, a, max_n) < 0)
		goto out;
	rc = call(self, how, sig->call, &query.q, &hit);
	if (PyErr_Occurred())
		goto out;
	if (rc < 0)
		scout__py_query_raise(&query, self, sig, a, rc);
	else if (remember(self, a, query.q.n) == 0 &&
		 ((how != ASK_WAIT && how != ASK_LOOKUP) || PyErr_CheckSignals() == 0))
		result = rc == 0 && how != ASK_AHEAD ? scout__py_hit_new(self->state, &hit) : Py_NewRef(Py_None);
out:
	scout__py_query_release(&query);
	return result;
}

static PyObject *
ask_args(PyObject *self, enum ask how, const struct scout__py_signature *sig, PyObject *const *args, Py_ssize_t n,
	 PyObject *kwnames)
{
	PyObject *a[SCOUT__PY_ARGS_MAX];

	if (scout__py_args(sig, args, n, kwnames, a) < 0)
		return NULL;
	return ask((struct scout__py_client *)self, how, sig, a, SIZE_MAX);
}

static const struct scout__py_signature try_sig = SCOUT__PY_QUERY_SIGNATURE("try_lookup");
static const struct scout__py_signature wait_sig = SCOUT__PY_QUERY_SIGNATURE("wait_lookup");
static const struct scout__py_signature lookup_sig = SCOUT__PY_QUERY_SIGNATURE("lookup");
static const struct scout__py_signature ahead_sig = SCOUT__PY_QUERY_SIGNATURE("lookup_ahead");

PyObject *
scout__py_try_lookup(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	return ask_args(self, ASK_TRY, &try_sig, args, n, kwnames);
}

PyObject *
scout__py_wait_lookup(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	return ask_args(self, ASK_WAIT, &wait_sig, args, n, kwnames);
}

PyObject *
scout__py_lookup(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	return ask_args(self, ASK_LOOKUP, &lookup_sig, args, n, kwnames);
}

PyObject *
scout__py_lookup_ahead(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	return ask_args(self, ASK_AHEAD, &ahead_sig, args, n, kwnames);
}

/* ---- asking again by the id alone ---- */

enum {
	POLL_ID,
	POLL_COMPUTED
};

static const struct scout__py_signature poll_sig = {
	.call = "Client.poll",
	.n_required = 1,
	.n_positional = 2,
	.n = 2,
	.names = {"id", "computed_tokens"},
};

/* The library wants the hashes: ask with those of the first time. */
static PyObject *
ask_as_before(struct scout__py_client *self, PyObject *id, PyObject *computed)
{
	PyObject *entry = PyDict_GetItemWithError(self->asked, id), *a[SCOUT__PY_QUERY_ARGS], *result;

	if (!entry) {
		if (!PyErr_Occurred())
			scout__py_raise(
				self->state, SCOUT_ERR_STATE,
				"Client.poll(%R): no lookup of this id is open (it was never asked, or was admitted or "
				"finished); call try_lookup()",
				id);
		return NULL;
	}
	Py_INCREF(entry);
	for (int i = 0; i < SCOUT__PY_QUERY_ARGS; i++) {
		a[i] = PyTuple_GetItem(entry, i);
		if (i != SCOUT__PY_TENANT && a[i] == Py_None)
			a[i] = NULL;
	}
	a[SCOUT__PY_COMPUTED] = computed;
	result = ask(self, ASK_TRY, &try_sig, a, PyLong_AsSize_t(PyTuple_GetItem(entry, KEPT_N)));
	Py_DECREF(entry);
	return result;
}

PyObject *
scout__py_poll(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	struct scout__py_client *self = (struct scout__py_client *)object;
	PyObject *a[SCOUT__PY_ARGS_MAX];
	uint64_t computed_tokens = 0;
	const char *id = NULL;
	struct scout_hit hit;
	int rc;

	if (scout__py_args(&poll_sig, args, n, kwnames, a) < 0)
		return NULL;
	if (scout__py_arg_id(self, &poll_sig, a[POLL_ID], &id) < 0 ||
	    scout__py_arg_u64(self->state, &poll_sig, POLL_COMPUTED, a[POLL_COMPUTED], UINT64_MAX, &computed_tokens) <
		    0 ||
	    scout__py_use_check(self->state, &self->use, poll_sig.call) < 0)
		return NULL;
	rc = scout_poll_lookup(self->client, id, computed_tokens, &hit);
	if (rc == SCOUT_NOT_YET)
		Py_RETURN_NONE;
	if (rc == 0)
		return scout__py_hit_new(self->state, &hit);
	if (rc == SCOUT_NEED_QUERY)
		return ask_as_before(self, a[POLL_ID], a[POLL_COMPUTED]);
	return scout__py_client_raise(self, &poll_sig, a[POLL_ID], NULL, rc);
}
