/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_MSG_GOLDEN_H
#define KVSCOUT_TESTS_MSG_GOLDEN_H

#include "../../libclient/base/msg.h"

/*
 * One body of every kind, byte by byte as <kvscout/protocol.h> orders them. Written by hand from that file and not by
 * the codec: this is what a stranger's client would send. Hashes have 16 bytes. Where a range allows it, all bytes of
 * a number differ, so that a wrong order, width or place is seen.
 */

enum {
	GOLDEN_HASH_BYTES = 16
};

static const uint8_t golden_hello[] = {
	0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /*  0 token */
	0x02, 0x00,                                     /*  8 role */
	0x10, 0x00,                                     /* 10 hash_bytes */
	0x00, 0x01, 0x02, 0x03,                         /* 12 chunk_tokens */
	0x02, 0x00,                                     /* 16 rank_first */
	0x03, 0x00,                                     /* 18 rank_count */
	0x08, 0x00,                                     /* 20 kv_ranks */
	0x04, 0x00,                                     /* 22 readers */
	0x0d, 0x0c, 0x0b, 0x0a,                         /* 24 heartbeat_ms */
	0x00, 0x00, 0x00, 0x00,                         /* 28 reserved */
	0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, /* 32 weights */
	0x03, 0x00, 'n',  's',  '1',                    /* 40 namespace */
};

static const uint8_t golden_hello_reply[] = {
	0x04, 0x03, 0x02, 0x01,                              /*  0 credits */
	0x01, 0xfe, 0xff, 0x00,                              /*  4 max_frame */
	0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,      /*  8 weights */
	0x07, 0x00, 'k',  'v',  's',  'c',  'o',  'u',  't', /* 16 software */
	0x06, 0x00, '/',  'r',  'u',  'n',  '/',  'l',       /* 25 lease_path */
};

static const uint8_t golden_lookup[] = {
	0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, /*  0 ticket */
	0x02, 0x00, 0x00, 0x00,                         /*  8 n */
	0x01, 0x00, 0x00, 0x00,                         /* 12 skip */
	0x02, 0x00, 0x00, 0x00,                         /* 16 expect */
	0x14, 0x13, 0x12, 0x11,                         /* 20 poll_timeout_ms */
	0x24, 0x23, 0x22, 0x21,                         /* 24 poll_interval_ms */
	0x00, 0x00,                                     /* 28 group */
	0x00, 0x00,                                     /* 30 reserved */
	0x02, 0x00, 't',  'e',                          /* 32 tenant */
	0xa0, 0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, /* 36 hash 0 */
	0xa8, 0xa9, 0xaa, 0xab, 0xac, 0xad, 0xae, 0xaf, /* */
	0xb0, 0xb1, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, /* 52 hash 1 */
	0xb8, 0xb9, 0xba, 0xbb, 0xbc, 0xbd, 0xbe, 0xbf, /* */
};

static const uint8_t golden_lookup_reply[] = {
	0x01, 0x02, 0x03, 0x00, /*  0 hit */
	0x04, 0x05, 0x02, 0x00, /*  4 l1 */
	0x06, 0x07, 0x00, 0x00, /*  8 l2 */
	0x01, 0x00, 0x00, 0x00, /* 12 limited */
};

static const uint8_t golden_admit[] = {
	0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, /*  0 ticket */
	0xa4, 0xa3, 0xa2, 0xa1,                         /*  8 from */
	0xb4, 0xb3, 0xb2, 0xb1,                         /* 12 to */
};

static const uint8_t golden_admit_reply[] = {
	0x45, 0x23, 0x01, 0x00, /*  0 kept */
	0x00, 0x00, 0x00, 0x00, /*  4 reserved */
};

static const uint8_t golden_finish[] = {
	0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, 0x41, /*  0 ticket */
};

static const uint8_t golden_reset[] = {
	0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, /*  0 weights */
};

