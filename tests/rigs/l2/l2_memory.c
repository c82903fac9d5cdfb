/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_memory.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "l2_adapters.h"
#include "url.h"
#include "clock.h"
#include "fetch.h"
#include "server_core.h"
#include "wire_peer.h"

#define MAX_STORES 8
#define MAX_OBJECTS 4096
#define KINDS 6

struct object {
	struct scout__l2_digest digest;
	uint8_t *data; /* NULL: deleted */
	uint64_t bytes;
	unsigned pins;
	bool hidden;
};

struct l2_memory {
	char name[64];
	pthread_mutex_t mu; /* all that follows */
	pthread_cond_t changed;
	pthread_t thread;
	struct scout__l2_port *port;
	struct scout__l2_op *first, **last; /* not ended, by next */
	bool stopping, hangs;
	bool paused[KINDS];
	unsigned slow_ms[KINDS];
	unsigned given[KINDS];
	unsigned following;
	struct l2_memory_asked asked;
	uint64_t step, step_keys; /* the server's step that asked last, and for how many keys */
	unsigned failing[KINDS];
	enum scout__l2_result failure[KINDS];
	struct object objects[MAX_OBJECTS];
	unsigned n_objects;
};

static struct l2_memory stores[MAX_STORES];
static unsigned n_stores;
static pthread_mutex_t stores_mu = PTHREAD_MUTEX_INITIALIZER;

struct l2_memory *
l2_memory(const char *name)
{
	struct l2_memory *m = NULL;

	(void)pthread_mutex_lock(&stores_mu);
	for (unsigned i = 0; i < n_stores; i++)
		if (strcmp(stores[i].name, name) == 0)
			m = &stores[i];
	if (!m) {
		SCOUT_ASSERT(n_stores < MAX_STORES);
		m = &stores[n_stores++];
		(void)snprintf(m->name, sizeof(m->name), "%s", name);
		(void)pthread_mutex_init(&m->mu, NULL);
		(void)pthread_cond_init(&m->changed, NULL);
		m->last = &m->first;
	}
	(void)pthread_mutex_unlock(&stores_mu);
	return m;
}

/* ---- what tests do ---- */

static void
lock(struct l2_memory *m)
{
	(void)pthread_mutex_lock(&m->mu);
}

static void
unlock(struct l2_memory *m)
{
	(void)pthread_cond_broadcast(&m->changed);
	(void)pthread_mutex_unlock(&m->mu);
}

void
l2_memory_pause(struct l2_memory *m, enum scout__l2_what what)
{
	lock(m);
	m->paused[what] = true;
	unlock(m);
}

void
l2_memory_resume(struct l2_memory *m, enum scout__l2_what what)
{
	lock(m);
	m->paused[what] = false;
	unlock(m);
}

void
l2_memory_slow(struct l2_memory *m, enum scout__l2_what what, unsigned ms)
{
	lock(m);
	m->slow_ms[what] = ms;
	unlock(m);
}

void
l2_memory_fail(struct l2_memory *m, enum scout__l2_what what, unsigned n, enum scout__l2_result result)
{
	lock(m);
	m->failing[what] = n;
	m->failure[what] = result;
	unlock(m);
}

void
l2_memory_hang(struct l2_memory *m)
{
	lock(m);
	m->hangs = true;
	unlock(m);
}

unsigned
l2_memory_count(struct l2_memory *m, enum scout__l2_what what)
{
	unsigned n;

	lock(m);
	n = m->given[what];
	unlock(m);
	return n;
}

struct l2_memory_asked
l2_memory_asked(struct l2_memory *m)
{
	struct l2_memory_asked asked;

	lock(m);
	asked = m->asked;
	unlock(m);
	return asked;
}

static unsigned
pins_locked(const struct l2_memory *m)
{
	unsigned n = 0;

	for (unsigned i = 0; i < m->n_objects; i++)
		n += m->objects[i].pins;
	return n;
}

unsigned
l2_memory_pins(struct l2_memory *m)
{
	unsigned n;

	lock(m);
	n = pins_locked(m);
	unlock(m);
	return n;
}

unsigned
l2_memory_objects(struct l2_memory *m)
{
	unsigned n = 0;

	lock(m);
	for (unsigned i = 0; i < m->n_objects; i++)
		n += m->objects[i].data != NULL;
	unlock(m);
	return n;
}

unsigned
l2_memory_following(struct l2_memory *m)
{
	unsigned n;

	lock(m);
	n = m->following;
	unlock(m);
	return n;
}

