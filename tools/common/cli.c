/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: one command-line reader for all of our tools. Numbers, sizes and words are read by the option table of the
 * libraries, so a tool takes and refuses exactly what `kvscoutd` does, in the same words.
 *
 * Invariant: a variable is written only with a value that was accepted. --help is looked for before anything is
 * parsed, so it prints the defaults and not what stood before it on the line.
 *
 * Threads: main only. Rejected: getopt_long() - it takes abbreviations, which turn into errors when an option is
 * added, and its messages do not say what is allowed.
 */
#include "cli.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>
#include <kvscout/version.h>

#include "option_parse.h"
#include "say.h"

#define NAME_BYTES 64
#define ERR_BYTES 512
#define DOC_COLUMN 28

/* The same row for the option table, under the name that the user typed. */
static struct scout__option
as_option(const struct cli_option *option, char name[NAME_BYTES])
{
	struct scout__option row = {.name = name, .min = option->min, .max = option->max};

	(void)snprintf(name, NAME_BYTES, "--%s", option->name);
	switch (option->type) {
	case CLI_TYPE_SIZE:
		row.type = SCOUT_OPTION_SIZE;
		break;
	case CLI_TYPE_WORD:
		row.type = SCOUT_OPTION_WORD;
		row.words = option->words;
		row.min = 0;
		row.max = 0;
		while (option->words[row.max] && option->words[row.max + 1])
			row.max++;
		break;
	case CLI_TYPE_U64:
	case CLI_TYPE_REAL:
	case CLI_TYPE_TEXT:
	case CLI_TYPE_SWITCH:
	case CLI_TYPE_LIST:
		row.type = SCOUT_OPTION_U64;
		break;
	}
	return row;
}

static int
set_real(const struct cli_option *option, const char *text, char *err, size_t err_len)
{
	char shown[SCOUT__OPTION_TEXT];
	char *end = NULL;
	double value;

	/* strtod() alone would take "inf", "nan", "0x1p3" and blanks. */
	value = text[0] && strspn(text, "0123456789.") == strlen(text) ? strtod(text, &end) : -1;
	if (end && end != text && !*end && value >= option->real_min && value <= option->real_max) {
		memcpy(option->to, &value, sizeof(value));
		return 0;
	}
	(void)snprintf(err, err_len, "--%s = \"%s\": must be a number, %g..%g", option->name,
		       scout__option_quote(shown, text), option->real_min, option->real_max);
	return -1;
}

static int
set_text(const struct cli_option *option, const char *text, char *err, size_t err_len)
{
	if (!text[0]) {
		(void)snprintf(err, err_len, "--%s = \"\": must not be empty", option->name);
		return -1;
	}
	memcpy(option->to, &text, sizeof(text));
	return 0;
}

static int
add_text(const struct cli_option *option, const char *text, char *err, size_t err_len)
{
	struct cli_list *list = option->to;

	if (!text[0] || list->n == CLI_LIST_MAX) {
		if (text[0])
			(void)snprintf(err, err_len, "--%s: given more than %u times", option->name, CLI_LIST_MAX);
		else
			(void)snprintf(err, err_len, "--%s = \"\": must not be empty", option->name);
		return -1;
	}
	list->items[list->n++] = text;
	return 0;
}

static int
set_number(const struct cli_option *option, const char *text, char *err, size_t err_len)
{
	char name[NAME_BYTES];
	struct scout__option row = as_option(option, name);
	uint64_t number;
	unsigned int word;

	if (scout__option_parse(&row, text, &number, err, err_len))
		return -1;
	if (option->type == CLI_TYPE_WORD) {
		word = (unsigned int)number;
		memcpy(option->to, &word, sizeof(word));
	} else {
		memcpy(option->to, &number, sizeof(number));
	}
	return 0;
}

int
cli_set(const struct cli_option *option, const char *text, char *err, size_t err_len)
{
	bool yes = true;
	int rc = 0;

	switch (option->type) {
	case CLI_TYPE_REAL:
		rc = set_real(option, text, err, err_len);
		break;
	case CLI_TYPE_TEXT:
		rc = set_text(option, text, err, err_len);
		break;
	case CLI_TYPE_LIST:
		rc = add_text(option, text, err, err_len);
		break;
	case CLI_TYPE_SWITCH:
		memcpy(option->to, &yes, sizeof(yes));
		break;
	case CLI_TYPE_U64:
	case CLI_TYPE_SIZE:
	case CLI_TYPE_WORD:
		rc = set_number(option, text, err, err_len);
		break;
	}
	return rc;
}

static const char *
value_name(const struct cli_option *option)
{
	static const char *const by_type[] = {
		[CLI_TYPE_U64] = " N",     [CLI_TYPE_SIZE] = " BYTES", [CLI_TYPE_REAL] = " X",
		[CLI_TYPE_TEXT] = " TEXT", [CLI_TYPE_WORD] = " WORD",  [CLI_TYPE_SWITCH] = "",
		[CLI_TYPE_LIST] = " TEXT",
	};

	return by_type[option->type];
}

