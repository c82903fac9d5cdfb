/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN: a run on a GPU, as it goes: a line for each point on standard output, and the same as a line of JSON, both
 * flushed at once, so that a run that is cut off has lost only what it had not measured. At the end the goals, and
 * all as one JSON object. By hand, because the tool needs nothing but libc.
 */
#include "copy_report.h"

#include <errno.h>
#include <inttypes.h>

#include "clock.h"
#include "say.h"

static const char *const status_names[] = {"not measured", "measured", "unavailable", "failed"};

/* ---- a line for people ---- */

static void
say_way(const struct copy_way_result *got, unsigned int way)
{
	if (way == COPY_CONTIGUOUS)
		say(" | %s %.1f", copy_way_names[way], got->gbps.p50);
	else
		say(" | %s %.1f (%.0f %%)", copy_way_names[way], got->gbps.p50, got->ratio.p50 * 100);
}

static void
say_point(const struct copy_report *report, unsigned int i)
{
	const struct copy_point *point = &report->points[i];
	const struct copy_result *result = &report->results[i];
	char size[32], extras[96];

	copy_size_text(size, sizeof(size), point->piece_bytes);
	copy_extras_text(point, extras, sizeof(extras));
	say("[%6.1f s] %s %s%s", (double)(scout__now_us() - report->begin_us) / 1e6, copy_course_names[point->course],
	    size, extras);
	if (result->status != COPY_MEASURED)
		say(": %s: %s", status_names[result->status], result->text);
	for (unsigned int way = 0; way < COPY_N_WAYS && result->status == COPY_MEASURED; way++)
		if (result->ways[way].ran)
			say_way(&result->ways[way], way);
	if (result->status == COPY_MEASURED && result->text[0])
		say(" | FAILED %s", result->text);
	if (result->wrong_bytes)
		say(" | %" PRIu64 " BYTES ARE WRONG", result->wrong_bytes);
	say("  %s\n", copy_verdict_name(copy_judge(point, result, copy_goal_way(report->opt))));
	say_flush();
}

/* ---- JSON ---- */

static void
json_way(FILE *out, const struct copy_way_result *got)
{
	say_to(out, "{");
	copy_json_summary(out, "gbps", got->gbps, got->n);
	say_to(out, ", ");
	copy_json_summary(out, "ratio", got->ratio, got->n);
	say_to(out, "}");
}

static void
json_point(FILE *out, const struct copy_report *report, unsigned int i)
{
	const struct copy_point *point = &report->points[i];
	const struct copy_result *result = &report->results[i];

	say_to(out,
	       "\"point\": %u, \"direction\": \"%s\", \"piece_bytes\": %" PRIu64
	       ", \"layered\": %s, \"slots\": \"%s\", "
	       "\"groups\": %u, \"status\": \"%s\", \"text\": ",
	       i, copy_course_names[point->course], point->piece_bytes, point->layered ? "true" : "false",
	       copy_slots_names[point->slots], point->groups, status_names[result->status]);
	copy_json_string(out, result->text);
	say_to(out,
	       ", \"total_bytes\": %" PRIu64 ", \"pool_bytes\": %" PRIu64 ", \"slot_region_bytes\": %" PRIu64
	       ", \"verified_bytes\": %" PRIu64 ", \"wrong_bytes\": %" PRIu64 ", \"goal\": \"%s\", \"methods\": {",
	       result->total_bytes, result->pool_bytes, result->slot_region_bytes, result->verified_bytes,
	       result->wrong_bytes, copy_verdict_name(copy_judge(point, result, copy_goal_way(report->opt))));
	for (unsigned int way = 0, any = 0; way < COPY_N_WAYS; way++) {
		if (!result->ways[way].ran)
			continue;
		say_to(out, "%s\"%s\": ", any++ ? ", " : "", copy_way_names[way]);
		json_way(out, &result->ways[way]);
	}
	say_to(out, "}");
}

static void
json_run(FILE *out, const struct copy_report *report)
{
	const struct copy_gpu_info *info = &report->info;
	const struct copy_options *opt = report->opt;

	say_to(out, "\"tool\": \"kvscout-copy\", ");
	copy_json_environment(out);
	say_to(out, ", \"backend\": \"cuda\", \"gpu\": ");
	copy_json_string(out, info->name);
	say_to(out, ", \"link\": ");
	copy_json_string(out, info->link);
	say_to(out,
	       ", \"driver\": %d, \"has_batch\": %s, \"gpu_bytes\": %" PRIu64 ", \"seed\": %" PRIu64
	       ", \"method\": \"%s\", \"planned_points\": %u",
	       info->driver, info->has_batch ? "true" : "false", info->total_bytes, opt->seed,
	       copy_way_names[copy_goal_way(opt)], report->n_points);
	say_to(out, ", \"stage_bytes\": %" PRIu64, opt->stage_bytes);
}

