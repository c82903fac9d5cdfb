/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * The command line of our tools: long options only, `--name value` or `--name=value`, with - or _ in the name. One row for each option drives
 * parsing, range errors and --help, so they cannot drift from each other.
 *
 * The variable behind `to` holds the default when cli_parse() is called: that is what --help prints.
 *
 *	struct { uint64_t requests; const char *json; bool verify; unsigned int mode; } opt = {.requests = 1000};
 *	static const char *const modes[] = {"async", "sync", NULL};
 *	const struct cli_option options[] = {
 *		CLI_NUMBER("requests", &opt.requests, 1, 1000000, "requests to run"),
 *		CLI_TEXT("json", "FILE|-", &opt.json, "write the result as JSON; - is standard output"),
 *		CLI_WORDS("mode", &opt.mode, modes, "what to run"),
 *		CLI_SWITCH("verify", &opt.verify, "check every answer"),
 *	};
 *	const struct cli cli = {.tool = "kvscout-x", .about = "one line", .options = options, .n = 4};
 *	int status;
 *
 *	if (!cli_parse(&cli, argc, argv, &status))
 *		return status;
 */

enum cli_type {
	CLI_TYPE_U64 = 1, /* uint64_t, within min..max */
	CLI_TYPE_SIZE,    /* uint64_t bytes: a number with an optional k m g (1000) or Ki Mi Gi (1024), "B" allowed */
	CLI_TYPE_REAL,    /* double, within real_min..real_max */
	CLI_TYPE_TEXT,    /* const char *: points into argv; not empty */
	CLI_TYPE_WORD,    /* unsigned int: index into words */
	CLI_TYPE_SWITCH,  /* bool: set to true; takes no value */
	CLI_TYPE_LIST     /* struct cli_list: each time the option is given adds a text */
};

#define CLI_LIST_MAX 32u

/* Texts in the order of the command line; they point into argv. */
struct cli_list {
	const char *items[CLI_LIST_MAX];
	size_t n;
};

struct cli_option {
	const char *name; /* without the dashes */
	enum cli_type type;
	void *to;
	const char *value_name; /* how --help writes the value; NULL: by type */
	uint64_t min, max;
	double real_min, real_max;
	const char *const *words; /* NULL-terminated */
	const char *doc;
};

#define CLI_NUMBER(name_, to_, min_, max_, doc_)                                                                       \
	{                                                                                                              \
		.name = (name_), .type = CLI_TYPE_U64, .to = (to_), .min = (min_), .max = (max_), .doc = (doc_)        \
	}
#define CLI_BYTES(name_, to_, min_, max_, doc_)                                                                        \
	{                                                                                                              \
		.name = (name_), .type = CLI_TYPE_SIZE, .to = (to_), .min = (min_), .max = (max_), .doc = (doc_)       \
	}
#define CLI_FRACTION(name_, to_, min_, max_, doc_)                                                                     \
	{                                                                                                              \
		.name = (name_), .type = CLI_TYPE_REAL, .to = (to_), .real_min = (min_), .real_max = (max_),           \
		.doc = (doc_)                                                                                          \
	}
#define CLI_TEXT(name_, value_name_, to_, doc_)                                                                        \
	{                                                                                                              \
		.name = (name_), .type = CLI_TYPE_TEXT, .to = (to_), .value_name = (value_name_), .doc = (doc_)        \
	}
#define CLI_LIST(name_, value_name_, to_, doc_)                                                                        \
	{                                                                                                              \
		.name = (name_), .type = CLI_TYPE_LIST, .to = (to_), .value_name = (value_name_), .doc = (doc_)        \
	}
#define CLI_WORDS(name_, to_, words_, doc_)                                                                            \
	{                                                                                                              \
		.name = (name_), .type = CLI_TYPE_WORD, .to = (to_), .words = (words_), .doc = (doc_)                  \
	}
#define CLI_SWITCH(name_, to_, doc_)                                                                                   \
	{                                                                                                              \
		.name = (name_), .type = CLI_TYPE_SWITCH, .to = (to_), .doc = (doc_)                                   \
	}

/* Exit status of a wrong command line; 1 is left for runs that fail. */
#define CLI_EXIT_USAGE 2

struct cli {
	const char *tool;
	const char *about;
	const struct cli_option *options;
	size_t n;
	bool *given;       /* NULL, or a flag for each row: cli_parse() sets those of the options that are there */
	const char *notes; /* printed at the end of --help; may be NULL */
};

/*
 * Read the whole command line. True: go on. False: leave with *ret_status: 0 after --help or --version (on standard
 * output), or CLI_EXIT_USAGE with a sentence on standard error that names the option, its value and what is allowed.
 * From here on, standard output that cannot be written makes the exit status 1 (say.h).
 * An option that is given twice means its last value, but for a list.
 */
bool cli_parse(const struct cli *cli, int argc, char **argv, int *ret_status);

/* Whether --@name, a row of the table, was on the command line. The tool must have flags for that: struct cli, given. */
bool cli_is_given(const struct cli *cli, const char *name);

/* Set one option from text. Returns 0, or -1 and a sentence in @err; the variable is unchanged then. */
int cli_set(const struct cli_option *option, const char *text, char *err, size_t err_len);

/*
 * The exit status of a tool that could not start because of @code, a SCOUT_ERR_*: CLI_EXIT_USAGE if a value of the command line is
 * wrong, which only the server or the library could find out; else 1.
 */
int cli_exit_of(int code);

/* "TOOL: sentence" on standard error; returns CLI_EXIT_USAGE. For checks that need more than one option. */
__attribute__((format(printf, 2, 3))) int cli_usage_error(const struct cli *cli, const char *fmt, ...);
