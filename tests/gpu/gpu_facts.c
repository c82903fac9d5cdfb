/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a run on a GPU needs to be understood later: driver, device, link, NUMA, limits, and the seconds to pin memory with pages of 4 KiB
 * and of 2 MiB, by one process and by eight at once, as the workers of a node do. The cases print; none of them judges a speed.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "clock.h"
#include "gpu_driver.h"
#include "gpu_test.h"

#define MANY 8
#define HUGE (UINT64_C(2) << 20)
#define MFD_2MIB (21u << 26) /* MFD_HUGE_2MB, which glibc does not name */

/* ---- what is told ---- */

/* One line of a file, or the one that begins with @key; "?" where there is none. */
static void
read_line(const char *path, const char *key, char *buf, size_t len)
{
	FILE *in = fopen(path, "re");
	bool found = false;

	while (in && !found && fgets(buf, (int)len, in))
		found = strncmp(buf, key, strlen(key)) == 0;
	if (in)
		(void)fclose(in); /* only read */
	if (!found)
		snprintf(buf, len, "%s ?", key);
	buf[strcspn(buf, "\n")] = 0;
	for (char *c = buf; *c; c++)
		if (*c == '\t')
			*c = ' ';
}

static void
tell(const char *what, const char *path, const char *key)
{
	char line[256];

	read_line(path, key, line, sizeof(line));
	printf("# %s: %s\n", what, line);
}

static void
tell_of_bus(const char *what)
{
	char bus[32] = "", path[128];

	CUDA(gpu.bus_id(bus, sizeof(bus), 0));
	for (char *c = bus; *c; c++)
		if (*c >= 'A' && *c <= 'F')
			*c = (char)(*c - 'A' + 'a');
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", bus, what);
	tell(what, path, "");
}

static void
tell_device(void)
{
	static const struct {
		const char *name;
		CUdevice_attribute attribute;
	} questions[] = {{"capability", SCOUT__CU_CAPABILITY_MAJOR},
			 {"multiprocessors", GPU_N_SMS},
			 {"copy engines", GPU_N_COPY_ENGINES},
			 {"host addresses serve for registered memory", GPU_HAS_HOST_ADDRESSES},
			 {"reads pageable memory", GPU_READS_PAGEABLE}};
	char name[128] = "";
	int n = 0;

	CUDA(gpu.device_name(name, sizeof(name), 0));
	CUDA(gpu.version(&n));
	printf("# %s, driver of CUDA %d.%d", name, n / 1000, n % 1000 / 10);
	for (size_t q = 0; q < sizeof(questions) / sizeof(questions[0]); q++) {
		CUDA(gpu.device_attribute(&n, questions[q].attribute, 0));
		printf(", %s %d", questions[q].name, n);
	}
	printf("\n");
}

static void
what_this_machine_is(int i)
{
	struct rlimit locked;

	(void)i;
	tell_device();
	tell("driver", "/proc/driver/nvidia/version", "");
	tell_of_bus("current_link_speed");
	tell_of_bus("current_link_width");
	tell_of_bus("max_link_speed");
	tell_of_bus("numa_node");
	tell("NUMA nodes", "/sys/devices/system/node/online", "");
	tell("CPUs", "/proc/self/status", "Cpus_allowed_list:");
	tell("memory", "/proc/meminfo", "MemAvailable:");
	tell("huge pages", "/proc/meminfo", "HugePages_Free:");
	tell("transparent huge pages", "/sys/kernel/mm/transparent_hugepage/enabled", "");
	tell("the same, shared memory", "/sys/kernel/mm/transparent_hugepage/shmem_enabled", "");
	REQUIRE(getrlimit(RLIMIT_MEMLOCK, &locked) == 0);
	printf("# RLIMIT_MEMLOCK: %lld, at most %lld (-1: no limit)\n", (long long)locked.rlim_cur,
	       (long long)locked.rlim_max);
}

/* ---- seconds to pin ---- */

/* What all processes pin. */
struct pool {
	uint64_t bytes;
	int fd; /* of a memfd; -1: each process has memory of its own in transparent huge pages */
	const char *pages;
};

/* A process that pins when it is told to, with pipes to it and from it. */
struct worker {
	int to, from;
};

