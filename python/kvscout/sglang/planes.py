# SPDX-License-Identifier: Apache-2.0
"""Where the pages of SGLang's host pool are: planes of equal pieces, by what the pool itself says of its pages."""


class Unsupported(ValueError):
    """The pool or the mode cannot be served. The text is a sentence for the user."""


def of_pool(name, pool, indices):
    """([(address, stride, bytes)], number of pages) of SGLang's pool of that @name. @indices(list): as the tensor that the pool takes.

    The pool names the pieces of single pages; pages 0, 1 and the last one show base, stride and that all lie evenly."""
    if name == "kv" and getattr(pool, "kv_buffer", None) is None:
        raise Unsupported(f"kvscout: {type(pool).__name__} has no KV of its own (DeepSeek V4), which this version does not serve")
    page, n = pool.page_size, pool.size // pool.page_size
    if n < 2:
        raise Unsupported(f"kvscout: SGLang's host pool {name} has {n} pages, and at least 2 are needed: give it more memory with --hicache-size")
    try:
        (first, sizes), (second, others), (last, _) = (_pieces(pool, indices, number * page) for number in (0, 1, n - 1))
    except (ValueError, NotImplementedError) as error:
        raise Unsupported(f"kvscout: SGLang does not show the pages of its host pool {name}: {error}") from None
    even = all(b - a >= size and (n - 1) * (b - a) == c - a for a, b, c, size in zip(first, second, last, sizes, strict=True))
    if sizes != others or not even:
        raise Unsupported(
            f"kvscout: the pages of SGLang's host pool {name} in the layout {pool.layout} do not lie evenly. Use "
            "--hicache-mem-layout page_first_direct, page_first or layer_first"
        )
    return [(a, b - a, size) for a, b, size in zip(first, second, sizes, strict=True)], n


def number_of(host_indices, pool):
    """The numbers of the pages that SGLang's indices of single tokens name."""
    return [int(index) // pool.page_size for index in host_indices[:: pool.page_size].tolist()]


def _pieces(pool, indices, first):
    addresses, sizes = pool.get_page_buffer_meta(indices(list(range(first, first + pool.page_size))))
    return [int(address) for address in addresses], [int(size) for size in sizes]
