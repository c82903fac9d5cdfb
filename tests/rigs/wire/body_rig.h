/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_BODY_RIG_H
#define KVSCOUT_TESTS_BODY_RIG_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "msg_golden.h"
#include "msg_recode.h"

/* A frame with one body: written, taken apart, compared with its golden bytes. */

/* Room for any golden body, and the golden body as an operation. */
struct fixture {
	uint8_t buf[256];
	struct scout__writer w;
	uint8_t *body;
	struct scout__op op;
	const char *field;
};

extern struct fixture f;

/* Before each case: begin(OP, KIND) makes @f.op from the golden bytes, in a heap block of exactly their size. */
void begin(uint8_t opcode, uint8_t kind);

/* What was put into @f.w is golden. */
void end(void);
struct scout__str str(const char *text);
void check_str(struct scout__str got, const char *expected);

#endif
