/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_main.h"
#include "checked_fork.h"
#include "cli.h"
#include "say.h"

/* What a command line of our tools is taken for, and what is said about a wrong one. */

static const char *const words[] = {"async", "sync", "floor", NULL};

struct values {
	uint64_t number;
	uint64_t size;
	double fraction;
	const char *text;
	unsigned int word;
	bool yes;
	uint64_t two_words;
	struct cli_list list;
};

static struct values values;
static char said[4096]; /* what the last parse() wrote, to both streams */

static const struct cli_option options[] = {
	CLI_NUMBER("number", &values.number, 1, 100, "a number"),
	CLI_BYTES("size", &values.size, 0, UINT64_C(1) << 40, "a size"),
	CLI_FRACTION("fraction", &values.fraction, 0, 1, "a share"),
	CLI_TEXT("text", "FILE|-", &values.text, "a file"),
	CLI_WORDS("word", &values.word, words, "a word"),
	CLI_SWITCH("yes", &values.yes, "a switch"),
	CLI_NUMBER("two-words", &values.two_words, 0, 9, "a name of two words"),
	CLI_LIST("key", "KEY=VALUE", &values.list, "a key"),
};

static bool given[sizeof(options) / sizeof(options[0])];

static const struct cli cli = {
	.tool = "tool",
	.about = "What it does.",
	.options = options,
	.n = sizeof(options) / sizeof(options[0]),
	.given = given,
	.notes = "A note.\n",
};

static void
reset(void)
{
	values = (struct values){.number = 7, .size = 65536, .fraction = 0.25, .word = 1};
	memset(given, 0, sizeof(given));
}

#define MAX_ARGS 8

/* Parse @args (NULL-terminated, without the program's name). Returns what cli_parse() does. */
static bool
parse(const char *const *args, int *ret_status)
{
	static char copy[MAX_ARGS][128]; /* values.text points into it */
	char *argv[MAX_ARGS + 1];
	FILE *out = tmpfile();
	int argc = 1, saved_out, saved_err;
	bool go_on;
	size_t n;

	ck_assert_ptr_nonnull(out);
	(void)snprintf(copy[0], sizeof(copy[0]), "tool");
	argv[0] = copy[0];
	for (; args[argc - 1]; argc++) {
		ck_assert_int_lt(argc, MAX_ARGS);
		(void)snprintf(copy[argc], sizeof(copy[argc]), "%s", args[argc - 1]);
		argv[argc] = copy[argc];
	}
	argv[argc] = NULL;
	(void)fflush(stdout);
	(void)fflush(stderr);
	saved_out = dup(STDOUT_FILENO);
	saved_err = dup(STDERR_FILENO);
	ck_assert_int_ge(dup2(fileno(out), STDOUT_FILENO), 0);
	ck_assert_int_ge(dup2(fileno(out), STDERR_FILENO), 0);
	go_on = cli_parse(&cli, argc, argv, ret_status);
	(void)fflush(stdout);
	(void)fflush(stderr);
	(void)dup2(saved_out, STDOUT_FILENO);
	(void)dup2(saved_err, STDERR_FILENO);
	(void)close(saved_out);
	(void)close(saved_err);
	rewind(out);
	n = fread(said, 1, sizeof(said) - 1, out);
	said[n] = '\0';
	(void)fclose(out);
	return go_on;
}

#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

#define ASSERT_SAID(part) ck_assert_msg(strstr(said, part) != NULL, "not in the text: \"%s\"; the text: %s", part, said)

#define ASSERT_REFUSED(...)                                                                                            \
	do {                                                                                                           \
		struct values before;                                                                                  \
		int status = -1;                                                                                       \
		reset();                                                                                               \
		before = values;                                                                                       \
		ck_assert(!parse(ARGS(__VA_ARGS__), &status));                                                         \
		ck_assert_int_eq(status, CLI_EXIT_USAGE);                                                              \
		ck_assert_mem_eq(&before, &values, sizeof(values));                                                    \
	} while (0)

static void
accept(const char *const *args)
{
	int status = -1;

	reset();
	ck_assert_msg(parse(args, &status), "refused: %s", said);
	ck_assert_int_eq(status, -1);
	ck_assert_str_eq(said, "");
}

