/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_S3_STORE_H
#define SCOUT_S3_STORE_H

#include "s3_client.h"

/*
 * A store of objects in a bucket: what a plugin of L2 does, in calls that block. An object is named by 32 hex digits and
 * lies at PREFIX/xx/NAME, where xx are the first two digits: S3 spreads load by the beginnings of keys.
 *
 * All calls: any thread, many at once; they block until the outcome, or until @watch gives up (SCOUT__S3_CANCELLED).
 * @why, of SCOUT__S3_SENTENCE bytes, is written when the result is SCOUT__S3_ERROR.
 */

#define SCOUT__S3_NAME_TEXT 33u

/* Set an option of a URL by its name; false: there is no such option, or it has no such value. @value is borrowed. */
bool scout__s3_option_set(struct scout__s3_options *options, const char *name, const char *value);

/*
 * Which of @n names, in the order of a chain, are there: found[i] is 1 for all up to the last of an unbroken row from the
 * first on, as far as the probes tell, and 0 after it. Between probes a name is taken to be there if a later one is: a gap shows
 * at the load. A result other than SCOUT__S3_DONE leaves what is known until then.
 *
 * Requests (HEAD): log2(n) + 2 in the first round, at most SCOUT__S3_AT_ONCE in each of the others; rounds one after the other:
 * 1 where nothing or all is there, 2 for up to 32 names, 4 for up to 8,000: at most 62 requests for the 6,400 names of 100,000 tokens on
 * eight ranks.
 */
enum scout__s3_result scout__s3_store_exists(struct scout__s3_client *client, const char *const *names, uint32_t n,
					     uint8_t *found, const struct scout__s3_watch *watch, char *why);
/* Load an object into @parts: DONE if it has exactly their bytes, WRONG_SIZE if not, ABSENT. */
enum scout__s3_result scout__s3_store_load(struct scout__s3_client *client, const char *name, const struct iovec *parts,
					   uint32_t n_parts, const struct scout__s3_watch *watch, char *why);
/* DONE, or PRESENT: an object that is there stays, if the store knows If-None-Match. FULL. */
enum scout__s3_result scout__s3_store_store(struct scout__s3_client *client, const char *name,
					    const struct iovec *parts, uint32_t n_parts,
					    const struct scout__s3_watch *watch, char *why);
/* DONE, also where there was none. */
enum scout__s3_result scout__s3_store_remove(struct scout__s3_client *client, const char *name,
					     const struct scout__s3_watch *watch, char *why);
/* Whether the bucket can be asked at all: one request for a listing of nothing. DONE, or ERROR with a sentence. */
enum scout__s3_result scout__s3_store_try(struct scout__s3_client *client, const struct scout__s3_watch *watch,
					  char *why);

#endif
