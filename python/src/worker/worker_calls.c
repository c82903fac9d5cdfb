/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Worker's calls about jobs that exist, about pages and about what is cached.
 *
 * wait_layer() first asks with the GIL held, which costs no system call: a layer that is there already, the usual case, costs no
 * change of threads. Where it has to wait it lets the GIL go and wakes ten times a second, for signal handlers and for close().
 */
#include "py_worker.h"

#include <stddef.h>

#include <kvscout/error.h>

#include "clock.h"

#define SLICE_MS 100u

/* The argument of a METH_O call, as if it had a name. */
static int
take_job(struct scout__py_worker *self, const struct scout__py_signature *sig, PyObject *arg, uint64_t *ret_job)
{
	if (scout__py_arg_u64(self->state, sig, 0, arg, UINT64_MAX, ret_job) < 0)
		return -1;
	return scout__py_use_check(self->state, &self->use, sig->call);
}

/* What the library says of a job: the error of the call, or of the job itself. */
static PyObject *
raise_job(struct scout__py_worker *self, const struct scout__py_signature *sig, int rc, uint64_t job)
{
	if (rc == SCOUT_ERR_STATE)
		return scout__py_raise(self->state, rc, "%s(): job %llu does not exist, or poll() has reported it",
				       sig->call, (unsigned long long)job);
	return scout__py_raise(self->state, rc, "%s(): job %llu: %s", sig->call, (unsigned long long)job,
			       scout_strerror(rc));
}

/* More layers than the job has, or one that cannot have any: which of both? */
static PyObject *
raise_layers(struct scout__py_worker *self, const struct scout__py_signature *sig, int rc, uint64_t job,
	     uint32_t layers)
{
	struct scout_progress progress;

	if (rc != SCOUT_ERR_INVALID || scout_worker_progress(self->worker, job, &progress) != 0)
		return raise_job(self, sig, rc, job);
	if (layers > progress.layers)
		return scout__py_raise(self->state, rc, "%s(): layers must be 0..%u, which job %llu has, not %u",
				       sig->call, (unsigned)progress.layers, (unsigned long long)job, (unsigned)layers);
	return scout__py_raise(self->state, rc, "%s(): job %llu is no store with announced=True", sig->call,
			       (unsigned long long)job);
}

PyObject *
scout__py_worker_progress(PyObject *object, PyObject *arg)
{
	static const struct scout__py_signature sig = {"Worker.progress", 1, 1, 1, {"job"}};
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	struct scout_progress progress;
	uint64_t job;
	int rc;

	if (take_job(self, &sig, arg, &job) < 0)
		return NULL;
	rc = scout_worker_progress(self->worker, job, &progress);
	if (rc != 0)
		return raise_job(self, &sig, rc, job);
	return Py_BuildValue("(III)", progress.layers, progress.enqueued, progress.copied);
}

PyObject *
scout__py_worker_cancel(PyObject *object, PyObject *arg)
{
	static const struct scout__py_signature sig = {"Worker.cancel", 1, 1, 1, {"job"}};
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	uint64_t job;
	int rc;

	if (take_job(self, &sig, arg, &job) < 0)
		return NULL;
	rc = scout_worker_cancel(self->worker, job);
	if (rc != 0)
		return raise_job(self, &sig, rc, job);
	Py_RETURN_NONE;
}

/* 0: they are copied; SCOUT_NOT_YET; or what is wrong with the call or with the job, whose status may be SCOUT_ERR_TIMEOUT, too. */
static int
ask_layers(struct scout__py_worker *self, uint64_t job, uint32_t layers)
{
	struct scout_progress progress;
	int rc = scout_worker_progress(self->worker, job, &progress);

	if (rc != 0)
		return rc;
	if (layers > progress.layers)
		return SCOUT_ERR_INVALID;
	return progress.copied >= layers ? 0 : SCOUT_NOT_YET;
}

/* As ask_layers() after the wait. *ret_raised: an exception is set, a signal handler's or because the worker was closed. */
static int
wait_layers(struct scout__py_worker *self, const char *call, uint64_t job, uint32_t layers, uint64_t timeout_ms,
	    bool *ret_raised)
{
	uint64_t now = scout__now_us() / 1000, end = now + timeout_ms;
	int rc = ask_layers(self, job, layers);

	while (rc == SCOUT_NOT_YET && now < end) {
		uint32_t slice = end - now < SLICE_MS ? (uint32_t)(end - now) : SLICE_MS;
		PyThreadState *ts = scout__py_use_enter(&self->use, call);

		rc = scout_worker_wait_layer(self->worker, job, layers, slice);
		scout__py_use_leave(&self->use, ts);
		if (PyErr_CheckSignals() < 0 || scout__py_use_check(self->state, &self->use, call) < 0) {
			*ret_raised = true;
			return rc;
		}
		if (rc != 0)
			rc = ask_layers(self, job, layers); /* SCOUT_ERR_TIMEOUT may be the job's own */
		now = scout__now_us() / 1000;
	}
	return rc;
}

