/* SPDX-License-Identifier: Apache-2.0 */
/* A shared library that is no plugin. */
extern const int no_plugin;
const int no_plugin = 1;
