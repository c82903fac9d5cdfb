/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_rig.h"

#include <pthread.h>
#include <time.h>

#include "check_main.h"

/* The first registration is the background thread's, as the later ones are: a caller may wait for it, and need not. */

static struct rig rig;

/* What the worker under test has logged. */
static struct {
	pthread_mutex_t mu;
	unsigned errors;
	char last[512]; /* of the errors */
} said = {.mu = PTHREAD_MUTEX_INITIALIZER};

static void
listen_to(void *user, int level, const char *text)
{
	(void)user;
	if (level > SCOUT_LOG_ERROR)
		return;
	(void)pthread_mutex_lock(&said.mu);
	said.errors++;
	(void)snprintf(said.last, sizeof(said.last), "%s", text);
	(void)pthread_mutex_unlock(&said.mu);
}

static unsigned
errors_said(void)
{
	unsigned n;

	(void)pthread_mutex_lock(&said.mu);
	n = said.errors;
	(void)pthread_mutex_unlock(&said.mu);
	return n;
}

static void
setup(void)
{
	said.errors = 0;
	rig_init(&rig);
	rig_start(&rig);
	/* The tests make it anew. */
	scout_worker_free(rig.workers[0]);
	rig.workers[0] = NULL;
}

static void
teardown(void)
{
	rig_stop(&rig);
}

static int
try_register(uint32_t timeout_ms, char *err, size_t err_len)
{
	struct scout_table layout;

	rig.workers[0] = rig_worker_new(&rig, 0);
	rig_table(&rig, &rig.pages[0], &layout);
	return scout_worker_register(rig.workers[0], &layout, 1, timeout_ms, err, err_len);
}

CHECKED_FIXTURE(setup, teardown);

START_TEST(an_engine_starts_without_a_server_and_has_a_cache_when_one_comes)
{
	struct scout_table layout;
	char err[512] = "", id[32];
	struct scout_done done;
	int64_t *ids = rig_ids(100, 1, 12);

	rig_server_end(&rig, SIGTERM);
	ck_assert_int_eq(try_register(0, err, sizeof(err)), 0);
	/* Jobs are taken, and end unreachable. */
	done = rig_wait(rig.workers[0], rig_store(&rig, 0, 1, 3, 1));
	ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
	done = rig_wait(rig.workers[0], rig_retrieve(&rig, 0, 4711, 0, ids, 12, 0));
	ck_assert_int_eq(done.status, SCOUT_ERR_UNREACHABLE);
	ck_assert_uint_eq(done.n_missing, 12);
	rig_table(&rig, &rig.pages[0], &layout);
	ck_assert_int_eq(scout_worker_register(rig.workers[0], &layout, 1, 0, err, sizeof(err)), SCOUT_ERR_STATE);
	rig_server_start(&rig);
	ck_assert_uint_eq(rig_store_until(&rig, 0, 1, 3, 1, 0).chunks, 3);
	/* The client finds the server again by itself, and when it does is its own affair. */
	ck_assert_int_eq(scout_client_wait_ready(rig.client, wait_limit_ms(), err, sizeof(err)), 0);
	ck_assert_uint_eq(rig_lookup(&rig, 1, 3, id).chunks, 3);
	free(ids);
}
END_TEST

START_TEST(a_wait_that_is_over_goes_on_in_the_background)
{
	struct scout_table layout;
	char err[512] = "";

	rig_server_end(&rig, SIGTERM);
	ck_assert_int_eq(try_register(100, err, sizeof(err)), SCOUT_ERR_TIMEOUT);
	ck_assert_msg(strstr(err, rig.endpoint) && strstr(err, "background"), "%s", err);
	rig_table(&rig, &rig.pages[0], &layout);
	ck_assert_int_eq(scout_worker_register(rig.workers[0], &layout, 1, 100, err, sizeof(err)), SCOUT_ERR_STATE);
	rig_server_start(&rig);
	ck_assert_uint_eq(rig_store_until(&rig, 0, 1, 3, 1, 0).chunks, 3);
}
END_TEST

/* A server that answers late is waited for by jobs within their own time. */
START_TEST(jobs_wait_for_a_registration_that_is_under_way)
{
	char err[512] = "";
	struct scout_done done;
	uint64_t job;

	rig_server_freeze(&rig);
	ck_assert_int_eq(try_register(0, err, sizeof(err)), 0);
	job = rig_store(&rig, 0, 1, 3, 1);
	rig_server_thaw(&rig);
	done = rig_wait(rig.workers[0], job);
	ck_assert_msg(done.status == 0 || done.status == SCOUT_ERR_UNREACHABLE, "%s", scout_err_name(done.status));
	ck_assert_uint_eq(rig_store_until(&rig, 0, 2, 3, 1, 0).chunks, 3);
}
END_TEST

