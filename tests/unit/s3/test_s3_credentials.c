/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_credentials.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check_main.h"
#include "s3_stand.h"
#include "waiting.h"

/* Each source of credentials, those of services over real sockets. */

static struct stand stand;
static struct scout__s3_line *line;
static struct scout__s3_credentials credentials;
static struct scout__s3_keys keys;
static char err[512], folder[64], path[128];
static const char *key_of_service = "SERVICE";

static void
set(const char *name, const char *value)
{
	ck_assert_int_eq(setenv(name, value, 1), 0);
}

static void
up(void)
{
	static const char *const names[] = {
		"AWS_ACCESS_KEY_ID",           "AWS_SHARED_CREDENTIALS_FILE",       "AWS_PROFILE", "HOME",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		(void)unsetenv(names[i]);
	set("AWS_EC2_METADATA_DISABLED", "true");
	(void)snprintf(folder, sizeof(folder), "/tmp/kvscout-keys-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/file", folder);
	line = scout__s3_line_new(NULL);
	ck_assert_ptr_nonnull(line);
	ck_assert(scout__s3_credentials_init(&credentials, NULL, "eu-west-1", NULL, 5000));
}

static void
down(void)
{
	scout__s3_credentials_fini(&credentials);
	scout__s3_line_free(line);
	(void)unlink(path);
	(void)rmdir(folder);
}

/* From now on, with the environment that there is. */
static void
anew(const char *file)
{
	scout__s3_credentials_fini(&credentials);
	ck_assert(scout__s3_credentials_init(&credentials, file, "eu-west-1", NULL, 5000));
}

static bool
get(const struct scout__s3_keys *refused)
{
	err[0] = '\0';
	return scout__s3_credentials_get(&credentials, line, NULL, refused, &keys, err, sizeof(err));
}

static void
write_file(const char *text, mode_t mode)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
}

CHECKED_FIXTURE(up, down);

START_TEST(the_environment_is_first)
{
	set("AWS_ACCESS_KEY_ID", "A");
	anew(NULL);
	ck_assert(!get(NULL));
	ck_assert_str_eq(err, "AWS_ACCESS_KEY_ID is set, AWS_SECRET_ACCESS_KEY is not");
	set("AWS_SECRET_ACCESS_KEY", "S");
	set("AWS_SESSION_TOKEN", "T");
	anew(NULL);
	ck_assert_msg(get(NULL), "%s", err);
	ck_assert_str_eq(keys.access, "A");
	ck_assert_str_eq(keys.secret, "S");
	ck_assert_str_eq(keys.token, "T");
}
END_TEST

START_TEST(nothing_that_is_set_says_what_to_set)
{
	ck_assert(!get(NULL));
	ck_assert_ptr_nonnull(strstr(err, "there are no credentials: set AWS_ACCESS_KEY_ID"));
}
END_TEST

START_TEST(a_file_that_others_can_read_is_refused)
{
	char expected[256];

	write_file("[default]\naws_access_key_id = A\naws_secret_access_key = S\n", 0644);
	set("AWS_SHARED_CREDENTIALS_FILE", path);
	anew(NULL);
	ck_assert(!get(NULL));
	(void)snprintf(expected, sizeof(expected), "the credentials file %s has mode 0644, owner ", path);
	ck_assert_msg(strstr(err, expected), "%s", err);
	ck_assert_int_eq(chmod(path, 0600), 0);
	ck_assert_msg(get(NULL), "%s", err);
	ck_assert_str_eq(keys.access, "A");
}
END_TEST

START_TEST(a_file_is_read_again_when_the_store_refuses)
{
	struct scout__s3_keys refused;

	write_file("[other]\naws_access_key_id = X\n[default]\n# a comment\naws_access_key_id=A1\n"
		   "aws_secret_access_key = S1 \r\naws_session_token=T1\n",
		   0600);
	set("AWS_ACCESS_KEY_ID", "not asked where a file is given");
	anew(path);
	ck_assert_msg(get(NULL), "%s", err);
	ck_assert_str_eq(keys.access, "A1");
	ck_assert_str_eq(keys.secret, "S1");
	ck_assert_str_eq(keys.token, "T1");
	write_file("[default]\naws_access_key_id=A2\naws_secret_access_key=S2\n", 0600);
	refused = keys;
	ck_assert(get(NULL));
	ck_assert_str_eq(keys.access, "A1");
	ck_assert(get(&refused));
	ck_assert_str_eq(keys.access, "A2");
	ck_assert_str_eq(keys.token, "");
	/* What another thread was refused does not ask again: these are newer. */
	write_file("[default]\n", 0600);
	ck_assert(get(&refused));
	ck_assert_str_eq(keys.access, "A2");
}
END_TEST

