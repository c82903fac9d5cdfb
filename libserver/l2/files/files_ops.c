/* SPDX-License-Identifier: Apache-2.0 */
#include "files_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "clock.h"

/*
 * DESIGN
 *
 * Purpose: what a transfer thread does for one operation. The catalogue grants names: a store claims its name first, so
 * whatever it finds in the folder under that name is older than this start (the scan has not come there yet), comes
 * from another node (shared=1), or was put there by hand.
 *
 * A store: claim, count the bytes, evict until they fit, write under a temporary name, give it the name, publish. An
 * object counts from before its first byte is written, so the limit holds at every moment, except for files that are
 * just being removed. If the disk has no room, the store evicts what is missing before it writes: without max_bytes the
 * disk is the limit, and a cache that stopped taking new objects while it keeps old ones would be of no use.
 *
 * An object is of use only with those before it in its prompt. So it stands just behind them in the order of use, and
 * what goes first of a prompt is its end. A store whose own beginning is gone, or would have to go for it, is FULL.
 *
 * A load holds nothing: the file that it opened stays readable even if it is evicted meanwhile. A damaged object leaves
 * the catalogue, but only if it is still the file that was opened.
 *
 * Rejected: io_uring. Many containers forbid it (it is off in Docker's and in hardened kernels' defaults), so the
 * threads would be needed all the same, and with objects of a megabyte the system calls cost next to nothing: one pread
 * of 512 KiB takes some hundred times as long as the call. The page cache and readahead work for both.
 *
 * Threads: the transfer threads; the scan, too, calls scout__files_make_room().
 */

#define LOG_INTERVAL_US 5000000u
#define WRITE_TRIES 4u /* on a full disk */

static bool
has_no_room(int errnum)
{
	return errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG;
}

static void
end(struct scout__l2_op *op, enum scout__l2_result result, int detail)
{
	op->result = (uint8_t)result;
	op->detail = detail;
}

static void
end_failed(struct scout__l2_op *op, const char *path, int errnum)
{
	end(op, has_no_room(errnum) ? SCOUT__L2_FULL : SCOUT__L2_ERROR, errnum);
	(void)snprintf(op->why, sizeof(op->why), "%s (%s)", scout__errno_text(errnum), path);
}

uint64_t
scout__files_disk_bytes(const struct scout__files *files, uint64_t bytes)
{
	uint64_t block = files->root.block_bytes;

	/* No payload comes near this: it would not fit into memory. */
	if (bytes > UINT64_MAX / 2)
		return UINT64_MAX;
	return (SCOUT__FILES_PAYLOAD + bytes + block - 1) / block * block;
}

/* ---- eviction ---- */

/* Returns 0 or an errno value. */
static int
remove_victim(struct scout__files *files, const struct scout__cat_victim *victim)
{
	char path[SCOUT__FILES_PATH];

	scout__files_object_path(victim->digest, path);
	if (unlinkat(files->root.fd, path, 0) != 0 && errno != ENOENT) {
		int errnum = errno;

		scout__cat_keep(&files->cat, victim);
		return errnum;
	}
	scout__cat_drop(&files->cat, victim->entry);
	scout__files_count(&files->evictions);
	return 0;
}

bool
scout__files_make_room(struct scout__files *files, struct scout__files_hand *hand, int32_t *ret_detail)
{
	struct scout__cat_victim victim;

	for (;;) {
		enum scout__cat_room room =
			scout__cat_evict(&files->cat, false, hand ? hand->entry : SCOUT__CAT_NONE, &victim);

		*ret_detail = 0;
		if (room != SCOUT__CAT_VICTIM)
			return room == SCOUT__CAT_FITS;
		*ret_detail = remove_victim(files, &victim);
		if (*ret_detail)
			return false;
		if (hand)
			scout__l2_moved(hand->op);
	}
}

