/* SPDX-License-Identifier: Apache-2.0 */
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check_main.h"
#include "client_rig.h"

/* Ends of a lookup that are no answer: silence, loss, refusal, bytes that mean nothing. */

CHECKED_FIXTURE(rig_up, rig_down);

START_TEST(silent_server_is_a_timeout_that_stays_readable)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit, again;
	uint64_t start;

	rig_reopen("lookup_timeout_ms", "300");
	start = scout__now_us();
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_uint_ge(scout__now_us() - start, 300000);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_TIMEOUT);
	ck_assert_int_eq(hit.error, SCOUT_ERR_TIMEOUT);
	ck_assert_int_eq(scout_try_lookup(client, &q, &again), 0);
	ck_assert_mem_eq(&hit, &again, sizeof(hit));
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1)); /* what may still be promised is given back */
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), hit.ticket);
}
END_TEST

START_TEST(late_answer_is_dropped_and_given_back)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	rig_reopen("lookup_timeout_ms", "300"); /* before a server's thread that stands still is taken for gone */
	fake_set_hit(fake, 8);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_TIMEOUT);
	fake_release(fake);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	hit = rig_answer("r2", 4); /* behind the late one on the same connection */
	ck_assert_uint_eq(hit.chunks, 4);
	ck_assert_uint_eq(rig_stats().late, 1);
	ck_assert_uint_eq(rig_stats().answers, 2);
}
END_TEST

START_TEST(finish_while_pending_then_the_same_id_is_a_new_request)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	fake_set_hit(fake, 8);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_HOLD, 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	fake_set_hit(fake, 1);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	fake_release(fake);
	hit = rig_answer("r1", 8);
	ck_assert_uint_eq(hit.chunks, 1); /* not the 8 of the first generation */
	ck_assert_uint_eq(hit.ticket, fake_lookup_ticket(fake, 1));
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), fake_lookup_ticket(fake, 0));
}
END_TEST

START_TEST(refusal_is_an_answer_with_the_servers_error)
{
	struct scout_hit hit;

	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_REFUSE, SCOUT_WIRE_LIMIT);
	hit = rig_answer("r1", 8);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_REFUSED);
	ck_assert_int_eq(hit.error, SCOUT_ERR_LIMIT);
	ck_assert_int_eq(hit.endpoint, 0);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_uint_eq(rig_stats().refused, 1);
}
END_TEST

START_TEST(lost_connection_ends_lookups_at_once_and_it_works_again)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_DROP, 0);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	ck_assert(fake_wait(fake, SCOUT_OP_LOOKUP, 1));
	fake_unbind(fake);
	hit = rig_answer("r1", 8);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_UNREACHABLE);
	/* While it is gone: at once, without the courier. */
	q = rig_question("r2", 8);
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_UNREACHABLE);
	ck_assert_uint_eq(hit.ticket, 0);
	fake_always(fake, SCOUT_OP_LOOKUP, FAKE_ANSWER, 0);
	fake_set_hit(fake, 4);
	fake_bind(fake, true);
	rig_ready();
	/* It is another server start: what waits is asked anew (C5), and a new request sees the server. */
	ck_assert_int_eq(scout_try_lookup(client, &q, &hit), SCOUT_NOT_YET);
	hit = rig_answer("r2", 8);
	ck_assert_uint_eq(hit.chunks, 4);
	hit = rig_answer("r3", 8);
	ck_assert_uint_eq(hit.chunks, 4);
	ck_assert_uint_eq(rig_stats().epochs, 1);
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_LOOKUP), 3); /* nothing was sent again by itself */
}
END_TEST

START_TEST(same_server_start_gets_back_what_a_lost_connection_left)
{
	struct scout_query q = rig_question("r1", 8);
	struct scout_hit hit;

	fake_set_hit(fake, 8);
	hit = rig_answer("r1", 8);
	fake_unbind(fake);
	rig_wait_gone();
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	fake_bind(fake, false);
	ck_assert(fake_wait(fake, SCOUT_OP_FINISH, 1));
	ck_assert_uint_eq(fake_finish_ticket(fake, 0), hit.ticket);
	(void)q;
}
END_TEST

