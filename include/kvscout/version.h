/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVSCOUT_VERSION_H
#define KVSCOUT_VERSION_H

/*
 * Version of the library and the export macro. Every public header includes this one.
 */

#define SCOUT_VERSION_MAJOR 0
#define SCOUT_VERSION_MINOR 1
#define SCOUT_VERSION_PATCH 0
#define SCOUT_VERSION_STRING "0.1.0"

#if defined(__GNUC__)
#define SCOUT_API __attribute__((visibility("default")))
#define SCOUT_MUST_CHECK __attribute__((warn_unused_result))
#else
#define SCOUT_API
#define SCOUT_MUST_CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/**
 * The version of the library that is linked, as "major.minor.patch".
 *
 * Thread:   any.
 * Blocks:   no.
 * Returns:  a static string.
 */
SCOUT_API const char *scout_version(void);

#ifdef __cplusplus
}
#endif

#endif
