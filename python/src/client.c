/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * kvscout.Client: its life, its methods' table and their docstrings; client_ask.c and client_calls.c have the methods. An object owns
 * one struct scout_client from its construction to close() or to its end. It refers to the callers' objects (what was asked), so the
 * garbage collector visits it.
 */
#include "py_client.h"

#include <kvscout/client.h>
#include <kvscout/error.h>

#include "log_ring.h"

#define ERR_BYTES 512

static int
set(void *cfg, const char *key, const char *value, char *err, size_t err_len)
{
	return scout_client_config_set(cfg, key, value, err, err_len);
}

static void
close_client(PyObject *object)
{
	struct scout__py_client *self = (struct scout__py_client *)object;
	struct scout_client *client;
	PyThreadState *ts;

	if (!scout__py_use_close(&self->use))
		return;
	scout__py_open_remove(&self->open);
	client = self->client;
	self->client = NULL;
	ts = PyEval_SaveThread();
	scout_client_free(client);
	PyEval_RestoreThread(ts);
	if (self->asked)
		PyDict_Clear(self->asked);
	scout__py_use_closed(&self->use);
}

static PyObject *
client_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	struct scout__py_state *state = scout__py_state_of_type(type);
	struct scout_client_config cfg;
	struct scout__py_client *self = NULL;
	char err[ERR_BYTES] = "";
	int rc;

	scout_client_config_init(&cfg);
	if (scout__py_config_apply(state, "Client", args, kwargs, set, &cfg) == 0 &&
	    scout__py_open_prepare(state, "Client") == 0)
		self = (struct scout__py_client *)PyType_GenericAlloc(type, 0);
	if (!self) {
		scout_client_config_fini(&cfg);
		return NULL;
	}
	self->state = state;
	self->hash_bytes = cfg.hash_bytes;
	self->hash_tokens = cfg.hash_tokens ? cfg.hash_tokens : cfg.chunk_tokens;
	self->max_asked = cfg.max_lookups;
	self->is_polled = cfg.lookup_mode == SCOUT_LOOKUP_POLLED;
	self->lookup_waits = self->is_polled || cfg.step_wait_us > 0;
	scout__py_use_init(&self->use);
	self->asked = PyDict_New();
	self->endpoint = PyUnicode_FromString(cfg.endpoint ? cfg.endpoint : "auto");
	if (!self->asked || !self->endpoint) {
		scout_client_config_fini(&cfg);
		Py_DECREF(self);
		return NULL;
	}
	cfg.log = scout__py_log_push;
	rc = scout_client_new(&cfg, &self->client, err, sizeof(err));
	scout_client_config_fini(&cfg);
	if (rc != 0) {
		scout__py_raise(state, rc, "Client(): %s", err[0] ? err : scout_strerror(rc));
		Py_DECREF(self);
		return NULL;
	}
	scout__py_open_add(&self->open, (PyObject *)self, &self->use, "Client", close_client);
	return (PyObject *)self;
}

static void
client_dealloc(PyObject *object)
{
	struct scout__py_client *self = (struct scout__py_client *)object;
	PyTypeObject *type = Py_TYPE(object);
	freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(object);
	scout__py_open_warn(&self->open);
	close_client(object);
	scout__py_use_fini(&self->use);
	Py_XDECREF(self->asked);
	Py_XDECREF(self->endpoint);
	PyMem_Free(self->hash_room.bytes);
	PyMem_Free(self->key_states);
	PyMem_Free(self->key_groups);
	free_object(object);
	Py_DECREF(type);
}

static int
client_traverse(PyObject *object, visitproc visit, void *arg)
{
	struct scout__py_client *self = (struct scout__py_client *)object;

	Py_VISIT(Py_TYPE(object));
	Py_VISIT(self->asked);
	return 0;
}

/* The dictionary stays: calls use it until the end. */
static int
client_gc_clear(PyObject *object)
{
	struct scout__py_client *self = (struct scout__py_client *)object;

	if (self->asked)
		PyDict_Clear(self->asked);
	return 0;
}

static PyObject *
client_step(PyObject *object, PyObject *unused)
{
	struct scout__py_client *self = (struct scout__py_client *)object;

	(void)unused;
	return scout__py_step_new(self);
}

static PyObject *
client_repr(PyObject *object)
{
	struct scout__py_client *self = (struct scout__py_client *)object;
	const char *word = scout__py_use_word(&self->use);
	struct scout_client_counters now = {0};
	unsigned long long servers = 0;
	PyObject *list;

	if (word)
		return PyUnicode_FromFormat("<kvscout.Client endpoint=%R %s>", self->endpoint, word);
	list = PyObject_CallMethod(self->endpoint, "split", NULL);
	if (!list)
		return NULL;
	servers = (unsigned long long)PyList_Size(list);
	Py_DECREF(list);
	if (scout_client_stats(self->client, &now) != 0)
		now.servers_up = 0;
	if (now.servers_up > 0 && now.servers_up < servers)
		return PyUnicode_FromFormat("<kvscout.Client endpoint=%R connected to %llu of %llu servers>",
					    self->endpoint, (unsigned long long)now.servers_up, servers);
	return PyUnicode_FromFormat("<kvscout.Client endpoint=%R %s>", self->endpoint,
				    now.servers_up > 0 ? "connected" : "not connected");
}

