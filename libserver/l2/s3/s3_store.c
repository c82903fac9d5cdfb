/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_store.h"

#include <stdio.h>
#include <string.h>

/*
 * Objects by name. See s3_store.h. Threads: any.
 *
 * An object is never replaced and never changes, so a store that lists or overwrites late (Swift) cannot show a wrong
 * one: a PUT and a GET of a new key are in order everywhere. A record that is written again, as that of a clear is, may be read in its
 * former state for a while from such a store. Until then its reader uses the former cache generation, whose objects are
 * those from before the clear: AWS, RGW and MinIO read what was written last.
 */

#define KEY_TEXT (SCOUT__S3_NAME_TEXT + 3u)

static void
key_of(const char *name, char ret_key[KEY_TEXT])
{
	(void)snprintf(ret_key, KEY_TEXT, "%.2s/%.32s", name, name);
}

static bool
set_one_of(const char *value, const char *no, const char *yes, bool *ret)
{
	*ret = strcmp(value, yes) == 0;
	return *ret || strcmp(value, no) == 0;
}

bool
scout__s3_option_set(struct scout__s3_options *options, const char *name, const char *value)
{
	struct {
		const char *name, **to;
	} texts[] = {{"endpoint", &options->endpoint},
		     {"region", &options->region},
		     {"style", &options->style},
		     {"ca", &options->ca_file},
		     {"credentials", &options->credentials_file}};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		if (strcmp(name, texts[i].name) == 0) {
			*texts[i].to = value;
			return *value != '\0';
		}
	}
	return strcmp(name, "payload") == 0 && set_one_of(value, "hash", "unsigned", &options->unsigned_payload);
}

/* One request of one object, and why it failed. */
static enum scout__s3_result
one(struct scout__s3_client *client, struct scout__s3_ask *ask, const char *name, const struct scout__s3_watch *watch,
    char *why)
{
	char key[KEY_TEXT];

	if (name) {
		key_of(name, key);
		ask->key = key;
	}
	scout__s3_do(client, ask, 1, watch);
	if (ask->result == SCOUT__S3_ERROR)
		(void)snprintf(why, SCOUT__S3_SENTENCE, "%s", ask->why);
	return ask->result;
}

enum scout__s3_result
scout__s3_store_load(struct scout__s3_client *client, const char *name, const struct iovec *parts, uint32_t n_parts,
		     const struct scout__s3_watch *watch, char *why)
{
	struct scout__s3_ask ask = {.method = "GET", .parts = parts, .n_parts = n_parts};

	return one(client, &ask, name, watch, why);
}

enum scout__s3_result
scout__s3_store_store(struct scout__s3_client *client, const char *name, const struct iovec *parts, uint32_t n_parts,
		      const struct scout__s3_watch *watch, char *why)
{
	struct scout__s3_ask ask = {.method = "PUT", .parts = parts, .n_parts = n_parts, .must_be_new = true};

	return one(client, &ask, name, watch, why);
}

enum scout__s3_result
scout__s3_store_remove(struct scout__s3_client *client, const char *name, const struct scout__s3_watch *watch,
		       char *why)
{
	struct scout__s3_ask ask = {.method = "DELETE"};
	enum scout__s3_result result = one(client, &ask, name, watch, why);

	return result == SCOUT__S3_ABSENT ? SCOUT__S3_DONE : result;
}

enum scout__s3_result
scout__s3_store_try(struct scout__s3_client *client, const struct scout__s3_watch *watch, char *why)
{
	struct scout__s3_ask ask = {.method = "GET", .n_pairs = 2, .pairs = {{"list-type", "2"}, {"max-keys", "0"}}};

	return one(client, &ask, NULL, watch, why);
}

/*
 * Where to look next, between @lo, the number of names that are there, and @hi, below which the end lies: 1, 2, 4 ... names
 * ahead in the first round, since most chains are either new or there as a whole; then evenly. Rising; at most
 * SCOUT__S3_AT_ONCE.
 */
static uint32_t
probes(uint32_t lo, uint32_t hi, bool is_first, uint32_t *ret_at)
{
	uint32_t n = 0, between = hi - lo;

	if (is_first) {
		for (uint64_t ahead = 1; ahead < between && n < SCOUT__S3_AT_ONCE - 1; ahead *= 2)
			ret_at[n++] = (uint32_t)ahead - 1;
		ret_at[n++] = hi - 1;
		return n;
	}
	if (between <= SCOUT__S3_AT_ONCE) {
		for (uint32_t i = lo; i < hi; i++)
			ret_at[n++] = i;
		return n;
	}
	for (uint64_t i = 1; i <= SCOUT__S3_AT_ONCE; i++)
		ret_at[n++] = lo + (uint32_t)(between * i / (SCOUT__S3_AT_ONCE + 1));
	return n;
}

enum scout__s3_result
scout__s3_store_exists(struct scout__s3_client *client, const char *const *names, uint32_t n, uint8_t *found,
		       const struct scout__s3_watch *watch, char *why)
{
	enum scout__s3_result result = SCOUT__S3_DONE;
	uint32_t lo = 0, hi = n; /* names [0, lo) are there, name hi is not */

	memset(found, 0, n);
	for (bool is_first = true; lo < hi && result == SCOUT__S3_DONE; is_first = false) {
		struct scout__s3_ask asks[SCOUT__S3_AT_ONCE];
		char keys[SCOUT__S3_AT_ONCE][KEY_TEXT];
		uint32_t at[SCOUT__S3_AT_ONCE], n_asks = probes(lo, hi, is_first, at);

		for (uint32_t i = 0; i < n_asks; i++) {
			key_of(names[at[i]], keys[i]);
			asks[i] = (struct scout__s3_ask){.method = "HEAD", .key = keys[i]};
		}
		scout__s3_do(client, asks, n_asks, watch);
		for (uint32_t i = 0; i < n_asks && at[i] < hi && result == SCOUT__S3_DONE; i++) {
			if (asks[i].result == SCOUT__S3_DONE)
				lo = at[i] + 1;
			else if (asks[i].result == SCOUT__S3_ABSENT)
				hi = at[i];
			else
				result = asks[i].result;
			if (result == SCOUT__S3_ERROR)
				(void)snprintf(why, SCOUT__S3_SENTENCE, "%s", asks[i].why);
		}
	}
	memset(found, 1, lo);
	return result;
}
