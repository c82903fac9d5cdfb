/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Draw a CURVE key: the secret one into a new file @path for its owner only, the public one to stdout. An exit status.
 */
int scout__keygen(const char *path);
