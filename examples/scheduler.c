/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest scheduler: how many leading tokens of a prompt are cached? It names no endpoint, so it
 * starts kvscoutd if none runs. The environment may set any key: KVSCOUT_NAMESPACE, KVSCOUT_ENDPOINT and so on.
 *
 *   cc scheduler.c $(pkg-config --cflags --libs kvscout-client) -o scheduler && ./scheduler
 */
#include <err.h>
#include <stdio.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/hash.h>

static uint32_t prompt[1000]; /* token ids */

int
main(void)
{
	uint8_t hashes[3 * SCOUT_SHA256_BYTES]; /* one for each full chunk of 256 tokens */
	struct scout_query query = {.id = "request 1", .hashes = hashes, .hash_len = 32, .prompt_tokens = 1000};
	struct scout_client_config cfg;
	struct scout_client *client;
	struct scout_hasher *hasher;
	struct scout_hit hit;
	char why[512];
	int rc;

	if (scout_hasher_new(NULL, &hasher) != 0 ||
	    scout_hash_chunks(hasher, prompt, 1000, NULL, hashes, 3, &query.n) != 0)
		errx(1, "cannot hash the prompt");
	scout_client_config_init(&cfg);
	cfg.name_space = "example";
	if (scout_client_config_load_env(&cfg, why, sizeof(why)) != 0 ||
	    scout_client_new(&cfg, &client, why, sizeof(why)) != 0 ||
	    scout_client_wait_ready(client, 10000, why, sizeof(why)) != 0)
		errx(1, "%s", why);
	scout_client_config_fini(&cfg);

	for (;;) { /* steps */
		scout_step_begin(client);
		rc = scout_try_lookup(client, &query, &hit); /* never waits; so for each waiting request */
		scout_step_end(client);
		if (rc == 0)
			break;
		if (rc != SCOUT_NOT_YET && rc != SCOUT_ERR_BUSY)
			errx(1, "lookup: %s", scout_strerror(rc));
		usleep(1000); /* the model computes; the next step asks again */
	}
	printf("%s: %llu of 1000 tokens are cached\n", scout_reason_name(hit.reason), (unsigned long long)hit.tokens);
	if (scout_admit(client, query.id, 0, SCOUT_TO_END) != 0) /* all of the hit will be loaded: worker.c does that */
		errx(1, "admit");
	scout_finish(client, query.id); /* the request is over */
	scout_client_free(client);
	scout_hasher_free(hasher);
	return 0;
}
