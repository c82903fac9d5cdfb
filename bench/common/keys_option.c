/* SPDX-License-Identifier: Apache-2.0 */
#include "keys_option.h"

#include "curve.h"

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
