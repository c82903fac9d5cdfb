/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_stand.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"

/* See s3_stand.h. */

#define HEAD_BYTES 32768u
#define MESSAGE_BYTES (65u << 20)

/* What arrives on a socket: a head, then a body of the length that the head names. */
struct message {
	char head[HEAD_BYTES];
	uint8_t *body;
	size_t len;
};

struct connection {
	struct stand *s;
	int fd;
};

static bool
send_all(int fd, const void *bytes, size_t len)
{
	for (const char *at = bytes; len;) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		at += n;
		len -= (size_t)n;
	}
	return true;
}

void
stand_header(const char *head, const char *name, char *ret_value, size_t size)
{
	size_t len = strlen(name);

	ret_value[0] = '\0';
	for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
		line += 2;
		if (strncasecmp(line, name, len) == 0 && line[len] == ':') {
			line += len + 1 + strspn(line + len + 1, " ");
			(void)snprintf(ret_value, size, "%.*s", (int)strcspn(line, "\r"), line);
			return;
		}
	}
}

void
stand_reply(int fd, int status, const char *headers, const void *body, size_t len)
{
	char head[1024];
	int n = snprintf(head, sizeof(head), "HTTP/1.1 %d Answer\r\n%sContent-Length: %zu\r\n\r\n", status, headers,
			 len);

	(void)(send_all(fd, head, (size_t)n) && send_all(fd, body, len));
}

/* A head to its empty line, byte by byte: what follows it is the body. */
static bool
read_head(int fd, char head[HEAD_BYTES])
{
	for (size_t len = 0; len + 1 < HEAD_BYTES; len++) {
		if (recv(fd, head + len, 1, 0) != 1)
			return false;
		head[len + 1] = '\0';
		if (len >= 3 && memcmp(head + len - 3, "\r\n\r\n", 4) == 0)
			return true;
	}
	return false;
}

static bool
read_body(int fd, struct message *m, bool has_body)
{
	char text[32];
	unsigned long long len;

	stand_header(m->head, "Content-Length", text, sizeof(text));
	len = has_body ? strtoull(text, NULL, 10) : 0;
	if (len > MESSAGE_BYTES)
		return false;
	m->len = (size_t)len;
	m->body = malloc(m->len + 1);
	for (size_t at = 0; at < m->len;) {
		ssize_t n = recv(fd, m->body + at, m->len - at, 0);

		if (n <= 0)
			return false;
		at += (size_t)n;
	}
	m->body[m->len] = '\0';
	return true;
}

static int
connect_to(uint16_t port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
		(void)close(fd);
		return -1;
	}
	return fd;
}

/* Ask the real server. */
static bool
pass_on(struct stand *s, const struct message *m, struct message *ret)
{
	bool is_head = strncmp(m->head, "HEAD ", 5) == 0, is_good;
	int fd = connect_to(s->to);

	if (fd < 0)
		return false;
	is_good = send_all(fd, m->head, strlen(m->head)) && send_all(fd, m->body, m->len) && read_head(fd, ret->head) &&
		  read_body(fd, ret, !is_head);
	(void)close(fd);
	return is_good;
}

static void
reset(int fd)
{
	struct linger linger = {.l_onoff = 1};

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

/* An answer of an S3 that refuses. */
static void
refuse(int fd, const struct message *m, int status, const char *headers, const char *code)
{
	char body[128];
	int n = snprintf(body, sizeof(body), "<Error><Code>%s</Code></Error>", code);

	stand_reply(fd, status, headers, body, strncmp(m->head, "HEAD ", 5) == 0 ? 0 : (size_t)n);
}

static void
skewed(int fd, const struct message *m)
{
	char date[64], line[96];
	time_t ahead = time(NULL) + 3600;
	struct tm tm;

	(void)strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&ahead, &tm));
	(void)snprintf(line, sizeof(line), "Date: %s\r\n", date);
	refuse(fd, m, 403, line, "RequestTimeTooSkewed");
}

