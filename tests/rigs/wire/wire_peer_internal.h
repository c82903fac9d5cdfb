/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

_Noreturn void wire_die(const char *what, const char *file, int line);

#define MUST(x) ((x) ? (void)0 : wire_die(#x, __FILE__, __LINE__))
