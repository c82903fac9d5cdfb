/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Worker.retrieve(), Worker.verify() and Worker.store(): arguments become struct scout_retrieve, _verify and _store. The library copies all that it
 * is given, so buffers are held for the call alone; but CUDA's events must live until the job has ended, so the objects that own them
 * are kept by the job's number until poll() reports it.
 *
 * The library refuses a job with one code, which does not name the argument. Most arguments are checked here before the call. Block ids,
 * of which there may be many, are looked at only after a refusal.
 */
#include "py_worker.h"

#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#define MAX_LAYERS 4096u
#define MAX_LAYERED_CHUNKS 4096u /* of a store */

/* What both kinds of jobs have. */
struct job_args {
	struct scout__py_worker *self;
	const struct scout__py_signature *sig;
	PyObject **args;
	struct scout__py_hashes hashes; /* of a store */
	struct scout_blocks blocks[SCOUT__PY_MAX_GROUPS];
	size_t n_groups;
	bool by_group;        /* block_ids was a dict */
	uint64_t first_token; /* where block_ids[0] begins */
	uint32_t n_layers;
	uint32_t *layer_planes;
	void **layer_events;
	const void **descriptions;
	size_t *description_lens;
	uint64_t timeout_ms;
};

/*
 * While arguments are converted, Python code may run: of this thread, or of another one. What they are converted into belongs to the
 * worker, so the worker is not to be used meanwhile. 0, or -1 with an exception.
 */
static int
args_begin(struct job_args *a)
{
	if (scout__py_use_check(a->self->state, &a->self->use, a->sig->call) < 0)
		return -1;
	a->self->use.inside = a->sig->call;
	return 0;
}

/* All are converted. 0, or -1 with an exception: the worker was closed meanwhile, or @rc is -1. */
static int
args_end(struct job_args *a, int rc)
{
	a->self->use.inside = NULL;
	return rc < 0 ? rc : scout__py_use_check(a->self->state, &a->self->use, a->sig->call);
}

/* Code that ran during a conversion may have closed the worker, which takes the tables away. 0, or -1 with an exception. */
static int
check_open(const struct job_args *a)
{
	if (!a->self->use.closed)
		return 0;
	return scout__py_use_refuse(a->self->state, &a->self->use, a->sig->call);
}

static void
args_free(struct job_args *a)
{
	scout__py_hashes_release(&a->hashes);
	for (uint32_t i = 0; i < SCOUT__PY_MAX_GROUPS; i++)
		scout__py_ids_release(&a->self->ids[i]);
	free(a->layer_planes);
	free(a->layer_events);
	free(a->descriptions);
	free(a->description_lens);
}

/* ---- block ids ---- */

static int
read_group(struct job_args *a, uint32_t group, PyObject *ids, const char *name)
{
	struct scout__py_worker *self = a->self;
	struct scout__py_ids *own = &self->ids[a->n_groups];

	if (!scout__py_worker_table(self, group))
		return SCOUT__PY_FAILED(
			scout__py_raise(self->state, self->n_tables ? SCOUT_ERR_GROUP : SCOUT_ERR_NOT_REGISTERED,
					self->n_tables ? "%s(): block_ids: no table of group %u is registered"
						       : "%s(): no pages are registered; call register() first",
					a->sig->call, (unsigned)group));
	if (scout__py_ids_read(self->state, a->sig->call, name, ids, own) < 0)
		return -1;
	a->blocks[a->n_groups++] =
		(struct scout_blocks){.group = group, .first_token = a->first_token, .ids = own->ids, .n = own->n};
	return 0;
}

