/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "s3_client.h"

/*
 * A store of objects in a bucket, in calls that block. An object is named by 32 hex digits and lies at
 * PREFIX/objects/xx/NAME, where xx are the first two digits: S3 spreads load by the beginnings of keys. Records lie at
 * PREFIX/records/NAME: a lifecycle rule names one prefix, and must not reach them.
 *
 * All calls: any thread, many at once; they block until the outcome, or until @watch gives up (SCOUT_L2_GAVE_UP).
 * @flags as in kvscout/l2_plugin.h. @why, of SCOUT__S3_SENTENCE bytes, is written when the result is SCOUT_L2_FAILED.
 */

#define SCOUT__S3_NAME_TEXT 33u
#define SCOUT__S3_OBJECTS "objects/"
/* Names of one question that is not about a chain; those after them count as absent. */
#define SCOUT__S3_MAX_HEADS 1024u

/* Set an option of a URL by its name; false: there is no such option, or it has no such value. @value is borrowed. */
bool scout__s3_option_set(struct scout__s3_options *options, const char *name, const char *value);

/*
 * Which of @n names are there: found[i] is 1 or 0. A result other than SCOUT_L2_DONE leaves what is known until then.
 *
 * A chain (SCOUT_L2_CHAIN) has one end: found[] is 1 before it. Between probes a name is taken to be there if a later
 * one is: a gap shows at the load. Requests (HEAD): log2(n) + 2 in the first round, at most SCOUT__S3_AT_ONCE in each of
 * the others; rounds one after the other: 1 where nothing or all is there, 2 for up to 32 names, 4 for up to 8,000: at
 * most 62 requests for the 6,400 names of 100,000 tokens on eight ranks.
 *
 * Other names cost a request each, SCOUT__S3_AT_ONCE at a time, for the first SCOUT__S3_MAX_HEADS.
 */
enum scout_l2_outcome scout__s3_store_exists(struct scout__s3_client *client, const char *const *names, uint32_t n,
					     uint32_t flags, uint8_t *found, struct scout__s3_watch *watch, char *why);
/* Load an object into @parts: DONE if it has exactly their bytes, WRONG_SIZE if not, ABSENT. */
enum scout_l2_outcome scout__s3_store_load(struct scout__s3_client *client, const char *name, uint32_t flags,
					   const struct iovec *parts, uint32_t n_parts, struct scout__s3_watch *watch,
					   char *why);
/* DONE, or PRESENT: an object that is there stays, if the store knows If-None-Match. A record is replaced. FULL. */
enum scout_l2_outcome scout__s3_store_store(struct scout__s3_client *client, const char *name, uint32_t flags,
					    const struct iovec *parts, uint32_t n_parts, struct scout__s3_watch *watch,
					    char *why);
/* DONE, also where there was none. */
enum scout_l2_outcome scout__s3_store_remove(struct scout__s3_client *client, const char *name,
					     struct scout__s3_watch *watch, char *why);
