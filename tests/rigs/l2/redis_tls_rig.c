/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_tls_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "waiting.h"

/*
 * The openssl command makes the certificates, of keys that are quick to make. One that is good for 0 days has expired at once.
 *
 * Threads: the test's.
 */

static const char make[] =
	"set -e; cd '%s'; exec 2>log.openssl\n"
	"key() { openssl ecparam -name prime256v1 -genkey -noout -out $1.key; chmod 600 $1.key; }\n"
	"ca() { key $1; openssl req -x509 -new -key $1.key -subj /CN=$1 -days 2 -out $1.pem; }\n"
	"signed() { key $1; openssl req -new -key $1.key -subj /CN=$1 -out $1.csr\n"
	"  printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\\n' >ext\n"
	"  openssl x509 -req -in $1.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile ext -days $2 -out $1.pem; }\n"
	"ca ca; ca other_ca; signed server 2; signed expired 0; signed client 2\n";

bool
redis_tls_can(void)
{
	return system("openssl version >/dev/null 2>&1 && ldd \"$(command -v redis-server)\" | grep -q libssl") == 0;
}

void
redis_tls_present(struct redis_server *s, const char *name)
{
	redis_ok(s, "CONFIG SET tls-cert-file %s/%s.pem tls-key-file %s/%s.key", s->folder, name, s->folder, name);
}

uint16_t
redis_tls_start(struct redis_server *s, const char *name, const char *clients)
{
	char script[2048];
	uint16_t port;
	int fd;

	(void)snprintf(script, sizeof(script), make, s->folder);
	ck_assert_msg(system(script) == 0, "openssl cannot make certificates: see %s/log.openssl", s->folder);
	port = redis_deaf_listener(&fd);
	(void)close(fd);
	redis_ok(
		s,
		"CONFIG SET tls-cert-file %s/%s.pem tls-key-file %s/%s.key tls-ca-cert-file %s/ca.pem tls-auth-clients %s "
		"tls-port %u",
		s->folder, name, s->folder, name, s->folder, clients, (unsigned)port);
	return port;
}