/* Sleep until something changes, for a moment at most; ends the process when the deadline has passed. */
static void
wait_locked(struct l2_memory *m, const char *what, uint64_t until_us)
{
	struct timespec at;

	if (scout__now_us() > until_us) {
		(void)fprintf(stderr, "memory://%s: waited in vain for %s\n", m->name, what);
		abort();
	}
	(void)clock_gettime(CLOCK_REALTIME, &at);
	at.tv_sec++;
	(void)pthread_cond_timedwait(&m->changed, &m->mu, &at);
}

void
l2_memory_wait(struct l2_memory *m, enum scout__l2_what what, unsigned n)
{
	uint64_t until_us = wait_begin();

	lock(m);
	while (m->given[what] < n)
		wait_locked(m, "an operation", until_us);
	unlock(m);
}

void
l2_memory_wait_unpinned(struct l2_memory *m)
{
	uint64_t until_us = wait_begin();

	lock(m);
	while (pins_locked(m) > 0)
		wait_locked(m, "the last pin to go", until_us);
	unlock(m);
}

void
l2_memory_hide_all(struct l2_memory *m)
{
	lock(m);
	for (unsigned i = 0; i < m->n_objects; i++)
		m->objects[i].hidden = true;
	unlock(m);
}

void
l2_memory_show(struct l2_memory *m, unsigned i)
{
	lock(m);
	SCOUT_ASSERT(i < m->n_objects);
	m->objects[i].hidden = false;
	unlock(m);
}

void
l2_memory_delete(struct l2_memory *m, unsigned i)
{
	lock(m);
	SCOUT_ASSERT(i < m->n_objects);
	free(m->objects[i].data);
	m->objects[i].data = NULL;
	unlock(m);
}

/* ---- the adapter ---- */

static struct object *
find(struct l2_memory *m, struct scout__l2_digest digest)
{
	for (unsigned i = 0; i < m->n_objects; i++)
		if (m->objects[i].digest.lo == digest.lo && m->objects[i].digest.hi == digest.hi)
			return &m->objects[i];
	return NULL;
}

static void
exists(struct l2_memory *m, struct scout__l2_op *op)
{
	for (uint32_t i = 0; i < op->n; i++) {
		struct object *object = find(m, op->digests[i]);

		op->found[i] = object && object->data && !object->hidden;
		if (object && op->found[i] && op->pin)
			object->pins++;
	}
}

static void
unpin(struct l2_memory *m, const struct scout__l2_op *op)
{
	for (uint32_t i = 0; i < op->n; i++) {
		struct object *object = find(m, op->digests[i]);

		SCOUT_ASSERT(object && object->pins > 0);
		object->pins--;
	}
}

static enum scout__l2_result
load(struct l2_memory *m, const struct scout__l2_op *op)
{
	const struct object *object = find(m, op->key->digest);

	if (!object || !object->data || object->hidden)
		return SCOUT__L2_ABSENT;
	if (object->bytes != op->bytes)
		return SCOUT__L2_CORRUPT;
	memcpy(op->data, object->data, op->bytes);
	return SCOUT__L2_OK;
}

static enum scout__l2_result
store(struct l2_memory *m, const struct scout__l2_op *op)
{
	struct object *object = find(m, op->key->digest);

	if (object && object->data)
		return SCOUT__L2_PRESENT;
	if (!object) {
		SCOUT_ASSERT(m->n_objects < MAX_OBJECTS);
		object = &m->objects[m->n_objects++];
	}
	*object = (struct object){.digest = op->key->digest, .bytes = op->bytes, .pins = object->pins};
	object->data = malloc(op->bytes);
	SCOUT_ASSERT(object->data);
	memcpy(object->data, op->data, op->bytes);
	return SCOUT__L2_OK;
}

static enum scout__l2_result
remove_one(struct l2_memory *m, const struct scout__l2_op *op)
{
	struct object *object = find(m, op->key->digest);

	if (!object || !object->data)
		return SCOUT__L2_ABSENT;
	free(object->data);
	object->data = NULL;
	return SCOUT__L2_OK;
}

static enum scout__l2_result
execute(struct l2_memory *m, struct scout__l2_op *op)
{
	if (m->failing[op->what]) {
		m->failing[op->what]--;
		if (op->what == SCOUT__L2_LOAD)
			memset(op->data, 0xee, op->bytes / 2);
		return m->failure[op->what];
	}
	switch ((enum scout__l2_what)op->what) {
	case SCOUT__L2_EXISTS:
		exists(m, op);
		return SCOUT__L2_OK;
	case SCOUT__L2_UNPIN:
		unpin(m, op);
		return SCOUT__L2_OK;
	case SCOUT__L2_LOAD:
		return load(m, op);
	case SCOUT__L2_STORE:
		m->following += find(m, op->after) != NULL;
		return store(m, op);
	default:
		return remove_one(m, op);
	}
}

