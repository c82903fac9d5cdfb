/* SPDX-License-Identifier: Apache-2.0 */
#include "keygen.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "curve.h"
#include "log.h"

static int
complain(const char *path, const char *what)
{
	char err[512];
	int rc = scout__fail(err, sizeof(err), 1, "%s: %s (%s)", path, what, scout__errno_text(errno));

	(void)fprintf(stderr, "kvscoutd: %s\n", err);
	return rc;
}

static int
write_secret(const char *path, char secret[SCOUT__CURVE_KEY + 1])
{
	/* Never overwrite a file: it may be the only copy of a key. */
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	ssize_t n;

	if (fd < 0)
		return complain(path, errno == EEXIST ? "is there already" : "cannot be made");
	secret[SCOUT__CURVE_KEY] = '\n';
	n = write(fd, secret, SCOUT__CURVE_KEY + 1);
	if (close(fd) == 0 && n == SCOUT__CURVE_KEY + 1)
		return 0;
	(void)complain(path, "cannot be written");
	(void)unlink(path);
	return 1;
}

int
scout__keygen(const char *path)
{
	char public[SCOUT__CURVE_KEY + 1], secret[SCOUT__CURVE_KEY + 1];
	int rc;

	if (zmq_curve_keypair(public, secret) != 0)
		return complain(path, "this libzmq was built without CURVE");
	rc = write_secret(path, secret);
	explicit_bzero(secret, sizeof(secret));
	if (rc == 0 && (printf("%s\n", public) < 0 || fflush(stdout) != 0))
		rc = complain(path, "the public key could not be printed");
	return rc;
}
