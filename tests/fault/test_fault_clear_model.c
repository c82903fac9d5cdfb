/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#include "l2.h"
#include "l2_fault.h"
#include "random.h"

/*
 * DESIGN
 *
 * A scheduler, one or two workers, and kvscoutd that starts anew again and again on one folder of files, by turns with a large and with a
 * small pool. A seed draws what they do: lookups, stores, retrieves, finishes, resets and clears by any of them, connections that are
 * cut, processes that stand still, servers that stop (with a write to finish, so that they answer SHUTDOWN for a while) or are killed.
 *
 * Each reset or clear is a change with a number. A peer has made the changes up to `at`; who has made all of them may make the next one.
 * Every store has bytes of its own, and the model knows for it `first`, the change that its worker had made, and `last`, the newest
 * change that had been called for when it ended, or the one before the worker's own next call. So a store can have come after change C
 * only if last >= C. In half of the games the peers have versions of the weights, and changes are resets or clears; else all are clears. In
 * half of those a change is made only after all calls for the one before have reached a server: none can overtake another then, and a
 * store comes after change C only if first >= C.
 * The rules:
 *
 *   lookup    a client that called for change C hits only what can have come after C, under its version
 *   load      each block that a worker is not told to be missing has exactly the bytes of one store under the worker's version that can
 *             have come after the worker's own last call; without versions, of a store of the same change
 *   job       none that was submitted before a call of its worker ends well after it
 *   lasting   a job that moved chunks says that its worker's last clear was carried out and recorded: no peer, not one that knows
 *             nothing of it, on no later server, hits or loads what came before
 *   here      a lookup that was answered says that the client's last clear was carried out by this server: no other peer of
 *             this server hits what came before
 *   end       after a last change that everyone has called for, all workers store and load again, and what is older is no hit, also after
 *             one more restart
 *
 * KVSCOUT_MODEL_SEED=n runs that seed only; KVSCOUT_MODEL_SEEDS and KVSCOUT_MODEL_OPS set how many, and how many steps each;
 * KVSCOUT_MODEL_STATS=1 prints what happened. KVSCOUT_LONG=1 is the long form.
 */

#define PROMPTS 4u
#define CHUNKS 4u
#define BLOCKS (CHUNKS * FAULT_BPC)
#define MAX_CHANGES 128u
#define MAX_STORES 65536u /* a fast machine stores thousands of times while it waits for a server */
#define MAX_JOBS 3u
#define REGIONS 15u /* of BLOCKS pages, for stores and for loads */
#define ASKED 8u
#define IN_FLIGHT UINT32_MAX
#define NEW_PROMPT 900u

struct change {
	uint64_t version, generation;
	uint32_t reset, clear; /* the last of each, up to this one */
};

struct stored {
	uint32_t prompt, n, rank, first, last;
	bool never; /* it was refused */
};

struct job {
	uint64_t id;
	struct stored *store; /* NULL: a retrieve */
	uint32_t calls, prompt, blocks, page, lasting;
};

struct peer {
	struct fault_actor *a;
	uint32_t w, at, calls, n_jobs, n_stores, n_loads;
	int ended; /* as what the last job did */
	bool is_client, frozen, shut;
	struct job jobs[MAX_JOBS];
};

static struct fault f;
static struct l2_fault_control *control;
static struct peer peers[3], *const client = peers;
static uint32_t n_peers;
static struct change changes[MAX_CHANGES];
static uint32_t newest, lasting, here;
static struct stored stores[MAX_STORES];
static uint32_t n_stored;
static struct {
	uint64_t ticket;
	uint32_t prompt, chunks;
	bool live;
} asked[ASKED];
static uint32_t n_asked;
static bool has_versions, is_orderly;
static uint32_t settled; /* the last change of which all calls have reached a server */
static enum {
	UP,
	STOPPING,
	DOWN
} state;
static uint64_t random_state;
static struct {
	uint32_t ops, hits, loads, stores, calls, kills, stops, windows, cuts, freezes;
} count;

static uint32_t
draw(uint32_t below)
{
	return (uint32_t)((xorshift(&random_state) >> 20) % below);
}

static bool
one_in(uint32_t n)
{
	return draw(n) == 0;
}

