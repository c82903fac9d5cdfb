/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "msg_recode.h"

/*
 * The status of a body of @len bytes, in a heap block of exactly that size, so that the address sanitizer sees a read beyond its end.
 * When it is OK, what was decoded encodes to the same bytes. When not, nothing is encoded, and *ret_field has a rule that says what is
 * allowed.
 */
int body_status(const struct msg_codec *codec, const uint8_t *bytes, uint32_t len, unsigned hash_bytes,
		const char **ret_field);

struct scout__str str(const char *text);
