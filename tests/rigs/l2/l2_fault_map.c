/* SPDX-License-Identifier: Apache-2.0 */
#include "l2_fault.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct l2_fault_control *
l2_fault_map(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	void *at = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, sizeof(struct l2_fault_control)) == 0)
		at = mmap(NULL, sizeof(struct l2_fault_control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		abort();
	(void)close(fd);
	return at;
}
