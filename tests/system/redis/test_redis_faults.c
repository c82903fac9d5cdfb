/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "redis_faults_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * What goes wrong between the adapter and a server: real servers that are stopped, killed, full of clients or that want
 * another password. What no Redis does is in test_redis_peer.c.
 */

static void
real_server(const char *const *extra)
{
	redis_start(&server, extra);
	url_of("", server.port, "");
}

/* ---- who may come in ---- */

CASE_TIMEOUT(300);
CHECKED_FIXTURE(set_up, tear_down);

START_TEST(a_password_and_a_user_are_sent)
{
	static const char *const extra[] = {"requirepass", "s3cret/@:", NULL};

	server.password = "s3cret/@:";
	real_server(extra);
	url_of(":s3cret%2F%40%3A@", server.port, "");
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	adapter_down(&rig);
	redis_ok(&server, "ACL SETUSER kv on >pass2 ~kvscout:* +get +set +exists +unlink");
	url_of("kv:pass2@", server.port, "");
	adapter_up(&rig, url);
	/* Neither PING nor CLUSTER SLOTS nor CLIENT SETNAME: not needed. */
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, &object, 1), 1);
	ck_assert_int_eq(object_remove(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_eq(adapter_logged(&rig, "s3cret") + adapter_logged(&rig, "pass2"), 0);
}
END_TEST

/* The URL names a file with this text and mode. */
static void
url_with_file(const char *text, mode_t mode, const char *more)
{
	char path[128], option[192];
	int fd;

	(void)snprintf(path, sizeof(path), "%s/password", server.folder);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(fchmod(fd, mode), 0);
	(void)close(fd);
	(void)snprintf(option, sizeof(option), "?password_file=%s%s", path, more);
	url_of("", server.port, option);
}

static void
check_file_refused(const char *text, mode_t mode, int code, const char *says)
{
	char err[256] = "";

	url_with_file(text, mode, "");
	ck_assert_int_eq(adapter_try(&rig, url, err, sizeof(err)), code);
	ck_assert_msg(strstr(err, says) != NULL, "%s", err);
}

START_TEST(a_password_may_be_in_a_file_of_its_owner)
{
	static const char *const extra[] = {"requirepass", "s3cret/@:", NULL};
	char longer[1026] = "";

	server.password = "s3cret/@:";
	real_server(extra);
	memset(longer, 'x', sizeof(longer) - 1);
	check_file_refused("s3cret/@:\n", 0604, SCOUT_ERR_PERMISSION, "chmod 600");
	check_file_refused("one\ntwo\n", 0600, SCOUT_ERR_CONFIG_RANGE, "must be one line");
	check_file_refused("\n", 0600, SCOUT_ERR_CONFIG_RANGE, "must be one line");
	check_file_refused(longer, 0600, SCOUT_ERR_CONFIG_RANGE, "of 1 to 1024 bytes");
	url_with_file("s3cret/@:\n", 0600, "");
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	adapter_down(&rig);
	redis_ok(&server, "ACL SETUSER kv on >pass2 ~kvscout:* +get +set +exists +unlink");
	url_with_file("pass2", 0400, "&user=kv");
	adapter_up(&rig, url);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_eq(adapter_logged(&rig, "s3cret") + adapter_logged(&rig, "pass2"), 0);
}
END_TEST

/* Nothing works, the log says once why, without the password; then it works by itself. */
static void
check_refused(const char *says, const char *secret)
{
	rig.timeout_ms = 10000; /* that the machine is slow is not to be told */
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_ERROR);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_ERROR);
	/* Tried again and again, but told once. */
	wait_until(COUNTER(auth_refused) >= 4)
		;
	ck_assert_uint_eq(adapter_logged(&rig, says), 1);
	ck_assert_uint_eq(adapter_logged(&rig, "trying again"), 1);
	ck_assert_uint_eq(adapter_logged(&rig, secret), 0);
	ck_assert(!atomic_load(&scout__redis_counters(rig.adapter)->ready));
}

START_TEST(a_wrong_password_is_told_once_and_heals)
{
	static const char *const extra[] = {"requirepass", "right", NULL};

	server.password = "right";
	real_server(extra);
	url_of(":wrongsecret@", server.port, "");
	check_refused("refuses the user or password", "wrongsecret");
	redis_ok(&server, "CONFIG SET requirepass wrongsecret");
	wait_until(object_store(&rig, &object) == SCOUT__L2_OK)
		;
	ck_assert_uint_eq(adapter_logged(&rig, "works again"), 1);
}
END_TEST

