/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include <stdio.h>
#include <string.h>

#include "curve.h"
#include "option_list.h"

#define KEY_BYTES 64u
#define ERR_BYTES 512u

typedef int set_fn(void *cfg, const char *key, const char *value, char *err, size_t err_len);

static int
set_server(void *cfg, const char *key, const char *value, char *err, size_t err_len)
{
	return scout_server_config_set(cfg, key, value, err, err_len);
}

static int
set_client(void *cfg, const char *key, const char *value, char *err, size_t err_len)
{
	return scout_client_config_set(cfg, key, value, err, err_len);
}

static int
set_all(const struct cli_list *list, const char *option, set_fn *set, void *cfg, char *err, size_t err_len)
{
	for (size_t i = 0; i < list->n; i++) {
		const char *item = list->items[i];
		size_t len = strcspn(item, "=");
		char key[KEY_BYTES];
		int rc;

		if (item[len] != '=' || len == 0 || len >= sizeof(key)) {
			(void)snprintf(err, err_len, "--%s = \"%.100s\": must be KEY=VALUE", option, item);
			return SCOUT_ERR_CONFIG_SYNTAX;
		}
		memcpy(key, item, len);
		key[len] = '\0';
		rc = set(cfg, key, item + len + 1, err, err_len);
		if (rc)
			return rc;
	}
	return 0;
}

int
settings_server(const struct settings *settings, struct scout_server_config *cfg, char *err, size_t err_len)
{
	return settings ? set_all(&settings->server, "server-option", set_server, cfg, err, err_len) : 0;
}

int
settings_client(const struct settings *settings, struct scout_client_config *cfg, char *err, size_t err_len)
{
	return settings ? set_all(&settings->client, "client-option", set_client, cfg, err, err_len) : 0;
}

int
settings_check(const struct settings *settings, const struct cli *cli, const char *endpoint)
{
	struct scout_server_config server;
	struct scout_client_config client;
	char err[ERR_BYTES] = "";
	int rc;

	if (endpoint && scout__list_check_one_endpoint("--endpoint", endpoint, err, sizeof(err)) != 0)
		return cli_usage_error(cli, "%s", err);
	if (endpoint && settings->server.n)
		return cli_usage_error(cli, "--server-option is for the embedded server, not for --endpoint");
	scout_server_config_init(&server);
	scout_client_config_init(&client);
	rc = settings_server(settings, &server, err, sizeof(err));
	if (rc == 0)
		rc = settings_client(settings, &client, err, sizeof(err));
	scout_server_config_fini(&server);
	scout_client_config_fini(&client);
	return rc ? cli_usage_error(cli, "%s", err[0] ? err : scout_strerror(rc)) : 0;
}

int
keys_option_check(const struct keys_option *keys, const struct cli *cli, const char *endpoint)
{
	if (!keys->secret_file && !keys->server_key)
		return 0;
	if (!endpoint)
		return cli_usage_error(cli, "--%s is for a server at --endpoint; the embedded one has no keys",
				       keys->secret_file ? "curve-secret-file" : "curve-server-key");
	if (!keys->secret_file || !keys->server_key)
		return cli_usage_error(cli, "--curve-secret-file and --curve-server-key must be given both, or none");
	if (!scout__curve_is_key(keys->server_key))
		return cli_usage_error(
			cli,
			"--curve-server-key = \"%s\": must be a public key, 40 characters of Z85, as kvscoutd "
			"--curve-keygen prints it",
			keys->server_key);
	return 0;
}
