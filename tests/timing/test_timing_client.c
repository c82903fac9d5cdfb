/* SPDX-License-Identifier: Apache-2.0 */
/* What a client promises in time, on a scripted server: lookups that end at their deadlines, calls that return, a lease that may be late. */
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check_main.h"
#include "client_rig.h"
#include "given_time.h"
#include "msg.h"

/* What an end may be late, and a call may take beyond what was asked for. */
#define LATE_US UINT64_C(150000)

/* Until @due_us; from the last look before it on, delays count. @t was begun before: asking may take until then, or longer. */
static void
wait_due(struct given_time *t, uint64_t due_us)
{
	wait_until(scout__now_us() >= due_us)
		given_time_begin(t);
}

/* Of several bounds. What was not given is said once for all; what was broken fails, also after that. */
static void
judge(struct given_time_result r, const char *what, bool *given)
{
	if (*given || given_time_verdict(r, LATE_US) == GIVEN_TIME_BROKEN)
		*given = given_time_judge(r, LATE_US, what) && *given;
}

/* A timeout, not before @due_us. Returns how much later. */
static uint64_t
end_late_us(const struct scout_hit *hit, uint64_t due_us)
{
	uint64_t now_us = scout__now_us();

	ck_assert_int_eq(hit->reason, SCOUT_REASON_TIMEOUT);
	ck_assert_uint_ge(now_us, due_us);
	return now_us - due_us;
}

/* The latest of some ends. Their delays are looked up once: that takes as long as many ends. */
static void
judge_late(const struct given_time *t, uint64_t late_us, bool *given)
{
	struct given_time_result r = given_time_end(t);

	r.elapsed_us = late_us;
	if (r.delay_us > r.elapsed_us)
		r.delay_us = r.elapsed_us;
	judge(r, "the end of a lookup after its deadline", given);
}

CHECKED_FIXTURE(rig_up, rig_down);

START_TEST(a_lookup_at_a_silent_server_ends_at_its_deadline)
{
	struct scout_query q = rig_question("r1", 8);
	struct given_time t;
	struct scout_hit hit;
	bool given = true;
	uint64_t due_us;

	rig_reopen("lookup_timeout_ms", "300");
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	given_time_begin(&t);
	due_us = scout__now_us() + 300000;
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	wait_due(&t, due_us);
	hit = rig_answer("r1", 8);
	judge_late(&t, end_late_us(&hit, due_us), &given);
}
END_TEST

#define MIXED 200u

/* Timeouts of all kinds in one queue, some finished in between: each ends at its own deadline, none before. */
START_TEST(lookups_of_different_timeouts_end_each_by_its_own)
{
	static uint64_t due_us[MIXED]; /* 0: over */
	struct given_time t;
	struct scout_hit hit;
	bool given = true;
	uint32_t left = 0;
	char id[32];

	rig_reopen("lookup_timeout_ms", "400");
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	given_time_begin(&t);
	for (uint32_t i = 0; i < MIXED; i++) {
		struct scout_query q;

		(void)snprintf(id, sizeof(id), "r%u", i);
		q = rig_question(id, 2);
		q.timeout_ms = i % 3 == 0 ? 0 : 300 + i * 7919 % 900;
		due_us[i] = scout__now_us() + (q.timeout_ms > 400 ? q.timeout_ms : 400) * UINT64_C(1000);
		ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
		left++;
		if (i % 5 == 4) {
			(void)snprintf(id, sizeof(id), "r%u", i - 2);
			ck_assert_int_eq(scout_finish(client, id), 0);
			due_us[i - 2] = 0;
			left--;
		}
	}
	wait_until(left == 0) {
		bool overdue = false;

		for (uint32_t i = 0; i < MIXED; i++) {
			struct scout_query q;

			(void)snprintf(id, sizeof(id), "r%u", i);
			q = rig_question(id, 2);
			if (due_us[i] == 0)
				continue;
			if (scout_try_lookup(client, &q, &hit) == SCOUT_NOT_YET) {
				overdue |= scout__now_us() >= due_us[i];
				continue;
			}
			judge_late(&t, end_late_us(&hit, due_us[i]), &given);
			due_us[i] = 0;
			left--;
		}
		if (!overdue) /* what is late from now on is late for delays from now on */
			given_time_begin(&t);
	}
}
END_TEST

#define MANY 10000u
#define MANY_AT_ONCE 1000u

/* Twice as many as there are credits: half of them are never sent. All end by their deadline, and none before. */
START_TEST(ten_thousand_lookups_at_a_silent_server_end_by_their_deadlines)
{
	static uint64_t due_us[MANY_AT_ONCE];
	struct given_time t;
	struct scout_query q;
	struct scout_hit hit;
	bool given = true;
	char id[32];

	fake_set_credits(fake, MANY_AT_ONCE / 2);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	for (uint32_t n = 0; n < MANY; n += MANY_AT_ONCE) {
		uint64_t latest_us = 0;

		rig_reopen("lookup_timeout_ms", "300"); /* what is never answered keeps its credit */
		given_time_begin(&t);
		for (uint32_t i = 0; i < MANY_AT_ONCE; i++) {
			(void)snprintf(id, sizeof(id), "r%u", i);
			q = rig_question(id, 2);
			due_us[i] = scout__now_us() + 300000;
			ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
		}
		wait_due(&t, due_us[0]);
		for (uint32_t i = 0; i < MANY_AT_ONCE; i++) {
			uint64_t late_us;

			(void)snprintf(id, sizeof(id), "r%u", i);
			hit = rig_answer(id, 2);
			late_us = end_late_us(&hit, due_us[i]);
			latest_us = late_us > latest_us ? late_us : latest_us;
		}
		judge_late(&t, latest_us, &given);
	}
}
END_TEST

