/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of kvscout-copy share: errors, random numbers, summaries, JSON by hand. Main thread only. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/version.h>

#include "copy_tool.h"
#include "machine.h"
#include "mix.h"
#include "say.h"

/* exit() is called by the only thread there is besides the engine's, which waits. NOLINTBEGIN(concurrency-mt-unsafe) */
void (*copy_on_death)(int status, const char *text);

void
copy_die(int status, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	/* A cut text is a text; the analyzer knows no va_start. NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (copy_on_death)
		copy_on_death(status, text);
	complain("%s", text);
	exit(status);
}

/* NOLINTEND(concurrency-mt-unsafe) */

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
		j = mix_next(seed) % i;
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
			j = mix_next(seed) % n;
			swap = ids[i];
			ids[i] = ids[j];
			ids[j] = swap;
		}
	}
	/* Of very few pages hardly any order will do; the descending one always does. */
	for (uint64_t i = 0; i < n && neighbours; i++)
		ids[i] = (int64_t)(n - 1 - i);
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
copy_json_summary(FILE *out, const char *name, struct spread s, uint64_t n)
{
	say_to(out, "\"%s\": {\"n\": %" PRIu64 ", \"min\": %.4f, \"p50\": %.4f, \"max\": %.4f}", name, n, s.min, s.p50,
	       s.max);
}

void
copy_json_environment(FILE *out)
{
	char text[MACHINE_TEXT];

	say_to(out, "\"environment\": {\"version\": \"" SCOUT_VERSION_STRING "\", \"revision\": ");
	copy_json_string(out, machine_revision());
	say_to(out, ", \"build_type\": ");
	copy_json_string(out, machine_build_type());
	say_to(out, ", \"compiler\": ");
	copy_json_string(out, __VERSION__);
	say_to(out, ", \"cpu\": ");
	copy_json_string(out, machine_cpu(text));
	say_to(out, ", \"kernel\": ");
	copy_json_string(out, machine_kernel(text));
	say_to(out, "}");
}

void
copy_size_text(char *buf, size_t len, uint64_t bytes)
{
	if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
		(void)snprintf(buf, len, "%" PRIu64 " MiB", bytes >> 20);
	else if (bytes >= 1024 && bytes % 1024 == 0)
		(void)snprintf(buf, len, "%" PRIu64 " KiB", bytes >> 10);
	else
		(void)snprintf(buf, len, "%" PRIu64 " B", bytes);
}

void
copy_finish(FILE *out, const char *path)
{
	int error = say_close(out);
	char text[SAY_ERROR];

	if (error)
		copy_die(EXIT_WRONG, "cannot write %s: %s", path, say_error(text, error));
}
