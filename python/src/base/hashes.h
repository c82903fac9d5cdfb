/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kvscout_py.h"

/*
 * Hashes from Python: a list or tuple of bytes, or one buffer with all of them, of which every stride-th is wanted. The hash of a
 * chunk is that of its last block, so with a stride of s the hashes number s, 2s, 3s ... count, and a rest of fewer than s at the end
 * is no full chunk. GIL held.
 */
struct scout__py_hashes {
	PyObject *items; /* strong: a list or tuple; NULL: they are in `view` */
	bool is_list;
	Py_buffer view; /* view.obj is NULL: none */
};

/* Memory for hashes that lie apart; grows, and is kept from call to call. */
struct scout__py_hash_room {
	uint8_t *bytes;
	size_t size;
};

/* Which of the hashes are wanted: an int that divides @hash_tokens. NULL: unchanged. */
int scout__py_arg_stride(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i,
			 PyObject *arg, uint32_t hash_tokens, uint64_t *ret);
/* Take argument @i as what holds the hashes. This may run Python code. 0, or -1 with an exception; either way _release() ends it. */
int scout__py_hashes_take(const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
			  struct scout__py_hashes *hashes);
/*
 * Lay the hashes of @hash_bytes one behind the other, at most @max_n: a list may have grown. Runs no Python code. *ret points into @room
 * or into the buffer, until _release(). 0, or -1 with an exception.
 */
int scout__py_hashes_gather(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i,
			    const struct scout__py_hashes *hashes, size_t stride, size_t hash_bytes, size_t max_n,
			    struct scout__py_hash_room *room, const void **ret, size_t *ret_n);
void scout__py_hashes_release(struct scout__py_hashes *hashes);
