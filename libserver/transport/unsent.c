/* SPDX-License-Identifier: Apache-2.0 */
#include "unsent.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "ring.h"
#include "server_core.h"
#include "transport.h"

/*
 * DESIGN
 *
 * Replies that were given to libzmq and are not yet with the kernel, in bytes: for each connection, and for all. A
 * connection that does not read is ended when its replies become too many.
 *
 * ZeroMQ's high-water mark counts messages, and a reply may have 16 MiB. libzmq does not tell how full its queues are,
 * but it frees each message when its I/O thread has passed the bytes on, or when the connection ends; so every reply is
 * a buffer with a free function, and that function counts down. What is not counted: the kernel's socket buffers, and
 * the last 8 KiB or the one large message that the I/O thread is sending.
 *
 * Bounds. A peer has PEER_MAX, as with its channel, and all peers share UNSENT_ALL with the backlogs of all channels. A
 * connection that has not said HELLO has UNKNOWN_MAX, and all such connections share UNKNOWN_ALL, so that unknown
 * senders take nothing from peers. One connection may not take more than what is left of the sum: connections that
 * never read share it evenly, and leave as much for one more, however many they are.
 *
 * The end of a connection: libzmq 4.3 cannot end one, so the descriptor that its frames came from is shut down, and the
 * I/O thread closes it as if the peer had. The inode number of the socket tells whether the descriptor was closed and
 * used again since.
 *
 * A connection without HELLO has no structure of its own. Its account is in a table by identity, for as long as
 * something is unsent: there are no more accounts than connections.
 *
 * Threads: loop, but for free_parcel(), which libzmq calls on any thread of its own. This function touches the two
 * accounts of a message, which live until their last message is freed.
 */

#define PEER_MAX SCOUT__UNSENT_MAX
#define UNKNOWN_MAX ((size_t)SCOUT_MAX_UNREAD_STRANGER)
#define UNKNOWN_ALL (16 * UNKNOWN_MAX)
#define OVERHEAD 256u   /* bytes of a message itself, in libzmq and in the heap */
#define SWEEP_STEP 256u /* accounts of unknown senders that one call looks at */

/* Unsent bytes of a connection, or of all of a kind. */
struct scout__unsent {
	_Atomic uint32_t refs;     /* its owner, its messages, and the accounts of which this is the sum */
	_Atomic size_t bytes;      /* atomic: up by the loop, down by libzmq's threads */
	struct scout__unsent *all; /* the sum of its kind; NULL: this is a sum */
};

/* A message on its way. */
struct parcel {
	struct scout__unsent *account;
	size_t charge;
	uint8_t bytes[]; /* unless the buffer is one that was handed over */
};

struct scout__unknown_sender {
	uint64_t key;
	struct scout__unsent *account; /* NULL: the place is free */
	bool is_dropped;
};

static struct scout__unsent *
account_new(struct scout__unsent *all)
{
	struct scout__unsent *account = malloc(sizeof(*account));

	if (!account)
		return NULL;
	atomic_init(&account->refs, 1);
	atomic_init(&account->bytes, 0);
	account->all = all;
	if (all)
		(void)atomic_fetch_add_explicit(&all->refs, 1, memory_order_relaxed);
	return account;
}

static void
account_unref(struct scout__unsent *account)
{
	while (account && atomic_fetch_sub_explicit(&account->refs, 1, memory_order_acq_rel) == 1) {
		struct scout__unsent *all = account->all;

		free(account);
		account = all;
	}
}

static void
charge(struct scout__unsent *account, size_t bytes)
{
	(void)atomic_fetch_add_explicit(&account->refs, 1, memory_order_relaxed);
	(void)atomic_fetch_add_explicit(&account->bytes, bytes, memory_order_relaxed);
	(void)atomic_fetch_add_explicit(&account->all->bytes, bytes, memory_order_relaxed);
}

/* zmq_free_fn: on a thread of libzmq, or on the one that closes the message. */
static void
free_parcel(void *data, void *hint)
{
	struct parcel *parcel = hint;
	struct scout__unsent *account = parcel->account;

	(void)atomic_fetch_sub_explicit(&account->bytes, parcel->charge, memory_order_relaxed);
	(void)atomic_fetch_sub_explicit(&account->all->bytes, parcel->charge, memory_order_relaxed);
	account_unref(account);
	if (data != parcel->bytes)
		free(data);
	free(parcel);
}