static void
json_goals(FILE *out, const struct copy_report *report)
{
	struct copy_goal goals[COPY_MAX_GOALS];
	unsigned int n =
		copy_goals(report->points, report->results, report->n_points, copy_goal_way(report->opt), goals);

	for (unsigned int i = 0; i < n; i++)
		say_to(out,
		       "%s{\"name\": \"%s\", \"verdict\": \"%s\", \"measured\": %u, \"points\": %u, \"worst\": %.4f, "
		       "\"worst_piece_bytes\": %" PRIu64 "}",
		       i ? ", " : "", goals[i].name, copy_verdict_name(goals[i].verdict), goals[i].n_measured,
		       goals[i].n_points, goals[i].worst, goals[i].worst_piece);
}

/* A line is written when it is there. */
static void
end_line(struct copy_report *report)
{
	say_to(report->lines, "}\n");
	(void)fflush(report->lines); /* the stream remembers an error until it is closed */
}

static void
write_json(const struct copy_report *report)
{
	FILE *out = say_open(report->opt->json);
	char why[SAY_ERROR];

	if (!out)
		copy_die(EXIT_WRONG, "cannot write %s: %s", report->opt->json, say_error(why, errno));
	say_to(out, "{");
	json_run(out, report);
	say_to(out, ",\n\"points\": [\n");
	for (unsigned int i = 0; i < report->n_points; i++) {
		say_to(out, "%s{", i ? ",\n" : "");
		json_point(out, report, i);
		say_to(out, "}");
	}
	say_to(out, "],\n\"goals\": [");
	json_goals(out, report);
	say_to(out, "]}\n");
	copy_finish(out, report->opt->json);
}

/* ---- a run ---- */

void
copy_report_begin(struct copy_report *report)
{
	const struct copy_gpu_info *info = &report->info;
	char why[SAY_ERROR];

	if (!report->is_quiet)
		say("kvscout-copy: %s%s%s, the driver's CUDA %d.%d, batch copies %s; %u points planned\n"
		    "each line: GB/s (%% of one contiguous copy in the same round)\n",
		    info->name, info->link[0] ? ", " : "", info->link, info->driver / 1000, info->driver % 1000 / 10,
		    info->has_batch ? "in one call" : "one by one", report->n_points);
	say_flush();
	if (!report->opt->lines)
		return;
	report->lines = say_open(report->opt->lines);
	if (!report->lines)
		copy_die(EXIT_WRONG, "cannot write %s: %s", report->opt->lines, say_error(why, errno));
	say_to(report->lines, "{\"kind\": \"run\", ");
	json_run(report->lines, report);
	end_line(report);
}

void
copy_report_point(struct copy_report *report, unsigned int i)
{
	if (!report->is_quiet)
		say_point(report, i);
	if (report->lines) {
		say_to(report->lines, "{\"kind\": \"point\", ");
		json_point(report->lines, report, i);
		end_line(report);
	}
}

static void
say_goals(const struct copy_report *report)
{
	struct copy_goal goals[COPY_MAX_GOALS];
	unsigned int counts[COPY_INCOMPLETE + 1] = {0};
	unsigned int n =
		copy_goals(report->points, report->results, report->n_points, copy_goal_way(report->opt), goals);
	char text[96];

	say("\ngoals, for method %s and pieces of 2 KiB and more: 95 %% of a contiguous copy\n",
	    copy_way_names[copy_goal_way(report->opt)]);
	for (unsigned int i = 0; i < n; i++) {
		copy_goal_text(&goals[i], text, sizeof(text));
		say("  %-10s %-34s %2u of %2u points%s%s\n", copy_verdict_name(goals[i].verdict), goals[i].name,
		    goals[i].n_measured, goals[i].n_points, text[0] ? "; worst: " : "", text);
		counts[goals[i].verdict]++;
	}
	say("goals: %u passed, %u failed, %u incomplete\n", counts[COPY_PASS], counts[COPY_FAIL],
	    counts[COPY_INCOMPLETE]);
}

static void
say_unmeasured(const struct copy_report *report)
{
	char size[32], extras[96];
	const char *why = report->has_given_up ? "\nnot measured, too many processes failed:"
					       : "\nnot measured, the time was used up:";
	bool any = false;

	for (unsigned int i = 0; i < report->n_points; i++) {
		const struct copy_point *point = &report->points[i];

		if (report->results[i].status != COPY_NOT_MEASURED)
			continue;
		copy_size_text(size, sizeof(size), point->piece_bytes);
		copy_extras_text(point, extras, sizeof(extras));
		say("%s %s %s%s", any ? ";" : why, copy_course_names[point->course], size, extras);
		any = true;
	}
	say("%s", any ? "\n" : "");
}

void
copy_report_end(struct copy_report *report)
{
	if (!report->is_quiet) {
		say_unmeasured(report);
		say_goals(report);
	}
	if (report->lines) {
		say_to(report->lines, "{\"kind\": \"goals\", \"goals\": [");
		json_goals(report->lines, report);
		say_to(report->lines, "]");
		end_line(report);
		copy_finish(report->lines, report->opt->lines);
		report->lines = NULL;
	}
	if (report->opt->json)
		write_json(report);
}
