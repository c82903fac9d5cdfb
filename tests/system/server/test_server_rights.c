/* SPDX-License-Identifier: Apache-2.0 */
/* Who may do what: the table of docs/security.md, cell by cell, over real sockets. As root, the peers are of several users. */
#include "check_main.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zmq.h>

#include "assert_rc.h"
#include "server_rig.h"

#define SERVER_UID 54321u
#define MEMBER_UID 54322u
#define OTHER_UID 54323u
#define GROUP "54324" /* of the first two */

/* What a sender gets: all, what engines get in a namespace of their own and in another one, nothing. */
enum {
	ALL,
	ENGINE,
	OUTSIDE,
	NOBODY,
	N_LEVELS
};
enum {
	OPERATOR,
	LINELESS,
	OWN,
	LIMITED,
	N_KEYS,
	NO_KEY
};

static const struct sender {
	const char *name;
	int level, key;
	bool is_ipc;
	uid_t uid;
	const char *name_space;
} senders[] = {
	{"an operator's key", ALL, OPERATOR, false, SERVER_UID, "any"},
	{"a key without a line", ALL, LINELESS, false, SERVER_UID, "any"},
	{"the server's own key", ALL, OWN, false, SERVER_UID, "any"},
	{"an engine's key", ENGINE, LIMITED, false, SERVER_UID, "team/vllm/1"},
	{"an engine's key", ENGINE, LIMITED, false, SERVER_UID, "first"},
	{"an engine's key, elsewhere", OUTSIDE, LIMITED, false, SERVER_UID, "teams"},
	{"an engine's key, elsewhere", OUTSIDE, LIMITED, false, SERVER_UID, "first/1"},
	{"tcp without keys", ALL, NO_KEY, false, SERVER_UID, "any"},
	{"the server's user", ALL, NO_KEY, true, SERVER_UID, "any"},
	{"the server's user, with an engine's key", ALL, LIMITED, true, SERVER_UID, "any"},
	{"root", ALL, NO_KEY, true, 0, "any"},
	{"a member of socket_group", ENGINE, NO_KEY, true, MEMBER_UID, "any"},
	{"a member of socket_group, with an operator's key", ENGINE, OPERATOR, true, MEMBER_UID, "any"},
	{"a member of socket_group, with an engine's key", OUTSIDE, LIMITED, true, MEMBER_UID, "any"},
	{"another user, through sockets that were opened by hand", NOBODY, NO_KEY, true, OTHER_UID, "any"},
};

#define OK SCOUT_WIRE_OK
#define NO SCOUT_WIRE_RIGHTS
static const struct {
	uint8_t opcode;
	int is[N_LEVELS];
} answers[] = {
	{SCOUT_OP_HELLO, {OK, OK, NO, NO}},
	{SCOUT_OP_PING, {OK, OK, OK, OK}},
	{SCOUT_OP_STATUS, {OK, OK, OK, NO}},
	{SCOUT_OP_PEERS, {OK, NO, NO, NO}},
	{SCOUT_OP_TENANTS, {OK, NO, NO, NO}},
	{SCOUT_OP_DROP, {OK, NO, NO, NO}},
	{0, {OK, OK, SCOUT_WIRE_NO_HELLO, SCOUT_WIRE_NO_HELLO}}, /* all others */
};

static char folder[] = "/tmp/kvscout-rights-XXXXXX";
static struct wire_keys keys[N_KEYS];
static struct scout_server *server;
static struct wire_peer client, worker, tool, watcher; /* the tool says no HELLO; the watcher has all rights */

#define write_file(path, ...)                                                                                          \
	do {                                                                                                           \
		FILE *file_ = fopen(path, "we");                                                                       \
                                                                                                                       \
		ck_assert(file_ &&fprintf(file_, __VA_ARGS__) > 0 && fchmod(fileno(file_), 0600) == 0);                \
		ck_assert_int_eq(fclose(file_), 0);                                                                    \
	} while (0)

/* This thread and those that it starts are of @uid; libc would change the whole process. */
static void
become(uid_t uid)
{
	gid_t group = (gid_t)strtoul(GROUP, NULL, 10);

	if (getuid() == 0)
		ck_assert(syscall(SYS_setresuid, -1, 0, -1) == 0 &&
			  syscall(SYS_setgroups, uid == SERVER_UID || uid == MEMBER_UID ? 1 : 0, &group) == 0 &&
			  syscall(SYS_setresgid, -1, uid, -1) == 0 && syscall(SYS_setresuid, -1, uid, -1) == 0);
}

