/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>

/*
 * What a reply means for the command that it answers: found or not, go elsewhere (MOVED, ASK), come again (TRYAGAIN),
 * or why not. Errors are recognised by their first word, and told by their first sentence.
 *
 * This file stands above the others: it takes the events of a link and acts on nodes, the slot map, jobs and routes. It
 * owns nothing itself.
 *
 * Threads: the adapter's.
 */

/* MOVED: for good, so all later commands go there. ASK: only this one. */
static void
redirect(struct redis *r, struct redis_link *link, struct redis_command *command,
	 const struct scout__redis_redirect *to, bool moved) SCOUT_ON_REDIS
{
	const char *host = to->host[0] ? to->host : link->node->host;
	struct redis_node *node;

	if (r->mode == REDIS_SINGLE && !r->may_be_cluster) {
		scout__log_limited(r->log, &r->moved_limit, r->now_us, 60000000, SCOUT_LOG_ERROR,
				   "%s: %s:%u is a node of a cluster, but the URL says cluster=no", r->shown,
				   link->node->host, link->node->port);
		scout__redis_command_fail(r, command, SCOUT__L2_ERROR, EREMCHG);
		return;
	}
	scout__redis_count(moved ? &r->counters.moved : &r->counters.ask);
	node = scout__redis_node_get(r, host, to->port);
	if (!node || ++command->tries > SCOUT__REDIS_MAX_TRIES) {
		scout__redis_command_fail(r, command, SCOUT__L2_ERROR, EREMCHG);
		return;
	}
	command->asking = !moved;
	if (moved) {
		scout__redis_slots_moved(r, node, to->slot);
		scout__redis_refresh(r);
	}
	scout__redis_command_send_to(r, command, node);
}

/* @node said @said, which means @text: it has failed, by both. */
static void
refused(struct redis *r, struct redis_node *node, enum redis_why why, int error, const char *said,
	const char *text) SCOUT_ON_REDIS
{
	char words[80], both[160];

	scout__redis_error_words(said, why == REDIS_REFUSED, words, sizeof(words));
	(void)snprintf(both, sizeof(both), "%s%s%s", words, words[0] && text[0] ? ": " : "",
		       words[0] || text[0] ? text : "it is not ready");
	scout__redis_node_failed(r, node, why, error, both);
}

/* Errors that say something about the whole server. True: @text is one, and @command is gone. */
static bool
node_error(struct redis *r, struct redis_link *link, struct redis_command *command, enum scout__redis_error error,
	   const char *text) SCOUT_ON_REDIS
{
	int detail = error == SCOUT__REDIS_AUTH ? EACCES : error == SCOUT__REDIS_LOADING ? EAGAIN : EROFS;

	if (error == SCOUT__REDIS_AUTH)
		refused(r, link->node, REDIS_REFUSED, detail, text, "it wants a password");
	else if (error == SCOUT__REDIS_LOADING)
		refused(r, link->node, REDIS_BROKEN, detail, text, "");
	else if (error == SCOUT__REDIS_READONLY && scout__redis_needs_role(r))
		refused(r, link->node, REDIS_REPLICA, detail, text, "");
	else
		return false;
	scout__redis_command_fail(r, command, SCOUT__L2_ERROR, detail);
	return true;
}

static void
log_refused(struct redis *r, const struct redis_link *link, int detail, const char *text) SCOUT_ON_REDIS
{
	char words[80];

	scout__redis_error_words(text, false, words, sizeof(words));
	scout__redis_say(r, link->node, detail, words[0] ? words : "an error", "");
	if (detail != ENOSPC)
		scout__log_limited(r->log, &r->refused_limit, r->now_us, 60000000, SCOUT_LOG_WARN,
				   "%s: %s:%u refused a command: %s", r->shown, link->node->host, link->node->port,
				   words[0] ? words : "an error");
}

