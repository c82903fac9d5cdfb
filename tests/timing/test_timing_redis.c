/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "given_time.h"
#include "redis_faults_rig.h"

#include <unistd.h>

/* S6: an operation at a Redis that does not answer ends by its own timeout, and a stop does not wait for it. */

#define TIMEOUT_MS 200
#define N 4

CASE_TIMEOUT(300);
CHECKED_FIXTURE(set_up, tear_down);

START_TEST(an_operation_at_a_server_that_never_answers_ends_by_its_timeout)
{
	static const enum scout__l2_what what[N - 1] = {SCOUT__L2_LOAD, SCOUT__L2_STORE, SCOUT__L2_REMOVE};
	struct adapter_object objects[N];
	struct given_time t;
	int fd;

	url_of("", redis_deaf_listener(&fd), "");
	adapter_up(&rig, url);
	for (uint32_t i = 0; i < N; i++)
		object_init(&objects[i], 10 + i, 5000);
	given_time_begin(&t);
	for (uint32_t i = 0; i < N - 1; i++)
		object_begin(&rig, &objects[i], what[i], TIMEOUT_MS);
	object_begin_exists(&rig, &objects[N - 1], objects, N, TIMEOUT_MS);
	for (uint32_t i = 0; i < N; i++)
		ck_assert_int_eq(object_end(&objects[i]), SCOUT__L2_TIMEOUT);
	(void)given_time_within(&t, 1000000, "operations of 200 ms");
	for (uint32_t i = 0; i < N; i++)
		object_fini(&objects[i]);
	(void)close(fd);
}
END_TEST

START_TEST(a_stop_does_not_wait_for_a_server_that_never_answers)
{
	struct given_time t;
	int fd;

	url_of("", redis_deaf_listener(&fd), "");
	rig.timeout_ms = 60000;
	adapter_up(&rig, url);
	object_begin(&rig, &object, SCOUT__L2_LOAD, 60000);
	given_time_begin(&t);
	adapter_down(&rig);
	(void)given_time_within(&t, 2000000, "the stop of the adapter");
	ck_assert_int_eq(object_end(&object), SCOUT__L2_CANCELLED);
	(void)close(fd);
}
END_TEST

int
main(void)
{
	return redis_rig_main(suite_of_this_file());
}
