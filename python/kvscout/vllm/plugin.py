# SPDX-License-Identifier: Apache-2.0
"""The entry point `vllm.general_plugins`: makes KVScoutConnector and the tier known to vLLM by their names.

vLLM calls register() in each of its processes, in some more than once, and an exception would end that process,
whichever connector it was started for. So this never raises, and the connector's module is imported only when vLLM
makes one.
"""

import logging

NAME = "KVScoutConnector"
MODULE = "kvscout.vllm"  # not .connector: there the class comes without the checks of start.py
TIER = "kvscout"
TIER_MODULE = "kvscout.vllm_tier"  # not .tier, likewise


def register():
    _try("KVScoutConnector", '"kv_connector_module_path": "kvscout.vllm"', _register_connector)
    _try("The tier kvscout", '"type": "KVScoutTier", "module_path": "kvscout.vllm_tier"', _register_tier)


def _try(what, instead, call):
    try:
        call()
    except Exception as error:
        logging.getLogger("vllm.kvscout").warning(
            "kvscout: %s is not known by name, because registering it with this vLLM failed: %s. Name it by its "
            "module: %s",
            what,
            error,
            instead,
        )


def _register_connector():
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    if NAME not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector(NAME, MODULE, NAME)


def _register_tier():
    from vllm.v1.kv_offload.tiering.factory import SecondaryTierFactory

    if TIER not in SecondaryTierFactory._registry:
        SecondaryTierFactory.register_tier(TIER, TIER_MODULE, "KVScoutTier")
