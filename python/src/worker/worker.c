/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * kvscout.Worker: its life. An object owns one struct scout_worker from its construction to close(), and holds the owners of the
 * pages as long. close() waits for the copies that run; only then the pages may go.
 *
 * The pages' owner is often the engine, which owns the worker, too: a circle, which the garbage collector takes apart in any order. So
 * it closes the worker in the finalizer, which runs for a whole circle before anything of it is cleared, and `clear` leaves the pages
 * of an open worker alone.
 */
#include "py_worker.h"

#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "log_ring.h"

#define ERR_BYTES 512

static int
set(void *cfg, const char *key, const char *value, char *err, size_t err_len)
{
	return scout_worker_config_set(cfg, key, value, err, err_len);
}

static void
close_worker(PyObject *object)
{
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	struct scout_worker *worker;
	PyThreadState *ts;

	if (!scout__py_use_close(&self->use))
		return;
	scout__py_open_remove(&self->open);
	worker = self->worker;
	self->worker = NULL;
	ts = PyEval_SaveThread();
	scout_worker_free(worker);
	PyEval_RestoreThread(ts);
	self->n_live = 0;
	Py_CLEAR(self->jobs);
	scout__py_tables_free(self);
	scout__py_use_closed(&self->use);
}

static PyObject *
worker_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct scout__py_state *state = scout__py_state_of_type(type);
	struct scout_worker_config cfg;
	struct scout__py_worker *self = NULL;
	char err[ERR_BYTES] = "";
	int rc;

	scout_worker_config_init(&cfg);
	if (scout__py_config_apply(state, "Worker", args, kwargs, set, &cfg) == 0 &&
	    scout__py_open_prepare(state, "Worker") == 0)
		self = (struct scout__py_worker *)PyType_GenericAlloc(type, 0);
	if (!self) {
		scout_worker_config_fini(&cfg);
		return NULL;
	}
	self->state = state;
	self->chunk_tokens = cfg.chunk_tokens;
	self->hash_tokens = cfg.hash_tokens ? cfg.hash_tokens : cfg.chunk_tokens;
	self->hash_bytes = cfg.hash_bytes;
	scout__py_use_init(&self->use);
	self->jobs = PyDict_New();
	self->endpoint = PyUnicode_FromString(cfg.endpoint ? cfg.endpoint : "auto");
	cfg.log = scout__py_log_push;
	rc = self->jobs && self->endpoint ? scout_worker_new(&cfg, &self->worker, err, sizeof(err)) : 0;
	scout_worker_config_fini(&cfg);
	if (rc != 0)
		scout__py_raise(state, rc, "Worker(): %s", err[0] ? err : scout_strerror(rc));
	if (!self->worker) {
		Py_DECREF(self);
		return NULL;
	}
	scout__py_open_add(&self->open, (PyObject *)self, &self->use, "Worker", close_worker);
	return (PyObject *)self;
}

static int
worker_traverse(PyObject *object, visitproc visit, void *arg)
{
	struct scout__py_worker *self = (struct scout__py_worker *)object;

	Py_VISIT(Py_TYPE(object));
	Py_VISIT(self->jobs);
	for (uint32_t i = 0; i < self->n_tables; i++) {
		int rc = scout__py_planes_visit(&self->tables[i].planes, visit, arg);

		if (rc)
			return rc;
	}
	return 0;
}

/* By the garbage collector, before it clears anything. */
static void
worker_finalize(PyObject *object)
{
	struct scout__py_worker *self = (struct scout__py_worker *)object;

	if (!self->worker)
		return;
	scout__py_open_warn(&self->open);
	close_worker(object);
}

static int
worker_clear(PyObject *object)
{
	struct scout__py_worker *self = (struct scout__py_worker *)object;

	if (self->worker)
		return 0;
	Py_CLEAR(self->jobs);
	scout__py_tables_free(self);
	return 0;
}

static void
worker_dealloc(PyObject *object)
{
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	PyTypeObject *type = Py_TYPE(object);
	freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(object);
	scout__py_open_warn(&self->open);
	close_worker(object);
	for (uint32_t i = 0; i < SCOUT__PY_MAX_GROUPS; i++)
		scout__py_ids_free(&self->ids[i]);
	PyMem_Free(self->hash_room.bytes);
	Py_XDECREF(self->endpoint);
	scout__py_use_fini(&self->use);
	free_object(object);
	Py_DECREF(type);
}

