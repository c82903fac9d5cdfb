/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * How long an engine is without the server of its host: from the first look until kvscoutd, which is started for it,
 * accepts connections; the same until a new client has its first answer; what a look costs where the server is there; and how long
 * scout_client_new() takes, which must not wait for any of it. Each round begins without a server, in a private folder.
 *
 * Threads: main, and the client's.
 */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <kvscout/client.h>
#include <kvscout/instance.h>

#include "cli.h"
#include "clock.h"
#include "instance_paths.h"
#include "instance_record.h"
#include "say.h"

#define ROUNDS_MAX 1000u
#define READY_MS 20000u

struct micro_start {
	const char *kvscoutd;
	uint64_t rounds;
	char folder[64];
	char endpoint[96];
	struct scout__instance paths;
	double cold_ms[ROUNDS_MAX], warm_us[ROUNDS_MAX], new_us[ROUNDS_MAX], answer_ms[ROUNDS_MAX];
};

static uint64_t
ensure_ns(struct micro_start *m)
{
	struct scout_instance_config cfg;
	char endpoint[256], err[1024] = "";
	uint64_t start_ns;

	scout_instance_config_init(&cfg);
	cfg.endpoint = m->endpoint;
	cfg.server_program = m->kvscoutd;
	cfg.log = complain_log;
	start_ns = scout__now_ns();
	if (scout_ensure_server(&cfg, endpoint, sizeof(endpoint), err, sizeof(err)) != 0)
		die("%s", err);
	return scout__now_ns() - start_ns;
}

static void
end_server(const struct micro_start *m)
{
	struct scout__instance_record record;
	int fd = open(m->paths.lock, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die("%s cannot be opened", m->paths.lock);
	scout__record_read(fd, &record);
	if (record.state == SCOUT__INSTANCE_SERVING)
		(void)kill((pid_t)record.pid, SIGTERM);
	if (flock(fd, LOCK_EX) != 0) /* until it has ended */
		die("%s cannot be locked", m->paths.lock);
	(void)close(fd);
}

static void
wait_for_answer(struct scout_client *client)
{
	static const uint8_t hash[32] = {1};
	const struct scout_query query = {.id = "first", .hashes = hash, .hash_len = 32, .n = 1, .prompt_tokens = 257};
	struct scout_hit hit;
	char err[1024] = "";

	if (scout_client_wait_ready(client, READY_MS, err, sizeof(err)) != 0)
		die("%s", err);
	if (scout_wait_lookup(client, &query, &hit) != 0 || hit.reason != SCOUT_REASON_MISS)
		die("the first lookup was not answered");
}

static void
run_client(struct micro_start *m, size_t round)
{
	struct scout_client_config cfg;
	struct scout_client *client;
	char err[1024] = "";
	uint64_t start_ns = scout__now_ns();

	scout_client_config_init(&cfg);
	cfg.endpoint = m->endpoint;
	cfg.server_program = m->kvscoutd;
	if (scout_client_new(&cfg, &client, err, sizeof(err)) != 0)
		die("%s", err);
	m->new_us[round] = (double)(scout__now_ns() - start_ns) / 1e3;
	wait_for_answer(client);
	m->answer_ms[round] = (double)(scout__now_ns() - start_ns) / 1e6;
	scout_client_free(client);
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void
print_row(const char *what, double *values, size_t n)
{
	qsort(values, n, sizeof(*values), compare);
	say("%-52s %4zu %8.2f %8.2f %8.2f %8.2f\n", what, n, values[0], values[n / 2], values[n * 99 / 100],
	    values[n - 1]);
}

static void
make_place(struct micro_start *m)
{
	char err[512] = "";

	(void)snprintf(m->folder, sizeof(m->folder), "/tmp/kvscout-start-XXXXXX");
	if (!mkdtemp(m->folder))
		die("no folder can be made in /tmp");
	(void)snprintf(m->endpoint, sizeof(m->endpoint), "auto://%s", m->folder);
	if (scout__instance_find(m->endpoint, &m->paths, err, sizeof(err)) != 0)
		die("%s", err);
}

static void
remove_place(const struct micro_start *m)
{
	(void)unlink(m->paths.lock);
	(void)unlink(m->paths.log);
	(void)rmdir(m->paths.folder);
	if (rmdir(m->folder) != 0)
		complain("%s: not removed", m->folder);
}

int
main(int argc, char **argv)
{
	static struct micro_start m = {.rounds = 50};
	const struct cli_option options[] = {
		CLI_TEXT("kvscoutd", "FILE", &m.kvscoutd, "its absolute path; default: the one of this installation"),
		CLI_NUMBER("rounds", &m.rounds, 1, ROUNDS_MAX, "starts of each kind"),
	};
	const struct cli cli = {
		.tool = "micro_start",
		.about = "How long an engine waits for a server that is started for it.",
		.options = options,
		.n = sizeof(options) / sizeof(options[0]),
	};
	int status;

	if (!cli_parse(&cli, argc, argv, &status))
		return status;
	make_place(&m);
	for (size_t i = 0; i < m.rounds; i++) {
		m.cold_ms[i] = (double)ensure_ns(&m) / 1e6;
		m.warm_us[i] = (double)ensure_ns(&m) / 1e3;
		end_server(&m);
		run_client(&m, i);
		end_server(&m);
	}
	remove_place(&m);
	say("%-52s %4s %8s %8s %8s %8s\n", "", "n", "min", "p50", "p99", "max");
	print_row("no server: until one that was started accepts, ms", m.cold_ms, m.rounds);
	print_row("no server: until a new client has an answer, ms", m.answer_ms, m.rounds);
	print_row("no server: scout_client_new() alone, us", m.new_us, m.rounds);
	print_row("a server: scout_ensure_server(), us", m.warm_us, m.rounds);
	return EXIT_SUCCESS;
}
