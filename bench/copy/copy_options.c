/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of kvscout-copy. */
#include "cli.h"
#include "copy_tool.h"

#define MAX_BYTES (UINT64_C(1) << 40)

static const char notes[] =
	"The options from --sweep on are for cuda. Without --piece-bytes, cuda makes a sweep.\n"
	"\n"
	"Exit status: 0, 1 on a failure or wrong bytes, 2 on wrong usage, 77 if this build or machine lacks the backend. A\n"
	"goal that is missed is printed as FAIL and is no failure of this program.\n";

static const struct copy_options defaults = {
	.total_bytes = 256 << 20,
	.piece_bytes = 64 << 10,
	.pieces = 2048,
	.seed = 1,
	.repeat = 9,
};

bool
copy_options_parse(struct copy_options *opt, int argc, char **argv, int *ret_status)
{
	static const char *const backends[] = {"host", "cuda", NULL};
	static const char *const directions[] = {"h2d", "d2h", "both", NULL};
	static const char *const methods[] = {"memcpy", "staged", "batch", "auto", NULL};
	unsigned int backend = 0, direction = 2, method = 0;
	uint64_t device = 0;
	bool devices = false;
	const struct cli_option options[] = {
		CLI_WORDS("backend", &backend, backends, "what copies"),
		CLI_WORDS("direction", &direction, directions,
			  "h2d: slot to pages; d2h: pages to slot; on cuda both measures each and both at once"),
		CLI_BYTES("piece-bytes", &opt->piece_bytes, 1, MAX_BYTES, "of one piece"),
		CLI_NUMBER("pieces", &opt->pieces, 1, INT32_MAX, "pieces in one copy; on cuda see --total-bytes"),
		CLI_WORDS("method", &method, methods,
			  "how the backend copies; host: memcpy; cuda: the others, and without it all of them"),
		CLI_TEXT("json", "FILE|-", &opt->json, "write the result as JSON; - is standard output"),
		CLI_NUMBER("seed", &opt->seed, 0, UINT64_MAX, "of the data and of the page order"),
		CLI_NUMBER("repeat", &opt->repeat, 1, COPY_MAX_REPEAT,
			   "rounds; without it 5 on cuda, and 3 with --quick"),
		CLI_SWITCH("sweep", &opt->sweep,
			   "pieces of 256 bytes to 2 MiB, by layers, in other memory and in groups"),
		CLI_SWITCH("quick", &opt->quick, "a shorter sweep"),
		CLI_NUMBER("budget-s", &opt->budget_s, 0, 86400,
			   "begin no new point after so many seconds; 0: no limit"),
		CLI_NUMBER("groups", &opt->groups, 0, COPY_MAX_GROUPS,
			   "layouts of other pieces in each copy; 0: as the sweep plans"),
		CLI_BYTES("total-bytes", &opt->total_bytes, COPY_MIN_TOTAL, COPY_MAX_TOTAL, "of one copy"),
		CLI_BYTES("pool-bytes", &opt->pool_bytes, COPY_MIN_TOTAL, MAX_BYTES,
			  "GPU memory that the pages are spread over; without it 17 GiB, or half of what is free"),
		CLI_BYTES("stage-bytes", &opt->stage_bytes, 0, UINT64_C(16) << 30,
			  "staging memory for each direction; 0: 128 MiB; key stage_bytes"),
		CLI_TEXT("lines", "FILE", &opt->lines, "write each result as a line of JSON as soon as it is there"),
		CLI_NUMBER("device", &device, 0, 1023, "which GPU"),
		CLI_SWITCH("devices", &devices, "print the GPUs and end: 0 if there is one, 77 if there is none"),
	};
	bool given[sizeof(options) / sizeof(options[0])] = {false};
	const struct cli cli = {
		.tool = "kvscout-copy",
		.about = "GB/s of scattered pieces through the copy engine, against plain copies of the same bytes.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
		.given = given,
		.notes = notes,
	};

	*opt = defaults;
	if (!cli_parse(&cli, argc, argv, ret_status))
		return false;
	opt->backend = backends[backend];
	opt->direction = directions[direction];
	opt->method = methods[method];
	opt->device = (int)device;
	opt->has_piece_bytes = cli_is_given(&cli, "piece-bytes");
	opt->has_pieces = cli_is_given(&cli, "pieces");
	opt->has_method = cli_is_given(&cli, "method");
	opt->has_repeat = cli_is_given(&cli, "repeat");
	if (devices)
		*ret_status = copy_cuda_devices();
	return !devices;
}
