/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: kvscout-copy measures the copy engine: how fast do pieces that lie scattered in paged memory reach one
 * contiguous slot, and back?
 *
 * Three ways move the same bytes, one after the other in each round, in an order that rotates, so that what else goes on
 * in the machine meets all of them alike:
 *
 *   engine      through the copy engine: start a batch, wait on its descriptor, poll
 *   scattered   memcpy of piece after piece on this thread, in the same page order
 *   contiguous  one memcpy of as many bytes: what the memory can do
 *
 * The page order is random and never has two neighbours in a row, or the engine would merge them. Before each copy its
 * destination is filled with a wrong pattern, and after it every byte is compared with random data. Neither is in the
 * time; both leave the caches alike for all three. Ratios are taken within a round, then the median of the rounds.
 *
 * It needs libc and pthreads only (and, in builds that have it, the CUDA runtime linked statically), so that it runs on a
 * bare GPU machine: hence the JSON by hand.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include <kvscout/error.h>
#include <kvscout/version.h>

#include "clock.h"
#include "copy.h"
#include "copy_tool.h"

/* The build system says which; a build by hand does not know. */
#ifdef SCOUT_BUILD_TYPE
#include "revision.h"
#include "say.h"
#else
#define SCOUT_GIT_REVISION "unknown"
#endif
#ifndef SCOUT_BUILD_TYPE
#define SCOUT_BUILD_TYPE "unknown"
#endif

#define MAX_BYTES (UINT64_C(1) << 40)
#define WAIT_MS 60000
#define WRONG 0xa5

enum way {
	ENGINE,
	SCATTERED,
	CONTIGUOUS,
	N_WAYS
};

enum direction {
	H2D,
	D2H,
	N_DIRECTIONS
};

static const char *const way_names[N_WAYS] = {"engine", "scattered", "contiguous"};
static const char *const direction_names[N_DIRECTIONS] = {"h2d", "d2h"};

static const struct copy_options defaults = {
	.backend = "host",
	.direction = "both",
	.method = "memcpy",
	.total_bytes = 128 << 20,
	.piece_bytes = 64 << 10,
	.pieces = 2048,
	.seed = 1,
	.repeat = 9,
};

