/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: kvscout-copy on plain memory: how fast does the copy engine move pieces that lie scattered in pages to one
 * contiguous slot, and back?
 *
 * Three ways move the same bytes, one after the other in each round, in an order that rotates, so that what else goes
 * on in the machine meets all of them alike:
 *
 *   engine      through the copy engine: start a batch, wait on its descriptor, poll
 *   scattered   memcpy of piece after piece on this thread, in the same page order
 *   contiguous  one memcpy of as many bytes: what the memory can do
 *
 * The page order is random and never has two neighbours in a row, or the engine would merge them. Before each copy its
 * destination is filled with a wrong pattern, and after it every byte is compared with random data. Neither is in the
 * time; both leave the caches alike for all three. Ratios are taken within a round, then the median of the rounds.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "copy.h"
#include "copy_backends.h"
#include "copy_tool.h"
#include "machine.h"
#include "mix.h"
#include "say.h"

#define MAX_BYTES (UINT64_C(1) << 40)
#define WAIT_MS 60000
#define WRONG 0xa5

enum host_way {
	ENGINE,
	SCATTERED,
	CONTIGUOUS,
	N_WAYS
};

enum host_direction {
	H2D,
	D2H,
	N_DIRECTIONS
};

static const char *const way_names[N_WAYS] = {"engine", "scattered", "contiguous"};
static const char *const direction_names[N_DIRECTIONS] = {"h2d", "d2h"};

struct copy_host {
	struct copy_options opt;
	uint64_t total_bytes;
	uint64_t wrong_bytes;
	uint64_t verified_bytes;
	const struct scout__copy_ops *ops;
	void *engine;
	struct scout__copy_plane plane;
	uint8_t *pages;
	uint8_t *slot;
	uint8_t *random; /* what the source holds, in the source's order */
	int64_t *ids;    /* the page of each piece */
	double gbps[N_DIRECTIONS][N_WAYS][COPY_MAX_REPEAT];
};

static bool
measures(const struct copy_options *opt, enum host_direction direction)
{
	return strcmp(opt->direction, "both") == 0 || strcmp(opt->direction, direction_names[direction]) == 0;
}

static void
bench_init(struct copy_host *bench)
{
	struct scout__copy_config cfg = {.max_batches = 1};
	struct scout__copy_memory memory = {0};
	uint64_t seed = bench->opt.seed, word;
	char err[256] = "";
	int rc;

	if (__builtin_mul_overflow(bench->opt.piece_bytes, bench->opt.pieces, &bench->total_bytes) ||
	    bench->total_bytes > MAX_BYTES)
		copy_die(EXIT_USAGE, "--piece-bytes times --pieces is more than %" PRIu64, (uint64_t)MAX_BYTES);
	bench->pages = copy_alloc(bench->total_bytes);
	bench->slot = copy_alloc(bench->total_bytes);
	bench->random = copy_alloc(bench->total_bytes);
	bench->ids = copy_alloc(bench->opt.pieces * sizeof(*bench->ids));
	copy_shuffle(bench->ids, bench->opt.pieces, &seed);
	for (uint64_t i = 0; i < bench->total_bytes; i += sizeof(word)) {
		word = mix_next(&seed);
		memcpy(bench->random + i, &word, bench->total_bytes - i < 8 ? bench->total_bytes - i : 8);
	}
	bench->plane.base = bench->pages;
	bench->plane.stride = bench->opt.piece_bytes;
	bench->plane.block_bytes = bench->opt.piece_bytes;
	cfg.layout.planes = &bench->plane;
	cfg.layout.n_planes = 1;
	cfg.layout.blocks_per_chunk = (uint32_t)bench->opt.pieces;
	cfg.layout.n_blocks = bench->opt.pieces;
	rc = bench->ops->open(&cfg, &bench->engine, err, sizeof(err));
	if (rc)
		copy_die(EXIT_WRONG, "backend %s: %s (%s)", bench->opt.backend, err, scout_err_name(rc));
	memory = (struct scout__copy_memory){
		.base = bench->slot, .bytes = bench->total_bytes, .stride = bench->total_bytes};
	rc = bench->ops->add_memory(bench->engine, &memory);
	if (rc)
		copy_die(EXIT_WRONG, "backend %s: the slot cannot be registered (%s)", bench->opt.backend,
			 scout_err_name(rc));
}

static void
bench_fini(struct copy_host *bench)
{
	bench->ops->remove_memory(bench->engine, bench->slot);
	bench->ops->close(bench->engine);
	free(bench->ids);
	free(bench->random);
	free(bench->slot);
	free(bench->pages);
}

