/* SPDX-License-Identifier: Apache-2.0 */
#include "option.h"

#include <stdarg.h>
#include <stdio.h>

#include "option_parse.h"
#include "thread.h"

/* The option table as Markdown: for --help of the tools and for docs/configuration.md. Any thread. */

struct help_text {
	char *buf;
	size_t len;
	size_t n; /* that the whole text has so far, also when it does not fit */
};

__attribute__((format(printf, 2, 3))) static void
add(struct help_text *text, const char *fmt, ...)
{
	size_t room = text->n < text->len ? text->len - text->n : 0;
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(room ? text->buf + text->n : NULL, room, fmt, args);
	va_end(args);
	/* Only formats that cannot fail are used. */
	SCOUT_ASSERT(n >= 0);
	text->n += (size_t)n;
}

static const char *
default_of(const struct scout__option *option, char buf[SCOUT__OPTION_TEXT])
{
	if (option->def_text)
		return option->def_text;
	if (option->type == SCOUT_OPTION_STRING || option->type == SCOUT_OPTION_LIST)
		return "none";
	return scout__option_number(option, option->def, buf);
}

size_t
scout__options_help(const struct scout__option_table *table, char *buf, size_t len)
{
	struct help_text text = {.buf = buf, .len = buf ? len : 0};
	char def[SCOUT__OPTION_TEXT];
	char range[SCOUT__OPTION_TEXT];

	add(&text, "| Key | Default | Range | Meaning |\n");
	add(&text, "|---|---|---|---|\n");
	for (size_t i = 0; i < table->n; i++) {
		const struct scout__option *option = &table->options[i];

		add(&text, "| `%s` | %s | %s | %s", option->name, default_of(option, def),
		    scout__option_range(option, range), option->doc);
		if (option->alias)
			add(&text, " (also spelt `%s`)", option->alias);
		add(&text, " |\n");
	}
	return text.n;
}
