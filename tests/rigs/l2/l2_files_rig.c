/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_files_rig.h"

#include "waiting.h"
#include "random.h"

pthread_mutex_t rig_mu = PTHREAD_MUTEX_INITIALIZER;

static pthread_cond_t rig_cond = PTHREAD_COND_INITIALIZER;

static uint64_t rig_completed; /* G:rig_mu */

void
scout__l2_complete(struct scout__l2_port *port, struct scout__l2_op *op)
{
	bool *done = op->user;

	ck_assert_ptr_null(port);
	(void)pthread_mutex_lock(&rig_mu);
	if (*done)
		abort(); /* twice */
	*done = true;
	rig_completed++;
	(void)pthread_cond_broadcast(&rig_cond);
	(void)pthread_mutex_unlock(&rig_mu);
}

bool
rig_wait_until(const bool *done, uint64_t us)
{
	uint64_t until = scout__now_us() + us;
	bool is_done;

	(void)pthread_mutex_lock(&rig_mu);
	while (!*done && scout__now_us() < until) {
		struct timespec ts;

		(void)clock_gettime(CLOCK_REALTIME, &ts);
		ts.tv_sec++;
		(void)pthread_cond_timedwait(&rig_cond, &rig_mu, &ts);
	}
	is_done = *done;
	(void)pthread_mutex_unlock(&rig_mu);
	return is_done;
}

void
rig_wait(const bool *done)
{
	if (!rig_wait_until(done, RIG_WAIT_US))
		ck_abort_msg("an operation did not end");
}

void
rig_log(void *user, int level, const char *text)
{
	struct rig *rig = user;

	(void)level;
	(void)pthread_mutex_lock(&rig_mu);
	if (rig->log_len + strlen(text) + 2 < sizeof(rig->log))
		rig->log_len += (size_t)sprintf(rig->log + rig->log_len, "%s\n", text);
	(void)pthread_mutex_unlock(&rig_mu);
}

bool
rig_logged(struct rig *rig, const char *text)
{
	bool found;

	(void)pthread_mutex_lock(&rig_mu);
	found = strstr(rig->log, text) != NULL;
	(void)pthread_mutex_unlock(&rig_mu);
	return found;
}

void
rig_init(struct rig *rig, bool in_memory)
{
	memset(rig, 0, sizeof(*rig));
	rig->folder = l2_folder_make(in_memory);
}

int
rig_open_url(struct rig *rig, const char *url_text, void **ret_adapter)
{
	struct scout__l2_url url;
	struct scout__l2_open args = {
		.url = &url, .log = &rig->to, .max_ops = RIG_MAX_OPS, .timeout_ms = 1000, .write_timeout_ms = 1000};
	int rc;

	rig->to = (struct scout__log){.fn = rig_log, .user = rig, .who = "test"};
	rc = scout__l2_url_parse(url_text, &url, rig->err, sizeof(rig->err));
	if (rc)
		return rc;
	rc = scout__l2_files.open(&args, ret_adapter, rig->err, sizeof(rig->err));
	scout__l2_url_fini(&url);
	return rc;
}

int
rig_try_open(struct rig *rig, const char *query)
{
	char *text;
	int rc;

	ck_assert_int_gt(asprintf(&text, "fs://%s%s", rig->folder, query), 0);
	rc = rig_open_url(rig, text, &rig->adapter);
	free(text);
	return rc;
}

struct scout__l2_gauges
rig_gauges(const struct rig *rig)
{
	struct scout__l2_gauges gauges;

	scout__l2_files.gauges(rig->adapter, &gauges);
	return gauges;
}

static void
rig_wait_ready(const struct rig *rig)
{
	wait_until(rig_gauges(rig).ready)
		;
}

void
rig_open(struct rig *rig, const char *query)
{
	int rc = rig_try_open(rig, query);

	ck_assert_msg(rc == 0, "%d: %s", rc, rig->err);
	rig_wait_ready(rig);
}

void
rig_close(struct rig *rig)
{
	ck_assert(scout__l2_files.stop(rig->adapter, scout__now_us() + RIG_WAIT_US));
	scout__l2_files.close(rig->adapter);
	rig->adapter = NULL;
}

void
rig_fini(struct rig *rig)
{
	if (rig->adapter)
		rig_close(rig);
	l2_folder_remove(rig->folder);
	free(rig->folder);
}

