/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_TESTS_WIRE_PEER_INTERNAL_H
#define KVSCOUT_TESTS_WIRE_PEER_INTERNAL_H

_Noreturn void wire_die(const char *what, const char *file, int line);

#define MUST(x) ((x) ? (void)0 : wire_die(#x, __FILE__, __LINE__))

#endif
