/* SPDX-License-Identifier: Apache-2.0 */
#include "url.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvscout/error.h>

#include "check_main.h"

static char err[512];

static struct scout__l2_url
parse(const char *text)
{
	struct scout__l2_url url;
	int rc = scout__l2_url_parse(text, &url, err, sizeof(err));

	ck_assert_msg(rc == 0, "%s: %s", text, err);
	return url;
}

START_TEST(a_folder_with_options)
{
	struct scout__l2_url url = parse("fs:///var/cache/kv%20%41%2f%25?max_bytes=10Gi&a%62c=x%3dy=z");

	ck_assert_str_eq(url.scheme, "fs");
	ck_assert_str_eq(url.path, "/var/cache/kv A/%");
	ck_assert_ptr_null(url.user);
	ck_assert_ptr_null(url.password);
	ck_assert_uint_eq(url.n_hosts, 0);
	ck_assert_uint_eq(url.n_options, 2);
	ck_assert_str_eq(url.options[0].name, "max_bytes");
	ck_assert_str_eq(url.options[0].value, "10Gi");
	ck_assert_str_eq(url.options[1].name, "abc");
	ck_assert_str_eq(url.options[1].value, "x=y=z");
	ck_assert_int_eq(scout__l2_url_need_folder(&url, err, sizeof(err)), 0);
	scout__l2_url_fini(&url);
	ck_assert_ptr_null(url.path);
}
END_TEST

START_TEST(hosts_with_user_and_password)
{
	struct scout__l2_url url = parse("redis://a%40b:p%3aq:r%2F@h-1.x:6379,[::1]:65535,[fe80::2],10.0.0.1?ttl=5");

	ck_assert_str_eq(url.scheme, "redis");
	ck_assert_str_eq(url.user, "a@b");
	ck_assert_str_eq(url.password, "p:q:r/");
	ck_assert_uint_eq(url.n_hosts, 4);
	ck_assert_str_eq(url.hosts[0].name, "h-1.x");
	ck_assert_uint_eq(url.hosts[0].port, 6379);
	ck_assert_str_eq(url.hosts[1].name, "::1");
	ck_assert_uint_eq(url.hosts[1].port, 65535);
	ck_assert_str_eq(url.hosts[2].name, "fe80::2");
	ck_assert_uint_eq(url.hosts[2].port, 0);
	ck_assert_str_eq(url.hosts[3].name, "10.0.0.1");
	ck_assert_uint_eq(url.hosts[3].port, 0);
	ck_assert_str_eq(url.path, "");
	ck_assert_str_eq(url.shown, "redis://a%40b:***@h-1.x:6379,[::1]:65535,[fe80::2],10.0.0.1?ttl=5");
	ck_assert_int_eq(scout__l2_url_need_hosts(&url, err, sizeof(err)), 0);
	scout__l2_url_fini(&url);
	url = parse("redis://:secret@h:1/");
	ck_assert_ptr_null(url.user);
	ck_assert_str_eq(url.password, "secret");
	ck_assert_str_eq(url.shown, "redis://:***@h:1/");
	ck_assert_int_eq(scout__l2_url_need_hosts(&url, err, sizeof(err)), 0);
	scout__l2_url_fini(&url);
}
END_TEST

