/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of all kinds under the CUDA backend on a real GPU: pages in virtual memory that grows by parts (torch's expandable
 * segments), pages of another process (CUDA IPC), slots in a sealed memfd of another process, pinned in parts.
 */
#include <fcntl.h>
#include <sys/prctl.h>
#include <signal.h>

#include "gpu_world.h"

static struct world w;
static const struct shape shape = {4, 16, 4, {65536, 4096, 1000}, {0, 64, 24}};

/* ---- virtual memory ---- */

static void
pages_in_expandable_segments(int i)
{
	/* Larger than some granules of 2 MiB, with blocks that do not end where they do. */
	static const struct shape large = {3, 16, 4, {200000, 4096, 70001}, {0, 64, 3}};

	w.seed = 31 + (uint64_t)i;
	w.alloc = vmm_alloc;
	world_init(&w, &large);
	REQUIRE(ops->claims(&w.layout));
	world_open(&w, methods[i]);
	round_trips(&w, 4);
	ops->close(w.engine);
}

/* ---- another process ---- */

/* A child of this one, which has not touched CUDA yet; it runs @run and ends with its parent. */
struct child {
	pid_t pid;
	int to, from; /* pipes: ours to it, its to us */
};

static struct child
child_start(void (*run)(int from_parent, int to_parent))
{
	struct child child;
	int down[2], up[2];

	REQUIRE(pipe(down) == 0 && pipe(up) == 0);
	child.pid = fork();
	REQUIRE(child.pid >= 0);
	if (child.pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(down[1]);
		(void)close(up[0]);
		run(down[0], up[1]);
		_exit(0);
	}
	(void)close(down[0]);
	(void)close(up[1]);
	child.to = down[1];
	child.from = up[0];
	return child;
}

