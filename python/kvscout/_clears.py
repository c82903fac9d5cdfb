# SPDX-License-Identifier: Apache-2.0
"""What became of a clear: it is told to the servers in the background, and an engine's operator wants to know."""

import time

from ._kvscout import Client

TURNS, TURN_S = 200, 0.01


def what_is_missing(client: Client) -> str:
    """After a clear or reset of @client: "" once all servers have answered, and their stores have recorded it; else a sentence. Blocks
    for two seconds at most."""
    for _ in range(TURNS):
        counters = client.stats()
        if not counters["servers_untold"]:
            break
        time.sleep(TURN_S)
    if counters["servers_untold"]:
        return f"{counters['servers_untold']} server(s) have not answered: they are told as soon as they do; what they hold may be served until then"
    if counters["stores_behind"]:
        return f"{counters['stores_behind']} L2 store(s) have not recorded it: they are not used until they have; see the server's log"
    return ""
