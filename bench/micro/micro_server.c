/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How many lookups the server's loop answers in a second, and how long lookups wait at half of that rate.
 *
 * A bare peer (micro_link.c) sends frames of several LOOKUPs, through shared memory as clients of the same machine
 * do, or with --socket through its DEALER. Prompts are drawn at random from all that are stored. The same frames
 * carry the FINISHes of those that were answered before. So each lookup walks the index, promises every chunk, is
 * answered, and gives all back. Every answer is checked. First the peer sends as fast as answers come, with some
 * frames in flight; then at half of that rate, when frames leave on time whether the server is ready or not, and a
 * lookup's time counts from then. The floor of the loop's work is micro_index: the same index without server and
 * wire.
 *
 * Through the socket at half rate five threads share the cores (this one, the loop, and libzmq's), so p99 shows the
 * kernel's scheduler; through shared memory there are two.
 *
 * The CPU time of the server's loop and of its I/O thread are read apart from /proc/self/task. So "per second of the
 * loop's CPU" is what one core gives to the loop, also where loop, I/O thread and this sender share two cores.
 *
 * Threads: main; those of the embedded server and of the worker that stores.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/server.h>

#include "cli.h"
#include "clock.h"
#include "hist.h"
#include "key_store.h"
#include "micro_link.h"
#include "micro_peer.h"
#include "mix.h"
#include "msg.h"
#include "say.h"
#include "thread_cpu.h"

#define HASH_BYTES 32u
#define CHUNK_TOKENS 16u
#define L1_CHUNK_BYTES 64u
#define SPARE_BYTES (UINT64_C(16) << 20)
#define OPS_MAX 64u
#define FRAMES_MAX 64u
#define BUDGET_US 5000000u

struct micro_batch {
	uint64_t due_ns;
	uint64_t tickets[OPS_MAX];
	uint32_t left; /* lookups that are not answered */
};

struct micro_server {
	uint64_t stored, keys, ops, frames, seconds;
	uint64_t n_prompts;
	uint8_t *hashes;
	struct scout_server *server;
	int loop_tid, io_tid;
	struct micro_link link;
	bool use_socket;
	const char *eviction;
	uint8_t *out;
	size_t out_cap;
	uint64_t random;
	struct micro_batch batches[FRAMES_MAX];
	uint32_t free_batches[FRAMES_MAX], n_free;
	uint64_t *ended; /* tickets to be finished with the next frame */
	uint32_t n_ended;
	uint64_t answered, finished, wrong;
	struct scout__hist times;
};

static uint64_t
cpu_ns(int tid)
{
	uint64_t ns = thread_cpu_ns(tid);

	if (ns == UINT64_MAX)
		die("/proc/self/task: cannot be read");
	return ns;
}

/* ---- what is stored ---- */

static void
start_server(struct micro_server *b)
{
	struct scout_server_config cfg;

	scout_server_config_init(&cfg);
	cfg.l1_bytes = b->stored * L1_CHUNK_BYTES + SPARE_BYTES;
	cfg.max_promised = cfg.l1_bytes;
	cfg.eviction = b->eviction;
	b->server = micro_start_server(&cfg);
}

/* The worker's are gone, and the sender's are not there yet. */
static void
find_threads(struct micro_server *b)
{
	b->loop_tid = thread_cpu_find("scout-server");
	b->io_tid = thread_cpu_find("ZMQbg/IO");
	if (!b->loop_tid || !b->io_tid)
		die("server: its threads are not found");
}

static void
store_all(struct micro_server *b)
{
	struct scout_worker_config cfg;
	struct key_store store = {.is_stopped = NULL};
	char err[256] = "";

	scout_worker_config_init(&cfg);
	cfg.endpoint = scout_server_endpoint(b->server);
	cfg.chunk_tokens = CHUNK_TOKENS;
	cfg.hash_bytes = HASH_BYTES;
	if (key_store_open(&store, &cfg, err, sizeof(err)) < 0 ||
	    key_store_put(&store, b->hashes, b->n_prompts * b->keys, err, sizeof(err)) < 0)
		die("worker: %s", err);
	key_store_close(&store);
}

static void
make_hashes(struct micro_server *b)
{
	size_t bytes = b->n_prompts * b->keys * HASH_BYTES;
	uint64_t word;

	b->hashes = malloc(bytes);
	if (!b->hashes)
		die("start: out of memory");
	for (size_t at = 0; at < bytes; at += sizeof(word)) {
		word = mix64(at / sizeof(word) + MIX_STEP);
		memcpy(b->hashes + at, &word, sizeof(word));
	}
}

/* ---- the wire ---- */

static void
put_lookup(struct micro_server *b, struct scout__writer *w, uint32_t batch, uint32_t op)
{
	uint64_t prompt = mix_next(&b->random) % b->n_prompts;
	struct scout__lookup_msg m = {.ticket = mix_next(&b->random),
				      .n = (uint32_t)b->keys,
				      .tenant = {"", 0},
				      .hashes = b->hashes + prompt * b->keys * HASH_BYTES};
	size_t at =
		scout__op_begin(w, SCOUT_OP_LOOKUP, SCOUT_KIND_REQUEST, 0, (uint64_t)batch << 32 | (op + 1), BUDGET_US);

	scout__put_lookup(w, &m, HASH_BYTES);
	scout__op_end(w, at);
	b->batches[batch].tickets[op] = m.ticket;
}

/* Returns how many operations that is. */
static uint32_t
put_finishes(struct micro_server *b, struct scout__writer *w)
{
	uint32_t n = b->n_ended;

	while (b->n_ended) {
		size_t at = scout__op_begin(w, SCOUT_OP_FINISH, SCOUT_KIND_REQUEST, 0, UINT64_MAX, 0);

		scout__put_finish(w, &(struct scout__finish_msg){.ticket = b->ended[--b->n_ended]});
		scout__op_end(w, at);
	}
	return n;
}

/* One frame: the lookups of a batch, and the end of what was answered. */
static void
send_batch(struct micro_server *b, uint64_t due_ns)
{
	struct scout__writer w = {.buf = b->out, .cap = b->out_cap};
	uint32_t batch = b->free_batches[--b->n_free], n_ops;

	scout__frame_begin(&w);
	n_ops = put_finishes(b, &w);
	b->batches[batch].due_ns = due_ns;
	b->batches[batch].left = (uint32_t)b->ops;
	for (uint32_t op = 0; op < b->ops; op++)
		put_lookup(b, &w, batch, op);
	micro_link_send(&b->link, &w, n_ops + (uint32_t)b->ops);
}

static void
take_answer(struct micro_server *b, const struct scout__op *op, uint64_t now_ns)
{
	struct micro_batch *batch = &b->batches[(op->corr >> 32) % FRAMES_MAX];
	struct scout__lookup_reply reply;
	const char *field;

	if (op->opcode == SCOUT_OP_FINISH) {
		b->finished++;
		b->wrong += op->status != SCOUT_WIRE_OK;
		return;
	}
	if (op->opcode != SCOUT_OP_LOOKUP || op->status != SCOUT_WIRE_OK ||
	    scout__get_lookup_reply(op, &reply, &field) != SCOUT_WIRE_OK)
		die("answer: %s", scout__wire_name(op->status));
	b->wrong += reply.hit != b->keys;
	b->answered++;
	b->ended[b->n_ended++] = batch->tickets[((uint32_t)op->corr - 1) % OPS_MAX];
	scout__hist_add(&b->times, now_ns - batch->due_ns);
	if (--batch->left == 0)
		b->free_batches[b->n_free++] = (uint32_t)(batch - b->batches);
}

static void
take_frame(void *user, const void *data, size_t len)
{
	struct micro_server *b = user;
	uint64_t now_ns = scout__now_ns();
	struct scout__frame frame;
	struct scout__reader ops;
	struct scout__op op;

	if (scout__frame_check(data, len, false, &frame) != SCOUT_WIRE_OK)
		die("answer: malformed");
	ops = scout__frame_ops(data, len);
	while (scout__frame_next(&ops, &op))
		take_answer(b, &op, now_ns);
}

static void
drain(struct micro_server *b)
{
	struct scout__writer w = {.buf = b->out, .cap = b->out_cap};
	uint64_t want;
	uint32_t n;

	while (b->n_free < b->frames)
		micro_link_receive(&b->link, true);
	want = b->answered;
	scout__frame_begin(&w);
	n = put_finishes(b, &w);
	if (n)
		micro_link_send(&b->link, &w, n);
	while (b->finished < want)
		micro_link_receive(&b->link, true);
}

/* ---- measuring ---- */

static void
print(const struct micro_server *b, const char *name, uint64_t wall_ns, uint64_t loop_ns, uint64_t io_ns)
{
	double lookups = (double)b->answered;

	say("%-10s %8.0f lookups/s  %8.0f per second of the loop's CPU  loop %5.1f %%  io %5.1f %%  "
	    "p50 %" PRIu64 "  p99 %" PRIu64 "  p99.9 %" PRIu64 " ns  wrong %" PRIu64 "  (n %" PRIu64 ")\n",
	    name, lookups / ((double)wall_ns / 1e9), lookups / ((double)loop_ns / 1e9),
	    100 * (double)loop_ns / (double)wall_ns, 100 * (double)io_ns / (double)wall_ns,
	    scout__hist_quantile(&b->times, 0.5), scout__hist_quantile(&b->times, 0.99),
	    scout__hist_quantile(&b->times, 0.999), b->wrong, b->answered);
}

/* @rate: lookups per second; 0: as fast as it goes. Returns lookups per second. */
static double
measure(struct micro_server *b, const char *name, double rate)
{
	uint64_t start_ns, now_ns, end_ns, loop_ns = cpu_ns(b->loop_tid), io_ns = cpu_ns(b->io_tid);
	double due_ns;

	b->answered = b->finished = 0;
	scout__hist_init(&b->times);
	start_ns = now_ns = scout__now_ns();
	due_ns = (double)start_ns;
	end_ns = start_ns + b->seconds * UINT64_C(1000000000);
	while (now_ns < end_ns) {
		while (b->n_free && (rate == 0 || due_ns <= (double)now_ns)) {
			send_batch(b, rate == 0 ? now_ns : (uint64_t)due_ns);
			if (rate > 0)
				due_ns += (double)b->ops / rate * 1e9;
		}
		micro_link_receive(&b->link, rate == 0);
		if (rate > 0 && b->n_free)
			micro_link_sleep_until(&b->link, due_ns);
		now_ns = scout__now_ns();
	}
	drain(b);
	now_ns = scout__now_ns();
	print(b, name, now_ns - start_ns, cpu_ns(b->loop_tid) - loop_ns, cpu_ns(b->io_tid) - io_ns);
	return (double)b->answered / ((double)(now_ns - start_ns) / 1e9);
}

static void
run(struct micro_server *b)
{
	struct scout__hello hello = {.role = SCOUT_ROLE_CLIENT,
				     .hash_bytes = HASH_BYTES,
				     .chunk_tokens = CHUNK_TOKENS,
				     .rank_count = 1,
				     .kv_ranks = 1,
				     .readers = 1,
				     .heartbeat_ms = 60000,
				     .token = mix64(4711),
				     .name_space = {"default", 7}};
	double rate;

	scout__hello_one_group(&hello);
	b->n_prompts = b->stored / b->keys;
	b->out_cap = 1024 + OPS_MAX * (b->keys * HASH_BYTES + 256) + (size_t)2 * FRAMES_MAX * OPS_MAX * 64;
	b->out = malloc(b->out_cap);
	b->ended = calloc((size_t)FRAMES_MAX * OPS_MAX, sizeof(*b->ended));
	if (!b->out || !b->ended || b->n_prompts == 0)
		die("start: %s", b->n_prompts ? "out of memory" : "--stored must not be less than --keys");
	for (uint32_t i = 0; i < b->frames; i++)
		b->free_batches[b->n_free++] = i;
	make_hashes(b);
	start_server(b);
	store_all(b);
	find_threads(b);
	b->link.on_frame = take_frame;
	b->link.user = b;
	micro_link_open(&b->link, scout_server_endpoint(b->server), b->use_socket, &hello, b->out_cap);
	say("# %" PRIu64 " chunks stored, %" PRIu64 " keys in a lookup, %" PRIu64 " lookups in a frame, %" PRIu64
	    " frames in flight\n",
	    b->n_prompts * b->keys, b->keys, b->ops, b->frames);
	rate = measure(b, "full", 0);
	(void)measure(b, "half", rate / 2);
	micro_link_close(&b->link);
	scout_server_stop(b->server);
	free(b->hashes);
	free(b->out);
	free(b->ended);
}

int
main(int argc, char **argv)
{
	static struct micro_server b = {
		.stored = 1000000, .keys = 256, .ops = 8, .frames = 8, .seconds = 3, .eviction = "lru"};
	const struct cli_option options[] = {
		CLI_NUMBER("stored", &b.stored, 1, 20000000, "chunks in the index"),
		CLI_NUMBER("keys", &b.keys, 1, 4096, "chunk hashes in a lookup"),
		CLI_NUMBER("ops", &b.ops, 1, OPS_MAX, "lookups in a frame"),
		CLI_NUMBER("frames", &b.frames, 1, FRAMES_MAX, "frames in flight"),
		CLI_TEXT("eviction", "POLICY", &b.eviction, "of the server"),
		CLI_SWITCH("socket", &b.use_socket, "through the socket instead of shared memory"),
		CLI_NUMBER("seconds", &b.seconds, 1, 600, "of each of the two measurements"),
	};
	const struct cli cli = {
		.tool = "micro_server",
		.about = "Lookups per second of the server's loop, promise and finish included.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
	};
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	run(&b);
	return b.wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}
