/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SCOUT__ZMQ_DESCRIPTORS 8u /* of a context with one I/O thread and its first socket */

/*
 * Make a context, if @n_descriptors and the threads of libzmq can be had now: libzmq aborts the process where they cannot
 * (zmq_start.c lists its assertions). NULL, and @err says what is missing (SCOUT_ERR_SYSTEM, SCOUT_ERR_NOMEM).
 */
int scout__zmq_new(uint32_t n_descriptors, void **ret_context, char *err, size_t err_len);
