/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * kvscout.hash_blocks(): Python's tokens and extra keys to scout_hash_blocks(), without the GIL while it hashes. Each call has a hasher
 * of its own; a prompt of one block pays a few microseconds for that, and threads need no lock. Everything that the hasher reads is
 * copied, or held by a reference until the end.
 */
#include "kvscout_py.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>

#include <kvscout/error.h>
#include <kvscout/hash.h>

enum {
	TOKEN_IDS,
	BLOCK_TOKENS,
	DIALECT,
	SEED,
	LORA,
	MM,
	SALT,
	PROMPT_EMBEDS,
	PARENT,
	FIRST_BLOCK,
	N_ARGS
};

static const struct scout__py_signature sig = {
	.call = "hash_blocks",
	.n_required = 2,
	.n_positional = 2,
	.n = N_ARGS,
	.names = {"token_ids", "block_tokens", "dialect", "seed", "lora", "mm", "salt", "prompt_embeds", "parent",
		  "first_block"},
};

struct hash_call {
	struct scout__py_state *state;
	PyObject *a[SCOUT__PY_ARGS_MAX];
	struct scout_hasher_config cfg;
	struct scout_hash_extra extra;
	const uint32_t *tokens;
	size_t n_tokens;
	uint64_t first_block;
	const uint8_t *parent;
	uint8_t *hashes; /* owned */
	size_t n_blocks;
	/* What the pointers above point into. */
	Py_buffer view;      /* of token_ids; obj is NULL: none */
	uint32_t *converted; /* owned */
	PyObject *mm_texts;  /* list: the identifiers */
	struct scout_hash_mm_item *mm;
	uint8_t *digests;
};

static int
bad(struct hash_call *c, const char *format, ...)
{
	PyObject *text;
	va_list ap;

	va_start(ap, format);
	text = PyUnicode_FromFormatV(format, ap);
	va_end(ap);
	if (text)
		scout__py_raise(c->state, SCOUT_ERR_INVALID, "hash_blocks(): %U", text);
	Py_XDECREF(text);
	return -1;
}

/* ---- tokens ---- */

/* One item of a list that is no plain int. */
static int
convert_item(struct hash_call *c, Py_ssize_t at, PyObject *item, uint32_t *ret)
{
	uint64_t value = 0;
	int rc;

	if (!scout__py_is_int(item))
		return SCOUT__PY_FAILED(PyErr_Format(
			PyExc_TypeError, "hash_blocks(): token_ids[%zd] must be an int, not %.80R", at, item));
	rc = scout__py_u64(item, UINT32_MAX, &value);
	if (rc == 0)
		return bad(c, "token_ids[%zd] must be 0..4294967295, not %.80R", at, item);
	if (rc > 0)
		*ret = (uint32_t)value;
	return rc < 0 ? -1 : 0;
}

static int
take_list(struct hash_call *c, PyObject *list)
{
	bool is_list = PyList_Check(list);
	PyObject *(*get)(PyObject *, Py_ssize_t) = is_list ? PyList_GetItem : PyTuple_GetItem;
	Py_ssize_t n = is_list ? PyList_Size(list) : PyTuple_Size(list);

	c->converted = PyMem_Calloc((size_t)n + 1, sizeof(*c->converted));
	if (!c->converted)
		return SCOUT__PY_FAILED(PyErr_NoMemory());
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *item = get(list, i); /* NULL: an item's __index__() has shortened the list */
		long value = item && PyLong_CheckExact(item) ? PyLong_AsLong(item) : -1;
		int rc;

		if (value >= 0 && value <= (long)UINT32_MAX) {
			c->converted[i] = (uint32_t)value;
			continue;
		}
		if (!item)
			return -1;
		PyErr_Clear();
		Py_INCREF(item);
		rc = convert_item(c, i, item, &c->converted[i]);
		Py_DECREF(item);
		if (rc < 0)
			return -1;
	}
	c->tokens = c->converted;
	c->n_tokens = (size_t)n;
	return 0;
}
_Static_assert(LONG_MAX > UINT32_MAX, "a long holds every token id");

static int
bad_buffer_item(struct hash_call *c, size_t at, int64_t value)
{
	return bad(c, "token_ids[%zu] must be 0..4294967295, not %lld", at, (long long)value);
}

/* Ids of 4 bytes, used where they are. */
static int
take_words(struct hash_call *c, bool is_signed)
{
	const uint32_t *ids = c->view.buf;
	uint32_t all = 0;

	c->tokens = ids;
	for (size_t i = 0; i < c->n_tokens; i++)
		all |= ids[i];
	if (!is_signed || all <= INT32_MAX)
		return 0;
	for (size_t i = 0; i < c->n_tokens; i++)
		if (ids[i] > INT32_MAX)
			return bad_buffer_item(c, i, (int32_t)ids[i]);
	return 0;
}

