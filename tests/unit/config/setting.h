/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_SETTING_H
#define KVSCOUT_TESTS_SETTING_H

struct setting {
	const char *key;
	const char *value;
};

#define PUBLIC_KEY "0123456789012345678901234567890123456789"

#endif
