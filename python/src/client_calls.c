/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * What a Client does besides asking: steps, admit, finish, reset, clear, counters, its descriptor.
 */
#include "py_client.h"

#include <stddef.h>

#include <kvscout/error.h>

#define ERR_BYTES 512

static struct scout__py_client *
client_of(PyObject *self)
{
	return (struct scout__py_client *)self;
}

static int
check(struct scout__py_client *self, const char *call)
{
	return scout__py_use_check(self->state, &self->use, call);
}

/* ---- steps ---- */

/* A call that has neither arguments nor a result. */
static PyObject *
plain(PyObject *object, const char *name, void (*call)(struct scout_client *client))
{
	struct scout__py_client *self = client_of(object);

	if (check(self, name) < 0)
		return NULL;
	call(self->client);
	Py_RETURN_NONE;
}

PyObject *
scout__py_step_begin(PyObject *object, PyObject *unused)
{
	(void)unused;
	return plain(object, "Client.step_begin", scout_step_begin);
}

PyObject *
scout__py_step_end(PyObject *object, PyObject *unused)
{
	(void)unused;
	return plain(object, "Client.step_end", scout_step_end);
}

PyObject *
scout__py_step_wait(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Client.step_wait", 1, 1, 1, {"us"}};
	struct scout__py_client *self = client_of(object);
	PyObject *a[SCOUT__PY_ARGS_MAX];
	PyThreadState *ts;
	uint64_t us;
	int rc;

	if (scout__py_args(&sig, args, n, kwnames, a) < 0 ||
	    scout__py_arg_u64(self->state, &sig, 0, a[0], UINT32_MAX, &us) < 0 || check(self, sig.call) < 0)
		return NULL;
	ts = scout__py_use_enter(&self->use, sig.call);
	rc = scout_step_wait(self->client, (uint32_t)us);
	scout__py_use_leave(&self->use, ts);
	if (rc < 0)
		return scout__py_raise_call(self->state, rc, sig.call, NULL);
	if (PyErr_CheckSignals() < 0)
		return NULL;
	return PyBool_FromLong(rc == 0);
}

/* ---- lengths, admit, finish ---- */

/* The library refused a call that names an id. */
static PyObject *
raise_id(struct scout__py_client *self, const struct scout__py_signature *sig, PyObject *id, int rc)
{
	if (rc == SCOUT_ERR_STATE)
		return scout__py_raise(
			self->state, rc,
			"%s(%R): there is no answer (never asked, not answered yet, admitted or finished)", sig->call,
			id);
	return scout__py_client_raise(self, sig, id, NULL, rc);
}

PyObject *
scout__py_lookup_lengths(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Client.lookup_lengths", 1, 1, 1, {"id"}};
	struct scout__py_client *self = client_of(object);
	uint64_t lengths[SCOUT__PY_MAX_LENGTHS];
	PyObject *a[SCOUT__PY_ARGS_MAX], *list;
	const char *id = NULL;
	int rc;

	if (scout__py_args(&sig, args, n, kwnames, a) < 0 || scout__py_arg_id(self, &sig, a[0], &id) < 0 ||
	    check(self, sig.call) < 0)
		return NULL;
	rc = scout_lookup_lengths(self->client, id, lengths, SCOUT__PY_MAX_LENGTHS);
	if (rc < 0)
		return raise_id(self, &sig, a[0], rc);
	list = PyList_New(rc);
	for (int i = 0; list && i < rc; i++) {
		PyObject *number = PyLong_FromUnsignedLongLong(lengths[i]);

		if (!number || PyList_SetItem(list, i, number) < 0)
			Py_CLEAR(list);
	}
	return list;
}

PyObject *
scout__py_lookup_kept(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Client.lookup_kept", 1, 1, 1, {"id"}};
	/* By enum scout_keep. */
	static const char *const words[] = {NULL, "accepted", "clipped", "rejected", "missing"};
	struct scout__py_client *self = client_of(object);
	PyObject *a[SCOUT__PY_ARGS_MAX];
	const char *id = NULL;
	int rc;

	if (scout__py_args(&sig, args, n, kwnames, a) < 0 || scout__py_arg_id(self, &sig, a[0], &id) < 0 ||
	    check(self, sig.call) < 0)
		return NULL;
	rc = scout_lookup_kept(self->client, id);
	if (rc < 0)
		return raise_id(self, &sig, a[0], rc);
	if (!words[rc])
		Py_RETURN_NONE;
	return PyUnicode_FromString(words[rc]);
}

PyObject *
scout__py_admit(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Client.admit", 1, 3, 3, {"id", "from_token", "to_token"}};
	struct scout__py_client *self = client_of(object);
	int64_t from = 0, to = SCOUT_TO_END;
	PyObject *a[SCOUT__PY_ARGS_MAX];
	const char *id = NULL;
	int rc;

	if (scout__py_args(&sig, args, n, kwnames, a) < 0 || scout__py_arg_id(self, &sig, a[0], &id) < 0 ||
	    scout__py_arg_i64(self->state, &sig, 1, a[1], &from) < 0 ||
	    scout__py_arg_i64(self->state, &sig, 2, a[2] == Py_None ? NULL : a[2], &to) < 0 ||
	    check(self, sig.call) < 0)
		return NULL;
	rc = scout_admit(self->client, id, from, to);
	if (rc < 0)
		return raise_id(self, &sig, a[0], rc);
	scout__py_forget(self, a[0]);
	Py_RETURN_NONE;
}

