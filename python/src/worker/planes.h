/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <kvscout/protocol.h> /* SCOUT_MAX_PLANES, SCOUT_MAX_CHUNKS */
#include <kvscout/worker.h>

#include "kvscout_py.h"

/*
 * Paged KV memory, as Python has it, as planes of the library. GIL held.
 *
 * A plane is (address, stride, block_bytes), or an object whose memory is cut into planes by its shape: a tensor (data_ptr(), shape,
 * stride(), element_size()), an array (__cuda_array_interface__, __array_interface__), or a writable buffer (bytearray, mmap,
 * memoryview). Of such an object the axis `block_dim` counts the blocks. The other axes are the bytes of a block as far as they are
 * dense in memory, in whatever order; each index of the remaining ones is a plane of its own, in the order of the axes.
 */
struct scout__py_planes {
	struct scout_plane *planes;
	uint32_t n, room;
	uint64_t n_blocks; /* 0: not known yet */
	PyObject *owners;  /* list of the objects that own the memory */
	Py_buffer *views;  /* of those with the buffer protocol: while one is held, its owner cannot resize */
	uint32_t n_views;
};

/*
 * Add the planes of @list. @call and @name are for error texts ("Worker.register", "planes"). @n_blocks 0: by the objects' shapes. 0, or
 * -1 with an exception; then @planes is to be freed.
 */
int scout__py_planes_add(struct scout__py_state *state, const char *call, const char *name, PyObject *list,
			 uint64_t n_blocks, uint32_t block_dim, struct scout__py_planes *planes);
/* Let the memory's owners go: no copy may run on it any more. */
void scout__py_planes_free(struct scout__py_planes *planes);
int scout__py_planes_visit(struct scout__py_planes *planes, visitproc visit, void *arg);
