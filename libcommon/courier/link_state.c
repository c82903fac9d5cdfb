/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * The state of a link: questions about it, and how it comes up and is lost; courier thread only. Everything that ends a connection
 * ends in scout__link_lost(): it closes the socket, ends operations in flight, tells the user, and sets the time of the next try.
 */
#include "link.h"

#include <string.h>
#include <sys/random.h>

#include "clock.h"

#define PAUSE_MAX_MS 500u
#define REFUSED_PAUSE_MS 1000u

/* ---- accessors ---- */

uint32_t
scout__link_index(const struct scout__link *link)
{
	return link->index;
}

bool
scout__link_is_up(const struct scout__link *link)
{
	return link->state == SCOUT__LINK_UP;
}

bool
scout__link_is_unreachable(const struct scout__link *link)
{
	return link->state != SCOUT__LINK_UP && link->told_down;
}

int
scout__link_error(const struct scout__link *link)
{
	return scout__link_is_unreachable(link) ? link->error : 0;
}

const char *
scout__link_endpoint(const struct scout__link *link)
{
	return link->endpoint;
}

uint64_t
scout__link_epoch(const struct scout__link *link)
{
	return link->epoch;
}

bool
scout__link_has_lease(const struct scout__link *link)
{
	return link->lease_bound;
}

void
scout__link_set_weights(struct scout__link *link, uint64_t weights)
{
	link->hello.weights = weights;
}

void
scout__link_note_clear(struct scout__link *link, const struct scout__clear_state *clear)
{
	struct scout__clear_state *known = &link->hello.clear;

	if (link->hello.role == SCOUT_ROLE_WORKER && clear->joined > known->joined)
		known->joined = clear->joined;
	if (clear->cleared < known->cleared)
		return;
	known->cleared = clear->cleared;
	known->generation = clear->generation;
}

bool
scout__link_lost_stamps(struct scout__link *link)
{
	bool lost = link->lost_stamps;

	link->lost_stamps = false;
	return lost;
}

bool
scout__link_is_before_clear(const struct scout__link *link, uint64_t generation)
{
	const struct scout__clear_state *known = &link->hello.clear;

	return known->generation == generation && known->joined < known->cleared;
}

bool
scout__draw_generation(uint64_t *ret_generation)
{
	uint64_t generation;

	do {
		if (getrandom(&generation, sizeof(generation), GRND_NONBLOCK) != (ssize_t)sizeof(generation))
			return false;
		generation = scout__generation_of(generation);
	} while (generation == 0 || generation == SCOUT_GENERATION_ANY);
	*ret_generation = generation;
	return true;
}

void
scout__link_try_now(struct scout__link *link)
{
	if (link->state == SCOUT__LINK_IDLE)
		link->next_try_us = 0;
}

/* ---- changes of state ---- */

/* Mark the link as down, end what is in flight, tell the user: in this order, see courier.h. */
void
scout__link_tell_down(struct scout__link *link, int error, const char *text)
{
	const struct scout__link_env *env = link->env;
	bool news = !link->told_down || link->error != error;

	if (news) {
		scout__log(env->log, SCOUT_LOG_WARN, "%s: %s (%s)", link->endpoint, text, scout_err_name(error));
		link->error = error;
		link->told_down = true;
		if (env->ops->link_going)
			env->ops->link_going(env->user, link, error, text);
	}
	scout__link_ops_end(link, error);
	if (news)
		env->ops->link_down(env->user, link, error, text);
}

