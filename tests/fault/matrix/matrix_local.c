/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "matrix_rig.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

/* Full queues, few descriptors, many clients: what happens to the scheduler's own process; and several servers. */

static void
up(struct matrix *m)
{
	matrix_fake(m);
	matrix_client(m);
	matrix_ready(m);
}

static void
queue_full(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	m->max_lookups = 8;
	up(m);
	fake_always(m->fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	matrix_ask(m, 12);
	matrix_steps_ms(m, 50);
	ck_assert_uint_gt(m->n_busy, 0);
	/* Never refused, however full. */
	for (uint32_t i = 0; i < 8; i++) {
		ck_assert_int_eq(scout_finish(m->client, m->requests[i].id), 0);
		m->requests[i].finished = true;
	}
	fake_always(m->fake, SCOUT_OP_LOOKUP, FAKE_ANSWER, 0);
	matrix_answers(m);
	fake_release(m->fake);
	matrix_works(m, true);
	matrix_end(m);
}

/* Hashes wait for the one credit, until there is no room for more of their size. */
static void
arena_full(struct matrix *m, const struct matrix_row *row)
{
	static uint8_t hashes[800 * 32];
	struct scout_query big = {
		.hashes = hashes, .hash_len = 32, .n = 800, .prompt_tokens = 800 * FAULT_CHUNK_TOKENS + 1};
	struct scout_hit hit;
	unsigned taken = 0;
	char id[16];
	int rc;

	(void)row;
	m->arena_bytes = 64 << 10;
	matrix_fake(m);
	fake_set_credits(m->fake, 1);
	fake_always(m->fake, SCOUT_OP_LOOKUP, FAKE_DELAY, 100);
	matrix_client(m);
	matrix_ready(m);
	matrix_ask(m, 1);
	matrix_step(m);
	ck_assert(fake_wait(m->fake, SCOUT_OP_LOOKUP, 1));
	do {
		(void)snprintf(id, sizeof(id), "big%u", taken);
		big.id = id;
		rc = scout_try_lookup(m->client, &big, &hit);
		taken += rc == SCOUT_NOT_YET;
	} while (rc == SCOUT_NOT_YET && taken < 16);
	ck_assert_int_eq(rc, SCOUT_ERR_BUSY);
	ck_assert_uint_ge(taken, 1);
	matrix_answers(m);
	while (taken > 0) {
		(void)snprintf(id, sizeof(id), "big%u", --taken);
		ck_assert_int_eq(scout_finish(m->client, id), 0);
	}
	fake_always(m->fake, SCOUT_OP_LOOKUP, FAKE_ANSWER, 0);
	matrix_works(m, true);
	matrix_end(m);
}

/* Answers that never come keep their credits, until the connection that lost them is given up. */
static void
credits_lost(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	matrix_fake(m);
	fake_set_credits(m->fake, 4);
	for (int i = 0; i < 4; i++)
		fake_script(m->fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	matrix_client(m);
	matrix_ready(m);
	matrix_ask(m, 8);
	matrix_answers(m);
	matrix_all_failed(m, 0);
	matrix_works(m, true);
	ck_assert_uint_ge(matrix_stats(m).reconnects, 1);
	matrix_end(m);
}

static void
hello_refused(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	matrix_fake(m);
	m->timeout_ms = 5000;
	fake_script(m->fake, SCOUT_OP_HELLO, FAKE_REFUSE, SCOUT_WIRE_NAMESPACE);
	matrix_client(m);
	matrix_ask(m, 2);
	matrix_answers(m);
	/* A hit: this process was kept from running for the second after which it is let in. */
	for (uint32_t i = 0; i < 2; i++)
		ck_assert(m->requests[i].hit.reason == SCOUT_REASON_REFUSED ||
			  m->requests[i].hit.reason == SCOUT_REASON_HIT);
	matrix_works(m, true);
	ck_assert_uint_ge(fake_count(m->fake, SCOUT_OP_HELLO), 2);
	matrix_end(m);
}

/* A reset's RESET is behind the FINISHes that it implies, and before the lookups that follow it in the same step. */
static void
reset_then_lookup(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	matrix_ask(m, 1);
	matrix_answers(m);
	scout_step_begin(m->client);
	ck_assert_int_eq(scout_reset(m->client, 9), 0);
	m->requests[0].finished = true;
	matrix_ask(m, 1);
	matrix_answers(m);
	ck_assert(fake_wait(m->fake, SCOUT_OP_RESET, 1));
	ck_assert_uint_lt(fake_last_order(m->fake, SCOUT_OP_FINISH), fake_last_order(m->fake, SCOUT_OP_RESET));
	ck_assert_uint_lt(fake_last_order(m->fake, SCOUT_OP_RESET), fake_last_order(m->fake, SCOUT_OP_LOOKUP));
	matrix_works(m, true);
	matrix_end(m);
}

/* What a lost connection left is given back by the next one, and if that is lost too, by the one after it. */
static void
give_back_lost(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	matrix_patient(m);
	up(m);
	matrix_hits(m, 2);
	fake_unbind(m->fake);
	matrix_ask(m, 1);
	matrix_answers(m);
	matrix_finish(m);
	fake_script(m->fake, SCOUT_OP_FINISH, FAKE_DROP, 0);
	fake_script(m->fake, SCOUT_OP_FINISH, FAKE_DROP, 0);
	fake_bind(m->fake, false);
	ck_assert(fake_wait(m->fake, SCOUT_OP_FINISH, 2));
	fake_unbind(m->fake);
	matrix_steps_ms(m, 20);
	fake_bind(m->fake, false);
	ck_assert(fake_wait(m->fake, SCOUT_OP_FINISH, 4));
	matrix_works(m, true);
	matrix_end(m);
}

static void
answer_wrong(struct matrix *m, const struct matrix_row *row)
{
	(void)row;
	up(m);
	fake_script(m->fake, SCOUT_OP_LOOKUP, FAKE_BIG_HIT, 0);
	matrix_ask(m, 1);
	matrix_answers(m);
	matrix_all_failed(m, 0);
	matrix_works(m, true);
	matrix_end(m);
}

/* ---- descriptors ---- */

#define MANY_FDS 128

static void
set_limit(rlim_t soft)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = soft < limit.rlim_max ? soft : limit.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void
no_descriptors(struct matrix *m, const struct matrix_row *row)
{
	struct rlimit before;
	int spare[MANY_FDS], n = 0;

	(void)row;
	matrix_real(m);
	matrix_client(m);
	matrix_ready(m);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	set_limit(MANY_FDS); /* not fewer than there are: poll() itself would be refused then */
	while (n < MANY_FDS && (spare[n] = dup(STDERR_FILENO)) >= 0)
		n++;
	ck_assert_int_lt(n, MANY_FDS);
	matrix_stop(m->real.server);
	for (int i = 0; i < 10; i++) {
		matrix_ask(m, 2);
		matrix_steps_ms(m, 80);
		/* Those of the connection that was lost, too. */
		while (n < MANY_FDS && (spare[n] = dup(STDERR_FILENO)) >= 0)
			n++;
	}
	matrix_answers(m);
	matrix_all_failed(m, 0);
	matrix_cont(m->real.server);
	matrix_ask(m, 2);
	matrix_answers(m); /* which, depends on who was first to take what the lost connection gave back */
	while (n > 0)
		(void)close(spare[--n]);
	set_limit(before.rlim_cur);
	matrix_works(m, true);
	matrix_end(m);
}

/* Whatever number of descriptors is left: a client, or an error; never an abort. */
static void
few_descriptors(struct matrix *m, const struct matrix_row *row)
{
	struct rlimit before;
	unsigned refused = 0;

	(void)row;
	up(m);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	for (rlim_t extra = 0; extra < 24; extra++) {
		struct scout_client_config cfg;
		struct scout_client *other = NULL;
		char err[256] = "";
		int lowest = dup(0), rc;

		ck_assert_int_ge(lowest, 0);
		(void)close(lowest);
		scout_client_config_init(&cfg);
		/* Nobody listens there: this process has no descriptor to spare for a server's end either. */
		cfg.endpoint = "ipc:///tmp/kvscout-nobody-listens-here";
		set_limit((rlim_t)lowest + extra);
		rc = scout_client_new(&cfg, &other, err, sizeof(err));
		set_limit(before.rlim_cur);
		ck_assert_msg(rc == 0 || rc == SCOUT_ERR_SYSTEM, "%s: %s", scout_err_name(rc), err);
		refused += rc != 0;
		scout_client_free(other);
		scout_client_config_fini(&cfg);
	}
	ck_assert_uint_gt(refused, 0);
	matrix_ask(m, 2);
	matrix_answers(m);
	matrix_works(m, true);
	matrix_end(m);
}

static unsigned
count_entries(const char *folder)
{
	DIR *dir = opendir(folder);
	unsigned n = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

static uint64_t
resident_pages(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long size, resident;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%lu %lu", &size, &resident), 2);
	(void)fclose(file);
	return resident;
}

/* Clients come and go, some of them connected, some asking: no descriptor, thread or memory stays behind. */
static void
many_clients(struct matrix *m, const struct matrix_row *row)
{
	unsigned fds, threads, n = is_long() && !FAULT_SANITIZED ? row->arg : row->arg / 10;
	uint64_t pages = 0;

	up(m);
	fds = count_entries("/proc/self/fd");
	threads = count_entries("/proc/self/task");
	for (unsigned i = 0; i < n; i++) {
		struct matrix other = {.fake = m->fake, .max_lookups = 16, .arena_bytes = 64 << 10};

		matrix_client(&other);
		if (i % 16 == 0) {
			matrix_ready(&other);
			matrix_ask(&other, 2);
			matrix_step(&other);
		}
		scout_client_free(other.client);
		if (i == n / 10)
			pages = resident_pages();
	}
	ck_assert_uint_eq(count_entries("/proc/self/task"), threads);
	ck_assert_uint_le(count_entries("/proc/self/fd"), fds + 16); /* the peer's ends go a little later */
	if (!FAULT_SANITIZED)                                      /* which keeps what was freed, to find who uses it */
		ck_assert_uint_lt(resident_pages(), pages + 4096); /* 16 MiB */
	matrix_works(m, true);
	/* The peer has no lease that would tell it who left: only our own requests can be counted. */
	fake_unbind(m->fake);
	fake_bind(m->fake, true);
	matrix_works(m, true);
	matrix_end(m);
}

/* ---- several servers ---- */

static void
one_of_two(struct matrix *m, const struct matrix_row *row)
{
	struct fake_server *second = fake_start();
	char endpoints[300];

	(void)row;
	fake_set_hit(second, MATRIX_CHUNKS);
	matrix_patient(m);
	matrix_fake(m);
	(void)snprintf(endpoints, sizeof(endpoints), "%s %s", fake_endpoint(m->fake), fake_endpoint(second));
	matrix_client_at(m, endpoints);
	matrix_ready(m);
	matrix_hits(m, 2);
	fake_unbind(second);
	matrix_ask(m, 3);
	matrix_answers(m);
	matrix_all_failed(m, 2);
	for (uint32_t i = 2; i < m->n_requests; i++)
		ck_assert_int_eq(m->requests[i].hit.endpoint, 1);
	fake_bind(second, true);
	matrix_works(m, true);
	matrix_end(m);
	ck_assert_uint_eq(fake_open_sessions(second), 0);
	fake_stop(second);
}

const struct matrix_row matrix_local_rows[] = {
	{.name = "request_table_full", .run = queue_full, .is_scripted = true},
	{.name = "hash_arena_full", .run = arena_full, .is_scripted = true},
	{.name = "credits_lost_with_their_answers", .run = credits_lost, .is_scripted = true},
	{.name = "hello_refused_then_accepted", .run = hello_refused, .is_scripted = true},
	{.name = "lookup_in_the_step_of_a_reset", .run = reset_then_lookup, .is_scripted = true},
	{.name = "connection_lost_again_while_giving_back", .run = give_back_lost, .is_scripted = true},
	{.name = "answer_larger_than_the_question", .run = answer_wrong, .is_scripted = true},
	{.name = "no_descriptors_to_reconnect", .run = no_descriptors},
	{.name = "few_descriptors_to_start", .run = few_descriptors, .is_scripted = true},
	{.name = "clients_come_and_go", .run = many_clients, .arg = 10000, .is_scripted = true},
	{.name = "one_of_two_servers_unreachable", .run = one_of_two, .is_scripted = true},
	{.name = NULL},
};
