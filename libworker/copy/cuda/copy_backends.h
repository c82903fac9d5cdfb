/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "copy.h"

extern const struct scout__copy_ops scout__copy_cuda;

/* The backend of that name; NULL when this build does not have it. */
const struct scout__copy_ops *scout__copy_find(const char *name);
/* Test aid: scout__copy_find() finds @ops by its name in place of the build's backend; NULL: switched off. Call before workers are made. */
void scout__copy_override(const struct scout__copy_ops *ops);