/* Whether this request is hit. */
static enum stand_fault
fault_of(struct stand *s, const struct message *m)
{
	const char *of = s->of;
	enum stand_fault fault = (enum stand_fault)s->fault;
	uint32_t n = atomic_fetch_add(&s->n, 1) + 1;
	char value[64];

	if (fault == STAND_PASS || (of && strncmp(m->head, of, strlen(of)) != 0) || n % s->one_in != 0)
		return STAND_PASS;
	stand_header(m->head, "if-none-match", value, sizeof(value));
	if (fault == STAND_NO_CONDITION && !*value)
		return STAND_PASS;
	if (atomic_fetch_sub(&s->left, 1) == 0) {
		atomic_store(&s->left, 0);
		return STAND_PASS;
	}
	atomic_fetch_add(&s->n_faults, 1);
	return fault;
}

static bool
send_slowly(int fd, const uint8_t *body, size_t len)
{
	size_t piece = len / 10 + 1;

	for (size_t at = 0; at < len; at += piece) {
		(void)poll(NULL, 0, 50);
		if (!send_all(fd, body + at, len - at < piece ? len - at : piece))
			return false;
	}
	return true;
}

/* A body of a gigabyte, all at once or by single bytes, until the other end has enough or the fault is over. */
static void
send_endless(struct stand *s, int fd, const struct message *answer, enum stand_fault fault)
{
	static const char head[] = "HTTP/1.1 200 Answer\r\nContent-Length: 1073741824\r\n\r\n";
	bool goes_on = send_all(fd, head, sizeof(head) - 1) && answer->len > 0;

	for (size_t at = 0; goes_on && s->fault == fault && !s->ends; at = (at + 1) % answer->len) {
		goes_on = fault == STAND_DRIP ? send_all(fd, answer->body + at, 1)
					      : send_all(fd, answer->body, answer->len);
		if (fault == STAND_DRIP)
			(void)poll(NULL, 0, 20);
	}
}

/* The answer of the real server, changed. False: end the connection. */
static bool
answer_with(struct stand *s, int fd, const struct message *m, enum stand_fault fault)
{
	struct message *answer = calloc(1, sizeof(*answer));
	bool goes_on = pass_on(s, m, answer);
	size_t len = fault == STAND_SHORT ? answer->len / 2 : answer->len;

	if (goes_on && fault == STAND_WRONG && answer->len)
		answer->body[answer->len - 1] ^= 1;
	if (fault == STAND_LOST) {
		reset(fd);
		goes_on = false;
	} else if (goes_on && (fault == STAND_DRIP || fault == STAND_LONG)) {
		send_endless(s, fd, answer, fault);
		goes_on = false;
	} else if (goes_on) {
		goes_on =
			send_all(fd, answer->head, strlen(answer->head)) &&
			(fault == STAND_SLOW ? send_slowly(fd, answer->body, len) : send_all(fd, answer->body, len)) &&
			fault != STAND_SHORT;
	}
	free(answer->body);
	free(answer);
	return goes_on;
}

