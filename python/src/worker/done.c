/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Worker.poll(), and kvscout.Done: the end of one job, a copy of the library's struct scout_done. The positions of missing blocks are
 * copied, too, as the library lends them until the next poll only; so are the compared chunks.
 */
#include "py_worker.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include <kvscout/error.h>

#define AT_ONCE 64u

struct scout__py_done {
	PyObject_HEAD struct scout_done done; /* `missing` and `verified` are not used */
	PyObject *missing;                    /* dict: group to tuple */
	PyObject *verified;                   /* tuple of dicts */
	struct scout__py_state *state;
};

static const char *const kinds[] = {"", "retrieve", "store", "verify"}; /* by enum scout_job_kind */

/* ---- making one ---- */

static PyObject *
positions(const uint32_t *missing, uint32_t n, uint64_t first)
{
	PyObject *tuple = PyTuple_New((Py_ssize_t)n);

	for (uint32_t i = 0; tuple && i < n; i++) {
		PyObject *number = PyLong_FromUnsignedLongLong(missing[i] - first);

		if (!number || PyTuple_SetItem(tuple, (Py_ssize_t)i, number) < 0)
			Py_CLEAR(tuple);
	}
	return tuple;
}

/* The library counts positions on from group to group; @sizes is ((group, ids), ...) in its order. */
static PyObject *
by_group(const struct scout_done *done, PyObject *sizes)
{
	PyObject *dict = PyDict_New();
	uint64_t first = 0;
	uint32_t at = 0;

	for (Py_ssize_t g = 0; dict && g < PyTuple_Size(sizes); g++) {
		PyObject *pair = PyTuple_GetItem(sizes, g), *group = PyTuple_GetItem(pair, 0), *own;
		uint64_t end = first + PyLong_AsUnsignedLongLong(PyTuple_GetItem(pair, 1));
		uint32_t from = at;

		while (at < done->n_missing && done->missing[at] < end)
			at++;
		own = at > from ? positions(done->missing + from, at - from, first) : NULL;
		if (at > from && (!own || PyDict_SetItem(dict, group, own) < 0))
			Py_CLEAR(dict);
		Py_XDECREF(own);
		first = end;
	}
	return dict;
}

/* A tuple with a dict for each compared chunk. */
static PyObject *
verified(const struct scout_done *done)
{
	PyObject *tuple = PyTuple_New((Py_ssize_t)done->n_verified);

	for (uint32_t i = 0; tuple && i < done->n_verified; i++) {
		const struct scout_verified *v = &done->verified[i];
		PyObject *dict =
			Py_BuildValue("{sIsIsIsNsdsdsKsK}", "group", v->group, "chunk", v->chunk, "plane", v->plane,
				      "differs", PyBool_FromLong((long)v->differs), "norm_error", (double)v->norm_error,
				      "share", (double)v->share, "stored_by", (unsigned long long)v->stored_by,
				      "stored_s", (unsigned long long)v->stored_s);

		if (!dict || PyTuple_SetItem(tuple, (Py_ssize_t)i, dict) < 0)
			Py_CLEAR(tuple);
	}
	return tuple;
}

static PyObject *
done_new(struct scout__py_worker *self, const struct scout_done *done)
{
	PyObject *key = PyLong_FromUnsignedLongLong(done->job), *kept = NULL, *sizes = NULL;
	struct scout__py_done *made = NULL;

	if (!key)
		return NULL;
	kept = PyDict_GetItemWithError(self->jobs, key);
	if (kept) {
		sizes = PyTuple_GetItem(kept, 1);
		sizes = sizes == Py_None ? NULL : Py_NewRef(sizes);
		if (PyDict_DelItem(self->jobs, key) < 0)
			PyErr_Clear();
	}
	Py_DECREF(key);
	if (!sizes && !PyErr_Occurred()) /* its block_ids were those of the only table */
		sizes = Py_BuildValue("((IK))", self->only_group, ULLONG_MAX);
	if (sizes)
		made = PyObject_New(struct scout__py_done, self->state->types[SCOUT__PY_DONE]);
	if (made) {
		made->done = *done;
		made->done.missing = NULL;
		made->done.verified = NULL;
		made->state = self->state;
		made->missing = by_group(done, sizes);
		made->verified = made->missing ? verified(done) : NULL;
		if (!made->verified)
			Py_CLEAR(made);
	}
	Py_XDECREF(sizes);
	return (PyObject *)made;
}

/* ---- the type ---- */

