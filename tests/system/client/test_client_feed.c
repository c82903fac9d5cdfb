/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

#include <kvscout/client.h>

#include "server_rig.h"
#include "waiting.h"

/* scout_feed() on a real server: events, a restart, a reader that was away. */

#define KEYS 40u

static struct scout_client *client;
static uint8_t there[KEYS + 1], caught_up[KEYS + 1];
static unsigned n_starts, n_caught_up, n_cleared, last_error;

static void
open_client(const char *endpoint)
{
	struct scout_client_config cfg;
	char err[256] = "";

	scout_client_config_init(&cfg);
	cfg.endpoint = endpoint;
	cfg.name_space = "test";
	cfg.chunk_tokens = 16;
	cfg.hash_bytes = 16;
	ck_assert_msg(scout_client_new(&cfg, &client, err, sizeof(err)) == 0, "%s", err);
	ck_assert_int_eq(scout_client_wait_ready(client, 10000, err, sizeof(err)), 0);
}

static void
apply(const struct scout_feed_event *e)
{
	uint8_t hash[16];

	n_starts += e->kind == SCOUT_FEED_START_OVER;
	if (e->kind == SCOUT_FEED_CAUGHT_UP) {
		n_caught_up++;
		memcpy(caught_up, there, sizeof(there));
		return;
	}
	n_cleared += e->kind == SCOUT_FEED_CLEARED;
	if (e->kind != SCOUT_FEED_STORED && e->kind != SCOUT_FEED_REMOVED) {
		memset(there, 0, sizeof(there));
		return;
	}
	ck_assert_int_eq(e->medium, SCOUT_FEED_L1);
	ck_assert_uint_eq(e->group + e->tenant_len + e->description_len, 0);
	for (uint64_t key = 1; key <= KEYS; key++) {
		wire_hash(hash, sizeof(hash), key);
		if (memcmp(hash, e->hash, sizeof(hash)) == 0)
			there[key] = e->kind == SCOUT_FEED_STORED;
	}
}

static unsigned
n_there(void)
{
	struct scout_feed_event events[3]; /* few, so that a page takes several calls */
	unsigned n = 0;
	int rc = scout_feed(client, events, 3);

	last_error = rc < 0 ? (unsigned)-rc : last_error;
	for (int i = 0; i < rc; i++)
		apply(&events[i]);
	for (uint32_t key = 1; key <= KEYS; key++)
		n += there[key];
	return n;
}

CASE_TIMEOUT(60);

START_TEST(events_come_after_what_there_was)
{
	struct rig rig;

	rig_up(&rig, 8);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 5), 5);
	open_client(rig.endpoint);
	wait_until(n_there() == 5)
		;
	ck_assert_uint_eq(n_starts, 1);
	wait_until(n_there() == 5 && n_caught_up == 1)
		;
	for (uint32_t key = 1; key <= KEYS; key++)
		ck_assert_uint_eq(caught_up[key], key <= 5);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 11, 8), 8);
	wait_until(n_there() == 8 && there[11] && !there[1] && there[18])
		;
	ck_assert_int_eq(scout_clear(client, 0, NULL), 0);
	wait_until(n_there() == 0 && n_cleared == 1)
		;
	ck_assert_uint_eq(n_starts, 1);
	ck_assert_uint_eq(n_caught_up, 1);
	scout_client_free(client);
	rig_down(&rig);
}
END_TEST

START_TEST(after_a_restart_it_starts_over)
{
	struct scout_server_config cfg = rig_config(8);
	char endpoint[256];
	struct rig rig;

	cfg.listen = "tcp://127.0.0.1:*";
	rig_up_with(&rig, &cfg);
	(void)snprintf(endpoint, sizeof(endpoint), "%s", rig.endpoint);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 1, 5), 5);
	open_client(endpoint);
	wait_until(n_there() == 5)
		;
	rig_down(&rig);
	wait_until(n_there() == 5 && last_error != 0)
		;
	cfg.listen = endpoint;
	rig_up_with(&rig, &cfg);
	ck_assert_uint_eq(rig_store(&rig.worker, 0, 21, 2), 2);
	wait_until(n_there() == 2 && there[21] && there[22] && n_caught_up == n_starts)
		;
	ck_assert_uint_ge(n_starts, 2);
	scout_client_free(client);
	rig_down(&rig);
}
END_TEST

START_TEST(a_wrong_call_is_refused)
{
	struct scout_feed_event e;
	struct rig rig;

	rig_up(&rig, 8);
	open_client(rig.endpoint);
	ck_assert_int_eq(scout_feed(NULL, &e, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_feed(client, NULL, 1), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_feed(client, &e, 0), SCOUT_ERR_INVALID);
	ck_assert_int_eq(scout_feed_sized(client, &e, sizeof(e) - 1, 1), SCOUT_ERR_UNSUPPORTED);
	scout_client_free(client);
	rig_down(&rig);
}
END_TEST
