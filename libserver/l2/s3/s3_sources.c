/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_credentials.h"
#include "secret.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/*
 * The sources of credentials. Threads: one at a time (s3_credentials.c holds its mutex).
 *
 * The environment was read when the store was opened, only by the names that the tools of AWS have made common.
 */

#define ANSWER_BYTES 16384u
#define FILE_BYTES 16384u

__attribute__((format(printf, 2, 3))) static int
fails(struct scout__s3_source *from, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	(void)vsnprintf(from->err, from->err_len, format, args);
	va_end(args);
	return -1;
}

static bool
set(char *to, size_t size, const char *value)
{
	size_t len = strlen(value);

	if (len >= size)
		return false;
	memcpy(to, value, len + 1);
	return true;
}

int
scout__s3_from_environment(struct scout__s3_source *from, struct scout__s3_keys *ret_keys)
{
	const char *access = from->c->env[SCOUT__S3_ACCESS_KEY_ID], *secret = from->c->env[SCOUT__S3_SECRET_ACCESS_KEY];
	const char *token = from->c->env[SCOUT__S3_SESSION_TOKEN];

	if (!access || from->c->file)
		return 0;
	if (!secret)
		return fails(from, "AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not");
	if (!set(ret_keys->access, sizeof(ret_keys->access), access) ||
	    !set(ret_keys->secret, sizeof(ret_keys->secret), secret) ||
	    !set(ret_keys->token, sizeof(ret_keys->token), token ? token : ""))
		return fails(from, "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_SESSION_TOKEN is too long");
	return 1;
}

/* A file of at most @size - 1 bytes; -1: errno says why. */
static int
read_all(int fd, char *text, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, text + len, size - 1 - len)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	if (n == 0 && len == size - 1)
		errno = EFBIG;
	return n < 0 || len == size - 1 ? -1 : 0;
}

/* "name = value" of the section @wanted. */
static void
read_line(char *line, const char *wanted, bool *in_section, struct scout__s3_keys *keys, bool *fits)
{
	char *name = line + strspn(line, " \t"), *value = strchr(name, '=');
	size_t end;

	end = strcspn(name, "\r\n");
	name[end] = '\0';
	if (*name == '[') {
		size_t len = strcspn(name + 1, "]");

		*in_section = len == strlen(wanted) && strncmp(name + 1, wanted, len) == 0;
		return;
	}
	if (!*in_section || *name == '#' || !value)
		return;
	*value++ = '\0';
	name[strcspn(name, " \t")] = '\0';
	value += strspn(value, " \t");
	value[strcspn(value, " \t")] = '\0';
	if (strcmp(name, "aws_access_key_id") == 0)
		*fits = *fits && set(keys->access, sizeof(keys->access), value);
	else if (strcmp(name, "aws_secret_access_key") == 0)
		*fits = *fits && set(keys->secret, sizeof(keys->secret), value);
	else if (strcmp(name, "aws_session_token") == 0)
		*fits = *fits && set(keys->token, sizeof(keys->token), value);
}

/* The file's path; NULL: none is set. */
static const char *
file_path(struct scout__s3_source *from, char *buffer, size_t size)
{
	const char *path = from->c->file ? from->c->file : from->c->env[SCOUT__S3_CREDENTIALS_FILE];
	const char *home = from->c->env[SCOUT__S3_HOME];

	if (path || !home)
		return path;
	(void)snprintf(buffer, size, "%s/.aws/credentials", home);
	return access(buffer, F_OK) == 0 ? buffer : NULL;
}

int
scout__s3_from_file(struct scout__s3_source *from, struct scout__s3_keys *ret_keys)
{
	char buffer[4096], text[FILE_BYTES], err[SCOUT__S3_SENTENCE] = "";
	const char *path = file_path(from, buffer, sizeof(buffer)), *profile = from->c->env[SCOUT__S3_PROFILE];
	bool in_section = false, fits = true;
	int fd, rc = 0;

	if (!path)
		return 0;
	fd = scout__secret_open("the credentials file", path, -1, err, sizeof(err));
	if (fd < 0)
		return fails(from, "%s", err);
	if (read_all(fd, text, sizeof(text)) != 0)
		rc = fails(from, "the credentials file %s cannot be read (errno %d)", path, errno);
	(void)close(fd);
	if (rc)
		return rc;
	for (char *line = text, *next; line; line = next) {
		next = strchr(line, '\n');
		if (next)
			next++;
		read_line(line, profile ? profile : "default", &in_section, ret_keys, &fits);
	}
	explicit_bzero(text, sizeof(text));
	if (!fits)
		return fails(from, "a key in %s is too long", path);
	if (!*ret_keys->access || !*ret_keys->secret)
		return fails(from, "%s has no aws_access_key_id and aws_secret_access_key in [%s]", path,
			     profile ? profile : "default");
	return 1;
}

