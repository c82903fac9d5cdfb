/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "worker_internal.h"
#include "worker_rig.h"

/*
 * DESIGN
 *
 * A scheduler and up to 8 workers in one process, under commands: one line on stdin, one line on stdout ("ok
 * ..." or "err ..."). With the real libraries, so that killing or stopping it is what happens to an engine.
 *
 *   actor ENDPOINT READERS KV_RANKS HEARTBEAT_MS TRANSFER_TIMEOUT_MS WEIGHTS
 *
 * Worker I is reader I % READERS of KV rank I / READERS. Copies stop at the gate while it is shut. A forked
 * child lives until descriptor 3 ends.
 *
 * Check's assertions are for processes that it runs: of worker_rig.h only what has none is used here.
 *
 * Threads: main; the gate is asked by the copy threads.
 */

#define MAX_WORKERS 8
#define N_BLOCKS 512
#define MAX_ARGS 10
#define CHUNK_TOKENS 64
#define BLOCK_TOKENS 16
#define BPC (CHUNK_TOKENS / BLOCK_TOKENS)
#define LIFE_FD 3

static struct {
	const char *endpoint;
	uint32_t readers, kv_ranks, heartbeat_ms, transfer_timeout_ms;
	uint64_t weights;
	struct scout_client *client;
	struct scout_worker *workers[MAX_WORKERS];
	struct rig_pages pages[MAX_WORKERS];
} me;

static atomic_bool shut;

__attribute__((format(printf, 1, 2))) static void
say(const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	(void)vprintf(fmt, args);
	va_end(args);
	(void)putchar('\n');
	if (fflush(stdout) != 0)
		_exit(3);
}

/* The argument as a number; what is none is a mistake in the test. */
static uint64_t
number(const char *text)
{
	char *end = NULL;
	uint64_t value = strtoull(text, &end, 10);

	if (end == text || *end) {
		say("err \"%s\" is no number", text);
		_exit(2);
	}
	return value;
}

static void *
must_calloc(size_t n, size_t size)
{
	void *p = calloc(n + 1, size);

	if (!p)
		_exit(3);
	return p;
}

static uint8_t *
hashes_of(uint32_t prompt, size_t n)
{
	uint8_t *hashes = must_calloc(n, RIG_HASH);

	for (size_t i = 0; i < n * RIG_HASH; i++)
		hashes[i] = rig_byte(prompt, 77, i / RIG_HASH, 0, i % RIG_HASH);
	return hashes;
}

/* Pages @first, @first + 1, ... */
static int64_t *
page_ids(uint64_t first, size_t n)
{
	int64_t *ids = must_calloc(n, sizeof(*ids));

	for (size_t i = 0; i < n; i++)
		ids[i] = (int64_t)(first + i);
	return ids;
}

static uint32_t
worker_of(const char *text)
{
	uint64_t i = number(text);

	if (i >= MAX_WORKERS || !me.workers[i]) {
		say("err there is no worker %s", text);
		_exit(2);
	}
	return (uint32_t)i;
}

static void
say_error(int rc, const char *text)
{
	say("err %s %s", scout_err_name(rc), text);
}

static void
say_result(int rc, const char *text)
{
	if (rc)
		say_error(rc, text);
	else
		say("ok");
}

/* ---- life ---- */

static void
do_client(char **args)
{
	struct scout_client_config cfg;
	char err[512] = "";
	int rc;

	(void)args;
	scout_client_config_init(&cfg);
	cfg.lookup_timeout_ms = 30000; /* a loaded machine is no reason for a miss */
	cfg.endpoint = me.endpoint;
	cfg.name_space = "rig";
	cfg.chunk_tokens = CHUNK_TOKENS;
	cfg.kv_ranks = me.kv_ranks;
	cfg.readers = me.readers;
	cfg.heartbeat_ms = me.heartbeat_ms;
	cfg.weights_version = me.weights;
	cfg.local_transport = rig_transport();
	cfg.log = rig_log;
	rc = scout_client_new(&cfg, &me.client, err, sizeof(err));
	if (rc == 0)
		rc = scout_client_wait_ready(me.client, wait_limit_ms(), err, sizeof(err));
	say_result(rc, err);
}

static void
do_client_close(char **args)
{
	(void)args;
	scout_client_free(me.client);
	me.client = NULL;
	say("ok");
}

static void
make_pages(struct rig_pages *pages)
{
	static const uint64_t bytes[2] = {1000, 24}, strides[2] = {1024, 32};

	if (pages->n_planes)
		return;
	pages->n_planes = 2;
	pages->n_blocks = N_BLOCKS;
	for (uint32_t i = 0; i < 2; i++)
		pages->planes[i] = (struct scout_plane){must_calloc(N_BLOCKS, strides[i]), strides[i], bytes[i]};
	rig_pages_wipe(pages);
}

