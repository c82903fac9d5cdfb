/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "fake_server.h"
#include "msg.h"

#define QUEUE 64
#define TICKETS 65536
#define IDENTITY_MAX 255

#define FAKE_SECRET ((struct scout__secret){{0x1112131415161718, 0x2122232425262728}})

struct scripted {
	enum fake_action action;
	unsigned arg;
};

struct held {
	uint8_t identity[IDENTITY_MAX];
	size_t identity_len;
	uint8_t *frame;
	size_t len;
	uint64_t due_us; /* UINT64_MAX: by fake_release(); 0: behind the next that is sent */
	struct held *next;
};

struct fake_server {
	char dir[64];
	char endpoint[128];
	void *zmq;
	void *router; /* peer thread, but between fake_unbind and fake_bind */
	pthread_t thread;
	int wake_fd;
	pthread_mutex_t mu;
	pthread_cond_t cond;
	/* G:mu */
	bool stop, want_bind, want_unbind, bound, release, silent;
	uint64_t epoch, weights, said_weights;
	struct scout__clear_state clear, said_clear;
	struct {
		uint64_t token;
		bool shows_secret;
	} said[QUEUE]; /* by the first HELLOs */
	char lease[108];
	uint32_t hit, credits, known;
	uint64_t present, in_l2;
	bool limited;
	struct scripted queue[256][QUEUE];
	unsigned queue_n[256];
	struct scripted always[256];
	unsigned counts[256];
	unsigned frames, max_ops;
	uint64_t looked_up[TICKETS], finished[TICKETS];
	uint32_t admit_from, admit_to;
	struct fake_lookup lookup;
	uint64_t last_corr[256], last_word[256];
	unsigned received, order[256];
	unsigned first_of_epoch; /* LOOKUPs before it were another server start's */
	struct held *held;
};

/* The server's thread looks at what was asked of it. */
void fake_wake(struct fake_server *f);