/* Make room on the disk. Returns 0 if something was removed, ENOSPC if nothing can be, or FILES_IN_VAIN. */
static int
free_disk(struct scout__files_hand *hand, uint64_t bytes)
{
	struct scout__files *files = hand->files;
	enum scout__cat_room room = SCOUT__CAT_VICTIM;
	struct scout__cat_victim victim;
	uint64_t freed = 0;

	while (freed < bytes && scout__files_evicts(files)) {
		room = scout__cat_evict(&files->cat, true, hand->entry, &victim);
		if (room != SCOUT__CAT_VICTIM || remove_victim(files, &victim) != 0)
			break;
		freed += victim.bytes;
		scout__l2_moved(hand->op);
	}
	if (room == SCOUT__CAT_IN_VAIN)
		return SCOUT__FILES_IN_VAIN;
	return freed > 0 ? 0 : ENOSPC;
}

/*
 * What the disk has no room for, of @bytes. Quotas do not show here. The last of it is for others than the rest of a
 * prompt that is cut.
 */
static uint64_t
missing_room(struct scout__files_hand *hand, uint64_t bytes)
{
	struct scout__files *files = hand->files;
	struct statvfs vfs;
	uint64_t has;

	if (fstatvfs(files->root.fd, &vfs) != 0)
		return 0;
	has = (uint64_t)vfs.f_bavail * vfs.f_frsize;
	if (scout__cat_is_cut(&files->cat, hand->entry))
		bytes += (uint64_t)vfs.f_blocks * vfs.f_frsize / 16;
	return bytes > has ? bytes - has : 0;
}

/* ---- what is not there, or not good ---- */

/*
 * The object that @ref saw is gone or damaged: it leaves the catalogue, and its file is removed if @st describes it.
 * Others may have been faster.
 */
static void
give_up(struct scout__files *files, bool has_ref, struct scout__cat_ref ref, const char *path, const struct stat *st)
{
	bool is_mine = has_ref && scout__cat_claim_ref(&files->cat, ref);

	if (st->st_nlink > 0 && (is_mine || files->shared))
		(void)scout__files_remove_same(files, path, st); /* in any case the object is not offered again */
	if (is_mine)
		scout__cat_drop(&files->cat, ref.entry);
}

static void
read_and_judge(struct scout__files_hand *hand, struct scout__l2_op *op, uint8_t *data)
{
	struct scout__files *files = hand->files;
	struct scout__cat_ref ref = {0};
	bool is_stale = false;
	bool has_ref = scout__cat_use(&files->cat, op->key->digest, scout__now_us(), &ref, &is_stale);
	char path[SCOUT__FILES_PATH];
	struct stat st;
	int rc;

	if (!has_ref && !files->shared) {
		end(op, SCOUT__L2_ABSENT, 0);
		return;
	}
	scout__files_object_path(op->key->digest, path);
	rc = scout__files_read(hand, path, op->key, data, op->bytes, is_stale, &st);
	if (rc == 0) {
		end(op, SCOUT__L2_OK, 0);
	} else if (rc == SCOUT__FILES_DAMAGED) {
		end(op, SCOUT__L2_CORRUPT, 0);
		give_up(files, has_ref, ref, path, &st);
		scout__log_limited(files->log, &hand->limit, scout__now_us(), LOG_INTERVAL_US, SCOUT_LOG_WARN,
				   "files tier %s: %s is damaged or of another key; removed", files->path, path);
	} else if (rc == ENOENT || rc == ESTALE) {
		end(op, SCOUT__L2_ABSENT, rc);
		if (has_ref)
			scout__files_doubt(files);
		give_up(files, has_ref, ref, path, &st);
	} else {
		end_failed(op, path, rc);
		/* A sector that cannot be read does not heal. For a network file system that is not known. */
		if (rc == EIO && !files->shared)
			give_up(files, has_ref, ref, path, &st);
	}
}

