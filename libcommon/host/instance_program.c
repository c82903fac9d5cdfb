/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Where kvscoutd is. The parts of one installation lie together, so the first look is around the object that this code is in: a wheel has
 * kvscoutd next to its extension, a distribution has it in a bin folder two or three levels above its library. PATH comes last, since it
 * may name the kvscoutd of another installation; in a setuid program it does not count.
 *
 * Threads: any; no state.
 */
#include "instance_program.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "log.h"

static const char name[] = "kvscoutd";

static bool
is_program(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* The file that holds this code: a library, an extension, or the program itself. Empty: unknown. */
static void
own_file(char path[PATH_MAX])
{
	Dl_info info;
	ssize_t n;

	path[0] = '\0';
	if (dladdr(name, &info) != 0 && info.dli_fname && info.dli_fname[0] == '/' && realpath(info.dli_fname, path))
		return;
	/* For a program, dladdr() returns the name by which it was called. */
	n = readlink("/proc/self/exe", path, PATH_MAX - 1);
	path[n > 0 ? n : 0] = '\0';
}

static bool
is_around(const char *own, char *path)
{
	static const char *const folders[] = {".", "../bin", "../../bin", "../libexec", "../../libexec"};
	const char *slash = strrchr(own, '/');

	for (size_t i = 0; slash && i < sizeof(folders) / sizeof(folders[0]); i++)
		if (snprintf(path, PATH_MAX, "%.*s/%s/%s", (int)(slash - own), own, folders[i], name) < PATH_MAX &&
		    is_program(path))
			return true;
	return false;
}

static bool
is_in_path(char *path)
{
	const char *at = secure_getenv("PATH");

	while (at && *at) {
		int len = (int)strcspn(at, ":");

		/* Skip empty and relative entries: they depend on the folder that the engine happens to be in. */
		if (*at == '/' && snprintf(path, PATH_MAX, "%.*s/%s", len, at, name) < PATH_MAX && is_program(path))
			return true;
		at += len + (at[len] == ':');
	}
	return false;
}

int
scout__program_find(const char *given, char *path, char *err, size_t err_len)
{
	char own[PATH_MAX], found[PATH_MAX];

	if (given) {
		if (given[0] != '/' || strlen(given) >= PATH_MAX || !is_program(given))
			return scout__fail(
				err, err_len, SCOUT_ERR_FORMAT,
				"server_program = \"%s\": not the absolute path of a program that this user may run",
				given);
		(void)snprintf(path, PATH_MAX, "%s", given);
		return 0;
	}
	own_file(own);
	if (!is_around(own, found) && !is_in_path(found))
		return scout__fail(err, err_len, SCOUT_ERR_FORMAT,
				   "kvscoutd is neither next to %s, nor in bin or libexec of that installation, nor in "
				   "PATH: set server_program, or start kvscoutd by hand and set endpoint",
				   own[0] ? own : "this program");
	/* Remove the dots, for people who read the path in a log or a list of processes. */
	if (!realpath(found, path))
		(void)snprintf(path, PATH_MAX, "%s", found);
	return 0;
}
