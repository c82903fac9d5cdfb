/* SPDX-License-Identifier: Apache-2.0 */
#include "show.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "utf8.h"

const char *
show_bytes(char buf[SHOWN], double bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB"};
	size_t unit = 0;

	if (bytes < 1024) {
		(void)snprintf(buf, SHOWN, "%.0f bytes", bytes);
		return buf;
	}
	for (bytes /= 1024; bytes >= 1023.95 && unit < 4; unit++)
		bytes /= 1024;
	(void)snprintf(buf, SHOWN, "%.1f %s", bytes, units[unit]);
	return buf;
}

const char *
show_count(char buf[SHOWN], uint64_t n)
{
	char digits[24];
	size_t len = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, n), at = 0;

	for (size_t i = 0; i < len; i++) {
		if (i > 0 && (len - i) % 3 == 0)
			buf[at++] = ',';
		buf[at++] = digits[i];
	}
	buf[at] = '\0';
	return buf;
}

const char *
show_rate(char buf[SHOWN], double n, double seconds)
{
	double rate = seconds > 0 ? fmin(n / seconds, 1e18) : 0; /* any server may have told n */
	char count[SHOWN];

	if (rate < 10)
		(void)snprintf(buf, SHOWN, "%.1f/s", rate);
	else
		(void)snprintf(buf, SHOWN, "%.40s/s", show_count(count, (uint64_t)(rate + 0.5)));
	return buf;
}

const char *
show_percent(char buf[SHOWN], double part, double whole)
{
	if (whole > 0)
		(void)snprintf(buf, SHOWN, "%.1f %%", 100 * part / whole);
	else
		(void)snprintf(buf, SHOWN, "-");
	return buf;
}

const char *
show_time(char buf[SHOWN], uint64_t ms)
{
	uint64_t s = ms / 1000;

	if (ms < 1000)
		(void)snprintf(buf, SHOWN, "%" PRIu64 " ms", ms);
	else if (s < 60)
		(void)snprintf(buf, SHOWN, "%" PRIu64 " s", s);
	else if (s < 3600)
		(void)snprintf(buf, SHOWN, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
	else if (s < 86400)
		(void)snprintf(buf, SHOWN, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
	else
		(void)snprintf(buf, SHOWN, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s / 3600 % 24);
	return buf;
}

const char *
show_us(char buf[SHOWN], uint32_t us)
{
	if (us < 1000)
		(void)snprintf(buf, SHOWN, "%u us", (unsigned)us);
	else if (us < 1000000)
		(void)snprintf(buf, SHOWN, "%g ms", us / 1e3);
	else
		(void)snprintf(buf, SHOWN, "%g s", us / 1e6);
	return buf;
}

unsigned
show_width(unsigned of_80)
{
	struct winsize size;

	if (!isatty(STDOUT_FILENO))
		return SHOW_LONG;
	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 80 ? of_80 + size.ws_col - 80 : of_80;
}

/* Bytes of @name until its character number @n begins, or until its end. */
static size_t
bytes_of_characters(const char *name, size_t n)
{
	size_t at = 0;

	for (; name[at]; at++)
		if (((unsigned char)name[at] & 0xc0) != 0x80 && n-- == 0) /* a character begins */
			break;
	return at;
}

const char *
show_name(char *buf, size_t len, const char *name, unsigned width)
{
	size_t at = 0, characters = 0, left_out = 0, from = SIZE_MAX, to = 0;

	for (const char *c = name; *c; c++)
		characters += ((unsigned char)*c & 0xc0) != 0x80;
	if (characters > width) {
		left_out = characters - width + 1;
		from = bytes_of_characters(name, width / 2);
		to = bytes_of_characters(name, width / 2 + left_out);
	}
	for (size_t i = 0; name[i] && at + 5 < len; i++) {
		if (i == from) {
			buf[at++] = '~';
			i = to - 1;
			continue;
		}
		buf[at++] = name[i];
	}
	buf[at] = '\0';
	scout__utf8_clean(buf);
	return buf;
}