static int
read_groups(struct job_args *a, uint32_t i, PyObject *dict)
{
	PyObject *items = PyDict_Items(dict);
	Py_ssize_t n = items ? PyList_Size(items) : -1;
	int rc = n < 0 ? -1 : 0;

	if (n == 0 || n > (Py_ssize_t)SCOUT__PY_MAX_GROUPS)
		rc = scout__py_arg_value_error(a->self->state, a->sig, i, dict, "a dict with 1..32 groups");
	for (Py_ssize_t k = 0; rc == 0 && k < n; k++) {
		PyObject *item = PyList_GetItem(items, k);
		uint64_t group = 0;
		char name[32];

		rc = scout__py_arg_u64(a->self->state, a->sig, i, PyTuple_GetItem(item, 0), SCOUT__PY_MAX_GROUPS - 1,
				       &group);
		(void)PyOS_snprintf(name, sizeof(name), "block_ids[%u]", (unsigned)group);
		if (rc == 0)
			rc = read_group(a, (uint32_t)group, PyTuple_GetItem(item, 1), name);
	}
	Py_XDECREF(items);
	a->by_group = true;
	return rc;
}

/*
 * @from: argument @i, where the job begins. Whether the ids begin there, too, or with the prompt, has to be said: either reading of a
 * list that is long enough would be a job, and one of them moves pages of other tokens.
 */
static int
read_blocks(struct job_args *a, uint32_t i_ids, uint32_t i_from, uint32_t i, uint64_t from)
{
	PyObject *ids = a->args[i_ids], *ids_from = a->args[i_from];

	if (ids_from && ids_from != Py_None) {
		if (scout__py_arg_u64(a->self->state, a->sig, i_from, ids_from, INT64_MAX, &a->first_token) < 0)
			return -1;
	} else if (from > 0) {
		unsigned long long at = from;

		return SCOUT__PY_FAILED(PyErr_Format(
			PyExc_TypeError,
			"%s() needs the argument ids_from where %s is %llu: 0 if block_ids is the request's whole block "
			"table, or %llu if block_ids[0] is the block of token %llu",
			a->sig->call, a->sig->names[i], at, at, at));
	}
	return PyDict_Check(ids) ? read_groups(a, i_ids, ids) : read_group(a, 0, ids, a->sig->names[i_ids]);
}

/* ---- layers ---- */

static int
take_layers(struct job_args *a, uint32_t n)
{
	a->n_layers = n;
	a->layer_planes = calloc(n * a->n_groups, sizeof(*a->layer_planes));
	if (a->layer_planes)
		return 0;
	return SCOUT__PY_FAILED(PyErr_NoMemory());
}

/* `layers` is a number: each layer has as many planes of each group. */
static int
even_layers(struct job_args *a, uint32_t i, PyObject *arg)
{
	uint64_t n = 0;

	if (scout__py_arg_u64(a->self->state, a->sig, i, arg, MAX_LAYERS, &n) < 0)
		return -1;
	if (n == 0)
		return 0;
	if (check_open(a) < 0 || take_layers(a, (uint32_t)n) < 0)
		return -1;
	for (size_t g = 0; g < a->n_groups; g++) {
		const struct scout__py_table *table = scout__py_worker_table(a->self, a->blocks[g].group);

		if (table->n_planes % n != 0)
			return SCOUT__PY_FAILED(scout__py_raise(
				a->self->state, SCOUT_ERR_INVALID,
				"%s(): layers is %llu; the %u planes of group %u are no multiple of it, so give a list with the "
				"planes of each layer",
				a->sig->call, (unsigned long long)n, (unsigned)table->n_planes,
				(unsigned)table->group));
		for (size_t l = 0; l < n; l++)
			a->layer_planes[l * a->n_groups + g] = (uint32_t)(table->n_planes / n);
	}
	return 0;
}

/* The planes of each layer must be all planes of each table. */
static int
check_sums(const struct job_args *a)
{
	if (check_open(a) < 0)
		return -1;
	for (size_t g = 0; g < a->n_groups; g++) {
		const struct scout__py_table *table = scout__py_worker_table(a->self, a->blocks[g].group);
		uint64_t sum = 0;

		for (size_t l = 0; l < a->n_layers; l++)
			sum += a->layer_planes[l * a->n_groups + g];
		if (sum == table->n_planes)
			continue;
		return SCOUT__PY_FAILED(scout__py_raise(
			a->self->state, SCOUT_ERR_INVALID,
			"%s(): layers has %llu planes of group %u; together they must be the %u that are registered",
			a->sig->call, (unsigned long long)sum, (unsigned)table->group, (unsigned)table->n_planes));
	}
	return 0;
}

