/* SPDX-License-Identifier: Apache-2.0 */
#include "s3_sign.h"

#include <stdio.h>
#include <string.h>

#include "check_main.h"

/*
 * The four examples of "Signature Calculations for the Authorization Header" of the S3 documentation, and a query with a
 * session token whose signature botocore 1.43 calculated.
 */

#define ACCESS "AKIAIOSFODNN7EXAMPLE"
#define SECRET "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static struct scout__s3_to_sign
request(const char *method, const char *path, const char *query, const char *payload)
{
	return (struct scout__s3_to_sign){.method = method,
					  .path = path,
					  .query = query,
					  .payload = payload,
					  .region = "us-east-1",
					  .date = "20130524T000000Z",
					  .n_headers = 3,
					  .headers = {{"x-amz-date", "20130524T000000Z"},
						      {"x-amz-content-sha256", payload},
						      {"host", "examplebucket.s3.amazonaws.com"}}};
}

static void
header(struct scout__s3_to_sign *what, const char *name, const char *value)
{
	what->headers[what->n_headers++] = (struct scout__s3_pair){name, value};
}

/* The signature, and the headers that it covers. */
static void
signs_by(struct scout__s3_to_sign *what, const char *secret, const char *headers, const char *signature)
{
	char value[1024], expected[1024];
	struct scout__s3_text text = scout__s3_text_in(value, sizeof(value));

	ck_assert(scout__s3_sign(what, ACCESS, secret, &text));
	(void)snprintf(expected, sizeof(expected),
		       "AWS4-HMAC-SHA256 Credential=" ACCESS
		       "/20130524/us-east-1/s3/aws4_request,SignedHeaders=%s,Signature=%s",
		       headers, signature);
	ck_assert_str_eq(value, expected);
}

static void
signs(struct scout__s3_to_sign *what, const char *headers, const char *signature)
{
	signs_by(what, SECRET, headers, signature);
}

START_TEST(a_get_with_a_range)
{
	struct scout__s3_to_sign what = request("GET", "/test.txt", "", EMPTY);

	header(&what, "range", "bytes=0-9");
	signs(&what, "host;range;x-amz-content-sha256;x-amz-date",
	      "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}
END_TEST

START_TEST(a_put_with_the_hash_of_its_payload)
{
	char hash[SCOUT__S3_HASH_TEXT], path[64];
	struct scout__s3_text text = scout__s3_text_in(path, sizeof(path));
	char first[] = "Welcome to", second[] = " Amazon S3.";
	struct iovec parts[] = {{first, strlen(first)}, {second, strlen(second)}};
	struct scout__s3_to_sign what;

	scout__s3_put_encoded(&text, "/test$file.text", true);
	ck_assert(scout__s3_hash(parts, 2, hash));
	what = request("PUT", path, "", hash);
	header(&what, "x-amz-storage-class", "REDUCED_REDUNDANCY");
	header(&what, "date", "Fri, 24 May 2013 00:00:00 GMT");
	signs(&what, "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
	      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
}
END_TEST

START_TEST(a_query_of_a_name_without_a_value)
{
	struct scout__s3_to_sign what = request("GET", "/", "lifecycle=", EMPTY);

	signs(&what, "host;x-amz-content-sha256;x-amz-date",
	      "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}
END_TEST

/* What Python's hmac makes of it: such a key is hashed first. */
START_TEST(a_secret_longer_than_a_block)
{
	struct scout__s3_to_sign what = request("GET", "/", "lifecycle=", EMPTY);

	signs_by(&what, SECRET SECRET SECRET, "host;x-amz-content-sha256;x-amz-date",
		 "189e5fcf2d48cbc43968f3b1062f3721600bc68a5133c4ea677ed7d2e8d3e498");
}
END_TEST

START_TEST(a_query_is_sorted)
{
	char query[64];
	struct scout__s3_text text = scout__s3_text_in(query, sizeof(query));
	struct scout__s3_pair pairs[] = {{"prefix", "J"}, {"max-keys", "2"}};
	struct scout__s3_to_sign what;

	scout__s3_query(&text, pairs, 2);
	what = request("GET", "/", query, EMPTY);
	signs(&what, "host;x-amz-content-sha256;x-amz-date",
	      "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}
END_TEST

START_TEST(a_session_token_is_signed)
{
	char query[128];
	struct scout__s3_text text = scout__s3_text_in(query, sizeof(query));
	struct scout__s3_pair pairs[] = {{"prefix", "a b/"}, {"list-type", "2"}, {"continuation-token", "1+/="}};
	struct scout__s3_to_sign what;

	scout__s3_query(&text, pairs, 3);
	ck_assert_str_eq(query, "continuation-token=1%2B%2F%3D&list-type=2&prefix=a%20b%2F");
	what = request("GET", "/", query, EMPTY);
	header(&what, "x-amz-security-token", "a/session+token==");
	signs(&what, "host;x-amz-content-sha256;x-amz-date;x-amz-security-token",
	      "1edca8b67d4c4bb4951f171a584d840050334b7df97e39abd5c5026c61ff7416");
}
END_TEST

START_TEST(what_does_not_fit_is_not_signed)
{
	static char token[32768];
	char value[1024];
	struct scout__s3_text text = scout__s3_text_in(value, sizeof(value)), small = scout__s3_text_in(value, 32);
	struct scout__s3_to_sign what = request("GET", "/", "", EMPTY);

	ck_assert(!scout__s3_sign(&what, ACCESS, SECRET, &small));
	memset(token, 'a', sizeof(token) - 1);
	header(&what, "x-amz-security-token", token);
	ck_assert(!scout__s3_sign(&what, ACCESS, SECRET, &text));
	ck_assert_str_eq(value, "");
}
END_TEST

START_TEST(documents_are_read_by_name)
{
	const char *xml = "<R><Key>a&amp;b&lt;</Key><Key>c</Key><Long>0123456789</Long></R>", *next;
	const char *json = "{\"Code\" : \"Success\", \"Token\":\"a\\/b\\\"c\", \"Number\": 3, \"Open\": \"x";
	char text[8];

	ck_assert(scout__s3_xml(xml, "Key", text, sizeof(text), &next));
	ck_assert_str_eq(text, "a&b<");
	ck_assert(scout__s3_xml(next, "Key", text, sizeof(text), &next));
	ck_assert_str_eq(text, "c");
	ck_assert(!scout__s3_xml(next, "Key", text, sizeof(text), &next));
	ck_assert(!scout__s3_xml(xml, "Long", text, sizeof(text), NULL));
	ck_assert_str_eq(text, "");
	ck_assert(scout__s3_json(json, "Token", text, sizeof(text)));
	ck_assert_str_eq(text, "a/b\"c");
	ck_assert(scout__s3_json(json, "Code", text, sizeof(text)));
	ck_assert_str_eq(text, "Success");
	ck_assert(!scout__s3_json(json, "Number", text, sizeof(text)));
	ck_assert(!scout__s3_json(json, "Open", text, sizeof(text)));
}
END_TEST
