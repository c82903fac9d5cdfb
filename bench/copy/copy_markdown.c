/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of a run on a GPU, in Markdown, to be pasted into docs/gpu.md: the goals, GB/s by piece size, and
 * kernels beside. Written anew after each point, to a file beside it that takes its name when it is complete. Main
 * thread only.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "copy_report.h"
#include "machine.h"
#include "say.h"

static void
head(FILE *out, const struct copy_report *report)
{
	const struct copy_gpu_info *info = &report->info;
	char date[MACHINE_TEXT], cpu[MACHINE_TEXT], kernel[MACHINE_TEXT];

	say_to(out, "%.10s, %s%s%s, the driver's CUDA %d.%d, batch copies %s; %s, Linux %s; revision %s.\n",
	       machine_time(date), info->name, info->link[0] ? ", " : "", info->link, info->driver / 1000,
	       info->driver % 1000 / 10, info->has_batch ? "in one call" : "one by one", machine_cpu(cpu),
	       machine_kernel(kernel), machine_revision());
	for (unsigned int i = 0; i < report->n_points; i++) {
		const struct copy_result *result = &report->results[i];

		if (result->status != COPY_MEASURED)
			continue;
		say_to(out,
		       "Each copy moves %" PRIu64
		       " MiB between pages that are spread over %.1f GiB and slots in %.1f GiB of "
		       "sealed memfds.\n",
		       result->total_bytes >> 20, (double)result->pool_bytes / (1 << 30),
		       (double)result->slot_region_bytes / (1 << 30));
		break;
	}
}

static void
goals(FILE *out, const struct copy_report *report)
{
	struct copy_goal list[COPY_MAX_GOALS];
	unsigned int n =
		copy_goals(report->points, report->results, report->n_points, copy_goal_way(report->opt), list);
	char text[96];

	say_to(out, "\n| goal (method `%s`, pieces of 2 KiB and more) | | worst | points |\n|---|---|---|---|\n",
	       copy_way_names[copy_goal_way(report->opt)]);
	for (unsigned int i = 0; i < n; i++) {
		copy_goal_text(&list[i], text, sizeof(text));
		say_to(out, "| %s%s | %s | %s | %u of %u |\n",
		       list[i].is_slowdown ? "at most 2 % slower: " : "at least 95 % of contiguous: ", list[i].name,
		       copy_verdict_name(list[i].verdict), text[0] ? text : "not measured", list[i].n_measured,
		       list[i].n_points);
	}
}

static bool
has_rows(const struct copy_report *report, bool beside, bool layered, bool special, unsigned int course)
{
	for (unsigned int i = 0; i < report->n_points; i++) {
		const struct copy_point *point = &report->points[i];

		if (report->results[i].status == COPY_MEASURED && (point->load != COPY_NO_LOAD) == beside &&
		    point->layered == layered && point->only_auto == special && (unsigned int)point->course == course)
			return true;
	}
	return false;
}

static void
copy_row(FILE *out, const struct copy_report *report, unsigned int i, bool special)
{
	const struct copy_result *result = &report->results[i];
	char size[32], extras[96] = "";

	copy_size_text(size, sizeof(size), report->points[i].piece_bytes);
	if (special)
		copy_extras_text(&report->points[i], extras, sizeof(extras));
	say_to(out, "| %s%s |", size, extras);
	for (unsigned int way = 0; way < COPY_N_WAYS; way++) {
		const struct copy_way_result *got = &result->ways[way];

		if (!got->ran)
			say_to(out, " |");
		else if (way == COPY_CONTIGUOUS)
			say_to(out, " %.1f |", got->gbps.p50);
		else
			say_to(out, " %.1f (%.0f %%) |", got->gbps.p50, got->ratio.p50 * 100);
	}
	say_to(out, "\n");
}