/* Item @l of `layers`: planes of the one group, or one number for each group of block_ids. */
static int
read_layer(struct job_args *a, uint32_t i, Py_ssize_t l, PyObject *item, uint32_t *planes)
{
	if (PyTuple_Check(item) && (size_t)PyTuple_Size(item) != a->n_groups)
		return SCOUT__PY_FAILED(scout__py_raise(
			a->self->state, SCOUT_ERR_INVALID,
			"%s(): layers[%zd] has %zd numbers; must be one for each of the %zu groups of block_ids",
			a->sig->call, l, PyTuple_Size(item), a->n_groups));
	for (size_t g = 0; g < a->n_groups; g++) {
		PyObject *number = Py_NewRef(item);
		uint64_t n = 0;
		int rc;

		if (PyTuple_Check(item)) {
			Py_DECREF(number);
			number = PySequence_GetItem(item, (Py_ssize_t)g);
		}
		rc = number ? scout__py_arg_u64(a->self->state, a->sig, i, number, UINT32_MAX, &n) : -1;
		Py_XDECREF(number);
		if (rc < 0)
			return -1;
		planes[g] = (uint32_t)n;
	}
	return 0;
}

static int
read_layers(struct job_args *a, uint32_t i)
{
	PyObject *arg = a->args[i];
	Py_ssize_t n;

	if (!arg || arg == Py_None)
		return 0;
	if (PyIndex_Check(arg))
		return even_layers(a, i, arg);
	if (!PyList_Check(arg) && !PyTuple_Check(arg))
		return scout__py_arg_type_error(a->sig, i, arg, "an int or a list of ints");
	n = PySequence_Size(arg);
	if (n < 1 || n > (Py_ssize_t)MAX_LAYERS)
		return scout__py_arg_value_error(a->self->state, a->sig, i, arg, "1..4096 layers");
	if (take_layers(a, (uint32_t)n) < 0)
		return -1;
	for (Py_ssize_t l = 0; l < n; l++) {
		PyObject *item = PySequence_GetItem(arg, l);
		int rc = item ? read_layer(a, i, l, item, a->layer_planes + (size_t)l * a->n_groups) : -1;

		Py_XDECREF(item);
		if (rc < 0)
			return -1;
	}
	return check_sums(a);
}

static int
read_layer_events(struct job_args *a, uint32_t i)
{
	PyObject *arg = a->args[i];

	if (!arg || arg == Py_None)
		return 0;
	if (!PyList_Check(arg) && !PyTuple_Check(arg))
		return scout__py_arg_type_error(a->sig, i, arg, "a list of events");
	if (a->n_layers == 0 || PySequence_Size(arg) != (Py_ssize_t)a->n_layers)
		return SCOUT__PY_FAILED(scout__py_raise(a->self->state, SCOUT_ERR_INVALID,
							"%s(): layer_events has %zd events for %u layers", a->sig->call,
							PySequence_Size(arg), (unsigned)a->n_layers));
	a->layer_events = calloc(a->n_layers, sizeof(*a->layer_events));
	if (!a->layer_events)
		return SCOUT__PY_FAILED(PyErr_NoMemory());
	for (uint32_t l = 0; l < a->n_layers; l++) {
		PyObject *item = PySequence_GetItem(arg, (Py_ssize_t)l);
		int rc = item ? scout__py_arg_event(a->self->state, a->sig, i, item, &a->layer_events[l]) : -1;

		if (rc == 0 && !a->layer_events[l])
			rc = scout__py_arg_type_error(a->sig, i, arg, "a list of events without None");
		Py_XDECREF(item);
		if (rc < 0)
			return -1;
	}
	return 0;
}

/* ---- after the library's call ---- */

