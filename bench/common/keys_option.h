/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_BENCH_KEYS_OPTION_H
#define SCOUT_BENCH_KEYS_OPTION_H

#include "cli.h"

/* The CURVE keys for a server at --endpoint, as options of a tool. The names are those of the client's option table. */
struct keys_option {
	const char *secret_file;
	const char *server_key; /* NULL, as the other, if there are none */
};

#define KEYS_OPTION_ROWS(to_)                                                                                          \
	CLI_TEXT("curve-secret-file", "FILE", &(to_)->secret_file, "CURVE: our secret key, for a server with keys"),   \
		CLI_TEXT("curve-server-key", "KEY", &(to_)->server_key, "CURVE: the public key of the server")

/* Whether they make sense beside @endpoint (NULL: an embedded server). Returns 0, or CLI_EXIT_USAGE and the sentence is said. */
int keys_option_check(const struct keys_option *keys, const struct cli *cli, const char *endpoint);

#endif