/* What the variable holds now, and what is allowed. */
static void
print_default(const struct cli_option *option, FILE *to)
{
	char name[NAME_BYTES];
	char number[SCOUT__OPTION_TEXT];
	char range[SCOUT__OPTION_TEXT];
	struct scout__option row = as_option(option, name);
	const char *text;
	uint64_t value = 0;
	double real;

	if (option->type == CLI_TYPE_TEXT) {
		memcpy(&text, option->to, sizeof(text));
		say_to(to, " (default: %s)", text ? text : "none");
	} else if (option->type == CLI_TYPE_REAL) {
		memcpy(&real, option->to, sizeof(real));
		say_to(to, " (default: %g; %g..%g)", real, option->real_min, option->real_max);
	} else if (option->type != CLI_TYPE_SWITCH && option->type != CLI_TYPE_LIST) {
		if (option->type == CLI_TYPE_WORD)
			value = *(const unsigned int *)option->to;
		else
			memcpy(&value, option->to, sizeof(value));
		say_to(to, " (default: %s; %s)", scout__option_number(&row, value, number),
		       scout__option_range(&row, range));
	}
}

static void
print_help(const struct cli *cli, FILE *to)
{
	const struct cli_option *option;
	int written;

	say_to(to, "usage: %s [OPTION]...\n%s\n\n", cli->tool, cli->about);
	for (size_t i = 0; i < cli->n; i++) {
		option = &cli->options[i];
		written = say_to(to, "  --%s%s%s", option->name, option->value_name ? " " : "",
				 option->value_name ? option->value_name : value_name(option));
		say_to(to, "%*s%s", written < DOC_COLUMN ? DOC_COLUMN - written : 2, "", option->doc);
		print_default(option, to);
		say_to(to, "\n");
	}
	say_to(to, "  %-*s%s\n", DOC_COLUMN - 2, "--help, -h", "this text");
	say_to(to, "  %-*s%s\n", DOC_COLUMN - 2, "--version", "the version");
	if (cli->notes)
		say_to(to, "\n%s", cli->notes);
}

int
cli_usage_error(const struct cli *cli, const char *fmt, ...)
{
	char text[ERR_BYTES];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a text that is cut is still a text */
	va_end(ap);
	complain("%s (see %s --help)", text, cli->tool);
	return CLI_EXIT_USAGE;
}

/* Whether the @len bytes at @text are @name, where "_" may stand for "-": so are the keys of configuration files written. */
static bool
is_name(const char *name, const char *text, size_t len)
{
	if (strlen(name) != len)
		return false;
	for (size_t i = 0; i < len; i++)
		if (name[i] != (text[i] == '_' ? '-' : text[i]))
			return false;
	return true;
}

int
cli_exit_of(int code)
{
	switch (code) {
	case SCOUT_ERR_INVALID:
	case SCOUT_ERR_UNSUPPORTED:
	case SCOUT_ERR_CONFIG_KEY:
	case SCOUT_ERR_CONFIG_SYNTAX:
	case SCOUT_ERR_CONFIG_RANGE:
	case SCOUT_ERR_POOL_SIZE:
	case SCOUT_ERR_GROUP_LIMIT:
		return CLI_EXIT_USAGE;
	default:
		return EXIT_FAILURE;
	}
}

/* The row whose name is the @len bytes at @name. */
static const struct cli_option *
find(const struct cli *cli, const char *name, size_t len)
{
	for (size_t i = 0; i < cli->n; i++) {
		if (is_name(cli->options[i].name, name, len))
			return &cli->options[i];
	}
	return NULL;
}

bool
cli_is_given(const struct cli *cli, const char *name)
{
	const struct cli_option *option = find(cli, name, strlen(name));

	if (!option || !cli->given)
		die("the table has no flag for --%s", name);
	return cli->given[option - cli->options];
}

/* Read the option at *i, which moves behind its value. Returns 0 or CLI_EXIT_USAGE. */
static int
parse_one(const struct cli *cli, int argc, char **argv, int *i)
{
	const struct cli_option *option;
	const char *arg = argv[(*i)++];
	const char *value = NULL;
	char shown[SCOUT__OPTION_TEXT];
	char err[ERR_BYTES] = "";
	size_t len;

	if (strncmp(arg, "--", 2) != 0 || !arg[2])
		return cli_usage_error(cli, "unexpected argument \"%s\"", scout__option_quote(shown, arg));
	arg += 2;
	len = strcspn(arg, "=");
	option = find(cli, arg, len);
	if (!option)
		return cli_usage_error(cli, "unknown option \"--%s\"", scout__option_quote(shown, arg));
	if (arg[len] == '=')
		value = arg + len + 1;
	if (option->type == CLI_TYPE_SWITCH && value)
		return cli_usage_error(cli, "--%s takes no value", option->name);
	if (option->type != CLI_TYPE_SWITCH && !value) {
		if (*i >= argc)
			return cli_usage_error(cli, "--%s needs a value", option->name);
		value = argv[(*i)++];
	}
	if (cli_set(option, value ? value : "", err, sizeof(err)))
		return cli_usage_error(cli, "%s", err);
	if (cli->given)
		cli->given[option - cli->options] = true;
	return 0;
}

bool
cli_parse(const struct cli *cli, int argc, char **argv, int *ret_status)
{
	int status;

	say_begin(cli->tool);
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_help(cli, stdout);
			*ret_status = 0;
			return false;
		}
		if (strcmp(argv[i], "--version") == 0) {
			say("%s %s\n", cli->tool, SCOUT_VERSION_STRING);
			*ret_status = 0;
			return false;
		}
	}
	for (int i = 1; i < argc;) {
		status = parse_one(cli, argc, argv, &i);
		if (status) {
			*ret_status = status;
			return false;
		}
	}
	return true;
}
