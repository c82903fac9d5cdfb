/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/*
 * An HTTP client that does what a test says, over plain sockets. What takes longer than HTTP_PATIENCE_MS fails the test, unless the call
 * says otherwise. Check's own thread only.
 */
#define HTTP_PATIENCE_MS 20000

struct http_answer {
	int status;        /* 0: the connection ended without one */
	char header[2048]; /* up to the empty line */
	char *body;        /* terminated; free() it */
	size_t len;
};

/* Connect to "127.0.0.1:PORT"; -1: refused. */
int http_connect(const char *address);
void http_send(int fd, const char *text);
/* All until the end of the connection. */
void http_receive(int fd, struct http_answer *ret);
/* One request. */
void http_request(const char *address, const char *method, const char *path, struct http_answer *ret);
/* The body of a GET that must be 200; free() it. */
char *http_get(const char *address, const char *path);
/* The status of a GET, and its body without the newline. */
int http_status(const char *address, const char *path, char *ret_body, size_t len);
