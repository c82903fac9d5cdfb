/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Take the spare descriptor: from now on no accept of this process fails for lack of one. For kvscoutd only. */
void scout__accept_guard_init(void);
