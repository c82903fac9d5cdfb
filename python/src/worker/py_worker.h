/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <kvscout/worker.h>

#include "hashes.h"
#include "ids.h"
#include "kvscout_py.h"
#include "lifetime.h"
#include "planes.h"
#include "use.h"

#define SCOUT__PY_MAX_GROUPS 32u

/* What a registered table is to the binding. G:GIL */
struct scout__py_table {
	uint32_t group, block_tokens, n_planes;
	uint64_t n_blocks;
	struct scout__py_planes planes;
	PyObject *layout_tag; /* str or NULL */
};

/* A kvscout.Worker. G:GIL, all of it; `worker` is NULL once it is closed. */
struct scout__py_worker {
	SCOUT__PY_OWNER_HEAD
	struct scout_worker *worker;
	uint32_t chunk_tokens, hash_tokens, hash_bytes; /* const */
	uint32_t only_group; /* of the last job whose block_ids were no dict: the group of the only table */
	uint32_t n_tables;
	struct scout__py_table *tables;                 /* own the pages' owners until the worker is closed */
	struct scout__py_ids ids[SCOUT__PY_MAX_GROUPS]; /* of the call that runs */
	struct scout__py_hash_room hash_room;
	PyObject *jobs;  /* dict: number of a live job to what it needs from Python until poll() reports it */
	uint64_t n_live; /* jobs that poll has not reported */
};

/* ---- worker_register.c ---- */

PyObject *scout__py_worker_register(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_worker_unregister(PyObject *object, PyObject *unused);
/* The table of @group; NULL: none is registered. */
const struct scout__py_table *scout__py_worker_table(const struct scout__py_worker *self, uint32_t group);
void scout__py_tables_free(struct scout__py_worker *self);

/* ---- worker_jobs.c ---- */

PyObject *scout__py_worker_retrieve(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_worker_verify(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
/* Whether one of @ids has no page in the table of @group; then the exception is set. */
bool scout__py_worker_raise_id(const struct scout__py_worker *self, const char *call, uint32_t group,
			       const int64_t *ids, size_t n);
PyObject *scout__py_worker_store(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

/* ---- worker_calls.c ---- */

PyObject *scout__py_worker_progress(PyObject *object, PyObject *job);
PyObject *scout__py_worker_wait_layer(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_worker_layer_ready(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_worker_cancel(PyObject *object, PyObject *job);
PyObject *scout__py_worker_fence(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_worker_reset(PyObject *object, PyObject *weights_version);
PyObject *scout__py_worker_clear(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_worker_stats(PyObject *object, PyObject *unused);
PyObject *scout__py_worker_fileno(PyObject *object, PyObject *unused);

/* ---- done.c ---- */

PyObject *scout__py_worker_poll(PyObject *object, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

/* ---- handles.c ---- */

/* A cudaEvent_t: an int, or an object with `cuda_event`. NULL, None: unchanged. 0, or -1 with an exception. */
int scout__py_arg_event(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
			void **ret);
/* A cudaStream_t: an int, where 0 is the legacy default stream, or an object with `cuda_stream`. NULL, None: unchanged. */
int scout__py_arg_stream(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i,
			 PyObject *arg, void **ret);