static const uint8_t golden_register[] = {
	0x05, 0x00,                                     /*  0 kv_rank */
	0x06, 0x00,                                     /*  2 reader */
	0x13, 0x12, 0x11, 0x10,                         /*  4 block_tokens */
	0x02, 0x00,                                     /*  8 dtype */
	0x00, 0x00,                                     /* 10 reserved */
	0x02, 0x00, 0x00, 0x00,                         /* 12 n_planes */
	0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, 0x61, /* 16 plane 0 */
	0x78, 0x77, 0x76, 0x75, 0x74, 0x73, 0x72, 0x71, /* 24 plane 1 */
};

static const uint8_t golden_register_reply[] = {
	0x88, 0x87, 0x86, 0x85, 0x84, 0x83, 0x82, 0x81, /*  0 shard_bytes */
	0x98, 0x97, 0x96, 0x95, 0x94, 0x93, 0x92, 0x91, /*  8 slot_stride */
	0xc4, 0xc3, 0xc2, 0xc1,                         /* 16 segments */
	0x00, 0x00, 0x00, 0x00,                         /* 20 reserved */
};

static const uint8_t golden_store[] = {
	0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1, /*  0 ticket */
	0x01, 0x00, 0x00, 0x00,                         /*  8 n */
	0x00, 0x00,                                     /* 12 group */
	0x00, 0x00,                                     /* 14 reserved */
	0x01, 0x00, 't',                                /* 16 tenant */
	0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 0xc6, 0xc7, /* 19 hash 0 */
	0xc8, 0xc9, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, /* */
};

static const uint8_t golden_store_reply[] = {
	0xb8, 0xb7, 0xb6, 0xb5, 0xb4, 0xb3, 0xb2, 0xb1, /*  0 store_id */
	0x03, 0x00, 0x00, 0x00,                         /*  8 n */
	0x00, 0x00, 0x00, 0x00,                         /* 12 reserved */
	0xd4, 0xd3, 0xd2, 0xd1,                         /* 16 grant 0: segment */
	0x01, 0x00,                                     /* 20 state GRANTED */
	0x00, 0x00,                                     /* 22 reserved */
	0xc8, 0xc7, 0xc6, 0xc5, 0xc4, 0xc3, 0xc2, 0xc1, /* 24 offset */
	0xe8, 0xe7, 0xe6, 0xe5, 0xe4, 0xe3, 0xe2, 0xe1, /* 32 generation */
	0x00, 0x00, 0x00, 0x00,                         /* 40 grant 1: segment */
	0x02, 0x00,                                     /* 44 state PRESENT */
	0x00, 0x00,                                     /* 46 reserved */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* 48 offset */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* 56 generation */
	0x00, 0x00, 0x00, 0x00,                         /* 64 grant 2: segment */
	0x03, 0x00,                                     /* 68 state NO_ROOM */
	0x00, 0x00,                                     /* 70 reserved */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* 72 offset */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* 80 generation */
};

static const uint8_t golden_store_done[] = {
	0xf8, 0xf7, 0xf6, 0xf5, 0xf4, 0xf3, 0xf2, 0xf1, /*  0 store_id */
	0x03, 0x02, 0x01, 0x00,                         /*  8 n */
	0x06, 0x05, 0x00, 0x00,                         /* 12 committed */
};

static const uint8_t golden_store_done_reply[] = {
	0x03, 0x02, 0x01, 0x00, /*  0 readable */
	0x00, 0x00, 0x00, 0x00, /*  4 reserved */
};

static const uint8_t golden_retrieve[] = {
	0x19, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, /*  0 ticket */
	0x06, 0x05, 0x00, 0x00,                         /*  8 from */
	0x03, 0x02, 0x01, 0x00,                         /* 12 to */
};

static const uint8_t golden_retrieve_reply[] = {
	0x29, 0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, /*  0 retrieve_id */
	0x02, 0x00, 0x00, 0x00,                         /*  8 n */
	0x00, 0x00, 0x00, 0x00,                         /* 12 reserved */
	0x00, 0x00, 0x00, 0x00,                         /* 16 grant 0: segment */
	0x04, 0x00,                                     /* 20 state MISSING */
	0x00, 0x00,                                     /* 22 reserved */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* 24 offset */
	0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* 32 generation */
	0xd5, 0xd4, 0xd3, 0xd2,                         /* 40 grant 1: segment */
	0x01, 0x00,                                     /* 44 state GRANTED */
	0x00, 0x00,                                     /* 46 reserved */
	0x39, 0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, /* 48 offset */
	0x49, 0x48, 0x47, 0x46, 0x45, 0x44, 0x43, 0x42, /* 56 generation */
};

