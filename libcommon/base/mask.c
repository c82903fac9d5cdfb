/* SPDX-License-Identifier: Apache-2.0 */
#include "mask.h"

#include <stdio.h>
#include <string.h>

void
scout__mask(const char *text, char *buf, size_t len)
{
	const char *url = strstr(text, "://"), *user = url ? url + strlen("://") : NULL, *host, *colon;
	size_t word, n = 0;

	for (; user && n < len; url = strstr(text, "://"), user = url ? url + strlen("://") : NULL) {
		word = strcspn(user, " \t\r\n");
		host = *user == '/' ? NULL : memrchr(user, '@', word);
		colon = host ? memchr(user, ':', (size_t)(host - user)) : NULL;
		if (host)
			n += (size_t)snprintf(buf + n, len - n, "%.*s***", (int)((colon ? colon + 1 : user) - text),
					      text);
		else
			n += (size_t)snprintf(buf + n, len - n, "%.*s", (int)(user + word - text), text);
		text = host ? host : user + word;
	}
	if (n < len)
		(void)snprintf(buf + n, len - n, "%s", text);
}
