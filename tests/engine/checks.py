# SPDX-License-Identifier: Apache-2.0
"""Counting cases, and comparing answers token for token."""

import json
import os

LOGPROB_TOLERANCE = 2e-3  # float32 sums in another order, when the batch differs
DISTINCT_TOKENS = 8


class Failed(Exception):
    """What a case found wrong, in a sentence."""


def need(holds, sentence):
    if not holds:
        raise Failed(sentence)


class Cases:
    """Runs cases in order, prints a line for each, and counts."""

    def __init__(self, only=None):
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self._only = only

    def run(self, name, case, *args):
        if self._only and self._only not in name:
            return
        try:
            note = case(*args)
        except Failed as failure:
            self._line("failed", name, str(failure))
        else:
            self._line("passed", name, note)

    def skip(self, name, reason):
        self._line("skipped", name, reason)

    def _line(self, result, name, note):
        self.counts[result] += 1
        print(f"== {result} {name}" + (f": {note}" if note else ""), flush=True)


class Reference:
    """Answers of the engine without a connector, by prompt and number of output tokens."""

    def __init__(self, path):
        self._path = path
        self._found = {}
        if os.path.exists(path):
            with open(path) as file:
                self._found = json.load(file)

    @staticmethod
    def _key(prompt, output_tokens):
        return f"{output_tokens}:" + ",".join(map(str, prompt))

    def add(self, prompt, output_tokens, answer):
        self._found[self._key(prompt, output_tokens)] = [answer.tokens, answer.logprobs]

    def tokens(self, prompt, output_tokens):
        return self._found[self._key(prompt, output_tokens)][0]

    def save(self):
        with open(self._path, "w") as file:
            json.dump(self._found, file)

    def compare(self, prompts, output_tokens, answers):
        """How many tokens were compared; raises on the first that differs."""
        compared = 0
        for at, (prompt, answer) in enumerate(zip(prompts, answers)):
            tokens, logprobs = self._found[self._key(prompt, output_tokens)]
            need(
                answer.tokens == tokens,
                f"the answer to prompt {at} ({len(prompt)} tokens) is {answer.tokens}, without connector {tokens}",
            )
            worst = max((abs(a - b) for a, b in zip(answer.logprobs, logprobs)), default=0.0)
            need(worst <= LOGPROB_TOLERANCE, f"a logprob of prompt {at} differs by {worst:.2g}")
            compared += len(tokens)
        return compared
