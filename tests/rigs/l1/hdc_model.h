/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "hdc_internal.h"

#include "policy_rig.h"

/*
 * The policy `hdc` and a naive model of it, in step: the model looks at every entry for each decision, and the two must
 * agree. List of evicted keys, history and densities have models and tests of their own, so the model uses the real ones.
 * One to a test, on the rig's policy.
 */

enum {
	HDC_MODEL_MAX = 600, /* entries */
	HDC_MODEL_CHUNKS = 40
};

void hdc_model_open(uint32_t n);
void hdc_model_close(void);
const struct scout__hdc *hdc_model_policy(void);
/*
 * A session: chunks [@from, @from + @n), looked up, pinned and let go of, stored where they are missing, touched. Returns
 * how many were there.
 */
uint32_t hdc_model_session(uint32_t from, uint32_t n, uint32_t kind, uint32_t hinted);
/* Whether the guard holds. */
bool hdc_model_guarded(void);
/* The invariants of the policy. */
void hdc_model_check(void);
