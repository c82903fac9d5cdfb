/* SPDX-License-Identifier: Apache-2.0 */
#include "standin_driver.h"

#include <check.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct standin_calls cu;
struct standin_tests standin_test;

static void
find(void *library, const char *name, void *ret_function)
{
	void *symbol = dlsym(library, name);

	/* POSIX: a pointer from dlsym() holds a function. */
	memcpy(ret_function, &symbol, sizeof(symbol));
}

void
standin_load(const char *variant)
{
	const char *folder = getenv("KVSCOUT_STANDIN_CUDA");
	char path[1024];
	void *library;

	ck_assert_msg(folder != NULL, "KVSCOUT_STANDIN_CUDA is not set: it names the folder of the stand-in");
	(void)snprintf(path, sizeof(path), "%s/%s/libcuda.so.1", folder, variant);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(library != NULL, "%s", dlerror());
#define STANDIN_FIND(field, symbol, parameters) find(library, #symbol, &cu.symbol);
	SCOUT__CUDA_FUNCTIONS(STANDIN_FIND)
	SCOUT__CUDA_BATCH_12(STANDIN_FIND)
	SCOUT__CUDA_BATCH_13(STANDIN_FIND)
	STANDIN_MORE(STANDIN_FIND)
#undef STANDIN_FIND
	find(library, "standin_set", &standin_test.set);
	find(library, "standin_count", &standin_test.count);
	find(library, "standin_declare", &standin_test.declare);
	find(library, "standin_hold", &standin_test.hold);
	find(library, "standin_release", &standin_test.release);
	find(library, "standin_pending", &standin_test.pending);
	find(library, "standin_event_over", &standin_test.event_over);
	find(library, "standin_gate", &standin_test.gate);
	find(library, "standin_make_blocking", &standin_test.make_blocking);
}

void
standin_enter_device(int device)
{
	CUcontext context = NULL;

	ck_assert_uint_eq(cu.cuDevicePrimaryCtxRetain(&context, device), 0);
	ck_assert_uint_eq(cu.cuCtxSetCurrent(context), 0);
}

void
standin_begin(const char *variant)
{
	standin_load(variant);
	ck_assert_uint_eq(cu.cuInit(0), 0);
	standin_enter_device(0);
}