/* ---- methods ---- */

static PyObject *
worker_repr(PyObject *object)
{
	struct scout__py_worker *self = (struct scout__py_worker *)object;
	const char *word = scout__py_use_word(&self->use);
	struct scout_worker_counters now = {0};

	if (!word) {
		if (scout_worker_stats(self->worker, &now) != 0)
			now.server_up = now.registered = 0;
		word = now.registered ? "registered" : now.server_up ? "connected, not registered" : "not connected";
	}
	return PyUnicode_FromFormat("<kvscout.Worker endpoint=%R %s>", self->endpoint, word);
}

PyDoc_STRVAR(
	worker_doc,
	"Worker(**config)\n--\n\n"
	"The GPU worker's side: moves the KV of whole requests between the engine's pages and the server's pool.\n\n"
	"Configuration keys are those of docs/configuration.md, as keyword arguments; None means the default. Connecting\n"
	"goes on in the background. Then register() the pages, retrieve() and store(), and poll() for what has ended.\n\n"
	"Raises ConfigError (a key or its value), ArgumentError (also: a backend that this build does not have),\n"
	"KVScoutError (device, memory, system).\n\n"
	"One thread at a time uses a worker; a second one gets StateError. A forked child gets ClosedError. The worker holds\n"
	"the objects that own the pages until it is closed; without close() there is a ResourceWarning.");
PyDoc_STRVAR(
	close_doc,
	"close($self, /)\n--\n\n"
	"End the worker: jobs that have not started are dropped, copies that run are waited for, then the pages are let go.\n\n"
	"Takes as long as the copies that run, and at most about 0.2 s more. Lets the GIL go. Any thread may call it, and as\n"
	"often as it likes; where another thread is inside a call that waits, it first waits for that call. Later calls of\n"
	"other methods raise ClosedError. In a forked child it frees nothing of the parent.");
PyDoc_STRVAR(
	register_doc,
	"register($self, /, planes=None, block_tokens=None, *, n_blocks=None, dtype=None, null_block=-1, block_dim=0,\n"
	"         layout_tag=None, timeout_ms=0, tables=None)\n--\n\n"
	"Describe the KV pages, once. Jobs may be submitted from then on.\n\n"
	"planes: list of (address, stride, block_bytes), or of objects that own memory: tensors (data_ptr(), shape, stride(),\n"
	"element_size()), arrays (__array_interface__, __cuda_array_interface__), writable buffers (bytearray, mmap). Of an\n"
	"object the dimension block_dim counts the blocks; the others are the bytes of a block as far as they are dense in\n"
	"memory, and each index of the rest is a plane of its own: a tensor (2, blocks, tokens, heads, dim) with block_dim=1 is\n"
	"two planes. With one dimension it is cut into n_blocks equal blocks.\n"
	"block_tokens: tokens in a block; chunk_tokens is a multiple.\n"
	"n_blocks: blocks in each plane, ids are 0 .. n_blocks-1; by default the size of dimension block_dim.\n"
	"dtype: 'f16', 'bf16', 'f32', 'f8_e4m3', 'f8_e5m2', 'i8', a torch.dtype, or None (opaque). Workers with another one do\n"
	"not share KV.\n"
	"null_block: id of the block that is never read or written, as negative ids are; -1: none.\n"
	"layout_tag: order of the elements in a block, in the engine's words ('NHD'). Workers with another one do not share KV.\n"
	"timeout_ms: how long to wait for the server's answer; 0: it goes on in the background.\n"
	"tables: for a model with several groups, instead of all before timeout_ms: a list of dicts with those names and 'group'.\n\n"
	"Returns whether it is registered; False where timeout_ms was too short, or 0 and the answer is not there yet. Raises\n"
	"ArgumentError (nothing is kept, and it may be called again), StateError (called before), ServerError (with timeout_ms:\n"
	"the server refused), KVScoutError. Lets the GIL go; waits up to timeout_ms, also when a signal comes.");
PyDoc_STRVAR(
	unregister_doc,
	"unregister($self, /)\n--\n\n"
	"Take the pages back (an engine that sleeps): no copy touches them when this returns, and register() may be called again.\n"
	"Jobs whose copy has not started end SCOUT_ERR_CANCELED, running copies are waited for; poll() reports all of them. What\n"
	"is cached stays cached. Nothing is registered: no error. Lets the GIL go.");
