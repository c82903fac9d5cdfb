/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_L2_PLUGIN_H
#define KVSCOUT_L2_PLUGIN_H

/*
 * Experimental: a store of L2 in a shared library. A server opens it as plugin:///path/lib.so?name=value (docs/l2.md).
 *
 * The library exports one function, scout_l2_plugin(), and links nothing of kvscout. Its calls block: the server makes them
 * on threads of its own, several at once, and does the rest: deadlines, lateness, breakers, limits, and the check of each
 * object that was loaded. So a plugin may fail, but it cannot make a wrong byte a hit.
 *
 * The plugin runs inside the server: a crash of the plugin is one of the server. examples/folder_store.c is a whole plugin.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <kvscout/error.h>
#include <kvscout/types.h>
#include <kvscout/version.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SCOUT_L2_PLUGIN_VERSION 1u /* what the calls mean; another version is refused */
#define SCOUT_L2_WHY_BYTES 512u    /* room for a sentence, with the NUL */

/* How a call ended. */
enum scout_l2_outcome {
	SCOUT_L2_DONE = 0,
	SCOUT_L2_ABSENT = 1,     /* load: not there */
	SCOUT_L2_PRESENT = 2,    /* store: it was there already and stays */
	SCOUT_L2_WRONG_SIZE = 3, /* load: the object is longer or shorter than the parts */
	SCOUT_L2_FULL = 4,       /* store: no room; no failure, so the server goes on storing */
	SCOUT_L2_TIMEOUT = 5,    /* the store did not answer in time */
	SCOUT_L2_FAILED = 6,     /* anything else; @why says what */
	SCOUT_L2_GAVE_UP = 7     /* watch->goes_on() returned false */
};

/* One name=value of the URL, decoded. */
struct scout_l2_option {
	const char *name, *value;
};

/* What open() is given; all of it is borrowed for the call, but log and log_user stay good until close() returns. */
struct scout_l2_open {
	uint32_t size;                         /* of this structure, as the server has it */
	uint32_t n_options;                    /* without those of the server itself: threads, timeout_ms */
	const struct scout_l2_option *options; /* n_options */
	uint32_t timeout_ms; /* the longest time without progress of any call; watch ends a call earlier */
	uint32_t threads;    /* calls of load, store and remove at once, and as many of exists */
	scout_log_fn log;    /* for lines of the plugin's own; any thread, no newline. May be NULL */
	void *log_user;
};

/*
 * The server's hand on a call. A plugin calls goes_on() on the call's own thread after each part that has moved, and at
 * least every 100 ms while it waits.
 */
struct scout_l2_watch {
	uint32_t size; /* of this structure, as the server has it */
	/*
	 * @moved: bytes (of exists: requests) of this call so far. More than before is progress, of an object at least 64 KiB
	 * or a 16th of it more, and the clock of the deadline starts anew; bytes beyond the object's are no progress.
	 * False: nobody waits any more, or nothing has moved for timeout_ms: return SCOUT_L2_GAVE_UP.
	 */
	bool (*goes_on)(void *user, uint64_t moved);
	void *user;
};

/* Bits of @flags. */
/* load, store: a record; few and small. A store replaces it durably, whole or not at all; never evict it. */
#define SCOUT_L2_RECORD 1u
/*
 * exists: the names are in the order of one prompt, and what counts is only how many from the first on are there. A
 * store may ask for some and take those before a name that is there to be there too: a load of what is absent is a miss.
 */
#define SCOUT_L2_CHAIN 2u

/*
 * The calls. @store is what open() returned. A name is 32 lower-case hex digits and NUL; names of records and of objects
 * never meet. @why, of SCOUT_L2_WHY_BYTES, begins as ""; a call that returns SCOUT_L2_FAILED writes a sentence without
 * full stop and without secrets there. Everything is borrowed for the call. Each call: any thread, several at once;
 * blocks; returns an enum scout_l2_outcome (another number counts as SCOUT_L2_FAILED).
 */
struct scout_l2_plugin {
	uint32_t size;    /* sizeof(struct scout_l2_plugin), as the plugin was compiled */
	uint32_t version; /* SCOUT_L2_PLUGIN_VERSION */
	/**
	 * Check the options and begin. A store that cannot be reached now is no error, since it may come later.
	 *
	 * @ret_store  written on success.
	 * @why        a sentence without full stop, on error.
	 *
	 * Thread:   the one that starts the server; no other call runs.
	 * Blocks:   the start of the server.
	 * Returns:  0, or SCOUT_ERR_CONFIG_KEY (an unknown option), _CONFIG_RANGE (a wrong value), _PERMISSION, _IN_USE,
	 *           _NOMEM, _SYSTEM. Another number counts as _SYSTEM.
	 */
	int (*open)(const struct scout_l2_open *args, void **ret_store, char *why);
	/**
	 * Which of @n objects are there.
	 *
	 * @flags  SCOUT_L2_CHAIN, or 0: each name counts by itself.
	 * @found  n bytes, all 0; 1 for each that is there. Written as far as known also if the call fails.
	 *
	 * Returns:  SCOUT_L2_DONE, _TIMEOUT, _FAILED, _GAVE_UP.
	 */
	int (*exists)(void *store, const char *const *names, uint32_t n, uint32_t flags, uint8_t *found,
		      const struct scout_l2_watch *watch, char *why);
	/**
	 * Read an object into @parts, one after the other, and no byte beyond them.
	 *
	 * @n_parts  1 or 2; a part may have no bytes.
	 *
	 * Returns:  SCOUT_L2_DONE if the object has exactly the bytes of the parts, _WRONG_SIZE if not, _ABSENT, _TIMEOUT,
	 *           _FAILED, _GAVE_UP. With _WRONG_SIZE the parts begin as the object does, or are as they were; after any other
	 *           but _DONE they may hold anything. An object that does not begin as kvscout's do is not removed.
	 */
	int (*load)(void *store, const char *name, uint32_t flags, const struct iovec *parts, uint32_t n_parts,
		    const struct scout_l2_watch *watch, char *why);
	/**
	 * Write an object from @parts. It appears whole or not at all. One that is there already stays, a record is replaced.
	 *
	 * @parts  read only.
	 *
	 * Returns:  SCOUT_L2_DONE, _PRESENT, _FULL, _TIMEOUT, _FAILED, _GAVE_UP.
	 */
	int (*store)(void *store, const char *name, uint32_t flags, const struct iovec *parts, uint32_t n_parts,
		     const struct scout_l2_watch *watch, char *why);
	/**
	 * Remove an object: a load found it damaged.
	 *
	 * Returns:  SCOUT_L2_DONE, also if there is none, _TIMEOUT, _FAILED, _GAVE_UP.
	 */
	int (*remove)(void *store, const char *name, const struct scout_l2_watch *watch, char *why);
	/**
	 * End. All other calls have returned, and none follows. The library is unloaded afterwards: no thread of the plugin
	 * may run then. A stop of the server waits for it two seconds in all.
	 */
	void (*close)(void *store);
};

/**
 * What a plugin exports; the plugin writes it, no library of kvscout has it.
 *
 * Thread:   the one that starts the server.
 * Blocks:   no.
 * Returns:  a structure that stays as it is while the library is loaded.
 */
SCOUT_API const struct scout_l2_plugin *scout_l2_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
