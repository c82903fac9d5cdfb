/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz.h"

/*
 * Runs a fuzz target over files and the files of directories: the corpus as a test, where there is no libFuzzer. A
 * target that finds a fault aborts. It fails too when no input ran, so that a wrong path cannot look like success.
 */

static int
run_file(const char *path, size_t size)
{
	uint8_t *data = malloc(size > 0 ? size : 1);
	FILE *file = fopen(path, "rb");
	size_t got = data && file ? fread(data, 1, size, file) : 0;
	int whole = data && file && got == size;

	if (file)
		(void)fclose(file); /* only read */
	if (whole)
		(void)LLVMFuzzerTestOneInput(data, size); /* always 0 by libFuzzer's contract */
	else
		(void)fprintf(stderr, "cannot read %s\n", path);
	free(data);
	return whole ? 1 : -1;
}

/* How many inputs ran, or -1 if one could not be read. */
static int
run_path(const char *path, int depth)
{
	struct dirent *entry;
	struct stat st;
	int total = 0;
	DIR *dir;

	if (stat(path, &st) == 0 && S_ISREG(st.st_mode))
		return run_file(path, (size_t)st.st_size);
	dir = depth > 0 ? opendir(path) : NULL;
	if (!dir) {
		(void)fprintf(stderr, "cannot read %s\n", path);
		return -1;
	}
	while (total >= 0 && (entry = readdir(dir))) {
		char name[4096];
		int len = snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
		int ran;

		if (entry->d_name[0] == '.')
			continue;
		ran = len > 0 && (size_t)len < sizeof(name) ? run_path(name, depth - 1) : -1;
		total = ran < 0 ? -1 : total + ran;
	}
	(void)closedir(dir);
	return total;
}

int
main(int argc, char **argv)
{
	int total = 0;

	for (int i = 1; i < argc; i++) {
		int ran = run_path(argv[i], 8);

		if (ran < 0)
			return EXIT_FAILURE;
		total += ran;
	}
	(void)printf("%d inputs\n", total);
	return total > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
