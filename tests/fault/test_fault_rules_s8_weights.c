/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <stdio.h>
#include <sys/wait.h>

/*
 * S8 with workers that stay: scheduler and workers go over to new weights by scout_reset() and scout_worker_reset(), in
 * any order, whatever happens to one of them in between. No byte that was computed with old weights is ever served
 * under the new ones; what is stored afterwards is, and is right.
 *
 * Prompt P holds the bytes of P under the old weights and of P + 50 under the new ones.
 */

#define OLD 1u
#define NEW 2u

static struct fault f;
static struct fault_actor *sched, *worker, *other;
static uint64_t stopped_us; /* since when the server stands still */

static void
setup(void)
{
	memset(&f, 0, sizeof(f));
}

static void
up(void)
{
	fault_up(&f);
	sched = fault_actor_of(&f, OLD);
	(void)fault_ask(sched, "client");
	worker = fault_actor_of(&f, OLD);
	(void)fault_ask(worker, "worker 0");
	other = fault_actor_of(&f, OLD);
	(void)fault_ask(other, "worker %u", f.kv_ranks > 1 ? 1u : 0u);
}

/* The worker that @a is. */
static uint32_t
number_of(const struct fault_actor *a)
{
	return f.kv_ranks > 1 && a == other ? 1 : 0;
}

static void
worker_resets(struct fault_actor *a, uint64_t version)
{
	(void)fault_ask(a, "wreset %u %u", (unsigned)number_of(a), (unsigned)version);
}

static void
client_resets(uint64_t version)
{
	const char *reply;

	/* The one before may still be on its way. */
	wait_until(!strstr(reply = fault_try(sched, "reset %u", (unsigned)version), "SCOUT_ERR_BUSY"))
		;
	ck_assert_str_eq(reply, "ok");
}

static struct fault_done
store_bytes(struct fault_actor *a, uint32_t prompt, uint32_t bytes)
{
	(void)fault_store_begin(a, number_of(a), prompt, bytes, 4, 0);
	return fault_wait_done(a, number_of(a));
}

static struct fault_done
store_new(struct fault_actor *a, uint32_t prompt)
{
	return store_bytes(a, prompt, prompt + 50);
}

/* Store until it is good, through refusals of @code and lost connections. */
static void
store_until_good(struct fault_actor *a, uint32_t prompt, uint32_t bytes, int code)
{
	struct fault_done done;

	wait_until((done = store_bytes(a, prompt, bytes)).status == 0)
		ck_assert_msg(done.status == code || done.status == SCOUT_ERR_UNREACHABLE ||
				      done.status == SCOUT_ERR_EPOCH,
			      "%s", scout_err_name(done.status));
}

static void
store_new_until_good(struct fault_actor *a, uint32_t prompt, int code)
{
	store_until_good(a, prompt, prompt + 50, code);
}

/* A lookup that is answered, not refused: the scheduler may still be on its way to the server. */
static struct fault_hit
look(const char *id, uint32_t prompt)
{
	struct fault_hit hit;

	wait_until((hit = fault_look(sched, id, prompt, 4)).error == 0) {
		ck_assert_msg(hit.error == SCOUT_ERR_WEIGHTS || hit.error == SCOUT_ERR_UNREACHABLE, "%s",
			      scout_err_name(hit.error));
		ck_assert_uint_eq(hit.tokens, 0);
		(void)fault_ask(sched, "finish %s", id);
	}
	return hit;
}

static void
check_miss(uint32_t prompt)
{
	ck_assert_uint_eq(look("miss", prompt).chunks, 0);
	(void)fault_ask(sched, "finish miss");
}

/* @prompt is a hit, with the bytes of @bytes, for @a. */
static void
check_bytes(struct fault_actor *a, uint32_t prompt, uint32_t bytes)
{
	struct fault_hit hit = look("hit", prompt);
	struct fault_done done;

	ck_assert_uint_eq(hit.chunks, 4);
	done = fault_retrieve(a, number_of(a), hit.ticket, 0, 16);
	fault_check_all(a, number_of(a), &done, bytes, 0, 16);
	(void)fault_ask(sched, "finish hit");
}

static void
server_stop(void)
{
	int status;

	stopped_us = scout__now_us();
	ck_assert_int_eq(kill(f.server, SIGSTOP), 0);
	ck_assert_int_eq(waitpid(f.server, &status, WUNTRACED), f.server);
}