START_TEST(a_wrong_user_is_told_once_and_heals)
{
	real_server(NULL);
	url_of("nobody:secret7@", server.port, "");
	check_refused("refuses the user or password", "secret7");
	redis_ok(&server, "ACL SETUSER nobody on >secret7 ~* +@all");
	wait_until(object_store(&rig, &object) == SCOUT__L2_OK)
		;
}
END_TEST

START_TEST(a_missing_password_is_told_once_and_heals)
{
	static const char *const extra[] = {"requirepass", "right", NULL};

	server.password = "right";
	real_server(extra);
	check_refused("wants a password, and the URL has none", "right");
	redis_ok(&server, "CONFIG SET requirepass %s", "");
	wait_until(object_store(&rig, &object) == SCOUT__L2_OK)
		;
}
END_TEST

START_TEST(a_password_that_nobody_asked_for_is_refused)
{
	real_server(NULL);
	url_of(":unasked1@", server.port, "");
	check_refused("has it a password at all?", "unasked1");
}
END_TEST

START_TEST(a_password_that_was_put_in_while_connected_is_noticed)
{
	real_server(NULL);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_ok(&server, "CONFIG SET requirepass late");
	/* Connections that are in stay in; new ones are refused. */
	(void)redis_number(&server, "CLIENT KILL TYPE normal SKIPME yes");
	wait_until(object_load(&rig, &object) == SCOUT__L2_ERROR && COUNTER(auth_refused) > 0)
		;
	adapter_wait_logged(&rig, "wants a password");
	redis_ok(&server, "CONFIG SET requirepass %s", "");
	wait_until(object_load(&rig, &object) == SCOUT__L2_OK)
		;
}
END_TEST

START_TEST(a_user_without_rights_gets_errors_and_no_storm_of_lines)
{
	real_server(NULL);
	redis_ok(&server, "ACL SETUSER kv on >pass2 ~kvscout:* +get");
	url_of("kv:pass2@", server.port, "");
	adapter_up(&rig, url);
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_ERROR);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_ABSENT);
	ck_assert_uint_eq(adapter_logged(&rig, "NOPERM"), 1);
}
END_TEST

START_TEST(a_password_file_is_read_again_when_a_login_is_refused)
{
	static const char *const extra[] = {"requirepass", "newsecret", NULL};

	server.password = "newsecret";
	real_server(extra);
	url_with_file("oldsecret\n", 0600, "");
	check_refused("WRONGPASS: it refuses the user or password", "oldsecret");
	ck_assert_ptr_nonnull(strstr(object.op.why, "WRONGPASS: it refuses the user or password (127.0.0.1:"));
	url_with_file("newsecret\n", 0600, "");
	wait_until(object_store(&rig, &object) == SCOUT__L2_OK)
		;
}
END_TEST

/* Its own snapshots fail: it refuses PING and all writes, and serves reads. */
START_TEST(a_server_that_cannot_save_is_read)
{
	static const char *const extra[] = {"dbfilename", "folder", "save", "3600 1", NULL};
	char path[128];

	real_server(extra);
	(void)snprintf(path, sizeof(path), "%s/folder", server.folder);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	adapter_down(&rig);
	freeReplyObject(redis_do(&server, "BGSAVE"));
	for (bool refuses = false; !refuses;) {
		redisReply *reply = redisCommand(server.control, "PING");

		ck_assert_ptr_nonnull(reply);
		refuses = reply->type == REDIS_REPLY_ERROR;
		freeReplyObject(reply);
	}
	adapter_up(&rig, url);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert(atomic_load(&scout__redis_counters(rig.adapter)->ready));
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_ERROR);
	ck_assert_ptr_nonnull(strstr(object.op.why, "MISCONF Redis is configured to save RDB snapshots"));
}
END_TEST

static int
read_record(void)
{
	uint8_t found, bytes[8];

	object.op = (struct scout__l2_op){.what = SCOUT__L2_RECORD_READ,
					  .n = 1,
					  .digests = &object.key.digest,
					  .found = &found,
					  .data = bytes,
					  .bytes = 8,
					  .timeout_us = UINT64_C(10000000)};
	(void)adapter_run(&rig, &object.op);
	object.op.found = NULL; /* object_fini() would free it */
	return object.op.result;
}