static bool
answer(struct stand *s, int fd, const struct message *m)
{
	enum stand_fault fault = fault_of(s, m);

	switch (fault) {
	case STAND_THINKS:
		for (uint64_t end_us = scout__now_us() + 2500000; scout__now_us() < end_us && !s->ends;)
			(void)poll(NULL, 0, 10);
		return answer_with(s, fd, m, fault);
	case STAND_PASS:
	case STAND_LOST:
	case STAND_SHORT:
	case STAND_WRONG:
	case STAND_SLOW:
	case STAND_LONG:
	case STAND_DRIP:
		return answer_with(s, fd, m, fault);
	case STAND_BUSY:
		refuse(fd, m, 503, "", "SlowDown");
		return true;
	case STAND_RESET:
		reset(fd);
		return false;
	case STAND_FROZEN:
		while (s->fault == STAND_FROZEN && !s->ends)
			(void)poll(NULL, 0, 10);
		return false;
	case STAND_EXPIRED:
		refuse(fd, m, 403, "", "ExpiredToken");
		return true;
	case STAND_SKEWED:
		skewed(fd, m);
		return true;
	case STAND_MOVED:
		refuse(fd, m, 301, "x-amz-bucket-region: eu-west-1\r\n", "PermanentRedirect");
		return true;
	case STAND_ABSENT:
		refuse(fd, m, 404, "", "NoSuchKey");
		return true;
	case STAND_FORBIDDEN:
		refuse(fd, m, 403, "", "AccessDenied");
		return true;
	case STAND_NO_CONDITION:
		refuse(fd, m, 501, "", "NotImplemented");
		return true;
	case STAND_PAGE:
		stand_reply(fd, 200, "Content-Type: text/html\r\n", "<html>Log in</html>", 19);
		return true;
	case STAND_BAD:
		refuse(fd, m, 400, "", "");
		return true;
	case STAND_CONFLICT:
		refuse(fd, m, 409, "", "ConditionalRequestConflict");
		return true;
	}
	return false;
}

static bool
serve_one(struct stand *s, int fd, struct message *m)
{
	struct stand_request request = {.head = m->head};
	char line[4096], *save;
	bool goes_on;

	if (!read_head(fd, m->head))
		return false;
	if (!read_body(fd, m, true)) {
		free(m->body);
		return false;
	}
	(void)snprintf(line, sizeof(line), "%.*s", (int)strcspn(m->head, "\r"), m->head);
	request.method = strtok_r(line, " ", &save);
	request.path = strtok_r(NULL, " ", &save);
	request.body = m->body;
	request.body_len = m->len;
	goes_on = s->answer ? s->answer(s->user, fd, &request) : answer(s, fd, m);
	free(m->body);
	return goes_on;
}

static void *
serve(void *arg)
{
	struct connection *c = arg;
	struct message *m = calloc(1, sizeof(*m));

	while (!c->s->ends && serve_one(c->s, c->fd, m))
		m->body = NULL;
	(void)close(c->fd);
	atomic_fetch_sub(&c->s->running, 1);
	free(m);
	free(c);
	return NULL;
}

static void *
listen_on(void *arg)
{
	struct stand *s = arg;

	while (!s->ends) {
		struct pollfd p = {.fd = s->fd, .events = POLLIN};
		struct timeval limit = {.tv_sec = 60};
		struct connection *c;
		pthread_t thread;
		int fd;

		if (poll(&p, 1, 20) != 1 || (fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC)) < 0)
			continue;
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		c = malloc(sizeof(*c));
		*c = (struct connection){s, fd};
		atomic_fetch_add(&s->running, 1);
		if (pthread_create(&thread, NULL, serve, c) == 0)
			(void)pthread_detach(thread);
	}
	return NULL;
}

void
stand_start(struct stand *s)
{
	struct sockaddr_in address = {.sin_family = AF_INET};
	socklen_t len = sizeof(address);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	s->one_in = 1;
	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(s->fd, 0);
	ck_assert_int_eq(bind(s->fd, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(s->fd, 128), 0);
	ck_assert_int_eq(getsockname(s->fd, (struct sockaddr *)&address, &len), 0);
	s->port = ntohs(address.sin_port);
	ck_assert_int_eq(pthread_create(&s->thread, NULL, listen_on, s), 0);
}

void
stand_stop(struct stand *s)
{
	s->ends = true;
	ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
	(void)close(s->fd);
}

void
stand_fail(struct stand *s, enum stand_fault fault, const char *method, uint32_t one_in, int times)
{
	s->of = method;
	s->one_in = one_in;
	s->left = times;
	s->n_faults = 0;
	s->fault = fault;
}
