/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <inttypes.h>
#include <stdio.h>

/* Three digits say enough, and keep a column narrow. */
static const char *
scaled(double value, const char *unit, char buf[TABLE_TEXT])
{
	int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;

	(void)snprintf(buf, TABLE_TEXT, "%.*f %s", decimals, value, unit);
	return buf;
}

const char *
table_ns(uint64_t ns, char buf[TABLE_TEXT])
{
	if (ns >= 999500000)
		return scaled((double)ns / 1e9, "s", buf);
	if (ns >= 999500)
		return scaled((double)ns / 1e6, "ms", buf);
	if (ns >= 1000)
		return scaled((double)ns / 1e3, "us", buf);
	(void)snprintf(buf, TABLE_TEXT, "%" PRIu64 " ns", ns);
	return buf;
}

const char *
table_bytes(uint64_t bytes, char buf[TABLE_TEXT])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes / 1024;
	unsigned unit = 0;

	if (bytes < 1024) {
		(void)snprintf(buf, TABLE_TEXT, "%" PRIu64 " B", bytes);
		return buf;
	}
	for (; value >= 1023.5 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
		value /= 1024;
	return scaled(value, units[unit], buf);
}
