/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * A record is 8 bytes of header (u32 length of the frame, u32 0), the frame, and padding to a multiple of 8. So positions are multiples
 * of 8, and a header never wraps around. A record may be longer than the ring: it is written as room comes and read as
 * bytes come.
 *
 * A side that is awake is not rung. Each side parks on a word in the ring (reader_sleeps, writer_waits) and looks again; a side that has
 * moved its end rings the other side if that is parked: see doorbell.h. A burst rings once.
 *
 * The memory is a memfd sealed against shrinking: a peer that truncates it cannot make the other side fault.
 *
 * A descriptor that was passed on names the same open file on both sides, so they share the flag O_NONBLOCK: a peer may clear it. So the
 * server, which must not wait for a peer, only listens to its bell, an eventfd, by epoll; and it rings the peer through a socket, where
 * each call says that it does not wait. Rejected: an eventfd in that direction, too (a peer that fills it up would stop the server in
 * write()); a pipe (a reader into memory that never comes keeps the pipe's lock); a socket for both (0.9 us for a question and its
 * answer; now it is half of that).
 *
 * Threads: one for each side, the courier and the server's loop.
 */
#include "channel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvscout/error.h>

#include "doorbell.h"

#define HEADER_BYTES 8u
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define LINE 64

/* Each word is in a cache line of its own: different sides write them. */
struct scout__channel_words {
	_Alignas(LINE) atomic_uint_fast64_t tail; /* writer: bytes written */
	_Alignas(LINE) atomic_uint_fast64_t head; /* reader: bytes read */
	_Alignas(LINE) atomic_uint reader_sleeps; /* reader: ring when bytes come */
	_Alignas(LINE) atomic_uint writer_waits;  /* writer: ring when room comes */
};
_Static_assert(offsetof(struct scout__channel_words, tail) == SCOUT_CHANNEL_TAIL, "layout");
_Static_assert(offsetof(struct scout__channel_words, head) == SCOUT_CHANNEL_HEAD, "layout");
_Static_assert(offsetof(struct scout__channel_words, reader_sleeps) == SCOUT_CHANNEL_READER_SLEEPS, "layout");
_Static_assert(offsetof(struct scout__channel_words, writer_waits) == SCOUT_CHANNEL_WRITER_WAITS, "layout");
_Static_assert(sizeof(atomic_uint_fast64_t) == 8 && sizeof(atomic_uint) == 4, "layout");

/* ---- life ---- */

static size_t
bytes_of(uint32_t request_bytes, uint32_t reply_bytes)
{
	return SCOUT_CHANNEL_DATA + (size_t)request_bytes + reply_bytes;
}

static struct scout__channel_flow
flow_at(uint8_t *map, size_t words, size_t data, uint32_t size)
{
	return (struct scout__channel_flow){
		.words = (struct scout__channel_words *)(void *)(map + words), .data = map + data, .size = size};
}

