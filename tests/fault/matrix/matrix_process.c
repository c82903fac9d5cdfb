/* SPDX-License-Identifier: Apache-2.0 */
#include "matrix_rig.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "checked_fork.h"
#include "wall_clock.h"
#include "worker_rig.h"

/* What a scheduler does to its own process: signals, threads, forks, the wall clock. */

static void
up(struct matrix *m)
{
	matrix_fake(m);
	matrix_client(m);
	matrix_ready(m);
}

/* ---- signals and threads ---- */

static pthread_t host;
static atomic_uint handled, elsewhere;

static void
on_signal(int sig)
{
	(void)sig;
	atomic_fetch_add(&handled, 1);
	if (!pthread_equal(pthread_self(), host))
		atomic_fetch_add(&elsewhere, 1);
}

/* A signal every millisecond, without SA_RESTART, to the process: it must land on the host's thread. */
static void
signals(struct matrix *m, const struct matrix_row *row)
{
	struct itimerval every = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = on_signal};
	char err[256] = "";

	(void)row;
	/* The scripted peer's thread is the host's too: this row needs a server of its own process. */
	matrix_patient(m);
	matrix_real(m);
	host = pthread_self();
	ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
	matrix_client(m);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
	ck_assert_msg(scout_client_wait_ready(m->client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	for (int i = 0; i < 10; i++) {
		matrix_ask(m, 3);
		matrix_steps_ms(m, 20);
	}
	matrix_answers(m);
	wait_until(atomic_load(&handled) > 50)
		matrix_step(m);
	ck_assert_int_eq(setitimer(ITIMER_REAL, &never, NULL), 0);
	ck_assert_uint_eq(atomic_load(&elsewhere), 0);
	matrix_all_hit(m, 0);
	matrix_works(m, true);
	matrix_end(m);
}

static void *
free_client(void *arg)
{
	scout_client_free(arg);
	return NULL;
}

/* Closed by another thread than the one that asked, with lookups in flight; then a new client. */
static void
closed_elsewhere(struct matrix *m, const struct matrix_row *row)
{
	pthread_t thread;

	(void)row;
	up(m);
	fake_always(m->fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	matrix_ask(m, 3);
	matrix_step(m);
	ck_assert_int_eq(pthread_create(&thread, NULL, free_client, m->client), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	scout_client_free(NULL);
	fake_always(m->fake, SCOUT_OP_LOOKUP, FAKE_ANSWER, 0);
	for (uint32_t i = 0; i < m->n_requests; i++)
		m->requests[i].finished = true;
	matrix_client(m);
	matrix_ready(m);
	matrix_works(m, true);
	matrix_end(m);
}

/* A child, made while lookups are in flight, gets errors and disturbs nothing. */
static void
forked(struct matrix *m, const struct matrix_row *row)
{
	struct scout_query q = {.id = "child", .prompt_tokens = 1};
	struct scout_hit hit;
	int status;
	pid_t pid;

	(void)row;
	matrix_patient(m);
	up(m);
	fake_script(m->fake, SCOUT_OP_LOOKUP, FAKE_DELAY, 50);
	matrix_ask(m, 3);
	matrix_step(m);
	pid = checked_fork();
	if (pid == 0) {
		int code = scout_try_lookup(m->client, &q, &hit) == SCOUT_ERR_FORKED &&
					   scout_finish(m->client, "r0") == SCOUT_ERR_FORKED &&
					   scout_reset(m->client, 1) == SCOUT_ERR_FORKED &&
					   scout_client_fd(m->client) == SCOUT_ERR_FORKED
				   ? 0
				   : 1;

		scout_client_free(m->client);
		_exit(code);
	}
	ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	matrix_answers(m);
	matrix_all_hit(m, 0);
	matrix_works(m, true);
	matrix_end(m);
}

/* What the child of a scheduler does that wants a client of its own. Check's assertions are for its own processes. */
static int
child_asks(const char *endpoint)
{
	uint8_t *hashes = rig_hashes(MATRIX_PROMPT, MATRIX_CHUNKS);
	struct scout_query q = {.id = "child",
				.hashes = hashes,
				.hash_len = RIG_HASH,
				.n = MATRIX_CHUNKS,
				.prompt_tokens = MATRIX_CHUNKS * FAULT_CHUNK_TOKENS + 1};
	struct scout_client_config cfg;
	struct scout_client *client = NULL;
	struct scout_hit hit;
	char err[256];
	int rc;

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 30000; /* a loaded machine is no reason for a miss */
	cfg.endpoint = endpoint;
	cfg.name_space = "rig";
	cfg.chunk_tokens = FAULT_CHUNK_TOKENS;
	rc = scout_client_new(&cfg, &client, err, sizeof(err));
	if (rc == 0)
		rc = scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err));
	if (rc == 0)
		rc = scout_wait_lookup(client, &q, &hit);
	if (rc == 0 && hit.chunks != MATRIX_CHUNKS)
		rc = SCOUT_ERR_STATE;
	scout_client_free(client);
	free(hashes);
	return rc;
}

/* Forked before its start: a client that is made in the child of a process that has one is as good as any. */
static void
forked_before(struct matrix *m, const struct matrix_row *row)
{
	int status;
	pid_t pid;

	(void)row;
	matrix_patient(m);
	matrix_real(m);
	matrix_client(m);
	matrix_ready(m);
	matrix_hits(m, 1);
	pid = checked_fork();
	if (pid == 0) /* ThreadSanitizer ends a child that starts threads */
		_exit(FAULT_SANITIZED || child_asks(m->real.endpoint) == 0 ? 0 : 1);
	ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	fault_wait(&m->real, "sessions", 1);
	matrix_ask(m, 2);
	matrix_answers(m);
	matrix_all_hit(m, 0);
	matrix_works(m, true);
	matrix_end(m);
}

/* ---- the wall clock ---- */

/* Set forward and back by hours while lookups wait for their deadlines and for answers: nothing ends early, late or never. */
static void
clock_jumps(struct matrix *m, const struct matrix_row *row)
{
	static const long jumps_s[] = {3600, -7200, 86400, 0};
	const struct matrix_request *r;
	struct timespec before, after;

	(void)row;
	/* A silent server would be another end, and what is measured is the deadline. */
	m->heartbeat_ms = 2000;
	up(m);
	m->timeout_ms = 300;
	for (unsigned i = 0; i < sizeof(jumps_s) / sizeof(jumps_s[0]); i++) {
		fake_always(m->fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
		matrix_ask(m, 2);
		matrix_step(m);
		(void)clock_gettime(CLOCK_REALTIME, &before);
		wall_clock_jump(jumps_s[i]);
		(void)clock_gettime(CLOCK_REALTIME, &after);
		ck_assert_int_ne(before.tv_sec / 1000, after.tv_sec / 1000); /* or this row tests nothing */
		matrix_answers(m);
		r = &m->requests[m->n_requests - 1];
		assert_reason(r->hit.reason, SCOUT_REASON_TIMEOUT);
		ck_assert_uint_ge(scout__now_us() - r->accepted_us, 300000);
		fake_always(m->fake, SCOUT_OP_LOOKUP, FAKE_ANSWER, 0);
		matrix_works(m, true);
	}
	matrix_end(m);
}

const struct matrix_row matrix_process_rows[] = {
	{.name = "signal_every_millisecond", .run = signals},
	{.name = "client_closed_by_another_thread", .run = closed_elsewhere, .is_scripted = true},
	{.name = "scheduler_forks", .run = forked, .is_scripted = true},
	{.name = "client_made_in_a_forked_child", .run = forked_before},
	{.name = "wall_clock_jumps_by_hours", .run = clock_jumps, .is_scripted = true},
	{.name = NULL},
};