bool
scout__py_worker_raise_id(const struct scout__py_worker *self, const char *call, uint32_t group, const int64_t *ids,
			  size_t n)
{
	const struct scout__py_table *table = scout__py_worker_table(self, group);

	for (size_t i = 0; table && i < n; i++)
		if (ids[i] >= 0 && (uint64_t)ids[i] >= table->n_blocks) {
			scout__py_raise(self->state, SCOUT_ERR_BLOCK_ID,
					"%s(): block_ids[%zu] is %lld; the registered pages are 0..%llu (group %u)",
					call, i, (long long)ids[i], (unsigned long long)(table->n_blocks - 1),
					(unsigned)group);
			return true;
		}
	return false;
}

/* Which id it was that has no page; if all have one, a page was there twice. */
static void
raise_block_id(const struct job_args *a)
{
	for (size_t g = 0; g < a->n_groups; g++) {
		const struct scout_blocks *blocks = &a->blocks[g];

		if (scout__py_worker_raise_id(a->self, a->sig->call, blocks->group, blocks->ids, blocks->n))
			return;
	}
	scout__py_raise(a->self->state, SCOUT_ERR_BLOCK_ID,
			"%s(): block_ids has one page for two blocks of the store; each needs its own", a->sig->call);
}

/*
 * What a live job needs: (objects that own events, sizes by group). None of both, as usual: nothing is kept. Sizes by group let poll()
 * report missing blocks by group.
 */
static int
keep(const struct job_args *a, uint64_t job, PyObject *const owners[], uint32_t n_owners)
{
	PyObject *key, *kept, *sizes = NULL, *objects = PyTuple_New((Py_ssize_t)n_owners);
	bool any = a->by_group;
	int rc;

	if (!a->by_group && a->n_groups > 0)
		a->self->only_group = a->blocks[0].group;
	for (uint32_t i = 0; objects && i < n_owners; i++) {
		PyObject *owner = owners[i] ? owners[i] : Py_None;

		any = any || owner != Py_None;
		PyTuple_SetItem(objects, (Py_ssize_t)i, Py_NewRef(owner));
	}
	if (objects && !any) {
		Py_DECREF(objects);
		return 0;
	}
	if (a->by_group && objects) {
		sizes = PyTuple_New((Py_ssize_t)a->n_groups);
		for (size_t g = 0; sizes && g < a->n_groups; g++)
			PyTuple_SetItem(sizes, (Py_ssize_t)g,
					Py_BuildValue("(IK)", a->blocks[g].group, (unsigned long long)a->blocks[g].n));
	}
	key = PyLong_FromUnsignedLongLong(job);
	kept = objects ? PyTuple_Pack(2, objects, sizes ? sizes : Py_None) : NULL;
	rc = key && kept && !PyErr_Occurred() ? PyDict_SetItem(a->self->jobs, key, kept) : -1;
	Py_XDECREF(key);
	Py_XDECREF(kept);
	Py_XDECREF(sizes);
	Py_XDECREF(objects);
	return rc;
}

/* The job's number, or the exception. */
static PyObject *
finish(struct job_args *a, int rc, uint64_t job, PyObject *const owners[], uint32_t n_owners)
{
	PyObject *number = NULL;

	if (rc == 0) {
		a->self->n_live++;
		if (keep(a, job, owners, n_owners) == 0)
			number = PyLong_FromUnsignedLongLong(job);
		if (!number)
			(void)scout_worker_cancel(a->self->worker, job); /* the caller does not know its number */
	} else if (rc == SCOUT_ERR_BLOCK_ID) {
		raise_block_id(a);
	} else {
		scout__py_raise_call(a->self->state, rc, a->sig->call, NULL);
	}
	args_free(a);
	return number;
}