struct scout__l2_key
rig_key_of(uint32_t i, const char *name_space)
{
	static const uint64_t planes[1] = {4096};
	struct scout__l2_layout layout = {.name_space = name_space,
					  .name_len = (uint16_t)strlen(name_space),
					  .unit_tokens = 256,
					  .block_tokens = 16,
					  .hash_bytes = 32,
					  .kv_ranks = 1,
					  .n_planes = 1,
					  .plane_bytes = planes,
					  .layout_tag = ""};
	struct scout__l2_fingerprint fingerprint;
	struct scout__l2_key key;
	uint8_t hash[32] = {0};

	memcpy(hash, &i, sizeof(i));
	scout__l2_fingerprint_of(&layout, &fingerprint);
	scout__l2_key_make(&key, &fingerprint, 1, 0, 0, hash, sizeof(hash), "tenant", 6);
	return key;
}

struct scout__l2_key
rig_key(uint32_t i)
{
	return rig_key_of(i, "test");
}

void
rig_fill(uint8_t *data, uint64_t bytes, uint32_t i)
{
	uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	for (uint64_t at = 0; at < bytes; at++) {
		(void)xorshift(&x);
		data[at] = (uint8_t)x;
	}
}

char *
rig_path(const struct rig *rig, const struct scout__l2_key *key)
{
	char name[33];
	char *path;

	scout__l2_digest_text(key->digest, name);
	ck_assert_int_gt(asprintf(&path, "%s/%.2s/%.2s/%s", rig->folder, name, name + 2, name), 0);
	return path;
}

void
rig_submit(void *adapter, struct scout__l2_op *op, bool *done)
{
	scout__enter_loop();
	*done = false;
	op->user = done;
	op->result = 0xff;
	if (op->timeout_us == 0)
		op->timeout_us = RIG_WAIT_US;
	ck_assert(scout__l2_files.submit(adapter, op));
}

enum scout__l2_result
rig_run(const struct rig *rig, struct scout__l2_op *op)
{
	bool done;

	rig_submit(rig->adapter, op, &done);
	rig_wait(&done);
	return (enum scout__l2_result)op->result;
}

enum scout__l2_result
rig_store_bytes(const struct rig *rig, const struct scout__l2_key *key, uint8_t *data, uint64_t bytes)
{
	struct scout__l2_op op = {.what = SCOUT__L2_STORE, .key = key, .data = data, .bytes = bytes};

	return rig_run(rig, &op);
}

enum scout__l2_result
rig_load_bytes(const struct rig *rig, const struct scout__l2_key *key, uint8_t *data, uint64_t bytes)
{
	struct scout__l2_op op = {.what = SCOUT__L2_LOAD, .key = key, .data = data, .bytes = bytes};

	return rig_run(rig, &op);
}

enum scout__l2_result
rig_store(const struct rig *rig, uint32_t i, uint64_t bytes)
{
	struct scout__l2_key key = rig_key(i);
	uint8_t *data = malloc(bytes ? bytes : 1);
	enum scout__l2_result result;

	ck_assert_ptr_nonnull(data);
	rig_fill(data, bytes, i);
	result = rig_store_bytes(rig, &key, data, bytes);
	free(data);
	return result;
}

enum scout__l2_result
rig_load(const struct rig *rig, uint32_t i, uint64_t bytes)
{
	struct scout__l2_key key = rig_key(i);
	uint8_t *data = malloc(bytes ? bytes : 1), *wanted = malloc(bytes ? bytes : 1);
	enum scout__l2_result result;

	ck_assert(data && wanted);
	rig_fill(wanted, bytes, i);
	memset(data, 0, bytes);
	result = rig_load_bytes(rig, &key, data, bytes);
	if (result == SCOUT__L2_OK)
		ck_assert_mem_eq(data, wanted, bytes);
	free(data);
	free(wanted);
	return result;
}

bool
rig_exists(const struct rig *rig, uint32_t i, bool pin)
{
	struct scout__l2_key key = rig_key(i);
	uint8_t found = 0xff;
	struct scout__l2_op op = {
		.what = SCOUT__L2_EXISTS, .pin = pin, .n = 1, .digests = &key.digest, .found = &found};

	ck_assert_int_eq(rig_run(rig, &op), SCOUT__L2_OK);
	ck_assert_int_le(found, 1);
	return found;
}

void
rig_unpin(const struct rig *rig, uint32_t i)
{
	struct scout__l2_key key = rig_key(i);
	struct scout__l2_op op = {.what = SCOUT__L2_UNPIN, .n = 1, .digests = &key.digest};

	ck_assert_int_eq(rig_run(rig, &op), SCOUT__L2_OK);
}

void
rig_check_folder(const struct rig *rig, uint32_t n)
{
	struct l2_folder_report report;

	l2_folder_check(rig->folder, &report);
	ck_assert_msg(report.damaged + report.temporaries + report.foreign == 0,
		      "%u damaged, %u temporary, %u foreign: %s", report.damaged, report.temporaries, report.foreign,
		      report.first_bad);
	ck_assert_uint_eq(report.objects, n);
}
