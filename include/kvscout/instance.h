/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_INSTANCE_H
#define KVSCOUT_INSTANCE_H

/*
 * The server that needs no setup: one kvscoutd for each user on a host. The first client or worker
 * without an endpoint (or with endpoint=auto) starts it, all others join, and it ends idle_exit_s
 * (60) after its last peer has left.
 *
 * Clients and workers with endpoint=auto do all of this by themselves, on their background thread,
 * and again whenever the server is gone; they need no call of this header. scout_ensure_server() is
 * for programs that want the server, or the reason why there is none, before they go on.
 * docs/operations.md says what an operator sees.
 */

#include <stddef.h>
#include <stdint.h>

#include <kvscout/error.h>
#include <kvscout/types.h>
#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0 and NULL mean default; strings are borrowed for the call. */
struct scout_instance_config {
	uint32_t size;              /* of this structure; set by scout_instance_config_init() */
	uint32_t timeout_ms;        /* to wait for a server that is being started, default 5000 */
	const char *endpoint;       /* "auto" (default), or "auto:///FOLDER" for a server with its files there */
	const char *server_program; /* kvscoutd by its absolute path; default: this installation's, else from PATH */
	const char *server_keys;    /* "key=value key=value": keys of a server that is started */
	scout_log_fn log;           /* NULL: silent */
	void *log_user;
};

/**
 * Fill @cfg with the defaults. Any thread, does not block.
 */
static inline void
scout_instance_config_init(struct scout_instance_config *cfg)
{
	static const struct scout_instance_config none = {sizeof(none), 0, 0, 0, 0, 0, 0};

	*cfg = none;
}

/**
 * Find the server of this host, or start one and wait until it serves.
 *
 * A kvscoutd that this call starts is no child of this process, has none of its descriptors, and
 * outlives it. It runs with the user, the environment and the resource limits of this process, and
 * in its cgroup. A client or worker that uses the returned endpoint does not start the next server
 * after this one has ended; one with endpoint=auto does.
 *
 * The library reads XDG_RUNTIME_DIR and PATH here, neither of them in a setuid program.
 *
 * @cfg           borrowed for the call; NULL: the defaults.
 * @ret_endpoint  receives "ipc://" and a path; written on success.
 * @endpoint_len  bytes there; 256 are enough.
 * @err           receives one sentence on error; may be NULL.
 *
 * Thread:   any. Also valid in a forked child. Not async-signal-safe.
 * Blocks:   first on a local file system, then until the server serves, at most timeout_ms.
 * Returns:  0, or SCOUT_ERR_INVALID (endpoint is neither auto nor auto:///FOLDER; @endpoint_len is
 *           too small), SCOUT_ERR_UNSUPPORTED (structure size), SCOUT_ERR_CONFIG_SYNTAX, _KEY,
 *           _RANGE (server_keys), SCOUT_ERR_PERMISSION (the folder belongs to another user, or
 *           others may write it), SCOUT_ERR_FORMAT (no kvscoutd was found), SCOUT_ERR_VERSION (a
 *           server of another version serves), SCOUT_ERR_UNREACHABLE (kvscoutd ends before it
 *           serves; @err has its last words and the path of its log), SCOUT_ERR_TIMEOUT,
 *           SCOUT_ERR_NOMEM, SCOUT_ERR_SYSTEM.
 */
SCOUT_API SCOUT_MUST_CHECK int scout_ensure_server(const struct scout_instance_config *cfg, char *ret_endpoint,
						   size_t endpoint_len, char *err, size_t err_len);

#ifdef __cplusplus
}
#endif

#endif
