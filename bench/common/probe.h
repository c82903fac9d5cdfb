/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_BENCH_PROBE_H
#define SCOUT_BENCH_PROBE_H

#include <stddef.h>
#include <stdint.h>

/*
 * A second way to a server, for comparison and for its counters: a bare DEALER on which the calling thread sends a
 * request and waits for the reply, as engines did before. One thread.
 */

struct probe;

struct probe_config {
	const char *endpoint;
	const char *curve_secret_file, *curve_server_key; /* NULL: no encryption */
	const char *name_space;
	uint32_t chunk_tokens;
	uint32_t kv_ranks;
	uint32_t hash_bytes;
};

/* Connects and says HELLO. Returns 0 or SCOUT_ERR_* and a sentence in @err. */
int probe_new(const struct probe_config *cfg, struct probe **ret_probe, char *err, size_t err_len);
void probe_free(struct probe *probe);

/*
 * Ask for @n chunks and wait. *ret_ns is the time from before the request is built until its answer is decoded; the
 * promise is given back after that, outside of it. Returns 0 or SCOUT_ERR_*.
 */
int probe_lookup(struct probe *probe, const uint8_t *hashes, uint32_t n, uint32_t *ret_hit, uint64_t *ret_ns, char *err,
		 size_t err_len);

/* One of the server's counters. Returns 0, SCOUT_ERR_UNSUPPORTED (it has none of this name), or another SCOUT_ERR_*. */
int probe_counter(struct probe *probe, const char *name, uint64_t *ret_value, char *err, size_t err_len);

#endif
