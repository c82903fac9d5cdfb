/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <kvscout/client.h>

#include "hashes.h"
#include "kvscout_py.h"
#include "lifetime.h"

/* A kvscout.Client. G:GIL, all of it; what a call without the GIL uses is kept for it by `use`. */
struct scout__py_client {
	SCOUT__PY_OWNER_HEAD
	struct scout_client *client; /* NULL: closed */
	/* const after start */
	uint32_t hash_bytes, hash_tokens;
	uint32_t max_asked;                   /* entries of `asked` */
	bool is_polled;                       /* scout_lookup() is scout_wait_lookup() */
	bool lookup_waits;                    /* scout_lookup() may wait */
	struct scout__py_hash_room hash_room; /* hashes of one question */
	uint8_t *key_states;                  /* of lookup_keys(): key_room of them */
	uint32_t *key_groups;                 /* likewise */
	size_t key_room;
	PyObject *asked; /* dict: id -> tuple of what it was asked with; see client_ask.c */
};

/* ---- hit.c ---- */

PyObject *scout__py_hit_new(struct scout__py_state *state, const struct scout_hit *hit);

/* ---- step.c ---- */

PyObject *scout__py_step_new(struct scout__py_client *client);

/* ---- query.c: the arguments of a lookup ---- */

#define SCOUT__PY_MAX_LENGTHS 64u /* want_lengths of struct scout_query */

/* In the order of their positions. */
enum scout__py_query_arg {
	SCOUT__PY_ID = 0,
	SCOUT__PY_HASHES,
	SCOUT__PY_PROMPT,
	SCOUT__PY_COMPUTED,
	SCOUT__PY_TENANT,
	SCOUT__PY_EXPECT,
	SCOUT__PY_STRIDE,
	SCOUT__PY_TIMEOUT,
	SCOUT__PY_LENGTHS,
	SCOUT__PY_FROM,
	SCOUT__PY_LOAD,
	SCOUT__PY_QUERY_ARGS
};
#define SCOUT__PY_QUERY_SIGNATURE(name)                                                                                \
	{                                                                                                              \
		.call = "Client." name, .n_required = 3, .n_positional = 7, .n = 11,                                   \
		.names = {"id",     "hashes",     "prompt_tokens", "computed_tokens", "tenant", "expect_tokens",       \
			  "stride", "timeout_ms", "want_lengths",  "from_token",      "load"},                         \
	}

/* An id, argument 0 of every call that has one. 0, or -1 with an exception. */
int scout__py_arg_id(const struct scout__py_client *self, const struct scout__py_signature *sig, PyObject *arg,
		     const char **ret);

struct scout__py_query {
	struct scout_query q;
	size_t stride;
	struct scout__py_hashes hashes;
};

/*
 * Convert the arguments, all but the contents of `hashes`: this may run Python code. 0, or -1 with an exception; either way
 * _release() ends it.
 */
int scout__py_query_init(struct scout__py_query *query, const struct scout__py_client *self,
			 const struct scout__py_signature *sig, PyObject *const a[]);
/*
 * After scout__py_use_check(): point q.hashes to the hashes, one behind the other. Runs no Python code; what it points to stays until
 * the next _gather() of this client or _release(). At most @max_n chunks: a list may have grown. 0, or -1 with an exception.
 */
int scout__py_query_gather(struct scout__py_query *query, struct scout__py_client *self,
			   const struct scout__py_signature *sig, PyObject *const a[], size_t max_n);
/* The library refused the query: set the exception. Returns NULL. */
PyObject *scout__py_query_raise(const struct scout__py_query *query, const struct scout__py_client *self,
				const struct scout__py_signature *sig, PyObject *const a[], int rc);
void scout__py_query_release(struct scout__py_query *query);
/* The same for a call with an id; @tenant may be NULL. */
PyObject *scout__py_client_raise(const struct scout__py_client *self, const struct scout__py_signature *sig,
				 PyObject *id, PyObject *tenant, int rc);

/* ---- client_ask.c ---- */

/* Forget what @id was asked with: it is over. Keeps the exception that is set, if any. */
/*
 * Let others run until what was asked has landed, a few milliseconds at most, and the handlers of signals after that. @asked_before:
 * false at first. Returns 0, SCOUT_ERR_*, or -1 with an exception.
 */
int scout__py_wait_slice(struct scout__py_client *self, const char *name, bool *asked_before);
void scout__py_forget(struct scout__py_client *self, PyObject *id);
PyObject *scout__py_try_lookup(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_wait_lookup(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_lookup(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_lookup_ahead(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_poll(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

/* ---- client_keys.c ---- */

PyObject *scout__py_lookup_keys(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_wait_lookup_keys(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);

/* ---- client_calls.c ---- */

PyObject *scout__py_step_begin(PyObject *self, PyObject *unused);
PyObject *scout__py_step_end(PyObject *self, PyObject *unused);
PyObject *scout__py_step_wait(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_lookup_lengths(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_lookup_kept(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_admit(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_finish(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_finish_hint(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_finish_keep(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_client_reset(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_client_clear(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_wait_ready(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kwnames);
PyObject *scout__py_client_feed(PyObject *self, PyObject *unused);
PyObject *scout__py_client_stats(PyObject *self, PyObject *unused);
PyObject *scout__py_client_fileno(PyObject *self, PyObject *unused);
PyObject *scout__py_client_fd_clear(PyObject *self, PyObject *unused);