/* The master was demoted, and our connections stay: nothing is read there any more, and no clear is believed recorded. */
START_TEST(a_replica_is_not_used_unless_the_url_says_so)
{
	real_server(NULL);
	adapter_up(&rig, url);
	ck_assert_int_eq(read_record(), SCOUT__L2_OK);
	redis_ok(&server, "REPLICAOF 127.0.0.1 1");
	ck_assert_int_eq(read_record(), SCOUT__L2_ERROR);
	ck_assert_ptr_nonnull(strstr(object.op.why, "it is a replica: name its master, or give replica=1 (127.0.0.1:"));
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_ERROR);
	redis_ok(&server, "REPLICAOF NO ONE");
	wait_until(object_store(&rig, &object) == SCOUT__L2_OK)
		;
	/* A write finds it out, too. */
	redis_ok(&server, "REPLICAOF 127.0.0.1 1");
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_ERROR);
	ck_assert_ptr_nonnull(strstr(object.op.why, "READONLY You can't write against a read only replica"));
	ck_assert(!atomic_load(&scout__redis_counters(rig.adapter)->ready));
	adapter_down(&rig);
	url_of("", server.port, "?replica=1");
	adapter_up(&rig, url);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_int_eq(object_remove(&rig, &object), SCOUT__L2_ERROR);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	/* One whose master is gone, and that says nothing old: it is waited for. */
	redis_ok(&server, "CONFIG SET replica-serve-stale-data no");
	adapter_down(&rig);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_ERROR);
	ck_assert_ptr_nonnull(strstr(object.op.why, "MASTERDOWN Link with MASTER is down"));
	redis_ok(&server, "CONFIG SET replica-serve-stale-data yes");
	wait_until(object_load(&rig, &object) == SCOUT__L2_OK)
		;
}
END_TEST

START_TEST(a_server_without_room_for_clients_is_told_and_heals)
{
	real_server(NULL);
	redis_ok(&server, "CONFIG SET maxclients 1"); /* ours */
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_ERROR);
	adapter_wait_logged(&rig, "no room for another client");
	redis_ok(&server, "CONFIG SET maxclients 100");
	wait_until(object_store(&rig, &object) == SCOUT__L2_OK)
		;
}
END_TEST

/* ---- nobody there ---- */

START_TEST(a_server_that_accepts_and_never_answers_holds_up_nobody)
{
	struct adapter_object more[4];
	int fd;

	url_of("", redis_deaf_listener(&fd), "");
	rig.timeout_ms = IMPATIENT_MS;
	adapter_up(&rig, url);
	for (uint32_t i = 0; i < 4; i++)
		object_init(&more[i], 10 + i, 5000);
	object_begin(&rig, &more[0], SCOUT__L2_LOAD, 200);
	object_begin(&rig, &more[1], SCOUT__L2_STORE, 200);
	object_begin(&rig, &more[2], SCOUT__L2_REMOVE, 200);
	object_begin_exists(&rig, &more[3], more, 4, 200);
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(object_end(&more[i]), SCOUT__L2_TIMEOUT);
	/* By then it is known, and what comes does not wait at all. */
	wait_until(COUNTER(stalled) > 0)
		;
	adapter_wait_logged(&rig, "does not answer");
	for (int i = 0; i < 40; i++) {
		object_begin(&rig, &object, SCOUT__L2_LOAD, 60000);
		ck_assert_int_eq(object_end(&object), SCOUT__L2_ERROR);
	}
	for (uint32_t i = 0; i < 4; i++)
		object_fini(&more[i]);
	(void)close(fd);
}
END_TEST

START_TEST(a_port_that_nobody_listens_on_is_an_error_at_once_and_heals)
{
	real_server(NULL);
	redis_kill(&server);
	adapter_up(&rig, url);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 60000);
	ck_assert_int_eq(object_end(&object), SCOUT__L2_ERROR);
	ck_assert_uint_eq(adapter_logged(&rig, "cannot be reached"), 1);
	redis_restart(&server);
	wait_until(object_store(&rig, &object) == SCOUT__L2_OK)
		;
	ck_assert_uint_eq(adapter_logged(&rig, "cannot be reached"), 1);
	ck_assert_uint_eq(adapter_logged(&rig, "works again"), 1);
	ck_assert(atomic_load(&scout__redis_counters(rig.adapter)->ready));
}
END_TEST

