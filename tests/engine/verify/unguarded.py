# SPDX-License-Identifier: Apache-2.0
"""The connector without the refusal of layers whose KV depends on the tokens after them, to see what comparisons find then. vLLM imports this
file in the scheduler's process and in each worker."""

from kvscout.vllm import refusals
from kvscout.vllm.connector import KVScoutConnector as KVScoutConnector

refusals._NOT_CAUSAL = ()
