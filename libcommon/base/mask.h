/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Passwords: what of a text may be shown. Any thread. */

/*
 * @text without the passwords of URLs, for everything that people and logs see: between the first ':' after "://" and the last '@' of the
 * word stands ***, without a ':' all before the '@'. A URL with no host (fs:///path) has no password. Cut at @len.
 */
void scout__mask(const char *text, char *buf, size_t len);
#define SCOUT__MASK_ROOM 4u /* by how much a text with one URL may grow, with its terminator */