static const uint8_t golden_retrieve_done[] = {
	0x59, 0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, /*  0 retrieve_id */
	0x64, 0x63, 0x62, 0x61,                         /*  8 mismatches */
	0x00, 0x00, 0x00, 0x00,                         /* 12 reserved */
};

static const uint8_t golden_status_reply[] = {
	0x02, 0x00, 0x00, 0x00,                         /*  0 n */
	0x02, 0x00, 'l',  '1',                          /*  4 name */
	0x69, 0x68, 0x67, 0x66, 0x65, 0x64, 0x63, 0x62, /*  8 value */
	0x05, 0x00, 'd',  'r',  'o',  'p',  's',        /* 16 name */
	0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, /* 23 value */
};

static const uint8_t golden_error[] = {
	0x04, 0x00, 'n', 'o', 'p', 'e', /*  0 text */
};

struct golden {
	uint8_t opcode, kind;
	const uint8_t *body;
	uint32_t len;
};

#define GOLDEN(op, kind, array)                                                                                        \
	{                                                                                                              \
		SCOUT_OP_##op, SCOUT_KIND_##kind, array, sizeof(array)                                                 \
	}
#define GOLDEN_EMPTY(op, kind)                                                                                         \
	{                                                                                                              \
		SCOUT_OP_##op, SCOUT_KIND_##kind, (const uint8_t *)"", 0                                               \
	}

static const struct golden goldens[] = {
	GOLDEN(HELLO, REQUEST, golden_hello),
	GOLDEN(HELLO, REPLY, golden_hello_reply),
	GOLDEN_EMPTY(PING, REQUEST),
	GOLDEN_EMPTY(PING, REPLY),
	GOLDEN(LOOKUP, REQUEST, golden_lookup),
	GOLDEN(LOOKUP, REPLY, golden_lookup_reply),
	GOLDEN(ADMIT, REQUEST, golden_admit),
	GOLDEN(ADMIT, REPLY, golden_admit_reply),
	GOLDEN(FINISH, REQUEST, golden_finish),
	GOLDEN_EMPTY(FINISH, REPLY),
	GOLDEN(RESET, REQUEST, golden_reset),
	GOLDEN_EMPTY(RESET, REPLY),
	GOLDEN(REGISTER, REQUEST, golden_register),
	GOLDEN(REGISTER, REPLY, golden_register_reply),
	GOLDEN(STORE, REQUEST, golden_store),
	GOLDEN(STORE, REPLY, golden_store_reply),
	GOLDEN(STORE_DONE, REQUEST, golden_store_done),
	GOLDEN(STORE_DONE, REPLY, golden_store_done_reply),
	GOLDEN(RETRIEVE, REQUEST, golden_retrieve),
	GOLDEN(RETRIEVE, REPLY, golden_retrieve_reply),
	GOLDEN(RETRIEVE_DONE, REQUEST, golden_retrieve_done),
	GOLDEN_EMPTY(RETRIEVE_DONE, REPLY),
	GOLDEN_EMPTY(STATUS, REQUEST),
	GOLDEN(STATUS, REPLY, golden_status_reply),
	GOLDEN(ERROR, REPLY, golden_error),
};
#undef GOLDEN
#undef GOLDEN_EMPTY

enum {
	N_GOLDENS = sizeof(goldens) / sizeof(goldens[0])
};

static inline const struct golden *
golden_of(uint8_t opcode, uint8_t kind)
{
	for (int i = 0; i < N_GOLDENS; i++) {
		if (goldens[i].opcode == opcode && goldens[i].kind == kind)
			return &goldens[i];
	}
	return NULL;
}

#endif