/* What each of these texts is refused with. */
static const struct {
	const char *message;
	const char *texts[6];
} malformed[] = {
	{"not a URL: must be SCHEME://..., such as fs:///var/cache/kvscout or redis://localhost:6379",
	 {"", "/var/cache", "fs:/var", "fs:"}},
	{"the scheme is missing: must be SCHEME://...", {"://x"}},
	{"the scheme is lower-case letters, then also digits, '+', '-' and '.'", {"FS:///x", "1fs:///x", "f%73:///x"}},
	{"byte 8 is a blank or a control character: write it as %20", {"fs:///a b"}},
	{"byte 8 is a blank or a control character: write it as %0a", {"fs:///a\n"}},
	{"byte 8 is a '#', which begins a comment in a config file: write it as %23", {"fs:///a#b"}},
	{"the path has a '%' without two hexadecimal digits after it; '%' itself is written %25",
	 {"fs:///a%", "fs:///a%4", "fs:///a%4?x=1", "fs:///a%g0", "fs:///a%0"}},
	{"the path has a NUL (%00)", {"fs:///a%00b"}},
	{"the user has a NUL (%00)", {"redis://u%00:p@h"}},
	{"the password has a NUL (%00)", {"redis://u:p%00@h"}},
	{"an option's name has a NUL (%00)", {"fs:///a?x%00=1"}},
	{"an option's value has a NUL (%00)", {"fs:///a?x=%00"}},
	{"an option's value has a '%' without two hexadecimal digits after it; '%' itself is written %25",
	 {"fs:///a?x=%zz"}},
	{"host 1 is empty", {"redis://:1", "redis://,h", "redis://u:p@", "redis://::1"}},
	{"host 2 is empty", {"redis://h,", "redis://h,,i"}},
	{"the port of host 1 is not a number from 1 to 65535",
	 {"redis://h:x", "redis://h:", "redis://h:+1", "redis://h:65536", "redis://h:99999999999999999999999999",
	  "redis://[::1]:0"}},
	{"the port of host 2 is not a number from 1 to 65535", {"redis://h:1,i:0"}},
	{"host 1 has a '[' that is not closed", {"redis://[::1", "redis://[::1,h"}},
	{"host 1 has something other than ':' after its ']'", {"redis://[::1]x"}},
	{"host 1 has no IPv6 address between its brackets",
	 {"redis://[]:1", "redis://[1.2.3.4]", "redis://[::1%25lo]",
	  "redis://[0000:0000:0000:0000:0000:0000:0000:0000:0000:0000]"}},
	{"host 1 has more than one ':'; an IPv6 address is written in brackets", {"redis://fe80::1"}},
	{"host 1 is not a name: letters, digits, '.', '-' and '_', at most 253", {"redis://h%41"}},
	{"the user has no password: must be user:password@ or :password@",
	 {"redis://u@h", "redis://@h", "redis://u:@h", "redis://:@h"}},
	{"'@' in a user or password is written %40", {"redis://u:p@q@h", "redis://u@v:p@h"}},
	{"option 1 is empty: must be NAME=VALUE", {"fs:///a?", "fs:///a?=1"}},
	{"option 2 is empty: must be NAME=VALUE", {"fs:///a?x=1&", "fs:///a?x=1&&y=2"}},
	{"option x has no value: must be NAME=VALUE", {"fs:///a?x", "fs:///a?x="}},
	{"option x is given twice", {"fs:///a?x=1&y=2&x=1", "fs:///a?x=1&%78=1"}},
};