static int
start_worker(uint32_t i, char *err, size_t len)
{
	struct rig rig = {
		.chunk_tokens = CHUNK_TOKENS,
		.block_tokens = BLOCK_TOKENS,
		.kv_ranks = me.kv_ranks,
		.readers = me.readers,
		.heartbeat_ms = me.heartbeat_ms,
		.transfer_timeout_ms = me.transfer_timeout_ms,
	};
	struct scout_worker_config cfg;
	struct scout_table layout;
	int rc;

	(void)snprintf(rig.endpoint, sizeof(rig.endpoint), "%s", me.endpoint);
	make_pages(&me.pages[i]);
	rig_worker_config(&rig, i, &cfg);
	cfg.weights_version = me.weights;
	rig_table(&rig, &me.pages[i], &layout);
	rc = scout_worker_new(&cfg, &me.workers[i], err, len);
	if (rc == 0)
		rc = scout_worker_register(me.workers[i], &layout, 1, wait_limit_ms(), err, len);
	return rc;
}

static void
do_worker(char **args)
{
	char err[512] = "";
	uint64_t i = number(args[1]);
	int rc = i < MAX_WORKERS && !me.workers[i] ? start_worker((uint32_t)i, err, sizeof(err)) : SCOUT_ERR_INVALID;

	say_result(rc, err);
}

static void
do_worker_close(char **args)
{
	uint32_t i = worker_of(args[1]);

	scout_worker_free(me.workers[i]);
	me.workers[i] = NULL;
	say("ok");
}

static void
do_exit(char **args)
{
	(void)args;
	atomic_store(&shut, false);
	scout_client_free(me.client);
	for (uint32_t i = 0; i < MAX_WORKERS; i++) {
		scout_worker_free(me.workers[i]);
		rig_pages_fini(&me.pages[i]);
	}
	say("ok");
	exit(0);
}

/* What the libraries say in a forked child is told by the parent; then the child keeps all its descriptors open. */
static void
do_fork(char **args)
{
	struct scout_done done;
	int tell[2], code = 1;
	pid_t pid;

	(void)args;
	if (pipe(tell) != 0)
		_exit(3);
	pid = fork();
	if (pid == 0) {
		char byte;

		if (me.workers[0])
			code = scout_worker_poll(me.workers[0], &done, 1);
		if (write(tell[1], &code, sizeof(code)) != (ssize_t)sizeof(code))
			_exit(3);
		(void)close(STDIN_FILENO);
		(void)close(STDOUT_FILENO);
		while (read(LIFE_FD, &byte, 1) < 0)
			;
		_exit(0);
	}
	if (pid < 0 || read(tell[0], &code, sizeof(code)) != (ssize_t)sizeof(code))
		_exit(3);
	(void)close(tell[0]);
	(void)close(tell[1]);
	say("ok %d %d", (int)pid, code);
}

/* ---- the scheduler ---- */

/* lookup ID PROMPT N PROMPT_TOKENS */
static void
do_lookup(char **args)
{
	size_t n = number(args[3]);
	uint8_t *hashes = hashes_of((uint32_t)number(args[2]), n);
	struct scout_query lookup = {
		.id = args[1],
		.hashes = hashes,
		.hash_len = RIG_HASH,
		.n = n,
		.prompt_tokens = number(args[4]),
	};
	struct scout_hit hit;
	uint64_t begin_us = scout__now_us();
	int rc = scout_wait_lookup(me.client, &lookup, &hit);

	if (rc)
		say_error(rc, "");
	else
		say("ok %" PRIu64 " %u %" PRIu64 " %d %d %" PRIu64, hit.tokens, (unsigned)hit.chunks, hit.ticket,
		    hit.reason, hit.error, scout__now_us() - begin_us);
	free(hashes);
}

static void
do_admit(char **args)
{
	say_result(scout_admit(me.client, args[1], strtoll(args[2], NULL, 10), strtoll(args[3], NULL, 10)), "");
}

static void
do_finish(char **args)
{
	say_result(scout_finish(me.client, args[1]), "");
}

static void
do_reset(char **args)
{
	say_result(scout_reset(me.client, number(args[1])), "");
}

/* clear GENERATION: the generation */
static void
do_clear(char **args)
{
	uint64_t generation = 0;
	int rc = scout_clear(me.client, number(args[1]), &generation);

	if (rc)
		say_error(rc, "");
	else
		say("ok %" PRIu64, generation);
}

