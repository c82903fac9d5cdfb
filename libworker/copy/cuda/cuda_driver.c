/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/*
 * DESIGN
 *
 * Purpose: the driver's functions, found at run time by their names.
 *
 * No library of CUDA's is linked, so one build serves machines without a GPU, and every driver from 525 on, whatever toolkit the
 * application brings. The driver is the one that the application has loaded. In a process that has loaded none, it is loaded only when a
 * caller wants to use it. Once found it stays loaded: the application cannot unload it under us.
 *
 * Looking does not load. To look at pages must initialise nothing: else a process that forks later has no CUDA in its children.
 *
 * Names of the driver's calls carry the version of their signature (cuMemAlloc_v2), so a name means one signature for ever.
 */

#define LIBRARY "libcuda.so.1"

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct scout__cuda_driver functions;            /* G:mu; const after `found` was set */
static const struct scout__cuda_driver *_Atomic found; /* NULL: not found yet */

/* POSIX: a pointer from dlsym() holds a function. */
static bool
load(void *library, const char *name, void *ret_function)
{
	void *symbol = dlsym(library, name);

	__builtin_memcpy(ret_function, &symbol, sizeof(symbol));
	return symbol != NULL;
}

#define LOAD(field, symbol, parameters) &&load(library, #symbol, &functions.field)
#define LOAD_IF_THERE(field, symbol, parameters) (void)load(library, #symbol, &functions.field);

/* False: a function is missing, so this is no driver of CUDA 12 or newer. The lock is held. */
static bool
load_functions(void *library)
{
	SCOUT__CUDA_BATCH_12(LOAD_IF_THERE)
	SCOUT__CUDA_BATCH_13(LOAD_IF_THERE)
	return true SCOUT__CUDA_FUNCTIONS(LOAD);
}

static const struct scout__cuda_driver *
find(int flags)
{
	const struct scout__cuda_driver *driver = atomic_load(&found);
	void *library;

	if (driver)
		return driver;
	(void)pthread_mutex_lock(&mu);
	driver = atomic_load(&found);
	library = driver ? NULL : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | flags);
	if (library && load_functions(library)) {
		driver = &functions;
		atomic_store(&found, driver);
	}
	(void)pthread_mutex_unlock(&mu);
	return driver;
}

const struct scout__cuda_driver *
scout__cuda_driver_get(void)
{
	return find(RTLD_NOLOAD);
}

const struct scout__cuda_driver *
scout__cuda_driver_load(void)
{
	return find(0);
}

int
scout__cuda_driver_version(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	int (*version)(int *) = NULL;
	int n = 0;

	if (library && load(library, "cuDriverGetVersion", &version) && version(&n) != 0)
		n = 0;
	return n;
}
