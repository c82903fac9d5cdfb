/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Client.lookup_keys(), its sister that waits, and kvscout.Keys, their answer: a copy of the library's struct scout_key_answer, and a byte for
 * each key. It cannot be changed, and holds nothing alive but those bytes.
 *
 * Numbers, texts and groups come first, for they may run Python code; the hashes are collected last. The library reads
 * both in place or in rooms of the client's that grow and are kept, so that asking again for a pending question
 * allocates nothing.
 */
#include "py_client.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include <kvscout/error.h>

#include "ids.h"

/* ---- kvscout.Keys ---- */

struct scout__py_keys {
	PyObject_HEAD PyObject *states; /* bytes */
	struct scout_key_answer answer;
};

static PyObject *
keys_new(struct scout__py_state *state, const uint8_t *states, size_t n, const struct scout_key_answer *answer)
{
	PyObject *bytes = PyBytes_FromStringAndSize((const char *)states, (Py_ssize_t)n);
	struct scout__py_keys *self = bytes ? PyObject_New(struct scout__py_keys, state->types[SCOUT__PY_KEYS]) : NULL;

	if (!self) {
		Py_XDECREF(bytes);
		return NULL;
	}
	self->states = bytes;
	self->answer = *answer;
	return (PyObject *)self;
}

static void
keys_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	Py_DECREF(((struct scout__py_keys *)self)->states);
	PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *
keys_reason(PyObject *self, void *unused)
{
	(void)unused;
	return PyUnicode_FromString(scout_reason_name(((struct scout__py_keys *)self)->answer.reason));
}

static PyObject *
keys_repr(PyObject *self)
{
	const struct scout_key_answer *a = &((struct scout__py_keys *)self)->answer;

	return PyUnicode_FromFormat(
		"Keys(hits=%u, misses=%u, retries=%u, l2_hits=%u, reason='%s', error=%d, endpoint=%d, ticket=%llu)",
		a->hits, a->misses, a->retries, a->l2_hits, scout_reason_name(a->reason), a->error, a->endpoint,
		(unsigned long long)a->ticket);
}

#define MEMBER(field, type, doc) SCOUT__PY_MEMBER(struct scout__py_keys, answer, field, type, doc)

static PyMemberDef members[] = {
	{"states", T_OBJECT_EX, offsetof(struct scout__py_keys, states), READONLY,
	 "A byte for each key, in the order of the question: KEY_MISS, KEY_HIT or KEY_RETRY."},
	MEMBER(ticket, T_ULONGLONG, "Names the session on the server, for Worker.retrieve(). 0: there is none."),
	MEMBER(hits, T_UINT, "Keys that are cached on all servers and KV ranks, and promised until finish()."),
	MEMBER(misses, T_UINT, "Keys that are not there."),
	MEMBER(retries, T_UINT, "Keys of which nothing is known: ask for them again, under a new id."),
	MEMBER(l2_hits, T_UINT, "Those of the hits that are in L2 only."),
	MEMBER(error, T_INT,
	       "0, or the code behind the reasons 'unreachable', 'refused' and 'timeout'; see error_of()."),
	MEMBER(endpoint, T_INT, "Index of the endpoint that was unreachable or refused, else -1."),
	{0},
};

static PyGetSetDef getset[] = {
	{"reason", keys_reason, NULL,
	 "Why there are no more hits: 'hit', 'miss', 'limited', 'timeout', 'unreachable', 'refused' or 'closed'.",
	 NULL},
	{0},
};

static const char keys_doc[] = "The answer to lookup_keys(): what is known of each key.";

static PyType_Slot slots[] = {
	{Py_tp_dealloc, (void *)keys_dealloc},
	{Py_tp_repr, (void *)keys_repr},
	{Py_tp_members, members},
	{Py_tp_getset, getset},
	{Py_tp_doc, (void *)keys_doc},
	{0, NULL},
};

PyType_Spec scout__py_keys_spec = SCOUT__PY_SPEC("Keys", struct scout__py_keys, Py_TPFLAGS_DISALLOW_INSTANTIATION);

/* ---- Client.lookup_keys() and Client.wait_lookup_keys() ---- */

enum {
	ID,
	HASHES,
	GROUPS,
	TENANT,
	TIMEOUT
};

#define SIGNATURE(name)                                                                                                \
	{                                                                                                              \
		.call = "Client." name, .n_required = 2, .n_positional = 4, .n = 5,                                    \
		.names = {"id", "hashes", "groups", "tenant", "timeout_ms"},                                           \
	}

static const struct scout__py_signature try_sig = SIGNATURE("lookup_keys");
static const struct scout__py_signature wait_sig = SIGNATURE("wait_lookup_keys");

/* Room for @n states and groups. */
static int
reserve(struct scout__py_client *self, size_t n)
{
	uint8_t *states;
	uint32_t *groups;

	if (n <= self->key_room)
		return 0;
	states = PyMem_Realloc(self->key_states, n);
	if (states)
		self->key_states = states;
	groups = states ? PyMem_Realloc(self->key_groups, n * sizeof(*groups)) : NULL;
	if (!groups)
		return SCOUT__PY_FAILED(PyErr_NoMemory());
	self->key_groups = groups;
	self->key_room = n;
	return 0;
}