/* servers_up epochs unreachable live */
static void
do_stats(char **args)
{
	struct scout_client_counters stats = {0};

	(void)args;
	if (scout_client_stats(me.client, &stats) != 0)
		_exit(3);
	say("ok %u %" PRIu64 " %" PRIu64 " %" PRIu64, (unsigned)stats.servers_up, stats.epochs, stats.unreachable,
	    stats.live);
}

/* ---- workers ---- */

/* store W HASHES_OF BYTES_OF N FIRST_PAGE TICKET */
static void
do_store(char **args)
{
	uint32_t w = worker_of(args[1]);
	size_t n = number(args[4]);
	int64_t *ids = page_ids(number(args[5]), n * BPC);
	uint8_t *hashes = hashes_of((uint32_t)number(args[2]), n);
	struct scout_store store = {
		.ticket = number(args[6]),
		.hashes = hashes,
		.hash_len = RIG_HASH,
		.n = n,
		.blocks = &(struct scout_blocks){.ids = ids, .n = n * BPC},
		.n_groups = 1,
	};
	uint64_t job;
	int rc;

	for (size_t b = 0; b < n * BPC; b++)
		rig_fill(&me.pages[w], ids[b], (uint32_t)number(args[3]), w / me.readers, b);
	rc = scout_worker_store(me.workers[w], &store, &job);
	if (rc)
		say_error(rc, "");
	else
		say("ok %" PRIu64, job);
	free(hashes);
	free(ids);
}

/* retrieve W TICKET FROM_BLOCK N_BLOCKS FIRST_PAGE */
static void
do_retrieve(char **args)
{
	uint32_t w = worker_of(args[1]);
	uint64_t from = number(args[3]);
	size_t n = number(args[4]);
	int64_t *ids = page_ids(number(args[5]), n);
	struct scout_retrieve retrieve = {
		.ticket = number(args[2]),
		.from_token = from * BLOCK_TOKENS,
		.to_token = (from + n) * BLOCK_TOKENS,
		.blocks = &(struct scout_blocks){.first_token = from * BLOCK_TOKENS, .ids = ids, .n = n},
		.n_groups = 1,
	};
	uint64_t job;
	int rc = scout_worker_retrieve(me.workers[w], &retrieve, &job);

	if (rc)
		say_error(rc, "");
	else
		say("ok %" PRIu64, job);
	free(ids);
}

/* Wait while a job is in phase @from, which must become @to. */
static void
wait_phase(char **args, unsigned from, unsigned to)
{
	struct scout_worker *worker = me.workers[worker_of(args[1])];
	struct scout__job *job = &worker->jobs[number(args[2]) & (SCOUT__MAX_JOBS - 1)];
	uint64_t end_us = wait_begin();
	unsigned phase;

	while ((phase = atomic_load(&job->phase)) == from && scout__now_us() < end_us)
		(void)sched_yield();
	if (phase == to)
		say("ok");
	else
		say("err the job is in phase %u", phase);
}

/* enqueued W JOB */
static void
do_enqueued(char **args)
{
	wait_phase(args, SCOUT__PHASE_WAITING, SCOUT__PHASE_ENQUEUED);
}

/* copied W JOB: it was enqueued */
static void
do_copied(char **args)
{
	wait_phase(args, SCOUT__PHASE_ENQUEUED, SCOUT__PHASE_OVER);
}

/* wreset W WEIGHTS */
static void
do_wreset(char **args)
{
	say_result(scout_worker_reset(me.workers[worker_of(args[1])], number(args[2])), "");
}

/* wclear W GENERATION: the generation */
static void
do_wclear(char **args)
{
	uint64_t generation = 0;
	int rc = scout_worker_clear(me.workers[worker_of(args[1])], number(args[2]), &generation);

	if (rc)
		say_error(rc, "");
	else
		say("ok %" PRIu64, generation);
}

/* cut: all connections end, as where a network or a kernel ends them */
static void
do_cut(char **args)
{
	struct sockaddr_un peer;

	(void)args;
	for (int fd = LIFE_FD + 1; fd < 1024; fd++) {
		socklen_t len = sizeof(peer);

		if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0)
			(void)shutdown(fd, SHUT_RDWR);
	}
	say("ok");
}

