/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"
#include "fault_rig.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <zmq.h>

#include "msg.h"

/* kvscoutd --status of a server that means harm: one line for each name, and nothing that a terminal obeys. */

#define NAME(text)                                                                                                     \
	{                                                                                                              \
		text, sizeof(text) - 1                                                                                 \
	}

static char endpoint[160];
static void *router;

/* Answer one STATUS with names that a peer, or a whole server, may have chosen. */
static void *
answer_status(void *arg)
{
	static const struct scout__str names[] = {NAME("ns.a\nforged 1\nb.peers"),
						  NAME("ns.\x1b[2J\x1b]0;x\x07.peers"),
						  NAME("ns.\xc2\x9b"
						       "2J.peers"),
						  NAME("ns.\xff\xfe.peers"),
						  NAME("ns.back\\slash.peers"),
						  NAME("ns.gr\xc3\xbcn.peers")};
	uint8_t identity[255], frame[4096];
	struct scout__writer w = {.buf = frame, .cap = sizeof(frame)};
	int len = zmq_recv(router, identity, sizeof(identity), 0);
	zmq_msg_t msg;
	size_t op;

	(void)arg;
	(void)zmq_msg_init(&msg);
	(void)zmq_msg_recv(&msg, router, 0);
	(void)zmq_msg_close(&msg);
	scout__frame_begin(&w);
	op = scout__op_begin(&w, SCOUT_OP_STATUS, SCOUT_KIND_REPLY, SCOUT_WIRE_OK, 1, 0);
	scout__put_u32(&w, sizeof(names) / sizeof(names[0]));
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		scout__put_str(&w, names[i].p, names[i].len);
		scout__put_u64(&w, i);
	}
	scout__op_end(&w, op);
	scout__frame_end(&w, 1, 7, 1);
	(void)zmq_send(router, identity, (size_t)len, ZMQ_SNDMORE);
	(void)zmq_send(router, frame, w.len, 0);
	return NULL;
}

UNCHECKED_FIXTURE(fault_make_home, NULL);

START_TEST(what_status_prints_is_escaped)
{
	static const char want[] = "ns.a\\nforged 1\\nb.peers 0\n"
				   "ns.\\x1b[2J\\x1b]0;x\\x07.peers 1\n"
				   "ns.\\xc2\\x9b2J.peers 2\n"
				   "ns.\\xff\\xfe.peers 3\n"
				   "ns.back\\\\slash.peers 4\n"
				   "ns.gr\xc3\xbcn.peers 5\n";
	char *argv[] = {(char *)(uintptr_t)fault_kvscoutd(), (char *)(uintptr_t) "--status", endpoint, NULL};
	void *zctx = zmq_ctx_new();
	pthread_t thread;
	char text[4096];
	int status;

	router = zmq_socket(zctx, ZMQ_ROUTER);
	(void)snprintf(endpoint, sizeof(endpoint), "ipc://%s/%d", fault_home(), (int)getpid());
	ck_assert_int_eq(zmq_bind(router, endpoint), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, answer_status, NULL), 0);
	status = fault_server_run(argv, text, sizeof(text));
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_str_eq(text, want);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	(void)zmq_close(router);
	(void)zmq_ctx_term(zctx);
}
END_TEST
