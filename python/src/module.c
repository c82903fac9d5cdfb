/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The module kvscout._kvscout: its state, functions, types and constants.
 *
 * One interpreter: the library's objects have threads, and what a second interpreter in the same process makes of use after fork, of
 * interpreter exit and of the log is not tested, so import is refused there with a sentence. Importing the module a second time in
 * the same interpreter makes a second module with types of its own, as for any module written in Python.
 */
#include "kvscout_py.h"

#include <inttypes.h>
#include <string.h>

#include <kvscout/client.h>
#include <kvscout/version.h>
#include <kvscout/worker.h>

#include "lifetime.h"
#include "py_check_keys.h"
#include "py_ensure_server.h"

static PyType_Spec *const types[SCOUT__PY_TYPES] = {
	[SCOUT__PY_CLIENT] = &scout__py_client_spec, [SCOUT__PY_HIT] = &scout__py_hit_spec,
	[SCOUT__PY_KEYS] = &scout__py_keys_spec,     [SCOUT__PY_STEP] = &scout__py_step_spec,
	[SCOUT__PY_SERVER] = &scout__py_server_spec, [SCOUT__PY_WORKER] = &scout__py_worker_spec,
	[SCOUT__PY_DONE] = &scout__py_done_spec,
};

#define CONSTANT(name)                                                                                                 \
	{                                                                                                              \
#name, SCOUT_##name                                                                                    \
	}
static const struct {
	const char *name;
	uint64_t value;
} constants[] = {
	CONSTANT(FEED_START_OVER), CONSTANT(FEED_STORED),    CONSTANT(FEED_REMOVED), CONSTANT(FEED_CLEARED),
	CONSTANT(FEED_DROPPED),    CONSTANT(FEED_CAUGHT_UP), CONSTANT(FEED_L1),      CONSTANT(FEED_L2),
	CONSTANT(KEY_MISS),        CONSTANT(KEY_HIT),        CONSTANT(KEY_RETRY),    CONSTANT(GENERATION_NEWEST),
};

static int
refuse_subinterpreter(void)
{
	int64_t id = PyInterpreterState_GetID(PyInterpreterState_Get());

	if (id == 0)
		return 0;
	if (id > 0)
		PyErr_SetString(PyExc_ImportError,
				"kvscout cannot be imported in a subinterpreter; import it in the main one");
	return -1;
}

static int
add_types(PyObject *module)
{
	struct scout__py_state *state = scout__py_state_of(module);

	for (int i = 0; i < SCOUT__PY_TYPES; i++) {
		PyObject *type = PyType_FromModuleAndSpec(module, types[i], NULL);

		state->types[i] = (PyTypeObject *)type;
		if (!type || PyModule_AddObjectRef(module, types[i]->name + strlen("kvscout."), type) < 0)
			return -1;
	}
	return 0;
}

static int
add_constants(PyObject *module)
{
	for (size_t i = 0; i < sizeof(constants) / sizeof(constants[0]); i++) {
		PyObject *value = PyLong_FromUnsignedLongLong(constants[i].value);
		int rc = PyModule_AddObjectRef(module, constants[i].name, value);

		Py_XDECREF(value);
		if (rc < 0)
			return -1;
	}
	return 0;
}

static int
exec(PyObject *module)
{
	if (refuse_subinterpreter() < 0 || scout__py_errors_add(module) < 0 || add_types(module) < 0 ||
	    add_constants(module) < 0 || scout__py_lifetime_add(module) < 0)
		return -1;
	return PyModule_AddStringConstant(module, "__version__", scout_version());
}

static int
traverse(PyObject *module, visitproc visit, void *arg)
{
	struct scout__py_state *state = scout__py_state_of(module);

	for (int i = 0; state && i < SCOUT__PY_ERRORS; i++)
		Py_VISIT(state->errors[i]);
	for (int i = 0; state && i < SCOUT__PY_TYPES; i++)
		Py_VISIT(state->types[i]);
	return 0;
}

static int
clear(PyObject *module)
{
	struct scout__py_state *state = scout__py_state_of(module);

	for (int i = 0; state && i < SCOUT__PY_ERRORS; i++)
		Py_CLEAR(state->errors[i]);
	for (int i = 0; state && i < SCOUT__PY_TYPES; i++)
		Py_CLEAR(state->types[i]);
	return 0;
}