/* False: errno says why. */
static bool
map_memory(struct scout__channel *ch, int fd, uint32_t request_bytes, uint32_t reply_bytes, bool is_server)
{
	struct scout__channel_flow requests, replies;
	uint8_t *map;

	ch->map_bytes = bytes_of(request_bytes, reply_bytes);
	map = mmap(NULL, ch->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return false;
	(void)madvise(map, ch->map_bytes, MADV_DONTFORK); /* a forked child does not need it */
	ch->map = map;
	ch->is_server = is_server;
	requests = flow_at(map, SCOUT_CHANNEL_REQUESTS, SCOUT_CHANNEL_DATA, request_bytes);
	replies = flow_at(map, SCOUT_CHANNEL_REPLIES, SCOUT_CHANNEL_DATA + (size_t)request_bytes, reply_bytes);
	ch->in = is_server ? requests : replies;
	ch->out = is_server ? replies : requests;
	return true;
}

static void
channel_init(struct scout__channel *ch)
{
	*ch = (struct scout__channel){.bell_fd = -1, .other_bell_fd = -1};
	ch->last = &ch->first;
}

void
scout__channel_close(struct scout__channel *ch)
{
	if (!ch->map)
		return;
	(void)munmap(ch->map, ch->map_bytes);
	(void)close(ch->bell_fd);
	(void)close(ch->other_bell_fd);
	while (ch->first) {
		struct scout__channel_backlog *one = ch->first;

		ch->first = one->next;
		free(one);
	}
	channel_init(ch);
}

static int
new_memory(size_t bytes)
{
	int fd = memfd_create("kvscout-channel", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
		return fd;
	(void)close(fd);
	return -1;
}

static void
close_if_open(int fd)
{
	if (fd >= 0)
		(void)close(fd);
}

int
scout__channel_create(struct scout__channel *ch, uint32_t request_bytes, uint32_t reply_bytes,
		      int fds[SCOUT__CHANNEL_FDS])
{
	int pair[2] = {-1, -1};
	int error;

	channel_init(ch);
	fds[SCOUT__CHANNEL_SERVER_BELL] = -1;
	fds[SCOUT__CHANNEL_MEMORY] = new_memory(bytes_of(request_bytes, reply_bytes));
	if (fds[SCOUT__CHANNEL_MEMORY] >= 0 &&
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0)
		fds[SCOUT__CHANNEL_SERVER_BELL] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (fds[SCOUT__CHANNEL_SERVER_BELL] >= 0 &&
	    map_memory(ch, fds[SCOUT__CHANNEL_MEMORY], request_bytes, reply_bytes, true)) {
		ch->bell_fd = fds[SCOUT__CHANNEL_SERVER_BELL];
		ch->other_bell_fd = pair[0];
		fds[SCOUT__CHANNEL_PEER_BELL] = pair[1];
		return 0;
	}
	error = errno;
	close_if_open(fds[SCOUT__CHANNEL_MEMORY]);
	close_if_open(fds[SCOUT__CHANNEL_SERVER_BELL]);
	close_if_open(pair[0]);
	close_if_open(pair[1]);
	errno = error;
	return SCOUT_ERR_SYSTEM;
}

/* Check that the memory has the agreed size and cannot shrink under us. */
static bool
is_memory(int fd, size_t bytes)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(fd, &st) == 0 && st.st_size == (off_t)bytes;
}

/* Check that the bells do not make us wait. This finds a mistaken server, not a hostile one: peers trust the server with their KV anyway. */
static bool
are_bells(int server_bell, int peer_bell)
{
	int flags = fcntl(server_bell, F_GETFL);
	struct stat st;

	return flags >= 0 && (flags & O_NONBLOCK) && fstat(peer_bell, &st) == 0 && S_ISSOCK(st.st_mode);
}

int
scout__channel_attach(struct scout__channel *ch, const int fds[SCOUT__CHANNEL_FDS], uint32_t request_bytes,
		      uint32_t reply_bytes)
{
	bool fits = request_bytes >= SCOUT_CHANNEL_MIN_BYTES && request_bytes % HEADER_BYTES == 0 &&
		    reply_bytes >= SCOUT_CHANNEL_MIN_BYTES && reply_bytes % HEADER_BYTES == 0;
	int rc = SCOUT_ERR_PROTOCOL;

	channel_init(ch);
	if (fits && is_memory(fds[SCOUT__CHANNEL_MEMORY], bytes_of(request_bytes, reply_bytes)) &&
	    are_bells(fds[SCOUT__CHANNEL_SERVER_BELL], fds[SCOUT__CHANNEL_PEER_BELL]))
		rc = map_memory(ch, fds[SCOUT__CHANNEL_MEMORY], request_bytes, reply_bytes, false) ? 0
												   : SCOUT_ERR_SYSTEM;
	(void)close(fds[SCOUT__CHANNEL_MEMORY]);
	if (rc != 0) {
		(void)close(fds[SCOUT__CHANNEL_SERVER_BELL]);
		(void)close(fds[SCOUT__CHANNEL_PEER_BELL]);
		return rc;
	}
	ch->bell_fd = fds[SCOUT__CHANNEL_PEER_BELL];
	ch->other_bell_fd = fds[SCOUT__CHANNEL_SERVER_BELL];
	return 0;
}

/* ---- both directions ---- */

/* Ring if the other side has said that it sleeps. Called after we have moved our end. */
static void
ring_if(const struct scout__channel *ch, atomic_uint *asked)
{
	uint64_t one = 1;

	if (!scout__unpark(asked))
		return;
	/* Either call fails with EAGAIN if the bell is full, and then it is readable anyway; or fails because the other side has closed it. */
	if (ch->is_server)
		(void)send(ch->other_bell_fd, &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	else
		(void)!write(ch->other_bell_fd, &one, sizeof(one));
}

/* How many bytes lie between the other side's end and ours; if more than possible, the other side broke the rules. */
static uint64_t
checked(struct scout__channel *ch, const struct scout__channel_flow *flow, uint64_t bytes)
{
	if (bytes > flow->size || bytes % HEADER_BYTES)
		ch->broken = true;
	return ch->broken ? 0 : bytes;
}

static uint64_t
padded(uint64_t len)
{
	return (len + HEADER_BYTES - 1) / HEADER_BYTES * HEADER_BYTES;
}

/* ---- reading ---- */

static uint64_t
readable(struct scout__channel *ch)
{
	uint64_t tail = atomic_load_explicit(&ch->in.words->tail, memory_order_acquire);

	return checked(ch, &ch->in, tail - ch->in.at);
}

uint64_t
scout__channel_progress(const struct scout__channel *ch)
{
	if (!ch->map)
		return 0;
	return atomic_load_explicit(&ch->out.words->head, memory_order_relaxed) +
	       atomic_load_explicit(&ch->in.words->tail, memory_order_relaxed);
}

bool
scout__channel_has_bytes(const struct scout__channel *ch)
{
	return atomic_load_explicit(&ch->in.words->tail, memory_order_acquire) != ch->in.at;
}

uint32_t
scout__channel_begin(struct scout__channel *ch)
{
	uint64_t len; /* little-endian, so with the reserved half, which is 0 */

	if (ch->left)
		return ch->frame_len;
	if (readable(ch) < HEADER_BYTES)
		return 0;
	memcpy(&len, ch->in.data + ch->in.at % ch->in.size, sizeof(len));
	if (len == 0 || len > SCOUT_MAX_FRAME) {
		ch->broken = true;
		return 0;
	}
	ch->in.at += HEADER_BYTES;
	ch->frame_len = (uint32_t)len;
	ch->left = padded(len);
	return ch->frame_len;
}

static void
copy_out(const struct scout__channel_flow *flow, uint8_t *to, size_t len)
{
	uint64_t at = flow->at % flow->size;
	size_t to_end = flow->size - at < len ? (size_t)(flow->size - at) : len;

	memcpy(to, flow->data + at, to_end);
	memcpy(to + to_end, flow->data, len - to_end);
}

bool
scout__channel_fill(struct scout__channel *ch, uint8_t *frame)
{
	uint64_t done = padded(ch->frame_len) - ch->left, take = readable(ch);

	if (take > ch->left)
		take = ch->left;
	/* The last step skips the padding, too. */
	copy_out(&ch->in, frame + done, take < ch->left ? take : ch->frame_len - done);
	ch->in.at += take;
	ch->left -= take;
	atomic_store_explicit(&ch->in.words->head, ch->in.at, memory_order_release);
	ring_if(ch, &ch->in.words->writer_waits);
	return ch->left == 0;
}

bool
scout__channel_sleep(struct scout__channel *ch)
{
	scout__park(&ch->in.words->reader_sleeps);
	if (ch->broken || !scout__channel_has_bytes(ch))
		return true;
	scout__channel_wake(ch);
	return false;
}

void
scout__channel_wake(struct scout__channel *ch)
{
	scout__awake(&ch->in.words->reader_sleeps);
}

bool
scout__channel_hear(struct scout__channel *ch)
{
	uint8_t rings[64];

	return recv(ch->bell_fd, rings, sizeof(rings), MSG_DONTWAIT) != 0;
}

/* ---- writing ---- */

static uint64_t
room(struct scout__channel *ch)
{
	uint64_t head = atomic_load_explicit(&ch->out.words->head, memory_order_acquire);

	return ch->out.size - checked(ch, &ch->out, ch->out.at - head);
}

static void
copy_in(struct scout__channel_flow *flow, const uint8_t *from, size_t len)
{
	uint64_t at = flow->at % flow->size;
	size_t to_end = flow->size - at < len ? (size_t)(flow->size - at) : len;

	memcpy(flow->data + at, from, to_end);
	memcpy(flow->data, from + to_end, len - to_end);
}

/* Write on from @done bytes of the record of this frame. Returns how many bytes of it are written then. */
static size_t
write_some(struct scout__channel *ch, const uint8_t *frame, size_t len, size_t done)
{
	const uint64_t header = len; /* little-endian: the upper half is reserved */
	uint64_t left = room(ch), n;

	if (ch->broken || left == 0)
		return done;
	if (done == 0) {
		copy_in(&ch->out, (const uint8_t *)&header, HEADER_BYTES);
		ch->out.at += HEADER_BYTES;
		left -= HEADER_BYTES;
		done = HEADER_BYTES;
	}
	n = padded(len) + HEADER_BYTES - done;
	n = n < left ? n : left;
	copy_in(&ch->out, frame + (done - HEADER_BYTES), n < len + HEADER_BYTES - done ? n : len + HEADER_BYTES - done);
	ch->out.at += n;
	atomic_store_explicit(&ch->out.words->tail, ch->out.at, memory_order_release);
	ring_if(ch, &ch->out.words->reader_sleeps);
	return done + (size_t)n;
}

static bool
is_whole(size_t len, size_t done)
{
	return done == HEADER_BYTES + padded(len);
}

/* Ask to be rung when there is room. False: there is room now. */
static bool
wait_for_room(struct scout__channel *ch)
{
	scout__park(&ch->out.words->writer_waits);
	if (ch->broken || room(ch) == 0)
		return true;
	scout__awake(&ch->out.words->writer_waits);
	return false;
}

void
scout__channel_push(struct scout__channel *ch)
{
	while (ch->first && !ch->broken) {
		struct scout__channel_backlog *one = ch->first;

		one->done = write_some(ch, one->bytes, one->len, one->done);
		if (is_whole(one->len, one->done)) {
			ch->first = one->next;
			if (!ch->first)
				ch->last = &ch->first;
			ch->backlog_bytes -= one->len;
			free(one);
		} else if (wait_for_room(ch)) {
			return;
		}
	}
}

int
scout__channel_send(struct scout__channel *ch, const uint8_t *frame, size_t len)
{
	struct scout__channel_backlog *one;
	size_t done = 0;

	if (!ch->first && room(ch) >= HEADER_BYTES + padded(len))
		done = write_some(ch, frame, len, 0);
	/* The reader's end went back meanwhile: the rest of the frame would be missing. */
	if (done && !is_whole(len, done))
		ch->broken = true;
	if (ch->broken)
		return EPIPE;
	if (done)
		return 0;
	one = malloc(sizeof(*one) + len);
	if (!one)
		return ENOMEM;
	*one = (struct scout__channel_backlog){.len = len};
	memcpy(one->bytes, frame, len);
	*ch->last = one;
	ch->last = &one->next;
	ch->backlog_bytes += len;
	scout__channel_push(ch);
	return ch->broken ? EPIPE : 0;
}