/* The words of enum scout_hint, by number. */
static const char *const hints[] = {
	[SCOUT_HINT_UNKNOWN] = "unknown", [SCOUT_HINT_LIKELY] = "likely", [SCOUT_HINT_UNLIKELY] = "unlikely"};

static int
take_hint(struct scout__py_client *self, const struct scout__py_signature *sig, PyObject *arg, enum scout_hint *ret)
{
	if (!PyUnicode_Check(arg))
		return scout__py_arg_type_error(sig, 1, arg, "a str");
	for (size_t i = 0; i < sizeof(hints) / sizeof(hints[0]); i++)
		if (PyUnicode_CompareWithASCIIString(arg, hints[i]) == 0) {
			*ret = (enum scout_hint)i;
			return 0;
		}
	return scout__py_arg_value_error(self->state, sig, 1, arg, "'unknown', 'likely' or 'unlikely'");
}

/* @sig: the id, a hint, and how long to keep; or fewer. */
static PyObject *
finish(PyObject *object, const struct scout__py_signature *sig, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	struct scout__py_client *self = client_of(object);
	struct scout_finish finish = {.hint = SCOUT_HINT_UNKNOWN};
	PyObject *a[SCOUT__PY_ARGS_MAX];
	const char *id = NULL;
	uint64_t keep_ms = 0;
	int rc;

	if (scout__py_args(sig, args, n, kwnames, a) < 0 || scout__py_arg_id(self, sig, a[0], &id) < 0 ||
	    (sig->n > 1 && take_hint(self, sig, a[1], &finish.hint) < 0) ||
	    (sig->n > 2 && scout__py_arg_u64(self->state, sig, 2, a[2], UINT32_MAX, &keep_ms) < 0) ||
	    check(self, sig->call) < 0)
		return NULL;
	finish.keep_ms = (uint32_t)keep_ms;
	rc = scout_finish_keep(self->client, id, &finish);
	if (rc < 0)
		return raise_id(self, sig, a[0], rc);
	scout__py_forget(self, a[0]);
	Py_RETURN_NONE;
}

PyObject *
scout__py_finish(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Client.finish", 1, 1, 1, {"id"}};

	return finish(object, &sig, args, n, kwnames);
}

PyObject *
scout__py_finish_hint(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Client.finish_hint", 2, 2, 2, {"id", "hint"}};

	return finish(object, &sig, args, n, kwnames);
}

PyObject *
scout__py_finish_keep(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Client.finish_keep", 3, 3, 3, {"id", "hint", "keep_ms"}};

	return finish(object, &sig, args, n, kwnames);
}

/* ---- reset, clear ---- */

PyObject *
scout__py_client_reset(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Client.reset", 1, 1, 1, {"weights_version"}};
	struct scout__py_client *self = client_of(object);
	PyObject *a[SCOUT__PY_ARGS_MAX];
	uint64_t version = 0;
	int rc;

	if (scout__py_args(&sig, args, n, kwnames, a) < 0 ||
	    scout__py_arg_version(self->state, &sig, a[0], &version) < 0 || check(self, sig.call) < 0)
		return NULL;
	rc = scout_reset(self->client, version);
	if (rc < 0)
		return scout__py_raise_call(self->state, rc, sig.call, NULL);
	PyDict_Clear(self->asked);
	Py_RETURN_NONE;
}

PyObject *
scout__py_client_clear(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Client.clear", 0, 1, 1, {"generation"}};
	struct scout__py_client *self = client_of(object);
	PyObject *a[SCOUT__PY_ARGS_MAX];
	uint64_t generation = 0;
	int rc;

	if (scout__py_args(&sig, args, n, kwnames, a) < 0 ||
	    scout__py_arg_u64(self->state, &sig, 0, a[0], UINT64_MAX, &generation) < 0 || check(self, sig.call) < 0)
		return NULL;
	rc = scout_clear(self->client, generation, &generation);
	if (rc == SCOUT_ERR_INVALID)
		return scout__py_raise(self->state, rc,
				       "%s(): generation must be 0, or what another clear() returned, not %R", sig.call,
				       a[0]);
	if (rc < 0)
		return scout__py_raise_call(self->state, rc, sig.call, NULL);
	PyDict_Clear(self->asked);
	return PyLong_FromUnsignedLongLong(generation);
}

/* ---- the rest ---- */