void
scout__link_lost(struct scout__link *link, int error, const char *text)
{
	bool was_up = link->state == SCOUT__LINK_UP;
	uint64_t now_us = scout__now_us();

	scout__link_close(link, 0);
	link->state = SCOUT__LINK_IDLE;
	link->state_since_us = now_us;
	link->next_try_us = now_us + (uint64_t)link->pause_ms * 1000;
	link->pause_ms = link->pause_ms * 2 < PAUSE_MAX_MS ? link->pause_ms * 2 : PAUSE_MAX_MS;
	link->ping_sent_us = 0;
	link->must_reset = false;
	link->reset_error = 0;
	link->reset_text[0] = '\0';
	if (link->ever_up)
		scout__link_tell_down(link, error, text);
	else
		scout__link_ops_end(link, error); /* before a first connection, the connect timeout tells the user */
	/* Last: once a caller reads that the server is down, no other field may say that it is up. */
	if (was_up)
		atomic_fetch_sub_explicit(&link->env->stats->servers_up, 1, memory_order_release);
}

void
scout__link_reset(struct scout__link *link, int error, const char *why)
{
	if (link->state != SCOUT__LINK_IDLE)
		scout__link_lost(link, error, why);
}

/* A refusal, of HELLO for example: tell the user at once, and try again slowly (the server's configuration may change). */
void
scout__link_refused(struct scout__link *link, int error, const char *text)
{
	/* The server ends for want of peers: start the next one at once. */
	link->pause_ms =
		link->env->starter && error == SCOUT_ERR_UNREACHABLE ? SCOUT__LINK_PAUSE_FIRST_MS : REFUSED_PAUSE_MS;
	scout__link_lost(link, error, text);
	scout__link_tell_down(link, error, text);
}

bool
scout__link_puts_off(struct scout__link *link, unsigned status)
{
	if (status == SCOUT_WIRE_SHUTDOWN)
		scout__link_refused(link, SCOUT_ERR_UNREACHABLE, "the server is stopping: the next one will be told");
	else if (status == SCOUT_WIRE_LIMIT)
		scout__link_refused(link, SCOUT_ERR_LIMIT,
				    "the server has no room for a reset or a clear: it will be told again");
	else
		return false;
	return true;
}

void
scout__link_leased(struct scout__link *link)
{
	bool new_epoch = link->epoch != link->known_epoch, is_restarted = new_epoch && link->known_epoch != 0;
	struct scout__courier_stats *stats = link->env->stats;

	if (link->ever_up)
		scout__count(&stats->reconnects);
	if (is_restarted)
		scout__log(link->env->log, SCOUT_LOG_WARN, "%s: the server was restarted; what it knew is gone",
			   link->endpoint);
	scout__log(link->env->log, SCOUT_LOG_INFO, "%s: connected as peer %016llx%s", link->endpoint,
		   (unsigned long long)link->peer_id, link->lease_bound ? "" : ", without a lease connection");
	link->state = SCOUT__LINK_UP;
	link->state_since_us = scout__now_us();
	link->known_epoch = link->epoch;
	link->ever_up = true;
	link->told_down = false;
	link->error = 0;
	link->pause_ms = SCOUT__LINK_PAUSE_FIRST_MS;
	atomic_fetch_add_explicit(&stats->servers_up, 1, memory_order_relaxed);
	link->env->ops->link_up(link->env->user, link, new_epoch);
	if (is_restarted) /* last: a reader of the counter may ask the new server */
		scout__count(&stats->epochs);
}

/* Carry out a reset that was only noted before. */
void
scout__link_run_reset(struct scout__link *link)
{
	int error = link->reset_error ? link->reset_error : SCOUT_ERR_UNREACHABLE;

	char text[sizeof(link->reset_text)];

	if (!link->must_reset || !link->sock)
		return;
	if (link->reset_text[0] != '\0') { /* the server has said why, in answer to HELLO */
		memcpy(text, link->reset_text, sizeof(text));
		if (link->state == SCOUT__LINK_GREETING)
			scout__link_refused(link, error, text);
		else
			scout__link_lost(link, error, text);
		return;
	}
	scout__link_lost(link, error,
			 error == SCOUT_ERR_EPOCH      ? "the server does not know this connection any more"
			 : error == SCOUT_ERR_PROTOCOL ? "the server broke the protocol"
						       : "closing the connection");
}
