/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* See s3_index.h. A set is an open table with linear probing; a name is a hash, so its lower half is its place. */

#define FIRST_SIZE 1024u
#define PAGE 1000u
#define PAGE_BYTES (2u << 20)
#define TOKEN_TEXT 2048u

/* False: these are not 32 lower-case hex digits. */
static bool
parse(const char *text, struct scout__s3_name *ret_name)
{
	uint64_t half[2] = {0, 0};

	for (uint32_t i = 0; i < 32; i++) {
		char c = text[i];

		if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
			return false;
		half[i / 16] = half[i / 16] << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
	}
	*ret_name = (struct scout__s3_name){half[0], half[1]};
	return text[32] == '\0' && (half[0] | half[1]) != 0;
}

static bool
is_empty(struct scout__s3_name name)
{
	return (name.hi | name.lo) == 0;
}

/* Where @name is, or would be. */
static size_t
place(const struct scout__s3_set *set, struct scout__s3_name name)
{
	size_t i = (size_t)name.lo & (set->size - 1);

	while (!is_empty(set->at[i]) && (set->at[i].hi != name.hi || set->at[i].lo != name.lo))
		i = (i + 1) & (set->size - 1);
	return i;
}

static bool
has(const struct scout__s3_set *set, struct scout__s3_name name)
{
	return set->size && !is_empty(set->at[place(set, name)]);
}

static bool
grow(struct scout__s3_set *set)
{
	struct scout__s3_set larger = {.n = set->n, .size = set->size ? 2 * set->size : FIRST_SIZE};

	larger.at = calloc(larger.size, sizeof(*larger.at));
	if (!larger.at)
		return false;
	for (size_t i = 0; i < set->size; i++) {
		if (!is_empty(set->at[i]))
			larger.at[place(&larger, set->at[i])] = set->at[i];
	}
	free(set->at);
	*set = larger;
	return true;
}

static bool
add(struct scout__s3_set *set, size_t max, struct scout__s3_name name)
{
	size_t i;

	if (set->n >= max)
		return true;
	if ((set->n + 1) * 4 > set->size * 3 && !grow(set))
		return false;
	i = place(set, name);
	set->n += is_empty(set->at[i]);
	set->at[i] = name;
	return true;
}

/* What follows in the same row moves up, so that no search ends too early. */
static void
drop(struct scout__s3_set *set, struct scout__s3_name name)
{
	size_t hole, i;

	if (!has(set, name))
		return;
	hole = i = place(set, name);
	for (;;) {
		i = (i + 1) & (set->size - 1);
		if (is_empty(set->at[i]))
			break;
		/* It may move if its own place is not between the hole and here. */
		if (((i - set->at[i].lo) & (set->size - 1)) >= ((i - hole) & (set->size - 1))) {
			set->at[hole] = set->at[i];
			hole = i;
		}
	}
	set->at[hole] = (struct scout__s3_name){0, 0};
	set->n--;
}

static bool
add_all(struct scout__s3_set *to, size_t max, const struct scout__s3_set *from)
{
	bool is_good = true;

	for (size_t i = 0; i < from->size && is_good; i++)
		is_good = is_empty(from->at[i]) || add(to, max, from->at[i]);
	return is_good;
}

static void
clear(struct scout__s3_set *set)
{
	free(set->at);
	*set = (struct scout__s3_set){0};
}

bool
scout__s3_index_init(struct scout__s3_index *index)
{
	memset(index, 0, sizeof(*index));
	index->page = PAGE;
	index->max = SCOUT__S3_INDEX_NAMES;
	return pthread_mutex_init(&index->mu, NULL) == 0;
}

void
scout__s3_index_fini(struct scout__s3_index *index)
{
	clear(&index->names);
	clear(&index->own[0]);
	clear(&index->own[1]);
	(void)pthread_mutex_destroy(&index->mu);
}

void
scout__s3_index_exists(struct scout__s3_index *index, const char *const *names, uint32_t n, uint8_t *found)
{
	(void)pthread_mutex_lock(&index->mu);
	for (uint32_t i = 0; i < n; i++) {
		struct scout__s3_name name;

		found[i] = parse(names[i], &name) && has(&index->names, name);
	}
	(void)pthread_mutex_unlock(&index->mu);
}

void
scout__s3_index_add(struct scout__s3_index *index, const char *text)
{
	struct scout__s3_name name;

	if (!parse(text, &name))
		return;
	(void)pthread_mutex_lock(&index->mu);
	(void)(add(&index->names, index->max, name) && add(&index->own[0], index->max, name));
	(void)pthread_mutex_unlock(&index->mu);
}

void
scout__s3_index_remove(struct scout__s3_index *index, const char *text)
{
	struct scout__s3_name name;

	if (!parse(text, &name))
		return;
	(void)pthread_mutex_lock(&index->mu);
	drop(&index->names, name);
	drop(&index->own[0], name);
	drop(&index->own[1], name);
	(void)pthread_mutex_unlock(&index->mu);
}

