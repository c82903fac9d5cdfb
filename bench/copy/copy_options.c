/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of kvscout-copy. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "copy_tool.h"
#include "say.h"

#define MAX_BYTES (UINT64_C(1) << 40)

static const struct copy_options defaults = {
	.backend = "host",
	.direction = "both",
	.method = "memcpy",
	.total_bytes = 256 << 20,
	.piece_bytes = 64 << 10,
	.pieces = 2048,
	.seed = 1,
	.repeat = 9,
};

/* Main thread, before there are others. NOLINTBEGIN(concurrency-mt-unsafe) */
static void
usage(FILE *to)
{
	say_to(to,
	       "usage: kvscout-copy [OPTION]...\n"
	       "GB/s of scattered pieces through the copy engine, against plain copies of the same bytes.\n"
	       "\n"
	       "  --backend NAME      host or cuda (default %s)\n"
	       "  --direction WHICH   h2d (slot to pages), d2h (pages to slot) or both (default %s); on cuda both measures each\n"
	       "                      and both at once\n"
	       "  --piece-bytes N     bytes of one piece; K, M, G are powers of 1024 (default %" PRIu64
	       "; on cuda a sweep)\n"
	       "  --pieces N          pieces in one copy (default %" PRIu64 "; on cuda see --total-bytes)\n"
	       "  --method NAME       how the backend copies; host: memcpy; cuda: staged, batch, direct, auto\n"
	       "                      (default: %s on the host, all of them on cuda)\n"
	       "  --json FILE         write the result as JSON; - is standard output (default: text)\n"
	       "  --seed N            of the data and of the page order (default %" PRIu64 ")\n"
	       "  --repeat N          rounds, 1 to %u (default %" PRIu64 "; on cuda 5, with --quick 3)\n"
	       "  --help              this text\n"
	       "\n"
	       "On cuda:\n"
	       "  --sweep             pieces of 256 bytes to 2 MiB, by layers, in other memory, in groups and beside kernels\n"
	       "  --quick             a shorter sweep\n"
	       "  --budget-s N        begin no new point after so many seconds (default 0: no limit)\n"
	       "  --groups N          layouts of other pieces in each copy, 1 to %u (default: as the sweep plans)\n"
	       "  --total-bytes N     of one copy (default %" PRIu64 ")\n"
	       "  --pool-bytes N      GPU memory that the pages are spread over (default 17 GiB, or half of what is free)\n"
	       "  --lines FILE        write each result as a line of JSON as soon as it is there\n"
	       "  --markdown FILE     tables, written anew after each result\n"
	       "  --device N          which GPU (default %d)\n"
	       "  --devices           print the GPUs and end: 0 if there is one, 77 if there is none\n"
	       "\n"
	       "Exit status: 0, 1 on a failure or wrong bytes, 2 on wrong usage, 77 if this build or machine lacks the backend. A\n"
	       "goal that is missed is printed as FAIL and is no failure of this program.\n",
	       defaults.backend, defaults.direction, defaults.piece_bytes, defaults.pieces, defaults.method,
	       defaults.seed, COPY_MAX_REPEAT, defaults.repeat, COPY_MAX_GROUPS, defaults.total_bytes, defaults.device);
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

/* Options of the cuda backend; false: it is none. */
static bool
parse_cuda(struct copy_options *opt, int c)
{
	switch (c) {
	case 'w':
		opt->sweep = true;
		return true;
	case 'q':
		opt->quick = true;
		return true;
	case 'u':
		opt->budget_s = parse_number("budget-s", optarg, 0, 86400);
		return true;
	case 'G':
		opt->groups = parse_number("groups", optarg, 1, COPY_MAX_GROUPS);
		return true;
	case 't':
		opt->total_bytes = parse_number("total-bytes", optarg, COPY_MIN_TOTAL, COPY_MAX_TOTAL);
		return true;
	case 'o':
		opt->pool_bytes = parse_number("pool-bytes", optarg, COPY_MIN_TOTAL, MAX_BYTES);
		return true;
	case 'i':
		opt->lines = optarg;
		return true;
	case 'k':
		opt->markdown = optarg;
		return true;
	case 'v':
		opt->device = (int)parse_number("device", optarg, 0, 1023);
		return true;
	default:
		return false;
	}
}

static void
parse_one(struct copy_options *opt, int c)
{
	if (parse_cuda(opt, c))
		return;
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
		opt->has_pieces = true;
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
		opt->has_repeat = true;
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

void
copy_options_parse(int argc, char **argv, struct copy_options *opt)
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
		{"device", required_argument, NULL, 'v'},
		{"devices", no_argument, NULL, 'l'},
		{"quick", no_argument, NULL, 'q'},
		{"budget-s", required_argument, NULL, 'u'},
		{"groups", required_argument, NULL, 'G'},
		{"pool-bytes", required_argument, NULL, 'o'},
		{"lines", required_argument, NULL, 'i'},
		{"markdown", required_argument, NULL, 'k'},
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
/* NOLINTEND(concurrency-mt-unsafe) */