static void
load(struct scout__files_hand *hand, struct scout__l2_op *op)
{
	/* Without a payload there may be no slot either. */
	read_and_judge(hand, op, op->bytes ? op->data : hand->bounce);
}

/* A load found the object damaged. It may have been replaced since, so what is there now is judged anew. */
static void
remove_damaged(struct scout__files_hand *hand, struct scout__l2_op *op)
{
	read_and_judge(hand, op, NULL);
	if (op->result == SCOUT__L2_ABSENT || op->result == SCOUT__L2_CORRUPT)
		end(op, SCOUT__L2_OK, 0);
}

/* ---- storing ---- */

static int
write_file(struct scout__files_hand *hand, const struct scout__l2_op *op, const char *tmp)
{
	const struct scout__files *files = hand->files;
	uint64_t bytes = scout__files_disk_bytes(files, op->bytes), missing = missing_room(hand, bytes);
	int room = missing ? free_disk(hand, missing) : 0;

	/* Other threads, and other programs, may take what was freed. */
	for (unsigned tries = 0; room != SCOUT__FILES_IN_VAIN; tries++) {
		int rc = scout__files_write(hand, tmp, op->key, op->data, op->bytes);

		if ((rc != ENOSPC && rc != EDQUOT) || tries == WRITE_TRIES)
			return rc;
		(void)unlinkat(files->root.fd, tmp, 0);
		room = free_disk(hand, bytes);
		if (room == ENOSPC)
			return rc;
	}
	return SCOUT__FILES_IN_VAIN;
}

/* EEXIST: a good object is there. */
static int
place_file(struct scout__files *files, const struct scout__l2_op *op, const char *tmp, const char *path)
{
	struct stat st;
	int rc = scout__files_place(files, tmp, path);
	int found;

	if (rc != EEXIST)
		return rc;
	found = scout__files_look(files, path, op->key, op->bytes, &st);
	if (found == 0)
		return EEXIST;
	if (found == SCOUT__FILES_DAMAGED)
		found = scout__files_remove_same(files, path, &st);
	if (found && found != ENOENT)
		return found;
	rc = scout__files_place(files, tmp, path);
	return rc == EEXIST ? EBUSY : rc;
}