static const enum fake_action broken[] = {FAKE_GARBAGE, FAKE_BAD_EPOCH, FAKE_BAD_VERSION, FAKE_SHORT_BODY,
					  FAKE_BIG_HIT};

START_LOOP_TEST(broken_reply_never_counts_and_the_next_lookup_works, 0, (sizeof(broken) / sizeof(broken[0])))
{
	struct scout_hit hit;

	fake_set_hit(fake, 8);
	fake_script(fake, SCOUT_OP_LOOKUP, broken[_i], 0);
	hit = rig_answer("r1", 8);
	ck_assert_uint_eq(hit.tokens, 0);
	ck_assert_int_ne(hit.error, 0);
	rig_ready();
	hit = rig_answer("r2", 8);
	ck_assert_uint_eq(hit.chunks, 8);
}
END_TEST

START_TEST(answer_that_comes_twice_is_counted_and_dropped)
{
	struct scout_hit hit;

	fake_set_hit(fake, 8);
	fake_script(fake, SCOUT_OP_LOOKUP, FAKE_TWICE, 0);
	hit = rig_answer("r1", 8);
	ck_assert_uint_eq(hit.chunks, 8);
	hit = rig_answer("r2", 8);
	ck_assert_uint_eq(hit.chunks, 8);
	ck_assert_uint_eq(rig_stats().late, 1);
}
END_TEST

START_TEST(silent_server_is_noticed_by_heartbeat)
{
	struct scout_hit hit;

	rig_reopen("heartbeat_ms", "250");
	fake_always(fake, SCOUT_OP_PING, FAKE_DROP, 0);
	rig_wait_gone();
	fake_always(fake, SCOUT_OP_PING, FAKE_ANSWER, 0);
	rig_ready();
	hit = rig_answer("r1", 2);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_MISS);
}
END_TEST

static sem_t heard, checked;

/* Holds the courier up where it says that the server is silent. */
static void
hold_at_silence(void *user, int level, const char *text)
{
	(void)user;
	(void)level;
	if (!strstr(text, "the server is silent"))
		return;
	(void)sem_post(&heard);
	while (sem_wait(&checked) != 0) {
	}
}

/* While lookups may still be taken for the server, the count says so: it falls after the client knows, not before. */
START_TEST(server_counts_as_up_until_the_client_takes_it_for_down)
{
	struct scout_client_config cfg;
	struct scout_hit hit;
	char err[256] = "";

	ck_assert_int_eq(sem_init(&heard, 0, 0), 0);
	ck_assert_int_eq(sem_init(&checked, 0, 0), 0);
	scout_client_free(client);
	scout_client_config_init(&cfg);
	cfg.endpoint = fake_endpoint(fake);
	cfg.heartbeat_ms = 200;
	cfg.lookup_timeout_ms = 60000;
	cfg.log = hold_at_silence;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	rig_ready();
	fake_always(fake, SCOUT_OP_PING, FAKE_DROP, 0);
	fake_always(fake, SCOUT_OP_HELLO, FAKE_DROP, 0);
	while (sem_wait(&heard) != 0) {
	}
	ck_assert_uint_eq(rig_stats().servers_up, 1);
	ck_assert_int_eq(sem_post(&checked), 0);
	rig_wait_gone();
	ck_assert_int_eq(scout_client_wait_ready(client, 0, err, sizeof(err)), SCOUT_ERR_TIMEOUT);
	fake_always(fake, SCOUT_OP_PING, FAKE_ANSWER, 0);
	fake_always(fake, SCOUT_OP_HELLO, FAKE_ANSWER, 0);
	for (int i = 0; i < 100; i++) /* a loaded machine may look silent once more */
		ck_assert_int_eq(sem_post(&checked), 0);
	rig_ready();
	hit = rig_answer("r1", 2);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_MISS);
}
END_TEST