START_LOOP_TEST(each_malformed_url_has_its_message, 0, sizeof(malformed) / sizeof(malformed[0]))
{
	for (size_t i = 0; i < sizeof(malformed[0].texts) / sizeof(char *) && malformed[_i].texts[i]; i++) {
		struct scout__l2_url url = {.n_hosts = 77};
		const char *text = malformed[_i].texts[i];

		ck_assert_int_eq(scout__l2_url_parse(text, &url, err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
		ck_assert_msg(strcmp(err, malformed[_i].message) == 0, "%s: %s", text, err);
		ck_assert_uint_eq(url.n_hosts, 77);
		ck_assert_int_eq(scout__l2_url_parse(text, &url, NULL, 0), SCOUT_ERR_CONFIG_RANGE);
	}
}
END_TEST

/* Appends @n times, with the number in it where @format has one. */
static char *
repeat(const char *head, const char *format, unsigned n)
{
	size_t size = strlen(head) + (strlen(format) + 10) * n + 1;
	char *text = malloc(size);
	size_t len = (size_t)snprintf(text, size, "%s", head);

	for (unsigned i = 0; i < n; i++) {
		const char *number = strchr(format, '#');

		len += (size_t)snprintf(text + len, size - len, "%.*s%u%s", (int)(number - format), format, i,
					number + 1);
	}
	return text;
}

static void
check_limit(const char *head, const char *format, unsigned n, const char *message)
{
	struct scout__l2_url url;
	char *text = repeat(head, format, n);

	ck_assert_int_eq(scout__l2_url_parse(text, &url, err, sizeof(err)), 0);
	scout__l2_url_fini(&url);
	free(text);
	text = repeat(head, format, n + 1);
	ck_assert_int_eq(scout__l2_url_parse(text, &url, err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(err, message);
	free(text);
}

START_TEST(limits_are_told)
{
	static char text[SCOUT__L2_URL_MAX + 2] = "fs:///";
	struct scout__l2_url url;

	check_limit("redis://h:1", ",h#:1", SCOUT__L2_MAX_HOSTS - 1, "more than 64 hosts");
	check_limit("fs:///a?x=1", "&x#=1", SCOUT__L2_MAX_URL_OPTIONS - 1, "more than 32 options");
	memset(text + 6, 'x', SCOUT__L2_URL_MAX - 6);
	ck_assert_int_eq(scout__l2_url_parse(text, &url, err, sizeof(err)), 0);
	ck_assert_uint_eq(strlen(url.path), SCOUT__L2_URL_MAX - 5);
	scout__l2_url_fini(&url);
	text[SCOUT__L2_URL_MAX] = 'x';
	ck_assert_int_eq(scout__l2_url_parse(text, &url, err, sizeof(err)), SCOUT_ERR_CONFIG_RANGE);
	ck_assert_str_eq(err, "longer than 4096 bytes");
}
END_TEST

static const struct {
	const char *text, *shown;
} masks[] = {
	/* Right ones. */
	{"fs:///a@b:c", "fs:///a@b:c"},
	{"fs:///a?x=y:z", "fs:///a?x=y:z"},
	{"redis://h:1,[::1]:2,i", "redis://h:1,[::1]:2,i"},
	{"redis://u:secret@h:1,i:2?ttl=1", "redis://u:***@h:1,i:2?ttl=1"},
	{"redis://:secret@h", "redis://:***@h"},
	{"redis://u:1,secret/secret@h", "redis://u:***@h"},
	/* Wrong ones. */
	{"redis://secret@h", "redis://***"},
	{"redis://u:secret@secret@h", "redis://***"},
	{"redis://u:secret/secret@h:1", "redis://***"},
	{"redis://u:secret?secret@h", "redis://***"},
	{"redis://u:secret", "redis://***"},
	{"redis://h:1,u:secret,i:2/x", "redis://***"},
	{"redis://u:secret@i:secret", "redis://***"},
	{"redis:u:secret@h", "***"},
	{"redis:/u:secret@h", "***"},
	{"secret@redis://h", "***"},
	{"u:secret@redis://h", "***"},
	{"@", "***"},
	{"", ""},
	{"/var/cache", "/var/cache"},
	{"fs:///a?x", "fs:///a?x"},
	{"redis://:,:,:", "redis://***"},
};

START_LOOP_TEST(no_message_shows_a_password, 0, sizeof(masks) / sizeof(masks[0]))
{
	char *shown = scout__l2_url_mask(masks[_i].text);
	struct scout__l2_url url;

	ck_assert_str_eq(shown, masks[_i].shown);
	ck_assert_ptr_null(strstr(shown, "secret"));
	free(shown);
	if (scout__l2_url_parse(masks[_i].text, &url, err, sizeof(err)) == 0) {
		ck_assert_str_eq(url.shown, masks[_i].shown);
		if (scout__l2_url_need_hosts(&url, err, sizeof(err)) || scout__l2_url_need_folder(&url, err, 512))
			ck_assert_ptr_null(strstr(err, "secret"));
		scout__l2_url_fini(&url);
	} else {
		ck_assert_ptr_null(strstr(err, "secret"));
	}
}
END_TEST

static void
check_needs(const char *text, const char *folder, const char *hosts)
{
	struct scout__l2_url url = parse(text);

	err[0] = '\0';
	ck_assert_int_eq(scout__l2_url_need_folder(&url, err, sizeof(err)), folder ? SCOUT_ERR_CONFIG_RANGE : 0);
	ck_assert_str_eq(err, folder ? folder : "");
	err[0] = '\0';
	ck_assert_int_eq(scout__l2_url_need_hosts(&url, err, sizeof(err)), hosts ? SCOUT_ERR_CONFIG_RANGE : 0);
	ck_assert_str_eq(err, hosts ? hosts : "");
	scout__l2_url_fini(&url);
}

START_TEST(what_an_adapter_needs_is_checked)
{
	static const char no_host[] = "fs takes no host, and its path is absolute: must be fs:///path with three "
				      "slashes";
	static const char no_path[] = "fs takes no path; a '/' in a password is written %2F";
	static const char need_host[] = "the host is missing: must be fs://host:port, or several with ',' between them";

	check_needs("fs:///a", NULL, no_path);
	check_needs("fs://a/b", no_host, no_path);
	check_needs("fs://relative", no_host, NULL);
	check_needs("fs://", "the path is missing: must be fs:///path", need_host);
	check_needs("fs://?x=1", "the path is missing: must be fs:///path", need_host);
	check_needs("fs:///", "the path is the root folder: must be fs:///path", need_host);
	check_needs("fs:////", "the path is the root folder: must be fs:///path", no_path);
}
END_TEST

struct cfg {
	uint32_t size;
	uint32_t threads;
	uint64_t max_bytes;
	void *owned;
};

static const struct scout__option options[] = {
	{.name = "threads",
	 .type = SCOUT_OPTION_U32,
	 .offset = offsetof(struct cfg, threads),
	 .def = 4,
	 .min = 1,
	 .max = 64,
	 .doc = "d"},
	{.name = "max_bytes",
	 .type = SCOUT_OPTION_SIZE,
	 .offset = offsetof(struct cfg, max_bytes),
	 .min = 0,
	 .max = UINT64_C(1) << 50,
	 .doc = "d"},
};

static const struct scout__option_table table = {
	.options = options,
	.n = 2,
	.struct_size = sizeof(struct cfg),
	.v1_size = sizeof(struct cfg),
	.owned_offset = offsetof(struct cfg, owned),
};

START_TEST(options_go_through_the_adapters_table)
{
	static const struct {
		const char *text;
		int code;
		const char *message;
	} cases[] = {
		{"fs:///a?thread=2", SCOUT_ERR_CONFIG_KEY,
		 "option 1: \"thread\" is no configuration key; did you mean threads?"},
		{"fs:///a?max_bytes=1&threads=65", SCOUT_ERR_CONFIG_RANGE, "option 2: threads = \"65\": must be 1..64"},
		{"fs:///a?threads=0", SCOUT_ERR_CONFIG_RANGE, "option 1: threads = \"0\": must be 1..64"},
		{"fs:///a?threads=two", SCOUT_ERR_CONFIG_SYNTAX,
		 "option 1: threads = \"two\": must be a number, 1..64"},
	};
	struct scout__l2_url url = parse("fs:///a?max_bytes=2Ki");
	struct cfg cfg;

	ck_assert_int_eq(scout__l2_url_options(&url, &table, &cfg, err, sizeof(err)), 0);
	ck_assert_uint_eq(cfg.threads, 4);
	ck_assert_uint_eq(cfg.max_bytes, 2048);
	scout__options_fini(&table, &cfg);
	scout__l2_url_fini(&url);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		url = parse(cases[i].text);
		ck_assert_int_eq(scout__l2_url_options(&url, &table, &cfg, err, sizeof(err)), cases[i].code);
		ck_assert_str_eq(err, cases[i].message);
		scout__l2_url_fini(&url);
	}
}
END_TEST

/* Any bytes at all: no crash, and a password that is marked never shows. */
START_TEST(random_text_is_survived)
{
	static const char *const pieces[] = {"fs",  "redis", "://", ":", "/", "?", "@", ",", "[",  "]",
					     "::1", "%41",   "%",   "=", "&", "h", "1", "x", "%00"};
	unsigned seed = 1;

	for (unsigned round = 0; round < 200000; round++) {
		struct scout__l2_url url;
		char text[128] = "";
		size_t len = 0;
		char *shown;

		for (unsigned n = (unsigned)rand_r(&seed) % 16; n; n--) {
			const char *piece = pieces[(unsigned)rand_r(&seed) % (sizeof(pieces) / sizeof(pieces[0]))];

			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s", piece);
		}
		shown = scout__l2_url_mask(text);
		ck_assert_ptr_nonnull(shown);
		if (scout__l2_url_parse(text, &url, err, sizeof(err)) == 0) {
			ck_assert_str_eq(url.shown, shown);
			scout__l2_url_fini(&url);
		}
		free(shown);
	}
}
END_TEST