/* The courier sleeps before each of them; its heartbeat is too far away to wake it for one whose ring was lost. */
START_TEST(a_lookup_wakes_the_courier)
{
	struct scout_query q;
	struct given_time t;
	struct scout_hit hit;
	bool given = true;
	char id[32];

	rig_reopen("heartbeat_ms", "60000");
	for (uint32_t i = 0; i < 200; i++) {
		(void)snprintf(id, sizeof(id), "r%u", i);
		q = rig_question(id, 2);
		given_time_begin(&t);
		ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
		judge(given_time_end(&t), "a lookup that is answered", &given);
		ck_assert_int_eq(scout_finish(client, id), 0);
		(void)poll(NULL, 0, 2);
	}
}
END_TEST

/* The caller sleeps when the answer lands; it would look for it by itself too late. */
START_TEST(an_answer_wakes_the_caller)
{
	struct scout_query q;
	struct given_time t;
	struct scout_hit hit;
	bool given = true;
	char id[32];

	rig_reopen("lookup_poll_interval_ms", "60000");
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DELAY, 5);
	for (uint32_t i = 0; i < 50; i++) {
		(void)snprintf(id, sizeof(id), "r%u", i);
		q = rig_question(id, 2);
		given_time_begin(&t);
		ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
		judge(given_time_end(&t), "a lookup that is answered after 5 ms", &given);
		ck_assert_int_eq(scout_finish(client, id), 0);
	}
}
END_TEST

/* The answer never comes: the wait of a step, and the budget of its lookups, end all the same. */
START_TEST(waits_of_a_step_end_in_their_time)
{
	struct scout_query q = rig_question("r1", 4);
	struct given_time t;
	struct scout_hit hit;

	rig_reopen("step_wait_us", "20000");
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	scout_step_begin(client);
	given_time_begin(&t);
	ck_assert_int_eq(scout_lookup(client, &q, &hit), SCOUT_NOT_YET);
	given_time_within(&t, 20000 + LATE_US, "a lookup with a budget of 20 ms");
	given_time_begin(&t);
	ck_assert_int_eq(scout_step_wait(client, 20000), SCOUT_NOT_YET);
	given_time_within(&t, 20000 + LATE_US, "a step's wait of 20 ms");
	given_time_begin(&t);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	given_time_within(&t, 20000, "an ask that does not wait");
	scout_step_end(client);
}
END_TEST

START_TEST(free_with_lookups_in_flight_is_bounded)
{
	struct scout_query q = rig_question("r1", 8);
	struct given_time t;
	struct scout_hit hit;

	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
	given_time_begin(&t);
	scout_client_free(client);
	client = NULL;
	given_time_within(&t, 200000 + LATE_US, "scout_client_free() with a lookup in flight");
	/* Without a lease, what was asked is given back on the way out. */
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
}
END_TEST

/* ---- the lease connection ---- */

/* What the client says there; 0: it has closed it. */
static unsigned
lease_hear(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	struct scout__lease_msg msg;
	ssize_t n;

	ck_assert_int_eq(poll(&ready, 1, wait_limit_ms()), 1);
	n = recv(fd, buf, sizeof(buf), 0);
	if (n <= 0)
		return 0;
	ck_assert(scout__get_lease(buf, (size_t)n, &msg));
	return msg.type;
}

/* Answer the lease of a new client 400 ms late; the connection, or -1 when the client had given up by then. */
static int
lease_late(int listener)
{
	struct scout__lease_msg ok = {.type = SCOUT_LEASE_OK, .word = fake_epoch(fake)};
	struct pollfd ready = {.fd = listener, .events = POLLIN};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	uint64_t answer_us;
	int fd;

	rig_client("heartbeat_ms", "100");
	answer_us = scout__now_us() + 400000;
	ck_assert_int_eq(poll(&ready, 1, wait_limit_ms()), 1);
	wait_until(scout__now_us() >= answer_us)
		;
	fd = accept(listener, NULL, NULL);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(lease_hear(fd), SCOUT_LEASE_HELLO);
	(void)send(fd, buf, scout__put_lease(buf, &ok), MSG_NOSIGNAL);
	if (lease_hear(fd) == SCOUT_LEASE_ASK_CHANNEL)
		return fd;
	(void)close(fd);
	return -1;
}

/*
 * Four heartbeats late, where three are silence: the client waits, for a peer without a lease loses what it is promised as soon as
 * it is silent. It waits for a second.
 */
START_TEST(lease_that_is_answered_late_is_used)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const struct scout__lease_msg none = {.type = SCOUT_LEASE_CHANNEL};
	uint8_t buf[SCOUT__LEASE_SEGMENT_BYTES];
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd;
	struct given_time t;
	size_t len;

	scout_client_free(client);
	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s.lease", fake_endpoint(fake) + strlen("ipc://"));
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 1), 0);
	fake_set_lease(fake, address.sun_path);
	given_time_begin(&t);
	fd = lease_late(listener);
	if (fd < 0) {
		ck_assert_msg(!given_time_within(&t, 1000000, "the answer to a lease"), "the client did not wait");
	} else {
		len = scout__put_lease(buf, &none);
		ck_assert_int_eq(send(fd, buf, len, MSG_NOSIGNAL), (int)len);
		rig_ready();
		scout_client_free(client);
		client = NULL;
		ck_assert_uint_eq(lease_hear(fd), SCOUT_LEASE_BYE);
		(void)close(fd);
	}
	(void)close(listener);
	ck_assert_int_eq(unlink(address.sun_path), 0);
}
END_TEST
