/* SPDX-License-Identifier: Apache-2.0 */
#include "http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "option_parse.h"

/*
 * DESIGN
 *
 * Turns HOST:PORT into a listening socket. The server does this, not libmicrohttpd, so that each failure has its code
 * and a sentence. The host is an address. An empty host is refused: all interfaces are 0.0.0.0 or [::].
 *
 * Rejected: names. A resolver may take a minute to say no, and localhost is two addresses.
 *
 * Threads: the starting one; nothing blocks.
 */

#define HOST_MAX 253u
#define BACKLOG 64

struct listen_place {
	const char *what;
	char host[HOST_MAX + 1];
	unsigned port;
	char shown[SCOUT__OPTION_TEXT]; /* as the user wrote it */
};

static int
syntax(const struct listen_place *place, const char *why, char *err, size_t err_len)
{
	return scout__fail(
		err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
		"%s %s: %s; must be HOST:PORT, for example 127.0.0.1:9570 or [::1]:9570, port 0 for a port that "
		"the kernel chooses",
		place->what, place->shown, why);
}

static int
parse_port(const char *text, struct listen_place *place, char *err, size_t err_len)
{
	size_t n = strspn(text, "0123456789");
	unsigned port = 0;

	if (*text == '\0')
		return syntax(place, "there is no port", err, err_len);
	if (text[n] != '\0')
		return syntax(place, "the port is not a number", err, err_len);
	for (; *text && port <= UINT16_MAX; text++)
		port = port * 10 + (unsigned)(*text - '0');
	if (port > UINT16_MAX)
		return scout__fail(err, err_len, SCOUT_ERR_CONFIG_RANGE, "%s %s: the port must be 0..65535",
				   place->what, place->shown);
	place->port = port;
	return 0;
}

static int
parse(const char *text, struct listen_place *place, char *err, size_t err_len)
{
	const char *host = text, *colon = strrchr(text, ':');
	size_t len;

	(void)scout__option_quote(place->shown, text);
	if (*text == '[') {
		const char *end = strchr(text, ']');

		host++;
		if (!end)
			return syntax(place, "the bracket is not closed", err, err_len);
		if (end[1] != ':')
			return syntax(place, "there is no port", err, err_len);
		colon = end + 1;
		len = (size_t)(end - host);
	} else {
		if (!colon)
			return syntax(place, "there is no port", err, err_len);
		if (strchr(text, ':') != colon)
			return syntax(place, "an IPv6 address goes in brackets", err, err_len);
		len = (size_t)(colon - host);
	}
	if (len == 0)
		return syntax(place, "there is no host; 0.0.0.0 or [::] is all interfaces", err, err_len);
	if (len > HOST_MAX)
		return syntax(place, "the host is too long", err, err_len);
	memcpy(place->host, host, len);
	place->host[len] = '\0';
	return parse_port(colon + 1, place, err, err_len);
}

static bool
is_private_v4(uint32_t address)
{
	return address >> 24 == 127 || address >> 24 == 10 || address >> 20 == 0xac1 || address >> 16 == 0xc0a8 ||
	       address >> 16 == 0xa9fe || address >> 22 == 0x191; /* 100.64.0.0/10 */
}

/* Whether @address is loopback, link-local, or in a range for private networks. */
static bool
is_private(const struct sockaddr_storage *address)
{
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;

	if (address->ss_family == AF_INET) {
		memcpy(&v4, address, sizeof(v4));
		return is_private_v4(ntohl(v4.sin_addr.s_addr));
	}
	memcpy(&v6, address, sizeof(v6));
	return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) ||
	       (v6.sin6_addr.s6_addr[0] & 0xfe) == 0xfc;
}

/* The address and the port that the socket has got. */
static int
name_of(int fd, char *ret_address, bool *ret_private)
{
	struct sockaddr_storage address = {0};
	socklen_t len = sizeof(address);
	struct sockaddr_in6 v6;
	struct sockaddr_in v4;
	char text[INET6_ADDRSTRLEN] = "?";

	if (getsockname(fd, (struct sockaddr *)&address, &len) != 0)
		return errno;
	memcpy(&v4, &address, sizeof(v4));
	memcpy(&v6, &address, sizeof(v6));
	if (address.ss_family == AF_INET) {
		(void)inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text)); /* cannot fail: family and room are right */
		(void)snprintf(ret_address, SCOUT__HTTP_ADDRESS, "%s:%u", text, (unsigned)ntohs(v4.sin_port));
	} else {
		(void)inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
		(void)snprintf(ret_address, SCOUT__HTTP_ADDRESS, "[%s]:%u", text, (unsigned)ntohs(v6.sin6_port));
	}
	*ret_private = is_private(&address);
	return 0;
}

/* Returns 0 and *ret_fd, or an errno. */
static int
listen_on(const struct addrinfo *at, int *ret_fd)
{
	const int yes = 1;
	int fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int error;

	if (fd < 0)
		return errno;
	/* Only so that a restart need not wait for old connections: two servers still cannot share a port. */
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0) {
		*ret_fd = fd;
		return 0;
	}
	error = errno;
	(void)close(fd);
	return error;
}

static int
bind_error(const struct listen_place *place, int error, char *err, size_t err_len)
{
	switch (error) {
	case EADDRINUSE:
		return scout__fail(err, err_len, SCOUT_ERR_BIND,
				   "%s %s: another program listens there; choose another port, or 0", place->what,
				   place->shown);
	case EACCES:
		return scout__fail(err, err_len, SCOUT_ERR_PERMISSION,
				   "%s %s: this user may not bind it; use a port from 1024 on", place->what,
				   place->shown);
	case EADDRNOTAVAIL:
		return scout__fail(err, err_len, SCOUT_ERR_BIND, "%s %s: no address of this machine", place->what,
				   place->shown);
	default:
		return scout__fail(err, err_len, SCOUT_ERR_BIND, "%s %s cannot be bound: %s", place->what, place->shown,
				   scout__errno_text(error));
	}
}

int
scout__http_listen(const char *what, const char *text, int *ret_fd, char *ret_address, bool *ret_private, char *err,
		   size_t err_len)
{
	const struct addrinfo hints = {.ai_family = AF_UNSPEC,
				       .ai_socktype = SOCK_STREAM,
				       .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *address = NULL;
	struct listen_place place = {.what = what};
	int rc = parse(text, &place, err, err_len);
	char port[8];
	int error, fd = -1;

	if (rc)
		return rc;
	(void)snprintf(port, sizeof(port), "%u", place.port);
	rc = getaddrinfo(place.host, port, &hints, &address);
	if (rc == EAI_MEMORY)
		return scout__fail(err, err_len, SCOUT_ERR_NOMEM, "%s %s: out of memory", place.what, place.shown);
	if (rc)
		return syntax(&place, "the host is no address, and names are not looked up", err, err_len);
	error = listen_on(address, &fd);
	freeaddrinfo(address);
	if (!error) {
		error = name_of(fd, ret_address, ret_private);
		if (error)
			(void)close(fd);
	}
	if (error)
		return bind_error(&place, error, err, err_len);
	*ret_fd = fd;
	return 0;
}