static void
error_reply(struct redis *r, struct redis_link *link, struct redis_command *command, const char *text) SCOUT_ON_REDIS
{
	struct scout__redis_redirect to;
	enum scout__redis_error error = scout__redis_kind_of(text, &to);

	if (!command->job && command->kind != REDIS_SLOTS) {
		/* The operation of the command has ended already. */
		if (!node_error(r, link, command, error, text))
			scout__redis_command_free(r, command);
		return;
	}
	if (node_error(r, link, command, error, text))
		return;
	if (error == SCOUT__REDIS_MOVED || error == SCOUT__REDIS_ASK) {
		redirect(r, link, command, &to, error == SCOUT__REDIS_MOVED);
		return;
	}
	if ((error == SCOUT__REDIS_TRYAGAIN || (error == SCOUT__REDIS_READONLY && r->mode == REDIS_CLUSTER)) &&
	    ++command->tries <= SCOUT__REDIS_MAX_TRIES) {
		scout__redis_count(&r->counters.tryagain);
		if (error == SCOUT__REDIS_READONLY)
			scout__redis_refresh(r);
		scout__redis_route_later(r, command);
		return;
	}
	if (error == SCOUT__REDIS_DOWN)
		scout__redis_refresh(r);
	log_refused(r, link, error == SCOUT__REDIS_OOM ? ENOSPC : EREMOTEIO, text);
	scout__redis_command_fail(r, command, error == SCOUT__REDIS_OOM ? SCOUT__L2_FULL : SCOUT__L2_ERROR,
				  error == SCOUT__REDIS_OOM ? ENOSPC : EREMOTEIO);
}

/* ---- the handshake ---- */

static void
handshake_error(struct redis *r, struct redis_link *link, enum redis_kind kind, const char *text) SCOUT_ON_REDIS
{
	struct scout__redis_redirect to;
	enum scout__redis_error error = scout__redis_kind_of(text, &to);

	if (strstr(text, "max number of clients")) {
		scout__redis_node_failed(r, link->node, REDIS_BROKEN, ECONNREFUSED,
					 "it has no room for another client");
		return;
	}
	if (kind == REDIS_AUTH) {
		scout__redis_count(&r->counters.auth_refused);
		r->was_refused = r->urgent = true;
		refused(r, link->node, REDIS_REFUSED, EACCES, text,
			error == SCOUT__REDIS_AUTH ? "it refuses the user or password"
						   : "it refuses AUTH (has it a password at all?)");
		return;
	}
	if (kind == REDIS_NAME || (kind == REDIS_ROLE && error != SCOUT__REDIS_AUTH))
		return; /* a user that may not name its connection, or not ask, works all the same */
	if (error == SCOUT__REDIS_NOPERM || error == SCOUT__REDIS_MISCONF) {
		/* The user may not PING, but is let in; a server that cannot save serves reads. */
		scout__redis_node_connected(r, link);
		return;
	}
	if (error == SCOUT__REDIS_AUTH) {
		scout__redis_count(&r->counters.auth_refused);
		r->was_refused = r->urgent = true;
		refused(r, link->node, REDIS_REFUSED, EACCES, text,
			r->password ? "it refuses the user or password" : "it wants a password, and the URL has none");
	} else {
		refused(r, link->node, REDIS_BROKEN, error == SCOUT__REDIS_LOADING ? EAGAIN : ECONNREFUSED, text, "");
	}
}

/* A replica lags, takes no clear, and is left behind where the name leads to another master by now. */
static void
take_role(struct redis *r, struct redis_link *link, const struct redisReply *reply) SCOUT_ON_REDIS
{
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 && reply->element[0]->str &&
	    strcmp(reply->element[0]->str, "slave") == 0 && scout__redis_needs_role(r))
		scout__redis_node_failed(r, link->node, REDIS_REPLICA, EROFS,
					 "it is a replica: name its master, or give replica=1");
}

static void
handshake(struct redis *r, struct redis_link *link, struct redis_command *command,
	  const struct redisReply *reply) SCOUT_ON_REDIS
{
	enum redis_kind kind = (enum redis_kind)command->kind;

	scout__redis_command_free(r, command);
	if (reply->type == REDIS_REPLY_ERROR)
		handshake_error(r, link, kind, reply->str);
	else if (kind == REDIS_PING)
		scout__redis_node_connected(r, link);
	else if (kind == REDIS_ROLE)
		take_role(r, link, reply);
}

/* ---- replies ---- */

static void
part(struct redis *r, struct redis_command *command, bool found, enum scout__l2_result result) SCOUT_ON_REDIS
{
	struct redis_job *job = command->job;
	uint32_t index = command->index;

	scout__redis_command_free(r, command);
	if (job)
		scout__redis_job_part(r, job, index, found, result, 0);
}

