/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <kvscout/server.h>

#include "accept_guard.h"
#include "doorbell.h"
#include "instance_server.h"
#include "status_client.h"
#include "keygen.h"
#include "log.h"
#include "log_queue.h"
#include "option_list.h"
#include "rights.h"
#include "mask.h"
#include "text.h"
#include "thread.h"

/*
 * DESIGN
 *
 * The server as a process: options to a configuration, one line on stdout when it serves, log lines on stderr, an
 * orderly end on SIGTERM and SIGINT. SIGHUP reads the options again for the keys that a running server can take: with a
 * message on the wire every client could change the shares, while only the owner can send a signal. The process's own
 * matters are handled here and not in the library: signals, the descriptor limit, standard streams.
 *
 * The file that SIGHUP reads may be a pipe, or on a file system that does not answer. So a thread reads it, and main goes
 * on to take signals: SIGTERM ends a server whose file is still being read.
 *
 * The signals are blocked before the server starts, so all its threads have them blocked and no signal is lost.
 *
 * Log lines go through a queue to a thread of their own (log_queue.c): the reader of standard error may stall, and the
 * server still serves and ends.
 *
 * Threads: main, and one for each reading of the file; log lines come from the server's threads.
 */

#define EXIT_USAGE 2   /* a wrong option or value, wherever it is found */
#define FLUSH_MS 1000u /* that log lines may take at the end */

#define HELP_COLUMNS 110
#define HELP_INDENT 25

static int log_level = SCOUT_LOG_INFO; /* const after the options are read */
static struct scout__log_queue log_queue;
static struct scout__instance_server instance; /* const after the options are read */
static bool is_instance;                       /* an engine started it; const after the options are read, too */
static bool is_shared; /* engines look for it: is_instance, or an operator started it without --listen; likewise */
static struct {
	int argc;
	char **argv;
	bool has_file; /* --config or --curve-rights-file is among them */
} command;             /* const after the options are read */

static void
log_line(void *user, int level, const char *text)
{
	if (level <= log_level && level >= SCOUT_LOG_ERROR)
		scout__log_queue_put(user, level, text);
}

/* Returns 0 if all output was written, else 1. A full disk or a closed pipe shows only now. */
static int
printed(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	(void)fprintf(stderr, "kvscoutd: standard output could not be written (%s)\n", scout__errno_text(errno));
	return 1;
}

/* Print @text in lines of at most HELP_COLUMNS, all but the first after @indent blanks; the cursor is at @indent. */
static void
print_wrapped(const char *text, int indent)
{
	int column = indent;

	while (*text) {
		int len = (int)strcspn(text, " ");

		if (column > indent && column + 1 + len > HELP_COLUMNS) {
			(void)printf("\n%*s", indent, "");
			column = indent;
		}
		column += printf("%s%.*s", column > indent ? " " : "", len, text);
		text += len + (text[len] == ' ');
	}
	(void)putchar('\n');
}

static void
replace(char *text, char from, char to)
{
	for (; (text = strchr(text, from)) != NULL; text++)
		*text = to;
}

static void
print_keys(void)
{
	struct scout_config_row row;

	for (size_t i = 0; scout_server_config_help(i, &row) == 0; i++) {
		char about[1024], name[64];

		(void)snprintf(name, sizeof(name), "%s", row.name);
		replace(name, '_', '-');
		(void)snprintf(about, sizeof(about), "%s (default: %s; %s)", row.meaning, row.def, row.range);
		(void)printf("  --%-21s", name);
		print_wrapped(about, HELP_INDENT);
	}
}

static int
help(void)
{
	(void)printf(
		"usage: kvscoutd [--KEY VALUE | --KEY=VALUE]...\n"
		"\n"
		"The kvscout cache server. Prints `kvscoutd: ready on ENDPOINT` when it serves; stops on SIGTERM. Without\n"
		"--listen it serves where the engines of this user look (endpoint=auto).\n"
		"\n"
		"  --config FILE      read `key = value` lines; options after it override them\n"
		"  --log-level LEVEL  error, warn, info (default) or debug\n"
		"  --curve-keygen FILE\n"
		"                     write a new secret key to FILE, print its public key\n"
		"  --status ENDPOINT  print the counters of the server there, with its curve_secret_file if it has one;\n"
		"                     auto or auto:///FOLDER: of the server that clients with this endpoint share\n"
		"  --version\n"
		"  --help\n"
		"\n"
		"SIGHUP, with --config or --curve-rights-file: reads options and files again for tenant_share,\n"
		"namespace_share and the lines of curve_rights_file.\n"
		"\n"
		"Exit status: 0 after SIGTERM or SIGINT; 1 it could not start, --status had no answer, or output could\n"
		"not be written; 2 a wrong option or value, on the command line or in a file, so that it can never start;\n"
		"4 a server is there already.\n"
		"\n"
		"Keys; - and _ are the same in their names, and files write _. A size is a number with k, m, g or t (1000) or\n"
		"Ki, Mi, Gi or Ti (1024):\n\n");
	print_keys();
	return printed();
}

