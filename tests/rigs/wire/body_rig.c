/* SPDX-License-Identifier: Apache-2.0 */
#include "body_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

int
body_status(const struct msg_codec *codec, const uint8_t *bytes, uint32_t len, unsigned hash_bytes,
	    const char **ret_field)
{
	uint8_t *body = malloc(len > 0 ? len : 1), *again = malloc(len > 0 ? len : 1);
	const struct scout__op op = {.opcode = codec->opcode, .kind = codec->kind, .length = len, .body = body};
	struct scout__writer w = {.buf = again, .cap = len};
	const char *field = NULL;
	int status;

	ck_assert(body && again);
	memcpy(body, bytes, len);
	status = codec->recode(&op, hash_bytes, &w, &field);
	if (status == SCOUT_WIRE_OK) {
		ck_assert_msg(!w.bad && w.len == len && memcmp(again, bytes, len) == 0, "%s: other bytes", codec->name);
	} else {
		ck_assert_msg(field && scout__field_rule(&op, field), "%s: msg_rules.c does not say what %s allows",
			      codec->name, field ? field : "(no field)");
		ck_assert_uint_eq(w.len, 0);
		*ret_field = field;
	}
	free(body);
	free(again);
	return status;
}

struct scout__str
str(const char *text)
{
	return (struct scout__str){.p = text, .len = (uint16_t)strlen(text)};
}
