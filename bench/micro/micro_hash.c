/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Cost of the block hashes in nanoseconds for each token, for blocks of 16 and 64, beside the floor: the same number of
 * messages of the same lengths through the same digest, without encoding and chaining. The prompt is 8192 ids
 * drawn evenly from a vocabulary of 151936, which gives mostly five-byte integers; real text has smaller ids.
 *
 * A measurement doubles its repetitions until five samples of at least 5 ms lie within 2 % of each other, at most until
 * samples take 160 ms, and reports the median; the spread of those samples is printed with it. Exits 1 if anything
 * fails.
 *
 * Threads: main only.
 */
#include <kvscout/hash.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "clock.h"
#include "json_env.h"
#include "say.h"
#include "sha256.h"
#include "spread.h"

#define N_TOKENS 8192
#define N_SAMPLES 5
#define SAMPLE_NS_MIN 5e6
#define SAMPLE_NS_MAX 160e6
#define SPREAD_WANTED 0.02

struct hash_job {
	struct scout_hasher *hasher;
	struct scout__sha256 sha;
	uint32_t tokens[N_TOKENS];
	uint32_t block_tokens;
	size_t lengths[N_TOKENS]; /* bytes that each block is encoded to */
	uint8_t *message;         /* as long as the longest of them */
	uint8_t *hashes;
};

struct hash_timing {
	double ns; /* for each token, median */
	double spread;
};

typedef bool (*pass_fn)(struct hash_job *job);

static bool
pass_hash(struct hash_job *job)
{
	size_t n;

	return scout_hash_blocks(job->hasher, NULL, 0, job->tokens, N_TOKENS, NULL, job->hashes, N_TOKENS, &n) == 0;
}

static bool
pass_floor(struct hash_job *job)
{
	size_t i, n = N_TOKENS / job->block_tokens;

	for (i = 0; i < n; i++) {
		if (scout__sha256_digest(&job->sha, job->message, job->lengths[i],
					 job->hashes + i * SCOUT_SHA256_BYTES) != 0)
			return false;
	}
	return true;
}

static bool
measure(struct hash_job *job, pass_fn pass, struct hash_timing *ret_timing)
{
	double samples[N_SAMPLES], spread;
	struct spread all;
	size_t repeat = 1, i, k;
	uint64_t start;

	for (;; repeat *= 2) {
		for (i = 0; i < N_SAMPLES; i++) {
			start = scout__now_ns();
			for (k = 0; k < repeat; k++) {
				if (!pass(job))
					return false;
			}
			samples[i] = (double)(scout__now_ns() - start);
		}
		all = spread_of(samples, N_SAMPLES);
		spread = (all.max - all.min) / all.p50;
		if (all.min >= SAMPLE_NS_MIN && (spread <= SPREAD_WANTED || all.min >= SAMPLE_NS_MAX))
			break;
	}
	ret_timing->ns = all.p50 / (double)repeat / N_TOKENS;
	ret_timing->spread = spread;
	return true;
}

static size_t
head_bytes(uint32_t value)
{
	return value < 24 ? 1 : value <= 0xff ? 2 : value <= 0xffff ? 3 : 5;
}

static bool
prepare(struct hash_job *job, uint32_t block_tokens)
{
	struct scout_hasher_config cfg;
	size_t block, i, longest = 0;
	uint64_t x = 88172645463325252u;

	for (i = 0; i < N_TOKENS; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		job->tokens[i] = (uint32_t)(x % 151936);
	}
	job->block_tokens = block_tokens;
	for (block = 0; block < N_TOKENS / block_tokens; block++) {
		/* Head, parent, head of the ids, null. */
		size_t bytes = 1 + 2 + SCOUT_SHA256_BYTES + head_bytes(block_tokens) + 1;

		for (i = 0; i < block_tokens; i++)
			bytes += head_bytes(job->tokens[block * block_tokens + i]);
		job->lengths[block] = bytes;
		longest = bytes > longest ? bytes : longest;
	}
	scout_hasher_config_init(&cfg);
	cfg.block_tokens = block_tokens;
	job->message = calloc(longest, 1);
	job->hashes = calloc(N_TOKENS, SCOUT_SHA256_BYTES);
	return scout__sha256_init(&job->sha) == 0 && job->message && job->hashes &&
	       scout_hasher_new(&cfg, &job->hasher) == 0;
}

static void
release(struct hash_job *job)
{
	scout_hasher_free(job->hasher);
	scout__sha256_fini(&job->sha);
	free(job->message);
	free(job->hashes);
}

static bool
report(uint32_t block_tokens)
{
	static struct hash_job job; /* too large for the stack */
	struct hash_timing hash, floor_of_it;
	bool ok;

	memset(&job, 0, sizeof(job));
	ok = prepare(&job, block_tokens) && measure(&job, pass_hash, &hash) && measure(&job, pass_floor, &floor_of_it);
	if (ok)
		say("block %2u: %6.2f ns/token (spread %.1f %%), floor %6.2f ns/token (spread %.1f %%)\n",
		    (unsigned)block_tokens, hash.ns, hash.spread * 100, floor_of_it.ns, floor_of_it.spread * 100);
	else
		complain("hashing failed");
	release(&job);
	return ok;
}

int
main(int argc, char **argv)
{
	const struct cli cli = {.tool = "micro_hash", .about = "What the block hashes cost for each token."};
	const char *why;
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	if (json_env_is_slow_build(&why))
		say("THESE NUMBERS MEAN NOTHING: %s\n", why);
	return report(16) && report(64) ? EXIT_SUCCESS : EXIT_FAILURE;
}
