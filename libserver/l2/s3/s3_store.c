/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_store.h"

#include <stdio.h>
#include <string.h>

/*
 * Objects by name. See s3_store.h. Threads: any.
 *
 * An object is never replaced and never changes, so a store that lists or overwrites late (Swift) cannot show a wrong
 * one: a PUT and a GET of a new key are in order everywhere. A record is written again with each clear. Swift answers a
 * GET from any replica, unless it is asked for the newest of all of them (X-Newest); other stores do not know this
 * header, and read what was written last.
 */

#define KEY_TEXT (SCOUT__S3_NAME_TEXT + 16u)

static void
key_of(const char *name, uint32_t flags, char ret_key[KEY_TEXT])
{
	if (flags & SCOUT_L2_RECORD)
		(void)snprintf(ret_key, KEY_TEXT, "records/%.32s", name);
	else
		(void)snprintf(ret_key, KEY_TEXT, SCOUT__S3_OBJECTS "%.2s/%.32s", name, name);
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
	} texts[] = {{"bucket", &options->bucket},
		     {"prefix", &options->prefix},
		     {"endpoint", &options->endpoint},
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
static enum scout_l2_outcome
one(struct scout__s3_client *client, struct scout__s3_ask *ask, const char *name, uint32_t flags,
    struct scout__s3_watch *watch, char *why)
{
	char key[KEY_TEXT];

	key_of(name, flags, key);
	ask->key = key;
	scout__s3_do(client, ask, 1, watch);
	/* Also of one that was tried again until its time was over: what the last try found. */
	(void)snprintf(why, SCOUT__S3_SENTENCE, "%s", ask->why);
	return ask->result;
}

enum scout_l2_outcome
scout__s3_store_load(struct scout__s3_client *client, const char *name, uint32_t flags, const struct iovec *parts,
		     uint32_t n_parts, struct scout__s3_watch *watch, char *why)
{
	struct scout__s3_ask ask = {
		.method = "GET", .parts = parts, .n_parts = n_parts, .newest = flags & SCOUT_L2_RECORD};

	return one(client, &ask, name, flags, watch, why);
}

enum scout_l2_outcome
scout__s3_store_store(struct scout__s3_client *client, const char *name, uint32_t flags, const struct iovec *parts,
		      uint32_t n_parts, struct scout__s3_watch *watch, char *why)
{
	struct scout__s3_ask ask = {
		.method = "PUT", .parts = parts, .n_parts = n_parts, .must_be_new = !(flags & SCOUT_L2_RECORD)};

	return one(client, &ask, name, flags, watch, why);
}

enum scout_l2_outcome
scout__s3_store_remove(struct scout__s3_client *client, const char *name, struct scout__s3_watch *watch, char *why)
{
	struct scout__s3_ask ask = {.method = "DELETE"};
	enum scout_l2_outcome result = one(client, &ask, name, 0, watch, why);

	return result == SCOUT_L2_ABSENT ? SCOUT_L2_DONE : result;
}

/* ---- questions ---- */

/* HEAD names[at[i]] for each of @n, SCOUT__S3_AT_ONCE at most. DONE: each of @asks is DONE or ABSENT. */
static enum scout_l2_outcome
heads(struct scout__s3_client *client, const char *const *names, const uint32_t *at, uint32_t n,
      struct scout__s3_ask *asks, struct scout__s3_watch *watch, char *why)
{
	enum scout_l2_outcome result = SCOUT_L2_DONE;
	char keys[SCOUT__S3_AT_ONCE][KEY_TEXT];

	for (uint32_t i = 0; i < n; i++) {
		key_of(names[at[i]], 0, keys[i]);
		asks[i] = (struct scout__s3_ask){.method = "HEAD", .key = keys[i]};
	}
	scout__s3_do(client, asks, n, watch);
	for (uint32_t i = 0; i < n && result == SCOUT_L2_DONE; i++) {
		if (asks[i].result != SCOUT_L2_ABSENT)
			result = asks[i].result;
		if (result != SCOUT_L2_DONE)
			(void)snprintf(why, SCOUT__S3_SENTENCE, "%s", asks[i].why);
	}
	return result;
}

static enum scout_l2_outcome
find_each(struct scout__s3_client *client, const char *const *names, uint32_t n, uint8_t *found,
	  struct scout__s3_watch *watch, char *why)
{
	enum scout_l2_outcome result = SCOUT_L2_DONE;

	if (n > SCOUT__S3_MAX_HEADS)
		n = SCOUT__S3_MAX_HEADS;
	for (uint32_t first = 0; first < n && result == SCOUT_L2_DONE; first += SCOUT__S3_AT_ONCE) {
		uint32_t n_asks = n - first < SCOUT__S3_AT_ONCE ? n - first : SCOUT__S3_AT_ONCE;
		struct scout__s3_ask asks[SCOUT__S3_AT_ONCE];
		uint32_t at[SCOUT__S3_AT_ONCE];

		for (uint32_t i = 0; i < n_asks; i++)
			at[i] = first + i;
		result = heads(client, names, at, n_asks, asks, watch, why);
		for (uint32_t i = 0; i < n_asks; i++)
			found[first + i] = asks[i].result == SCOUT_L2_DONE;
	}
	return result;
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

static enum scout_l2_outcome
find_end(struct scout__s3_client *client, const char *const *names, uint32_t n, uint8_t *found,
	 struct scout__s3_watch *watch, char *why)
{
	enum scout_l2_outcome result = SCOUT_L2_DONE;
	uint32_t lo = 0, hi = n; /* names [0, lo) are there, name hi is not */

	for (bool is_first = true; lo < hi && result == SCOUT_L2_DONE; is_first = false) {
		struct scout__s3_ask asks[SCOUT__S3_AT_ONCE];
		uint32_t at[SCOUT__S3_AT_ONCE], n_asks = probes(lo, hi, is_first, at);

		result = heads(client, names, at, n_asks, asks, watch, why);
		for (uint32_t i = 0; i < n_asks && at[i] < hi; i++) {
			if (asks[i].result == SCOUT_L2_DONE)
				lo = at[i] + 1;
			else
				hi = at[i];
		}
	}
	memset(found, 1, lo);
	return result;
}

enum scout_l2_outcome
scout__s3_store_exists(struct scout__s3_client *client, const char *const *names, uint32_t n, uint32_t flags,
		       uint8_t *found, struct scout__s3_watch *watch, char *why)
{
	memset(found, 0, n);
	return flags & SCOUT_L2_CHAIN ? find_end(client, names, n, found, watch, why)
				      : find_each(client, names, n, found, watch, why);
}