/* Points of one kind; those of the plain table by size. */
static void
copy_table(FILE *out, const struct copy_report *report, unsigned int course, bool layered, bool special)
{
	if (!has_rows(report, false, layered, special, course))
		return;
	say_to(out, "\n%s%s%s: GB/s, median of the rounds (%% of the contiguous copy in the same round)\n\n| piece |",
	       course == COPY_BOTH ? "both at once" : copy_course_names[course], layered ? ", layer by layer" : "",
	       special ? ", other memory and groups" : "");
	for (unsigned int way = 0; way < COPY_N_WAYS; way++)
		say_to(out, " %s |", copy_way_names[way]);
	say_to(out, "\n|---|---|---|---|---|---|\n");
	for (uint64_t piece = 1; piece <= COPY_LARGEST_PIECE; piece++) {
		uint64_t next = COPY_LARGEST_PIECE + 1;

		for (unsigned int i = 0; i < report->n_points; i++) {
			const struct copy_point *point = &report->points[i];

			if (report->results[i].status != COPY_MEASURED || point->load != COPY_NO_LOAD ||
			    point->layered != layered || point->only_auto != special ||
			    (unsigned int)point->course != course)
				continue;
			if (point->piece_bytes == piece)
				copy_row(out, report, i, special);
			if (point->piece_bytes > piece && point->piece_bytes < next)
				next = point->piece_bytes;
		}
		piece = next - 1;
	}
}

static void
beside_row(FILE *out, const struct copy_point *point, unsigned int way, const struct copy_way_result *got)
{
	char size[32];

	copy_size_text(size, sizeof(size), point->piece_bytes);
	say_to(out, "| %s | %s | %s | %.3f / %.3f / %.3f | %.3f / %.3f / %.3f | %+.1f %% | %.1f (%.0f %%) |\n",
	       copy_load_names[point->load], size, copy_way_names[way], got->alone_ms.min, got->alone_ms.p50,
	       got->alone_ms.max, got->beside_ms.min, got->beside_ms.p50, got->beside_ms.max, got->slower.p50,
	       got->gbps.p50, got->ratio.p50 * 100);
}

static void
beside_table(FILE *out, const struct copy_report *report)
{
	bool any = false;

	for (unsigned int i = 0; i < report->n_points; i++) {
		if (report->points[i].load == COPY_NO_LOAD || report->results[i].status != COPY_MEASURED)
			continue;
		if (!any)
			say_to(out,
			       "\nKernels beside copies. The copy counts while the kernel runs; in brackets: of the same copy "
			       "alone.\n\n| kernel | piece | copy | alone, ms: min / p50 / max | beside, ms: min / p50 / max | "
			       "slower | GB/s of the copy |\n|---|---|---|---|---|---|---|\n");
		any = true;
		for (unsigned int way = 0; way < COPY_N_WAYS; way++)
			if (report->results[i].ways[way].ran)
				beside_row(out, &report->points[i], way, &report->results[i].ways[way]);
	}
}

static void
rest(FILE *out, const struct copy_report *report)
{
	unsigned int not_measured = 0;
	uint64_t verified = 0, wrong = 0;
	char size[32], extras[96];

	for (unsigned int i = 0; i < report->n_points; i++) {
		const struct copy_point *point = &report->points[i];
		const struct copy_result *result = &report->results[i];

		verified += result->verified_bytes;
		wrong += result->wrong_bytes;
		not_measured += result->status == COPY_NOT_MEASURED;
		if (result->text[0] == 0)
			continue;
		copy_size_text(size, sizeof(size), point->piece_bytes);
		copy_extras_text(point, extras, sizeof(extras));
		say_to(out, "\n%s: %s %s%s%s%s: %s\n", result->status == COPY_UNAVAILABLE ? "Not run" : "FAILED",
		       copy_course_names[point->course], size, extras, point->load != COPY_NO_LOAD ? " beside " : "",
		       point->load != COPY_NO_LOAD ? copy_load_names[point->load] : "", result->text);
	}
	say_to(out, "\n%.1f GiB verified, %" PRIu64 " bytes wrong; %u of %u points not measured.\n",
	       (double)verified / (1 << 30), wrong, not_measured, report->n_points);
}

void
copy_markdown_write(const struct copy_report *report, const char *path)
{
	char next[4096], why[SAY_ERROR];
	FILE *out;

	if (strlen(path) + 5 > sizeof(next))
		copy_die(EXIT_USAGE, "--markdown: the path is too long");
	(void)snprintf(next, sizeof(next), "%s.new", path);
	out = say_open(next);
	if (!out)
		copy_die(EXIT_WRONG, "cannot write %s: %s", next, say_error(why, errno));
	head(out, report);
	goals(out, report);
	for (unsigned int special = 0; special < 2; special++)
		for (unsigned int layered = 0; layered < 2; layered++)
			for (unsigned int course = 0; course < COPY_N_COURSES; course++)
				copy_table(out, report, course, layered != 0, special != 0);
	beside_table(out, report);
	rest(out, report);
	copy_finish(out, next);
	if (rename(next, path) != 0)
		copy_die(EXIT_WRONG, "cannot write %s: %s", path, say_error(why, errno));
}
