#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One start of the engine and the cases that run in it: session.py SESSION --root FOLDER [--kvscoutd PROGRAM] [--only CASE].

A process of its own, because vLLM leaves threads and state behind. run.py starts the sessions one after the other. The last line is
`N passed, N failed, N skipped`.
"""

import argparse
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import models
from checks import Cases, Reference


class Context:
    def __init__(self, options, model):
        self.options = options
        self.kvscoutd = options.kvscoutd
        self.cases = Cases(options.only)
        self.short = options.short
        self.folder = models.make(model, os.path.join(options.root, "models"))
        self.reference = Reference(os.path.join(options.root, f"reference-{model}.json"))


def reference_session(model, names):
    def session(options):
        import reference
        from engine import Engine

        context = Context(options, model)
        engine = Engine(context.folder)
        try:
            context.cases.run("negative_control", reference.negative_control, engine)
            context.cases.run("distinct_answers", reference.distinct, engine, context.reference, names)
            context.reference.save()
        finally:
            engine.close()
        return context.cases

    return session


ALL = ("shared", "exact", "long", "crowd", "stream", "salted", "reset")
SESSIONS = {
    "llama-reference": reference_session("llama", ALL),
    "window-reference": reference_session("window", ("shared", "exact", "long")),
    "mla-reference": reference_session("mla", ("shared", "exact")),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("session", choices=sorted(SESSIONS))
    parser.add_argument("--root", required=True)
    parser.add_argument("--kvscoutd")
    parser.add_argument("--only")
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    cases = SESSIONS[options.session](options)
    print("{passed} passed, {failed} failed, {skipped} skipped".format(**cases.counts), flush=True)
    return 1 if cases.counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