/* For tests of a program. */
static PyObject *
done_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = {"job",     "kind",       "status",      "ticket",  "bytes",     "chunks",
					    "present", "no_room",    "null_chunks", "missing", "queued_us", "server_us",
					    "copy_us", "mismatched", "verified",    NULL};
	unsigned long long job = 0, ticket = 0, bytes = 0, queued_us = 0, server_us = 0, copy_us = 0;
	struct scout_done done = {0};
	const char *kind = "retrieve";
	PyObject *missing = NULL, *compared = NULL;
	struct scout__py_done *made;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Ks$iKKIIIIO!KKKIO!:Done", (char **)names, &job, &kind,
					 &done.status, &ticket, &bytes, &done.chunks, &done.present, &done.no_room,
					 &done.null_chunks, &PyDict_Type, &missing, &queued_us, &server_us, &copy_us,
					 &done.mismatched, &PyTuple_Type, &compared))
		return NULL;
	while (done.kind <= SCOUT_JOB_VERIFY && strcmp(kind, kinds[done.kind]) != 0)
		done.kind++;
	if (done.kind < SCOUT_JOB_RETRIEVE || done.kind > SCOUT_JOB_VERIFY)
		return PyErr_Format(PyExc_ValueError, "Done(): kind must be 'retrieve', 'store' or 'verify', not '%s'",
				    kind);
	missing = missing ? PyDict_Copy(missing) : PyDict_New();
	made = missing ? PyObject_New(struct scout__py_done, type) : NULL;
	if (!made) {
		Py_XDECREF(missing);
		return NULL;
	}
	done.job = job;
	done.ticket = ticket;
	done.bytes = bytes;
	done.queued_us = queued_us;
	done.server_us = server_us;
	done.copy_us = copy_us;
	done.total_us = queued_us + server_us + copy_us;
	*made = (struct scout__py_done){made->ob_base, done, missing, compared ? Py_NewRef(compared) : PyTuple_New(0),
					scout__py_state_of_type(type)};
	return (PyObject *)made;
}

static void
done_dealloc(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	Py_XDECREF(((struct scout__py_done *)object)->missing);
	Py_XDECREF(((struct scout__py_done *)object)->verified);
	PyObject_Free(object);
	Py_DECREF(type);
}

static PyObject *
done_kind(PyObject *object, void *unused)
{
	(void)unused;
	return PyUnicode_FromString(kinds[((struct scout__py_done *)object)->done.kind]);
}

static PyObject *
done_ok(PyObject *object, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct scout__py_done *)object)->done.status == 0);
}

static PyObject *
done_error(PyObject *object, void *unused)
{
	const struct scout__py_done *self = (struct scout__py_done *)object;

	(void)unused;
	if (self->done.status == 0)
		Py_RETURN_NONE;
	return scout__py_error_make(self->state, self->done.status, "%s job %llu: %s", kinds[self->done.kind],
				    (unsigned long long)self->done.job, scout_strerror(self->done.status));
}

static PyObject *
done_repr(PyObject *object)
{
	const struct scout__py_done *self = (struct scout__py_done *)object;
	const struct scout_done *done = &self->done;
	const char *status = scout_err_name(done->status);

	if (done->kind == SCOUT_JOB_STORE)
		return PyUnicode_FromFormat(
			"Done(job=%llu, kind='store', status=%d (%s), chunks=%u, present=%u, no_room=%u, "
			"null_chunks=%u, bytes=%llu, total_us=%llu)",
			(unsigned long long)done->job, done->status, status, done->chunks, done->present, done->no_room,
			done->null_chunks, (unsigned long long)done->bytes, (unsigned long long)done->total_us);
	if (done->kind == SCOUT_JOB_VERIFY)
		return PyUnicode_FromFormat("Done(job=%llu, kind='verify', status=%d (%s), chunks=%u, mismatched=%u, "
					    "missing=%R, total_us=%llu)",
					    (unsigned long long)done->job, done->status, status, done->chunks,
					    done->mismatched, self->missing, (unsigned long long)done->total_us);
	return PyUnicode_FromFormat(
		"Done(job=%llu, kind='retrieve', status=%d (%s), chunks=%u, missing=%R, bytes=%llu, total_us=%llu)",
		(unsigned long long)done->job, done->status, status, done->chunks, self->missing,
		(unsigned long long)done->bytes, (unsigned long long)done->total_us);
}

#define MEMBER(field, type, doc) SCOUT__PY_MEMBER(struct scout__py_done, done, field, type, doc)

