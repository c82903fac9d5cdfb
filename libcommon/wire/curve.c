/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of CurveZMQ as text: what a key is, and reading keys from files. Any thread; no state. Buffers with a key are
 * wiped.
 */
#include "curve.h"

#include <string.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "log.h"
#include "secret.h"

#define LINE_BYTES 256
/* RFC 32 of the ZeroMQ project. */
#define Z85 "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"

bool
scout__curve_is_key(const char *text)
{
	return strlen(text) == SCOUT__CURVE_KEY && strspn(text, Z85) == SCOUT__CURVE_KEY;
}

int
scout__curve_next_key(FILE *file, unsigned *line, char ret_key[SCOUT__CURVE_KEY + 1])
{
	char buf[LINE_BYTES], *text;
	int rc = 0;

	while (rc == 0 && fgets(buf, sizeof(buf), file)) {
		++*line;
		text = buf + strspn(buf, " \t");
		text[strcspn(text, " \t\r\n")] = '\0';
		/* Z85 has '#', too: a line that is not as long as a key is a comment. */
		if (*text == '\0' || (*text == '#' && strlen(text) != SCOUT__CURVE_KEY))
			continue;
		rc = scout__curve_is_key(text) ? 1 : SCOUT_ERR_FORMAT;
		if (rc == 1)
			memcpy(ret_key, text, SCOUT__CURVE_KEY + 1);
	}
	explicit_bzero(buf, sizeof(buf));
	return rc;
}

static int
read_secret(FILE *file, const char *path, char ret_key[SCOUT__CURVE_KEY + 1], char *err, size_t err_len)
{
	char key[SCOUT__CURVE_KEY + 1], more[SCOUT__CURVE_KEY + 1];
	unsigned line = 0;
	int rc;

	setbuf(file, NULL); /* no copy of the key in memory that is not ours */
	rc = scout__curve_next_key(file, &line, key);
	if (rc == 1 && scout__curve_next_key(file, &line, more) != 0)
		rc = SCOUT_ERR_FORMAT;
	if (rc == 1)
		memcpy(ret_key, key, sizeof(key));
	explicit_bzero(key, sizeof(key));
	explicit_bzero(more, sizeof(more));
	if (rc == 1)
		return 0;
	return scout__fail(
		err, err_len, SCOUT_ERR_FORMAT,
		"key file %s, line %u: must be one secret key, 40 characters of Z85; `kvscoutd --curve-keygen FILE` makes one",
		path, line);
}

int
scout__curve_read_secret(const char *path, char ret_key[SCOUT__CURVE_KEY + 1], char *err, size_t err_len)
{
	int fd = scout__secret_open("key file", path, SCOUT_ERR_FORMAT, err, err_len), rc;
	FILE *file = fd < 0 ? NULL : fdopen(fd, "r");

	if (fd < 0)
		return fd;
	if (!file) {
		(void)close(fd); /* read only: nothing is lost */
		return scout__fail_no_memory(err, err_len);
	}
	rc = read_secret(file, path, ret_key, err, err_len);
	(void)fclose(file); /* read only: nothing is lost */
	return rc;
}
