/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* See http.h. */

int
http_connect(const char *address)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	const char *colon = strrchr(address, ':');
	char host[64];
	int fd;

	ck_assert_ptr_nonnull(colon);
	(void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
	to.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
	ck_assert_int_eq(inet_pton(AF_INET, host, &to.sin_addr), 1);
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
		return fd;
	ck_assert_msg(errno == ECONNREFUSED, "connect: %s", strerror(errno));
	ck_assert_int_eq(close(fd), 0);
	return -1;
}

void
http_send(int fd, const char *text)
{
	size_t len = strlen(text);

	/* The other end may have had enough. */
	while (len > 0) {
		ssize_t n = send(fd, text, len, MSG_NOSIGNAL);

		if (n < 0)
			return;
		text += n;
		len -= (size_t)n;
	}
}

static char *
read_all(int fd, size_t *ret_len)
{
	struct pollfd item = {.fd = fd, .events = POLLIN};
	size_t len = 0, cap = 65536;
	char *text = malloc(cap);
	ssize_t n;

	ck_assert_ptr_nonnull(text);
	for (;;) {
		ck_assert_msg(poll(&item, 1, HTTP_PATIENCE_MS) == 1, "no answer in time");
		n = recv(fd, text + len, cap - len - 1, 0);
		if (n <= 0)
			break; /* its end, or a reset */
		len += (size_t)n;
		if (cap - len < 4096) {
			cap *= 2;
			text = realloc(text, cap);
			ck_assert_ptr_nonnull(text);
		}
	}
	text[len] = '\0';
	*ret_len = len;
	return text;
}

void
http_receive(int fd, struct http_answer *ret)
{
	size_t len;
	char *text = read_all(fd, &len), *end = strstr(text, "\r\n\r\n");

	memset(ret, 0, sizeof(*ret));
	if (!end) {
		ret->body = text;
		ret->len = len;
		return;
	}
	ck_assert_int_eq(strncmp(text, "HTTP/1.1 ", 9), 0);
	ret->status = (int)strtol(text + 9, NULL, 10);
	ck_assert_uint_lt((size_t)(end - text), sizeof(ret->header));
	(void)snprintf(ret->header, sizeof(ret->header), "%.*s", (int)(end - text), text);
	ret->len = len - (size_t)(end + 4 - text);
	memmove(text, end + 4, ret->len + 1);
	ret->body = text;
}

void
http_request(const char *address, const char *method, const char *path, struct http_answer *ret)
{
	char text[512];
	int fd = http_connect(address);

	memset(ret, 0, sizeof(*ret));
	if (fd < 0)
		return;
	(void)snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: localhost\r\n\r\n", method, path);
	http_send(fd, text);
	http_receive(fd, ret);
	ck_assert_int_eq(close(fd), 0);
}

char *
http_get(const char *address, const char *path)
{
	struct http_answer answer;

	http_request(address, "GET", path, &answer);
	ck_assert_int_eq(answer.status, 200);
	return answer.body;
}

int
http_status(const char *address, const char *path, char *ret_body, size_t len)
{
	struct http_answer answer;

	http_request(address, "GET", path, &answer);
	(void)snprintf(ret_body, len, "%s", answer.body ? answer.body : "");
	ret_body[strcspn(ret_body, "\n")] = '\0';
	free(answer.body);
	return answer.status;
}