static int
usage(const char *message)
{
	(void)fprintf(stderr, "kvscoutd: %s; --help lists the options\n", message);
	return EXIT_USAGE;
}

static int
set_log_level(const char *value, char *err, size_t err_len)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};

	for (int i = 0; i < 4; i++) {
		if (strcmp(value, names[i]) == 0) {
			log_level = i + SCOUT_LOG_ERROR;
			return 0;
		}
	}
	return scout__fail(err, err_len, SCOUT_ERR_CONFIG_SYNTAX,
			   "log-level \"%s\" is none of error, warn, info, debug", value);
}

static int
set_option(struct scout_server_config *cfg, const char *key, const char *value, char *err, size_t err_len)
{
	command.has_file |= strcmp(key, "config") == 0 || strcmp(key, "curve_rights_file") == 0;
	if (strcmp(key, "config") == 0)
		return scout_server_config_load(cfg, value, err, err_len);
	if (strcmp(key, "log_level") == 0)
		return set_log_level(value, err, err_len);
	return scout_server_config_set(cfg, key, value, err, err_len);
}

static int
complain(const char *err)
{
	(void)fprintf(stderr, "kvscoutd: %s\n", err);
	return 1;
}

static bool
is_epoch(const struct scout__str *name)
{
	return name->len == strlen("epoch") && memcmp(name->p, "epoch", name->len) == 0;
}

/* A name may contain what a peer chose (its namespace), and any server may answer: unprintable bytes are escaped. */
static int
print_counters(const struct scout__status_client *client, const struct scout__op *op)
{
	struct scout__text text = {NULL, 0, 0, false};
	struct scout__reader items;
	struct scout__str name;
	const char *field = "";
	char err[512];
	uint64_t value;
	uint32_t n;

	if (scout__get_status(op, &n, &items, &field) != SCOUT_WIRE_OK) {
		(void)scout__status_client_bad_reply(client, err, sizeof(err));
		return complain(err);
	}
	for (; n > 0 && scout__get_status_item(&items, &name, &value); n--) {
		scout__text_line(&text, name.p, name.len);
		/* As in the log and in /metrics. */
		scout__text_add(&text, is_epoch(&name) ? " %016" PRIx64 "\n" : " %" PRIu64 "\n", value);
	}
	if (!text.failed)
		(void)fwrite(text.p, 1, text.len, stdout);
	scout__text_fini(&text);
	return text.failed ? complain("the answer is too long") : printed();
}

/* --status; for auto, say which server it is. */
static int
ask_status(const char *endpoint, const char *secret_file)
{
	struct scout__status_client client;
	struct scout__op op;
	char err[1024];
	int rc = scout__status_client_open(&client, endpoint, secret_file, NULL, err, sizeof(err));

	if (rc == 0 && client.log_path[0])
		(void)fprintf(stderr, "kvscoutd: %s; if an engine started it, its log is %s\n", client.endpoint,
			      client.log_path);
	if (rc == 0) {
		(void)scout__status_client_begin(&client, SCOUT_OP_STATUS);
		rc = scout__status_client_ask(&client, &op, err, sizeof(err));
	}
	if (rc)
		rc = complain(err) && rc == SCOUT_ERR_INVALID ? EXIT_USAGE : 1;
	else
		rc = print_counters(&client, &op);
	scout__status_client_close(&client);
	return rc;
}