/* @groups: as given; one for each key. */
static int
take_groups(struct scout__py_client *self, const struct scout__py_signature *sig, const struct scout__py_ids *groups,
	    struct scout_key_query *q)
{
	if (groups->n != q->n)
		return SCOUT__PY_FAILED(scout__py_raise(
			self->state, SCOUT_ERR_INVALID,
			"%s(): groups has %zu numbers, and hashes has %zu keys: must be one for each key", sig->call,
			groups->n, q->n));
	for (size_t i = 0; i < q->n; i++) {
		int64_t group = groups->ids[i];

		self->key_groups[i] = group >= 0 && group < UINT32_MAX ? (uint32_t)group : UINT32_MAX;
	}
	q->groups = self->key_groups;
	return 0;
}

static PyObject *
refuse(struct scout__py_client *self, const struct scout__py_signature *sig, const struct scout_key_query *q,
       PyObject *const a[], int rc)
{
	struct scout__py_state *state = self->state;

	switch (rc) {
	case SCOUT_ERR_KEY_COUNT:
		return scout__py_raise(state, rc,
				       "%s(): hashes has %zu keys: must be 1 to %u, and fit into half of "
				       "arena_bytes",
				       sig->call, q->n, SCOUT_KEYS_MAX);
	case SCOUT_ERR_GROUP:
		return scout__py_raise(state, rc,
				       "%s(): groups must be numbers of groups that the key `group` names, from 0",
				       sig->call);
	case SCOUT_ERR_STATE:
		return scout__py_raise(
			state, rc,
			"%s(%R): this id is live with other keys, or is that of a prompt; call finish() first",
			sig->call, a[ID]);
	default:
		return scout__py_client_raise(self, sig, a[ID], a[TENANT], rc);
	}
}

/* The library's call; where the answer is not there and the caller waits, one more when it has landed. */
static int
call(struct scout__py_client *self, const struct scout__py_signature *sig, const struct scout_key_query *q,
     struct scout_key_answer *answer)
{
	bool asked_before = false;
	int rc;

	while ((rc = scout_lookup_keys(self->client, q, self->key_states, answer)) == SCOUT_NOT_YET &&
	       sig == &wait_sig && (rc = scout__py_wait_slice(self, sig->call, &asked_before)) == 0)
		;
	return rc;
}

/* The arguments are converted, all but the contents of @hashes. */
static PyObject *
ask(struct scout__py_client *self, const struct scout__py_signature *sig, PyObject *const a[],
    struct scout_key_query *q, const struct scout__py_hashes *hashes, const struct scout__py_ids *groups)
{
	struct scout_key_answer answer;
	int rc;

	if (scout__py_use_check(self->state, &self->use, sig->call) < 0 ||
	    scout__py_hashes_gather(self->state, sig, HASHES, hashes, 1, self->hash_bytes, SIZE_MAX, &self->hash_room,
				    &q->hashes, &q->n) < 0 ||
	    reserve(self, q->n ? q->n : 1) < 0 || (groups && take_groups(self, sig, groups, q) < 0))
		return NULL;
	rc = call(self, sig, q, &answer);
	if (PyErr_Occurred())
		return NULL;
	if (rc == SCOUT_NOT_YET)
		Py_RETURN_NONE;
	return rc < 0 ? refuse(self, sig, q, a, rc) : keys_new(self->state, self->key_states, q->n, &answer);
}

static PyObject *
ask_args(PyObject *object, const struct scout__py_signature *sig, PyObject *const *args, Py_ssize_t n,
	 PyObject *kwnames)
{
	struct scout__py_client *self = (struct scout__py_client *)object;
	struct scout_key_query q = {.hash_len = self->hash_bytes};
	struct scout__py_hashes hashes = {0};
	struct scout__py_ids groups = {0};
	PyObject *a[SCOUT__PY_ARGS_MAX], *result = NULL;
	uint64_t timeout_ms = 0;
	bool has_groups;

	if (scout__py_args(sig, args, n, kwnames, a) < 0)
		return NULL;
	has_groups = a[GROUPS] && a[GROUPS] != Py_None;
	if (scout__py_arg_id(self, sig, a[ID], &q.id) == 0 &&
	    scout__py_arg_text(self->state, sig, TENANT, a[TENANT], &q.tenant, NULL) == 0 &&
	    scout__py_arg_u64(self->state, sig, TIMEOUT, a[TIMEOUT], SCOUT_LOOKUP_TIMEOUT_MAX_MS, &timeout_ms) == 0 &&
	    (!has_groups || scout__py_ids_read(self->state, sig->call, "groups", a[GROUPS], &groups) == 0) &&
	    scout__py_hashes_take(sig, HASHES, a[HASHES], &hashes) == 0) {
		q.timeout_ms = (uint32_t)timeout_ms;
		result = ask(self, sig, a, &q, &hashes, has_groups ? &groups : NULL);
	}
	scout__py_hashes_release(&hashes);
	scout__py_ids_free(&groups);
	return result;
}

PyObject *
scout__py_lookup_keys(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	return ask_args(self, &try_sig, args, n, kwnames);
}

PyObject *
scout__py_wait_lookup_keys(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames)
{
	return ask_args(self, &wait_sig, args, n, kwnames);
}