/* The ids must reach over the tokens @from..@to. */
static int
check_reach(const struct job_args *a, uint64_t from, uint64_t to)
{
	for (size_t g = 0; g < a->n_groups; g++) {
		const struct scout_blocks *blocks = &a->blocks[g];
		const struct scout__py_table *table = scout__py_worker_table(a->self, blocks->group);
		uint64_t first = blocks->first_token, end = first + (uint64_t)blocks->n * table->block_tokens;

		if (first % table->block_tokens != 0)
			return SCOUT__PY_FAILED(scout__py_raise(
				a->self->state, SCOUT_ERR_INVALID,
				"%s(): block_ids begins at token %llu; it must be a multiple of block_tokens, which is %u",
				a->sig->call, (unsigned long long)first, (unsigned)table->block_tokens));
		if (to > from && (first > from || end < to))
			return SCOUT__PY_FAILED(scout__py_raise(
				a->self->state, SCOUT_ERR_INVALID,
				"%s(): block_ids has %zu blocks of %u tokens, for the tokens %llu..%llu; the job needs %llu..%llu",
				a->sig->call, blocks->n, (unsigned)table->block_tokens, (unsigned long long)first,
				(unsigned long long)end, (unsigned long long)from, (unsigned long long)to));
	}
	return 0;
}

/* ---- retrieve, verify ---- */

static const struct scout__py_signature of_retrieve = {"Worker.retrieve",
						       4,
						       4,
						       10,
						       {"ticket", "from_token", "to_token", "block_ids", "ids_from",
							"after", "timeout_ms", "event", "layers", "layer_events"}};

/* The first arguments of a retrieve. */
static const struct scout__py_signature of_verify = {
	"Worker.verify", 4, 4, 7, {"ticket", "from_token", "to_token", "block_ids", "ids_from", "after", "timeout_ms"}};

enum {
	R_TICKET,
	R_FROM,
	R_TO,
	R_IDS,
	R_IDS_FROM,
	R_AFTER,
	R_TIMEOUT,
	R_EVENT,
	R_LAYERS,
	R_LAYER_EVENTS
};

static int
check_retrieve(const struct job_args *a, const struct scout_retrieve *r)
{
	struct scout__py_state *state = a->self->state;

	if (r->ticket == 0)
		return scout__py_arg_value_error(state, a->sig, R_TICKET, a->args[R_TICKET],
						 "the ticket of a Hit, not 0");
	if (r->from_token > r->to_token)
		return scout__py_arg_value_error(state, a->sig, R_FROM, a->args[R_FROM], "at most to_token");
	if (r->from_token % scout__py_worker_table(a->self, a->blocks[0].group)->block_tokens != 0)
		return scout__py_arg_value_error(state, a->sig, R_FROM, a->args[R_FROM], "a multiple of block_tokens");
	return check_reach(a, r->from_token, r->to_token);
}

static int
read_retrieve(struct job_args *a, struct scout_retrieve *r)
{
	struct scout__py_state *state = a->self->state;
	PyObject **args = a->args;

	if (scout__py_arg_u64(state, a->sig, R_TICKET, args[R_TICKET], UINT64_MAX, &r->ticket) < 0 ||
	    scout__py_arg_u64(state, a->sig, R_FROM, args[R_FROM], INT64_MAX, &r->from_token) < 0 ||
	    scout__py_arg_u64(state, a->sig, R_TO, args[R_TO], INT64_MAX, &r->to_token) < 0 ||
	    scout__py_arg_u64(state, a->sig, R_TIMEOUT, args[R_TIMEOUT], UINT32_MAX, &a->timeout_ms) < 0 ||
	    scout__py_arg_event(state, a->sig, R_EVENT, args[R_EVENT], &r->event) < 0 ||
	    scout__py_arg_event(state, a->sig, R_AFTER, args[R_AFTER], &r->after) < 0 ||
	    read_blocks(a, R_IDS, R_IDS_FROM, R_FROM, r->from_token) < 0 || read_layers(a, R_LAYERS) < 0 ||
	    read_layer_events(a, R_LAYER_EVENTS) < 0)
		return -1;
	return check_open(a) < 0 ? -1 : check_retrieve(a, r);
}

