/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's handles: as ints, or inside of objects as torch, cupy and cuda-python make them. Nothing of CUDA is called. */
#include "py_worker.h"

/* 1: *ret_handle is set; 0: nothing was given; -1: exception. */
static int
handle_of(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
	  const char *attribute, const char *allowed, uint64_t *ret_handle)
{
	PyObject *number;
	int rc;

	if (!arg || arg == Py_None)
		return 0;
	if (PyIndex_Check(arg))
		return scout__py_arg_u64(state, sig, i, arg, UINTPTR_MAX, ret_handle) < 0 ? -1 : 1;
	if (!PyObject_HasAttrString(arg, attribute))
		return scout__py_arg_type_error(sig, i, arg, allowed);
	number = PyObject_GetAttrString(arg, attribute);
	if (number && !PyIndex_Check(number)) { /* cuda-python wraps its handles */
		PyObject *plain = PyNumber_Long(number);

		Py_DECREF(number);
		number = plain;
	}
	if (!number)
		return -1;
	rc = scout__py_arg_u64(state, sig, i, number, UINTPTR_MAX, ret_handle);
	Py_DECREF(number);
	return rc < 0 ? -1 : 1;
}

int
scout__py_arg_event(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
		    void **ret)
{
	uint64_t handle = 0;
	int rc = handle_of(state, sig, i, arg, "cuda_event",
			   "an int (a cudaEvent_t), an object with cuda_event, or None", &handle);

	if (rc <= 0)
		return rc;
	if (handle == 0) /* a torch.cuda.Event that was never recorded has none */
		return scout__py_arg_value_error(state, sig, i, arg,
						 "an event that exists (its handle is 0; record it first)");
	*ret = (void *)(uintptr_t)handle; // NOLINT: CUDA's handle
	return 0;
}

int
scout__py_arg_stream(struct scout__py_state *state, const struct scout__py_signature *sig, uint32_t i, PyObject *arg,
		     void **ret)
{
	uint64_t handle = 0;
	int rc = handle_of(state, sig, i, arg, "cuda_stream",
			   "an int (a cudaStream_t), an object with cuda_stream, or None", &handle);

	if (rc > 0)
		*ret = scout_stream((void *)(uintptr_t)handle); // NOLINT: CUDA's handle
	return rc < 0 ? -1 : 0;
}
