/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "redis_rig.h"

/*
 * A redis-server of redis_rig.h that speaks TLS as well, at a port of its own. Certificates lie in its folder, each NAME.pem with
 * its NAME.key: ca, its server (localhost and 127.0.0.1), expired (the same, of the past) and client; other_ca, which has signed nothing.
 */

/* Whether there is an openssl command, and a redis-server with TLS. */
bool redis_tls_can(void);
/* With certificate @name; @clients: yes or no, whether clients need one. Returns the port. */
uint16_t redis_tls_start(struct redis_server *s, const char *name, const char *clients);
/* Change the certificate of later connections. */
void redis_tls_present(struct redis_server *s, const char *name);