/* As @sender needs it. */
static void
start(const struct sender *sender)
{
	struct scout_server_config cfg = rig_config(16);

	(void)umask(0); /* the modes of sockets are the server's own doing */
	(void)unsetenv("XDG_RUNTIME_DIR");
	become(SERVER_UID);
	ck_assert(mkdtemp(folder) && chdir(folder) == 0);
	for (int i = 0; i < N_KEYS; i++)
		ck_assert_int_eq(zmq_curve_keypair(keys[i].public, keys[i].secret), 0);
	for (int i = 0; i < N_KEYS; i++)
		memcpy(keys[i].server, keys[OWN].public, sizeof(keys[i].server));
	write_file("secret", "%s\n", keys[OWN].secret);
	write_file("clients", "%s\n%s\n%s\n", keys[OPERATOR].public, keys[LINELESS].public, keys[LIMITED].public);
	write_file("rights", "# who\n\n %s\toperator # me\r\n#%s\n%s engine first\n%s  engine second team/* # all",
		   keys[OPERATOR].public, keys[LINELESS].public, keys[LIMITED].public, keys[LIMITED].public);
	cfg.listen = sender->is_ipc ? NULL : "tcp://127.0.0.1:*";
	cfg.curve_secret_file = sender->key == NO_KEY ? NULL : "secret";
	cfg.curve_clients_file = sender->key == NO_KEY ? NULL : "clients";
	cfg.curve_rights_file = sender->key == NO_KEY ? NULL : "rights";
	cfg.socket_group = sender->uid == MEMBER_UID ? GROUP : NULL;
	server = rig_start(&cfg);
}

static void
stop(void)
{
	wire_close(&client);
	wire_close(&worker);
	become(SERVER_UID);
	scout_server_stop(server);
	ck_assert(unlink("secret") == 0 && unlink("clients") == 0 && unlink("rights") == 0 && rmdir(folder) == 0);
	become(0); /* else a sanitizer may not look for leaks at the end */
}

static void
open_peer(struct wire_peer *p, int key, uint16_t role, const char *name_space)
{
	wire_open_as(p, scout_server_endpoint(server), key == NO_KEY ? NULL : &keys[key], NULL);
	p->hello.role = role;
	p->hello.name_space = (struct scout__str){name_space, (uint16_t)strlen(name_space)};
}

/* HELLO and all that a worker of @status can do. */
static void
begin_worker(int status)
{
	assert_wire(wire_hello(&worker), status);
	if (status != OK)
		return;
	ck_assert_int_eq(wire_lease(&worker), SCOUT_LEASE_OK);
	assert_wire(wire_register(&worker, 0, 0, SHARD_BYTES), OK);
	ck_assert_uint_eq(rig_store(&worker, 0, 1, 2), 2); /* it maps the memory */
}

/* OK: it is let through, and then refused for its body. */
static int
ask(struct wire_peer *p, uint8_t opcode)
{
	struct wire_reply *reply;
	int status;

	scout__put_u16(wire_begin(p, opcode), 7);
	(void)wire_end(p);
	wire_flush(p);
	reply = wire_wait(p, p->last_corr);
	status = reply->status;
	wire_reply_free(reply);
	return status == NO || status == SCOUT_WIRE_NO_HELLO ? status : OK;
}

/* All operations. Returns how many were refused for want of rights. */
static uint32_t
walk(struct wire_peer *p, const struct sender *sender)
{
	uint32_t n_refused = 0;

	for (uint8_t opcode = 1; opcode <= SCOUT_OP_LAST; opcode++) {
		int i = 0, status;

		while (answers[i].opcode && answers[i].opcode != opcode)
			i++;
		if (opcode == SCOUT_OP_ERROR || (p == &tool && (i == 0 || !answers[i].opcode)))
			continue;
		status = i == 0 ? wire_hello(p) : ask(p, opcode);
		ck_assert_msg(status == answers[i].is[sender->level], "%s of %s is answered %s", scout__op_name(opcode),
			      sender->name, scout__wire_name((unsigned)status));
		n_refused += status == NO;
	}
	return n_refused;
}

static bool
can_use(uid_t uid, const char *path)
{
	bool can;

	become(uid);
	can = faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0;
	become(SERVER_UID);
	return can;
}

/* The kernel lets @sender use both sockets, and nobody else, until an operator opens them to all. */
static void
try_sockets(const struct sender *sender)
{
	const char *path = scout_server_endpoint(server) + strlen("ipc://");
	char *lease = tool.lease_path;

	(void)sprintf(lease, "%s.lease", path);
	ck_assert(can_use(sender->uid, path) == (sender->level != NOBODY) &&
		  can_use(sender->uid, lease) == can_use(sender->uid, path));
	*strrchr(lease, '/') = '\0';
	ck_assert_int_eq(chmod(lease, 0755), 0);
	lease[strlen(lease)] = '/';
	ck_assert(!can_use(OTHER_UID, path) && !can_use(OTHER_UID, lease));
	if (sender->level == NOBODY)
		ck_assert(chmod(path, 0666) == 0 && chmod(lease, 0666) == 0);
}