PyObject *
scout__py_worker_wait_layer(PyObject *object, PyObject *const *raw, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Worker.wait_layer", 2, 3, 3, {"job", "layers", "timeout_ms"}};
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	uint64_t job, layers, timeout_ms = 30000;
	PyObject *args[SCOUT__PY_ARGS_MAX];
	bool raised = false;
	int rc;

	if (scout__py_args(&sig, raw, n, kwnames, args) < 0 ||
	    scout__py_arg_u64(self->state, &sig, 1, args[1], UINT32_MAX, &layers) < 0 ||
	    scout__py_arg_u64(self->state, &sig, 2, args[2], UINT32_MAX, &timeout_ms) < 0 ||
	    take_job(self, &sig, args[0], &job) < 0)
		return NULL;
	rc = wait_layers(self, sig.call, job, (uint32_t)layers, timeout_ms, &raised);
	if (raised)
		return NULL;
	if (rc >= 0)
		return PyBool_FromLong(rc == 0);
	return raise_layers(self, &sig, rc, job, (uint32_t)layers);
}

PyObject *
scout__py_worker_layer_ready(PyObject *object, PyObject *const *raw, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Worker.layer_ready", 2, 2, 2, {"job", "layers"}};
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	PyObject *args[SCOUT__PY_ARGS_MAX];
	uint64_t job, layers;
	int rc;

	if (scout__py_args(&sig, raw, n, kwnames, args) < 0 ||
	    scout__py_arg_u64(self->state, &sig, 1, args[1], UINT32_MAX, &layers) < 0 ||
	    take_job(self, &sig, args[0], &job) < 0)
		return NULL;
	rc = scout_worker_layer_ready(self->worker, job, (uint32_t)layers);
	if (rc != 0)
		return raise_layers(self, &sig, rc, job, (uint32_t)layers);
	Py_RETURN_NONE;
}

/* ---- pages ---- */

PyObject *
scout__py_worker_fence(PyObject *object, PyObject *const *raw, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Worker.fence", 1, 2, 3, {"block_ids", "stream", "group"}};
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	PyObject *args[SCOUT__PY_ARGS_MAX];
	struct scout__py_ids *ids = &self->ids[0];
	PyThreadState *ts = NULL;
	void *stream = NULL;
	uint64_t group = 0;
	int rc;

	if (scout__py_args(&sig, raw, n, kwnames, args) < 0 ||
	    scout__py_arg_stream(self->state, &sig, 1, args[1], &stream) < 0 ||
	    scout__py_arg_u64(self->state, &sig, 2, args[2], SCOUT__PY_MAX_GROUPS - 1, &group) < 0 ||
	    scout__py_use_check(self->state, &self->use, sig.call) < 0)
		return NULL;
	self->use.inside = sig.call; /* reading the ids may run Python code */
	rc = scout__py_ids_read(self->state, sig.call, "block_ids", args[0], ids);
	self->use.inside = NULL;
	if (rc < 0 || scout__py_use_check(self->state, &self->use, sig.call) < 0 ||
	    scout__py_worker_raise_id(self, sig.call, (uint32_t)group, ids->ids, ids->n)) {
		scout__py_ids_release(ids);
		return NULL;
	}
	if (self->n_live > 0) /* else there is nothing to wait for */
		ts = scout__py_use_enter(&self->use, sig.call);
	rc = scout_worker_fence(self->worker, (uint32_t)group, ids->ids, ids->n, stream);
	if (ts)
		scout__py_use_leave(&self->use, ts);
	scout__py_ids_release(ids);
	if (rc == SCOUT_ERR_INVALID && stream)
		return scout__py_raise(self->state, rc, "%s(): stream is given, but the host backend knows none",
				       sig.call);
	if (rc == SCOUT_ERR_GROUP)
		return scout__py_raise(self->state, rc, "%s(): no table of group %u is registered", sig.call,
				       (unsigned)group);
	if (rc != 0)
		return scout__py_raise_call(self->state, rc, sig.call, NULL);
	Py_RETURN_NONE;
}

