/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <kvscout/l2_plugin.h>

#include "clock.h"
#include "l2.h"
#include "l2_fault_disk.h"

/*
 * DESIGN
 *
 * examples/folder_store.c as a plugin with faults to be switched on (l2_fault.h): ?folder=PATH&control=FILE. Calls wait, hang,
 * fail or lie before the store gets them, and the disk below the store fails as it does below files.
 *
 * `hang` 1 asks the server whether to go on, as a plugin is to do; 2 never asks, and returns when the rule has ended.
 */

/* folder_store.c's, by a name of its own. */
const struct scout_l2_plugin *folder_store_plugin(void);
ssize_t __wrap_read(int fd, void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);

static struct l2_fault_control *control;

/* The disk's faults know where they are by the offset, so a call at the file's own offset becomes one with an offset. */
ssize_t
__wrap_read(int fd, void *data, size_t len)
{
	off_t at = lseek(fd, 0, SEEK_CUR);
	ssize_t n = pread(fd, data, len, at);

	if (n > 0)
		(void)lseek(fd, at + n, SEEK_SET);
	return n;
}

ssize_t
__wrap_write(int fd, const void *data, size_t len)
{
	off_t at = lseek(fd, 0, SEEK_CUR);
	ssize_t n = pwrite(fd, data, len, at);

	if (n > 0)
		(void)lseek(fd, at + n, SEEK_SET);
	return n;
}

/* Whether a rule ends the call, with *@ret_outcome; after a delay or an end of a hang, the call goes on. */
static bool
is_ended(enum scout__l2_what what, const struct scout_l2_watch *watch, int *ret_outcome)
{
	struct l2_fault_rule *rule = &control->ops[what];
	uint64_t begin_us = scout__now_us();
	uint32_t hang;

	if (rule->fail || rule->hang || rule->delay_ms)
		rule->hits++;
	if (rule->fail) {
		*ret_outcome = (int)rule->fail - 1;
		return true;
	}
	while ((hang = rule->hang) || scout__now_us() - begin_us < UINT64_C(1000) * rule->delay_ms) {
		if (hang < 2 && !watch->goes_on(watch->user, 0)) {
			*ret_outcome = SCOUT_L2_GAVE_UP;
			return true;
		}
		(void)poll(NULL, 0, 1);
	}
	rule->passed++;
	return false;
}

static int
open_store(const struct scout_l2_open *args, void **ret_store, char *why)
{
	struct scout_l2_open without = *args;

	without.n_options = 0;
	for (uint32_t i = 0; i < args->n_options; i++) {
		if (strcmp(args->options[i].name, "control") == 0) {
			control = l2_fault_map(args->options[i].value);
		} else {
			without.options = &args->options[i];
			without.n_options++;
		}
	}
	if (!control || without.n_options != 1)
		return SCOUT_ERR_CONFIG_KEY;
	l2_fault_disk_init(without.options->value, &control->disk);
	return folder_store_plugin()->open(&without, ret_store, why);
}

static int
exists(void *store, const char *const *names, uint32_t n, uint32_t flags, uint8_t *found,
       const struct scout_l2_watch *watch, char *why)
{
	int outcome;

	if (is_ended(SCOUT__L2_EXISTS, watch, &outcome))
		return outcome;
	outcome = folder_store_plugin()->exists(store, names, n, flags, found, watch, why);
	if (control->ops[SCOUT__L2_EXISTS].detail)
		memset(found, 1, n);
	return outcome;
}

static int
load(void *store, const char *name, uint32_t flags, const struct iovec *parts, uint32_t n,
     const struct scout_l2_watch *watch, char *why)
{
	int outcome;

	if (is_ended(flags & SCOUT_L2_RECORD ? SCOUT__L2_RECORD_READ : SCOUT__L2_LOAD, watch, &outcome))
		return outcome;
	return folder_store_plugin()->load(store, name, flags, parts, n, watch, why);
}

static int
store_parts(void *store, const char *name, uint32_t flags, const struct iovec *parts, uint32_t n,
	    const struct scout_l2_watch *watch, char *why)
{
	int outcome;

	if (is_ended(flags & SCOUT_L2_RECORD ? SCOUT__L2_RECORD_WRITE : SCOUT__L2_STORE, watch, &outcome))
		return outcome;
	return folder_store_plugin()->store(store, name, flags, parts, n, watch, why);
}

static int
remove_name(void *store, const char *name, const struct scout_l2_watch *watch, char *why)
{
	int outcome;

	if (is_ended(SCOUT__L2_REMOVE, watch, &outcome))
		return outcome;
	return folder_store_plugin()->remove(store, name, watch, why);
}

static void
close_store(void *store)
{
	folder_store_plugin()->close(store);
	l2_fault_disk_fini();
}

const struct scout_l2_plugin *
scout_l2_plugin(void)
{
	static const struct scout_l2_plugin plugin = {
		sizeof(plugin), SCOUT_L2_PLUGIN_VERSION, open_store, exists, load, store_parts, remove_name,
		close_store};

	return &plugin;
}