/* The three services, by their paths; what is not as it has to be is refused. */
static atomic_bool hangs;
static atomic_uint n_hang; /* requests that hang, or have */

static bool
service(void *user, int fd, const struct stand_request *q)
{
	char value[64], json[512], ends[32];
	time_t at = time(NULL) + 3600;
	struct tm tm;

	(void)user;
	n_hang += hangs;
	while (hangs && !stand.ends)
		(void)poll(NULL, 0, 10);
	(void)strftime(ends, sizeof(ends), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &tm));
	(void)snprintf(json, sizeof(json),
		       "{\"Code\":\"Success\",\"AccessKeyId\" : \"%s\",\"SecretAccessKey\":\"S\\/x\",\"Token\":\"T\","
		       "\"Expiration\":\"%s\"}",
		       key_of_service, ends);
	stand_header(q->head, "X-aws-ec2-metadata-token", value, sizeof(value));
	if (strcmp(q->path, "/latest/api/token") == 0 && strcmp(q->method, "PUT") == 0)
		stand_reply(fd, strstr(q->head, "ttl-seconds: 21600") ? 200 : 400, "", "TOKEN", 5);
	else if (strcmp(q->path, "/latest/meta-data/iam/security-credentials/") == 0)
		stand_reply(fd, strcmp(value, "TOKEN") == 0 ? 200 : 401, "", "a-role\n", 7);
	else if (strcmp(q->path, "/latest/meta-data/iam/security-credentials/a-role") == 0)
		stand_reply(fd, strcmp(value, "TOKEN") == 0 ? 200 : 401, "", json, strlen(json));
	else if (strcmp(q->path, "/container") == 0)
		stand_reply(fd, strstr(q->head, "Authorization: Bearer x") ? 200 : 403, "", json, strlen(json));
	else if (strcmp(q->path, "/") == 0 && strcmp(q->method, "POST") == 0 &&
		 strcmp((const char *)q->body,
			"Action=AssumeRoleWithWebIdentity&RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&"
			"RoleSessionName=kvscout&Version=2011-06-15&WebIdentityToken=a.b.c") == 0) {
		(void)snprintf(json, sizeof(json),
			       "<R><Credentials><AccessKeyId>%s</AccessKeyId><SecretAccessKey>S/x</SecretAccessKey>"
			       "<SessionToken>T</SessionToken><Expiration>%s</Expiration></Credentials></R>",
			       key_of_service, ends);
		stand_reply(fd, 200, "", json, strlen(json));
	} else {
		stand_reply(fd, 404, "", "", 0);
	}
	return true;
}

static char *
url_of(const char *rest)
{
	static char url[128];

	stand.answer = service;
	stand_start(&stand);
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u%s", stand.port, rest);
	return url;
}

/* The first keys of a service, kept, and others after these were refused. */
static void
serves(void)
{
	struct scout__s3_keys refused;

	anew(NULL);
	ck_assert_msg(get(NULL), "%s", err);
	ck_assert_str_eq(keys.access, "SERVICE");
	ck_assert_str_eq(keys.secret, "S/x");
	ck_assert_str_eq(keys.token, "T");
	ck_assert_int_ge(keys.ends, (int64_t)time(NULL) + 3500);
	key_of_service = "NEXT";
	ck_assert(get(NULL));
	ck_assert_str_eq(keys.access, "SERVICE");
	refused = keys;
	ck_assert_msg(get(&refused), "%s", err);
	ck_assert_str_eq(keys.access, "NEXT");
	stand_stop(&stand);
}

START_TEST(an_instance_has_metadata_with_a_token)
{
	set("AWS_EC2_METADATA_DISABLED", "false");
	set("AWS_EC2_METADATA_SERVICE_ENDPOINT", url_of(""));
	serves();
}
END_TEST

START_TEST(a_container_has_an_endpoint)
{
	set("AWS_CONTAINER_CREDENTIALS_FULL_URI", url_of("/container"));
	anew(NULL);
	ck_assert(!get(NULL));
	ck_assert_str_eq(err, "the container's service of credentials refuses credentials with status 403");
	write_file("Bearer x\n", 0644);
	set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path);
	serves();
}
END_TEST

