/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter_rig.h"
#include "check_main.h"

/* The plugin adapter on a store (odd_store.c) that does what each case wants. */

static struct adapter_rig rig;
static struct adapter_object o[3];

static int
try_open(const char *library, const char *options, char err[512])
{
	char url[1024];

	rig = (struct adapter_rig){.vt = &scout__l2_plugin};
	(void)snprintf(url, sizeof(url), "plugin://%s%s", library, options);
	return adapter_try(&rig, url, err, 512);
}

static void
up(const char *options)
{
	char err[512] = "";
	int rc = try_open(getenv("KVSCOUT_ODD_STORE"), options, err);

	ck_assert_msg(rc == 0, "%s", err);
	scout__l2_url_fini(&rig.url);
}

static void
set_up(void)
{
	for (uint32_t i = 0; i < 3; i++)
		object_init(&o[i], i, 100000 + i);
}

static void
tear_down(void)
{
	if (rig.adapter)
		adapter_down(&rig);
	for (uint32_t i = 0; i < 3; i++)
		object_fini(&o[i]);
}

CHECKED_FIXTURE(set_up, tear_down);

START_TEST(a_plugin_learns_whether_the_names_are_a_chain)
{
	up("?be=chain");
	ck_assert_uint_eq(object_exists(&rig, o, 3), 0);
	object_begin_exists(&rig, &o[1], o, 3, 10000);
	ck_assert_int_eq(object_end(&o[1]), SCOUT__L2_OK);
	o[1].op.is_chain = true;
	ck_assert_int_eq(adapter_run(&rig, &o[1].op), SCOUT__L2_OK);
	ck_assert_mem_eq(o[1].op.found, "\1\1\1", 3);
}
END_TEST

START_TEST(a_lying_store_is_never_believed)
{
	static const char *const lies[] = {"?be=flip", "?be=short"};

	for (unsigned i = 0; i < 2; i++) {
		up(lies[i]);
		ck_assert_int_eq(object_store(&rig, &o[0]), SCOUT__L2_OK);
		ck_assert_int_eq(object_load(&rig, &o[0]), SCOUT__L2_CORRUPT);
		adapter_down(&rig);
	}
}
END_TEST

START_TEST(a_store_that_refuses_says_why)
{
	up("?be=refusing");
	ck_assert_int_eq(object_load(&rig, &o[0]), SCOUT__L2_ERROR);
	ck_assert_str_eq(o[0].op.why, "not today");
	object_begin_exists(&rig, &o[1], o, 3, 1000);
	ck_assert_int_eq(object_end(&o[1]), SCOUT__L2_ERROR);
	ck_assert_str_eq(o[1].op.why, "a question: outcome 99, and the plugin does not say why");
	adapter_down(&rig);
	up("?be=full");
	ck_assert_int_eq(object_store(&rig, &o[0]), SCOUT__L2_FULL);
	ck_assert_int_eq(o[0].op.detail, 0); /* no failure, which would switch writes off */
}
END_TEST

START_TEST(more_progress_than_an_object_has_holds_no_load)
{
	up("?be=boasting");
	object_begin(&rig, &o[0], SCOUT__L2_LOAD, 300);
	ck_assert_int_eq(object_end(&o[0]), SCOUT__L2_TIMEOUT);
}
END_TEST

/* In a child: its thread sleeps on. */
START_TEST(a_close_that_hangs_holds_up_no_stop)
{
	up("?be=closing");
	ck_assert_int_eq(object_load(&rig, &o[0]), SCOUT__L2_ABSENT);
	ck_assert(!rig.vt->stop(rig.adapter, scout__now_us() + 200000));
	ck_assert_uint_eq(adapter_logged(&rig, "a call does not return; its thread is left running"), 1);
	rig.adapter = NULL;
}
END_TEST

START_TEST(lines_of_a_plugin_pass_the_gate_of_the_log_and_its_cleaning)
{
	static struct scout__log_gate gate;

	up("?be=talking");
	rig.log.gate = &gate;
	ck_assert_int_eq(object_load(&rig, &o[0]), SCOUT__L2_ABSENT);
	ck_assert_uint_eq(adapter_logged(&rig, "odd_store.so: ?[2Jred?line?"), 1);
	scout__log_shut(&gate);
	ck_assert_int_eq(object_load(&rig, &o[0]), SCOUT__L2_ABSENT);
	ck_assert_uint_eq(adapter_logged(&rig, "red"), 1);
}
END_TEST

/* 600 ms in all, with a limit of 200 ms without progress. */
START_TEST(a_slow_store_that_moves_is_waited_for)
{
	up("?be=slow");
	ck_assert_int_eq(object_store(&rig, &o[0]), SCOUT__L2_OK);
	object_begin(&rig, &o[0], SCOUT__L2_LOAD, 200);
	ck_assert_int_eq(object_end(&o[0]), SCOUT__L2_OK);
}
END_TEST