static struct pool
make_pool(bool huge)
{
	const char *text = getenv("GPU_FACTS_MIB");
	struct pool pool = {.bytes = (text ? strtoull(text, NULL, 10) : 1024) << 20,
			    .fd = memfd_create("pool", MFD_CLOEXEC | (huge ? MFD_HUGETLB | MFD_2MIB : 0)),
			    .pages = huge ? "2 MiB pages (hugetlbfs)" : "4 KiB pages"};

	if (pool.fd >= 0 && fallocate(pool.fd, 0, 0, (off_t)pool.bytes) == 0)
		return pool;
	REQUIRE(huge);
	pool.fd = -1;
	pool.pages = "2 MiB pages (transparent)";
	return pool;
}

/* All of its pages exist. As in a worker, those of a memfd are not in the process's page table yet. */
static void *
map_pool(const struct pool *pool)
{
	int flags = pool->fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	uint8_t *base =
		mmap(NULL, pool->fd < 0 ? pool->bytes + HUGE : pool->bytes, PROT_READ | PROT_WRITE, flags, pool->fd, 0);

	REQUIRE(base != MAP_FAILED);
	if (pool->fd >= 0)
		return base;
	base += (HUGE - (uintptr_t)base % HUGE) % HUGE;
	(void)madvise(base, pool->bytes, MADV_HUGEPAGE); /* where that is forbidden, the pages are small */
	for (uint64_t at = 0; at < pool->bytes; at += 4096)
		((volatile uint8_t *)base)[at] = 1;
	return base;
}

static void
pin_when_told(const struct pool *pool, void *base, int go, int said)
{
	uint64_t began_us, us;
	char c;

	REQUIRE(read(go, &c, 1) == 1);
	began_us = scout__now_us();
	CUDA(gpu.host_register(base, pool->bytes, SCOUT__CU_REGISTER_PORTABLE | SCOUT__CU_REGISTER_MAPPED));
	us = scout__now_us() - began_us;
	REQUIRE(write(said, &us, sizeof(us)) == sizeof(us));
	CUDA(gpu.host_unregister(base));
}

/* The first worker pins alone, and then with all others. */
static void
worker_main(const struct pool *pools, bool is_first, int go, int said)
{
	CUDA(gpu_enter());
	for (int p = 0; p < 2; p++) {
		void *base = map_pool(&pools[p]);

		REQUIRE(write(said, "r", 1) == 1);
		if (is_first)
			pin_when_told(&pools[p], base, go, said);
		pin_when_told(&pools[p], base, go, said);
		(void)munmap(base, pools[p].bytes); /* the process ends soon */
	}
	_exit(0);
}

static struct worker
worker_start(const struct pool *pools, bool is_first)
{
	int go[2], said[2];
	pid_t pid;

	REQUIRE(pipe2(go, O_CLOEXEC) == 0 && pipe2(said, O_CLOEXEC) == 0);
	pid = fork();
	REQUIRE(pid >= 0);
	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(said[0]);
		worker_main(pools, is_first, go[0], said[1]);
	}
	(void)close(said[1]); /* a worker that ends early is read as an end of file by the next read */
	return (struct worker){.to = go[1], .from = said[0]};
}

static void
pin(const struct pool *pool, const struct worker *workers, int n)
{
	uint64_t us, least = UINT64_MAX, most = 0;

	for (int k = 0; k < n; k++)
		REQUIRE(write(workers[k].to, "g", 1) == 1);
	for (int k = 0; k < n; k++) {
		REQUIRE(read(workers[k].from, &us, sizeof(us)) == sizeof(us));
		least = us < least ? us : least;
		most = us > most ? us : most;
	}
	printf("# %d at once: %llu MiB of %s pinned in %.3f to %.3f s\n", n, (unsigned long long)(pool->bytes >> 20),
	       pool->pages, (double)least / 1e6, (double)most / 1e6);
}

/* Eight contexts are made once, which is most of the time that this takes. */
static void
seconds_to_pin(int i)
{
	struct pool pools[2] = {make_pool(false), make_pool(true)};
	struct worker workers[MANY];
	int status;
	char c;

	(void)i;
	fflush(stdout);
	for (int k = 0; k < MANY; k++)
		workers[k] = worker_start(pools, k == 0);
	for (int p = 0; p < 2; p++) {
		for (int k = 0; k < MANY; k++)
			REQUIRE(read(workers[k].from, &c, 1) == 1);
		pin(&pools[p], workers, 1);
		pin(&pools[p], workers, MANY);
	}
	while (wait(&status) > 0)
		REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static const struct gpu_case cases[] = {
	{"what_this_machine_is", what_this_machine_is, 1},
	{"seconds_to_pin", seconds_to_pin, 1},
};

int
main(int argc, char **argv)
{
	return gpu_main(argc, argv, cases, (int)(sizeof(cases) / sizeof(cases[0])), argc == 1 ? gpu_why_not() : NULL);
}
