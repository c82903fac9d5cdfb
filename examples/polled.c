/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For a scheduler that may wait: with lookup_mode=polled, scout_lookup() returns when the answer is there, at the latest after
 * lookup_timeout_ms. A server that is away costs no wait: the answer is 0 tokens, "unreachable". The keys also come from the environment:
 *
 *   cc polled.c $(pkg-config --cflags --libs kvscout-client) -o polled && KVSCOUT_LOOKUP_TIMEOUT_MS=50 ./polled
 */
#include <err.h>
#include <stdio.h>

#include <kvscout/client.h>

int
main(void)
{
	static const uint8_t hash[32] = "the only chunk of this prompt";
	struct scout_query query = {.hashes = hash, .hash_len = 32, .n = 1, .prompt_tokens = 300};
	struct scout_client_config cfg;
	struct scout_client *client;
	struct scout_hit hit;
	char why[512], id[32];
	int rc;

	scout_client_config_init(&cfg);
	if (scout_client_config_set(&cfg, "lookup_mode", "polled", why, sizeof(why)) != 0 ||
	    scout_client_config_load_env(&cfg, why, sizeof(why)) != 0 ||
	    scout_client_new(&cfg, &client, why, sizeof(why)) != 0)
		errx(1, "%s", why);
	scout_client_config_fini(&cfg);
	if (scout_client_wait_ready(client, 10000, why, sizeof(why)) != 0)
		warnx("going on without a cache: %s", why);

	for (int i = 1; i <= 3; i++) { /* one request after the other */
		(void)snprintf(id, sizeof(id), "request %d", i);
		query.id = id;
		rc = scout_lookup(client, &query, &hit);
		if (rc != 0)
			errx(1, "%s: %s", id, scout_strerror(rc));
		printf("%s: %s, %llu tokens\n", id, scout_reason_name(hit.reason), (unsigned long long)hit.tokens);
		scout_finish(client, id);
	}
	scout_client_free(client);
	return 0;
}
