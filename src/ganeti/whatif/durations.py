"""The model file: how long operations take in one cluster, measured from the log of its jobs (`gnt-whatif learn`)."""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import quantiles
from typing import Any

import msgspec

from ganeti.base.errors import InputError
from ganeti.base.suggestions import did_you_mean
from ganeti.simulation.durations import Durations

FORMAT = 1
JOB_FIELDS = ("id", "ops", "opstatus", "oplog", "opend")
"""Fields of jobs that `measured` reads."""
LARGEST = 1e7
TENTHS = 10
_RATE_SUFFIX = "_mib_s"
FEWEST = 3
"""Fewer measurements of an operation do not replace its default."""
_NAMES = [one.name for one in dataclasses.fields(Durations) if one.name != "spread"]

# The steps that jobs write to their logs as `* STEP...`; each lasts until the next one.
_STEPS = (
    (re.compile(r"\* starting instance "), "start_s"),
    (re.compile(r"\* starting (?:the )?instance(?: on \S+)?\.\.\."), "start_s"),
    (re.compile(r"\* shutting down (?:the )?instance"), "stop_s"),
    (re.compile(r"\* running the (?:instance )?OS create scripts"), "install_s"),
    (re.compile(r"\* creating instance disks"), "disk_create_s"),
    (re.compile(r"\* switching \S+ off by"), "power_cut_s"),
)
_RATE = re.compile(
    r" - INFO: (?P<what>.*): [0-9.]+% \([0-9]+ of [0-9]+ MiB\), (?P<rate>[0-9]+) MiB/s"
)
_RESYNC = re.compile(r"disk [0-9]+")
_WIPE = re.compile(r"zeros on disk ")
_MIGRATION = "OP_INSTANCE_MIGRATE"
_MOVED = re.compile(r" - INFO: \S+ runs on \S+: [0-9]+ KiB in (?P<ms>[0-9]+) ms")
_MILLISECONDS, _MICROSECONDS = 1e3, 1e6


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one duration; `value` is the median.

    The deciles are the eleven values from the least to the greatest between which tenths of the measurements lie.
    """

    value: float
    count: int
    deciles: tuple[float, ...] = ()


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a model file."""

    cluster: str
    durations: dict[str, float]
    """Replaces the defaults."""
    measured: dict[str, Measurement] = {}
    """How they were found, and how much they vary."""
    format: int = FORMAT


def model_text(model: Model) -> str:
    """Return the content of a model file."""
    return msgspec.json.format(msgspec.json.encode(model, order="deterministic")).decode() + "\n"


def parse_model(text: str, name: str) -> Durations:
    """Return the durations of a model file; InputError names the file and the field."""
    try:
        model = msgspec.json.decode(text, type=Model)
    except msgspec.DecodeError as err:
        raise InputError(f"{err}; write the file with 'gnt-whatif learn'", name) from err
    if model.format != FORMAT:
        raise InputError(f"has format {model.format}; this version reads format {FORMAT}", name)
    return durations_of(model.durations, name, model.measured)


def durations_of(
    given: Mapping[str, float], name: str, varying: Mapping[str, Measurement] | None = None
) -> Durations:
    """Return the defaults with the given durations in their place; InputError names `name` and the field.

    Times vary as measured, also if another one is given; rates do not.
    """
    for key, value in given.items():
        if key not in _NAMES:
            known = did_you_mean(key, _NAMES) or f"; known: {', '.join(_NAMES)}"
            raise InputError(f"durations.{key} does not exist{known}", name)
        if not 0 < value <= LARGEST:
            raise InputError(f"durations.{key}: {value:g} must be above 0, and at most 1e7", name)
    spread = {}
    for key, one in (varying or {}).items():
        if key in given and one.deciles and not key.endswith(_RATE_SUFFIX):
            _check_deciles(one, f"measured.{key}", name)
            spread[key] = tuple(each / one.value for each in one.deciles)
    return Durations(**given, spread=spread)


def _check_deciles(one: Measurement, place: str, name: str) -> None:
    values = one.deciles
    are_seconds = all(0 < each <= LARGEST for each in (one.value, *values))
    if not are_seconds or list(values) != sorted(values) or len(values) > TENTHS + 1:
        raise InputError(
            f"{place}.deciles: must be at most {TENTHS + 1} values above 0, in ascending order; write the file with"
            " 'gnt-whatif learn'",
            name,
        )


