/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <check.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "l2.h"
#include "url.h"

/*
 * An adapter that does what a test says, and l2_submit over it. "script://a": the path names it. Operations stand in the order of
 * their submit until the test ends them.
 */
#define SCRIPT_ROOM 64

struct script {
	struct scout__l2_port *port;
	struct scout__l2_op *ops[SCRIPT_ROOM]; /* not ended */
	unsigned n;
	unsigned submits;
	bool is_refusing;
	bool hangs;
	bool is_stopped;
	bool is_closed;
	uint32_t max_ops;
};

extern struct script scripts[SCOUT__L2_MAX_ADAPTERS + 1];
extern unsigned n_scripts;
extern uint32_t script_wants[2]; /* at once, by enum scout__l2_side; of those opened next */

/* End operation @i of those that are not. */
void script_end(struct script *script, unsigned i, enum scout__l2_result result, int detail);
extern const struct scout__l2_adapter *const script_adapters[];

/* ---- the log ---- */

extern char log_text[16384];
void log_line(void *user, int level, const char *text);
extern const struct scout__log test_log;

/* How often @what stands in the log. */
unsigned logged(const char *what);
