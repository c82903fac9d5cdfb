/* SPDX-License-Identifier: Apache-2.0 */
#include "check_main.h"

int
main(void)
{
	return run_suite(suite_of_this_file());
}