/* ---- what is cached ---- */

PyObject *
scout__py_worker_reset(PyObject *object, PyObject *arg)
{
	static const struct scout__py_signature sig = {"Worker.reset", 1, 1, 1, {"weights_version"}};
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	uint64_t version;
	int rc;

	if (scout__py_arg_version(self->state, &sig, arg, &version) < 0 ||
	    scout__py_use_check(self->state, &self->use, sig.call) < 0)
		return NULL;
	rc = scout_worker_reset(self->worker, version);
	if (rc != 0)
		return scout__py_raise_call(self->state, rc, sig.call, NULL);
	Py_RETURN_NONE;
}

PyObject *
scout__py_worker_clear(PyObject *object, PyObject *const *raw, Py_ssize_t n, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Worker.clear", 0, 1, 1, {"generation"}};
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	uint64_t generation = 0, now = 0;
	PyObject *args[SCOUT__PY_ARGS_MAX];
	int rc;

	if (scout__py_args(&sig, raw, n, kwnames, args) < 0 ||
	    scout__py_arg_u64(self->state, &sig, 0, args[0], UINT64_MAX, &generation) < 0 ||
	    scout__py_use_check(self->state, &self->use, sig.call) < 0)
		return NULL;
	rc = scout_worker_clear(self->worker, generation, &now);
	if (rc == SCOUT_ERR_INVALID)
		return scout__py_raise(
			self->state, rc,
			"%s(): generation must be what Client.clear() returned, 0 or GENERATION_NEWEST, not %R",
			sig.call, args[0]);
	if (rc != 0)
		return scout__py_raise_call(self->state, rc, sig.call, NULL);
	return PyLong_FromUnsignedLongLong(now);
}

/* ---- the worker itself ---- */

#define ROW(name) SCOUT__PY_COUNTER(scout_worker_counters, name)

/* clang-format off */
static const struct scout__py_counter counters[] = {
	ROW(server_up), ROW(registered), ROW(live), ROW(retrieves), ROW(stores), ROW(busy), ROW(retrieves_ok),
	ROW(retrieves_missing), ROW(retrieves_timeout), ROW(retrieves_canceled), ROW(retrieves_unreachable),
	ROW(retrieves_refused), ROW(retrieves_failed), ROW(stores_ok), ROW(stores_timeout), ROW(stores_canceled),
	ROW(stores_unreachable), ROW(stores_refused), ROW(stores_failed), ROW(retrieved_chunks),
	ROW(retrieved_bytes), ROW(missing_blocks), ROW(mismatches), ROW(retrieve_queued_us), ROW(retrieve_server_us),
	ROW(retrieve_copy_us), ROW(retrieve_total_us), ROW(stored_chunks), ROW(stored_bytes), ROW(present_chunks),
	ROW(no_room_chunks), ROW(null_chunks), ROW(store_queued_us), ROW(store_server_us), ROW(store_copy_us),
	ROW(store_total_us), ROW(frames_sent), ROW(frames_received), ROW(reconnects), ROW(epochs),
	ROW(protocol_errors),
	ROW(verifies),
	ROW(verifies_ok),
	ROW(verifies_failed),
	ROW(verified_chunks),
	ROW(mismatched_chunks),
};
/* clang-format on */

_Static_assert(sizeof(counters) / sizeof(counters[0]) == sizeof(struct scout_worker_counters) / sizeof(uint64_t),
	       "each counter of the library is one of stats()");

PyObject *
scout__py_worker_stats(PyObject *object, PyObject *unused)
{
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	struct scout_worker_counters values;
	int rc;

	(void)unused;
	if (scout__py_use_check(self->state, &self->use, "Worker.stats") < 0)
		return NULL;
	rc = scout_worker_stats(self->worker, &values);
	if (rc != 0)
		return scout__py_raise_call(self->state, rc, "Worker.stats", NULL);
	return scout__py_counters(&values, counters, sizeof(counters) / sizeof(counters[0]));
}

PyObject *
scout__py_worker_fileno(PyObject *object, PyObject *unused)
{
	struct scout__py_worker *self = (struct scout__py_worker *)object;

	(void)unused;
	if (scout__py_use_check(self->state, &self->use, "Worker.fileno") < 0)
		return NULL;
	return PyLong_FromLong(scout_worker_fd(self->worker));
}