/* One request to a service of credentials: 0, or -1 with a sentence. */
static int
request(struct scout__s3_source *from, struct scout__s3_exchange *x, const char *what, char *answer)
{
	x->text = scout__s3_text_in(answer, ANSWER_BYTES);
	(void)scout__s3_run(from->line, x, 1, from->c->timeout_ms, from->watch);
	if (x->code != CURLE_OK)
		return fails(from, "%s does not answer: %s", what,
			     *x->error ? x->error : scout__s3_curl.easy_strerror(x->code));
	if (x->status != 200)
		return fails(from, "%s refuses credentials with status %ld", what, x->status);
	return x->text.is_cut ? fails(from, "the answer of %s is too long", what) : 0;
}

/* 2026-11-26T12:00:00Z in seconds; 0: none. */
static int64_t
seconds_of(const char *text)
{
	struct tm tm = {0};

	return strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) ? (int64_t)timegm(&tm) : 0;
}

static int
from_json(struct scout__s3_source *from, const char *json, const char *what, struct scout__s3_keys *ret_keys)
{
	char ends[64];

	if (!scout__s3_json(json, "AccessKeyId", ret_keys->access, sizeof(ret_keys->access)) ||
	    !scout__s3_json(json, "SecretAccessKey", ret_keys->secret, sizeof(ret_keys->secret)))
		return fails(from, "%s answers without credentials", what);
	(void)scout__s3_json(json, "Token", ret_keys->token, sizeof(ret_keys->token));
	if (scout__s3_json(json, "Expiration", ends, sizeof(ends)))
		ret_keys->ends = seconds_of(ends);
	return 1;
}

/* The first line of a file that somebody else writes anew from time to time. */
static int
read_token(struct scout__s3_source *from, const char *path, char *token, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return fails(from, "the token in %s cannot be read (errno %d)", path, errno);
	rc = read_all(fd, token, size);
	(void)close(fd);
	if (rc)
		return fails(from, "the token in %s cannot be read (errno %d)", path, errno);
	token[strcspn(token, "\r\n")] = '\0';
	return 0;
}

int
scout__s3_from_web_identity(struct scout__s3_source *from, struct scout__s3_keys *ret_keys)
{
	const char *path = from->c->env[SCOUT__S3_WEB_IDENTITY_TOKEN_FILE], *role = from->c->env[SCOUT__S3_ROLE_ARN];
	const char *session = from->c->env[SCOUT__S3_ROLE_SESSION_NAME],
		   *endpoint = from->c->env[SCOUT__S3_ENDPOINT_STS];
	char token[SCOUT__S3_TOKEN_TEXT], form[2 * SCOUT__S3_TOKEN_TEXT], answer[ANSWER_BYTES], url[512], ends[64];
	struct scout__s3_pair pairs[] = {{"Action", "AssumeRoleWithWebIdentity"},
					 {"Version", "2011-06-15"},
					 {"RoleArn", role},
					 {"RoleSessionName", session ? session : "kvscout"},
					 {"WebIdentityToken", token}};
	struct scout__s3_text body = scout__s3_text_in(form, sizeof(form));
	struct iovec part = {.iov_base = form};
	struct scout__s3_exchange x = {.method = "POST", .url = url, .body = &part, .n_body = 1};

	if (!path || !role)
		return 0;
	if (read_token(from, path, token, sizeof(token)) != 0)
		return -1;
	scout__s3_query(&body, pairs, sizeof(pairs) / sizeof(pairs[0]));
	if (body.is_cut)
		return fails(from, "the token in %s is too long", path);
	part.iov_len = body.len;
	(void)snprintf(url, sizeof(url), endpoint ? "%s/" : "https://sts.%s.amazonaws.com/",
		       endpoint ? endpoint : from->c->region);
	if (request(from, &x, "the service of web identities", answer) != 0)
		return -1;
	if (!scout__s3_xml(answer, "AccessKeyId", ret_keys->access, sizeof(ret_keys->access), NULL) ||
	    !scout__s3_xml(answer, "SecretAccessKey", ret_keys->secret, sizeof(ret_keys->secret), NULL) ||
	    !scout__s3_xml(answer, "SessionToken", ret_keys->token, sizeof(ret_keys->token), NULL))
		return fails(from, "the service of web identities answers without credentials");
	if (scout__s3_xml(answer, "Expiration", ends, sizeof(ends), NULL))
		ret_keys->ends = seconds_of(ends);
	return 1;
}

/*
 * Whether credentials may be fetched there: what answers gets the token of the environment, and decides whose keys are used. That is http or
 * https to this machine or to a link-local address; fd00:ec2::23 is Amazon's own.
 */