static PyObject *
start(PyObject *object, PyObject *const *raw, Py_ssize_t n, PyObject *kwnames, const struct scout__py_signature *sig)
{
	PyObject *args[SCOUT__PY_ARGS_MAX] = {NULL}; /* a verification has only the first ones */
	struct job_args a = {.self = (struct scout__py_worker *)object, .sig = sig, .args = args};
	struct scout_retrieve r = {0};
	uint64_t job = 0;
	int rc;

	if (scout__py_args(a.sig, raw, n, kwnames, args) < 0 || args_begin(&a) < 0)
		return NULL;
	if (args_end(&a, read_retrieve(&a, &r)) < 0) {
		args_free(&a);
		return NULL;
	}
	r.blocks = a.blocks;
	r.n_groups = a.n_groups;
	r.n_layers = a.n_layers;
	r.layer_planes = a.layer_planes;
	r.layer_events = a.layer_events;
	r.timeout_ms = (uint32_t)a.timeout_ms;
	rc = sig == &of_verify ? scout_worker_verify(a.self->worker, &r, &job)
			       : scout_worker_retrieve(a.self->worker, &r, &job);
	return finish(&a, rc, job, (PyObject *const[]){args[R_EVENT], args[R_AFTER], args[R_LAYER_EVENTS]}, 3);
}

PyObject *
scout__py_worker_retrieve(PyObject *object, PyObject *const *raw, Py_ssize_t n, PyObject *kwnames)
{
	return start(object, raw, n, kwnames, &of_retrieve);
}

PyObject *
scout__py_worker_verify(PyObject *object, PyObject *const *raw, Py_ssize_t n, PyObject *kwnames)
{
	return start(object, raw, n, kwnames, &of_verify);
}

/* ---- store ---- */

static const struct scout__py_signature of_store = {"Worker.store",
						    3,
						    3,
						    13,
						    {"ticket", "hashes", "block_ids", "first_token", "ids_from",
						     "tenant", "stride", "event", "layers", "layer_events", "announced",
						     "timeout_ms", "descriptions"}};

enum {
	S_TICKET,
	S_HASHES,
	S_IDS,
	S_FIRST,
	S_IDS_FROM,
	S_TENANT,
	S_STRIDE,
	S_EVENT,
	S_LAYERS,
	S_LAYER_EVENTS,
	S_ANNOUNCED,
	S_TIMEOUT,
	S_DESCRIPTIONS
};

static int
check_store(const struct job_args *a, const struct scout_store *s)
{
	struct scout__py_worker *self = a->self;
	uint64_t tokens = (uint64_t)s->n * self->hash_tokens;

	if (s->first_token % self->hash_tokens != 0)
		return scout__py_arg_value_error(self->state, a->sig, S_FIRST, a->args[S_FIRST],
						 "a multiple of hash_tokens (by default chunk_tokens)");
	if (s->announced && a->n_layers == 0)
		return SCOUT__PY_FAILED(scout__py_raise(self->state, SCOUT_ERR_INVALID,
							"%s(): announced=True needs layers", a->sig->call));
	if (a->n_layers > 0 && s->n > MAX_LAYERED_CHUNKS)
		return SCOUT__PY_FAILED(scout__py_raise(self->state, SCOUT_ERR_INVALID,
							"%s(): hashes has %zu chunks; with layers at most %u",
							a->sig->call, s->n, MAX_LAYERED_CHUNKS));
	if (s->n > SCOUT_MAX_CHUNKS)
		return SCOUT__PY_FAILED(scout__py_raise(self->state, SCOUT_ERR_INVALID,
							"%s(): hashes has %zu chunks; at most %u", a->sig->call, s->n,
							(unsigned)SCOUT_MAX_CHUNKS));
	return check_reach(a, s->first_token, s->first_token + tokens);
}