static void
server_continue(void)
{
	ck_assert_int_eq(kill(f.server, SIGCONT), 0);
}

/* ---- stores in flight ---- */

enum stage {
	ASKED,   /* STORE is sent, and not read */
	COPYING, /* granted */
	TOLD,    /* STORE_DONE is sent, and not read */
	ASLEEP,  /* somewhere, in a process that is stopped over both resets */
	N_STAGES
};

enum order {
	CLIENT_FIRST,
	WORKER_FIRST,
	N_ORDERS
};

static void
bring_to(enum stage stage)
{
	uint64_t job;

	if (stage == COPYING || stage == TOLD)
		(void)fault_ask(worker, "gate shut");
	if (stage == ASKED)
		server_stop();
	job = fault_store_begin(worker, 0, 1, 1, 4, 0);
	if (stage == COPYING || stage == TOLD)
		fault_enqueued(worker, 0, job);
	if (stage == TOLD) {
		server_stop();
		(void)fault_ask(worker, "gate open");
		(void)fault_ask(worker, "copied 0 %u", (unsigned)job);
	}
	if (stage == ASLEEP)
		fault_freeze(worker);
}

static void
end_stage(enum stage stage)
{
	if (stage == COPYING)
		(void)fault_ask(worker, "gate open");
	if (stage == ASKED || stage == TOLD)
		server_continue();
}

UNCHECKED_FIXTURE(fault_make_home, NULL);
CHECKED_FIXTURE(setup, NULL);

START_LOOP_TEST(S8_a_store_of_old_weights_is_not_served_at_whatever_stage_the_resets_meet_it, 0, N_STAGES *N_ORDERS)
{
	enum stage stage = (enum stage)(_i % N_STAGES);
	enum order order = (enum order)(_i / N_STAGES);
	struct fault_done done;
	bool gone;

	up();
	bring_to(stage);
	if (order == CLIENT_FIRST)
		client_resets(NEW);
	if (stage == ASLEEP) {
		/* The command waits for it like everything else. */
		fault_send(worker, "wreset 0 %u", NEW);
		if (order == CLIENT_FIRST)
			fault_wait(&f, "ns.rig.weights", NEW);
		fault_thaw(worker);
		(void)fault_hear(worker);
	} else {
		worker_resets(worker, NEW);
	}
	end_stage(stage);
	/* It stood still for so long that it may have been taken for gone. */
	gone = (stage == ASKED || stage == TOLD) && scout__now_us() - stopped_us > 300000;
	done = fault_wait_done(worker, 0);
	ck_assert_msg(done.status == SCOUT_ERR_WEIGHTS || (gone && done.status == SCOUT_ERR_UNREACHABLE), "%s",
		      scout_err_name(done.status));
	ck_assert_uint_eq(done.chunks, 0);
	if (order == WORKER_FIRST)
		client_resets(NEW);
	fault_wait(&f, "ns.rig.weights", NEW);
	check_miss(1);
	fault_wait(&f, "holds", 0);
	fault_wait(&f, "l1.chunks", 0);
	if (gone)
		store_new_until_good(worker, 1, SCOUT_ERR_UNREACHABLE);
	else
		ck_assert_uint_eq(store_new(worker, 1).chunks, 4);
	check_bytes(worker, 1, 51);
	/* Who was told nothing is not let in. */
	assert_rc(store_new(other, 2).status, SCOUT_ERR_WEIGHTS);
	fault_down(&f);
}
END_TEST