static void *
hang_up(void *arg)
{
	int listener = *(int *)arg, fd;

	while ((fd = accept(listener, NULL, NULL)) >= 0)
		(void)close(fd);
	return NULL;
}

/* As a server with keys does, if it is quicker than its own greeting. */
START_TEST(who_hangs_up_before_a_word_may_want_keys)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct scout_client_config cfg;
	struct scout_client *lost;
	char endpoint[64], err[512] = "";
	pthread_t thread;

	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, len), 0);
	ck_assert_int_eq(listen(listener, 16), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &len), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, hang_up, &listener), 0);
	(void)snprintf(endpoint, sizeof(endpoint), "tcp://127.0.0.1:%u", (unsigned)ntohs(address.sin_port));
	scout_client_config_init(&cfg);
	cfg.endpoint = endpoint;
	cfg.connect_timeout_ms = 1500; /* by then it has been hung up on, however loaded the machine is */
	ck_assert_int_eq(scout_client_new(&cfg, &lost, err, sizeof(err)), 0);
	wait_until(strstr(err, "within connect_timeout_ms"))
		ck_assert_int_eq(scout_client_wait_ready(lost, 20, err, sizeof(err)), SCOUT_ERR_TIMEOUT);
	ck_assert_msg(strstr(err, "the server requires CURVE keys (curve_secret_file is not set)"), "%s", err);
	scout_client_free(lost);
	ck_assert_int_eq(shutdown(listener, SHUT_RDWR), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	(void)close(listener);
}
END_TEST

START_TEST(refused_hello_is_a_refused_answer_and_named_by_wait_ready)
{
	char err[256] = "";
	struct scout_hit hit;

	scout_client_free(client);
	fake_always(fake, SCOUT_OP_HELLO, FAKE_REFUSE, SCOUT_WIRE_NAMESPACE);
	rig_client(NULL, NULL);
	ck_assert_int_eq(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)), SCOUT_ERR_NAMESPACE);
	ck_assert_msg(strstr(err, "refused by the script") != NULL, "%s", err);
	ck_assert_msg(strstr(err, "ipc://") == err, "which server: %s", err);
	hit = rig_answer("r1", 2);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_REFUSED);
	ck_assert_int_eq(hit.error, SCOUT_ERR_NAMESPACE);
}
END_TEST

/* No such socket, one that this user may not use, and one where nobody answers yet: said by name, and why. */
START_TEST(a_server_that_is_not_there_is_named_with_what_can_be_seen)
{
	static const char path[] = "/nonexistent/kvscout.sock";
	struct scout_client_config cfg;
	struct scout_client *lost;
	char err[512] = "";

	scout_client_config_init(&cfg);
	cfg.endpoint = "ipc:///nonexistent/kvscout.sock";
	cfg.connect_timeout_ms = 60000;
	ck_assert_int_eq(scout_client_new(&cfg, &lost, err, sizeof(err)), 0);
	ck_assert_int_eq(scout_client_wait_ready(lost, 1, err, sizeof(err)), SCOUT_ERR_TIMEOUT);
	ck_assert_msg(strstr(err, path) != NULL, "%s", err);
	scout_client_free(lost);
	cfg.connect_timeout_ms = 20;
	ck_assert_int_eq(scout_client_new(&cfg, &lost, err, sizeof(err)), 0);
	wait_until(strstr(err, "there is no such socket"))
		ck_assert_int_eq(scout_client_wait_ready(lost, 10, err, sizeof(err)), SCOUT_ERR_TIMEOUT);
	ck_assert_msg(strstr(err, path) != NULL, "%s", err);
	scout_client_free(lost);
}
END_TEST