PyDoc_STRVAR(
	retrieve_doc,
	"retrieve($self, /, ticket, from_token, to_token, block_ids, *, ids_from=None, event=None, after=None, layers=None,\n"
	"         layer_events=None, timeout_ms=0)\n--\n\n"
	"Start a copy from the pool to pages. Returns the job's number. Never waits.\n\n"
	"ticket: Hit.ticket. from_token: a multiple of block_tokens; pages before it are not written. to_token: rounded up to a\n"
	"whole block. block_ids: list of ints, or buffer of int64 or int32; for a model with several groups a dict from the\n"
	"group's number to these. ids_from: the token at which block_ids[0] begins: 0 for a request's whole block table.\n"
	"Needed where from_token is not 0. A negative or null id is not written.\n"
	"event, after, layer_events: CUDA events, as ints or objects with cuda_event; see docs/python.md. The worker holds the\n"
	"objects until the job has ended.\n"
	"layers: copy layer by layer: how many layers (all with as many planes), or a list with the planes of each. A plane\n"
	"that holds several layers of a model is in one of these.\n"
	"timeout_ms: the job ends if its first copy could not start by then; 0: transfer_timeout_ms.\n\n"
	"The job uses the pages until poll() reports its end. Raises ArgumentError, StateError (not registered), BusyError\n"
	"(max_jobs are live).");
PyDoc_STRVAR(
	store_doc,
	"store($self, /, ticket, hashes, block_ids, *, first_token=0, ids_from=None, tenant=None, stride=1, event=None, layers=None,\n"
	"      layer_events=None, announced=False, timeout_ms=0, descriptions=None)\n--\n\n"
	"Start a copy from pages to the pool. Returns the job's number. Never waits.\n\n"
	"ticket: of the request's session, 0: none. hashes: the chunks' hashes, as for Client.try_lookup(); stride: use every\n"
	"stride-th of them. first_token: where the first of these chunks begins in its prompt, a multiple of hash_tokens.\n"
	"block_ids, ids_from: as for retrieve(); ids_from is needed where first_token is not 0. A chunk with a negative or null id\n"
	"is not stored, and counted in Done.null_chunks; no other id may be there twice. event: CUDA: no page is read before it. announced: host backend: no page of a\n"
	"layer is read before layer_ready() announced it. descriptions: a list of bytes, one for each of these chunks, at most 4096\n"
	"each, which Client.feed() hands to all readers with the chunk. The rest as for retrieve().");
PyDoc_STRVAR(
	verify_doc,
	"verify($self, /, ticket, from_token, to_token, block_ids, *, ids_from=None, after=None, timeout_ms=0)\n--\n\n"
	"Start a comparison of what the pool has with pages that the engine computed itself: Done.verified has the result.\n"
	"Neither is changed. Returns the job's number. Never waits. The arguments are those of retrieve(); after: CUDA: no page is\n"
	"read before it. Retrieves go first. The job uses the pages until poll() reports its end.");
PyDoc_STRVAR(poll_doc, "poll($self, /, max=4096)\n--\n\n"
		       "The jobs that have ended since the last call, at most max, as a list of Done. Never waits.");
PyDoc_STRVAR(
	progress_doc,
	"progress($self, job, /)\n--\n\n"
	"How far a job is that poll() has not reported: (layers, enqueued, copied), counts of leading layers; 1 layer\n"
	"without layers. enqueued: their copies are enqueued and their events recorded. copied: their bytes are there;\n"
	"verified is only what poll() reports. Never waits. Raises the error of a job that has failed, StateError (no such\n"
	"job, or poll() has reported it).");
PyDoc_STRVAR(
	wait_layer_doc,
	"wait_layer($self, /, job, layers, timeout_ms=30000)\n--\n\n"
	"Wait until the first `layers` layers of a job are copied (not verified). Returns True, or False when the time is over.\n"
	"Lets the GIL go where it has to wait; a signal handler may end the wait by an exception. Raises the error of a job that\n"
	"has failed, StateError, ArgumentError (more layers than the job has).");
