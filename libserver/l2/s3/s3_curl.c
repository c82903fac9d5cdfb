/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct scout__s3_curl scout__s3_curl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why[512];

static void
take(void *library, const char *name, void *ret_function, size_t size)
{
	void *symbol = dlsym(library, name);

	if (!symbol && !*why)
		(void)snprintf(why, sizeof(why), "the libcurl of this host has no %s: 7.66 or newer is needed", name);
	memcpy(ret_function, &symbol, size);
}

static void
open_once(void)
{
	void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);

	if (!library)
		(void)snprintf(why, sizeof(why), "s3 needs libcurl on this host (Debian and Ubuntu: libcurl4): %s",
			       dlerror());
	/* Debian's other name for it, built with GnuTLS. */
	if (!library)
		library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return;
	why[0] = '\0';
#define TAKE(name) take(library, "curl_" #name, &scout__s3_curl.name, sizeof(scout__s3_curl.name));
	SCOUT__S3_CURL(TAKE)
#undef TAKE
	if (!*why && scout__s3_curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		(void)snprintf(why, sizeof(why), "libcurl does not start");
}

bool
scout__s3_curl_open(char *err, size_t err_len)
{
	(void)pthread_once(&once, open_once);
	if (*why)
		(void)snprintf(err, err_len, "%s", why);
	return !*why;
}
