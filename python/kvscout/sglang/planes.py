# SPDX-License-Identifier: Apache-2.0
"""Where the pages of SGLang's host pool are: planes of equal pieces, by what the pool itself says of its pages."""


class Unsupported(ValueError):
    """The pool or the mode cannot be served. The text is a sentence for the user."""


def of_pool(pool, indices):
    """([(address, stride, bytes)], number of pages). @indices(list): as the tensor that the pool takes.

    The pool names the pieces of single pages; pages 0, 1 and the last one show base, stride and that all lie evenly."""
    if getattr(pool, "kv_buffer", None) is None:
        raise Unsupported(f"kvscout: {type(pool).__name__} has no KV of its own (a hybrid model), which this version does not serve")
    page, n = pool.page_size, pool.size // pool.page_size
    if n < 2:
        raise Unsupported(f"kvscout: SGLang's host pool has {n} pages, and at least 2 are needed: give it more memory with --hicache-size")
    (first, sizes), (second, others), (last, _) = (_pieces(pool, indices, number * page) for number in (0, 1, n - 1))
    even = all(b - a >= size and (n - 1) * (b - a) == c - a for a, b, c, size in zip(first, second, last, sizes, strict=True))
    if sizes != others or not even:
        raise Unsupported(
            f"kvscout: the pages of SGLang's host pool in the layout {pool.layout} do not lie evenly. Use "
            "--hicache-mem-layout page_first_direct, page_first or layer_first"
        )
    return [(a, b - a, size) for a, b, size in zip(first, second, sizes, strict=True)], n


def _pieces(pool, indices, first):
    addresses, sizes = pool.get_page_buffer_meta(indices(list(range(first, first + pool.page_size))))
    return [int(address) for address in addresses], [int(size) for size in sizes]
