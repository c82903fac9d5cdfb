/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a measurement, as JSON, and what else the tools write as JSON. */
#include "json_env.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <kvscout/version.h>

#include "machine.h"
#include "say.h"
#ifndef SCOUT_SANITIZE
#define SCOUT_SANITIZE "none"
#endif

#define GOVERNOR_FILE "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"

static void
first_line(const char *path, char *buf, size_t len)
{
	FILE *file = fopen(path, "re");

	(void)snprintf(buf, len, "unknown");
	if (!file)
		return;
	if (!fgets(buf, (int)len, file))
		(void)snprintf(buf, len, "unknown");
	buf[strcspn(buf, "\n")] = '\0';
	(void)fclose(file);
}

json_t *
json_env(void)
{
	char cpu[MACHINE_TEXT], kernel[MACHINE_TEXT], when[MACHINE_TEXT], governor[64];
	struct utsname uts;
	const char *why = NULL;
	bool is_slow = json_env_is_slow_build(&why);

	first_line(GOVERNOR_FILE, governor, sizeof(governor));
	return json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:s, s:s, s:s, s:I, s:s, s:s}", "version",
			 SCOUT_VERSION_STRING, "revision", machine_revision(), "build_type", machine_build_type(),
			 "sanitizer", SCOUT_SANITIZE, "slow_build", is_slow, "compiler", __VERSION__, "kernel",
			 machine_kernel(kernel), "machine", uname(&uts) == 0 ? uts.machine : "unknown", "cpu",
			 machine_cpu(cpu), "cores", (json_int_t)sysconf(_SC_NPROCESSORS_ONLN), "governor", governor,
			 "time", machine_time(when));
}

void
json_env_line(char *buf, size_t len)
{
	char cpu[MACHINE_TEXT], kernel[MACHINE_TEXT], when[MACHINE_TEXT];

	(void)snprintf(buf, len, "%s, %s, %s, Linux %s, %s", machine_revision(), machine_build_type(), machine_cpu(cpu),
		       machine_kernel(kernel), machine_time(when));
}

bool
json_env_is_slow_build(const char **ret_why)
{
	if (strcmp(SCOUT_SANITIZE, "none") != 0) {
		*ret_why = "built with -fsanitize=" SCOUT_SANITIZE;
		return true;
	}
#ifndef __OPTIMIZE__
	*ret_why = "built without optimisation";
	return true;
#elif defined(SCOUT_DEBUG)
	*ret_why = "built with debug assertions; measure with --buildtype=release (./dev bench does)";
	return true;
#else
	return false;
#endif
}

json_t *
json_hist(const struct scout__hist *hist)
{
	static const struct {
		const char *name;
		double q;
	} quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
	json_t *object = json_pack("{s:I}", "n", (json_int_t)hist->n);
	bool is_empty = !hist->n;

	if (!object)
		return NULL;
	(void)json_object_set_new(object, "min", is_empty ? json_null() : json_integer((json_int_t)hist->min));
	for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++)
		(void)json_object_set_new(
			object, quantiles[i].name,
			is_empty ? json_null() : json_integer((json_int_t)scout__hist_quantile(hist, quantiles[i].q)));
	(void)json_object_set_new(object, "max", is_empty ? json_null() : json_integer((json_int_t)hist->max));
	return object;
}

static int
write_value(json_t *value, FILE *out)
{
	int failed = json_dumpf(value, out, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
	int error;

	say_to(out, "\n");
	error = say_close(out);
	return failed && !error ? ENOMEM : error; /* jansson needs memory of its own */
}

int
json_write_file(json_t *value, const char *path, char *err, size_t err_len)
{
	char text[SAY_ERROR];
	FILE *out;
	int error;

	if (!value) {
		(void)snprintf(err, err_len, "out of memory");
		return -1;
	}
	out = say_open(path);
	error = out ? write_value(value, out) : errno;
	if (error)
		(void)snprintf(err, err_len, "cannot write %s: %s", path, say_error(text, error));
	json_decref(value);
	return error ? -1 : 0;
}