/* The engine has loaded old KV behind the back of the new weights: none of it is reported as good. */
START_TEST(S8_a_retrieve_of_old_weights_names_all_its_blocks)
{
	struct fault_done done;
	struct fault_hit hit;

	up();
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	hit = look("a", 1);
	(void)fault_ask(worker, "gate shut");
	fault_enqueued(worker, 0, fault_retrieve_begin(worker, 0, hit.ticket, 0, 16));
	client_resets(NEW);
	worker_resets(worker, NEW);
	(void)fault_ask(worker, "gate open");
	done = fault_wait_done(worker, 0);
	assert_rc(done.status, SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(done.n_missing, 16);
	fault_wait(&f, "holds", 0);
	fault_wait(&f, "l1.chunks", 0);
	fault_down(&f);
}
END_TEST

/* ---- what stays ---- */

START_TEST(S8_registration_and_pool_outlive_a_reset)
{
	uint64_t registers, delivered;

	up();
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	registers = fault_status(&f, "ops.register");
	delivered = fault_status(&f, "peers.joined");
	for (uint32_t version = NEW; version < NEW + 5; version++) {
		if (version % 2) {
			client_resets(version);
			worker_resets(worker, version);
		} else {
			worker_resets(worker, version);
			client_resets(version);
		}
		store_new_until_good(worker, version, SCOUT_ERR_WEIGHTS);
		check_miss(version - 1);
		check_bytes(worker, version, version + 50);
	}
	ck_assert_uint_eq(fault_status(&f, "ops.register"), registers);
	ck_assert_uint_eq(fault_status(&f, "peers.joined"), delivered);
	ck_assert_uint_eq(fault_status(&f, "leases"), 3);
	fault_down(&f);
}
END_TEST

/* ---- several KV ranks ---- */

START_TEST(S8_of_two_ranks_the_late_one_adds_nothing_old)
{
	f.kv_ranks = 2;
	up();
	assert_ok(fault_store(worker, 0, 1, 4).status);
	assert_ok(fault_store(other, 1, 1, 4).status);
	ck_assert_uint_eq(look("a", 1).chunks, 4);
	(void)fault_ask(sched, "finish a");
	fault_freeze(other);
	worker_resets(worker, NEW);
	client_resets(NEW);
	ck_assert_uint_eq(store_new(worker, 1).status, 0);
	check_miss(1);
	/* It wakes, and still stores what it computed with the old ones. */
	fault_thaw(other);
	assert_rc(fault_store(other, 1, 1, 4).status, SCOUT_ERR_WEIGHTS);
	check_miss(1);
	worker_resets(other, NEW);
	assert_ok(store_new(other, 1).status);
	check_bytes(worker, 1, 51);
	check_bytes(other, 1, 51);
	fault_down(&f);
}
END_TEST

START_TEST(S8_a_rank_that_slept_over_two_updates_takes_nobody_back)
{
	f.kv_ranks = 2;
	up();
	fault_freeze(other);
	fault_send(other, "wreset 1 2");
	client_resets(2);
	worker_resets(worker, 2);
	store_new_until_good(worker, 1, SCOUT_ERR_WEIGHTS);
	client_resets(3);
	worker_resets(worker, 3);
	store_new_until_good(worker, 1, SCOUT_ERR_WEIGHTS);
	fault_thaw(other);
	(void)fault_hear(other);
	assert_rc(store_new(other, 1).status, SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(fault_status(&f, "ns.rig.weights"), 3);
	/* Nobody has noticed. */
	assert_ok(store_new(worker, 3).status);
	check_miss(1);
	worker_resets(other, 3);
	assert_ok(store_new(other, 1).status);
	check_bytes(other, 1, 51);
	check_bytes(worker, 1, 51);
	fault_down(&f);
}
END_TEST

/* ---- deaths in between ---- */

START_TEST(S8_a_worker_that_dies_between_the_resets_leaves_nothing_old)
{
	struct fault_actor *fresh;

	f.pool_chunks = 16; /* those that it was writing are set aside for a while */
	up();
	(void)fault_ask(worker, "gate shut");
	fault_enqueued(worker, 0, fault_store_begin(worker, 0, 1, 1, 4, 0));
	client_resets(NEW);
	fault_wait(&f, "ns.rig.weights", NEW);
	fault_kill(worker);
	worker_resets(other, NEW);
	ck_assert_uint_eq(store_new(other, 1).chunks, 4);
	check_bytes(other, 1, 51);
	fresh = fault_actor_of(&f, NEW);
	(void)fault_ask(fresh, "worker 0");
	ck_assert_uint_eq(store_new(fresh, 2).chunks, 4);
	check_bytes(fresh, 1, 51);
	check_bytes(other, 2, 52);
	fault_down(&f);
}
END_TEST

START_TEST(S8_a_scheduler_that_dies_between_the_resets_is_replaced)
{
	up();
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	worker_resets(worker, NEW);
	fault_kill(sched);
	assert_ok(store_new(worker, 2).status);
	/* The next one is of the new weights from the start, and the other worker never hears of its predecessor's. */
	sched = fault_actor_of(&f, NEW);
	(void)fault_ask(sched, "client");
	check_miss(1);
	check_bytes(worker, 2, 52);
	assert_rc(store_new(other, 3).status, SCOUT_ERR_WEIGHTS);
	fault_down(&f);
}
END_TEST

/* No worker has gone over yet, and the server knows the old version from them. */
START_TEST(S8_a_scheduler_that_is_refused_after_its_restart_decides)
{
	up();
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	fault_kill(sched);
	sched = fault_actor_of(&f, NEW);
	ck_assert_ptr_nonnull(strstr(fault_try(sched, "client"), "SCOUT_ERR_WEIGHTS"));
	client_resets(NEW);
	check_miss(1);
	assert_rc(store_new(worker, 1).status, SCOUT_ERR_WEIGHTS);
	worker_resets(worker, NEW);
	assert_ok(store_new(worker, 1).status);
	check_bytes(worker, 1, 51);
	fault_down(&f);
}
END_TEST

START_TEST(S8_a_worker_that_dies_after_its_own_reset_has_taken_the_others_along)
{
	up();
	worker_resets(worker, NEW);
	assert_ok(store_new(worker, 1).status);
	fault_kill(worker);
	client_resets(NEW);
	worker_resets(other, NEW);
	check_bytes(other, 1, 51);
	fault_down(&f);
}
END_TEST

/* ---- restarts ---- */

START_LOOP_TEST(S8_a_server_that_is_killed_between_the_resets_is_told_by_both, 0, N_ORDERS)
{
	enum order order = (enum order)_i;

	up();
	fault_kill(other);
	if (order == CLIENT_FIRST)
		client_resets(NEW);
	else
		worker_resets(worker, NEW);
	fault_server_kill(&f);
	if (order == CLIENT_FIRST)
		worker_resets(worker, NEW);
	else
		client_resets(NEW);
	fault_server_start(&f);
	store_new_until_good(worker, 1, SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(fault_status(&f, "ns.rig.weights"), NEW);
	check_bytes(worker, 1, 51);
	fault_down(&f);
}
END_TEST

/*
 * The one that was not told of the update is the first that the new server sees, and names the namespace. All others
 * are refused, until it is told, too.
 */
START_TEST(S8_a_server_that_heard_of_the_old_version_first_is_taken_on)
{
	f.kv_ranks = 2;
	up();
	client_resets(NEW);
	worker_resets(worker, NEW);
	assert_ok(store_new(worker, 1).status);
	fault_freeze(sched);
	fault_freeze(worker);
	fault_server_kill(&f);
	fault_server_start(&f);
	fault_wait(&f, "peers", 1);
	fault_wait(&f, "ns.rig.weights", OLD);
	fault_thaw(sched);
	fault_thaw(worker);
	store_until_good(other, 1, 1, 0); /* of the old weights: good only under them */
	worker_resets(other, NEW);
	store_new_until_good(worker, 1, SCOUT_ERR_WEIGHTS);
	store_new_until_good(other, 1, SCOUT_ERR_WEIGHTS);
	ck_assert_uint_eq(fault_status(&f, "ns.rig.weights"), NEW);
	check_bytes(worker, 1, 51);
	check_bytes(other, 1, 51);
	fault_down(&f);
}
END_TEST

/* What L2 has of the old weights is found again by nobody who has gone over, not even after a restart. */
START_TEST(S8_the_second_tier_serves_each_version_its_own)
{
	char url[160];

	(void)snprintf(url, sizeof(url), "fs://%s/l2-weights", fault_home());
	f.more[0] = "l2";
	f.more[1] = url;
	f.more[2] = "l2_queue_bytes";
	f.more[3] = "1Gi";
	f.pool_chunks = 64; /* a quarter of it may wait to be written */
	up();
	fault_wait(&f, "l2.0.ready", 1);
	fault_kill(other);
	ck_assert_uint_eq(fault_store(worker, 0, 1, 4).chunks, 4);
	ck_assert_uint_eq(fault_store(worker, 0, 2, 4).chunks, 4);
	fault_wait(&f, "l2.writes.waiting", 0);
	worker_resets(worker, NEW);
	client_resets(NEW);
	check_miss(1);
	ck_assert_uint_eq(store_new(worker, 1).chunks, 4);
	fault_wait(&f, "l2.writes.waiting", 0);
	fault_server_kill(&f);
	fault_server_start(&f);
	fault_wait(&f, "l2.0.ready", 1);
	store_new_until_good(worker, 3, 0);
	check_bytes(worker, 1, 51);
	check_miss(2);
	fault_down(&f);
}
END_TEST
