/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "blocking.h"
#include "files_catalogue.h"
#include "l2.h"
#include "log.h"
#include "object.h"

/*
 * Objects as files; internal to files*.c. The folder of one adapter:
 *
 *   kvscout-l2      the marker: what this folder is, format version, a random id, the pid of its user; carries the lock
 *   tmp/I-N         a file that is being written: instance (16 hex digits) and number
 *   ab/cd/HEX       an object: 32 hex digits of its key's digest, which begin with abcd
 *   record-HEX      a record: 32 hex digits of its digest
 *
 * An object's file, for buffered and direct I/O alike:
 *
 *   0               header of object.h (SCOUT__L2_HEADER_BYTES), then zeros
 *   SCOUT__FILES_PAYLOAD   payload, to the end of the file
 *
 * The payload begins on a 4 KiB boundary, so that O_DIRECT can read it straight into a slot.
 */

#define SCOUT__FILES_MARKER "kvscout-l2"
#define SCOUT__FILES_TMP "tmp"
#define SCOUT__FILES_RECORD "record-"
#define SCOUT__FILES_PAYLOAD 4096u /* offset; also what O_DIRECT is aligned to */
#define SCOUT__FILES_PIECE (UINT64_C(512) * 1024)
#define SCOUT__FILES_PATH 48u /* bytes of a name inside the folder, with the NUL */

struct scout__files_root {
	int fd;               /* the folder */
	int marker_fd;        /* has the lock */
	uint32_t block_bytes; /* what the file system allocates by */
	uint64_t instance;    /* random; names this start's temporary files */
};

/* What belongs to one transfer thread. */
struct scout__files_hand {
	struct scout__files *files;
	struct scout__l2_op *op; /* what it works on */
	uint32_t entry;          /* that it stores */
	uint8_t *bounce;         /* SCOUT__FILES_PIECE, aligned for O_DIRECT */
	struct scout__log_limit limit;
};

struct scout__files {
	/* Const after open. */
	struct scout__blocking blocking;
	const struct scout__log *log;
	char *path;
	struct scout__files_root root;
	uint64_t max_bytes;
	bool direct, sync, shared, remove_old;
	struct scout__cat cat;
	uint64_t timeout_us;             /* l2_timeout_ms */
	struct scout__files_hand *hands; /* n_hands, one for each transfer thread */
	uint32_t n_hands;
	pthread_t scan_thread;
	bool has_scan_thread;
	pthread_mutex_t look_mu;
	pthread_cond_t look;      /* the folder is to be looked at, or stopping */
	bool doubtful;            /* look_mu: something was not there that should be */
	char lost[256];           /* look_mu: why the folder cannot be used; "": it can */
	pthread_mutex_t removing; /* between the look whether a file is still the same, and its unlink */
	/* Any thread. */
	atomic_bool ready;
	_Atomic uint64_t temporaries; /* numbers given out */
	_Atomic uint64_t evictions, recovered, leftover;
};

static inline bool
scout__files_is_stopping(const struct scout__files *files)
{
	return scout__blocking_is_stopping(&files->blocking);
}

static inline bool
scout__files_is_fan_name(const char *name)
{
	return strlen(name) == 2 && strspn(name, "0123456789abcdef") == 2;
}

/* If others write too, the server may remove only what it wrote itself, and only if it has a limit. */
static inline bool
scout__files_evicts(const struct scout__files *files)
{
	return !files->shared || files->max_bytes != UINT64_MAX;
}