/* The reply does not have the form that the command asks for: a proxy, or not Redis. */
static void
unexpected(struct redis *r, struct redis_link *link, struct redis_command *command) SCOUT_ON_REDIS
{
	scout__redis_command_fail(r, command, SCOUT__L2_ERROR, EPROTO);
	scout__redis_node_lost(r, link, (struct redis_trouble){REDIS_BROKEN, EPROTO, "it answers what was not asked"});
}

/* @job NULL: its operation has ended already. */
static void
take_record(const struct redis_job *job, const struct redisReply *reply)
{
	if (!job)
		return;
	memset(job->op->data, 0, job->op->bytes);
	job->op->found[0] = reply->type == REDIS_REPLY_STRING;
	if (reply->type == REDIS_REPLY_STRING && reply->len == job->op->bytes)
		memcpy(job->op->data, reply->str, job->op->bytes);
}

static void
take_reply(struct redis *r, struct redis_link *link, struct redis_command *command,
	   const struct redisReply *reply) SCOUT_ON_REDIS
{
	switch (command->kind) {
	case REDIS_AUTH:
	case REDIS_ROLE:
	case REDIS_PING:
	case REDIS_NAME:
		handshake(r, link, command, reply);
		return;
	case REDIS_SLOTS:
		scout__redis_command_free(r, command);
		scout__redis_refresh_done(r, link->node, reply);
		return;
	default:
		break;
	}
	if (reply->type == REDIS_REPLY_ERROR) {
		error_reply(r, link, command, reply->str);
		return;
	}
	switch (command->kind) {
	case REDIS_EXISTS:
		if (reply->type != REDIS_REPLY_INTEGER)
			break;
		part(r, command, reply->integer > 0, SCOUT__L2_OK);
		return;
	case REDIS_SET:
		if (reply->type != REDIS_REPLY_STATUS && reply->type != REDIS_REPLY_NIL)
			break;
		part(r, command, false, reply->type == REDIS_REPLY_NIL ? SCOUT__L2_PRESENT : SCOUT__L2_OK);
		return;
	case REDIS_RECORD_GET:
		if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_NIL)
			break;
		take_record(command->job, reply);
		part(r, command, false, SCOUT__L2_OK);
		return;
	case REDIS_RECORD_SET:
		if (reply->type != REDIS_REPLY_STATUS)
			break;
		part(r, command, false, SCOUT__L2_OK);
		return;
	case REDIS_UNLINK:
		if (reply->type != REDIS_REPLY_INTEGER)
			break;
		part(r, command, false, SCOUT__L2_OK);
		return;
	case REDIS_GET:
		break; /* anything but a value or an error */
	default:
		scout__redis_command_free(r, command); /* ASKING */
		return;
	}
	unexpected(r, link, command);
}

static void
take_event(struct redis *r, struct redis_link *link, const struct redis_event *event) SCOUT_ON_REDIS
{
	struct redis_command *command = event->command;

	if (event->what == REDIS_EVENT_TROUBLE) {
		scout__redis_node_lost(r, link, event->trouble);
		return;
	}
	link->sent_bytes -= command->bytes;
	if (command->job)
		command->job->moved_us = r->now_us;
	scout__redis_link_touch(r, link);
	if (event->what == REDIS_EVENT_REPLY) {
		take_reply(r, link, command, event->reply);
		freeReplyObject(event->reply);
		return;
	}
	if (!command->job)
		scout__redis_count(&r->counters.dropped_values);
	part(r, command, false, event->result);
}

static void
read_and_take(struct redis *r, struct redis_link *link) SCOUT_ON_REDIS
{
	struct redis_trouble trouble = scout__redis_link_receive(r, link);

	if (trouble.text)
		scout__redis_node_lost(r, link, trouble);
	while (link->fd >= 0) { /* a link that was lost meanwhile has none */
		struct redis_event event = scout__redis_link_next(link);

		if (event.what == REDIS_EVENT_NONE)
			break;
		take_event(r, link, &event);
	}
}

void
scout__redis_reply(struct redis *r, struct redis_link *link)
{
	read_and_take(r, link);
	while (link->ssl && r->tls->has_pending(link)) /* less than a record of TLS */
		read_and_take(r, link);
}