/* A list of bytes objects, which the caller keeps, one for each hash. Runs no Python code. */
static int
read_descriptions(struct job_args *a, PyObject *list, struct scout_store *s)
{
	if (!list || list == Py_None)
		return 0;
	if (!PyList_Check(list) || (size_t)PyList_Size(list) != s->n)
		return SCOUT__PY_FAILED(PyErr_Format(
			PyExc_ValueError, "%s(): descriptions must be a list with one item for each of %zu hashes",
			a->sig->call, s->n));
	a->descriptions = calloc(s->n + 1, sizeof(*a->descriptions));
	a->description_lens = calloc(s->n + 1, sizeof(*a->description_lens));
	if (!a->descriptions || !a->description_lens)
		return SCOUT__PY_FAILED(PyErr_NoMemory());
	for (size_t i = 0; i < s->n; i++) {
		PyObject *item = PyList_GetItem(list, (Py_ssize_t)i);
		Py_ssize_t len;
		char *bytes;

		if (PyBytes_AsStringAndSize(item, &bytes, &len) < 0)
			return -1;
		a->descriptions[i] = bytes;
		a->description_lens[i] = (size_t)len;
	}
	s->descriptions = a->descriptions;
	s->description_lens = a->description_lens;
	return 0;
}

static int
read_store(struct job_args *a, struct scout_store *s)
{
	struct scout__py_state *state = a->self->state;
	PyObject **args = a->args;
	uint64_t stride = 1;
	int announced;

	if (scout__py_arg_u64(state, a->sig, S_TICKET, args[S_TICKET], UINT64_MAX, &s->ticket) < 0 ||
	    scout__py_arg_u64(state, a->sig, S_FIRST, args[S_FIRST], INT64_MAX, &s->first_token) < 0 ||
	    scout__py_arg_text(state, a->sig, S_TENANT, args[S_TENANT], &s->tenant, NULL) < 0 ||
	    scout__py_arg_stride(state, a->sig, S_STRIDE, args[S_STRIDE], a->self->hash_tokens, &stride) < 0 ||
	    scout__py_arg_u64(state, a->sig, S_TIMEOUT, args[S_TIMEOUT], UINT32_MAX, &a->timeout_ms) < 0 ||
	    scout__py_arg_event(state, a->sig, S_EVENT, args[S_EVENT], &s->event) < 0)
		return -1;
	announced = args[S_ANNOUNCED] ? PyObject_IsTrue(args[S_ANNOUNCED]) : 0;
	if (announced < 0 || read_blocks(a, S_IDS, S_IDS_FROM, S_FIRST, s->first_token) < 0 ||
	    read_layers(a, S_LAYERS) < 0 || read_layer_events(a, S_LAYER_EVENTS) < 0 ||
	    scout__py_hashes_take(a->sig, S_HASHES, args[S_HASHES], &a->hashes) < 0)
		return -1;
	s->announced = announced ? 1 : 0;
	s->hash_len = a->self->hash_bytes;
	if (scout__py_hashes_gather(state, a->sig, S_HASHES, &a->hashes, stride, s->hash_len, SIZE_MAX,
				    &a->self->hash_room, &s->hashes, &s->n) < 0)
		return -1;
	if (read_descriptions(a, args[S_DESCRIPTIONS], s) < 0)
		return -1;
	return check_open(a) < 0 ? -1 : check_store(a, s);
}

PyObject *
scout__py_worker_store(PyObject *object, PyObject *const *raw, Py_ssize_t n, PyObject *kwnames)
{
	PyObject *args[SCOUT__PY_ARGS_MAX];
	struct job_args a = {.self = (struct scout__py_worker *)object, .sig = &of_store, .args = args};
	struct scout_store s = {0};
	uint64_t job = 0;
	int rc;

	if (scout__py_args(a.sig, raw, n, kwnames, args) < 0 || args_begin(&a) < 0)
		return NULL;
	if (args_end(&a, read_store(&a, &s)) < 0) {
		args_free(&a);
		return NULL;
	}
	s.blocks = a.blocks;
	s.n_groups = a.n_groups;
	s.n_layers = a.n_layers;
	s.layer_planes = a.layer_planes;
	s.layer_events = a.layer_events;
	s.timeout_ms = (uint32_t)a.timeout_ms;
	rc = scout_worker_store(a.self->worker, &s, &job);
	return finish(&a, rc, job, (PyObject *const[]){args[S_EVENT], args[S_LAYER_EVENTS]}, 2);
}
