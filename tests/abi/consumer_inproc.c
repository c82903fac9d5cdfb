/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that links both installed libraries: a server from the one is found on inproc:// by a client from the other. In the
 * other tests there is only one copy of what they share.
 */
#include <stdio.h>

#include <kvscout/client.h>
#include <kvscout/server.h>

static int
fail(const char *what, const char *text)
{
	(void)fprintf(stderr, "%s: %s\n", what, text);
	return 1;
}

int
main(void)
{
	struct scout_server_config server_cfg;
	struct scout_client_config client_cfg;
	struct scout_server *server;
	struct scout_client *client;
	char err[256] = "";
	int rc;

	scout_server_config_init(&server_cfg);
	server_cfg.listen = "inproc://abi";
	server_cfg.l1_bytes = 1 << 20;
	if (scout_server_start(&server_cfg, &server, err, sizeof(err)) != 0)
		return fail("server", err);
	scout_client_config_init(&client_cfg);
	client_cfg.endpoint = "inproc://abi";
	if (scout_client_new(&client_cfg, &client, err, sizeof(err)) != 0)
		return fail("client", err);
	rc = scout_client_wait_ready(client, 10000, err, sizeof(err)) ? fail("wait", err) : 0;
	scout_server_stop(server);
	scout_client_free(client);
	return rc;
}