static bool
is_near(const char *url)
{
	const char *host = strncmp(url, "http://", 7) == 0    ? url + 7
			   : strncmp(url, "https://", 8) == 0 ? url + 8
							      : NULL;
	size_t len = host ? strcspn(host, "/?#") : 0, port = len;
	char name[64];
	struct in6_addr v6, ec2;
	struct in_addr v4;

	while (port > 0 && host[port - 1] >= '0' && host[port - 1] <= '9')
		port--;
	if (port > 1 && host[port - 1] == ':' && (host[0] != '[' || host[port - 2] == ']'))
		len = port - 1;
	if (len == 0 || len >= sizeof(name))
		return false;
	(void)snprintf(name, sizeof(name), "%.*s", (int)len, host);
	if (strcmp(name, "localhost") == 0)
		return true;
	if (inet_pton(AF_INET, name, &v4) == 1)
		return ntohl(v4.s_addr) >> 24 == 127 || ntohl(v4.s_addr) >> 16 == 0xa9fe;
	if (name[0] != '[' || name[len - 1] != ']')
		return false;
	name[len - 1] = '\0';
	return inet_pton(AF_INET6, name + 1, &v6) == 1 && inet_pton(AF_INET6, "fd00:ec2::23", &ec2) == 1 &&
	       (IN6_IS_ADDR_LOOPBACK(&v6) || IN6_IS_ADDR_LINKLOCAL(&v6) || IN6_ARE_ADDR_EQUAL(&v6, &ec2));
}

int
scout__s3_from_container(struct scout__s3_source *from, struct scout__s3_keys *ret_keys)
{
	const char *relative = from->c->env[SCOUT__S3_CONTAINER_RELATIVE_URI];
	const char *full = from->c->env[SCOUT__S3_CONTAINER_FULL_URI];
	const char *authorization = from->c->env[SCOUT__S3_CONTAINER_TOKEN];
	const char *path = from->c->env[SCOUT__S3_CONTAINER_TOKEN_FILE];
	char url[1024], token[SCOUT__S3_TOKEN_TEXT], answer[ANSWER_BYTES];
	struct scout__s3_exchange x = {.method = "GET", .url = url};

	if (!relative && !full)
		return 0;
	if (!relative && !is_near(full))
		return fails(
			from,
			"AWS_CONTAINER_CREDENTIALS_FULL_URI must be http or https to a loopback or link-local address");
	(void)snprintf(url, sizeof(url), "%s%s", relative ? "http://169.254.170.2" : "", relative ? relative : full);
	if (path) {
		if (read_token(from, path, token, sizeof(token)) != 0)
			return -1;
		authorization = token;
	}
	if (authorization)
		x.headers[x.n_headers++] = (struct scout__s3_pair){"Authorization", authorization};
	if (request(from, &x, "the container's service of credentials", answer) != 0)
		return -1;
	return from_json(from, answer, "the container's service of credentials", ret_keys);
}

int
scout__s3_from_instance(struct scout__s3_source *from, struct scout__s3_keys *ret_keys)
{
	static const char what[] = "no credentials are in environment or file, and the instance's metadata";
	const char *endpoint = from->c->env[SCOUT__S3_METADATA_ENDPOINT],
		   *disabled = from->c->env[SCOUT__S3_METADATA_DISABLED];
	static const char folder[] = "latest/meta-data/iam/security-credentials/";
	char url[1024], token[ANSWER_BYTES], answer[ANSWER_BYTES], role[256];
	char nothing[1] = "";
	struct iovec part = {nothing, 0};
	struct scout__s3_exchange x = {.method = "PUT", .url = url, .body = &part, .n_body = 1};

	if (disabled && strcmp(disabled, "true") == 0)
		return 0;
	if (!endpoint)
		endpoint = "http://169.254.169.254";
	x.headers[x.n_headers++] = (struct scout__s3_pair){"X-aws-ec2-metadata-token-ttl-seconds", "21600"};
	(void)snprintf(url, sizeof(url), "%s/latest/api/token", endpoint);
	if (request(from, &x, what, token) != 0)
		return -1;
	x = (struct scout__s3_exchange){.method = "GET", .url = url, .n_headers = 1};
	x.headers[0] = (struct scout__s3_pair){"X-aws-ec2-metadata-token", token};
	(void)snprintf(url, sizeof(url), "%s/%s", endpoint, folder);
	if (request(from, &x, what, answer) != 0)
		return -1;
	(void)snprintf(role, sizeof(role), "%.*s", (int)strcspn(answer, "\r\n"), answer);
	(void)snprintf(url, sizeof(url), "%s/%s%s", endpoint, folder, role);
	if (request(from, &x, what, answer) != 0)
		return -1;
	return from_json(from, answer, what, ret_keys);
}