static inline void
scout__files_count(_Atomic uint64_t *counter)
{
	(void)atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* What should be there is not: look soon whether the folder is still ours. */
static inline void
scout__files_doubt(struct scout__files *files)
{
	(void)pthread_mutex_lock(&files->look_mu);
	files->doubtful = true;
	(void)pthread_cond_signal(&files->look);
	(void)pthread_mutex_unlock(&files->look_mu);
}

/* Disk space of an object with @bytes of payload: header and payload in whole blocks. Folders are not counted. */
uint64_t scout__files_disk_bytes(const struct scout__files *files, uint64_t bytes);

/* ---- files_root.c ---- */

/*
 * Take the folder @path: set it up if it is empty or absent, refuse it if it is not ours or in use. Returns 0 or
 * SCOUT_ERR_CONFIG_RANGE, _PERMISSION, _IN_USE, _SYSTEM.
 */
int scout__files_root_open(const char *path, bool shared, bool direct, struct scout__files_root *ret_root, char *err,
			   size_t err_len);
void scout__files_root_close(struct scout__files_root *root);

/* Whether the marker that has our lock is in the folder; true where that cannot be seen. */
bool scout__files_root_is_ours(const struct scout__files_root *root);
/* As scout__files_root_open(), for a root that is in use: its descriptors keep their numbers. On error it is as it was. */
int scout__files_root_take_again(struct scout__files_root *root, const char *path, bool shared, bool direct, char *err,
				 size_t err_len);

/* ---- files_io.c: one object's file. An int is 0 or an errno value, or FILES_DAMAGED ---- */

#define SCOUT__FILES_DAMAGED (-1)      /* not what was written, or of another key */
#define SCOUT__FILES_OTHER_FORMAT (-2) /* the scan: an older format, or a newer one */
#define SCOUT__FILES_FOREIGN (-3)      /* the scan: no object of ours, and never was one */
#define SCOUT__FILES_IN_VAIN (-4)      /* a store: no room, but in place of what it would be found by */

/* "ab/cd/HEX" */
void scout__files_object_path(struct scout__l2_digest digest, char ret_path[SCOUT__FILES_PATH]);
/* "tmp/I-N", new with each call. */
void scout__files_temporary_path(struct scout__files *files, char ret_path[SCOUT__FILES_PATH]);
/* Whether @name can be one that scout__files_temporary_path() makes, and of which start. */
bool scout__files_is_temporary(const char *name, uint64_t *ret_instance);

/* Rename within a folder; EEXIST if @to is there. */
int scout__files_rename_new(int root_fd, const char *from, const char *to);
/* Make @tmp and write a whole object to it. On failure, the caller removes @tmp. */
int scout__files_write(struct scout__files_hand *hand, const char *tmp, const struct scout__l2_key *key,
		       const uint8_t *data, uint64_t bytes);
/* Give @tmp its name; EEXIST if there is a file of that name. The fan folders are made. */
int scout__files_place(const struct scout__files *files, const char *tmp, const char *path);
/*
 * Read and verify. @data NULL: only verify, with whatever length the header says. *@ret_st is set whenever the file
 * could be opened (st_nlink is 0 if not). @stamp: note in the file's times that it was used.
 */
int scout__files_read(struct scout__files_hand *hand, const char *path, const struct scout__l2_key *key, uint8_t *data,
		      uint64_t bytes, bool stamp, struct stat *ret_st);
/* Whether the header of @path names @key and @bytes, and the file is as long as it says. *@ret_st as above. */
int scout__files_look(const struct scout__files *files, const char *path, const struct scout__l2_key *key,
		      uint64_t bytes, struct stat *ret_st);
/* Remove @path if it still is the file that @st describes. ENOENT is no failure, nor is another file. */
int scout__files_remove_same(struct scout__files *files, const char *path, const struct stat *st);
/* Read the header of an open file, without bounce. */
int scout__files_read_header(int fd, uint8_t header[SCOUT__L2_HEADER_BYTES]);
/* Make an entry in @folder (relative to the root; "." is the root) durable. */
int scout__files_sync_folder(const struct scout__files *files, const char *folder);

/* ---- files_ops.c: operations on the transfer threads ---- */

/* Do what @op says, or find out that this cannot be done; sets result and detail, completes nothing. */
void scout__files_do(struct scout__files_hand *hand, struct scout__l2_op *op);
/*
 * Evict until max_bytes is kept. False: what is left is pinned, or better kept, or cannot be removed (*ret_detail is why).
 * @hand, unless NULL, stores what needs the room: each file that is removed is progress.
 */
bool scout__files_make_room(struct scout__files *files, struct scout__files_hand *hand, int32_t *ret_detail);

/* ---- files_records.c ---- */

/* RECORD_READ and RECORD_WRITE: 0 or an errno value. */
int scout__files_record_read(struct scout__files *files, struct scout__l2_op *op);
int scout__files_record_write(struct scout__files *files, const struct scout__l2_op *op);

/* ---- files_scan.c ---- */

/* Rebuild the catalogue; returns early when the adapter stops. */
void scout__files_scan(struct scout__files *files);