/* Take apart option @*i, and move on to its value if that is a separate word. *ret_value: NULL when there is none. */
static int
split_option(int argc, char **argv, int *i, char *ret_key, size_t key_size, const char **ret_value, char *err,
	     size_t err_len)
{
	const char *option = argv[*i];
	const char *equals = strchr(option, '=');
	size_t len = equals ? (size_t)(equals - option) : strlen(option);

	if (strncmp(option, "--", 2) != 0 || len - 2 >= key_size) {
		(void)snprintf(err, err_len, "\"%.200s\" is no option", option);
		return SCOUT_ERR_CONFIG_SYNTAX;
	}
	memcpy(ret_key, option + 2, len - 2);
	ret_key[len - 2] = '\0';
	replace(ret_key, '-', '_'); /* as in configuration files */
	*ret_value = equals ? equals + 1 : *i + 1 < argc ? argv[++*i] : NULL;
	return 0;
}

static int
leave(int code, int *ret_exit)
{
	*ret_exit = code;
	return 1;
}

/* Returns 0: go on; else exit with *ret_exit. */
static int
read_options(struct scout_server_config *cfg, int argc, char **argv, int *ret_exit)
{
	const char *ask = NULL;
	char err[512] = "";

	for (int i = 1; i < argc; i++) {
		char key[64];
		const char *option = argv[i];
		const char *value;
		int rc;

		if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0 || strcmp(option, "--version") == 0) {
			if (option[2] == 'v')
				(void)printf("kvscoutd %s\n", scout_version());
			return leave(option[2] == 'v' ? printed() : help(), ret_exit);
		}
		if (split_option(argc, argv, &i, key, sizeof(key), &value, err, sizeof(err)) != 0)
			return leave(usage(err), ret_exit);
		if (!value)
			(void)snprintf(err, sizeof(err), "--%s needs a value", key);
		if (value && strcmp(key, "curve_keygen") == 0)
			return leave(scout__keygen(value), ret_exit);
		if (value && strcmp(key, "status") == 0) {
			ask = value;
			continue;
		}
		rc = value ? set_option(cfg, key, value, err, sizeof(err)) : SCOUT_ERR_CONFIG_SYNTAX;
		if (rc == SCOUT_ERR_CONFIG_KEY && strcmp(key, "config") != 0)
			(void)snprintf(err, sizeof(err), "unknown option \"%.*s\"", (int)strcspn(option, "="), option);
		if (rc)
			return leave(usage(err), ret_exit);
		scout__instance_note_key(&instance, key, value);
	}
	if (ask && scout__list_check_one_endpoint("status", ask, err, sizeof(err)) != 0)
		return leave(usage(err), ret_exit);
	if (ask)
		return leave(ask_status(ask, cfg->curve_secret_file), ret_exit);
	if (is_instance && cfg->listen != instance.listen)
		return leave(usage("listen cannot be set: clients and workers with endpoint=auto look in one place"),
			     ret_exit);
	return 0;
}

/* An ipc socket aborts its process when accept finds no free descriptor: raise the limit as far as allowed. */
static void
raise_descriptors(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_NOFILE, &limit); /* if this fails, fewer must do */
}

static int
block_signals(sigset_t *ret_set)
{
	sigemptyset(ret_set);
	sigaddset(ret_set, SIGTERM);
	sigaddset(ret_set, SIGINT);
	/* Without a file there is nothing to read again, and the end of its terminal ends the server. */
	if (command.has_file)
		sigaddset(ret_set, SIGHUP);
	if (pthread_sigmask(SIG_BLOCK, ret_set, NULL) != 0)
		return -1;
	return signalfd(-1, ret_set, SFD_CLOEXEC);
}

/* What SIGHUP reads: main's while is_running is false, else the thread's, but for the first three fields. */
static struct {
	int fd; /* an eventfd, raised when the thread is done */
	bool is_running, again;
	struct scout_server_config cfg;
	int rc;
	char err[512];
} reading = {.fd = -1};

/* Read what the command line and its files say now. */
static void *
read_again(void *arg)
{
	struct scout_server_config *cfg = &reading.cfg;
	char *rights = NULL;

	for (int i = 1; i < command.argc && reading.rc == 0; i++) {
		const char *value;
		char key[64];

		reading.rc = split_option(command.argc, command.argv, &i, key, sizeof(key), &value, reading.err,
					  sizeof(reading.err));
		if (reading.rc == 0 && strcmp(key, "log_level") != 0)
			reading.rc = set_option(cfg, key, value, reading.err, sizeof(reading.err));
	}
	/* The server reads it again: now its file system answers. */
	if (reading.rc == 0 && cfg->curve_rights_file)
		reading.rc = scout__rights_read(cfg->curve_rights_file, &rights, reading.err, sizeof(reading.err));
	free(rights);
	scout__eventfd_raise(reading.fd);
	return arg;
}