START_TEST(credentials_come_from_near_by_only)
{
	static const char *const far[] = {"http://example.com/",
					  "https://10.0.0.1/",
					  "ftp://127.0.0.1/",
					  "http://127.0.0.1@example.com/",
					  "http://127.0.0.1.example.com/",
					  "http://localhost.example.com",
					  "http://[2001:db8::1]/",
					  "http://127.0.0.1\\@example.com/",
					  "http://",
					  "127.0.0.1",
					  "http://[::1].example.com/"};
	static const char *const near[] = {"http://localhost:1/", "https://127.9.9.9:1/x", "http://[::1]:1/",
					   "http://[::1]:1?x"};

	for (size_t i = 0; i < sizeof(far) / sizeof(far[0]); i++) {
		set("AWS_CONTAINER_CREDENTIALS_FULL_URI", far[i]);
		anew(NULL);
		ck_assert(!get(NULL));
		ck_assert_msg(strstr(err, "must be http or https to a loopback or link-local address"), "%s: %s",
			      far[i], err);
	}
	for (size_t i = 0; i < sizeof(near) / sizeof(near[0]); i++) {
		set("AWS_CONTAINER_CREDENTIALS_FULL_URI", near[i]);
		anew(NULL);
		ck_assert(!get(NULL));
		ck_assert_msg(strstr(err, "the container's service of credentials does not answer: "), "%s: %s",
			      near[i], err);
	}
}
END_TEST

START_TEST(a_web_identity_takes_a_role)
{
	set("AWS_ENDPOINT_URL_STS", url_of(""));
	set("AWS_ROLE_ARN", "arn:aws:iam::1:role/r");
	set("AWS_WEB_IDENTITY_TOKEN_FILE", path);
	anew(NULL);
	ck_assert(!get(NULL));
	ck_assert_ptr_nonnull(strstr(err, "cannot be read (errno 2)"));
	write_file("a.b.c\n", 0644);
	serves();
}
END_TEST

START_TEST(keys_that_end_soon_are_used_while_their_service_hangs)
{
	set("AWS_EC2_METADATA_DISABLED", "false");
	set("AWS_EC2_METADATA_SERVICE_ENDPOINT", url_of(""));
	anew(NULL);
	ck_assert_msg(get(NULL), "%s", err);
	credentials.keys.ends = (int64_t)time(NULL) + 100;
	hangs = true;
	key_of_service = "NEXT";
	/* It would wait for 5 s in each. */
	for (uint32_t i = 0; i < 1000; i++) {
		ck_assert_msg(get(NULL), "%s", err);
		ck_assert_str_eq(keys.access, "SERVICE");
	}
	wait_until(n_hang > 0)
		;
	/* It comes back, and is asked again when a second is over. */
	hangs = false;
	wait_until(strcmp(keys.access, "NEXT") == 0)
		ck_assert_msg(get(NULL), "%s", err);
	ck_assert_int_ge(keys.ends, (int64_t)time(NULL) + 3000);
	scout__s3_credentials_fini(&credentials);
	stand_stop(&stand);
	ck_assert(scout__s3_credentials_init(&credentials, NULL, "eu-west-1", NULL, 5000));
}
END_TEST

START_TEST(a_service_that_is_not_there_is_said)
{
	char *url = url_of("/container");

	stand_stop(&stand);
	set("AWS_CONTAINER_CREDENTIALS_FULL_URI", url);
	anew(NULL);
	ck_assert(!get(NULL));
	ck_assert_ptr_nonnull(strstr(err, "the container's service of credentials does not answer: "));
}
END_TEST

/* ---- authorities ---- */

static __typeof__(scout__s3_curl.easy_setopt) real_setopt;
static const char *ca_file, *ca_folder;

static CURLcode
note_setopt(CURL *easy, CURLoption option, ...)
{
	void *value;
	va_list args;

	va_start(args, option);
	value = va_arg(args, void *);
	va_end(args);
	if (option == CURLOPT_CAINFO)
		ca_file = value;
	if (option == CURLOPT_CAPATH)
		ca_folder = value;
	return real_setopt(easy, option, value);
}

/* libcurl has a file and a folder of its own: what is named in the URL replaces both, and without it both stay. */
START_LOOP_TEST(a_file_of_authorities_replaces_those_of_the_system, 0, 2)
{
	const char *said = _i ? "/my/authorities.pem" : NULL;
	struct scout__s3_line *other;

	ca_file = ca_folder = "the system's";
	real_setopt = scout__s3_curl.easy_setopt;
	scout__s3_curl.easy_setopt = note_setopt;
	other = scout__s3_line_new(said);
	ck_assert_ptr_nonnull(other);
	ck_assert_str_eq(ca_file, said ? said : "the system's");
	ck_assert(said ? !ca_folder : strcmp(ca_folder, "the system's") == 0);
	scout__s3_line_free(other);
}
END_TEST
