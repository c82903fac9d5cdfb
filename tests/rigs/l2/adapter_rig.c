/* SPDX-License-Identifier: Apache-2.0 */
#include "adapter_rig.h"
#include "given_time.h"
#include "random.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* See adapter_rig.h. Threads: the test's; scout__l2_complete() and the log run on the adapter's. */

#define END_US 60000000u

struct scout__l2_port {
	char unused;
};

static struct scout__l2_port port;

void
scout__l2_complete(struct scout__l2_port *to, struct scout__l2_op *op)
{
	SCOUT_ASSERT(to == &port);
	atomic_fetch_add_explicit((atomic_uint *)op->user, 1, memory_order_release);
}

static void
keep_line(void *user, int level, const char *line)
{
	struct adapter_rig *rig = user;
	size_t len = strlen(line);

	(void)level;
	(void)pthread_mutex_lock(&rig->mu);
	if (rig->text_len + len + 2 < sizeof(rig->text)) {
		memcpy(rig->text + rig->text_len, line, len);
		rig->text_len += len;
		rig->text[rig->text_len++] = '\n';
		rig->text[rig->text_len] = '\0';
	}
	(void)pthread_mutex_unlock(&rig->mu);
	if (getenv("RIG_LOG"))
		(void)fprintf(stderr, "%s\n", line);
}

int
adapter_try(struct adapter_rig *rig, const char *url, char *err, size_t err_len)
{
	struct scout__l2_open args = {.url = &rig->url, .port = &port, .log = &rig->log};
	int rc = scout__l2_url_parse(url, &rig->url, err, err_len);
	char name[32], folder[64];

	if (rc != 0)
		return rc;
	(void)pthread_mutex_init(&rig->mu, NULL);
	rig->log = (struct scout__log){.fn = keep_line, .user = rig, .who = "l2"};
	args.max_ops = rig->max_ops ? rig->max_ops : 1024;
	args.timeout_ms = args.write_timeout_ms = rig->timeout_ms ? rig->timeout_ms : 1000;
	rc = rig->vt->open(&args, &rig->adapter, err, err_len);
	if (rc != 0)
		scout__l2_url_fini(&rig->url);
	(void)snprintf(name, sizeof(name), "scout-l2-%s",
		       strcmp(rig->vt->scheme, "rediss") ? rig->vt->scheme : "redis");
	ck_assert_msg(rc != 0 || thread_named(name, folder), "%s: no thread is named %s", url, name);
	return rc;
}

void
adapter_up(struct adapter_rig *rig, const char *url)
{
	char err[256] = "";
	int rc = adapter_try(rig, url, err, sizeof(err));

	ck_assert_msg(rc == 0, "%s: %s", url, err);
	/* What open() was given need not stay. */
	scout__l2_url_fini(&rig->url);
}

void
adapter_down(struct adapter_rig *rig)
{
	ck_assert(rig->vt->stop(rig->adapter, scout__now_us() + END_US));
	rig->vt->close(rig->adapter);
	rig->adapter = NULL;
}

uint32_t
adapter_logged(struct adapter_rig *rig, const char *what)
{
	uint32_t n = 0;

	(void)pthread_mutex_lock(&rig->mu);
	for (const char *p = rig->text; (p = strstr(p, what)); p++)
		n++;
	(void)pthread_mutex_unlock(&rig->mu);
	return n;
}

void
adapter_wait_logged(struct adapter_rig *rig, const char *what)
{
	wait_until(adapter_logged(rig, what) > 0)
		;
}

void
adapter_submit(struct adapter_rig *rig, struct scout__l2_op *op, atomic_uint *ended)
{
	scout__enter_loop();
	op->user = ended;
	op->result = 0xff;
	atomic_store(ended, 0);
	ck_assert(rig->vt->submit(rig->adapter, op));
}

enum scout__l2_result
adapter_end(const struct scout__l2_op *op, const atomic_uint *ended)
{
	wait_until(atomic_load_explicit(ended, memory_order_acquire) > 0)
		;
	ck_assert_uint_eq(atomic_load(ended), 1);
	ck_assert_uint_lt(op->result, SCOUT__L2_RESULTS);
	return (enum scout__l2_result)op->result;
}

enum scout__l2_result
adapter_run(struct adapter_rig *rig, struct scout__l2_op *op)
{
	atomic_uint ended;

	adapter_submit(rig, op, &ended);
	return adapter_end(op, &ended);
}

/* ---- objects ---- */

