/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/version.h>

#include "operator.h"
#include "option.h"
#include "say.h"

/*
 * DESIGN
 *
 * One command for people: what they ask a running server is answered here, and what is a program of its own is executed,
 * first the one next to this program, as they are installed together, else the one in PATH.
 *
 * Threads: main, and a client's background thread during `lookup`.
 */

#ifndef HAVE_MICROHTTPD
int
cmd_web(int argc, char **argv)
{
	static const char why[] =
		"this kvscout is built without libmicrohttpd; kvscout top shows the same on a terminal";

	if (argc > 1 && strcmp(argv[1], "--help") == 0) {
		say("usage: kvscout web\n\n%s\n", why);
		return EXIT_DONE;
	}
	complain("web: %s", why);
	return EXIT_FAILED;
}
#endif

static const struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *program; /* or the program to execute */
	const char *about;
} commands[] = {
	{"server", NULL, "kvscoutd", "start a cache server"},
	{"status", cmd_status, NULL, "say how the server does, once or again and again"},
	{"top", cmd_top, NULL, "watch it: hits, times, memory, L2, peers"},
	{"web", cmd_web, NULL, "watch it in a browser on this machine"},
	{"ping", cmd_ping, NULL, "ask whether it answers, and how fast"},
	{"lookup", cmd_lookup, NULL, "ask what of a prompt is cached, and where"},
	{"clear", cmd_clear, NULL, "drop what a namespace or a tenant has cached"},
	{"peers", cmd_peers, NULL, "list clients and workers, and what they hold"},
	{"verify", cmd_verify, NULL, "say what engines found that compared hits with what they computed"},
	{"latency", NULL, "kvscout-latency", "measure lookups"},
	{"replay", NULL, "kvscout-replay", "replay a trace of requests and compare every byte"},
	{"copy", NULL, "kvscout-copy", "measure copies between host and GPU"},
};
#define N_COMMANDS (sizeof(commands) / sizeof(commands[0]))

static int
help(void)
{
	say("usage: kvscout COMMAND [OPTION]...\n\n");
	for (size_t i = 0; i < N_COMMANDS; i++)
		say("  %-9s %s\n", commands[i].name, commands[i].about);
	say("\n"
	    "kvscout COMMAND --help lists the options. Options may be written with - or _ inside. Sizes are a number\n"
	    "with k, m, g or t (1000) or Ki, Mi, Gi or Ti (1024): --l1-bytes 64Gi.\n"
	    "\n"
	    "Exit status: 0 done; 1 failed, refused, or the output could not be written; 2 wrong usage; 3 no server\n"
	    "answers; 4 (server) a server is there already; 5 (lookup) not all of the prompt is cached.\n");
	return EXIT_DONE;
}

/* Returns only if there is no such program. */
static int
execute(const char *program, char **argv)
{
	char path[4096], name[64], error[SAY_ERROR];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 64);
	char *slash;

	(void)snprintf(name, sizeof(name), "%s", program);
	argv[0] = name;
	path[len > 0 ? len : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash) {
		(void)snprintf(slash + 1, 64, "%s", program);
		(void)execv(path, argv);
	}
	(void)execvp(program, argv);
	complain("%s is neither next to kvscout nor in PATH (%s): install it", program, say_error(error, errno));
	return EXIT_FAILED;
}

static int
no_command(const char *name)
{
	struct scout__option rows[N_COMMANDS];
	const struct scout__option_table table = {.options = rows, .n = N_COMMANDS};
	const char *closest;

	for (size_t i = 0; i < N_COMMANDS; i++)
		rows[i] = (struct scout__option){.name = commands[i].name};
	closest = scout__options_closest(&table, name);
	complain("\"%.40s\" is no command; %s%s%skvscout --help lists them", name, closest ? "did you mean " : "",
		 closest ? closest : "", closest ? "? " : "");
	return EXIT_USAGE;
}

int
main(int argc, char **argv)
{
	say_begin("kvscout");
	if (argc < 2) {
		complain("a command is missing; kvscout --help lists them");
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)
		return help();
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "version") == 0) {
		say("kvscout %s\n", SCOUT_VERSION_STRING);
		return EXIT_DONE;
	}
	for (size_t i = 0; i < N_COMMANDS; i++) {
		if (strcmp(argv[1], commands[i].name) != 0)
			continue;
		if (commands[i].program)
			return execute(commands[i].program, argv + 1);
		return commands[i].run(argc - 1, argv + 1);
	}
	return no_command(argv[1]);
}