START_TEST(no_arguments_leave_the_defaults)
{
	const char *const none[] = {NULL};

	accept(none);
	ck_assert_uint_eq(values.number, 7);
	ck_assert_uint_eq(values.size, 65536);
	ck_assert_ptr_null(values.text);
	ck_assert_uint_eq(values.word, 1);
	ck_assert(!values.yes);
	ck_assert(!cli_is_given(&cli, "number"));
}
END_TEST

START_TEST(values_are_taken_behind_a_blank_or_an_equals_sign)
{
	accept(ARGS("--number", "42", "--word=floor", "--yes"));
	ck_assert_uint_eq(values.number, 42);
	ck_assert_uint_eq(values.word, 2);
	ck_assert(values.yes);
	ck_assert(cli_is_given(&cli, "number") && cli_is_given(&cli, "yes") && !cli_is_given(&cli, "text"));
	accept(ARGS("--number=42", "--text=a=b"));
	ck_assert_uint_eq(values.number, 42);
	ck_assert_uint_eq(strlen(values.text), 3);
}
END_TEST

START_TEST(a_name_is_written_with_dashes_or_underscores)
{
	accept(ARGS("--two-words", "2"));
	ck_assert_uint_eq(values.two_words, 2);
	accept(ARGS("--two_words=3"));
	ck_assert_uint_eq(values.two_words, 3);
	ASSERT_REFUSED("--two.words", "3");
	ASSERT_REFUSED("--twowords", "3");
}
END_TEST

START_TEST(the_last_of_two_values_counts)
{
	accept(ARGS("--number", "3", "--number", "4"));
	ck_assert_uint_eq(values.number, 4);
}
END_TEST

START_TEST(a_list_keeps_all_of_its_values)
{
	static char option[] = "--key";
	static char value[] = "a=b";
	char *argv[2 * (CLI_LIST_MAX + 1) + 2] = {option};
	int status = 0;

	reset();
	ck_assert(parse(ARGS("--key", "a=1", "--key=b=2"), &status));
	ck_assert_uint_eq(values.list.n, 2);
	ck_assert_str_eq(values.list.items[0], "a=1");
	ck_assert_str_eq(values.list.items[1], "b=2");
	reset();
	for (unsigned i = 0; i <= CLI_LIST_MAX; i++) {
		argv[1 + 2 * i] = option;
		argv[2 + 2 * i] = value;
	}
	ck_assert(cli_parse(&cli, 1 + 2 * (int)CLI_LIST_MAX, argv, &status));
	ck_assert_uint_eq(values.list.n, CLI_LIST_MAX);
	reset();
	ck_assert(!cli_parse(&cli, 3 + 2 * (int)CLI_LIST_MAX, argv, &status));
	ck_assert_int_eq(status, CLI_EXIT_USAGE);
}
END_TEST

START_TEST(the_ends_of_a_range_are_in_it)
{
	accept(ARGS("--number", "1", "--fraction", "0"));
	ck_assert_uint_eq(values.number, 1);
	ck_assert(values.fraction <= 0);
	accept(ARGS("--number", "100", "--fraction", "1"));
	ck_assert_uint_eq(values.number, 100);
	ck_assert(values.fraction >= 1);
}
END_TEST

START_TEST(sizes_take_units)
{
	accept(ARGS("--size", "3Mi"));
	ck_assert_uint_eq(values.size, UINT64_C(3) << 20);
	accept(ARGS("--size", "3k"));
	ck_assert_uint_eq(values.size, 3000);
	ASSERT_REFUSED("--size", "3X");
	ASSERT_REFUSED("--size", "2Ti");
}
END_TEST

START_TEST(a_value_out_of_range_is_refused_by_name_value_and_range)
{
	ASSERT_REFUSED("--number", "101");
	ASSERT_SAID("--number");
	ASSERT_SAID("101");
	ASSERT_SAID("1..100");
	ASSERT_REFUSED("--number=0");
	ASSERT_REFUSED("--number", "99999999999999999999999");
	ASSERT_SAID("1..100");
	ASSERT_REFUSED("--fraction", "1.01");
	ASSERT_SAID("--fraction");
	ASSERT_SAID("1.01");
	ASSERT_SAID("0..1");
}
END_TEST

START_TEST(what_is_no_number_is_refused)
{
	static const char *const wrong[] = {"", " 1", "1 ", "+1", "0x10", "1e1", "-1", "ten", "1.5", "nan", "inf"};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ASSERT_REFUSED("--number", wrong[i]);
		ASSERT_SAID("--number = ");
	}
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ASSERT_REFUSED("--fraction", wrong[i]);
	ASSERT_REFUSED("--fraction", ".");
	ASSERT_REFUSED("--fraction", "0.1.1");
}
END_TEST

