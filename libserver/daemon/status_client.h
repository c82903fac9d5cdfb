/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_ASK_H
#define SCOUT_SERVER_ASK_H

/*
 * Print the counters of the server at @endpoint, one "name value" on each line. @secret_file: the server's own secret
 * key if it has one, else NULL. Returns an exit status: 1 when it does not answer.
 */
int scout__ask_status(const char *endpoint, const char *secret_file);

#endif