def measured(cluster: str, jobs: Iterable[Mapping[str, Any]]) -> Model:
    """Return the durations of the opcodes that succeeded in these jobs, each a row of `JOB_FIELDS`."""
    samples: dict[str, list[float]] = {}
    for job in jobs:
        for name, value in _samples(job):
            if 0 < value <= LARGEST:
                samples.setdefault(name, []).append(value)
    found = {
        name: measurement(values)
        for name, values in sorted(samples.items())
        if len(values) >= FEWEST
    }
    return Model(
        cluster=cluster,
        durations={name: one.value for name, one in found.items()},
        measured=found,
    )


def measurement(values: Sequence[float]) -> Measurement:
    """Return what several measurements of one duration have shown; there are two at least."""
    inner = quantiles(values, n=TENTHS, method="inclusive")
    deciles = tuple(round(one, 3) for one in (min(values), *inner, max(values)))
    return Measurement(value=deciles[TENTHS // 2], count=len(values), deciles=deciles)


def _samples(job: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield the measurements in one job; a row of an unexpected form has none."""
    columns = [job.get(name) or [] for name in JOB_FIELDS[1:]]
    for op, status, log, end in zip(*columns, strict=False):
        if status == "success" and isinstance(op, Mapping):
            entries = [(_seconds(entry[1]), str(entry[3])) for entry in log]
            yield from _of_steps(entries, end)
            kind = str(op.get("OP_ID", ""))
            yield from _of_rates(entries, kind)
            if kind == _MIGRATION:
                yield from _of_migration(entries)


def _of_steps(entries: Sequence[tuple[float, str]], end: Any) -> Iterator[tuple[str, float]]:
    steps = [(at, text) for at, text in entries if text.startswith("* ")]
    last = _seconds(end) if end else (entries[-1][0] if entries else 0.0)
    for (at, text), (until, _next) in pairwise([*steps, (last, "")]):
        for form, name in _STEPS:
            if form.match(text):
                yield name, until - at
                break


def _of_rates(entries: Iterable[tuple[float, str]], kind: str) -> Iterator[tuple[str, float]]:
    for _at, text in entries:
        if found := _RATE.match(text):
            if _WIPE.match(found["what"]):
                yield "wipe_mib_s", float(found["rate"])
            elif _RESYNC.fullmatch(found["what"]):
                yield "resync_mib_s", float(found["rate"])
            elif kind == _MIGRATION:
                yield "migration_mib_s", float(found["rate"])


def _of_migration(entries: Sequence[tuple[float, str]]) -> Iterator[tuple[str, float]]:
    """Yield the time of a migration without the copy of its memory."""
    began = next((at for at, text in entries if text.startswith("* ")), None)
    for at, text in entries:
        if began is not None and (found := _MOVED.match(text)):
            yield "migration_s", at - began - float(found["ms"]) / _MILLISECONDS


def _seconds(value: Any) -> float:
    """Return a time of LUXI, seconds and microseconds."""
    return float(value[0]) + float(value[1]) / _MICROSECONDS


def as_figures(durations: Durations) -> dict[str, float]:
    """Return the durations by name, for the report."""
    return {name: float(getattr(durations, name)) for name in _NAMES}


def ranges(durations: Durations) -> dict[str, tuple[float, float]]:
    """Return the least and the greatest value of those that vary, for the report."""
    found = {}
    for name, ratios in sorted(durations.spread.items()):
        value = float(getattr(durations, name))
        found[name] = round(value * ratios[0], 3), round(value * ratios[-1], 3)
    return found


def shown(model: Model) -> list[str]:
    """Return the measurements as lines of text, with the defaults that no measurement replaces."""
    lines = []
    for name in _NAMES:
        one = model.measured.get(name)
        default = getattr(Durations(), name)
        lines.append(
            f"  {name:<18} {default:>8g}  (default)"
            if one is None
            else f"  {name:<18} {one.value:>8g}  ({one.count} measurements, {one.deciles[0]:g} to {one.deciles[-1]:g})"
        )
    return lines
