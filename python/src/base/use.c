/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Use from two threads, use after close() and use in a forked child are told by exceptions. With the GIL held there is one thread
 * anyway, so a call that holds it only looks at three fields. A call that lets the GIL go writes its name into `inside`; what another
 * thread calls meanwhile is refused by that name. close() may come from any thread at any time: it waits for `inside` to end on a
 * condition, without the GIL, and frees then. Every wait of the library ends by itself (a lookup's deadline, a given time), so close()
 * ends, too.
 *
 * Rejected: a lock around each call. It would make two threads take turns silently, where the library's contract is one caller, and a
 * scheduler that shares its client with another thread would stall behind that thread's wait.
 *
 * A forked child inherits `inside` and the mutex in whatever state another thread left them, so it looks at `forks` first, and its
 * close() neither waits nor takes the lock.
 */
#include "use.h"

#include <kvscout/error.h>

unsigned scout__py_forks;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void
after_fork_in_child(void)
{
	scout__py_forks++;
}

static void
install(void)
{
	/* Fails on ENOMEM only: then a child's calls are refused by the library itself. */
	(void)pthread_atfork(NULL, NULL, after_fork_in_child);
}

void
scout__py_use_init(struct scout__py_use *use)
{
	(void)pthread_once(&once, install);
	*use = (struct scout__py_use){.forks = scout__py_forks};
	(void)pthread_mutex_init(&use->mu, NULL);
	(void)pthread_cond_init(&use->left, NULL);
}

void
scout__py_use_fini(struct scout__py_use *use)
{
	if (scout__py_use_forked(use))
		return; /* a thread that is not here may have held them */
	(void)pthread_cond_destroy(&use->left);
	(void)pthread_mutex_destroy(&use->mu);
}

int
scout__py_use_refuse(struct scout__py_state *state, const struct scout__py_use *use, const char *call)
{
	if (scout__py_use_forked(use))
		scout__py_raise(state, SCOUT_ERR_FORKED, "%s(): %s", call, scout_strerror(SCOUT_ERR_FORKED));
	else if (use->closed)
		scout__py_raise(state, SCOUT_ERR_CLOSED, "%s(): the object was closed", call);
	else
		scout__py_raise(state, SCOUT_ERR_STATE,
				"%s(): another thread is inside %s() of this object; one thread at a time may use it",
				call, use->inside);
	return -1;
}

const char *
scout__py_use_word(const struct scout__py_use *use)
{
	if (scout__py_use_forked(use))
		return "of the parent process";
	if (use->closed)
		return "closed";
	return use->inside ? "in use by another thread" : NULL;
}

static void
set_inside(struct scout__py_use *use, bool is_inside)
{
	(void)pthread_mutex_lock(&use->mu);
	use->is_inside = is_inside;
	if (!is_inside)
		(void)pthread_cond_broadcast(&use->left);
	(void)pthread_mutex_unlock(&use->mu);
}

PyThreadState *
scout__py_use_enter(struct scout__py_use *use, const char *call)
{
	use->inside = call;
	set_inside(use, true);
	return PyEval_SaveThread();
}

void
scout__py_use_leave(struct scout__py_use *use, PyThreadState *ts)
{
	/* Before the GIL is taken back: close() need not wait for that. Nothing of the library is touched after this. */
	set_inside(use, false);
	PyEval_RestoreThread(ts);
	use->inside = NULL;
}

bool
scout__py_use_close(struct scout__py_use *use)
{
	bool is_first = !use->closed;
	PyThreadState *ts;

	use->closed = true;
	if (scout__py_use_forked(use))
		return is_first;
	ts = PyEval_SaveThread();
	(void)pthread_mutex_lock(&use->mu);
	while (is_first ? use->is_inside : !use->freed)
		(void)pthread_cond_wait(&use->left, &use->mu);
	(void)pthread_mutex_unlock(&use->mu);
	PyEval_RestoreThread(ts);
	return is_first;
}

void
scout__py_use_closed(struct scout__py_use *use)
{
	if (scout__py_use_forked(use))
		return;
	(void)pthread_mutex_lock(&use->mu);
	use->freed = true;
	(void)pthread_cond_broadcast(&use->left);
	(void)pthread_mutex_unlock(&use->mu);
}
