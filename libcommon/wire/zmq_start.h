/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCOUT__ZMQ_DESCRIPTORS 8u /* of a context with one I/O thread and its first socket */

/*
 * Make a context, if @n_descriptors and the threads of libzmq can be had now: libzmq aborts the process where they cannot
 * (zmq_start.c lists its assertions). NULL, and @err says what is missing (SCOUT_ERR_SYSTEM, SCOUT_ERR_NOMEM).
 */
int scout__zmq_new(uint32_t n_descriptors, void **ret_context, char *err, size_t err_len);

/*
 * Whether a socket needs ZMQ_IPV6 for @endpoint: its host is in brackets, or a name that has no IPv4 address which can be reached. With
 * that option libzmq prefers IPv6, and a server on 127.0.0.1 is not found by "localhost". @asks_dns: look any name up, which may
 * block; else "localhost" alone.
 */
int scout__zmq_needs_ipv6(const char *endpoint, bool asks_dns);
/*
 * The tcp endpoint @address with an address of its host, which is a name. zmq_bind() takes addresses and interfaces only. False:
 * no such name.
 */
bool scout__zmq_look_up(const char *address, char *endpoint, size_t len);