static PyMemberDef members[] = {
	MEMBER(job, T_ULONGLONG, "The number that retrieve() or store() returned."),
	MEMBER(ticket, T_ULONGLONG, "The job's ticket."),
	MEMBER(status, T_INT, "0: everything copied; else the code of the error."),
	MEMBER(bytes, T_ULONGLONG, "Bytes copied."),
	MEMBER(chunks, T_UINT,
	       "retrieve: chunks read. store: chunks that became a hit by this job (all other ranks had them). verify: compared."),
	MEMBER(present, T_UINT, "store: chunks that were there already, or that another store is writing."),
	MEMBER(no_room, T_UINT, "store: chunks at the end for which the pool had no room."),
	MEMBER(null_chunks, T_UINT, "store: chunks with a null or negative block id; they are not stored."),
	MEMBER(queued_us, T_ULONGLONG,
	       "Microseconds in the worker: for its registration, the copy engine, an announced layer."),
	MEMBER(server_us, T_ULONGLONG,
	       "Microseconds of waiting for the server; a retrieve: for what is loaded from L2, too."),
	MEMBER(copy_us, T_ULONGLONG, "Microseconds of copying."),
	MEMBER(total_us, T_ULONGLONG, "From the submit to the end: the sum of the other three."),
	MEMBER(mismatched, T_UINT, "verify: chunks that differ."),
	{"verified", T_OBJECT_EX, offsetof(struct scout__py_done, verified), READONLY,
	 "verify: a dict for each compared chunk, with the fields of struct scout_verified: group, chunk (index in the prompt), the\n"
	 "plane that differs most, differs (bool), norm_error, share, stored_by and stored_s."},
	{"missing", T_OBJECT_EX, offsetof(struct scout__py_done, missing), READONLY,
	 "retrieve: the blocks that were not filled and must be recomputed; verify: that were not compared: a dict from the group's number to a tuple of\n"
	 "positions in the group's block_ids, ascending. Groups that miss nothing are not in it."},
	{0},
};

static PyGetSetDef properties[] = {
	{"kind", done_kind, NULL, "'retrieve', 'store' or 'verify'.", NULL},
	{"ok", done_ok, NULL, "Whether everything was copied, or compared.", NULL},
	{"error", done_error, NULL, "None, or the exception that belongs to status, not raised.", NULL},
	{0},
};

static const char doc[] =
	"Done(job=0, kind='retrieve', *, status=0, ticket=0, bytes=0, chunks=0, present=0, no_room=0, null_chunks=0, missing={},\n"
	"queued_us=0, server_us=0, copy_us=0, mismatched=0, verified=())\n--\n\n"
	"The end of one job, as poll() reports it. Workers make them; a program makes one for its own tests.";

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)done_make},
	{Py_tp_dealloc, (void *)done_dealloc},
	{Py_tp_repr, (void *)done_repr},
	{Py_tp_members, members},
	{Py_tp_getset, properties},
	{Py_tp_doc, (void *)doc},
	{0, NULL},
};

PyType_Spec scout__py_done_spec = SCOUT__PY_SPEC("Done", struct scout__py_done, 0);

/* ---- poll ---- */

/*
 * A job that the library has reported is over, and is not reported again: so where memory is out, the rest of this round is still
 * taken from the books, and the exception says that jobs are lost.
 */
static int
append(struct scout__py_worker *self, PyObject *list, const struct scout_done *done, int n)
{
	int rc = 0;

	self->n_live -= (uint64_t)n;
	for (int i = 0; i < n; i++) {
		PyObject *object = rc == 0 ? done_new(self, &done[i]) : NULL;

		if (!object || PyList_Append(list, object) < 0)
			rc = -1;
		Py_XDECREF(object);
	}
	return rc;
}

PyObject *
scout__py_worker_poll(PyObject *object, PyObject *const *raw, Py_ssize_t n_raw, PyObject *kwnames)
{
	static const struct scout__py_signature sig = {"Worker.poll", 0, 1, 1, {"max"}};
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	PyObject *args[SCOUT__PY_ARGS_MAX], *list;
	struct scout_done done[AT_ONCE];
	uint64_t max = 4096;
	int n = 0;

	if (scout__py_args(&sig, raw, n_raw, kwnames, args) < 0 ||
	    scout__py_arg_u64(self->state, &sig, 0, args[0], UINT32_MAX, &max) < 0 ||
	    scout__py_use_check(self->state, &self->use, sig.call) < 0)
		return NULL;
	list = PyList_New(0);
	while (list && max > 0) {
		n = scout_worker_poll(self->worker, done, max < AT_ONCE ? (size_t)max : AT_ONCE);
		if (n < 0) {
			Py_DECREF(list);
			return scout__py_raise_call(self->state, n, sig.call, NULL);
		}
		if (append(self, list, done, n) < 0)
			Py_CLEAR(list);
		if (n < (int)AT_ONCE)
			break;
		max -= (uint64_t)n;
	}
	return list;
}
