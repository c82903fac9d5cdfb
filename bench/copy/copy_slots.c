/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of slots on a GPU machine: sealed memfds, with and without huge pages. Main thread only. */
#include "copy_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "say.h"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21u << 26)
#endif
#define HUGE_PAGE (UINT64_C(2) << 20)
/* Left to the rest of the machine beside a large mapping. */
#define SPARE_BYTES (UINT64_C(24) << 30)

/* A line "NAME   123 kB" or "NAME   123" of /proc/meminfo; 0 if there is none. */
static uint64_t
meminfo(const char *name)
{
	FILE *in = fopen("/proc/meminfo", "re");
	size_t n = strlen(name);
	char line[128];
	uint64_t value = 0;

	while (in && fgets(line, sizeof(line), in)) {
		if (strncmp(line, name, n) == 0 && line[n] == ':') {
			value = strtoull(line + n + 1, NULL, 10);
			break;
		}
	}
	if (in)
		(void)fclose(in); /* only read */
	return value;
}

/* What a container may still take; UINT64_MAX: no limit that is known. */
static uint64_t
container_room(void)
{
	const char *const paths[2] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"};
	uint64_t values[2] = {UINT64_MAX, 0};
	char line[64];

	for (unsigned int i = 0; i < 2; i++) {
		FILE *in = fopen(paths[i], "re");

		if (in && fgets(line, sizeof(line), in) && line[0] >= '0' && line[0] <= '9')
			values[i] = strtoull(line, NULL, 10);
		if (in)
			(void)fclose(in); /* only read */
	}
	return values[0] > values[1] ? values[0] - values[1] : 0;
}

static bool
has_room(enum copy_slots slots, uint64_t bytes, char *text, size_t len)
{
	uint64_t available = meminfo("MemAvailable") << 10, huge = meminfo("HugePages_Free") * HUGE_PAGE;

	if (available > container_room())
		available = container_room();
	if (slots == COPY_HUGE && (huge < bytes || meminfo("Hugepagesize") != 2048)) {
		(void)snprintf(text, len,
			       "%" PRIu64 " MiB of huge pages of 2 MiB are needed and %" PRIu64
			       " are free (sysctl vm.nr_hugepages=%" PRIu64 ")",
			       bytes >> 20, huge >> 20, bytes / HUGE_PAGE);
		return false;
	}
	if (slots == COPY_WIDE && available < bytes + SPARE_BYTES) {
		(void)snprintf(text, len, "%" PRIu64 " GiB of host memory are needed and %" PRIu64 " are available",
			       (bytes + SPARE_BYTES) >> 30, available >> 30);
		return false;
	}
	return true;
}

static void
tell(char *text, size_t len, const char *what)
{
	char why[SAY_ERROR];

	(void)snprintf(text, len, "%s: %s", what, say_error(why, errno));
}

uint8_t *
copy_slots_map(enum copy_slots slots, uint64_t want, uint64_t *ret_bytes, char *text, size_t len)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	uint64_t bytes = (want + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	void *base = MAP_FAILED;
	int fd;

	if (!has_room(slots, bytes, text, len))
		return NULL;
	if (slots == COPY_HUGE)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	fd = memfd_create("kvscout-copy", flags);
	if (fd < 0) {
		tell(text, len, "memfd_create");
		return NULL;
	}
	if (ftruncate(fd, (off_t)bytes) != 0)
		tell(text, len, "ftruncate");
	else if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
		tell(text, len, "fcntl(F_ADD_SEALS)");
	else if ((base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		tell(text, len, "mmap");
	(void)close(fd); /* a mapping keeps it */
	if (base == MAP_FAILED)
		return NULL;
	*ret_bytes = bytes;
	return base;
}

void
copy_slots_unmap(uint8_t *base, uint64_t bytes)
{
	(void)munmap(base, bytes); /* what was mapped can be unmapped */
}