static void
say_not_applied(const char *why)
{
	char line[640];

	(void)snprintf(line, sizeof(line), "kvscoutd: SIGHUP: not applied: %s", why);
	scout__log_queue_put(&log_queue, SCOUT_LOG_ERROR, line);
}

/* SIGHUP. */
static void
begin_to_read(void)
{
	pthread_t thread;
	int rc;

	if (reading.is_running) {
		reading.again = true;
		scout__log_queue_put(&log_queue, SCOUT_LOG_WARN,
				     "kvscoutd: SIGHUP: the files of the SIGHUP before are still being read (is one a "
				     "pipe, or on a file system that does not answer?); they will be read once more");
		return;
	}
	reading.again = false;
	reading.rc = 0;
	reading.err[0] = '\0';
	scout_server_config_init(&reading.cfg);
	rc = scout__thread_start(&thread, "kvscoutd-hup", read_again, NULL);
	if (rc) {
		say_not_applied(scout__errno_text(rc));
		return;
	}
	(void)pthread_detach(thread); /* cannot fail for a thread that was just started */
	reading.is_running = true;
}

/* The files are read: apply as much as a running server can take. */
static void
apply(struct scout_server *server)
{
	struct scout_server_config *cfg = &reading.cfg;
	const char *const set[][2] = {{"tenant_share", cfg->tenant_share},
				      {"namespace_share", cfg->namespace_share},
				      {"curve_rights_file", cfg->curve_rights_file}};
	char *err = reading.err;
	int rc = reading.rc;

	reading.is_running = false;
	for (size_t i = 0; rc == 0 && i < sizeof(set) / sizeof(set[0]); i++)
		rc = scout_server_set(server, set[i][0], set[i][1] ? set[i][1] : "", err, sizeof(reading.err));
	if (rc)
		say_not_applied(err);
	else
		scout__log_queue_put(&log_queue, SCOUT_LOG_INFO,
				     "kvscoutd: SIGHUP: read the configuration again for tenant_share, namespace_share "
				     "and curve_rights_file; other keys need a restart");
	scout_server_config_fini(cfg);
	if (reading.again)
		begin_to_read();
}

/* Wait until a signal asks for the end, or the server has ended by itself. */
static void
wait_for_end(int signal_fd, struct scout_server *server)
{
	struct pollfd ends[] = {
		{.fd = signal_fd, .events = POLLIN},
		{.fd = scout_server_fd(server), .events = POLLIN},
		{.fd = reading.fd, .events = POLLIN},
	};

	for (;;) {
		struct signalfd_siginfo info;

		if (poll(ends, 3, -1) < 0) {
			if (errno == EINTR)
				continue;
			return;
		}
		/* Lowered first: then what the thread wrote before it raised the bell is here. */
		if (ends[2].revents && scout__eventfd_lower(reading.fd))
			apply(server);
		if (!ends[0].revents && !ends[1].revents)
			continue;
		if (ends[1].revents || read(signal_fd, &info, sizeof(info)) != sizeof(info) || info.ssi_signo != SIGHUP)
			return;
		begin_to_read();
	}
}

/* The server serves: tell the processes that wait for it. */
static void
tell_instance(void)
{
	int rc = is_shared ? scout__instance_serves(&instance) : 0;
	char line[SCOUT__INSTANCE_PATH + 128];

	if (rc == 0)
		return;
	(void)snprintf(line, sizeof(line), "kvscoutd: %s cannot be written, so no peer will find this server (%s)",
		       instance.paths.lock, scout__errno_text(rc));
	scout__log_queue_put(&log_queue, SCOUT_LOG_ERROR, line);
}

/* Whether a value of the operator's is wrong, so that no later start with it can succeed. */
static bool
is_wrong_value(int rc)
{
	switch (rc) {
	case SCOUT_ERR_CONFIG_KEY:
	case SCOUT_ERR_CONFIG_SYNTAX:
	case SCOUT_ERR_CONFIG_RANGE:
	case SCOUT_ERR_UNSUPPORTED:
	case SCOUT_ERR_POOL_SIZE:
		return true;
	default:
		return false;
	}
}

