# SPDX-License-Identifier: Apache-2.0
"""Counting cases, and comparing answers token for token."""

import dataclasses
import json
import os

LOGPROB_TOLERANCE = 2e-3  # float32 sums in another order, when the batch differs
DISTINCT_TOKENS = 8


class Failed(Exception):
    """What a case found wrong, in a sentence."""


class Skip(Exception):
    """What this machine lacks for a case."""


def need(holds, sentence):
    if not holds:
        raise Failed(sentence)


@dataclasses.dataclass
class Tally:
    """What all cases of this process have done so far; each line of a case shows its own part. Hits are prompt tokens
    that a connector brought, as vLLM counts them for its "External prefix cache hit rate"."""

    requests: int = 0
    tokens: int = 0  # compared with those of the engine without a connector
    differ: int = 0
    hits: int = 0
    errors: int = 0  # requests that ended otherwise than by their length

    def copy(self):
        return dataclasses.replace(self)

    def since(self, before):
        return Tally(**{name: value - getattr(before, name) for name, value in vars(self).items()})

    def add(self, other):
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    def __str__(self):
        return (
            f"{self.requests} requests, {self.tokens} tokens compared, {self.differ} differ, {self.hits} tokens hit,"
            f" {self.errors} errors"
        )


tally = Tally()


class Cases:
    """Runs cases in order, prints a line for each, and counts."""

    def __init__(self, only=None):
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self._only = only

    def run(self, name, case, *args):
        if self._only and self._only not in name:
            return
        before = tally.copy()
        try:
            note = case(*args)
            need(tally.errors == before.errors, "requests ended with an error")
        except Failed as failure:
            self._line("failed", name, str(failure), tally.since(before))
        except Skip as reason:
            self.skip(name, str(reason))
        else:
            self._line("passed", name, note, tally.since(before))

    def skip(self, name, reason):
        self._line("skipped", name, reason)

    def _line(self, result, name, note, done=None):
        self.counts[result] += 1
        parts = [str(part) for part in (done if done and done.requests else None, note) if part]
        print(f"== {result} {name}: " + "; ".join(parts), flush=True)


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

    def _find(self, prompt, output_tokens):
        key = self._key(prompt, output_tokens)
        need(key in self._found, f"{self._path} has no answer to a prompt of {len(prompt)} tokens: run the session that makes the reference")
        return self._found[key]

    def tokens(self, prompt, output_tokens):
        return self._find(prompt, output_tokens)[0]

    def save(self):
        with open(self._path, "w") as file:
            json.dump(self._found, file)

    def compare(self, prompts, output_tokens, answers):
        """How many tokens were compared; raises on the first answer that differs."""
        compared = 0
        for at, (prompt, answer) in enumerate(zip(prompts, answers)):
            tokens, logprobs = self._find(prompt, output_tokens)
            tally.tokens += len(tokens)
            tally.differ += sum(a != b for a, b in zip(answer.tokens, tokens))
            need(
                answer.tokens == tokens,
                f"the answer to prompt {at} ({len(prompt)} tokens) is {answer.tokens}, without connector {tokens}",
            )
            worst = max((abs(a - b) for a, b in zip(answer.logprobs, logprobs)), default=0.0)
            need(worst <= LOGPROB_TOLERANCE, f"a logprob of prompt {at} differs by {worst:.2g}")
            compared += len(tokens)
        return compared