PyObject *
scout__py_wait_ready(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Client.wait_ready", 1, 1, 1, {"timeout_ms"}};
	struct scout__py_client *self = client_of(object);
	PyObject *a[SCOUT__PY_ARGS_MAX];
	char err[ERR_BYTES] = "";
	uint64_t timeout_ms;
	PyThreadState *ts;
	int rc;

	if (scout__py_args(&sig, args, n, kwnames, a) < 0 ||
	    scout__py_arg_u64(self->state, &sig, 0, a[0], UINT32_MAX, &timeout_ms) < 0 || check(self, sig.call) < 0)
		return NULL;
	do {
		uint64_t slice_ms = timeout_ms < SCOUT__PY_SLICE_MS ? timeout_ms : SCOUT__PY_SLICE_MS;

		ts = scout__py_use_enter(&self->use, sig.call);
		rc = scout_client_wait_ready(self->client, (uint32_t)slice_ms, err, sizeof(err));
		scout__py_use_leave(&self->use, ts);
		if (PyErr_CheckSignals() < 0)
			return NULL;
		/* Meanwhile another thread, or a handler, may have closed the client. */
		if (rc == SCOUT_ERR_TIMEOUT && check(self, sig.call) < 0)
			return NULL;
		timeout_ms -= slice_ms;
	} while (rc == SCOUT_ERR_TIMEOUT && timeout_ms > 0);
	if (rc < 0)
		return scout__py_raise(self->state, rc, "%s(): %s", sig.call, err[0] ? err : scout_strerror(rc));
	Py_RETURN_NONE;
}

#define COUNTER(field) SCOUT__PY_COUNTER(scout_client_counters, field)

static const struct scout__py_counter counters[] = {
	COUNTER(servers_up),      COUNTER(lookups),       COUNTER(answers),        COUNTER(hits),
	COUNTER(timeouts),        COUNTER(unreachable),   COUNTER(refused),        COUNTER(late),
	COUNTER(not_yet),         COUNTER(busy),          COUNTER(rings),          COUNTER(frames_sent),
	COUNTER(frames_received), COUNTER(reconnects),    COUNTER(epochs),         COUNTER(protocol_errors),
	COUNTER(hit_tokens),      COUNTER(asked_tokens),  COUNTER(live),           COUNTER(renewals),
	COUNTER(renewed),         COUNTER(dropped),       COUNTER(asked_keys),     COUNTER(hit_keys),
	COUNTER(servers_untold),  COUNTER(stores_behind), COUNTER(keeps_accepted), COUNTER(keeps_clipped),
	COUNTER(keeps_rejected),  COUNTER(keeps_missing), COUNTER(kept_tokens),
};
_Static_assert(sizeof(counters) / sizeof(counters[0]) == sizeof(struct scout_client_counters) / sizeof(uint64_t),
	       "a counter is missing in the table");

PyObject *
scout__py_client_stats(PyObject *object, PyObject *unused)
{
	struct scout__py_client *self = client_of(object);
	struct scout_client_counters now;
	int rc;

	(void)unused;
	if (check(self, "Client.stats") < 0)
		return NULL;
	rc = scout_client_stats(self->client, &now);
	if (rc < 0)
		return scout__py_raise_call(self->state, rc, "Client.stats", NULL);
	return scout__py_counters(&now, counters, sizeof(counters) / sizeof(counters[0]));
}

/* ---- the feed ---- */

/* Events that one call returns at most. */
#define FEED_EVENTS 512

PyObject *
scout__py_client_feed(PyObject *object, PyObject *unused)
{
	struct scout__py_client *self = client_of(object);
	struct scout_feed_event events[FEED_EVENTS];
	PyObject *list;
	int n;

	(void)unused;
	if (check(self, "Client.feed") < 0)
		return NULL;
	n = scout_feed(self->client, events, FEED_EVENTS);
	if (n < 0)
		return scout__py_raise_call(self->state, n, "Client.feed", NULL);
	list = PyList_New(n);
	for (int i = 0; list && i < n; i++) {
		const struct scout_feed_event *e = &events[i];
		PyObject *event = Py_BuildValue(
			"(iiIs#y#y#)", e->kind, e->medium, (unsigned)e->group, e->tenant_len ? e->tenant : "",
			(Py_ssize_t)e->tenant_len, (const char *)e->hash, (Py_ssize_t)self->hash_bytes,
			e->description_len ? (const char *)e->description : "", (Py_ssize_t)e->description_len);

		if (!event || PyList_SetItem(list, i, event) < 0)
			Py_CLEAR(list);
	}
	return list;
}

PyObject *
scout__py_client_fileno(PyObject *object, PyObject *unused)
{
	struct scout__py_client *self = client_of(object);
	int rc;

	(void)unused;
	if (check(self, "Client.fileno") < 0)
		return NULL;
	rc = scout_client_fd(self->client);
	if (rc < 0)
		return scout__py_raise_call(self->state, rc, "Client.fileno", NULL);
	return PyLong_FromLong(rc);
}

PyObject *
scout__py_client_fd_clear(PyObject *object, PyObject *unused)
{
	(void)unused;
	return plain(object, "Client.fd_clear", scout_client_fd_clear);
}