/* Both threads of transfers are stuck; questions have theirs. */
START_TEST(a_stuck_store_times_out_and_holds_up_no_question)
{
	up("?be=stuck&threads=2");
	ck_assert_int_eq(object_store(&rig, &o[2]), SCOUT__L2_OK);
	object_begin(&rig, &o[0], SCOUT__L2_LOAD, 0);
	object_begin(&rig, &o[1], SCOUT__L2_LOAD, 0);
	wait_until(scout__l2_has_begun(&o[0].op) && scout__l2_has_begun(&o[1].op))
		;
	ck_assert_uint_eq(object_exists(&rig, o, 3), 1);
	adapter_down(&rig);
	ck_assert_int_eq(object_end(&o[0]), SCOUT__L2_CANCELLED);
	ck_assert_int_eq(object_end(&o[1]), SCOUT__L2_CANCELLED);
	up("?be=stuck");
	object_begin(&rig, &o[0], SCOUT__L2_LOAD, 100);
	ck_assert_int_eq(object_end(&o[0]), SCOUT__L2_TIMEOUT);
	adapter_down(&rig);
	up("?be=dripping");
	object_begin(&rig, &o[0], SCOUT__L2_LOAD, 100);
	ck_assert_int_eq(object_end(&o[0]), SCOUT__L2_TIMEOUT);
}
END_TEST

START_TEST(what_is_no_plugin_is_refused_with_a_sentence)
{
	static const struct {
		const char *odd, *options, *says;
		int code;
	} cases[] = {
		{"version", "", "the plugin has version 77, and this server needs 1", SCOUT_ERR_VERSION},
		{"small", "", "the plugin's structure has 16 bytes", SCOUT_ERR_UNSUPPORTED},
		{"lacks", "", "the plugin lacks one of open,", SCOUT_ERR_UNSUPPORTED},
		{"null", "", "scout_l2_plugin() returns NULL", SCOUT_ERR_SYSTEM},
		{"", "?colour=red", "the plugin does not open: option colour: there is only be", SCOUT_ERR_CONFIG_KEY},
		{"", "?threads=0", "must be 1..64", SCOUT_ERR_CONFIG_RANGE},
		{"", "?threads=65", "must be 1..64", SCOUT_ERR_CONFIG_RANGE},
	};
	char err[512] = "";

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_int_eq(setenv("ODD_STORE", cases[i].odd, 1), 0);
		ck_assert_int_eq(try_open(getenv("KVSCOUT_ODD_STORE"), cases[i].options, err), cases[i].code);
		ck_assert_msg(strstr(err, cases[i].says), "%s", err);
	}
	ck_assert_int_eq(try_open(getenv("KVSCOUT_NO_PLUGIN"), "", err), SCOUT_ERR_SYSTEM);
	ck_assert_msg(strstr(err, "is no plugin of kvscout: it exports no scout_l2_plugin()"), "%s", err);
	ck_assert_int_eq(try_open("/nowhere/lib.so", "", err), SCOUT_ERR_SYSTEM);
	ck_assert_msg(strstr(err, "the library cannot be loaded: /nowhere/lib.so: "), "%s", err);
}
END_TEST

START_TEST(urls_of_s3_are_read)
{
	static const struct {
		const char *url, *says;
	} cases[] = {
		{"s3://", "the bucket is missing"},
		{"s3:///prefix", "the bucket is missing"},
		{"s3://one,two/prefix", "the bucket is missing"},
		{"s3://bucket:9000/prefix", "is the option endpoint=https://host:port"},
		{"s3://key:secret@bucket", "s3 takes no user and password"},
		{"s3://bucket?threads=65", "must be 1..64"},
		{"s3://bucket/a/b?threads=9&endpoint=https://host:9000&colour=red", NULL}, /* the plugin's to judge */
		{"s3://bucket", NULL},
	};
	struct scout__l2_url url;
	char err[512];

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int rc;

		err[0] = '\0';
		ck_assert_int_eq(scout__l2_url_parse(cases[i].url, &url, err, sizeof(err)), 0);
		rc = scout__l2_s3.check(&url, err, sizeof(err));
		ck_assert_msg(cases[i].says ? strstr(err, cases[i].says) != NULL : rc == 0, "%s: %d %s", cases[i].url,
			      rc, err);
		ck_assert_int_eq(rc == 0, cases[i].says == NULL);
		scout__l2_url_fini(&url);
	}
}
END_TEST

/* This program lies where the library of S3 does not. */
START_LOOP_TEST(what_is_not_installed_is_said, 0, access(LIBDIR "/libkvscout-l2-s3.so", F_OK) != 0)
{
	char err[512] = "";

	rig = (struct adapter_rig){.vt = &scout__l2_s3};
	ck_assert_int_eq(adapter_try(&rig, "s3://bucket", err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_msg(strstr(err, "there is no libkvscout-l2-s3.so beside the server or in "), "%s", err);
	ck_assert_msg(strstr(err, "libcurl4-openssl-dev"), "%s", err);
}
END_TEST
