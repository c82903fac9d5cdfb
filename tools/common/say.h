/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdio.h>

/*
 * What our tools write. A result that did not reach its file is no result: a write to standard output that failed (a
 * full disk, a pipe closed by its reader) is reported at exit and makes the exit status 1, so that callers need not
 * look at each line they print. A file of its own is checked once, by say_close().
 *
 * Threads: any; stdio locks its streams.
 */

/* The name that messages begin with; @tool must live as long as the process. Once, first thing; cli_parse() does it. */
void say_begin(const char *tool);

/* To standard output. */
__attribute__((format(printf, 1, 2))) void say(const char *fmt, ...);

/* Now, before what follows on standard error. Main thread; an error is told at exit. */
void say_flush(void);

/* To @out; returns the characters written, 0 after an error. */
__attribute__((format(printf, 2, 3))) int say_to(FILE *out, const char *fmt, ...);

/* "TOOL: sentence" and a newline to standard error. A failure of that write is ignored. */
__attribute__((format(printf, 1, 2))) void complain(const char *fmt, ...);

/* The sentence, and the end: exit status 1. For programs that have nothing to give back. */
__attribute__((format(printf, 1, 2))) _Noreturn void die(const char *fmt, ...);

/* For `log` in the configurations of server, client and worker: warnings and errors, on standard error. */
void complain_log(void *user, int level, const char *text);

/* A file to write, or standard output for "-". NULL: errno says why. */
FILE *say_open(const char *path);

/*
 * The sentence of an errno value: "No space left on device". It may lie in @buf. Here and not from base, because
 * kvscout-copy needs libc only, an old one too.
 */
#define SAY_ERROR 96
const char *say_error(char buf[SAY_ERROR], int error);

/* All of it is written, or an errno value. Closes @out unless it is standard output. */
int say_close(FILE *out);
