/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * What engines did before, as a floor for comparison and for the server's counters: a bare DEALER on which the
 * calling thread sends a request and blocks for the reply. It speaks the protocol by the libraries' codec and shares
 * nothing else with the client. One thread.
 */

struct probe;

struct probe_config {
	const char *endpoint;
	const char *curve_secret_file, *curve_server_key; /* NULL: no encryption */
	const char *name_space;
	uint32_t chunk_tokens;
	uint32_t kv_ranks;
	uint32_t hash_bytes;
	uint32_t timeout_ms; /* of each wait; 0: 5000 */
	bool (*is_stopped)(
		void); /* asked when a signal interrupts a wait, which true ends with SCOUT_ERR_CANCELED; NULL: never */
};

/* Connects and says HELLO. Returns 0 or SCOUT_ERR_* and a sentence in @err. */
int probe_new(const struct probe_config *cfg, struct probe **ret_probe, char *err, size_t err_len);
void probe_free(struct probe *probe);

/* Ask for @n chunks and wait. The session stays until probe_finish(). Returns 0 or SCOUT_ERR_*. */
int probe_lookup(struct probe *probe, const uint8_t *hashes, uint32_t n, uint64_t *ret_ticket, uint32_t *ret_hit,
		 char *err, size_t err_len);
/* End @n sessions, and wait until the server has, so that the next question finds it idle. Returns 0 or SCOUT_ERR_*. */
int probe_finish(struct probe *probe, const uint64_t *tickets, uint64_t n, char *err, size_t err_len);

/* One of the server's counters. Returns 0, SCOUT_ERR_UNSUPPORTED (it has none of this name), or another SCOUT_ERR_*. */
int probe_counter(struct probe *probe, const char *name, uint64_t *ret_value, char *err, size_t err_len);