static uint32_t
larger(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static struct peer *
draw_worker(void)
{
	return &peers[1 + draw(n_peers - 1)];
}

static struct fault_actor *
awake(struct peer *p)
{
	if (p->frozen)
		fault_thaw(p->a);
	p->frozen = false;
	return p->a;
}

/* ---- the rules ---- */

/* Whether @s can have come after change @at; @version: of whoever asks, 0: any. */
static bool
is_after(const struct stored *s, uint32_t prompt, uint32_t rank, uint32_t at, uint64_t version)
{
	return !s->never && s->prompt == prompt && s->rank == rank && (is_orderly ? s->first : s->last) >= at &&
	       (version == 0 || changes[s->first].version == version);
}

static void
check_hit(const char *who, uint32_t prompt, uint32_t chunks, uint32_t at, uint64_t version)
{
	count.hits += chunks > 0;
	for (uint32_t i = 0; i < chunks * f.kv_ranks; i++) {
		bool found = false;

		for (uint32_t s = 0; s < n_stored && !found; s++)
			found = stores[s].n > i / f.kv_ranks &&
				is_after(&stores[s], prompt, i % f.kv_ranks, at, version);
		ck_assert_msg(found,
			      "%s hits %u chunks of prompt %u: number %u is of before change %u (lasting %u, here %u)",
			      who, (unsigned)chunks, (unsigned)prompt, (unsigned)(i / f.kv_ranks), (unsigned)at,
			      (unsigned)lasting, (unsigned)here);
	}
}

static void
check_loaded(struct peer *p, const struct job *job, const struct fault_done *done)
{
	uint32_t rank = p->w / f.readers, left = job->blocks - done->n_missing;
	char open[BLOCKS + 1] = "";

	memset(open, '.', job->blocks);
	memcpy(open, done->missing, strlen(done->missing));
	count.loads += left > 0;
	for (uint32_t i = n_stored; i-- > 0 && left > 0;) {
		const struct stored *s = &stores[i];
		const char *pages;

		if (!is_after(s, job->prompt, rank, larger(p->at, job->lasting), changes[p->at].version) ||
		    (!has_versions && s->first != p->at))
			continue;
		pages = fault_ask(p->a, "pages %u %u %u %u 0", (unsigned)p->w, (unsigned)job->page,
				  (unsigned)job->blocks, (unsigned)(NEW_PROMPT + i));
		ck_assert_uint_eq(strlen(pages), job->blocks);
		for (uint32_t b = 0; b < job->blocks; b++) {
			if (open[b] != '.' || pages[b] != 'R')
				continue;
			open[b] = 'R';
			left--;
		}
	}
	ck_assert_msg(left == 0, "worker %u at change %u loaded what is old or wrong: prompt %u, blocks %s, lasting %u",
		      (unsigned)p->w, (unsigned)p->at, (unsigned)job->prompt, open, (unsigned)job->lasting);
}

static void
job_ended(struct peer *p, const struct fault_done *done)
{
	struct job *job = p->jobs;

	while (job < p->jobs + p->n_jobs && job->id != done->job)
		job++;
	ck_assert_ptr_ne(job, p->jobs + p->n_jobs);
	if (job->calls != p->calls)
		ck_assert_msg(done->status != 0 && done->chunks == 0, "a job of before its worker's call ended well");
	else if (done->status == 0 && done->chunks > 0)
		lasting = larger(lasting, changes[p->at].clear);
	if (!job->store && job->calls != p->calls)
		ck_assert_uint_eq(done->n_missing, job->blocks);
	else if (!job->store)
		check_loaded(p, job, done);
	if (job->store && job->store->last == IN_FLIGHT)
		job->store->last = newest;
	if (job->store && job->calls == p->calls)
		job->store->never = done->status == SCOUT_ERR_CLEARED || done->status == SCOUT_ERR_WEIGHTS;
	p->ended = done->status;
	*job = p->jobs[--p->n_jobs];
}

/* ---- what peers do ---- */

static void
collect(struct peer *p)
{
	(void)awake(p);
	if (p->shut)
		(void)fault_ask(p->a, "gate open");
	p->shut = false;
	while (p->n_jobs > 0) {
		struct fault_done done = fault_wait_done(p->a, p->w);

		job_ended(p, &done);
	}
}

static void
store(struct peer *p, uint32_t prompt)
{
	struct stored *s = &stores[n_stored];
	struct job *job = &p->jobs[p->n_jobs];
	uint64_t ticket = 0;

	ck_assert_uint_lt(n_stored, MAX_STORES);
	if (p->n_jobs == MAX_JOBS)
		return;
	*s = (struct stored){prompt, 1 + draw(CHUNKS), p->w / f.readers, p->at, IN_FLIGHT, false};
	if (prompt >= NEW_PROMPT)
		s->n = 2;
	else if (one_in(3) && asked[0].ticket)
		ticket = asked[draw(ASKED)].ticket;
	*job = (struct job){.store = s, .calls = p->calls};
	job->id = fault_number(fault_ask(awake(p), "store %u %u %u %u %u %" PRIu64, (unsigned)p->w, (unsigned)prompt,
					 (unsigned)(NEW_PROMPT + n_stored), (unsigned)s->n,
					 (unsigned)(1 + p->n_stores++ % REGIONS * BLOCKS), ticket));
	n_stored++;
	p->n_jobs++;
	count.stores++;
	if (one_in(2))
		collect(p);
}

static void
retrieve(struct peer *p, uint64_t ticket, uint32_t prompt, uint32_t chunks)
{
	struct job *job = &p->jobs[p->n_jobs];

	if (p->n_jobs == MAX_JOBS || chunks == 0 || (p->n_loads == REGIONS && p->n_jobs > 0))
		return;
	if (p->n_loads == REGIONS) {
		(void)fault_ask(awake(p), "wipe %u", (unsigned)p->w);
		p->n_loads = 0;
	}
	*job = (struct job){.calls = p->calls, .prompt = prompt, .blocks = chunks * FAULT_BPC, .lasting = lasting};
	job->page = FAULT_LOAD_PAGE + p->n_loads++ * BLOCKS;
	job->id = fault_number(fault_ask(awake(p), "retrieve %u %" PRIu64 " 0 %u %u", (unsigned)p->w, ticket,
					 (unsigned)job->blocks, (unsigned)job->page));
	p->n_jobs++;
	if (one_in(2))
		collect(p);
}

static void
finish(uint32_t i)
{
	if (asked[i].live)
		(void)fault_ask(awake(client), "finish r%u", (unsigned)i);
	asked[i].live = false;
}

static struct fault_hit
look(uint32_t prompt)
{
	uint32_t i = n_asked++ % ASKED;
	struct fault_hit hit;
	char id[16];

	finish(i);
	(void)snprintf(id, sizeof(id), "r%u", (unsigned)i);
	hit = fault_look(awake(client), id, prompt, CHUNKS);
	asked[i].ticket = hit.ticket;
	asked[i].prompt = prompt;
	asked[i].chunks = hit.chunks;
	asked[i].live = true;
	check_hit("the client", prompt, hit.chunks, larger(client->at, lasting), changes[client->at].version);
	if (hit.error == 0 && (hit.reason == SCOUT_REASON_HIT || hit.reason == SCOUT_REASON_MISS))
		here = larger(here, changes[client->at].clear);
	return hit;
}

static void
say_reset(struct peer *p, uint64_t version)
{
	if (p->is_client)
		(void)fault_ask(awake(p), "reset %" PRIu64, version);
	else
		(void)fault_ask(awake(p), "wreset %u %" PRIu64, (unsigned)p->w, version);
}

static uint64_t
say_clear(struct peer *p, uint64_t generation)
{
	return fault_number(p->is_client ? fault_ask(awake(p), "clear %" PRIu64, generation)
					 : fault_ask(awake(p), "wclear %u %" PRIu64, (unsigned)p->w, generation));
}

/*
 * @p has called for the changes up to @to, or once more for the last ones. A server that has carried @to out takes stores of a worker
 * that has not called if it has a version.
 */
static void
called(struct peer *p, uint32_t to, bool is_first)
{
	uint32_t last = has_versions && !is_first ? newest : to - 1;

	count.calls++;
	p->calls++;
	for (uint32_t i = 0; i < p->n_jobs && to > p->at; i++)
		if (p->jobs[i].store && p->jobs[i].store->last > last)
			p->jobs[i].store->last = last;
	p->at = to;
	for (uint32_t i = 0; i < ASKED && p->is_client; i++)
		asked[i].live = false;
}

static void
follow(struct peer *p, uint32_t to)
{
	const struct change *c = &changes[to];
	bool resets = c->reset > p->at, clears = c->clear > p->at;

	if (to == p->at)
		return;
	if (resets && (!clears || c->reset < c->clear || one_in(2))) {
		say_reset(p, c->version);
		resets = false;
	}
	if (clears)
		(void)say_clear(p, c->generation);
	if (resets)
		say_reset(p, c->version);
	called(p, to, false);
}

/* The server is up: they find it, after they have called for all changes. A link that was refused by one that stopped waits for a second. */
static void
find_server(bool after_calls)
{
	for (uint32_t i = 0; i < n_peers && after_calls; i++)
		follow(&peers[i], newest);
	wait_until(look(0).reason != SCOUT_REASON_UNREACHABLE)
		;
	for (uint32_t i = 1; i < n_peers; i++) {
		struct peer *p = &peers[i];

		collect(p);
		p->ended = SCOUT_ERR_UNREACHABLE;
		wait_until(p->ended != SCOUT_ERR_UNREACHABLE && p->ended != SCOUT_ERR_EPOCH) {
			retrieve(p, 1, 0, 1);
			collect(p);
		}
	}
	if (after_calls)
		settled = newest;
}

static void
change(struct peer *p)
{
	struct change *c = &changes[newest + 1];

	if (is_orderly && settled != newest && state == UP)
		find_server(true);
	if (newest + 1 == MAX_CHANGES || (is_orderly && settled != newest))
		return;
	follow(p, newest);
	*c = changes[newest++];
	if (has_versions && one_in(2)) {
		c->reset = newest;
		say_reset(p, ++c->version);
	} else {
		c->clear = newest;
		c->generation = say_clear(p, 0);
	}
	called(p, newest, true);
}

/* "Twice is once." */
static void
call_again(struct peer *p)
{
	if (changes[p->at].clear == 0 || p->at != newest)
		return;
	(void)say_clear(p, changes[p->at].generation);
	called(p, p->at, false);
}

/* Peers that know of nothing. */
static void
look_bare(uint32_t prompt)
{
	struct scout__op op = {.opcode = SCOUT_OP_LOOKUP, .kind = SCOUT_KIND_REPLY};
	struct scout__lookup_reply answer = {.hit = 0};
	struct wire_peer bare, worker;
	struct wire_reply *reply;
	const char *field;

	fault_bare_worker(&f, &worker);
	fault_bare_client(&f, &bare);
	reply = wire_wait(&bare, fault_bare_lookup_begin(&bare, 1, prompt, CHUNKS, 0));
	op.length = reply->length;
	op.body = reply->body;
	if (reply->status == SCOUT_WIRE_OK)
		ck_assert_int_eq(scout__get_lookup_reply(&op, &answer, &field), SCOUT_WIRE_OK);
	else
		ck_assert(reply->status == SCOUT_WIRE_CLEARED || reply->status == SCOUT_WIRE_WEIGHTS);
	wire_reply_free(reply);
	check_hit("a client that knows nothing", prompt, answer.hit, larger(lasting, here), 0);
	(void)wire_simple(&bare, SCOUT_OP_FINISH, 1);
	wire_lease_bye(&bare);
	wire_close(&bare);
	wire_lease_bye(&worker);
	wire_close(&worker);
}

/* ---- the servers ---- */

static void
server_up(void)
{
	f.pool_chunks = f.pool_chunks == 64 ? 12 : 64;
	f.l1_bytes = (uint64_t)f.pool_chunks * f.kv_ranks * FAULT_SHARD_BYTES;
	control->ops[SCOUT__L2_RECORD_WRITE].delay_ms =
		one_in(3) ? 20 : 0; /* it is killed between carrying out and recording */
	fault_server_start(&f);
	here = 0;
	state = UP;
}

static void
server_gone(void)
{
	control->ops[SCOUT__L2_STORE].hang = 0;
	fault_server_await_end(&f);
	state = DOWN;
}

/* ---- a game ---- */

static void
peer_up(uint32_t i)
{
	struct peer *p = &peers[i];

	p->a = fault_actor_of(&f, changes[0].version);
	p->is_client = p == client;
	p->w = i > 0 ? i - 1 : 0;
	if (p->is_client)
		(void)fault_ask(p->a, "client");
	else
		(void)fault_ask(p->a, "worker %u", (unsigned)p->w);
}

static void
game_up(uint32_t seed)
{
	static char url[400];
	char path[160];

	random_state = UINT64_C(0x9e3779b97f4a7c15) * (seed + UINT64_C(1));
	(void)draw(2);
	memset(&f, 0, sizeof(f));
	memset(peers, 0, sizeof(peers));
	memset(asked, 0, sizeof(asked));
	memset(&count, 0, sizeof(count));
	n_stored = n_asked = newest = settled = lasting = here = 0;
	state = UP;
	has_versions = seed % 2;
	is_orderly = seed % 4 == 2;
	n_peers = 2 + draw(2);
	f.kv_ranks = n_peers == 3 && one_in(2) ? 2 : 1;
	f.readers = n_peers - 1 > f.kv_ranks ? 2 : 1;
	changes[0] = (struct change){.version = has_versions};
	(void)snprintf(path, sizeof(path), "%s/game-%d-%u", fault_home(), (int)getpid(), (unsigned)seed);
	(void)snprintf(url, sizeof(url), "fault+fs://%s?control=%s.control", path, path);
	(void)snprintf(path + strlen(path), sizeof(path) - strlen(path), ".control");
	control = l2_fault_map(path);
	f.more[0] = "l2";
	f.more[1] = url;
	f.more[2] = "l2_timeout_ms";
	f.more[3] = "20000";
	f.more[4] = "l2_lookup_timeout_ms";
	f.more[5] = "20000";
	f.more[6] = "l2_queue_bytes";
	f.more[7] = "64Mi";
	f.pool_chunks = 64;
	fault_up(&f);
	for (uint32_t i = 0; i < n_peers; i++)
		peer_up(i);
}

static void
freeze(struct peer *p)
{
	if (!p->frozen)
		fault_freeze(p->a);
	p->frozen = true;
}

static void
disturb(struct peer *p)
{
	if (one_in(2)) {
		(void)fault_ask(awake(p), "cut");
		count.cuts++;
	} else if (!p->frozen) {
		freeze(p);
		count.freezes++;
	}
}

/* As engines do: all workers store a prompt, it is looked up, and they load what is a hit. */
static void
serve(uint32_t prompt)
{
	struct fault_hit hit;

	for (uint32_t i = 1; i < n_peers; i++)
		store(&peers[i], prompt);
	for (uint32_t i = 1; i < n_peers && one_in(2); i++)
		collect(&peers[i]);
	hit = look(prompt);
	for (uint32_t i = 1; i < n_peers; i++)
		retrieve(&peers[i], hit.ticket, prompt, hit.chunks);
}

/* What there is in pool and L2, as the client sees it and as others do. */
static void
look_at_all(void)
{
	find_server(false);
	for (uint32_t prompt = 0; prompt < PROMPTS; prompt++) {
		(void)look(prompt);
		look_bare(prompt);
	}
}

/* A stop, most often with a write to finish: until then the server answers SHUTDOWN, also to a call that comes now. */
static void
server_stops(bool has_window)
{
	if (has_window && one_in(2)) {
		find_server(true);
		serve(draw(PROMPTS));
		fault_wait(&f, "l2.writes.waiting", 0);
	}
	control->ops[SCOUT__L2_STORE].hang = has_window;
	if (has_window)
		store(draw_worker(), draw(PROMPTS));
	fault_server_terminate(&f);
	state = STOPPING;
	count.stops++;
	count.windows += has_window;
	if (has_window && !one_in(4))
		change(&peers[draw(n_peers)]);
	if (!has_window)
		server_gone();
}

static void
server_killed(void)
{
	fault_server_kill(&f);
	state = DOWN;
	count.kills++;
}

/* A worker's call was answered, and everyone who knows of it stands still: only its record tells the next server. */
static void
server_killed_with_a_secret(void)
{
	struct peer *p = draw_worker();

	find_server(true);
	serve(draw(PROMPTS));
	fault_wait(&f, "l2.writes.waiting", 0);
	control->ops[SCOUT__L2_RECORD_WRITE].delay_ms = 20;
	change(p);
	store(p, draw(PROMPTS));
	collect(p);
	for (uint32_t i = 0; i < n_peers; i++)
		freeze(&peers[i]);
	server_killed();
	server_up();
	fault_wait(&f, "l2.0.ready", 1);
	for (uint32_t prompt = 0; prompt < PROMPTS; prompt++)
		look_bare(prompt);
}

static void
server_step(void)
{
	if (state == STOPPING) {
		server_gone();
	} else if (state == DOWN) {
		server_up();
		if (!one_in(3))
			look_at_all();
	} else if (one_in(3)) {
		server_killed();
	} else if (one_in(3)) {
		server_killed_with_a_secret();
	} else {
		server_stops(!one_in(3));
	}
}

static void
step(void)
{
	uint32_t n = draw(100), i = draw(ASKED), prompt = draw(PROMPTS);
	struct peer *p = &peers[draw(n_peers)], *worker = draw_worker();

	count.ops++;
	if (one_in(state == UP ? 30 : 6))
		server_step();
	else if (n < 15)
		(void)look(prompt);
	else if (n < 30)
		store(worker, prompt);
	else if (n < 45)
		retrieve(worker, asked[i].ticket, asked[i].prompt, asked[i].chunks);
	else if (n < 50)
		collect(worker);
	else if (n < 65)
		serve(prompt);
	else if (n < 69)
		finish(i);
	else if (n < 72 && !worker->shut) {
		(void)fault_ask(awake(worker), "gate shut");
		worker->shut = true;
	} else if (n < 76)
		change(p);
	else if (n < 90)
		follow(p, p->is_client ? newest : p->at + draw(newest - p->at + 1));
	else if (n < 92)
		call_again(p);
	else if (n < 96)
		disturb(p);
	else if (state == UP && n < 98)
		look_bare(prompt);
	else if (state == UP)
		find_server(one_in(2));
}

/* A hit that @p loads whole; until then, what it is told is checked as ever. */
static void
works_again(struct peer *p, uint32_t prompt)
{
	uint32_t loads = count.loads;
	struct fault_hit hit = {.chunks = 0};

	wait_until(look(0).error ==
		   0) /* it was refused for a version that it, or who named the namespace, has left by now */
		;
	wait_until(hit.chunks == 2 && count.loads > loads) {
		for (uint32_t i = 1; i < n_peers; i++) {
			store(&peers[i], prompt);
			collect(&peers[i]);
			if (stores[n_stored - 1].never)
				n_stored--;
		}
		hit = look(prompt);
		loads = count.loads;
		retrieve(p, hit.ticket, prompt, hit.chunks);
		collect(p);
	}
}

/* Everyone hears of one more change, in any order, whatever the servers did meanwhile. */
static void
end(void)
{
	uint32_t skipped = draw(n_peers);

	if (state == STOPPING)
		server_gone();
	if (state == DOWN)
		server_up();
	change(&peers[draw(n_peers)]);
	for (uint32_t i = 0; i < n_peers; i++)
		follow(&peers[(skipped + i) % n_peers], newest);
	find_server(true);
	for (uint32_t i = 1; i < n_peers; i++)
		works_again(&peers[i], NEW_PROMPT + i);
	for (uint32_t prompt = 0; prompt < PROMPTS; prompt++) {
		ck_assert_uint_eq(look(prompt).chunks, 0);
		look_bare(prompt);
	}
	fault_server_kill(&f);
	server_up();
	fault_wait(&f, "l2.0.ready", 1);
	find_server(true);
	for (uint32_t prompt = 0; prompt < PROMPTS; prompt++)
		look_bare(prompt);
	for (uint32_t i = 1; i < n_peers; i++)
		works_again(&peers[i], NEW_PROMPT + i);
	fault_down(&f);
}

static uint32_t
number_from(const char *name, uint32_t otherwise)
{
	const char *text = getenv(name);

	return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

/* The loop's number is the seed. */
START_TEST(clears_and_resets_agree_with_the_model_over_restarts)
{
	uint32_t steps = number_from("KVSCOUT_MODEL_OPS", is_long() ? 500 : 120);

	game_up((uint32_t)_i);
	while (count.ops < steps)
		step();
	end();
	if (getenv("KVSCOUT_MODEL_STATS"))
		(void)fprintf(
			stderr,
			"seed %d: %u steps, %u hits, %u loads, %u stores, %u calls for %u changes; servers: %u killed, %u "
			"stopped, %u of them with a write to finish; %u connections cut, %u processes frozen\n",
			_i, count.ops, count.hits, count.loads, count.stores, count.calls, newest, count.kills,
			count.stops, count.windows, count.cuts, count.freezes);
}
END_TEST

Suite *
suite_of_this_file(void)
{
	Suite *suite = suite_create("fault_clear_model");
	TCase *tc = tcase_create("model");
	uint32_t only = number_from("KVSCOUT_MODEL_SEED", 0);
	uint32_t seeds = number_from("KVSCOUT_MODEL_SEEDS", is_long() ? 100 : 6);

	fault_make_home();
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, clears_and_resets_agree_with_the_model_over_restarts, only ? (int)only : 1,
			    only ? (int)only + 1 : (int)seeds + 1);
	suite_add_tcase(suite, tc);
	return suite;
}