static size_t
bytes_of(const struct scout__unsent *account)
{
	return atomic_load_explicit(&account->bytes, memory_order_relaxed);
}

int
scout__unsent_init(struct scout_server *s)
{
	s->transport->unsent.n_places = s->transport->conns_limit;
	s->transport->unsent.unknown = calloc(s->transport->unsent.n_places, sizeof(struct scout__unknown_sender));
	s->transport->unsent.peers_all = account_new(NULL);
	s->transport->unsent.unknown_all = account_new(NULL);
	if (!s->transport->unsent.unknown || !s->transport->unsent.peers_all || !s->transport->unsent.unknown_all ||
	    scout__map_init(&s->transport->unsent.by_key, s->transport->unsent.n_places) != 0)
		return SCOUT_ERR_NOMEM;
	return 0;
}

void
scout__unsent_fini(struct scout_server *s)
{
	for (uint32_t i = 0; s->transport->unsent.unknown && i < s->transport->unsent.n_places; i++)
		account_unref(s->transport->unsent.unknown[i].account);
	free(s->transport->unsent.unknown);
	scout__map_fini(&s->transport->unsent.by_key);
	account_unref(s->transport->unsent.peers_all);
	account_unref(s->transport->unsent.unknown_all);
	memset(&s->transport->unsent, 0, sizeof(s->transport->unsent));
}

size_t
scout__unsent_of(const struct scout__dest *dest)
{
	return dest->unsent ? bytes_of(dest->unsent) : 0;
}

size_t
scout__unsent_bytes(const struct scout_server *s)
{
	return bytes_of(s->transport->unsent.peers_all) + bytes_of(s->transport->unsent.unknown_all);
}

size_t
scout__unsent_left(const struct scout_server *s)
{
	size_t used = s->transport->shm_backlog + bytes_of(s->transport->unsent.peers_all);

	return used < SCOUT__UNSENT_ALL ? SCOUT__UNSENT_ALL - used : 0;
}

void
scout__unsent_forget(struct scout__dest *dest)
{
	account_unref(dest->unsent);
	dest->unsent = NULL;
	dest->is_dropped = false;
	dest->fd = -1;
}

/* ---- connections without HELLO ---- */

/* Free the places of senders that have nothing unsent. */
SCOUT_ON_LOOP static void
sweep(struct scout_server *s)
{
	struct scout__unsent_table *t = &s->transport->unsent;

	for (uint32_t i = 0; i < SWEEP_STEP && i < t->n_places; i++) {
		struct scout__unknown_sender *place = &t->unknown[t->hand];

		if (place->account && bytes_of(place->account) == 0) {
			(void)scout__map_del(&t->by_key, place->key);
			account_unref(place->account);
			place->account = NULL;
			t->free_place = t->hand;
			t->n_unknown--;
		}
		t->hand = (t->hand + 1) % t->n_places;
	}
}

/* A place that is free; n_places: there is none. */
SCOUT_ON_LOOP static uint32_t
find_place(struct scout_server *s)
{
	struct scout__unsent_table *t = &s->transport->unsent;

	if (t->n_unknown == t->n_places)
		sweep(s);
	if (t->n_unknown == t->n_places)
		return t->n_places;
	while (t->unknown[t->free_place].account)
		t->free_place = (t->free_place + 1) % t->n_places;
	return t->free_place;
}

/* The account of the sender of the frame in hand; NULL: no memory. */
SCOUT_ON_LOOP static struct scout__unknown_sender *
unknown_sender_of(struct scout_server *s)
{
	struct scout__unsent_table *t = &s->transport->unsent;
	uint64_t key = scout__identity_key(s, s->transport->unknown_sender.identity,
					   s->transport->unknown_sender.identity_len);
	uint32_t at = scout__map_get(&t->by_key, key);
	struct scout__unknown_sender *place;

	if (at != SCOUT__MAP_NONE)
		return &t->unknown[at];
	at = find_place(s);
	if (at == t->n_places || !scout__map_put(&t->by_key, key, at))
		return NULL;
	place = &t->unknown[at];
	*place = (struct scout__unknown_sender){.key = key, .account = account_new(t->unknown_all)};
	if (!place->account) {
		(void)scout__map_del(&t->by_key, key);
		return NULL;
	}
	t->n_unknown++;
	return place;
}

void
scout__unsent_tick(struct scout_server *s)
{
	if (s->transport->unsent.n_unknown)
		sweep(s);
}

/* ---- sending ---- */