static void
child_end(struct child *child)
{
	int status = -1;

	REQUIRE(write(child->to, "e", 1) == 1);
	REQUIRE(waitpid(child->pid, &status, 0) == child->pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void
read_all(int fd, void *p, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t got = read(fd, (uint8_t *)p + at, n - at);

		REQUIRE(got > 0);
		at += (size_t)got;
	}
}

#define IPC_BYTES (UINT64_C(8) << 20)
#define IPC_SEED 0x77

/* The engine's process: owns the pages, shows them, and looks at them in the end. */
static void
own_pages(int from_parent, int to_parent)
{
	CUipcMemHandle handle;
	uint8_t *seen = malloc(IPC_BYTES), *model = malloc(IPC_BYTES);
	void *base;
	char c;

	REQUIRE(seen && model);
	base = plain_alloc(IPC_BYTES);
	CUDA(gpu_set(base, IPC_SEED, IPC_BYTES));
	if (gpu.ipc_show(&handle, GPU(base)) != 0)
		_exit(GPU_SKIP);
	REQUIRE(write(to_parent, &handle, sizeof(handle)) == sizeof(handle));
	read_all(from_parent, &c, 1);
	CUDA(gpu_read(seen, base, IPC_BYTES));
	read_all(from_parent, model, IPC_BYTES);
	REQUIRE(memcmp(seen, model, IPC_BYTES) == 0);
	read_all(from_parent, &c, 1);
}

static struct child owner;

static void *
ipc_alloc(uint64_t bytes)
{
	CUipcMemHandle handle;
	CUdeviceptr base = 0;
	int rc;

	REQUIRE(bytes <= IPC_BYTES);
	if (read(owner.from, &handle, sizeof(handle)) != sizeof(handle)) {
		printf("# this machine shows no memory to another process\n");
		fflush(stdout);
		_exit(GPU_SKIP);
	}
	CUDA(gpu_enter());
	rc = gpu.ipc_open(&base, handle, GPU_IPC_LAZY);
	if (rc) {
		printf("# this machine opens no memory of another process (%s)\n", gpu_error_name(rc));
		fflush(stdout);
		_exit(GPU_SKIP);
	}
	return (void *)(uintptr_t)base;
}

static void
pages_of_another_process(int i)
{
	static const struct shape one = {1, 16, 4, {65536, 65536, 65536}, {0, 0, 0}};
	uint8_t *all = malloc(IPC_BYTES);
	size_t at = 0;

	REQUIRE(all);
	owner = child_start(own_pages);
	w.seed = 41 + (uint64_t)i;
	w.alloc = ipc_alloc;
	world_init(&w, &one);
	REQUIRE(ops->claims(&w.layout));
	world_open(&w, methods[i]);
	round_trips(&w, 4);
	ops->close(w.engine);
	memset(all, IPC_SEED, IPC_BYTES);
	memcpy(all, w.host[0], span_of(&w, 0));
	REQUIRE(write(owner.to, "s", 1) == 1);
	while (at < IPC_BYTES) {
		ssize_t n = write(owner.to, all + at, IPC_BYTES - at);

		REQUIRE(n > 0);
		at += (size_t)n;
	}
	CUDA(gpu.ipc_close(GPU(w.planes[0].base)));
	child_end(&owner);
}

static int pool_fd;
static uint64_t pool_bytes;

/* The server's process: has made the pool's memory, and sees in its own mapping what was stored. */
static void
own_pool(int from_parent, int to_parent)
{
	const uint8_t *slots;
	uint8_t model[4096];
	uint64_t bytes;

	(void)to_parent;
	read_all(from_parent, &bytes, sizeof(bytes));
	slots = mmap(NULL, bytes, PROT_READ, MAP_SHARED, pool_fd, 0);
	REQUIRE(slots != MAP_FAILED);
	for (uint64_t at = 0; at < bytes; at += sizeof(model)) {
		read_all(from_parent, model, sizeof(model));
		REQUIRE(memcmp(slots + at, model, sizeof(model)) == 0);
	}
	read_all(from_parent, model, 1);
}

static void
slots_of_another_process(int i)
{
	struct child server;

	pool_fd = memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	REQUIRE(pool_fd >= 0);
	server = child_start(own_pool);
	w.seed = 51 + (uint64_t)i;
	w.slots_fd = pool_fd;
	world_init(&w, &shape);
	REQUIRE(fcntl(pool_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
	world_open(&w, methods[i]);
	round_trips(&w, 4);
	ops->close(w.engine);
	pool_bytes = w.bytes;
	REQUIRE(write(server.to, &pool_bytes, sizeof(pool_bytes)) == sizeof(pool_bytes));
	for (uint64_t at = 0; at < w.bytes; at += 4096)
		REQUIRE(write(server.to, w.model + at, 4096) == 4096);
	child_end(&server);
}

/* Slots of 40 MiB, so that the memory is pinned in parts of some 256 MiB, and copies begin and end at their borders. */
static void
slots_that_are_pinned_in_parts(int i)
{
	static const struct shape large = {1, 10, 6, {4 << 20, 4 << 20, 4 << 20}, {0, 0, 0}};
	struct scout__copy_memory memory;
	uint64_t bytes, n_slots;
	uint8_t *base;

	w.seed = 61 + (uint64_t)i;
	world_make(&w, &large, methods[i]);
	n_slots = (UINT64_C(700) << 20) / w.stride;
	bytes = (4096 + n_slots * w.stride + 4095) / 4096 * 4096;
	base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	REQUIRE(base != MAP_FAILED);
	memory = (struct scout__copy_memory){.base = base, .bytes = bytes, .first_slot = 4096, .stride = w.stride};
	REQUIRE(ops->add_memory(w.engine, &memory) == 0);
	wait_readable(&w);
	REQUIRE(ops->poll(w.engine) == NULL);
	for (uint64_t s = 0; s < n_slots; s++) {
		int64_t ids[10];
		struct scout__copy_item item = {base + 4096 + s * w.stride, ids};
		struct scout__copy_batch batch = {.direction = SCOUT__COPY_SAVE, .n = 1, .items = &item};

		for (uint32_t b = 0; b < 10; b++)
			ids[b] = (int64_t)((s * 10 + b * 7) % w.layout.n_blocks);
		REQUIRE(ops->start(w.engine, &batch) == 0);
		REQUIRE(next_ended(&w) == &batch && batch.status == 0);
		for (uint32_t b = 0; b < 10; b++)
			REQUIRE(memcmp(item.slot + ((size_t)b << 22), w.host[0] + ((size_t)ids[b] << 22), 4 << 20) ==
				0);
	}
	ops->remove_memory(w.engine, base);
	REQUIRE(munmap(base, bytes) == 0);
	ops->close(w.engine);
}

static const struct gpu_case cases[] = {
	{"pages_in_expandable_segments", pages_in_expandable_segments, 3},
	{"pages_of_another_process", pages_of_another_process, 3},
	{"slots_of_another_process", slots_of_another_process, 3},
	{"slots_that_are_pinned_in_parts", slots_that_are_pinned_in_parts, 2},
};

int
main(int argc, char **argv)
{
	return world_main(argc, argv, cases, (int)(sizeof(cases) / sizeof(cases[0])));
}