START_TEST(a_stopped_server_holds_up_nobody_and_heals)
{
	struct adapter_object large;

	real_server(NULL);
	rig.timeout_ms = IMPATIENT_MS;
	adapter_up(&rig, url);
	object_init(&large, 2, 64 * MIB);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_freeze(&server);
	memset(object.slot, 0xee, object.bytes);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 200);
	object_begin(&rig, &large, SCOUT__L2_STORE, 200);
	ck_assert_int_eq(object_end(&object), SCOUT__L2_TIMEOUT);
	ck_assert_int_eq(object_end(&large), SCOUT__L2_TIMEOUT);
	/* Half of the large one is on its way. Its memory is somebody else's now. */
	memset(large.slot, 0x77, large.bytes);
	memset(object.slot, 0x77, object.bytes);
	wait_until(COUNTER(stalled) > 0)
		;
	redis_thaw(&server);
	rig.timeout_ms = 5000;
	wait_until(object_load(&rig, &large) == SCOUT__L2_ABSENT)
		;
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, &object, 1), 1);
	object_fini(&large);
}
END_TEST

START_TEST(a_store_that_ends_half_sent_is_never_completed_with_other_bytes)
{
	struct adapter_object large;

	real_server(NULL);
	rig.timeout_ms = 20000; /* nobody takes the server for dead */
	adapter_up(&rig, url);
	object_init(&large, 2, 64 * MIB);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_freeze(&server);
	object_begin(&rig, &large, SCOUT__L2_STORE, 300);
	ck_assert_int_eq(object_end(&large), SCOUT__L2_TIMEOUT);
	memset(large.slot, 0x77, large.bytes);
	redis_thaw(&server);
	/* Stores are done one after the other, so this one would come after the rest of that one. */
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_PRESENT);
	ck_assert_int_eq((int)redis_number(&server, "DBSIZE"), 1);
	ck_assert_uint_eq(COUNTER(stalled), 0);
	object_fini(&large);
}
END_TEST

START_TEST(a_server_that_hangs_for_less_than_the_timeout_loses_nothing)
{
	static struct adapter_object many[50];

	real_server(NULL);
	rig.timeout_ms = 8000;
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_freeze(&server);
	for (uint32_t i = 0; i < 50; i++) {
		object_init(&many[i], 100 + i, 100000);
		object_begin(&rig, &many[i], SCOUT__L2_STORE, 9000);
	}
	/* A lookup's question does not wait that long. Its reply, when it comes, is nobody else's. */
	object_begin_exists(&rig, &object, many, 50, 50);
	ck_assert_int_eq(object_end(&object), SCOUT__L2_TIMEOUT);
	redis_thaw(&server);
	for (uint32_t i = 0; i < 50; i++)
		ck_assert_int_eq(object_end(&many[i]), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, &many[50 - 1], 1), 1);
	ck_assert_uint_eq(COUNTER(reconnects), 0);
	for (uint32_t i = 0; i < 50; i++) {
		ck_assert_int_eq(object_load(&rig, &many[i]), SCOUT__L2_OK);
		object_fini(&many[i]);
	}
}
END_TEST

START_TEST(a_server_that_comes_back_empty_is_believed)
{
	real_server(NULL);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	redis_restart(&server);
	/* Whatever the connections have learnt so far: nothing is found, and it works again. */
	wait_until(object_load(&rig, &object) == SCOUT__L2_ABSENT)
		;
	ck_assert_uint_eq(object_exists(&rig, &object, 1), 0);
	wait_until(object_store(&rig, &object) == SCOUT__L2_OK)
		;
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_ge(COUNTER(reconnects), 1);
}
END_TEST

START_TEST(connections_that_the_server_closes_are_made_anew_without_an_error)
{
	real_server(NULL);
	adapter_up(&rig, url);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_OK);
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_uint_eq(object_exists(&rig, &object, 1), 1);
	(void)poll(NULL, 0, 150); /* connections that break young count as a failure of the server */
	(void)redis_number(&server, "CLIENT KILL TYPE normal SKIPME yes");
	ck_assert_int_eq(object_load(&rig, &object), SCOUT__L2_OK);
	ck_assert_int_eq(object_store(&rig, &object), SCOUT__L2_PRESENT);
	ck_assert_uint_eq(object_exists(&rig, &object, 1), 1);
	wait_until(COUNTER(reconnects) >= 3)
		;
	ck_assert_uint_eq(adapter_logged(&rig, "trying again"), 0);
}
END_TEST

START_TEST(a_stop_does_not_wait_for_a_server_that_is_being_connected)
{
	int fd;

	url_of("", redis_deaf_listener(&fd), "");
	rig.timeout_ms = 60000;
	adapter_up(&rig, url);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 60000);
	adapter_down(&rig);
	ck_assert_int_eq(object_end(&object), SCOUT__L2_CANCELLED);
	(void)close(fd);
}
END_TEST

int
main(void)
{
	return redis_rig_main(suite_of_this_file());
}
