/* SPDX-License-Identifier: Apache-2.0 */
#include "option.h"

#include <stdio.h>

#include "option_parse.h"
#include "sized.h"

/* The rows of the option table, for --help of kvscoutd and for docs/configuration.md. Any thread. */

static const char *
default_of(const struct scout__option *option, char buf[SCOUT__OPTION_TEXT])
{
	if (option->def_text)
		return option->def_text;
	if (option->type == SCOUT_OPTION_STRING || option->type == SCOUT_OPTION_LIST)
		return "none";
	return scout__option_number(option, option->def, buf);
}

int
scout__options_row(const struct scout__option_table *table, size_t i, struct scout_config_row *ret_row, size_t size)
{
	const struct scout__option *option = i < table->n ? &table->options[i] : NULL;
	char def[SCOUT__OPTION_TEXT], range[SCOUT__OPTION_TEXT];
	struct scout_config_row row = {0};
	int rc = scout__sized_check(SCOUT__SIZE_UP_TO(struct scout_config_row, range), size);

	if (!option || !ret_row)
		return SCOUT_ERR_INVALID;
	if (rc)
		return rc;
	row.name = option->name;
	row.alias = option->alias;
	row.meaning = option->doc;
	(void)snprintf(row.def, sizeof(row.def), "%s", default_of(option, def));
	(void)snprintf(row.range, sizeof(row.range), "%s", scout__option_range(option, range));
	scout__sized_write(ret_row, size, &row, sizeof(row));
	return 0;
}
