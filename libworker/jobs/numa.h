/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define SCOUT__NUMA_MAX 1024u

/*
 * The value of the key numa_node: "auto", "none", or a number. *ret_node is the node plus 1; 0: no preference. For
 * "auto" it is the node of the CPU that the calling thread runs on, or no preference on a machine of one node (@root:
 * "", or a folder that stands for / in tests). False: the value is none of these.
 */
bool scout__numa_parse(const char *text, const char *root, uint16_t *ret_node);

/*
 * The node, plus 1, of the device with the PCI address @bus_id ("0000:3b:00.0", as the kernel writes it). 0: the kernel does not
 * say, as in most virtual machines, or there is only one node.
 */
uint16_t scout__numa_of_device(const char *bus_id, const char *root);

/* The CPUs of @node (plus 1, as above). False: the kernel names none. */
bool scout__numa_cpus(uint16_t node, const char *root, cpu_set_t *ret_cpus);
