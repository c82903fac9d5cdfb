/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * From the arguments of a lookup to struct scout_query. Numbers, texts and the buffer come first, for they may run Python code; the
 * hashes (base/hashes.h) are collected last, when nothing runs any more.
 */
#include "py_client.h"

#include <kvscout/error.h>

int
scout__py_arg_id(const struct scout__py_client *self, const struct scout__py_signature *sig, PyObject *arg,
		 const char **ret)
{
	if (arg == Py_None)
		return scout__py_arg_type_error(sig, SCOUT__PY_ID, Py_None, "a str");
	return scout__py_arg_text(self->state, sig, SCOUT__PY_ID, arg, ret, NULL);
}

static int
take_numbers(struct scout__py_query *query, const struct scout__py_client *self, const struct scout__py_signature *sig,
	     PyObject *const a[])
{
	struct scout__py_state *state = self->state;
	uint64_t stride = 1, timeout_ms = 0, want_lengths = 0;
	int load;

	if (scout__py_arg_u64(state, sig, SCOUT__PY_PROMPT, a[SCOUT__PY_PROMPT], UINT64_MAX, &query->q.prompt_tokens) <
		    0 ||
	    scout__py_arg_u64(state, sig, SCOUT__PY_COMPUTED, a[SCOUT__PY_COMPUTED], UINT64_MAX,
			      &query->q.computed_tokens) < 0 ||
	    scout__py_arg_u64(state, sig, SCOUT__PY_EXPECT, a[SCOUT__PY_EXPECT], UINT64_MAX, &query->q.expect_tokens) <
		    0 ||
	    scout__py_arg_stride(state, sig, SCOUT__PY_STRIDE, a[SCOUT__PY_STRIDE], self->hash_tokens, &stride) < 0 ||
	    scout__py_arg_u64(state, sig, SCOUT__PY_TIMEOUT, a[SCOUT__PY_TIMEOUT], SCOUT_LOOKUP_TIMEOUT_MAX_MS,
			      &timeout_ms) < 0 ||
	    scout__py_arg_u64(state, sig, SCOUT__PY_LENGTHS, a[SCOUT__PY_LENGTHS], SCOUT__PY_MAX_LENGTHS,
			      &want_lengths) < 0 ||
	    scout__py_arg_u64(state, sig, SCOUT__PY_FROM, a[SCOUT__PY_FROM], UINT64_MAX, &query->q.from_token) < 0 ||
	    (load = a[SCOUT__PY_LOAD] ? PyObject_IsTrue(a[SCOUT__PY_LOAD]) : 0) < 0)
		return -1;
	query->stride = stride;
	query->q.timeout_ms = (uint32_t)timeout_ms;
	query->q.want_lengths = (uint32_t)want_lengths;
	query->q.flags = load ? SCOUT_QUERY_LOAD : 0;
	return 0;
}

int
scout__py_query_init(struct scout__py_query *query, const struct scout__py_client *self,
		     const struct scout__py_signature *sig, PyObject *const a[])
{
	*query = (struct scout__py_query){.q.hash_len = self->hash_bytes};
	if (scout__py_arg_id(self, sig, a[SCOUT__PY_ID], &query->q.id) < 0 ||
	    scout__py_arg_text(self->state, sig, SCOUT__PY_TENANT, a[SCOUT__PY_TENANT], &query->q.tenant, NULL) < 0 ||
	    take_numbers(query, self, sig, a) < 0)
		return -1;
	return scout__py_hashes_take(sig, SCOUT__PY_HASHES, a[SCOUT__PY_HASHES], &query->hashes);
}

int
scout__py_query_gather(struct scout__py_query *query, struct scout__py_client *self,
		       const struct scout__py_signature *sig, PyObject *const a[], size_t max_n)
{
	int rc = scout__py_hashes_gather(self->state, sig, SCOUT__PY_HASHES, &query->hashes, query->stride,
					 self->hash_bytes, max_n, &self->hash_room, &query->q.hashes, &query->q.n);

	if (rc == 0 && query->q.n > query->q.prompt_tokens / self->hash_tokens)
		return SCOUT__PY_FAILED(scout__py_raise(
			self->state, SCOUT_ERR_INVALID,
			"%s(): hashes has %zu chunks with a stride of %zu, and prompt_tokens = %S are only %llu chunks of %u "
			"tokens; is the stride chunk_tokens (or hash_tokens) divided by the engine's block size?",
			sig->call, query->q.n, query->stride, a[SCOUT__PY_PROMPT],
			(unsigned long long)(query->q.prompt_tokens / self->hash_tokens), (unsigned)self->hash_tokens));
	return rc;
}

PyObject *
scout__py_client_raise(const struct scout__py_client *self, const struct scout__py_signature *sig, PyObject *id,
		       PyObject *tenant, int rc)
{
	if (rc == SCOUT_ERR_REQUEST_ID)
		return scout__py_raise(self->state, rc, "%s(): id must be 1 to 255 bytes of UTF-8, not %.80R",
				       sig->call, id);
	if (rc == SCOUT_ERR_TENANT)
		return scout__py_raise(
			self->state, rc,
			"%s(): tenant must be at most 255 bytes of UTF-8 without control characters, not %.80R",
			sig->call, tenant);
	return scout__py_raise_call(self->state, rc, sig->call, id);
}

PyObject *
scout__py_query_raise(const struct scout__py_query *query, const struct scout__py_client *self,
		      const struct scout__py_signature *sig, PyObject *const a[], int rc)
{
	struct scout__py_state *state = self->state;

	switch (rc) {
	case SCOUT_ERR_INVALID:
		if (query->q.computed_tokens > query->q.prompt_tokens)
			return scout__py_raise(state, rc,
					       "%s(): computed_tokens must be at most prompt_tokens, not %llu of %llu",
					       sig->call, (unsigned long long)query->q.computed_tokens,
					       (unsigned long long)query->q.prompt_tokens);
		return scout__py_raise(
			state, rc,
			query->q.from_token
				? "%s(): hashes has %zu chunks: from_token must be a multiple of hash_tokens and at most "
				  "computed_tokens, and they must lie behind it in the prompt"
				: "%s(): hashes has %zu chunks, which the protocol or half of arena_bytes cannot hold",
			sig->call, query->q.n);
	case SCOUT_ERR_STATE:
		return scout__py_raise(
			state, rc,
			"%s(%R): this id is live with other hashes or another tenant; call finish() before it names "
			"another prompt",
			sig->call, a[SCOUT__PY_ID]);
	default:
		return scout__py_client_raise(self, sig, a[SCOUT__PY_ID], a[SCOUT__PY_TENANT], rc);
	}
}

void
scout__py_query_release(struct scout__py_query *query)
{
	scout__py_hashes_release(&query->hashes);
}