/* done W: the next job that ends */
static void
do_done(char **args)
{
	struct scout_worker *worker = me.workers[worker_of(args[1])];
	uint64_t end_us = wait_begin();
	char missing[N_BLOCKS + 1] = "";
	struct scout_done done;

	while (scout_worker_poll(worker, &done, 1) != 1) {
		struct pollfd pfd = {.fd = scout_worker_fd(worker), .events = POLLIN};

		if (scout__now_us() > end_us) {
			say("err no job ended");
			return;
		}
		(void)poll(&pfd, 1, 100);
	}
	for (uint32_t i = 0, at = 0; i < done.n_missing; i++) {
		while (at < done.missing[i])
			missing[at++] = '.';
		missing[at++] = 'M';
	}
	say("ok %" PRIu64 " %d %d %u %u %u %u %s", done.job, done.status, done.kind, (unsigned)done.chunks,
	    (unsigned)done.present, (unsigned)done.no_room, (unsigned)done.n_missing, missing);
}

/* ended W: whether a job has */
static void
do_ended(char **args)
{
	say("ok %d", rig_is_readable(me.workers[worker_of(args[1])]));
}

/* pages W FIRST_PAGE N PROMPT FROM_BLOCK: R right, U untouched, W wrong */
static void
do_pages(char **args)
{
	uint32_t w = worker_of(args[1]);
	int64_t first = (int64_t)number(args[2]);
	uint64_t n = number(args[3]), from = number(args[5]);
	uint32_t prompt = (uint32_t)number(args[4]);
	char state[N_BLOCKS + 1] = "";

	for (uint64_t i = 0; i < n && i < N_BLOCKS; i++) {
		int64_t page = first + (int64_t)i;

		state[i] = rig_page_is(&me.pages[w], page, prompt, w / me.readers, from + i) ? 'R'
			   : rig_page_untouched(&me.pages[w], page)                          ? 'U'
											     : 'W';
	}
	say("ok %s", rig_gaps_untouched(&me.pages[w]) ? state : "the gaps between the blocks were written");
}

static void
do_wipe(char **args)
{
	rig_pages_wipe(&me.pages[worker_of(args[1])]);
	say("ok");
}

/* ---- the copy engine ---- */

static bool
is_shut(void *user)
{
	(void)user;
	return atomic_load(&shut);
}

/* gate shut | open */
static void
do_gate(char **args)
{
	struct scout__copy_faults faults = {.gate = is_shut};

	/* Opened it stays in place: a copy thread may still be in it. */
	atomic_store(&shut, strcmp(args[1], "shut") == 0);
	scout__copy_host_faults(&faults);
	say("ok");
}

/* fail N: the n-th item from now on */
static void
do_fail(char **args)
{
	struct scout__copy_faults faults = {.fail_item = number(args[1])};

	scout__copy_host_faults(&faults);
	say("ok");
}

/* ---- commands ---- */

static const struct {
	const char *name;
	int n_args;
	void (*run)(char **args);
} commands[] = {
	{"client", 0, do_client},     {"client_close", 0, do_client_close},
	{"worker", 1, do_worker},     {"worker_close", 1, do_worker_close},
	{"fork", 0, do_fork},         {"exit", 0, do_exit},
	{"lookup", 4, do_lookup},     {"admit", 3, do_admit},
	{"finish", 1, do_finish},     {"reset", 1, do_reset},
	{"stats", 0, do_stats},       {"store", 6, do_store},
	{"retrieve", 5, do_retrieve}, {"enqueued", 2, do_enqueued},
	{"copied", 2, do_copied},     {"wreset", 2, do_wreset},
	{"done", 1, do_done},         {"ended", 1, do_ended},
	{"pages", 5, do_pages},       {"wipe", 1, do_wipe},
	{"gate", 1, do_gate},         {"fail", 1, do_fail},
	{"clear", 1, do_clear},       {"wclear", 2, do_wclear},
	{"cut", 0, do_cut},
};

static void
run(char *line)
{
	char *args[MAX_ARGS] = {NULL};
	char *rest = line, *word;
	int n = 0;

	while (n < MAX_ARGS && (word = strsep(&rest, " \n")) != NULL) {
		if (*word)
			args[n++] = word;
	}
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (n == commands[i].n_args + 1 && strcmp(args[0], commands[i].name) == 0) {
			commands[i].run(args);
			return;
		}
	}
	say("err no such command with %d arguments", n - 1);
}

int
main(int argc, char **argv)
{
	char line[512];

	if (argc != 7)
		return 2;
	me.endpoint = argv[1];
	me.readers = (uint32_t)number(argv[2]);
	me.kv_ranks = (uint32_t)number(argv[3]);
	me.heartbeat_ms = (uint32_t)number(argv[4]);
	me.transfer_timeout_ms = (uint32_t)number(argv[5]);
	me.weights = number(argv[6]);
	say("ok actor");
	while (fgets(line, sizeof(line), stdin))
		run(line);
	return 1; /* the test is gone */
}