/* After a restart the order is that of the files' times: @tmp was used just before @before was. */
static void
stamp_behind(const struct scout__files *files, const char *tmp, struct scout__l2_digest before)
{
	char path[SCOUT__FILES_PATH];
	struct timespec times[2];
	struct stat st;

	scout__files_object_path(before, path);
	if (fstatat(files->root.fd, path, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return;
	times[0] = st.st_atim.tv_sec > st.st_mtim.tv_sec ? st.st_atim : st.st_mtim;
	times[0].tv_sec -= times[0].tv_nsec == 0;
	times[0].tv_nsec = times[0].tv_nsec == 0 ? 999999999 : times[0].tv_nsec - 1;
	times[1] = times[0];
	(void)utimensat(files->root.fd, tmp, times, AT_SYMLINK_NOFOLLOW);
}

/* Store with the name claimed and the bytes counted. */
static void
store_claimed(struct scout__files_hand *hand, struct scout__l2_op *op, uint32_t entry, const char *path)
{
	struct scout__files *files = hand->files;
	char tmp[SCOUT__FILES_PATH];
	int rc;

	scout__files_temporary_path(files, tmp);
	rc = write_file(hand, op, tmp);
	if (rc == 0 && (op->after.lo | op->after.hi))
		stamp_behind(files, tmp, op->after);
	if (rc == 0)
		rc = place_file(files, op, tmp, path);
	if (rc && unlinkat(files->root.fd, tmp, 0) != 0 && errno != ENOENT)
		scout__log_limited(files->log, &hand->limit, scout__now_us(), LOG_INTERVAL_US, SCOUT_LOG_WARN,
				   "files tier %s: %s cannot be removed (%s)", files->path, tmp,
				   scout__errno_text(errno));
	if (rc == ENOENT)
		scout__files_doubt(files);
	if (rc && rc != EEXIST) {
		scout__cat_drop(&files->cat, entry);
		if (rc == SCOUT__FILES_IN_VAIN)
			end(op, SCOUT__L2_FULL, 0);
		else
			end_failed(op, path, rc);
		return;
	}
	end(op, rc == EEXIST ? SCOUT__L2_PRESENT : SCOUT__L2_OK, 0);
	if (scout__files_evicts(files) && scout__cat_publish(&files->cat, entry))
		return;
	/* With others on the file system, that knows better. */
	if (scout__files_evicts(files) && unlinkat(files->root.fd, path, 0) == 0)
		end(op, SCOUT__L2_FULL, 0);
	scout__cat_drop(&files->cat, entry);
}

/*
 * If others write too, the catalogue proves nothing: look, and forget what others have removed. Returns whether there
 * is a good object.
 */
static bool
find_shared(struct scout__files *files, const struct scout__l2_op *op, const char *path)
{
	struct scout__cat_ref ref;
	struct stat st;
	bool is_stale;
	int rc = scout__files_look(files, path, op->key, op->bytes, &st);

	if (rc == 0)
		return true;
	if (scout__cat_use(&files->cat, op->key->digest, scout__now_us(), &ref, &is_stale) &&
	    scout__cat_claim_ref(&files->cat, ref))
		scout__cat_drop(&files->cat, ref.entry);
	return false;
}

static void
store(struct scout__files_hand *hand, struct scout__l2_op *op)
{
	struct scout__files *files = hand->files;
	char path[SCOUT__FILES_PATH];
	uint32_t entry = SCOUT__CAT_NONE;
	int32_t detail = 0;

	scout__files_object_path(op->key->digest, path);
	if (files->shared && find_shared(files, op, path)) {
		end(op, SCOUT__L2_PRESENT, 0);
		return;
	}
	/* This waits for another store of the same name, which is then late itself. */
	switch (scout__cat_try_claim(&files->cat, op->key->digest, scout__now_us() + files->timeout_us, &entry)) {
	case SCOUT__CAT_CLAIMED:
		break;
	case SCOUT__CAT_PRESENT:
		end(op, SCOUT__L2_PRESENT, 0);
		return;
	case SCOUT__CAT_TIMEOUT:
		end(op, SCOUT__L2_TIMEOUT, 0);
		return;
	case SCOUT__CAT_STOPPED:
		end(op, SCOUT__L2_CANCELLED, 0);
		return;
	case SCOUT__CAT_NOMEM:
		end(op, SCOUT__L2_ERROR, ENOMEM);
		return;
	}
	hand->entry = entry;
	if (!scout__cat_reserve(&files->cat, entry, scout__files_disk_bytes(files, op->bytes)) ||
	    !scout__files_make_room(files, hand, &detail)) {
		scout__cat_drop(&files->cat, entry);
		if (detail)
			end_failed(op, path, detail);
		else
			end(op, SCOUT__L2_FULL, 0);
		return;
	}
	store_claimed(hand, op, entry, path);
}

static void
record(struct scout__files_hand *hand, struct scout__l2_op *op)
{
	int rc = op->what == SCOUT__L2_RECORD_READ ? scout__files_record_read(hand->files, op)
						   : scout__files_record_write(hand->files, op);

	if (rc)
		end_failed(op, "a record", rc);
	else
		end(op, SCOUT__L2_OK, 0);
}

void
scout__files_do(struct scout__files_hand *hand, struct scout__l2_op *op)
{
	if (op->what == SCOUT__L2_LOAD)
		load(hand, op);
	else if (op->what == SCOUT__L2_STORE)
		store(hand, op);
	else if (op->what == SCOUT__L2_RECORD_READ || op->what == SCOUT__L2_RECORD_WRITE)
		record(hand, op);
	else
		remove_damaged(hand, op);
}
