/* SPDX-License-Identifier: Apache-2.0 */
#include "msg.h"
#include "ops_internal.h"
#include "reply.h"

/* PING: an empty reply, for every sender, also while the server stops. Loop thread. */

void
scout__serve_ping(struct scout_server *s, struct scout__request *req)
{
	const char *field = "";
	int status = scout__get_empty(req->op, &field);

	if (status)
		(void)scout__refuse_body(s, req->dest, req->op, status, field);
	else
		scout__reply_empty(s, req->dest, req->op->opcode, req->op->corr);
}