static void *
must(void *p)
{
	ck_assert_ptr_nonnull(p);
	return p;
}

void
object_fill(uint8_t *data, uint64_t bytes, uint32_t number)
{
	uint64_t x = number * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (uint64_t i = 0; i < bytes; i += 8) {
		(void)xorshift(&x);
		memcpy(data + i, &x, bytes - i < 8 ? bytes - i : 8);
	}
}

void
object_init(struct adapter_object *o, uint32_t number, uint64_t bytes)
{
	static const uint64_t plane_bytes[] = {4096};
	const struct scout__l2_layout layout = {
		.name_space = "test",
		.name_len = 4,
		.unit_tokens = 256,
		.block_tokens = 16,
		.hash_bytes = 32,
		.kv_ranks = 1,
		.n_planes = 1,
		.plane_bytes = plane_bytes,
		.layout_tag = "",
	};
	struct scout__l2_fingerprint fingerprint;
	uint8_t hash[32] = {0};

	memset(o, 0, sizeof(*o));
	memcpy(hash, &number, sizeof(number));
	scout__l2_fingerprint_of(&layout, &fingerprint);
	scout__l2_key_make(&o->key, &fingerprint, 0, 0, 0, hash, sizeof(hash), "", 0);
	o->bytes = bytes;
	o->data = must(malloc(bytes + 8));
	o->slot = must(malloc(bytes + 8));
	object_fill(o->data, bytes, number);
	memcpy(o->slot, o->data, bytes);
}

void
object_fini(struct adapter_object *o)
{
	free(o->data);
	free(o->slot);
	free(o->digests);
	free(o->op.found);
}

void
object_begin(struct adapter_rig *rig, struct adapter_object *o, enum scout__l2_what what, uint32_t timeout_ms)
{
	uint8_t *found = o->op.found;

	o->op = (struct scout__l2_op){
		.what = (uint8_t)what, .key = &o->key, .found = found, .timeout_us = UINT64_C(1000) * timeout_ms};
	if (what != SCOUT__L2_REMOVE) {
		o->op.data = o->slot;
		o->op.bytes = o->bytes;
	}
	adapter_submit(rig, &o->op, &o->ended);
}

void
object_begin_exists(struct adapter_rig *rig, struct adapter_object *o, const struct adapter_object *of, uint32_t n,
		    uint32_t timeout_ms)
{
	o->digests = must(realloc(o->digests, (n + 1) * sizeof(*o->digests)));
	o->op = (struct scout__l2_op){.what = SCOUT__L2_EXISTS,
				      .n = n,
				      .found = must(realloc(o->op.found, n + 1)),
				      .timeout_us = UINT64_C(1000) * timeout_ms};
	o->op.digests = o->digests;
	memset(o->op.found, 0xff, n + 1);
	for (uint32_t i = 0; i < n; i++)
		o->digests[i] = of[i].key.digest;
	adapter_submit(rig, &o->op, &o->ended);
}

enum scout__l2_result
object_end(struct adapter_object *o)
{
	return adapter_end(&o->op, &o->ended);
}

enum scout__l2_result
object_store(struct adapter_rig *rig, struct adapter_object *o)
{
	memcpy(o->slot, o->data, o->bytes);
	object_begin(rig, o, SCOUT__L2_STORE, 10000);
	return object_end(o);
}

enum scout__l2_result
object_load(struct adapter_rig *rig, struct adapter_object *o)
{
	enum scout__l2_result result;

	memset(o->slot, 0xee, o->bytes);
	object_begin(rig, o, SCOUT__L2_LOAD, 10000);
	result = object_end(o);
	if (result == SCOUT__L2_OK)
		ck_assert(memcmp(o->slot, o->data, o->bytes) == 0);
	return result;
}

enum scout__l2_result
object_remove(struct adapter_rig *rig, struct adapter_object *o)
{
	object_begin(rig, o, SCOUT__L2_REMOVE, 10000);
	return object_end(o);
}

uint32_t
object_exists(struct adapter_rig *rig, const struct adapter_object *of, uint32_t n)
{
	struct adapter_object o = {.bytes = 0};
	uint32_t found = 0;

	object_begin_exists(rig, &o, of, n, 10000);
	ck_assert_int_eq(object_end(&o), SCOUT__L2_OK);
	for (uint32_t i = 0; i < n; i++) {
		ck_assert_uint_le(o.op.found[i], 1);
		found += o.op.found[i];
	}
	ck_assert_uint_eq(o.op.found[n], 0xff);
	object_fini(&o);
	return found;
}
