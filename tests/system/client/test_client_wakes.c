/* SPDX-License-Identifier: Apache-2.0 */
/* Whom an answer through shared memory wakes: who waits for it. The library's client on a real server. */
#include "check_main.h"

#include <kvscout/client.h>

#include "client_internal.h"
#include "link.h"
#include "server_rig.h"
#include "given_time.h"
#include "waiting.h"

#define CHUNKS 8u

static struct scout_server *server;
static struct wire_peer watcher; /* through the socket: what STATUS says */

static void
up(void)
{
	struct scout_server_config cfg = rig_config(CHUNKS);

	server = rig_start(&cfg);
	rig_client(&watcher, scout_server_endpoint(server));
}

static void
down(void)
{
	wire_close(&watcher);
	scout_server_stop(server);
}

/* How often the thread has gone to sleep, once it does. */
static uint64_t
naps(const char *folder)
{
	char path[128], line[256], state = 0;
	unsigned long long n = 0;

	(void)snprintf(path, sizeof(path), "%s/status", folder);
	while (state != 'S') {
		FILE *file = fopen(path, "re");

		ck_assert_ptr_nonnull(file);
		while (fgets(line, sizeof(line), file)) {
			(void)sscanf(line, "State: %c", &state);
			(void)sscanf(line, "voluntary_ctxt_switches: %llu", &n);
		}
		(void)fclose(file);
	}
	return n;
}

/* No heartbeat wakes its courier. */
static struct scout_client *
client_new(void)
{
	struct scout_client_config cfg;
	struct scout_client *client = NULL;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 60000; /* a busy machine is no reason for a miss */
	cfg.endpoint = scout_server_endpoint(server);
	cfg.chunk_tokens = 16;
	cfg.heartbeat_ms = 60000;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_msg(scout_client_wait_ready(client, wait_limit_ms(), err, sizeof(err)) == 0, "%s", err);
	return client;
}

static void
ask_and_finish(struct scout_client *client)
{
	static const uint8_t hashes[8 * 32] = {1};
	struct scout_query q = {.id = "r", .hashes = hashes, .hash_len = 32, .n = 8, .prompt_tokens = 8 * 16 + 1};
	struct scout_hit hit;

	ck_assert_int_eq(scout_wait_lookup(client, &q, &hit), 0);
	ck_assert_int_eq(hit.reason, SCOUT_REASON_MISS);
	ck_assert_int_eq(scout_finish(client, "r"), 0);
}

CHECKED_FIXTURE(up, down);

/* A question, its answer, a finish: the caller rings twice, the server once, and what it says to the finish is read with the next. */
START_TEST(nobody_is_woken_for_the_answer_to_a_finish)
{
	enum {
		ROUNDS = 200
	};
	struct scout_client *client = client_new();
	uint64_t first, pings;
	char courier[64];

	ck_assert(thread_named("scout-courier", courier));
	first = naps(courier);
	for (unsigned i = 1; i <= ROUNDS; i++) {
		ask_and_finish(client);
		wire_wait_status(&watcher, "ops.finish", i);
		(void)naps(courier);
	}
	pings = wire_status(&watcher, "ops.ping");
	/* Three times a round at most; when it was rung for all answers, it was more than three and a half. Answers that are late cost a PING. */
	ck_assert_uint_le(naps(courier) - first, ROUNDS * 13 / 4 + 3 * pings);
	scout_client_free(client);
}
END_TEST

/*
 * While one of these lasts, the courier is rung for every answer. The places: were all of them on their way back and nobody rung, the caller
 * could not submit, and what it submits is what would wake the courier.
 */
START_TEST(what_somebody_waits_for_is_rung_for)
{
	bool (*is_awaited)(void *) = scout__lookup_ops.is_awaited;
	struct scout__give_back give_back = {0};
	struct scout__broadcast_link broadcast = {0};
	struct scout_client *c = aligned_alloc(_Alignof(struct scout_client), sizeof(*c));

	ck_assert_ptr_nonnull(c);
	memset(c, 0, sizeof(*c));
	c->n_links = 1;
	c->give_back = &give_back;
	for (int what = 0; what < SCOUT__BROADCASTS; what++)
		c->broadcasts[what].links = &broadcast;
	c->cfg.max_lookups = 2;
	c->todo.head = c->blocked.head = c->deadline_head = c->deadline_root = SCOUT__NO_SLOT;
	ck_assert(!is_awaited(c));
	c->n_finishing = c->cfg.max_lookups;
	ck_assert(!is_awaited(c));
	c->n_finishing++;
	ck_assert(is_awaited(c));
	c->n_finishing = 0;
	c->deadline_head = 0; /* a lookup */
	ck_assert(is_awaited(c));
	c->deadline_head = SCOUT__NO_SLOT;
	c->deadline_root = 0; /* one with another timeout */
	ck_assert(is_awaited(c));
	c->deadline_root = SCOUT__NO_SLOT;
	c->todo.head = 0; /* what was not sent yet */
	ck_assert(is_awaited(c));
	c->todo.head = SCOUT__NO_SLOT;
	c->blocked.head = 0; /* what waits for credit */
	ck_assert(is_awaited(c));
	c->blocked.head = SCOUT__NO_SLOT;
	give_back.n = 1;
	ck_assert(is_awaited(c));
	give_back.n = 0;
	broadcast.todo = 7; /* a reset */
	ck_assert(is_awaited(c));
	broadcast.todo = 0;
	broadcast.in_flight = 1;
	ck_assert(is_awaited(c));
	broadcast.in_flight = 0;
	c->closing = true;
	ck_assert(is_awaited(c));
	free(c);
}
END_TEST

/* More answers than the smallest ring has room for would wait in the server's memory. */
START_TEST(a_link_is_rung_when_much_is_in_flight)
{
	struct scout__link link = {.state = SCOUT__LINK_UP, .n_in_flight = SCOUT__LINK_UNREAD};

	scout__enter_courier();
	ck_assert(!scout__link_awaits(&link));
	link.n_in_flight++;
	ck_assert(scout__link_awaits(&link));
	link.n_in_flight = 0;
	link.ping_sent_us = 1;
	ck_assert(scout__link_awaits(&link));
	link.ping_sent_us = 0;
	link.state = SCOUT__LINK_LEASING;
	ck_assert(scout__link_awaits(&link));
}
END_TEST
