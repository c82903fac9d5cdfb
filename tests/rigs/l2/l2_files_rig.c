/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_files_rig.h"

#include "waiting.h"

void
rig_init(struct rig *rig, bool in_memory)
{
	memset(rig, 0, sizeof(*rig));
	rig->folder = l2_folder_make(in_memory);
	rig->of.vt = &scout__l2_files;
}

int
rig_try_open(struct rig *rig, const char *query)
{
	char *text;
	int rc;

	rig->of.vt = &scout__l2_files;
	ck_assert_int_gt(asprintf(&text, "fs://%s%s", rig->folder, query), 0);
	rc = adapter_try(&rig->of, text, rig->err, sizeof(rig->err));
	if (rc == 0)
		scout__l2_url_fini(&rig->of.url);
	free(text);
	return rc;
}

struct scout__l2_gauges
rig_gauges(const struct rig *rig)
{
	struct scout__l2_gauges gauges;

	scout__l2_files.gauges(rig->of.adapter, &gauges);
	return gauges;
}

void
rig_open(struct rig *rig, const char *query)
{
	int rc = rig_try_open(rig, query);

	ck_assert_msg(rc == 0, "%d: %s", rc, rig->err);
	wait_until(rig_gauges(rig).ready)
		;
}

void
rig_fini(struct rig *rig)
{
	if (rig->of.adapter)
		adapter_down(&rig->of);
	l2_folder_remove(rig->folder);
	free(rig->folder);
}

struct scout__l2_key
rig_key(uint32_t i)
{
	struct adapter_object o;

	object_init(&o, i, 0);
	object_fini(&o);
	return o.key;
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

enum scout__l2_result
rig_transfer(struct rig *rig, enum scout__l2_what what, const struct scout__l2_key *key, uint8_t *data, uint64_t bytes)
{
	struct scout__l2_op op = {.what = (uint8_t)what, .key = key, .data = data, .bytes = bytes};

	return adapter_run(&rig->of, &op);
}

enum scout__l2_result
rig_store(struct rig *rig, uint32_t i, uint64_t bytes)
{
	struct adapter_object o;
	enum scout__l2_result result;

	object_init(&o, i, bytes);
	result = object_store(&rig->of, &o);
	object_fini(&o);
	return result;
}

enum scout__l2_result
rig_load(struct rig *rig, uint32_t i, uint64_t bytes)
{
	struct adapter_object o;
	enum scout__l2_result result;

	object_init(&o, i, bytes);
	result = object_load(&rig->of, &o);
	object_fini(&o);
	return result;
}

bool
rig_exists(struct rig *rig, uint32_t i, bool pin)
{
	struct scout__l2_key key = rig_key(i);
	uint8_t found = 0xff;
	struct scout__l2_op op = {
		.what = SCOUT__L2_EXISTS, .pin = pin, .n = 1, .digests = &key.digest, .found = &found};

	ck_assert_int_eq(adapter_run(&rig->of, &op), SCOUT__L2_OK);
	ck_assert_int_le(found, 1);
	return found;
}

void
rig_unpin(struct rig *rig, uint32_t i)
{
	struct scout__l2_key key = rig_key(i);
	struct scout__l2_op op = {.what = SCOUT__L2_UNPIN, .n = 1, .digests = &key.digest};

	ck_assert_int_eq(adapter_run(&rig->of, &op), SCOUT__L2_OK);
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
