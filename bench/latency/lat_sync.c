/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Purpose: what engines did before. A bare DEALER on the scheduler thread (probe.c) sends one LOOKUP and blocks for
 * its answer, for every waiting request of a step in turn: no courier, no ring.
 *
 * A round trip is encoding, sending, waiting, and decoding. FINISH of all of a step's lookups goes out after its last
 * round trip, in frames of its own, and is waited for outside of every time that is reported: an engine may do
 * without.
 *
 * Threads: main only (and libzmq's). Rejected: the client with one lookup at a time, which is `polled`.
 */
#include "lat.h"

#include <stdlib.h>

#include <kvscout/error.h>

#include "msg.h"
#include "probe.h"

struct lat_sync {
	struct lat *lat;
	struct probe *probe;
	uint64_t *tickets; /* of this step */
	uint64_t next_request;
};

size_t
lat_lookup_bytes(const struct lat_options *opt)
{
	/* Of the LOOKUP's fields, see protocol.h: u64, 5 x u32, 2 x u16, and an empty str. */
	return SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + 8 + 5 * 4 + 2 * 2 + 2 +
	       (size_t)opt->chunks * LAT_HASH_BYTES;
}

size_t
lat_answer_bytes(void)
{
	return SCOUT_FRAME_HEADER_BYTES + SCOUT_OP_HEADER_BYTES + 4 * 4;
}

static void
sync_close(void *self)
{
	struct lat_sync *sync = self;

	if (!sync)
		return;
	probe_free(sync->probe);
	free(sync->tickets);
	free(sync);
}

static int
sync_open(struct lat *lat, void **ret_self)
{
	struct lat_sync *sync = calloc(1, sizeof(*sync));
	const struct probe_config cfg = {
		.endpoint = lat->endpoint,
		.curve_secret_file = lat->opt->keys.secret_file,
		.curve_server_key = lat->opt->keys.server_key,
		.name_space = lat->opt->name_space,
		.chunk_tokens = LAT_CHUNK_TOKENS,
		.kv_ranks = 1,
		.hash_bytes = LAT_HASH_BYTES,
		.timeout_ms = lat_timeout_ms(lat->opt),
		.is_stopped = lat_is_stopped,
	};
	char err[LAT_ERR_BYTES];

	if (sync)
		sync->tickets = calloc(lat->opt->inflight, sizeof(*sync->tickets));
	if (!sync || !sync->tickets) {
		sync_close(sync);
		return lat_fail(lat, "out of memory");
	}
	sync->lat = lat;
	if (probe_new(&cfg, &sync->probe, err, sizeof(err)) < 0) {
		sync_close(sync);
		return lat_fail(lat, "sync: %s", err);
	}
	*ret_self = sync;
	return 0;
}

/* One step: what has arrived, each asked and answered in turn; then all are ended. *ret_asked counts them. */
static int
sync_step(struct lat_sync *sync, struct lat_result *result, struct lat_arrivals *arrivals, uint64_t *ret_asked,
	  char err[LAT_ERR_BYTES])
{
	const struct lat_keys *keys = &sync->lat->keys;
	const uint64_t inflight = sync->lat->opt->inflight, begin_ns = scout__now_ns();
	uint64_t start_ns, end_ns, stall_ns = 0, asked = 0, prompt, intended_ns;
	uint32_t hit;
	int rc = 0;

	for (; asked < inflight && lat_arrivals_take(arrivals, begin_ns, &intended_ns); asked++) {
		prompt = sync->next_request++ % keys->n_prompts;
		start_ns = scout__now_ns();
		rc = probe_lookup(sync->probe, lat_keys_hashes(keys, prompt), (uint32_t)keys->chunks,
				  &sync->tickets[asked], &hit, err, LAT_ERR_BYTES);
		end_ns = scout__now_ns();
		if (rc < 0)
			break;
		stall_ns += end_ns - start_ns;
		scout__hist_add(&result->metrics[LAT_RTT], end_ns - start_ns);
		if (intended_ns)
			scout__hist_add(&result->metrics[LAT_SEEN], end_ns - intended_ns);
		lat_count_answer(sync->lat, result, prompt, hit);
	}
	*ret_asked = asked;
	if (rc < 0 || !asked)
		return rc;
	scout__hist_add(&result->metrics[LAT_STALL], stall_ns);
	result->steps++;
	return probe_finish(sync->probe, sync->tickets, asked, err, LAT_ERR_BYTES);
}

static int
sync_run(void *self, struct lat_result *result, uint64_t requests)
{
	struct lat_sync *sync = self;
	struct lat_arrivals arrivals;
	char err[LAT_ERR_BYTES];
	struct lat_pace pace;
	uint64_t n;
	int rc = 0;

	lat_arrivals_begin(&arrivals, sync->lat, requests);
	lat_pace_begin(&pace, sync->lat);
	for (uint64_t done = 0; done < requests && rc == 0 && !lat_is_stopped(); done += n) {
		rc = sync_step(sync, result, &arrivals, &n, err);
		lat_pace_wait(&pace);
	}
	return rc < 0 && rc != SCOUT_ERR_CANCELED ? lat_fail(sync->lat, "sync: %s", err) : 0;
}

const struct lat_runner lat_sync_runner = {
	.open = sync_open,
	.run = sync_run,
	.close = sync_close,
};