/* The server knows the token by then, and the client does not know the secret: neither of its sides can go on. */
START_TEST(a_lost_reply_to_the_first_hello_makes_the_client_a_new_peer)
{
	unsigned n = fake_count(fake, SCOUT_OP_HELLO);
	uint64_t token[4];
	bool shows[4];

	scout_client_free(client);
	fake_script(fake, SCOUT_OP_HELLO, FAKE_DROP, 0);
	fake_script(fake, SCOUT_OP_HELLO, FAKE_REFUSE, SCOUT_WIRE_SECRET);
	rig_client("heartbeat_ms", "100"); /* silence for three of them ends the first try */
	rig_ready();
	(void)rig_answer("r1", 2);
	fake_unbind(fake);
	rig_wait_gone();
	fake_bind(fake, false);
	rig_ready();
	ck_assert_uint_eq(fake_count(fake, SCOUT_OP_HELLO), n + 4);
	for (unsigned i = 0; i < 4; i++)
		token[i] = fake_said_token(fake, n + i, &shows[i]);
	ck_assert(token[0] == token[1] && token[1] != token[2] && token[2] == token[3]);
	ck_assert(!shows[0] && !shows[1] && !shows[2] && shows[3]);
}
END_TEST

/* They name what a worker holds. */
START_TEST(ids_of_operations_begin_at_random)
{
	uint64_t first;

	(void)rig_answer("r1", 2);
	first = fake_last_corr(fake, SCOUT_OP_LOOKUP);
	rig_reopen(NULL, NULL);
	(void)rig_answer("r1", 2);
	ck_assert_uint_ne(first >> 32, 1);
	ck_assert_uint_ne(first >> 32, fake_last_corr(fake, SCOUT_OP_LOOKUP) >> 32);
}
END_TEST

/* Whether the server answers in its own version, or in ours that it does not speak it: both versions are named. */
START_LOOP_TEST(server_of_another_version_is_a_typed_error_that_names_both, 0, 3)
{
	static const enum fake_action answers[] = {FAKE_BAD_VERSION, FAKE_NO_CORR, FAKE_OLD_VERSION};
	char err[256] = "", ours[32], theirs[32];
	struct scout_hit hit;
	uint64_t begin_us;
	unsigned n;

	scout_client_free(client);
	fake_always(fake, SCOUT_OP_HELLO, answers[_i], SCOUT_WIRE_BAD_VERSION);
	n = fake_count(fake, SCOUT_OP_HELLO);
	begin_us = scout__now_us();
	rig_client(NULL, NULL);
	ck_assert_int_eq(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)), SCOUT_ERR_VERSION);
	(void)snprintf(ours, sizeof(ours), "speaks version %d", SCOUT_WIRE_VERSION);
	(void)snprintf(theirs, sizeof(theirs), "protocol version %d", _i == 2 ? SCOUT_WIRE_VERSION - 1 : FAKE_VERSION);
	if (_i != 1)
		ck_assert_msg(strstr(err, ours) && strstr(err, theirs) &&
				      strstr(err, _i == 2 ? "upgrade the server" : "upgrade this library"),
			      "%s", err);
	else
		ck_assert_msg(strstr(err, "refused by the script") != NULL, "%s", err);
	hit = rig_answer("r1", 2);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_REFUSED);
	ck_assert_int_eq(hit.error, SCOUT_ERR_VERSION);
	/* At once, and no storm of HELLOs: one in a second. */
	ck_assert_int_eq(scout_finish(client, "r1"), 0);
	wait_until(fake_count(fake, SCOUT_OP_HELLO) >= n + 3)
		ck_assert_int_eq(scout_client_wait_ready(client, 10, err, sizeof(err)), SCOUT_ERR_VERSION);
	ck_assert_uint_ge(scout__now_us() - begin_us, 2000000);
	/* Once it is replaced by one that does, lookups work by themselves. */
	fake_always(fake, SCOUT_OP_HELLO, FAKE_ANSWER, 0);
	wait_until(hit.error == 0) {
		ck_assert_int_eq(scout_finish(client, "r1"), 0);
		hit = rig_answer("r1", 2);
	}
}
END_TEST