static void
copy_by_engine(struct copy_host *bench, enum host_direction direction)
{
	struct scout__copy_item item = {bench->slot, bench->ids};
	struct scout__copy_batch batch = {
		.direction = direction == H2D ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, .n = 1, .items = &item};
	struct pollfd pfd = {.fd = bench->ops->fd(bench->engine), .events = POLLIN};
	int rc = bench->ops->start(bench->engine, &batch);

	if (rc)
		copy_die(EXIT_WRONG, "the engine refuses a batch (%s)", scout_err_name(rc));
	while (!bench->ops->poll(bench->engine)) {
		rc = poll(&pfd, 1, WAIT_MS);
		if (rc == 0)
			copy_die(EXIT_WRONG, "the engine did not end a batch in %d ms", WAIT_MS);
	}
	if (batch.status || batch.n_done != 1 || batch.bytes != bench->total_bytes)
		copy_die(EXIT_WRONG, "the engine failed a batch (%s)", scout_err_name(batch.status));
}

static void
copy_scattered(struct copy_host *bench, enum host_direction direction)
{
	const uint64_t bytes = bench->opt.piece_bytes;
	uint8_t *piece = bench->slot, *page;

	for (uint64_t i = 0; i < bench->opt.pieces; i++, piece += bytes) {
		page = bench->pages + (uint64_t)bench->ids[i] * bytes;
		if (direction == H2D)
			memcpy(page, piece, bytes);
		else
			memcpy(piece, page, bytes);
	}
}

static void
copy_contiguous(struct copy_host *bench, enum host_direction direction)
{
	if (direction == H2D)
		memcpy(bench->pages, bench->slot, bench->total_bytes);
	else
		memcpy(bench->slot, bench->pages, bench->total_bytes);
}

static uint64_t
count_wrong(const uint8_t *a, const uint8_t *b, uint64_t n)
{
	uint64_t wrong = 0;

	if (memcmp(a, b, n) == 0)
		return 0;
	for (uint64_t i = 0; i < n; i++)
		wrong += a[i] != b[i];
	return wrong;
}

/* Compares the destination, piece by piece, with what the source holds. */
static void
verify(struct copy_host *bench, enum host_direction direction, bool in_page_order)
{
	const uint64_t bytes = bench->opt.piece_bytes;
	const uint8_t *piece, *page;

	for (uint64_t i = 0; i < bench->opt.pieces; i++) {
		piece = (direction == H2D ? bench->random : bench->slot) + i * bytes;
		page = (direction == H2D ? bench->pages : bench->random) +
		       (in_page_order ? (uint64_t)bench->ids[i] : i) * bytes;
		bench->wrong_bytes += count_wrong(piece, page, bytes);
	}
	bench->verified_bytes += bench->total_bytes;
}

/* Returns GB/s. */
static double
run_one(struct copy_host *bench, enum host_direction direction, enum host_way way)
{
	uint64_t start_ns, end_ns;

	memset(direction == H2D ? bench->pages : bench->slot, WRONG, bench->total_bytes);
	start_ns = scout__now_ns();
	switch (way) {
	case ENGINE:
		copy_by_engine(bench, direction);
		break;
	case SCATTERED:
		copy_scattered(bench, direction);
		break;
	default:
		copy_contiguous(bench, direction);
		break;
	}
	end_ns = scout__now_ns();
	verify(bench, direction, way != CONTIGUOUS);
	return (double)bench->total_bytes / (double)(end_ns > start_ns ? end_ns - start_ns : 1);
}

static void
run_direction(struct copy_host *bench, enum host_direction direction)
{
	enum host_way way;

	memcpy(direction == H2D ? bench->slot : bench->pages, bench->random, bench->total_bytes);
	/* One round that does not count: page faults, the thread's first wakeup. */
	for (unsigned int w = 0; w < N_WAYS; w++)
		(void)run_one(bench, direction, (enum host_way)w);
	for (uint64_t round = 0; round < bench->opt.repeat; round++) {
		for (unsigned int w = 0; w < N_WAYS; w++) {
			way = (enum host_way)((w + round) % N_WAYS);
			bench->gbps[direction][way][round] = run_one(bench, direction, way);
		}
	}
}

/* The engine against another way, round by round. */
static struct spread
ratio(const struct copy_host *bench, enum host_direction direction, enum host_way to)
{
	double ratios[COPY_MAX_REPEAT];

	for (uint64_t i = 0; i < bench->opt.repeat; i++)
		ratios[i] = bench->gbps[direction][ENGINE][i] / bench->gbps[direction][to][i];
	return spread_of(ratios, bench->opt.repeat);
}

