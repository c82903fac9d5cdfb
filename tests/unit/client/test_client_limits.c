/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "own_memory.h"
#include "check_main.h"
#include "client_rig.h"

/* Limits as an engine meets them: its whole queue at once, and what a large limit costs while it is not used. */

#define QUEUE 65536u
#define HASHES 8u /* of each request */
#define IDLE_BYTES (UINT64_C(2) << 20)

static const char *
name_of(char id[16], unsigned i)
{
	(void)snprintf(id, 16, "r%u", i);
	return id;
}

/* One ask for each of them in one step. Returns how many were answered; nothing else may be said but "not yet". */
static unsigned
ask_all(unsigned n)
{
	unsigned answered = 0;
	char id[16];

	scout_step_begin(client);
	for (unsigned i = 0; i < n; i++) {
		struct scout_query q = rig_question(name_of(id, i), HASHES);
		struct scout_hit hit;
		int rc = scout_try_lookup(client, &q, &hit);

		ck_assert_msg(rc == 0 || rc == SCOUT_NOT_YET, "request %u: %s", i, scout_err_name(rc));
		if (rc == 0)
			ck_assert_int_eq(hit.reason, SCOUT_REASON_HIT);
		answered += rc == 0;
	}
	scout_step_end(client);
	return answered;
}

CHECKED_FIXTURE(rig_up, rig_down);

START_TEST(a_queue_of_65536_is_asked_for_in_one_step_and_answered)
{
	char id[16];
	int fd;

	scout_client_free(client);
	rig_client("lookup_timeout_ms", "3600000");
	rig_ready();
	fd = scout_client_fd(client);
	fake_set_hit(fake, UINT32_MAX);
	ck_assert_uint_eq(ask_all(QUEUE), 0); /* in the first step there cannot be an answer */
	wait_until(ask_all(QUEUE) == QUEUE) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		(void)poll(&p, 1, 1000);
		scout_client_fd_clear(client);
	}
	ck_assert_uint_eq(rig_stats().busy, 0);
	ck_assert_uint_eq(rig_stats().live, QUEUE);
	for (unsigned i = 0; i < QUEUE; i++)
		ck_assert_int_eq(scout_finish(client, name_of(id, i)), 0);
	ck_assert_uint_eq(rig_stats().live, 0);
	(void)rig_answer("another", 2);
}
END_TEST

/* What is finished while it waits for a server that is not there comes back at once: 20 requests in 4 slots. */
START_TEST(requests_that_end_while_they_wait_leave_room)
{
	struct scout_client_config cfg;
	struct scout_hit hit;
	char err[256] = "", id[16];

	scout_client_free(client);
	scout_client_config_init(&cfg);
	cfg.endpoint = "ipc:///nonexistent/kvscout-test";
	cfg.connect_timeout_ms = 60000;
	cfg.max_lookups = 2;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	scout_client_config_fini(&cfg);
	for (unsigned i = 0; i < 20; i++) {
		struct scout_query q = rig_question(name_of(id, i), 2);
		int rc;

		/* Its slot may still be on its way back. */
		wait_until((rc = scout_try_lookup(client, &q, &hit)) != SCOUT_ERR_BUSY)
			;
		ck_assert_int_eq(rc, SCOUT_NOT_YET);
		ck_assert_int_eq(scout_finish(client, id), 0);
	}
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep memory of their own */
START_TEST(an_idle_client_takes_two_mebibytes_at_any_limit)
{
	static const char *const limits[] = {"1", "65536", "1048576"};

	for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		uint64_t before, after;

		scout_client_free(client);
		client = NULL;
		before = anonymous_bytes();
		rig_client("max_lookups", limits[i]);
		rig_ready();
		(void)rig_answer("a", 4);
		ck_assert_int_eq(scout_finish(client, "a"), 0);
		after = anonymous_bytes();
		ck_assert_msg(after < before + IDLE_BYTES, "max_lookups %s: %llu KiB", limits[i],
			      (unsigned long long)(after - before) / 1024);
	}
}
END_TEST
#endif
