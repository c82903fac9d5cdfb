/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What tests in the same process ask of the stand-in for libcuda.so.1, beside the driver's calls; found by dlsym(). Any thread.
 *
 * A knob has the same name and text as the variable of the environment, KVSCOUT_STANDIN_CUDA_<name>:
 *
 *   ALL=1               plain memory of this process counts as memory of device 0; its context is active from the start
 *   DEVICES=N           1
 *   DRIVER=N            the version that the driver says; 13000, in the variants 12080 and 12020
 *   BUS=TEXT            PCI address of all devices
 *   CAPABILITY=N        of all devices: 90 is 9.0
 *   MEMORY=N            bytes of each device: 80 GiB
 *   ALIAS=1             the device knows registered memory by other addresses than the host does
 *   DELAY_US=N          some operations of a stream wait for up to so long, at random
 *   SEED=N              of that
 *   FAULT=NAME:N:CODE,...  the N-th call of an entry from now on fails with CODE; N+: all calls from it on. NAME may be `any`: calls that
 *                       make or enqueue something
 *   STICKY=N[:CODE]     the N-th operation that is executed from now on fails the device: 719, or CODE. Operations are copies, kernels,
 *                       records and waits
 *   SAY=1               tell stderr of each call that fails because it is wrong, or by FAULT
 *   STATS=PATH          counts go to PATH.<pid>, at the end and now and then
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STANDIN_EXPORT __attribute__((visibility("default")))

/* Returns 0, or -1: no such knob, or no such text. */
STANDIN_EXPORT int standin_set(const char *knob, const char *text);
/* Of an entry by its name: calls; of the words in standin.h (COUNTS): what they say. UINT64_MAX: no such name. */
STANDIN_EXPORT uint64_t standin_count(const char *name);
/* [p, p + bytes) is memory of a device, until it is declared with device -1. */
STANDIN_EXPORT void standin_declare(const void *p, size_t bytes, int device);
/* Enqueue something that stands still until it is released; the oldest of a stream first. @stream: any, in the current context. */
STANDIN_EXPORT void standin_hold(void *stream);
STANDIN_EXPORT void standin_release(void *stream);
/* Copies and kernels that are enqueued and not executed. */
STANDIN_EXPORT uint64_t standin_pending(void);
/* Whether the work that the event was last recorded behind is over: 1, 0, or -1: it was never recorded. Of any thread. */
STANDIN_EXPORT int standin_event_over(void *event);
/* While @shut returns true nothing is executed (it is called in front of each operation, and must call nothing here), and while @shut_pins
 * does, cuMemHostRegister does not return. NULL: they are open. */
STANDIN_EXPORT void standin_gate(bool (*shut)(void *user), bool (*shut_pins)(void *user), void *user);
/* As if the stream had been created so. */
STANDIN_EXPORT void standin_make_blocking(void *stream, bool blocking);
