# SPDX-License-Identifier: Apache-2.0
"""The entry point `vllm.general_plugins`: makes KVScoutConnector known to vLLM by its name.

vLLM calls register() in each of its processes, in some more than once, and an exception would end that process, whichever connector it was
started for. So this never raises, and the connector's module is imported only when vLLM makes one.
"""

import logging

NAME = "KVScoutConnector"
MODULE = "kvscout.vllm.connector"


def register():
    try:
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

        if NAME not in KVConnectorFactory._registry:
            KVConnectorFactory.register_connector(NAME, MODULE, NAME)
    except Exception as error:
        logging.getLogger("vllm.kvscout").warning(
            "kvscout: KVScoutConnector is not known by name, because registering it with this vLLM failed: %s. Name it by its module: "
            '"kv_connector_module_path": "kvscout.vllm"',
            error,
        )