static int
take_long_words(struct hash_call *c)
{
	const int64_t *ids = c->view.buf;

	c->converted = PyMem_Calloc(c->n_tokens + 1, sizeof(*c->converted));
	if (!c->converted)
		return SCOUT__PY_FAILED(PyErr_NoMemory());
	for (size_t i = 0; i < c->n_tokens; i++) {
		if (ids[i] < 0 || ids[i] > UINT32_MAX)
			return bad_buffer_item(c, i, ids[i]);
		c->converted[i] = (uint32_t)ids[i];
	}
	c->tokens = c->converted;
	return 0;
}

static int
take_buffer(struct hash_call *c, PyObject *object)
{
	const char *format;

	if (PyObject_GetBuffer(object, &c->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
		c->view.obj = NULL;
		return -1;
	}
	format = c->view.format ? c->view.format : "B";
	if (*format == '@' || *format == '=' || *format == '<')
		format++;
	if (strlen(format) != 1 || !strchr("iIlLqQ", *format) || (c->view.itemsize != 4 && c->view.itemsize != 8))
		return SCOUT__PY_FAILED(PyErr_Format(
			PyExc_TypeError,
			"hash_blocks(): token_ids must be a list of ints, or a buffer of ints of 4 or 8 bytes, not a buffer with "
			"format %s",
			c->view.format ? c->view.format : "B"));
	c->n_tokens = (size_t)c->view.len / (size_t)c->view.itemsize;
	return c->view.itemsize == 4 ? take_words(c, strchr("il", *format) != NULL) : take_long_words(c);
}

static int
take_tokens(struct hash_call *c)
{
	PyObject *ids = c->a[TOKEN_IDS], *list;
	int rc;

	if (PyList_Check(ids) || PyTuple_Check(ids))
		return take_list(c, ids);
	if (PyObject_CheckBuffer(ids))
		return take_buffer(c, ids);
	if (!PySequence_Check(ids) || PyUnicode_Check(ids) || PyDict_Check(ids))
		return scout__py_arg_type_error(&sig, TOKEN_IDS, ids,
						"a list of ints, or a buffer of ints of 4 or 8 bytes");
	list = PySequence_List(ids); /* an engine's own kind of list */
	rc = list ? take_list(c, list) : -1;
	Py_XDECREF(list);
	return rc;
}

/* ---- extra keys ---- */

/* A text of the hasher's length at most. */
static int
take_text(struct hash_call *c, const char *name, PyObject *object, const char **ret)
{
	Py_ssize_t len;

	if (!PyUnicode_Check(object))
		return SCOUT__PY_FAILED(
			PyErr_Format(PyExc_TypeError, "hash_blocks(): %s must be a str, not %.80R", name, object));
	*ret = PyUnicode_AsUTF8AndSize(object, &len);
	if (!*ret)
		PyErr_Clear();
	if (!*ret || memchr(*ret, '\0', (size_t)len) || len > SCOUT_HASH_TEXT_MAX)
		return bad(c, "%s must be at most %d bytes of UTF-8 without a NUL character, not %.80R", name,
			   SCOUT_HASH_TEXT_MAX, object);
	return 0;
}

static bool
is_given(PyObject *arg)
{
	return arg && arg != Py_None;
}

/* A name, or (name, path). */
static int
take_lora(struct hash_call *c)
{
	PyObject *lora = c->a[LORA], *path;

	if (!is_given(lora))
		return 0;
	if (PyUnicode_Check(lora)) {
		if (!c->cfg.dialect || strcmp(c->cfg.dialect, SCOUT_HASH_VLLM_0_30) != 0)
			return bad(c, "lora must be (name, path) in dialect %s, not %.80R",
				   c->cfg.dialect ? c->cfg.dialect : SCOUT_HASH_DIALECT_DEFAULT, lora);
		return take_text(c, "lora", lora, &c->extra.lora_name);
	}
	if (!PyTuple_Check(lora) || PyTuple_Size(lora) != 2)
		return scout__py_arg_type_error(&sig, LORA, lora, "(name, path), or None");
	path = PyTuple_GetItem(lora, 1);
	if (take_text(c, "the name in lora", PyTuple_GetItem(lora, 0), &c->extra.lora_name) < 0)
		return -1;
	return take_text(c, "the path in lora", path, &c->extra.lora_path);
}

static int
take_u32(struct hash_call *c, Py_ssize_t at, const char *name, PyObject *object, uint32_t *ret)
{
	uint64_t value = 0;
	int rc;

	if (!scout__py_is_int(object))
		return SCOUT__PY_FAILED(PyErr_Format(PyExc_TypeError,
						     "hash_blocks(): the %s of mm[%zd] must be an int, not %.80R", name,
						     at, object));
	rc = scout__py_u64(object, UINT32_MAX, &value);
	if (rc == 0)
		return bad(c, "the %s of mm[%zd] must be 0..4294967295, not %.80R", name, at, object);
	if (rc > 0)
		*ret = (uint32_t)value;
	return rc < 0 ? -1 : 0;
}

/* (identifier, offset, length) */
static int
take_mm_item(struct hash_call *c, Py_ssize_t at, PyObject *object)
{
	PyObject *item = PyList_Check(object) || PyTuple_Check(object) ? PySequence_Tuple(object) : NULL, *text;
	struct scout_hash_mm_item *mm = &c->mm[at];
	int rc;

	if (!item || PyTuple_Size(item) != 3) {
		if (!PyErr_Occurred())
			PyErr_Format(PyExc_TypeError,
				     "hash_blocks(): mm[%zd] must be (identifier, offset, length), not %.80R", at,
				     object);
		Py_XDECREF(item);
		return -1;
	}
	text = PyTuple_GetItem(item, 0);
	rc = take_text(c, "the identifier of an item in mm", text, &mm->identifier);
	if (rc == 0)
		rc = PyList_Append(c->mm_texts, text);
	if (rc == 0)
		rc = take_u32(c, at, "offset", PyTuple_GetItem(item, 1), &mm->offset);
	if (rc == 0)
		rc = take_u32(c, at, "length", PyTuple_GetItem(item, 2), &mm->length);
	Py_DECREF(item);
	if (rc == 0 && at > 0 && mm->offset < c->mm[at - 1].offset)
		return bad(c, "mm must be sorted by offset: mm[%zd] is at %u, the one before it at %u", at, mm->offset,
			   c->mm[at - 1].offset);
	return rc;
}

static int
take_mm(struct hash_call *c)
{
	PyObject *items;
	Py_ssize_t n;
	int rc = 0;

	if (!is_given(c->a[MM]))
		return 0;
	if (!PySequence_Check(c->a[MM]) || PyUnicode_Check(c->a[MM]))
		return scout__py_arg_type_error(&sig, MM, c->a[MM], "a list of (identifier, offset, length)");
	items = PySequence_Tuple(c->a[MM]);
	if (!items)
		return -1;
	n = PyTuple_Size(items);
	c->mm = PyMem_Calloc((size_t)n + 1, sizeof(*c->mm));
	c->mm_texts = PyList_New(0);
	if (!c->mm || !c->mm_texts) {
		PyErr_NoMemory();
		rc = -1;
	}
	for (Py_ssize_t i = 0; rc == 0 && i < n; i++)
		rc = take_mm_item(c, i, PyTuple_GetItem(items, i));
	Py_DECREF(items);
	c->extra.mm_items = c->mm;
	c->extra.n_mm_items = (uint32_t)n;
	return rc;
}

/* A list of digests of 32 bytes; copied. */
static int
take_digests(struct hash_call *c)
{
	PyObject *digests = c->a[PROMPT_EMBEDS], *list;
	Py_ssize_t n;
	int rc = 0;

	if (!is_given(digests))
		return 0;
	if (!PySequence_Check(digests) || PyUnicode_Check(digests) || PyObject_CheckBuffer(digests))
		return scout__py_arg_type_error(&sig, PROMPT_EMBEDS, digests,
						"a list of digests (bytes), one for each block");
	list = PySequence_Tuple(digests);
	if (!list)
		return -1;
	n = PyTuple_Size(list);
	c->digests = PyMem_Calloc((size_t)n + 1, SCOUT_SHA256_BYTES);
	if (!c->digests) {
		PyErr_NoMemory();
		rc = -1;
	}
	for (Py_ssize_t i = 0; rc == 0 && i < n; i++) {
		PyObject *digest = PyTuple_GetItem(list, i);

		if (!PyBytes_Check(digest) || PyBytes_Size(digest) != SCOUT_SHA256_BYTES)
			rc = bad(c, "prompt_embeds[%zd] must be a SHA-256 digest of %d bytes, not %.80R", i,
				 SCOUT_SHA256_BYTES, digest);
		else
			memcpy(c->digests + i * SCOUT_SHA256_BYTES, PyBytes_AsString(digest), SCOUT_SHA256_BYTES);
	}
	Py_DECREF(list);
	c->extra.embed_digests = c->digests;
	c->extra.n_embed_digests = (uint32_t)n;
	return rc;
}

/* ---- the rest ---- */

static int
take_dialect(struct hash_call *c)
{
	const char *dialect = NULL;

	if (scout__py_arg_text(c->state, &sig, DIALECT, c->a[DIALECT], &dialect, NULL) < 0)
		return -1;
	if (dialect && strcmp(dialect, SCOUT_HASH_VLLM_0_30) != 0 && strcmp(dialect, SCOUT_HASH_VLLM_0_31) != 0)
		return scout__py_arg_value_error(c->state, &sig, DIALECT, c->a[DIALECT],
						 "'" SCOUT_HASH_VLLM_0_30 "' or '" SCOUT_HASH_VLLM_0_31 "'");
	c->cfg.dialect = dialect;
	return is_given(c->a[SEED]) ? take_text(c, "seed", c->a[SEED], &c->cfg.seed) : 0;
}

/* Where the tokens begin: parent and first_block belong together. */
static int
take_start(struct hash_call *c)
{
	PyObject *parent = c->a[PARENT];

	if (scout__py_arg_u64(c->state, &sig, FIRST_BLOCK, c->a[FIRST_BLOCK], UINT64_MAX, &c->first_block) < 0)
		return -1;
	if (is_given(parent) && (!PyBytes_Check(parent) || PyBytes_Size(parent) != SCOUT_SHA256_BYTES))
		return bad(c, "parent must be the hash of the block before first_block, of %d bytes, not %.80R",
			   SCOUT_SHA256_BYTES, parent);
	if (is_given(parent) != (c->first_block > 0))
		return bad(
			c,
			"parent and first_block must be given together: parent is the hash of block first_block - 1");
	c->parent = is_given(parent) ? (const uint8_t *)PyBytes_AsString(parent) : NULL;
	return 0;
}

static int
take_args(struct hash_call *c)
{
	uint64_t block_tokens = 0;

	if (scout__py_arg_u64(c->state, &sig, BLOCK_TOKENS, c->a[BLOCK_TOKENS], UINT64_MAX, &block_tokens) < 0)
		return -1;
	if (block_tokens == 0 || block_tokens > SCOUT_HASH_BLOCK_TOKENS_MAX)
		return scout__py_arg_value_error(c->state, &sig, BLOCK_TOKENS, c->a[BLOCK_TOKENS], "1..65536");
	c->cfg.block_tokens = c->cfg.chunk_tokens = (uint32_t)block_tokens;
	if (take_dialect(c) < 0 || take_lora(c) < 0 || take_mm(c) < 0 || take_digests(c) < 0 || take_start(c) < 0 ||
	    (is_given(c->a[SALT]) && take_text(c, "salt", c->a[SALT], &c->extra.cache_salt) < 0) || take_tokens(c) < 0)
		return -1;
	c->n_blocks = c->n_tokens / (size_t)block_tokens;
	c->hashes = PyMem_Calloc(c->n_blocks + 1, SCOUT_SHA256_BYTES);
	if (!c->hashes)
		return SCOUT__PY_FAILED(PyErr_NoMemory());
	return 0;
}

/* Without the GIL. */
static int
hash(struct hash_call *c, size_t *ret_n)
{
	struct scout_hasher *hasher;
	int rc = scout_hasher_new(&c->cfg, &hasher);

	if (rc != 0)
		return rc;
	rc = scout_hash_blocks(hasher, c->parent, c->first_block, c->tokens, c->n_tokens, &c->extra, c->hashes,
			       c->n_blocks, ret_n);
	scout_hasher_free(hasher);
	return rc;
}

static PyObject *
list_of(const struct hash_call *c, size_t n)
{
	PyObject *list = PyList_New((Py_ssize_t)n);

	for (size_t i = 0; list && i < n; i++) {
		PyObject *bytes =
			PyBytes_FromStringAndSize((const char *)c->hashes + i * SCOUT_SHA256_BYTES, SCOUT_SHA256_BYTES);

		if (!bytes || PyList_SetItem(list, (Py_ssize_t)i, bytes) < 0)
			Py_CLEAR(list);
	}
	return list;
}

PyObject *
scout__py_hash_blocks(PyObject *module, PyObject *const *args, Py_ssize_t n_args, PyObject *kwnames)
{
	struct hash_call c = {.state = scout__py_state_of(module)};
	PyObject *result = NULL;
	PyThreadState *ts;
	size_t n = 0;
	int rc;

	scout_hasher_config_init(&c.cfg);
	scout_hash_extra_init(&c.extra);
	if (scout__py_args(&sig, args, n_args, kwnames, c.a) < 0 || take_args(&c) < 0)
		goto out;
	ts = PyEval_SaveThread();
	rc = hash(&c, &n);
	PyEval_RestoreThread(ts);
	if (rc != 0)
		scout__py_raise_call(c.state, rc, sig.call, NULL);
	else
		result = list_of(&c, n);
out:
	if (c.view.obj)
		PyBuffer_Release(&c.view);
	Py_XDECREF(c.mm_texts);
	PyMem_Free(c.converted);
	PyMem_Free(c.mm);
	PyMem_Free(c.digests);
	PyMem_Free(c.hashes);
	return result;
}