/* The names of a page, in keys xx/NAME below the prefix; others are of other users. False: no memory. */
static bool
take_page(struct scout__s3_set *set, size_t max, const char *xml, size_t prefix_len)
{
	char key[SCOUT__S3_MAX_KEY + 64];
	bool is_good = true;

	for (const char *at = xml; is_good && scout__s3_xml(at, "Key", key, sizeof(key), &at);) {
		size_t len = strlen(key);
		struct scout__s3_name name;

		if (len == prefix_len + 3 + 32 && parse(key + len - 32, &name))
			is_good = add(set, max, name);
	}
	return is_good;
}

/* One page into @xml, from @token on, which becomes that of the next; "": this was the last. */
static enum scout_l2_outcome
ask_page(const struct scout__s3_index *index, struct scout__s3_client *client, char *xml, char *token,
	 struct scout__s3_watch *watch, char *why)
{
	struct scout__s3_ask ask = {.method = "GET", .text = scout__s3_text_in(xml, PAGE_BYTES)};
	char prefix[SCOUT__S3_MAX_KEY + 16], page[16];

	(void)snprintf(prefix, sizeof(prefix), "%s%s" SCOUT__S3_OBJECTS, client->prefix, *client->prefix ? "/" : "");
	(void)snprintf(page, sizeof(page), "%u", index->page);
	ask.pairs[ask.n_pairs++] = (struct scout__s3_pair){"list-type", "2"};
	ask.pairs[ask.n_pairs++] = (struct scout__s3_pair){"max-keys", page};
	ask.pairs[ask.n_pairs++] = (struct scout__s3_pair){"prefix", prefix};
	if (*token)
		ask.pairs[ask.n_pairs++] = (struct scout__s3_pair){"continuation-token", token};
	scout__s3_do(client, &ask, 1, watch);
	if (ask.result == SCOUT_L2_DONE && ask.text.is_cut) {
		(void)snprintf(ask.why, sizeof(ask.why), "a page of the listing is longer than %u bytes", PAGE_BYTES);
		ask.result = SCOUT_L2_FAILED;
	}
	if (ask.result == SCOUT_L2_DONE && !scout__s3_xml(xml, "NextContinuationToken", token, TOKEN_TEXT, NULL) &&
	    strstr(xml, "<NextContinuationToken>")) {
		(void)snprintf(ask.why, sizeof(ask.why), "a continuation token of the listing is longer than %u bytes",
			       TOKEN_TEXT - 1);
		ask.result = SCOUT_L2_FAILED;
	}
	if (ask.result == SCOUT_L2_FAILED)
		(void)snprintf(why, SCOUT__S3_SENTENCE, "%s", ask.why);
	return ask.result;
}

/* Own stores from now on may be missing in the listing that begins. */
static void
turn(struct scout__s3_index *index)
{
	(void)pthread_mutex_lock(&index->mu);
	clear(&index->own[1]);
	index->own[1] = index->own[0];
	index->own[0] = (struct scout__s3_set){0};
	(void)pthread_mutex_unlock(&index->mu);
}

static void
replace(struct scout__s3_index *index, struct scout__s3_set *listed)
{
	struct scout__s3_set old;

	index->n_listed = listed->n;
	(void)pthread_mutex_lock(&index->mu);
	(void)(add_all(listed, index->max, &index->own[0]) && add_all(listed, index->max, &index->own[1]));
	old = index->names;
	index->names = *listed;
	(void)pthread_mutex_unlock(&index->mu);
	*listed = old;
	index->is_listed = true;
}

enum scout_l2_outcome
scout__s3_index_list(struct scout__s3_index *index, struct scout__s3_client *client, struct scout__s3_watch *watch,
		     char *why)
{
	enum scout_l2_outcome result = SCOUT_L2_FAILED;
	struct scout__s3_set listed = {0};
	char *xml = malloc(PAGE_BYTES);
	size_t prefix_len = strlen(SCOUT__S3_OBJECTS) + (*client->prefix ? strlen(client->prefix) + 1 : 0);
	char token[TOKEN_TEXT] = "";

	(void)snprintf(why, SCOUT__S3_SENTENCE, "no memory");
	if (!xml)
		return result;
	turn(index);
	do {
		result = ask_page(index, client, xml, token, watch, why);
		if (result == SCOUT_L2_DONE && !take_page(&listed, index->max, xml, prefix_len)) {
			(void)snprintf(why, SCOUT__S3_SENTENCE, "no memory");
			result = SCOUT_L2_FAILED;
		}
	} while (result == SCOUT_L2_DONE && *token);
	if (result == SCOUT_L2_DONE)
		replace(index, &listed);
	clear(&listed);
	free(xml);
	return result;
}
