import pytest

from ganeti.daemons import confd


@pytest.mark.requirement("S239")
@pytest.mark.parametrize("value", ["0", "-5", "x", "86401", ""])
def test_clock_tolerance_that_is_not_possible_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    with pytest.raises(SystemExit):
        confd.main([f"--clock-tolerance={value}"])
    assert "is not a number of seconds from 1 to 86400" in capsys.readouterr().err
    monkeypatch.setenv(confd.TOLERANCE_VARIABLE, value or "none")
    with pytest.raises(SystemExit):
        confd.main([])