START_TEST(an_unknown_word_is_refused_with_the_known_ones)
{
	ASSERT_REFUSED("--word", "syn");
	ASSERT_SAID("syn");
	ASSERT_SAID("async, sync, floor");
}
END_TEST

START_TEST(unknown_options_and_loose_arguments_are_refused)
{
	ASSERT_REFUSED("--nonsense");
	ASSERT_SAID("--nonsense");
	ASSERT_REFUSED("--num", "3"); /* no abbreviations */
	ASSERT_REFUSED("-n");
	ASSERT_REFUSED("3");
	ASSERT_SAID("\"3\"");
	ASSERT_REFUSED("--");
}
END_TEST

START_TEST(a_missing_value_and_a_value_too_many_are_refused)
{
	ASSERT_REFUSED("--number");
	ASSERT_SAID("--number needs a value");
	ASSERT_REFUSED("--yes=1");
	ASSERT_SAID("--yes takes no value");
	ASSERT_REFUSED("--text", "");
}
END_TEST

START_LOOP_TEST(help_prints_every_default_whatever_stands_before_it, 0, 2)
{
	int status = -1;

	reset();
	ck_assert(!parse(ARGS("--number", "42", _i ? "-h" : "--help"), &status));
	ck_assert_int_eq(status, 0);
	ASSERT_SAID("usage: tool");
	for (size_t i = 0; i < cli.n; i++) {
		char name[64];

		(void)snprintf(name, sizeof(name), "  --%s", options[i].name);
		ASSERT_SAID(name);
		ASSERT_SAID(options[i].doc);
	}
	ASSERT_SAID("(default: 7; 1..100)");
	ASSERT_SAID("(default: 64Ki; 0..1Ti)");
	ASSERT_SAID("(default: 0.25; 0..1)");
	ASSERT_SAID("(default: none)");
	ASSERT_SAID("(default: sync; async, sync, floor)");
	ASSERT_SAID("A note.");
}
END_TEST

START_TEST(version_is_printed)
{
	int status = -1;

	ck_assert(!parse(ARGS("--version"), &status));
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(strncmp(said, "tool 0.", 7), 0);
}
END_TEST

/* The exit status of a tool that prints @text to the file @path; what it says on standard error is in said. */
static int
status_of_printing(const char *path, const char *text)
{
	int fd[2];
	int status;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe(fd), 0);
	(void)fflush(stdout); /* not to be printed twice */
	pid = checked_fork();
	if (pid == 0) {
		int out = open(path, O_WRONLY);

		if (out < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(fd[1], STDERR_FILENO) < 0)
			_exit(99);
		say_begin("tool");
		say("%s", text);
		exit(0);
	}
	(void)close(fd[1]);
	n = read(fd[0], said, sizeof(said) - 1);
	ck_assert_int_ge(n, 0);
	said[n] = '\0';
	(void)close(fd[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(standard_output_that_cannot_be_written_fails_the_tool)
{
	static char much[65536];

	ck_assert_int_eq(status_of_printing("/dev/null", "a line\n"), 0);
	ck_assert_str_eq(said, "");
	ck_assert_int_eq(status_of_printing("/dev/full", ""), 0);
	ck_assert_int_eq(status_of_printing("/dev/full", "a line\n"), 1);
	ASSERT_SAID("tool: standard output could not be written");
	/* More than stdio's buffer: written and lost before the end. */
	memset(much, 'x', sizeof(much) - 1);
	ck_assert_int_eq(status_of_printing("/dev/full", much), 1);
	ASSERT_SAID("tool: standard output could not be written");
}
END_TEST

START_TEST(a_file_that_cannot_be_written_is_told_by_its_close)
{
	FILE *full = say_open("/dev/full");
	FILE *null = say_open("/dev/null");

	ck_assert_ptr_nonnull(full);
	ck_assert_ptr_nonnull(null);
	ck_assert_int_eq(say_to(full, "four"), 4);
	ck_assert_int_eq(say_close(full), ENOSPC);
	(void)say_to(null, "four");
	ck_assert_int_eq(say_close(null), 0);
	ck_assert_ptr_null(say_open("/dev/null/none"));
	ck_assert_ptr_eq(say_open("-"), stdout);
}
END_TEST