START_TEST(a_refusal_that_no_caller_waits_for_is_logged_and_ends_jobs)
{
	static const uint64_t bytes[2] = {61, 130}, padding[2] = {0, 0};
	struct scout_worker_config cfg;
	struct scout_worker *worker = NULL;
	struct scout_table layout;
	struct rig_pages other;
	char err[512] = "";

	/* Of this KV rank the server knows another layout. */
	ck_assert_int_eq(try_register(wait_limit_ms(), err, sizeof(err)), 0);
	rig_pages_init(&other, 2, bytes, padding, 64);
	rig_worker_config(&rig, 0, &cfg);
	cfg.log = listen_to;
	ck_assert_int_eq(scout_worker_new(&cfg, &worker, err, sizeof(err)), 0);
	rig_table(&rig, &other, &layout);
	ck_assert_int_eq(scout_worker_register(worker, &layout, 1, 0, err, sizeof(err)), 0);
	for (int i = 0; i < 3; i++) {
		int64_t ids[4] = {1, 2, 3, 4};
		struct scout_retrieve retrieve = {.ticket = 7,
						  .to_token = 64,
						  .blocks = &(struct scout_blocks){.ids = ids, .n = 4},
						  .n_groups = 1};
		struct scout_done done;
		uint64_t job;

		ck_assert_int_eq(scout_worker_retrieve(worker, &retrieve, &job), 0);
		done = rig_wait(worker, job);
		ck_assert_int_eq(done.status, SCOUT_ERR_SHARD_BYTES);
		ck_assert_uint_eq(done.n_missing, 4);
	}
	ck_assert_uint_eq(errors_said(), 1);
	ck_assert_ptr_nonnull(strstr(said.last, "cannot register"));
	scout_worker_free(worker);
	rig_pages_fini(&other);
}
END_TEST

START_TEST(a_refused_connection_ends_jobs_with_its_reason)
{
	struct scout_worker_config cfg;
	struct scout_worker *worker = NULL;
	struct scout_table layout;
	int64_t ids[4] = {1, 2, 3, 4};
	struct scout_retrieve retrieve = {
		.ticket = 7, .to_token = 64, .blocks = &(struct scout_blocks){.ids = ids, .n = 4}, .n_groups = 1};
	char err[512] = "";
	uint64_t job;

	rig_worker_config(&rig, 0, &cfg);
	cfg.chunk_tokens = 128; /* the client, which came first, has 64 */
	ck_assert_int_eq(scout_worker_new(&cfg, &worker, err, sizeof(err)), 0);
	rig_table(&rig, &rig.pages[0], &layout);
	ck_assert_int_eq(scout_worker_register(worker, &layout, 1, 0, err, sizeof(err)), 0);
	ck_assert_int_eq(scout_worker_retrieve(worker, &retrieve, &job), 0);
	ck_assert_int_eq(rig_wait(worker, job).status, SCOUT_ERR_NAMESPACE);
	scout_worker_free(worker);
}
END_TEST

/* As long as it was refused, nothing is kept: the next call may bring another layout. */
START_TEST(a_caller_that_waits_is_told_of_a_refusal_and_may_come_again)
{
	static const uint64_t bytes[2] = {61, 130}, padding[2] = {0, 0};
	struct scout_worker *worker;
	struct scout_table layout;
	struct rig_pages other;
	char err[512] = "";

	ck_assert_int_eq(try_register(wait_limit_ms(), err, sizeof(err)), 0);
	rig_pages_init(&other, 2, bytes, padding, 64);
	worker = rig_worker_new(&rig, 0);
	rig_table(&rig, &other, &layout);
	ck_assert_int_eq(scout_worker_register(worker, &layout, 1, wait_limit_ms(), err, sizeof(err)),
			 SCOUT_ERR_SHARD_BYTES);
	rig_pages_fini(&other);
	rig_table(&rig, &rig.pages[0], &layout);
	ck_assert_msg(scout_worker_register(worker, &layout, 1, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	scout_worker_free(worker);
}
END_TEST

START_TEST(a_worker_that_never_met_its_server_is_freed_with_its_jobs)
{
	char err[512] = "";

	rig_server_end(&rig, SIGTERM);
	ck_assert_int_eq(try_register(0, err, sizeof(err)), 0);
	(void)rig_store(&rig, 0, 1, 3, 1);
	scout_worker_free(rig.workers[0]);
	rig.workers[0] = NULL;
}
END_TEST