void
scout__unsent_note_fd(struct scout__dest *dest, int fd)
{
	struct stat st;

	dest->fd = fd >= 0 && fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) ? fd : -1;
	dest->fd_inode = dest->fd >= 0 ? (uint64_t)st.st_ino : 0;
}

/* The connection does not read: end it. */
SCOUT_ON_LOOP static void
drop(struct scout_server *s, struct scout__dest *dest, size_t unsent)
{
	char who[SCOUT__WHO_BYTES];
	struct stat st;

	s->count.peers_dropped++;
	s->transport->hooks->who(s, dest, who);
	scout__log_limited(&s->log, &s->limit_undo, s->now_us, SCOUT__LOG_INTERVAL_US, SCOUT_LOG_WARN,
			   "%s does not read its replies, %zu bytes wait: its connection ends", who, unsent);
	/* A descriptor that names another socket by now belongs to another connection. */
	if (dest->fd >= 0 && fstat(dest->fd, &st) == 0 && (uint64_t)st.st_ino == dest->fd_inode)
		(void)shutdown(dest->fd, SHUT_RDWR);
	dest->fd = -1;
}

SCOUT_ON_LOOP static bool
fits(const struct scout_server *s, const struct scout__unsent *account, size_t len)
{
	bool is_unknown = account->all == s->transport->unsent.unknown_all;
	size_t all = bytes_of(account->all), mine = bytes_of(account);
	size_t left = UNKNOWN_ALL > all ? UNKNOWN_ALL - all : 0;
	size_t max = UNKNOWN_MAX;

	if (!is_unknown) {
		left = scout__unsent_left(s);
		max = PEER_MAX;
	}
	return mine + len <= (left < max ? left : max);
}

/* Make a message that counts for @account. Takes @owned unless it is NULL. False: no memory. */
SCOUT_ON_LOOP static bool
wrap(struct scout__unsent *account, const uint8_t *buf, uint8_t *owned, size_t len, zmq_msg_t *ret_msg)
{
	struct parcel *parcel = malloc(sizeof(*parcel) + (owned ? 0 : len));

	if (!parcel) {
		free(owned);
		return false;
	}
	if (owned) { /* the buffer grew by doubling: count what it takes */
		uint8_t *shrunk = realloc(owned, len);

		owned = shrunk ? shrunk : owned;
	}
	parcel->account = account;
	parcel->charge = len + OVERHEAD;
	if (!owned)
		memcpy(parcel->bytes, buf, len);
	charge(account, parcel->charge);
	SCOUT__TSAN_RELEASE(owned ? owned : parcel->bytes); /* a client in this process reads it where it lies */
	if (zmq_msg_init_data(ret_msg, owned ? owned : parcel->bytes, len, free_parcel, parcel) == 0)
		return true;
	free_parcel(owned ? owned : parcel->bytes, parcel);
	return false;
}

int
scout__unsent_send(struct scout_server *s, struct scout__dest *dest, const uint8_t *buf, uint8_t *owned, size_t len)
{
	struct scout__unknown_sender *unknown = dest == &s->transport->unknown_sender ? unknown_sender_of(s) : NULL;
	bool *is_dropped = unknown ? &unknown->is_dropped : &dest->is_dropped;
	struct scout__unsent *account;
	zmq_msg_t msg;
	int error;

	if (dest != &s->transport->unknown_sender && !dest->unsent)
		dest->unsent = account_new(s->transport->unsent.peers_all);
	account = unknown ? unknown->account : dest->unsent;
	if (!account || *is_dropped) {
		free(owned);
		return account ? EHOSTUNREACH : ENOMEM;
	}
	if (!fits(s, account, len + OVERHEAD)) {
		free(owned);
		*is_dropped = true;
		drop(s, dest, bytes_of(account) + len);
		return EAGAIN;
	}
	if (!wrap(account, buf, owned, len, &msg))
		return ENOMEM;
	s->transport->look = true;
	if (zmq_send(s->transport->router, dest->identity, dest->identity_len, ZMQ_SNDMORE | ZMQ_DONTWAIT) >= 0 &&
	    zmq_msg_send(&msg, s->transport->router, ZMQ_DONTWAIT) >= 0)
		return 0;
	error = errno;
	(void)zmq_msg_close(&msg); /* cannot fail for an initialised message */
	if (error == EAGAIN) {
		*is_dropped = true;
		drop(s, dest, bytes_of(account));
	}
	return error;
}
