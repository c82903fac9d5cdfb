/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user's program that asks for the server of its host, in the folder of its first argument, and names no kvscoutd. It prints
 * the log line that says which one was started.
 */
#include <stdio.h>
#include <string.h>

#include <kvscout/instance.h>

static void
print(void *user, int level, const char *text)
{
	(void)user;
	(void)level;
	(void)puts(text);
}

int
main(int argc, char **argv)
{
	struct scout_instance_config cfg;
	char where[256], endpoint[256], err[1024] = "";

	if (argc != 2)
		return 2;
	(void)snprintf(where, sizeof(where), "auto://%s", argv[1]);
	scout_instance_config_init(&cfg);
	cfg.endpoint = where;
	cfg.server_keys = "idle_exit_s=1 l1_bytes=16Mi";
	cfg.log = print;
	if (scout_ensure_server(&cfg, endpoint, sizeof(endpoint), err, sizeof(err)) == 0)
		return 0;
	(void)puts(err);
	return 1;
}