#define ASK_ARGS                                                                                                             \
	"($self, /, id, hashes, prompt_tokens, computed_tokens=0, tenant=None, expect_tokens=0, stride=1, *, timeout_ms=0, " \
	"want_lengths=0, from_token=0, load=False)"                                                                          \
	"\n--\n\n"
#define FAST (METH_FASTCALL | METH_KEYWORDS)

static PyMethodDef methods[] = {
	{"try_lookup", SCOUT__PY_METHOD(scout__py_try_lookup), FAST,
	 "try_lookup" ASK_ARGS
	 "Ask how many leading tokens of a prompt are cached; or ask again. Never waits. Returns a Hit, or None: not yet, ask\n"
	 "again in the next step (poll() does that by the id alone).\n\n"
	 "id: names the request, 1 to 255 bytes of UTF-8, until finish().\n"
	 "hashes: the chained hashes of its full chunks: a list of bytes, or one buffer with hash after hash.\n"
	 "prompt_tokens: the length of the prompt.\n"
	 "computed_tokens: leading tokens that the GPU's own cache has. A smaller number than before starts a new lookup.\n"
	 "tenant: cache salt; other salt, other keys.\n"
	 "expect_tokens: leading tokens that should be cached by now or soon (disaggregated prefill).\n"
	 "stride: hashes are of blocks, and a chunk has so many blocks: the last hash of each chunk counts.\n"
	 "timeout_ms: this lookup's own timeout, if it is longer than lookup_timeout_ms.\n"
	 "want_lengths: how many lengths lookup_lengths() is to tell, at most 64.\n"
	 "from_token: the hashes begin behind so many leading tokens, which the engine has: a multiple of hash_tokens, at most\n"
	 "computed_tokens.\n"
	 "load: bring what is in L2 only into host memory now; what has not begun to load at the end of the request is not.\n\n"
	 "An answer stays the same until admit() or finish(), but for a longer one that is found when it has grown old\n"
	 "(lookup_refresh_ms). The objects are referred to until then, and a list may grow at its end meanwhile.\n\n"
	 "BusyError: a table or queue is full; ask again in the next step. StateError: the id is live with other hashes."},
	{"poll", SCOUT__PY_METHOD(scout__py_poll), FAST,
	 "poll($self, /, id, computed_tokens=0)\n--\n\n"
	 "Ask again for a request that try_lookup() or lookup_ahead() has asked for: a Hit, or None: not yet. Reads no hashes,\n"
	 "unless the lookup has to be sent again (an old answer, a restarted server, fewer computed_tokens): then those of the\n"
	 "first call.\n\n"
	 "StateError: no lookup of this id is open."},
	{"wait_lookup", SCOUT__PY_METHOD(scout__py_wait_lookup), FAST,
	 "wait_lookup" ASK_ARGS
	 "As try_lookup(), and waits for the answer: a Hit, at the lookup's deadline one with 0 tokens and reason 'timeout'.\n"
	 "Other threads run meanwhile."},
	{"lookup", SCOUT__PY_METHOD(scout__py_lookup), FAST,
	 "lookup" ASK_ARGS
	 "wait_lookup() with lookup_mode='polled'; else try_lookup(), which waits for an answer as long as something is left of\n"
	 "step_wait_us, a budget that all calls of a step share."},
	{"lookup_ahead", SCOUT__PY_METHOD(scout__py_lookup_ahead), FAST,
	 "lookup_ahead" ASK_ARGS
	 "Ask before it is known what the GPU has: when the engine learns of a request, ahead of the step that schedules it.\n"
	 "poll() or try_lookup() with its computed_tokens then reads the answer. computed_tokens is not used here."},
	{"lookup_lengths", SCOUT__PY_METHOD(scout__py_lookup_lengths), FAST,
	 "lookup_lengths($self, /, id)\n--\n\n"
	 "The lengths in tokens that the request can go on from, the longest first: those of the answer that the last ask has\n"
	 "returned, as many as its want_lengths. Empty: nothing is cached.\n\n"
	 "StateError: there is no answer."},
	{"lookup_keys", SCOUT__PY_METHOD(scout__py_lookup_keys), FAST,
	 "lookup_keys($self, /, id, hashes, groups=None, tenant=None, *, timeout_ms=0)\n--\n\n"
	 "Ask which of these objects are cached, each by itself; or ask again, with the same arguments. Never waits. Returns Keys,\n"
	 "or None: not yet, ask again in the next step.\n\n"
	 "id: names the question, 1 to 255 bytes of UTF-8, until finish(). It must not be that of a request.\n"
	 "hashes: the hash at the end of each object, 1 to 16384 of them: a list of bytes, or one buffer with hash after hash.\n"
	 "groups: the group of each, a list of ints or a buffer of signed ones, in any order; None: all are of group 0.\n"
	 "tenant: cache salt; other salt, other keys.\n"
	 "timeout_ms: this question's own timeout, if it is longer than lookup_timeout_ms.\n\n"
	 "A failure of any kind makes keys KEY_RETRY, never KEY_MISS. For Worker.retrieve() the i-th key of a group stands for\n"
	 "the tokens from i * unit_tokens to (i + 1) * unit_tokens. What is promised stays promised until finish().\n\n"
	 "BusyError: a table or queue is full; ask again in the next step. StateError: the id is live with other keys."},
	{"wait_lookup_keys", SCOUT__PY_METHOD(scout__py_wait_lookup_keys), FAST,
	 "wait_lookup_keys($self, /, id, hashes, groups=None, tenant=None, *, timeout_ms=0)\n--\n\n"
	 "As lookup_keys(), and waits for the answer: Keys, at the question's deadline with KEY_RETRY and reason 'timeout'.\n"
	 "Other threads run meanwhile."},
	{"step", client_step, METH_NOARGS,
	 "step($self, /)\n--\n\n"
	 "A context manager for one step of the scheduler, with client.step(): ... What is asked inside is sent at its end, in\n"
	 "one message."},
	{"step_begin", scout__py_step_begin, METH_NOARGS,
	 "step_begin($self, /)\n--\n\n"
	 "Begin a step: until step_end(), what is asked is only queued. Steps do not nest."},
	{"step_end", scout__py_step_end, METH_NOARGS,
	 "step_end($self, /)\n--\n\n"
	 "End the step: what is queued is sent in one message."},
	{"step_wait", SCOUT__PY_METHOD(scout__py_step_wait), FAST,
	 "step_wait($self, /, us)\n--\n\n"
	 "Wait once, at most us microseconds, for all lookups that were asked since the step began. True: all have landed (or\n"
	 "there were none); poll() then answers at once. Inside a step, what is queued is sent first. Other threads run\n"
	 "meanwhile."},
	{"lookup_kept", SCOUT__PY_METHOD(scout__py_lookup_kept), FAST,
	 "lookup_kept($self, /, id)\n--\n\n"
	 "What became of the keep of the last request that this one goes on from, as far as this client remembers (64\n"
	 "keeps): 'accepted', 'clipped', 'rejected', 'missing', or None. Part of the answer, and there as long as that."},
	{"admit", SCOUT__PY_METHOD(scout__py_admit), FAST,
	 "admit($self, /, id, from_token=0, to_token=None)\n--\n\n"
	 "Say which part of the hit will be loaded; the promise on the rest is given back, and the answer is released.\n\n"
	 "from_token, to_token: half open; negative counts from the end of the hit's last chunk, None is that end.\n"
	 "from_token is rounded down to a chunk, to_token, too. An empty range gives back everything.\n\n"
	 "StateError: there is no answer to admit."},
	{"finish", SCOUT__PY_METHOD(scout__py_finish), FAST,
	 "finish($self, /, id)\n--\n\n"
	 "The request is over: completed, aborted or preempted. Legal at any time and twice; an unknown id is no error."},
	{"finish_hint", SCOUT__PY_METHOD(scout__py_finish_hint), FAST,
	 "finish_hint($self, /, id, hint)\n--\n\n"
	 "finish(), with what the caller knows of the future. Only what the server evicts depends on it; a wrong hint costs\n"
	 "little.\n\n"
	 "hint: 'likely': the conversation goes on (it ended in a tool call, the user is still there). 'unlikely': it is over\n"
	 "(the chat was closed, the batch is done). 'unknown': finish()."},
	{"finish_keep", SCOUT__PY_METHOD(scout__py_finish_keep), FAST,
	 "finish_keep($self, /, id, hint, keep_ms)\n--\n\n"
	 "finish_hint(), and the server evicts nothing of what the request found and stored for keep_ms (at most an hour), as\n"
	 "far as there is room for it: the next turn comes within this time, as after a tool call. A newer finish_keep() of the\n"
	 "conversation, or one with the hint 'unlikely', ends the older one. The counters keeps_... of stats() say what became\n"
	 "of it."},
	{"reset", SCOUT__PY_METHOD(scout__py_client_reset), FAST,
	 "reset($self, /, weights_version)\n--\n\n"
	 "The model got new weights: what is cached under another version is unreadable from now on. All live requests of this\n"
	 "client end as if finished. Each worker is told by its own reset()."},
	{"clear", SCOUT__PY_METHOD(scout__py_client_clear), FAST,
	 "clear($self, /, generation=0)\n--\n\n"
	 "Drop everything that is cached in this namespace, in host memory and in L2. All live requests of this client end as if\n"
	 "finished. Returns the generation that names this clear; hand it to the workers' clear().\n\n"
	 "generation: 0, or one that another clear() of the same engine returned, to join that one."},
	{"wait_ready", SCOUT__PY_METHOD(scout__py_wait_ready), FAST,
	 "wait_ready($self, /, timeout_ms)\n--\n\n"
	 "Wait until every endpoint has accepted this client; for program start, lookups need not wait for it. Other threads run\n"
	 "meanwhile.\n\n"
	 "KVScoutError: it took longer (SCOUT_ERR_TIMEOUT). ServerError: a server refused; its sentence says why."},
	{"stats", scout__py_client_stats, METH_NOARGS,
	 "stats($self, /)\n--\n\n"
	 "Counters since the client was made, by name; struct scout_client_counters in kvscout/client.h explains them."},
	{"feed", scout__py_client_feed, METH_NOARGS,
	 "feed($self, /)\n--\n\n"
	 "The next events of what became a hit in the namespace and what stopped being one, as a list of tuples\n"
	 "(kind, medium, group, tenant, hash, description), at most 512. Does not block: the call also asks the server for more.\n"
	 "kind: FEED_START_OVER (forget all; what is there follows), FEED_STORED, FEED_REMOVED, FEED_CLEARED (all is gone),\n"
	 "FEED_DROPPED (all of the tenant is gone), FEED_CAUGHT_UP (after FEED_START_OVER, once: what was there has been told).\n"
	 "medium: FEED_L1, FEED_L2, 0 for the other kinds. hash: None for these.\n"
	 "An error says what became of the last request: the next call asks again. kvscout/client_feed.h has the rules."},
	{"fileno", scout__py_client_fileno, METH_NOARGS,
	 "fileno($self, /)\n--\n\n"
	 "A descriptor, owned by the client, that is readable when an answer has landed, for selectors and event loops; call\n"
	 "fd_clear() before looking at the answers. From the first call on, each answer costs the library a write; it is\n"
	 "readable at first, for what landed before."},
	{"fd_clear", scout__py_client_fd_clear, METH_NOARGS,
	 "fd_clear($self, /)\n--\n\n"
	 "Make the descriptor of fileno() unreadable until the next answer lands."},
	{"close", scout__py_owner_close, METH_NOARGS,
	 "close($self, /)\n--\n\n"
	 "End the client: lookups in flight are dropped, and what they promised is given back. Takes at most about 0.2 s.\n\n"
	 "Any thread may call it, and as often as it likes; where another thread is inside a call that waits, it first\n"
	 "waits for that call to end, which a wait for an answer or a server does soon, with ClosedError. Every later call\n"
	 "of any other method raises ClosedError."},
	{"__enter__", scout__py_owner_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nReturns the client."},
	{"__exit__", SCOUT__PY_METHOD(scout__py_owner_exit), METH_FASTCALL,
	 "__exit__($self, /, *args)\n--\n\nCalls close()."},
	{0},
};

static PyGetSetDef getset[] = {
	{"closed", scout__py_owner_closed, NULL, "Whether close() was called.", NULL},
	{0},
};

static const char client_doc[] =
	"Client(**config)\n--\n\n"
	"The scheduler's side: how many leading tokens of a prompt are cached outside the GPU?\n\n"
	"Configuration keys are those of docs/configuration.md, as keyword arguments: numbers, words, or text as in a\n"
	"configuration file ('64Mi'); endpoint and cpus may be lists; None means the default. Connecting goes on in the\n"
	"background.\n\n"
	"A request goes through try_lookup(), poll() until there is an answer, admit() and finish(). One thread at a time uses a\n"
	"client; a second one gets StateError. A forked child gets ClosedError.";

static PyType_Slot slots[] = {
	{Py_tp_new, (void *)client_new},
	{Py_tp_dealloc, (void *)client_dealloc},
	{Py_tp_repr, (void *)client_repr},
	{Py_tp_traverse, (void *)client_traverse},
	{Py_tp_clear, (void *)client_gc_clear},
	{Py_tp_methods, methods},
	{Py_tp_getset, getset},
	{Py_tp_doc, (void *)client_doc},
	{0, NULL},
};

PyType_Spec scout__py_client_spec = SCOUT__PY_SPEC("Client", struct scout__py_client, Py_TPFLAGS_HAVE_GC);
