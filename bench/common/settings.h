/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <kvscout/client.h>
#include <kvscout/server.h>

#include "cli.h"

/*
 * Keys of the libraries on a tool's command line: `--server-option KEY=VALUE` for the server that the tool embeds
 * (l2, prefetch, l2_timeout_ms ...), `--client-option KEY=VALUE` for its client (lookup_poll_key_timeout_ms ...).
 * Both may be given again.
 */
struct settings {
	struct cli_list server, client;
};

#define SETTINGS_ROWS(to_)                                                                                             \
	CLI_LIST("server-option", "KEY=VALUE", &(to_)->server,                                                         \
		 "a key of the embedded server, as of kvscoutd; repeat"),                                              \
		CLI_LIST("client-option", "KEY=VALUE", &(to_)->client, "a key of the client; repeat")

/*
 * Whether all of them are known and in range, @endpoint is one endpoint (NULL: an embedded server), and its server is the one
 * that they are for. Returns 0, or CLI_EXIT_USAGE and the sentence is said.
 */
int settings_check(const struct settings *settings, const struct cli *cli, const char *endpoint);

/*
 * Set them in @cfg, whose _fini() frees what that allocates. Returns 0, or SCOUT_ERR_* and a sentence in @err.
 * @settings may be NULL.
 */
int settings_server(const struct settings *settings, struct scout_server_config *cfg, char *err, size_t err_len);
int settings_client(const struct settings *settings, struct scout_client_config *cfg, char *err, size_t err_len);

/* The CURVE keys for a server at --endpoint, as options of a tool. The names are those of the client's option table. */
struct keys_option {
	const char *secret_file;
	const char *server_key; /* NULL, as the other, if there are none */
};

#define KEYS_OPTION_ROWS(to_)                                                                                          \
	CLI_TEXT("curve-secret-file", "FILE", &(to_)->secret_file, "CURVE: our secret key, for a server with keys"),   \
		CLI_TEXT("curve-server-key", "KEY", &(to_)->server_key, "CURVE: the public key of the server")

/*
 * Whether they make sense beside @endpoint (NULL: an embedded server). Returns 0, or CLI_EXIT_USAGE and the sentence
 * is said.
 */
int keys_option_check(const struct keys_option *keys, const struct cli *cli, const char *endpoint);
