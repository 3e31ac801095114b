"""Values of options that begin with a dash, such as `--disk -1:remove` and `-O -size`; argparse rejects them."""

from collections.abc import Collection, Iterator, Sequence

from ganeti.cli.option import Option

_TAKES_VALUE = (None, "store", "append")


def joined(words: Sequence[str], options: Sequence[Option]) -> list[str]:
    """Return the words, with each dashed value joined to its option.

    Words that are options themselves or begin with two dashes remain separate.
    """
    return list(_joined(words, options))


def _joined(words: Sequence[str], options: Sequence[Option]) -> Iterator[str]:
    flags = {flag for one in options for flag in one.flags} | {"-h"}
    takers = [
        flag
        for one in options
        if one.settings.get("action") in _TAKES_VALUE and one.settings.get("nargs") is None
        for flag in one.flags
    ]
    rest = iter(words)
    for word in rest:
        if word == "--":
            yield word
            yield from rest
            return
        if not _takes_value(word, takers, flags):
            yield word
            continue
        value = next(rest, None)
        if value is None:
            yield word
        elif _is_dashed(value, flags):
            yield f"{word}={value}" if word.startswith("--") else f"{word}{value}"
        else:
            yield word
            yield value


def _takes_value(word: str, takers: Collection[str], flags: Collection[str]) -> bool:
    """Return True if the next word is the option's value; long options can be abbreviated."""
    if word in flags or not word.startswith("--"):
        return word in takers
    return any(flag.startswith(word) for flag in takers)


def _is_dashed(word: str, flags: Collection[str]) -> bool:
    return (
        word.startswith("-") and not word.startswith("--") and len(word) > 1 and word not in flags
    )
