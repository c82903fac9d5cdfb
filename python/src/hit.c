/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * kvscout.Hit: one answer, a copy of the library's struct scout_hit. It cannot be changed, and holds nothing alive.
 */
#include "py_client.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include <kvscout/client.h>

struct scout__py_hit {
	PyObject_HEAD struct scout_hit hit;
};

PyObject *
scout__py_hit_new(struct scout__py_state *state, const struct scout_hit *hit)
{
	struct scout__py_hit *self = PyObject_New(struct scout__py_hit, state->types[SCOUT__PY_HIT]);

	if (self)
		self->hit = *hit;
	return (PyObject *)self;
}

/* The number of a word of Hit.reason, or -1 with an exception. */
static int
reason_of(const char *word)
{
	for (int reason = SCOUT_REASON_NONE + 1; reason <= SCOUT_REASON_LIMITED; reason++)
		if (strcmp(scout_reason_name(reason), word) == 0)
			return reason;
	return SCOUT__PY_FAILED(PyErr_Format(
		PyExc_ValueError,
		"Hit(): reason must be 'hit', 'miss', 'timeout', 'unreachable', 'refused', 'closed' or 'limited', not '%s'",
		word));
}

static PyObject *
hit_make(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static const char *const names[] = {"tokens", "ticket", "chunks",   "l1_chunks", "l2_chunks",
					    "reason", "error",  "endpoint", NULL};
	unsigned long long tokens = 0, ticket = 0;
	struct scout_hit hit = {.endpoint = -1};
	const char *reason = NULL;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|K$KIIIzii:Hit", (char **)names, &tokens, &ticket, &hit.chunks,
					 &hit.l1_chunks, &hit.l2_chunks, &reason, &hit.error, &hit.endpoint))
		return NULL;
	hit.tokens = tokens;
	hit.ticket = ticket;
	hit.reason = reason_of(reason ? reason : tokens > 0 ? "hit" : "miss");
	if (hit.reason < 0)
		return NULL;
	return scout__py_hit_new(scout__py_state_of_type(type), &hit);
}

static void
hit_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *
hit_reason(PyObject *self, void *unused)
{
	(void)unused;
	return PyUnicode_FromString(scout_reason_name(((struct scout__py_hit *)self)->hit.reason));
}

static PyObject *
hit_repr(PyObject *self)
{
	const struct scout_hit *hit = &((struct scout__py_hit *)self)->hit;

	return PyUnicode_FromFormat(
		"Hit(tokens=%llu, chunks=%u, l1_chunks=%u, l2_chunks=%u, reason='%s', error=%d, endpoint=%d, "
		"ticket=%llu)",
		(unsigned long long)hit->tokens, hit->chunks, hit->l1_chunks, hit->l2_chunks,
		scout_reason_name(hit->reason), hit->error, hit->endpoint, (unsigned long long)hit->ticket);
}

#define MEMBER(field, type, doc) SCOUT__PY_MEMBER(struct scout__py_hit, hit, field, type, doc)

static PyMemberDef members[] = {
	MEMBER(tokens, T_ULONGLONG,
	       "Leading tokens of the prompt that are cached, at most prompt_tokens - 1. Usable as it stands."),
	MEMBER(ticket, T_ULONGLONG,
	       "Names the session on the server, for Worker.retrieve() and Worker.store(). 0: there is none."),
	MEMBER(chunks, T_UINT, "Whole chunks behind tokens."),
	MEMBER(l1_chunks, T_UINT, "Those of them that are in host memory."),
	MEMBER(l2_chunks, T_UINT, "Those of them that are in L2."),
	MEMBER(error, T_INT,
	       "0, or the code behind the reasons 'unreachable', 'refused' and 'timeout'; see error_of()."),
	MEMBER(endpoint, T_INT, "Index of the endpoint that was unreachable or refused, else -1."),
	{0},
};

static PyGetSetDef getset[] = {
	{"reason", hit_reason, NULL,
	 "Why the answer is what it is: 'hit', 'miss', 'timeout', 'unreachable', 'refused', 'closed', or 'limited' (a hit that\n"
	 "was cut because other requests hold all that max_promised of the server allows; later there may be more).",
	 NULL},
	{0},
};

static const char doc[] =
	"Hit(tokens=0, *, ticket=0, chunks=0, l1_chunks=0, l2_chunks=0, reason=None, error=0, endpoint=-1)\n--\n\n"
	"The answer to a lookup: how many leading tokens of the prompt are cached.\n\n"
	"Clients make them; a program makes one for its own tests. reason=None: 'hit' with tokens, else 'miss'.";

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)hit_make},
	{Py_tp_dealloc, (void *)hit_dealloc},
	{Py_tp_repr, (void *)hit_repr},
	{Py_tp_members, members},
	{Py_tp_getset, getset},
	{Py_tp_doc, (void *)doc},
	{0, NULL},
};

PyType_Spec scout__py_hit_spec = SCOUT__PY_SPEC("Hit", struct scout__py_hit, 0);
