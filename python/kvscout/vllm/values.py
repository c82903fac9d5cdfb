# SPDX-License-Identifier: Apache-2.0
"""Values that a user wrote into a dict of vLLM's configuration: each is read and checked. A wrong one is refused with a
sentence that says what is allowed."""

import re

_SUFFIX = {
    "": 1,
    "k": 1000,
    "m": 1000**2,
    "g": 1000**3,
    "t": 1000**4,
    "ki": 1024,
    "mi": 1024**2,
    "gi": 1024**3,
    "ti": 1024**4,
}


class ConfigError(ValueError):
    """A key of the configuration is wrong. The text says what is allowed."""


def shown(value):
    """@value for an error, without the passwords of URLs."""
    return re.sub(r"(://(?!/)[^:@\s]*:)\S*@", r"\1***@", repr(value))


class Values:
    """@given: the dict. @where: what the user calls it, for the errors. @keys: all keys that there are, with their
    meanings."""

    def __init__(self, where, given, keys):
        self.where = where
        self.given = given
        unknown = sorted(set(given) - set(keys), key=str)
        if unknown:
            known = "; ".join(f"{key}: {meaning}" for key, meaning in keys.items())
            raise ConfigError(f"kvscout: {where} has no key {unknown[0]!r}. There are: {known}")

    def bad(self, key, value, allowed):
        return ConfigError(f"kvscout: {self.where}: {key}={shown(value)} is not allowed: {allowed}")

    def word(self, key, words):
        """One of @words, by default the first."""
        value = self.given.get(key, words[0])
        if value not in words:
            raise self.bad(key, value, "it is one of " + ", ".join(words))
        return value

    def number(self, key, default, low, high):
        value, allowed = self.given.get(key, default), f"it is a whole number from {low} to {high}"
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self.bad(key, value, allowed)
        match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?i?)b?\s*", str(value).lower())
        if match is None or match[2] == "i":
            raise self.bad(key, value, allowed + ", which may have a suffix such as Mi or Gi")
        number = int(match[1]) * _SUFFIX[match[2]]
        if not low <= number <= high:
            raise self.bad(key, value, allowed)
        return number

    def share(self, key, default):
        value = self.given.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise self.bad(key, value, "it is a number from 0 to 1")
        return value

    def text(self, key, longest=4096):
        """None if the key is not there."""
        value = self.given.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value or len(value.encode()) > longest or "\0" in value:
            raise self.bad(key, value, f"it is a text of 1 to {longest} bytes")
        return value

    def checked(self, key, default, is_allowed, allowed):
        """A text or a number, as the text that @is_allowed takes. @allowed: what the error says."""
        value = self.given.get(key, default)
        if not is_allowed(str(value)):
            raise self.bad(key, value, allowed)
        return str(value)

    def urls(self, key):
        value = self.given.get(key, ())
        urls = [value] if isinstance(value, str) else value
        if not isinstance(urls, list | tuple) or not all(isinstance(url, str) and url.split() == [url] for url in urls):
            raise self.bad(
                key, value, "it is a URL without blanks, as fs:///path or redis://host:port, or a list of them"
            )
        return tuple(urls)
