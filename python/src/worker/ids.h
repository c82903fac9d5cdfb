/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "kvscout_py.h"

/*
 * Block ids from Python: a list, or a buffer of int64 or int32. GIL held. An object keeps one of these and uses it for all its calls,
 * so its memory is taken once.
 */
struct scout__py_ids {
	const int64_t *ids; /* of the last _read, until the next one or _release */
	size_t n;
	int64_t *own; /* memory for ids that are no int64 buffer */
	size_t room;
	Py_buffer view;
	bool has_view;
};

/*
 * Read the ids of @list into @ids. @call and @name are for error texts. 0, or -1 with an exception. May run Python (an item's
 * __index__()).
 */
int scout__py_ids_read(struct scout__py_state *state, const char *call, const char *name, PyObject *list,
		       struct scout__py_ids *ids);
/* Let the buffer go; the memory is kept for the next call. */
void scout__py_ids_release(struct scout__py_ids *ids);
void scout__py_ids_free(struct scout__py_ids *ids);