/* Serve from start to stop. Returns the exit status: 0, or another one and @err says why the server could not start. */
static int
serve_until(int signal_fd, struct scout_server_config *cfg, char *err, size_t err_len)
{
	struct scout_server *server;
	char text[256] = "";
	int rc;

	/* Where engines look, whoever starts the server: it has the memory of the machine to itself. */
	if (is_shared)
		scout__instance_size_pool(cfg, text, sizeof(text));
	else if (!cfg->l1_bytes)
		(void)snprintf(text, sizeof(text), "l1_bytes is not set: a pool of 1 GiB, the default with --listen");
	if (text[0])
		scout__log_queue_put(&log_queue, SCOUT_LOG_INFO, text);
	rc = scout_server_start(cfg, &server, err, err_len);
	if (rc)
		return rc == SCOUT_ERR_IN_USE ? SCOUT__INSTANCE_EXIT_IN_USE : is_wrong_value(rc) ? EXIT_USAGE : 1;
	(void)printf("kvscoutd: ready on %s\n", scout_server_endpoint(server));
	if (fflush(stdout) != 0)
		scout__log_queue_put(&log_queue, SCOUT_LOG_WARN, "kvscoutd: the ready line could not be written");
	tell_instance();
	wait_for_end(signal_fd, server);
	scout_server_stop(server);
	if (is_shared)
		scout__instance_ended(&instance);
	return 0;
}

static int
serve(struct scout_server_config *cfg)
{
	char err[512] = "";
	sigset_t set;
	int rc, fd = block_signals(&set);

	reading.fd = fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (reading.fd < 0) {
		(void)fprintf(stderr, "kvscoutd: cannot set up signal handling (%s)\n", scout__errno_text(errno));
		return 1;
	}
	/* The reader of our output may leave: the write reports that, and it is no reason to stop serving. */
	(void)signal(SIGPIPE, SIG_IGN);
	raise_descriptors();
	scout__accept_guard_init();
	rc = scout__log_queue_start(&log_queue, STDERR_FILENO, is_instance ? &instance.log : NULL);
	if (rc) {
		(void)fprintf(stderr, "kvscoutd: cannot start the log's thread (%s)\n", scout__errno_text(rc));
		(void)close(fd);
		return 1;
	}
	cfg->log = log_line;
	cfg->log_user = &log_queue;
	rc = serve_until(fd, cfg, err, sizeof(err));
	/* The reason comes after the log lines, which may say more. A reader that has stalled would stall this, too. */
	if (scout__log_queue_stop(&log_queue, FLUSH_MS) && rc)
		(void)fprintf(stderr, "kvscoutd: %s\n", err);
	(void)close(fd);
	return rc;
}

/*
 * All users see a command line in the list of processes, until a moment after its start. What is read later is a copy. Returns
 * whether there was memory.
 */
static bool
hide_passwords(int argc, char **argv)
{
	command.argv = calloc((size_t)argc + 1, sizeof(*command.argv));
	for (int i = 0; command.argv && i < argc; i++) {
		size_t len = strlen(argv[i]);
		char *shown = malloc(len + SCOUT__MASK_ROOM);

		command.argv[i] = strdup(argv[i]);
		if (!shown || !command.argv[i]) {
			free(shown);
			return false;
		}
		scout__mask(argv[i], shown, len + SCOUT__MASK_ROOM);
		if (strcmp(shown, argv[i]) != 0)
			(void)strncpy(argv[i], shown, len); /* zeroes what is left */
		free(shown);
	}
	return command.argv != NULL;
}

int
main(int argc, char **argv)
{
	const char *folder = scout__instance_option(argc, argv);
	struct scout_server_config cfg;
	int rc = 0;

	scout_server_config_init(&cfg);
	cfg.l1_bytes = 0; /* not set: serve_until() chooses */
	if (folder) {
		if (scout__instance_begin(&instance, folder, &cfg) != 0)
			return 1;
		is_instance = is_shared = true;
		argc -= 2;
		argv += 2;
	}
	command.argc = argc;
	if (!hide_passwords(argc, argv)) {
		(void)fprintf(stderr, "kvscoutd: out of memory\n");
		rc = 1;
	} else if (read_options(&cfg, argc, command.argv, &rc) == 0) {
		if (!cfg.listen) {
			rc = scout__instance_claim(&instance, &cfg);
			is_shared = rc == 0;
		}
		/* Only an operator can have limited a process started by hand: keep a taskset or CPUAffinity=. */
		if (!is_instance && strcmp(cfg.cpus, "auto") == 0)
			cfg.cpus = "inherit";
		if (rc == 0)
			rc = serve(&cfg);
	}
	scout_server_config_fini(&cfg);
	return rc;
}