/* A disk that is slow and well: it moves every few milliseconds, and questions are answered elsewhere. */
static void
work(struct l2_memory *m, struct scout__l2_op *op)
{
	uint64_t until_us = scout__now_us() + UINT64_C(1000) * m->slow_ms[op->what];

	while (scout__now_us() < until_us && !m->stopping) {
		scout__l2_moved(op);
		(void)pthread_mutex_unlock(&m->mu);
		(void)poll(NULL, 0, 5);
		(void)pthread_mutex_lock(&m->mu);
	}
}

static void
end(struct l2_memory *m, struct scout__l2_op **at, bool cancel)
{
	struct scout__l2_op *op = *at;

	*at = op->next;
	if (!*at)
		m->last = at;
	if (!cancel && m->slow_ms[op->what])
		work(m, op);
	op->result = (uint8_t)(cancel ? SCOUT__L2_CANCELLED : execute(m, op));
	scout__l2_complete(m->port, op);
}

static void *
thread_main(void *arg)
{
	struct l2_memory *m = arg;

	lock(m);
	for (;;) {
		struct scout__l2_op **at = &m->first;

		while (*at && m->paused[(*at)->what] && !(m->stopping && !m->hangs))
			at = &(*at)->next;
		if (*at)
			end(m, at, m->stopping && (*at)->what != SCOUT__L2_UNPIN);
		else if (m->stopping)
			break;
		else
			(void)pthread_cond_wait(&m->changed, &m->mu);
	}
	unlock(m);
	return NULL;
}

static int
memory_open(const struct scout__l2_open *args, void **ret_adapter, char *err, size_t err_len)
{
	struct l2_memory *m = l2_memory(args->url->n_hosts ? args->url->hosts[0].name : args->url->path);

	(void)err;
	(void)err_len;
	m->port = args->port;
	m->stopping = false;
	SCOUT_ASSERT(scout__thread_start(&m->thread, "l2-memory", thread_main, m) == 0);
	*ret_adapter = m;
	return 0;
}

/* The loop submits, so its count of steps stands still meanwhile. */
static void
note_question(struct l2_memory *m, const struct scout__l2_op *op)
{
	const struct scout__ask *ask = op->user;

	if (m->step != ask->server->count.loop_steps)
		m->step_keys = 0;
	m->step = ask->server->count.loop_steps;
	m->step_keys += op->n;
	m->asked.questions++;
	m->asked.keys += op->n;
	m->asked.chains += op->is_chain;
	if (m->step_keys > m->asked.most_keys)
		m->asked.most_keys = m->step_keys;
}

static bool
memory_submit(void *adapter, struct scout__l2_op *op)
{
	struct l2_memory *m = adapter;

	lock(m);
	/* What is paused hangs, as if each had a thread. */
	if (!m->slow_ms[op->what])
		scout__l2_moved(op);
	op->next = NULL;
	*m->last = op;
	m->last = &op->next;
	m->given[op->what]++;
	if (op->what == SCOUT__L2_EXISTS && op->done) /* without: L2 tries whether reads work again */
		note_question(m, op);
	unlock(m);
	return true;
}

static bool
memory_stop(void *adapter, uint64_t deadline_us)
{
	struct l2_memory *m = adapter;

	(void)deadline_us;
	lock(m);
	m->stopping = true;
	unlock(m);
	(void)pthread_join(m->thread, NULL);
	return !m->hangs;
}

static void
memory_close(void *adapter)
{
	struct l2_memory *m = adapter;

	SCOUT_ASSERT(!m->first);
}

static void
memory_gauges(void *adapter, struct scout__l2_gauges *ret_gauges)
{
	struct l2_memory *m = adapter;

	*ret_gauges = (struct scout__l2_gauges){
		.objects = l2_memory_objects(m),
		.bytes = UINT64_MAX,
		.max_bytes = UINT64_MAX,
		.pinned = l2_memory_pins(m),
		.ready = true,
	};
}

static const struct scout__l2_adapter memory_adapter = {
	.scheme = "memory",
	.open = memory_open,
	.submit = memory_submit,
	.stop = memory_stop,
	.close = memory_close,
	.gauges = memory_gauges,
};

const struct scout__l2_adapter *const scout__l2_adapters[] = {&memory_adapter, NULL};