PyDoc_STRVAR(
	layer_ready_doc,
	"layer_ready($self, /, job, layers)\n--\n\n"
	"The first `layers` layers of a store with announced=True are computed: their pages may be read. Never waits.");
PyDoc_STRVAR(cancel_doc,
	     "cancel($self, job, /)\n--\n\n"
	     "Ask a job to end early. poll() reports it in any case. Raises StateError (no such job). Never waits.");
PyDoc_STRVAR(
	fence_doc,
	"fence($self, /, block_ids, stream=None, *, group=0)\n--\n\n"
	"Make pages reusable: jobs on them that have not started are dropped, copies that run are waited for; by the caller, or\n"
	"with the CUDA backend by `stream` (an int, where 0 is the legacy default stream, or an object with cuda_stream). Lets\n"
	"the GIL go while jobs are live.");
PyDoc_STRVAR(
	reset_doc,
	"reset($self, weights_version, /)\n--\n\n"
	"The model has new weights, named by an int that is not 0: jobs before this call do not count any more. See\n"
	"docs/weights.md. Never waits.");
PyDoc_STRVAR(
	clear_doc,
	"clear($self, /, generation=0)\n--\n\n"
	"The cache was cleared, or is to be. generation: that of Client.clear(), to join it; 0: a clear of its own;\n"
	"GENERATION_NEWEST: drops nothing, and joins the newest. Returns the generation. See docs/weights.md. Never waits.");
PyDoc_STRVAR(stats_doc,
	     "stats($self, /)\n--\n\n"
	     "The counters since the worker was made, as a dict; struct scout_worker_counters says what they are.");
PyDoc_STRVAR(fileno_doc,
	     "fileno($self, /)\n--\n\n"
	     "A descriptor that is readable while poll() has something to report: for select, selectors, asyncio.");

#define WITH_NAMES(function) SCOUT__PY_METHOD(function), METH_FASTCALL | METH_KEYWORDS

static PyMethodDef methods[] = {
	{"register", WITH_NAMES(scout__py_worker_register), register_doc},
	{"unregister", scout__py_worker_unregister, METH_NOARGS, unregister_doc},
	{"retrieve", WITH_NAMES(scout__py_worker_retrieve), retrieve_doc},
	{"store", WITH_NAMES(scout__py_worker_store), store_doc},
	{"verify", WITH_NAMES(scout__py_worker_verify), verify_doc},
	{"poll", WITH_NAMES(scout__py_worker_poll), poll_doc},
	{"progress", scout__py_worker_progress, METH_O, progress_doc},
	{"wait_layer", WITH_NAMES(scout__py_worker_wait_layer), wait_layer_doc},
	{"layer_ready", WITH_NAMES(scout__py_worker_layer_ready), layer_ready_doc},
	{"cancel", scout__py_worker_cancel, METH_O, cancel_doc},
	{"fence", WITH_NAMES(scout__py_worker_fence), fence_doc},
	{"reset", scout__py_worker_reset, METH_O, reset_doc},
	{"clear", WITH_NAMES(scout__py_worker_clear), clear_doc},
	{"stats", scout__py_worker_stats, METH_NOARGS, stats_doc},
	{"fileno", scout__py_worker_fileno, METH_NOARGS, fileno_doc},
	{"close", scout__py_owner_close, METH_NOARGS, close_doc},
	{"__enter__", scout__py_owner_enter, METH_NOARGS, NULL},
	{"__exit__", SCOUT__PY_METHOD(scout__py_owner_exit), METH_FASTCALL, NULL},
	{0},
};

static PyGetSetDef properties[] = {
	{"closed", scout__py_owner_closed, NULL, "Whether close() has been called.", NULL},
	{0},
};

static PyType_Slot slots[] = {
	{Py_tp_repr, (void *)worker_repr},
	{Py_tp_new, (void *)worker_new},
	{Py_tp_traverse, (void *)worker_traverse},
	{Py_tp_clear, (void *)worker_clear},
	{Py_tp_finalize, (void *)worker_finalize},
	{Py_tp_dealloc, (void *)worker_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_getset, properties},
	{Py_tp_doc, (void *)worker_doc},
	{0, NULL},
};

PyType_Spec scout__py_worker_spec = SCOUT__PY_SPEC("Worker", struct scout__py_worker, Py_TPFLAGS_HAVE_GC);