static void
print_text(const struct copy_host *bench)
{
	struct spread s;

	say("kvscout-copy: backend %s, method %s, %" PRIu64 " pieces of %" PRIu64 " bytes, %" PRIu64
	    " rounds, build %s\n",
	    bench->opt.backend, bench->opt.method, bench->opt.pieces, bench->opt.piece_bytes, bench->opt.repeat,
	    machine_build_type());
	for (unsigned int d = 0; d < N_DIRECTIONS; d++) {
		if (!measures(&bench->opt, (enum host_direction)d))
			continue;
		for (unsigned int w = 0; w < N_WAYS; w++) {
			s = spread_of(bench->gbps[d][w], bench->opt.repeat);
			say("  %s %-10s %8.2f GB/s  (min %.2f, max %.2f)", direction_names[d], way_names[w], s.p50,
			    s.min, s.max);
			if (w != ENGINE) {
				s = ratio(bench, (enum host_direction)d, (enum host_way)w);
				say("  engine is at %.1f%%  (%.1f to %.1f)", s.p50 * 100, s.min * 100, s.max * 100);
			}
			say("\n");
		}
	}
	say("  %" PRIu64 " bytes verified, %" PRIu64 " wrong\n", bench->verified_bytes, bench->wrong_bytes);
}

static void
json_direction(FILE *out, const struct copy_host *bench, enum host_direction direction)
{
	const uint64_t n = bench->opt.repeat;

	say_to(out, "    \"%s\": {\"gbps\": {", direction_names[direction]);
	for (unsigned int w = 0; w < N_WAYS; w++) {
		say_to(out, "%s", w ? ", " : "");
		copy_json_summary(out, way_names[w], spread_of(bench->gbps[direction][w], n), n);
	}
	say_to(out, "},\n      \"engine_ratio\": {");
	copy_json_summary(out, "scattered", ratio(bench, direction, SCATTERED), n);
	say_to(out, ", ");
	copy_json_summary(out, "contiguous", ratio(bench, direction, CONTIGUOUS), n);
	say_to(out, "}}");
}

static void
print_json(const struct copy_host *bench)
{
	const struct copy_options *opt = &bench->opt;
	FILE *out = say_open(opt->json);
	bool first = true;
	char text[SAY_ERROR];

	if (!out)
		copy_die(EXIT_WRONG, "cannot write %s: %s", opt->json, say_error(text, errno));
	say_to(out, "{\n  \"tool\": \"kvscout-copy\",\n  ");
	copy_json_environment(out);
	say_to(out, ",\n");
	say_to(out,
	       "  \"backend\": \"%s\", \"method\": \"%s\", \"direction\": \"%s\", \"piece_bytes\": %" PRIu64
	       ", \"pieces\": %" PRIu64 ",\n  \"total_bytes\": %" PRIu64 ", \"seed\": %" PRIu64 ", \"repeat\": %" PRIu64
	       ",\n  \"directions\": {\n",
	       opt->backend, opt->method, opt->direction, opt->piece_bytes, opt->pieces, bench->total_bytes, opt->seed,
	       opt->repeat);
	for (unsigned int d = 0; d < N_DIRECTIONS; d++) {
		if (!measures(opt, (enum host_direction)d))
			continue;
		say_to(out, "%s", first ? "" : ",\n");
		json_direction(out, bench, (enum host_direction)d);
		first = false;
	}
	say_to(out, "\n  },\n  \"verified_bytes\": %" PRIu64 ", \"wrong_bytes\": %" PRIu64 "\n}\n",
	       bench->verified_bytes, bench->wrong_bytes);
	copy_finish(out, opt->json);
}

int
copy_host_run(const struct copy_options *opt)
{
	static struct copy_host bench; /* large: all rounds */

	bench.opt = *opt;
	bench.ops = scout__copy_find(opt->backend);
	if (!bench.ops)
		copy_die(EXIT_NOT_HERE, "backend %s: SCOUT_ERR_UNSUPPORTED: not in this build", opt->backend);
	if (strcmp(opt->method, "memcpy") != 0)
		copy_die(EXIT_USAGE, "--method = \"%s\": on the host memcpy alone", opt->method);
	bench_init(&bench);
	for (unsigned int d = 0; d < N_DIRECTIONS; d++) {
		if (measures(&bench.opt, (enum host_direction)d))
			run_direction(&bench, (enum host_direction)d);
	}
	if (opt->json)
		print_json(&bench);
	else
		print_text(&bench);
	bench_fini(&bench);
	if (bench.wrong_bytes)
		copy_die(EXIT_WRONG, "%" PRIu64 " bytes are wrong", bench.wrong_bytes);
	return 0;
}