START_LOOP_TEST(each_sender_may_do_what_the_table_says, 0, sizeof(senders) / sizeof(senders[0]))
{
	const struct sender *sender = &senders[_i];
	struct scout__clear_reply m;
	uint32_t n_refused;
	char lease_path[128];

	if (getuid() != 0 && sender->uid != SERVER_UID) {
		(void)dprintf(STDOUT_FILENO, "# SKIP peers of other users need root\n");
		return;
	}
	start(sender);
	if (sender->is_ipc && getuid() == 0)
		try_sockets(sender);
	memcpy(lease_path, tool.lease_path, sizeof(lease_path));
	open_peer(&watcher, sender->key == NO_KEY ? NO_KEY : OWN, SCOUT_ROLE_CLIENT, "hidden");
	assert_wire(wire_hello(&watcher), OK);
	become(sender->uid);
	open_peer(&tool, sender->key, SCOUT_ROLE_CLIENT, sender->name_space);
	open_peer(&client, sender->key, SCOUT_ROLE_CLIENT, sender->name_space);
	open_peer(&worker, sender->key, SCOUT_ROLE_WORKER, sender->name_space);
	begin_worker(answers[0].is[sender->level]);
	if (sender->level <= ENGINE)
		ck_assert(wire_channel(&worker));
	n_refused = (sender->level > ENGINE) + walk(&tool, sender) + walk(&client, sender) + walk(&worker, sender);
	if (sender->level <= ENGINE) {
		assert_wire(wire_clear(&client, 77, &m), OK);
		assert_wire(wire_simple(&client, SCOUT_OP_RESET, 7), OK);
	}
	ck_assert_uint_eq(wire_status(&watcher, "refused.rights"), n_refused ? n_refused : UINT64_MAX);
	if (sender->level == NOBODY) {
		memcpy(tool.lease_path, lease_path, sizeof(lease_path));
		tool.hello = watcher.hello; /* token and secret are right, and the process is */
		ck_assert_int_ne(wire_lease(&tool), SCOUT_LEASE_OK);
		ck_assert_uint_eq(wire_status(&watcher, "leases.refused"), 1);
	} else {
		bool is_told = sender->key != LIMITED || sender->level == ALL;

		ck_assert_uint_eq(wire_status(&tool, "ns.hidden.peers"), is_told ? 1 : UINT64_MAX);
	}
	wire_close(&tool);
	wire_close(&watcher);
	stop();
}
END_TEST

START_TEST(rights_that_are_read_again_count_from_the_next_operation_on)
{
	static const char *const wrong[] = {" engine first", "", " operator first", " driver first"};
	struct scout_server_config cfg = rig_config(16);
	struct scout__lookup_reply m;
	struct scout_server *none;
	char err[256];
	uint32_t n;
	uint64_t id;

	start(&senders[4]);
	open_peer(&client, LIMITED, SCOUT_ROLE_CLIENT, "first");
	open_peer(&worker, LIMITED, SCOUT_ROLE_WORKER, "first");
	assert_wire(wire_hello(&client), OK);
	begin_worker(OK);
	ck_assert_uint_eq(rig_granted(&worker, 0, 101, 2, &id), 2);
	assert_wire(wire_lookup(&client, 9, 1, 2, 0, &m), OK);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) { /* and change nothing */
		write_file("rights", "%.*s%s", i ? 40 : 39, keys[LIMITED].public, wrong[i]);
		assert_rc(scout_server_set(server, "curve_rights_file", "rights", err, sizeof(err)), SCOUT_ERR_FORMAT);
		ck_assert_ptr_nonnull(strstr(err, "line 1: must be"));
	}
	assert_wire(wire_renew(&client, 9, 1, 2, 0, &m), OK);
	write_file("rights", "%s engine second\n", keys[LIMITED].public);
	assert_ok(scout_server_set(server, "curve_rights_file", "rights", err, sizeof(err)));
	wait_until(wire_renew(&client, 9, 1, 2, 0, &m) != OK)
		;
	assert_wire(wire_renew(&client, 9, 1, 2, 0, &m), NO);
	ck_assert_ptr_nonnull(strstr(client.text, "has no rights in namespace \"first\""));
	assert_wire(wire_hello(&client), NO);
	/* What it holds it can give back, and commits nothing. */
	assert_wire(wire_store_done(&worker, id, 2, 2, &n), OK);
	ck_assert_uint_eq(n, 0);
	rig_finish(&client, 9);
	assert_ok(scout_server_set(server, "curve_rights_file", "", err, sizeof(err)));
	wait_until(wire_lookup(&client, 10, 1, 2, 0, &m) == OK)
		;
	assert_wire(ask(&client, SCOUT_OP_PEERS), OK);
	stop();
	cfg.socket_group = "no such group";
	assert_rc(scout_server_start(&cfg, &none, err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	cfg.socket_group = NULL;
	cfg.curve_rights_file = "rights";
	assert_rc(scout_server_start(&cfg, &none, err, sizeof(err)), SCOUT_ERR_INVALID);
}
END_TEST
