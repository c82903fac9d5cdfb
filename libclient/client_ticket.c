/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DESIGN
 *
 * Tickets of the client's sessions, on the caller's thread: random words that it draws ahead, one system call for many lookups.
 */
#include "client_internal.h"

#include <sys/random.h>

uint64_t
scout__client_ticket(struct scout_client *client)
{
	for (;;) {
		if (client->n_tickets == 0) {
			ssize_t got = getrandom(client->tickets, sizeof(client->tickets), GRND_NONBLOCK);

			if (got < (ssize_t)sizeof(client->tickets[0]))
				return 0; /* no entropy yet, at boot */
			client->n_tickets = (uint32_t)((size_t)got / sizeof(client->tickets[0]));
		}
		uint64_t ticket = client->tickets[--client->n_tickets];

		if (ticket != 0)
			return ticket;
	}
}
