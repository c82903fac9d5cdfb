/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SCOUT_SERVER_ACCEPT_GUARD_H
#define SCOUT_SERVER_ACCEPT_GUARD_H

/* Take the spare descriptor: from now on no accept of this process fails for lack of one. For kvscoutd only. */
void scout__accept_guard_init(void);

#endif
