/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

#include "cli.h"
#include "status_client.h"

/* What the commands of kvscout share: whom to ask, and how they end. Main thread. */

/* Exit statuses; kvscout.c tells them in its help, docs/kvscout.md in its table. */
enum {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = CLI_EXIT_USAGE,
	EXIT_NO_SERVER = 3,
	/* 4: a server is there already, of kvscoutd */
	EXIT_NOT_CACHED = 5
};

struct operator
{
	const char *endpoint, *curve_secret_file, *curve_server_key;
	char *why; /* NULL: what fails is told on standard error; else there, in OPERATOR_WHY bytes */
	struct scout__status_client client;
};
#define OPERATOR_WHY 1024u

#define OPERATOR_DEFAULTS                                                                                              \
	{                                                                                                              \
		.endpoint = "auto"                                                                                     \
	}
#define OPERATOR_OPTIONS(op)                                                                                           \
	CLI_TEXT("endpoint", "ENDPOINT", &(op)->endpoint,                                                              \
		 "of the server: ipc:///PATH, tcp://HOST:PORT, auto, auto:///FOLDER"),                                 \
		CLI_TEXT("curve-secret-file", "FILE", &(op)->curve_secret_file,                                        \
			 "CURVE: the server's own key, or ours"),                                                      \
		CLI_TEXT("curve-server-key", "KEY", &(op)->curve_server_key,                                           \
			 "CURVE: the server's public key, if the file has ours")
#define N_OPERATOR_OPTIONS 3

/* One for each command: its arguments, from its own name on. Returns an exit status. */
int cmd_status(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_ping(int argc, char **argv);
int cmd_lookup(int argc, char **argv);
int cmd_clear(int argc, char **argv);
int cmd_peers(int argc, char **argv);
int cmd_verify(int argc, char **argv);
int cmd_web(int argc, char **argv);

/* Connect. Returns 0, or an exit status after saying why; operator_close() in both cases. */
int operator_open(struct operator* op, const struct cli *cli);
/* Ask what scout__status_client_begin() began. Returns as operator_open() does. */
int operator_ask(struct operator* op, struct scout__op *ret_op);
/* The body of the answer made no sense: an exit status, after saying so. */
int operator_bad_reply(struct operator* op);
/* Ask for the tenants of the namespace @ns, the largest first; *ret_tenants is valid until the next question. Returns as operator_open() does. */
int operator_tenants(struct operator* op, const char *ns, struct scout__list_reply *ret_tenants);
void operator_close(struct operator* op);

/* Wait so long, for the next sheet of numbers. */
void operator_sleep(double seconds);
