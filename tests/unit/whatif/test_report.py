"""The report: what it says, and that it is always the same."""

import html.parser
import json
import re

import msgspec
import pytest

from ganeti.simulation.durations import Durations
from ganeti.whatif.html import html_report
from ganeti.whatif.report import Report, Run, json_report, report_of, run_of, spread
from ganeti.whatif.text import text_report
from tests.unit.whatif import histories


def run(seed: int = 1) -> Run:
    return run_of(histories.history(), histories.source().sizes, seed)


def report(*seeds: int) -> Report:
    runs = [run(seed) for seed in seeds or (1,)]
    return report_of(
        histories.source(), "Lose <node1>", ["at 100s: fail-node node1"], Durations(), runs
    )


def test_figures_are_those_of_the_history() -> None:
    assert run().figures == {
        "instances down": 4,
        "outages": 4,
        "total downtime s": 57.0 + 65.0 + 500.0 + 500.0,
        "longest outage s": 500.0,
        "still down": 2,
        "jobs": 3,
        "failed jobs": 1,
        "without a master s": 8.0,
    }


def test_first_thing_that_does_not_fit_is_named_with_its_reason() -> None:
    misfit = run().first_misfit
    assert misfit is not None
    assert (misfit.at, misfit.what) == (133.0, "INSTANCE_FAILOVER(web3)")
    assert "540 MiB of memory short" in misfit.why


def test_what_stays_down_is_explained_for_each_node() -> None:
    still = {one.instance: one for one in run().still_down}
    assert still.keys() == {"web3", "web4"}
    reasons = dict(still["web3"].nodes)
    assert reasons["node1"] == "lost"
    assert reasons["node2"].endswith("of memory short")
    assert dict(still["web4"].nodes)["node2"] == ""
    assert still["web4"].why == "its node is down"


def test_recovery_order_and_health_are_in_the_report() -> None:
    found = run()
    assert [(one.at, one.instance, one.node) for one in found.order] == [
        (157.0, "web1", "node2"),
        (165.0, "web2", "node2"),
    ]
    assert (found.before.nodes, found.after.nodes) == (2, 1)
    assert found.before.unprotected == (
        "1 of 3 protected instances would not fit if node1 failed: web3 (1052 MiB of memory short)",
    )


def test_several_seeds_give_a_distribution_and_the_worst_run() -> None:
    runs = [run(1), msgspec.structs.replace(run(2), figures={**run().figures, "still down": 3})]
    found = report_of(histories.source(), "", [], Durations(), runs)
    assert found.run.seed == 2
    assert found.distribution["still down"].min == 2
    assert found.distribution["still down"].max == 3
    assert report(1).distribution == {}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], (0, 0, 0, 0)),
        ([5.0], (5, 5, 5, 5)),
        (range(1, 11), (1, 5, 9, 10)),
        ([3, 1, 2], (1, 2, 3, 3)),
    ],
)
def test_spread_is_by_rank(values: list[float], expected: tuple[float, ...]) -> None:
    found = spread(values)
    assert (found.min, found.p50, found.p90, found.max) == expected


def test_json_can_be_read_back() -> None:
    text = json_report(report())
    assert msgspec.json.decode(text, type=Report) == report()
    assert json.loads(text)["seeds"] == [1]
    assert json.loads(text)["version"]


def test_text_has_each_part_in_lines_of_a_terminal() -> None:
    text = text_report(report(1, 2))
    for part in ("Lose <node1>", "seeds 1 to 2", "Over 2 seeds", "Worst seed (1)", "Downtime by reason",
                 "Outages, the longest first", "Still down", "Order of recovery", "Before and after",
                 "Jobs:", "Failed jobs", "Timeline", "Assumptions", "web1"):  # fmt: skip
        assert part in text
    assert "4 instances were down, 18m 42s in total, at most 8m 20s at once." in text


class _Page(html.parser.HTMLParser):
    """Records tags and addresses; unbalanced tags are an error."""

    EMPTY = frozenset({"meta", "!doctype"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [
            str(value) for name, value in attrs if name in ("src", "href", "xlink:href")
        ]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_html_is_one_balanced_page_without_scripts_and_other_addresses() -> None:
    text = html_report(report(1, 2))
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert page.tags >= {"svg", "table", "title"}
    assert not page.tags & {"script", "link", "img", "iframe", "object"}
    assert page.addresses == []
    assert re.findall(r"https?://[^\"]*", text.replace("http://www.w3.org/2000/svg", "")) == []


def test_html_escapes_names() -> None:
    text = html_report(report())
    assert "Lose &lt;node1&gt;" in text
    assert "<node1>" not in text


def test_every_form_of_the_report_is_always_the_same() -> None:
    for form in (json_report, text_report, html_report):
        assert form(report(1, 2)) == form(report(1, 2))


def test_durations_are_shown_with_what_they_vary_between() -> None:
    varying = Durations(stop_s=10.0, spread={"stop_s": (0.5, 1.0, 1.8)})
    found = report_of(histories.source(), "", [], varying, [run()])
    for shown in (text_report(found), html_report(found)):
        assert "stop_s 10 (5 to 18)" in shown
        assert "rpc_s 0.002" in shown
        assert "rpc_s 0.002 (" not in shown
