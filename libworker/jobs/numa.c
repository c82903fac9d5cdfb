/* SPDX-License-Identifier: Apache-2.0 */
#include "numa.h"

#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpus.h"

/* Which NUMA node a worker or its GPU is near to. Any thread. */

/* The kernel lists the nodes as ranges: "0" is one, "0-1" and "0,4" are more. */
static bool
has_several_nodes(const char *root)
{
	char path[256];
	char line[64] = "";
	FILE *file;

	if (snprintf(path, sizeof(path), "%s/sys/devices/system/node/online", root) >= (int)sizeof(path))
		return false;
	file = fopen(path, "re");
	if (!file)
		return false;
	if (!fgets(line, sizeof(line), file))
		line[0] = '\0';
	(void)fclose(file); /* only read */
	return strpbrk(line, "-,") != NULL;
}

/* getcpu() is right only at the moment of the call: engines that care pin their workers before. glibc has it since 2.29. */
static uint16_t
node_here(const char *root)
{
	unsigned node = 0;

	if (!has_several_nodes(root) || syscall(SYS_getcpu, NULL, &node, NULL) != 0 || node >= SCOUT__NUMA_MAX)
		return 0;
	return (uint16_t)(node + 1);
}

bool
scout__numa_parse(const char *text, const char *root, uint16_t *ret_node)
{
	unsigned node = 0;
	size_t len = strlen(text);

	if (strcmp(text, "auto") == 0 || strcmp(text, "none") == 0) {
		*ret_node = text[0] == 'a' ? node_here(root) : 0;
		return true;
	}
	if (len == 0 || len > 4)
		return false;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9')
			return false;
		node = node * 10 + (unsigned)(text[i] - '0');
	}
	if (node >= SCOUT__NUMA_MAX)
		return false;
	*ret_node = (uint16_t)(node + 1);
	return true;
}

uint16_t
scout__numa_of_device(const char *bus_id, const char *root)
{
	char path[256];
	FILE *file;
	int node = -1;

	if (!has_several_nodes(root) ||
	    snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/numa_node", root, bus_id) >= (int)sizeof(path))
		return 0;
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &node) != 1)
		node = -1;
	(void)fclose(file); /* only read */
	return node >= 0 && node < (int)SCOUT__NUMA_MAX ? (uint16_t)(node + 1) : 0;
}

bool
scout__numa_cpus(uint16_t node, const char *root, cpu_set_t *ret_cpus)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/cpulist", (unsigned)node - 1);
	return scout__cpus_read(root, path, ret_cpus);
}