static void
free_state(void *module)
{
	(void)clear(module);
}

PyDoc_STRVAR(error_of_doc,
	     "error_of(code, text=..., /)\n--\n\n"
	     "The exception that belongs to a code, such as Done.status or Hit.error: raise error_of(done.status).\n\n"
	     "code: a negative number of docs/errors.md. text: instead of the library's sentence.");
PyDoc_STRVAR(error_name_doc,
	     "error_name(code, /)\n--\n\n"
	     "The name of a code: 'SCOUT_ERR_BUSY' for -3, 'SCOUT_OK' for 0, 'SCOUT_ERR_?' for an unknown one.");

PyDoc_STRVAR(
	hash_blocks_doc,
	"hash_blocks(token_ids, block_tokens, *, dialect='vllm-0.31', seed=None, lora=None, mm=(), salt=None, "
	"prompt_embeds=(), parent=None, first_block=0)\n--\n\n"
	"The chained hashes of the full blocks of a prompt, 32 bytes each, byte for byte those of vLLM started with\n"
	"--prefix-caching-hash-algo sha256_cbor. Other threads run meanwhile.\n\n"
	"token_ids: a list of ints, or a buffer of ints of 4 or 8 bytes (array, numpy).\n"
	"block_tokens: tokens in a block, 1 to 65536.\n"
	"dialect: 'vllm-0.31' for vLLM 0.31 and newer, 'vllm-0.30' for 0.20 to 0.30.\n"
	"seed: what the engine has in PYTHONHASHSEED; None: it has none.\n"
	"lora: (name, path); in 'vllm-0.30' the name alone is enough.\n"
	"mm: multimodal items as (identifier, offset, length), sorted by offset.\n"
	"salt: the request's cache salt.\n"
	"prompt_embeds: SHA-256 digests of the prompt embeddings, one for each block of the request.\n"
	"parent, first_block: to go on where an earlier call ended: its last hash, and how many blocks came before\n"
	"token_ids. lora, mm, salt and prompt_embeds still describe the whole request.");

/* It returns the reason and does not raise it: callers put it into a sentence of their own. */
static PyObject *
cuda_problem(PyObject *module, PyObject *unused)
{
	char err[512] = "";

	(void)module;
	(void)unused;
	if (scout_worker_probe_cuda(err, sizeof(err)) == 0)
		Py_RETURN_NONE;
	return PyUnicode_FromString(err);
}

PyDoc_STRVAR(
	cuda_problem_doc,
	"cuda_problem()\n--\n\n"
	"Why workers of this build cannot copy to and from CUDA devices here: the build, or the driver. None: they can.\n\n"
	"Initialises nothing of CUDA, so this process may still fork others that use CUDA.");

static PyMethodDef functions[] = {
	{"cuda_problem", cuda_problem, METH_NOARGS, cuda_problem_doc},
	{"hash_blocks", SCOUT__PY_METHOD(scout__py_hash_blocks), METH_FASTCALL | METH_KEYWORDS, hash_blocks_doc},
	{"ensure_server", SCOUT__PY_METHOD(scout__py_ensure_server), METH_VARARGS | METH_KEYWORDS,
	 scout__py_ensure_server_doc},
	{"check_keys", SCOUT__PY_METHOD(scout__py_check_keys), METH_VARARGS | METH_KEYWORDS, scout__py_check_keys_doc},
	{"error_of", SCOUT__PY_METHOD(scout__py_error_of), METH_FASTCALL, error_of_doc},
	{"error_name", scout__py_error_name, METH_O, error_name_doc},
	{0},
};

static PyModuleDef_Slot slots[] = {
	{Py_mod_exec, (void *)exec},
	{0, NULL},
};

static struct PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "_kvscout",
	.m_doc = "kvscout's C library for Python; import kvscout.",
	.m_size = sizeof(struct scout__py_state),
	.m_methods = functions,
	.m_slots = slots,
	.m_traverse = traverse,
	.m_clear = clear,
	.m_free = free_state,
};

PyMODINIT_FUNC PyInit__kvscout(void);

PyMODINIT_FUNC
PyInit__kvscout(void)
{
	return PyModuleDef_Init(&definition);
}