struct bench {
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

uint64_t
copy_random(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

/* exit() is called by the only thread there is besides the engine's, which waits. NOLINTBEGIN(concurrency-mt-unsafe) */
static void
usage(FILE *to)
{
	say_to(to,
	       "usage: kvscout-copy [OPTION]...\n"
	       "GB/s of scattered pieces through the copy engine, against plain copies of the same bytes.\n"
	       "\n"
	       "  --backend NAME      host or cuda (default %s)\n"
	       "  --direction WHICH   h2d (slot to pages), d2h (pages to slot) or both (default %s)\n"
	       "  --piece-bytes N     bytes of one piece; K, M, G are powers of 1024 (default %" PRIu64 ")\n"
	       "  --pieces N          pieces in one copy (default %" PRIu64 ")\n"
	       "  --method NAME       how the backend copies; host: memcpy; cuda: staged, batch, direct, auto\n"
	       "                      (default: %s on the host, all of them on cuda)\n"
	       "  --json FILE         write the result as JSON; - is standard output (default: text)\n"
	       "  --sweep             cuda: pieces of 256 bytes to 2 MiB, every method, both directions at once too, and what\n"
	       "                      the copies cost a running matrix product\n"
	       "  --total-bytes N     of one copy of the sweep (default %" PRIu64 ")\n"
	       "  --svg FILE          draw the sweep\n"
	       "  --device N          cuda: which GPU (default %d)\n"
	       "  --devices           print the CUDA devices and end: 0 if there is one, 77 if there is none\n"
	       "  --seed N            of the data and of the page order (default %" PRIu64 ")\n"
	       "  --repeat N          rounds, 1 to %u (default %" PRIu64 ")\n"
	       "  --help              this text\n"
	       "\n"
	       "Exit status: 0, 1 on a failure or wrong bytes, 2 on wrong usage, 77 if this build or machine lacks the backend.\n",
	       defaults.backend, defaults.direction, defaults.piece_bytes, defaults.pieces, defaults.method,
	       defaults.total_bytes, defaults.device, defaults.seed, COPY_MAX_REPEAT, defaults.repeat);
}

void
copy_die(int status, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	/* A cut text is a text; the analyzer knows no va_start. NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	complain("%s", text);
	exit(status);
}

/* A whole number with an optional K, M or G, within @min and @max. */
static uint64_t
parse_number(const char *option, const char *text, uint64_t min, uint64_t max)
{
	static const char suffixes[] = "KMG";
	uint64_t value, factor = 1;
	const char *suffix;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (*end) {
		suffix = strchr(suffixes, *end);
		if (!suffix || end[1])
			copy_die(EXIT_USAGE, "--%s: \"%s\" is not a number", option, text);
		factor = UINT64_C(1) << (10 * (suffix - suffixes + 1));
	}
	if (text[0] < '0' || text[0] > '9' || errno)
		copy_die(EXIT_USAGE, "--%s: \"%s\" is not a number", option, text);
	if (__builtin_mul_overflow(value, factor, &value) || value < min || value > max)
		copy_die(EXIT_USAGE, "--%s: \"%s\" is outside %" PRIu64 "..%" PRIu64, option, text, min, max);
	return value;
}

static void
parse_one(struct copy_options *opt, int c)
{
	switch (c) {
	case 'b':
		opt->backend = optarg;
		break;
	case 'd':
		opt->direction = optarg;
		break;
	case 'p':
		opt->piece_bytes = parse_number("piece-bytes", optarg, 1, MAX_BYTES);
		opt->has_piece_bytes = true;
		break;
	case 'n':
		opt->pieces = parse_number("pieces", optarg, 1, INT32_MAX);
		break;
	case 'm':
		opt->method = optarg;
		opt->has_method = true;
		break;
	case 'j':
		opt->json = optarg;
		break;
	case 's':
		opt->seed = parse_number("seed", optarg, 0, UINT64_MAX);
		break;
	case 'r':
		opt->repeat = parse_number("repeat", optarg, 1, COPY_MAX_REPEAT);
		break;
	case 'w':
		opt->sweep = true;
		break;
	case 't':
		opt->total_bytes = parse_number("total-bytes", optarg, COPY_MIN_TOTAL, COPY_MAX_TOTAL);
		break;
	case 'g':
		opt->svg = optarg;
		break;
	case 'v':
		opt->device = (int)parse_number("device", optarg, 0, 1023);
		break;
	case 'l':
		exit(copy_cuda_devices());
	case 'h':
		usage(stdout);
		exit(0);
	default:
		usage(stderr);
		exit(EXIT_USAGE);
	}
}

static void
parse_options(int argc, char **argv, struct copy_options *opt)
{
	static const struct option names[] = {
		{"backend", required_argument, NULL, 'b'},
		{"direction", required_argument, NULL, 'd'},
		{"piece-bytes", required_argument, NULL, 'p'},
		{"pieces", required_argument, NULL, 'n'},
		{"method", required_argument, NULL, 'm'},
		{"json", required_argument, NULL, 'j'},
		{"seed", required_argument, NULL, 's'},
		{"repeat", required_argument, NULL, 'r'},
		{"sweep", no_argument, NULL, 'w'},
		{"total-bytes", required_argument, NULL, 't'},
		{"svg", required_argument, NULL, 'g'},
		{"device", required_argument, NULL, 'v'},
		{"devices", no_argument, NULL, 'l'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c;

	*opt = defaults;
	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1)
		parse_one(opt, c);
	if (optind < argc)
		copy_die(EXIT_USAGE, "unexpected argument \"%s\"", argv[optind]);
	if (strcmp(opt->backend, "host") != 0 && strcmp(opt->backend, "cuda") != 0)
		copy_die(EXIT_USAGE, "--backend: \"%s\" is neither host nor cuda", opt->backend);
	if (strcmp(opt->direction, "h2d") != 0 && strcmp(opt->direction, "d2h") != 0 &&
	    strcmp(opt->direction, "both") != 0)
		copy_die(EXIT_USAGE, "--direction: \"%s\" is none of h2d, d2h, both", opt->direction);
}

static bool
measures(const struct copy_options *opt, enum direction direction)
{
	return strcmp(opt->direction, "both") == 0 || strcmp(opt->direction, direction_names[direction]) == 0;
}

void *
copy_alloc(uint64_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

	if (!p)
		copy_die(EXIT_WRONG, "out of memory (%" PRIu64 " bytes)", bytes);
	return p;
}

/* A random order in which no page is followed by its neighbour. */
void
copy_shuffle(int64_t *ids, uint64_t n, uint64_t *seed)
{
	bool neighbours = true;
	int64_t swap;
	uint64_t j;

	for (uint64_t i = 0; i < n; i++)
		ids[i] = (int64_t)i;
	for (uint64_t i = n; i > 1; i--) {
		j = copy_random(seed) % i;
		swap = ids[i - 1];
		ids[i - 1] = ids[j];
		ids[j] = swap;
	}
	for (int tries = 0; tries < 100 && neighbours; tries++) {
		neighbours = false;
		for (uint64_t i = 0; i + 1 < n; i++) {
			if (ids[i + 1] != ids[i] + 1)
				continue;
			neighbours = true;
			j = copy_random(seed) % n;
			swap = ids[i];
			ids[i] = ids[j];
			ids[j] = swap;
		}
	}
	/* Of very few pages hardly any order will do; the descending one always does. */
	for (uint64_t i = 0; i < n && neighbours; i++)
		ids[i] = (int64_t)(n - 1 - i);
}

static void
bench_init(struct bench *bench)
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
		word = copy_random(&seed);
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
		copy_die(EXIT_WRONG, "backend %s: %s (%d)", bench->opt.backend, err, rc);
	memory = (struct scout__copy_memory){
		.base = bench->slot, .bytes = bench->total_bytes, .stride = bench->total_bytes};
	rc = bench->ops->add_memory(bench->engine, &memory);
	if (rc)
		copy_die(EXIT_WRONG, "backend %s: the slot cannot be registered (%d)", bench->opt.backend, rc);
}

static void
bench_fini(struct bench *bench)
{
	bench->ops->remove_memory(bench->engine, bench->slot);
	bench->ops->close(bench->engine);
	free(bench->ids);
	free(bench->random);
	free(bench->slot);
	free(bench->pages);
}

static void
copy_by_engine(struct bench *bench, enum direction direction)
{
	struct scout__copy_item item = {bench->slot, bench->ids};
	struct scout__copy_batch batch = {
		.direction = direction == H2D ? SCOUT__COPY_LOAD : SCOUT__COPY_SAVE, .n = 1, .items = &item};
	struct pollfd pfd = {.fd = bench->ops->fd(bench->engine), .events = POLLIN};
	int rc = bench->ops->start(bench->engine, &batch);

	if (rc)
		copy_die(EXIT_WRONG, "the engine refuses a batch (%d)", rc);
	while (!bench->ops->poll(bench->engine)) {
		rc = poll(&pfd, 1, WAIT_MS);
		if (rc == 0)
			copy_die(EXIT_WRONG, "the engine did not end a batch in %d ms", WAIT_MS);
	}
	if (batch.status || batch.n_done != 1 || batch.bytes != bench->total_bytes)
		copy_die(EXIT_WRONG, "the engine failed a batch (%d)", batch.status);
}

static void
copy_scattered(struct bench *bench, enum direction direction)
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
copy_contiguous(struct bench *bench, enum direction direction)
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
verify(struct bench *bench, enum direction direction, bool in_page_order)
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
run_one(struct bench *bench, enum direction direction, enum way way)
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
run_direction(struct bench *bench, enum direction direction)
{
	enum way way;

	memcpy(direction == H2D ? bench->slot : bench->pages, bench->random, bench->total_bytes);
	/* One round that does not count: page faults, the thread's first wakeup. */
	for (unsigned int w = 0; w < N_WAYS; w++)
		(void)run_one(bench, direction, (enum way)w);
	for (uint64_t round = 0; round < bench->opt.repeat; round++) {
		for (unsigned int w = 0; w < N_WAYS; w++) {
			way = (enum way)((w + round) % N_WAYS);
			bench->gbps[direction][way][round] = run_one(bench, direction, way);
		}
	}
}

static int
compare_doubles(const void *a, const void *b)
{
	double x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	return (x > y) - (x < y);
}

struct copy_summary
copy_summarize(const double *values, uint64_t n)
{
	double sorted[COPY_MAX_REPEAT];

	memcpy(sorted, values, n * sizeof(*sorted));
	qsort(sorted, n, sizeof(*sorted), compare_doubles);
	return (struct copy_summary){sorted[0], n & 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2,
				     sorted[n - 1]};
}

/* The engine against another way, round by round. */
static struct copy_summary
ratio(const struct bench *bench, enum direction direction, enum way to)
{
	double ratios[COPY_MAX_REPEAT];

	for (uint64_t i = 0; i < bench->opt.repeat; i++)
		ratios[i] = bench->gbps[direction][ENGINE][i] / bench->gbps[direction][to][i];
	return copy_summarize(ratios, bench->opt.repeat);
}

static void
print_text(const struct bench *bench)
{
	struct copy_summary s;

	say("kvscout-copy: backend %s, method %s, %" PRIu64 " pieces of %" PRIu64 " bytes, %" PRIu64
	    " rounds, build %s\n",
	    bench->opt.backend, bench->opt.method, bench->opt.pieces, bench->opt.piece_bytes, bench->opt.repeat,
	    SCOUT_BUILD_TYPE);
	for (unsigned int d = 0; d < N_DIRECTIONS; d++) {
		if (!measures(&bench->opt, (enum direction)d))
			continue;
		for (unsigned int w = 0; w < N_WAYS; w++) {
			s = copy_summarize(bench->gbps[d][w], bench->opt.repeat);
			say("  %s %-10s %8.2f GB/s  (min %.2f, max %.2f)", direction_names[d], way_names[w], s.p50,
			    s.min, s.max);
			if (w != ENGINE) {
				s = ratio(bench, (enum direction)d, (enum way)w);
				say("  engine is at %.1f%%  (%.1f to %.1f)", s.p50 * 100, s.min * 100, s.max * 100);
			}
			say("\n");
		}
	}
	say("  %" PRIu64 " bytes verified, %" PRIu64 " wrong\n", bench->verified_bytes, bench->wrong_bytes);
}

void
copy_json_string(FILE *out, const char *text)
{
	say_to(out, "\"");
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			say_to(out, "\\%c", *text);
		else if ((unsigned char)*text < 0x20)
			say_to(out, "\\u%04x", (unsigned char)*text);
		else
			say_to(out, "%c", *text);
	}
	say_to(out, "\"");
}

void
copy_json_summary(FILE *out, const char *name, struct copy_summary s, uint64_t n)
{
	say_to(out, "\"%s\": {\"n\": %" PRIu64 ", \"min\": %.4f, \"p50\": %.4f, \"max\": %.4f}", name, n, s.min, s.p50,
	       s.max);
}

static void
json_cpu(FILE *out)
{
	char line[512] = "", *value = NULL;
	FILE *info = fopen("/proc/cpuinfo", "r");

	while (info && fgets(line, sizeof(line), info)) {
		if (strncmp(line, "model name", 10) == 0 && (value = strchr(line, ':')) != NULL)
			break;
	}
	if (info)
		(void)fclose(info); /* only read */
	if (value) {
		value += strspn(value, ": \t");
		value[strcspn(value, "\n")] = 0;
	}
	copy_json_string(out, value ? value : "unknown");
}

void
copy_json_environment(FILE *out)
{
	struct utsname uts;

	say_to(out, "  \"environment\": {\"version\": \"" SCOUT_VERSION_STRING "\", \"revision\": ");
	copy_json_string(out, SCOUT_GIT_REVISION);
	say_to(out, ", \"build_type\": ");
	copy_json_string(out, SCOUT_BUILD_TYPE);
	say_to(out, ", \"compiler\": ");
	copy_json_string(out, __VERSION__);
	say_to(out, ", \"cpu\": ");
	json_cpu(out);
	say_to(out, ", \"kernel\": ");
	copy_json_string(out, uname(&uts) == 0 ? uts.release : "unknown");
	say_to(out, "},\n");
}

static void
json_direction(FILE *out, const struct bench *bench, enum direction direction)
{
	const uint64_t n = bench->opt.repeat;

	say_to(out, "    \"%s\": {\"gbps\": {", direction_names[direction]);
	for (unsigned int w = 0; w < N_WAYS; w++) {
		say_to(out, "%s", w ? ", " : "");
		copy_json_summary(out, way_names[w], copy_summarize(bench->gbps[direction][w], n), n);
	}
	say_to(out, "},\n      \"engine_ratio\": {");
	copy_json_summary(out, "scattered", ratio(bench, direction, SCATTERED), n);
	say_to(out, ", ");
	copy_json_summary(out, "contiguous", ratio(bench, direction, CONTIGUOUS), n);
	say_to(out, "}}");
}

static void
print_json(const struct bench *bench)
{
	const struct copy_options *opt = &bench->opt;
	FILE *out = say_open(opt->json);
	bool first = true;
	char text[SAY_ERROR];
	int error;

	if (!out)
		copy_die(EXIT_WRONG, "cannot write %s: %s", opt->json, say_error(text, errno));
	say_to(out, "{\n  \"tool\": \"kvscout-copy\",\n");
	copy_json_environment(out);
	say_to(out,
	       "  \"backend\": \"%s\", \"method\": \"%s\", \"direction\": \"%s\", \"piece_bytes\": %" PRIu64
	       ", \"pieces\": %" PRIu64 ",\n  \"total_bytes\": %" PRIu64 ", \"seed\": %" PRIu64 ", \"repeat\": %" PRIu64
	       ",\n  \"directions\": {\n",
	       opt->backend, opt->method, opt->direction, opt->piece_bytes, opt->pieces, bench->total_bytes, opt->seed,
	       opt->repeat);
	for (unsigned int d = 0; d < N_DIRECTIONS; d++) {
		if (!measures(opt, (enum direction)d))
			continue;
		say_to(out, "%s", first ? "" : ",\n");
		json_direction(out, bench, (enum direction)d);
		first = false;
	}
	say_to(out, "\n  },\n  \"verified_bytes\": %" PRIu64 ", \"wrong_bytes\": %" PRIu64 "\n}\n",
	       bench->verified_bytes, bench->wrong_bytes);
	error = say_close(out);
	if (error)
		copy_die(EXIT_WRONG, "cannot write %s: %s", opt->json, say_error(text, error));
}

int
main(int argc, char **argv)
{
	static struct bench bench; /* large: all rounds */

	say_begin("kvscout-copy");
	parse_options(argc, argv, &bench.opt);
	if (strcmp(bench.opt.backend, "cuda") == 0)
		return copy_cuda_run(&bench.opt);
	bench.ops = scout__copy_find(bench.opt.backend);
	if (!bench.ops)
		copy_die(EXIT_NOT_HERE, "backend %s: SCOUT_ERR_UNSUPPORTED: not in this build", bench.opt.backend);
	if (strcmp(bench.opt.method, "memcpy") != 0)
		copy_die(EXIT_USAGE, "--method: backend %s has only memcpy", bench.opt.backend);
	bench_init(&bench);
	for (unsigned int d = 0; d < N_DIRECTIONS; d++) {
		if (measures(&bench.opt, (enum direction)d))
			run_direction(&bench, (enum direction)d);
	}
	if (bench.opt.json)
		print_json(&bench);
	else
		print_text(&bench);
	bench_fini(&bench);
	if (bench.wrong_bytes)
		copy_die(EXIT_WRONG, "%" PRIu64 " bytes are wrong", bench.wrong_bytes);
	return 0;
}
/* NOLINTEND(concurrency-mt-unsafe) */
