/* SPDX-License-Identifier: Apache-2.0 */
#include "msg.h"

/*
 * The messages of the lease connection. Each is one packet of a fixed size. A message that is not exactly right is not repaired: its
 * sender is no peer. Any thread; no state.
 */

static size_t
lease_bytes(uint16_t type)
{
	switch (type) {
	case SCOUT_LEASE_HELLO:
		return SCOUT__LEASE_HELLO_BYTES;
	case SCOUT_LEASE_BYE:
	case SCOUT_LEASE_OK:
	case SCOUT_LEASE_GONE:
	case SCOUT_LEASE_ASK_CHANNEL:
	case SCOUT_LEASE_CHANNEL:
		return SCOUT__LEASE_SHORT_BYTES;
	case SCOUT_LEASE_SEGMENT:
		return SCOUT__LEASE_SEGMENT_BYTES;
	case SCOUT_LEASE_WITHDRAW:
	case SCOUT_LEASE_RELEASED:
		return SCOUT__LEASE_WITHDRAW_BYTES;
	default:
		return 0;
	}
}

static bool
has_no_word(uint16_t type)
{
	return type == SCOUT_LEASE_GONE || type == SCOUT_LEASE_ASK_CHANNEL;
}

size_t
scout__put_lease(uint8_t *buf, const struct scout__lease_msg *m)
{
	struct scout__writer w = {.buf = buf, .cap = lease_bytes(m->type)};

	if (w.cap == 0)
		return 0;
	scout__put_u32(&w, SCOUT_LEASE_MAGIC);
	scout__put_u16(&w, m->type);
	scout__put_u16(&w, SCOUT_LEASE_VERSION);
	if (m->type == SCOUT_LEASE_SEGMENT) {
		scout__put_u32(&w, m->segment);
		scout__put_u32(&w, m->slots);
		scout__put_u64(&w, m->bytes);
		scout__put_u64(&w, m->data_offset);
		scout__put_u64(&w, m->slot_stride);
	} else if (m->type == SCOUT_LEASE_WITHDRAW || m->type == SCOUT_LEASE_RELEASED) {
		scout__put_u32(&w, m->segment);
	} else if (m->type == SCOUT_LEASE_CHANNEL) {
		scout__put_u32(&w, m->request_bytes);
		scout__put_u32(&w, m->reply_bytes);
	} else {
		scout__put_u64(&w, has_no_word(m->type) ? 0 : m->word);
	}
	if (m->type == SCOUT_LEASE_HELLO)
		scout__put_secret(&w, &m->secret);
	return w.len;
}

bool
scout__get_lease(const void *buf, size_t len, struct scout__lease_msg *ret)
{
	struct scout__reader r = scout__reader_of(buf, len);
	struct scout__lease_msg m = {0};
	uint32_t magic = scout__get_u32(&r);
	uint16_t version;

	m.type = scout__get_u16(&r);
	version = scout__get_u16(&r);
	if (r.bad || magic != SCOUT_LEASE_MAGIC || version != SCOUT_LEASE_VERSION || len != lease_bytes(m.type))
		return false;
	if (m.type == SCOUT_LEASE_SEGMENT) {
		m.segment = scout__get_u32(&r);
		m.slots = scout__get_u32(&r);
		m.bytes = scout__get_u64(&r);
		m.data_offset = scout__get_u64(&r);
		m.slot_stride = scout__get_u64(&r);
	} else if (m.type == SCOUT_LEASE_WITHDRAW || m.type == SCOUT_LEASE_RELEASED) {
		m.segment = scout__get_u32(&r);
	} else if (m.type == SCOUT_LEASE_CHANNEL) {
		m.request_bytes = scout__get_u32(&r);
		m.reply_bytes = scout__get_u32(&r);
	} else {
		m.word = scout__get_u64(&r);
	}
	if (m.type == SCOUT_LEASE_HELLO)
		scout__get_secret(&r, &m.secret);
	if (has_no_word(m.type) && m.word != 0)
		return false;
	*ret = m;
	return true;
}
