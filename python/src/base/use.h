/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <pthread.h>

#include "kvscout_py.h"

/*
 * Who may use an object of the library now. It has one caller at a time, and the GIL sees to that but for the calls that let it go:
 * those are noted here, and a call that comes meanwhile gets StateError. close() is the exception: it waits until the other thread
 * has left. In a forked child every call gets ClosedError (SCOUT_ERR_FORKED).
 */
struct scout__py_use {
	const char *inside;  /* G:GIL: the call that has let the GIL go; NULL: none */
	bool closed;         /* G:GIL: close() has begun */
	unsigned forks;      /* const: of the process that made the object */
	pthread_mutex_t mu;  /* for close() only */
	pthread_cond_t left; /* `inside` or `freed` has changed */
	bool is_inside;      /* G:mu: `inside` as close() sees it */
	bool freed;          /* G:mu: close() is done */
};

/* Forks that led to this process, since the extension was loaded. Written in a child before fork() returns there. */
extern unsigned scout__py_forks;

void scout__py_use_init(struct scout__py_use *use);
void scout__py_use_fini(struct scout__py_use *use);
/* This process is a child of the one that made the object. */
static inline bool
scout__py_use_forked(const struct scout__py_use *use)
{
	return use->forks != scout__py_forks;
}

/* The slow path of the check below: sets the exception. Returns -1. */
int scout__py_use_refuse(struct scout__py_state *state, const struct scout__py_use *use, const char *call);

/* Whether the object may be used by this thread, right now. 0, or -1 with an exception. */
static inline int
scout__py_use_check(struct scout__py_state *state, const struct scout__py_use *use, const char *call)
{
	if (use->inside || use->closed || use->forks != scout__py_forks)
		return scout__py_use_refuse(state, use, call);
	return 0;
}

/* Why a repr cannot ask the library for the object's state: "closed", "in use by another thread", "of the parent process"; NULL: it can. */
const char *scout__py_use_word(const struct scout__py_use *use);

/*
 * Around a call that lets the GIL go; the check comes first. _enter lets it go, _leave takes it back:
 *
 *	PyThreadState *ts = scout__py_use_enter(&self->use, "Client.step_wait");
 *	rc = scout_step_wait(self->client, us);
 *	scout__py_use_leave(&self->use, ts);
 */
PyThreadState *scout__py_use_enter(struct scout__py_use *use, const char *call);
void scout__py_use_leave(struct scout__py_use *use, PyThreadState *ts);

/*
 * Begin to close: further calls are refused, and a thread that is inside has left when this returns. False: another close() has done
 * all of it, or this object was closed before; there is nothing to do. True: the caller frees the object (with the GIL let go, where
 * that blocks) and calls _closed.
 */
bool scout__py_use_close(struct scout__py_use *use);
void scout__py_use_closed(struct scout__py_use *use);
