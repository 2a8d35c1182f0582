"""Settings: where values come from, what is refused, and how the refusal reads."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tern_service import SettingsError, load_settings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A service with one setting of each type."""

    port: int = setting(9876, help="TCP port", minimum=0, maximum=65_535)
    pause_ms: int = setting(1_000, help="pause (ms)", minimum=1)
    name: str = "dev"
    fast: bool = False
    store: Path = Path("data")
    peers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name == "forbidden":
            raise ValueError("--name is 'forbidden'; use another one.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demanding:
    """A service that cannot guess."""

    node: str


def load(*arguments: str, **environ: str) -> Sample:
    """Settings from *arguments* and variables without their prefix."""
    return load_settings(
        Sample, prefix="TERN_X_", environ={f"TERN_X_{k}": v for k, v in environ.items()}, arguments=arguments
    )


def test_without_arguments_the_defaults_hold() -> None:
    """Nothing given, nothing changed."""
    assert load() == Sample()


def test_every_type_is_read_from_the_command_line() -> None:
    """int, duration, str, bool, Path and a tuple given twice."""
    arguments = [
        "--port",
        "1",
        "--pause-ms",
        "1.5s",
        "--name",
        "a",
        "--fast",
        "--store",
        "/s",
        "--peers",
        "a,b",
        "--peers",
        "c",
    ]
    expected = Sample(port=1, pause_ms=1_500, name="a", fast=True, store=Path("/s"), peers=("a", "b", "c"))
    assert load(*arguments) == expected


def test_every_type_is_read_from_the_environment() -> None:
    """The same through variables."""
    got = load(PORT="1", PAUSE_MS="1500", NAME="a", FAST="yes", STORE="/s", PEERS="a, b,c")
    assert got == Sample(port=1, pause_ms=1_500, name="a", fast=True, store=Path("/s"), peers=("a", "b", "c"))


def test_the_command_line_wins_over_the_environment() -> None:
    """Also where it says no to a variable's yes."""
    got = load("--port", "2", "--no-fast", PORT="1", FAST="true")
    assert (got.port, got.fast) == (2, False)


def test_variables_of_other_programs_are_not_ours() -> None:
    """Only the prefix counts."""
    assert load_settings(Sample, prefix="TERN_X_", environ={"PATH": "/bin"}, arguments=[]) == Sample()


@pytest.mark.parametrize(
    ("arguments", "environ", "parts"),
    [
        (["--prot", "1"], {}, ["--prot", "--port"]),
        (["--por", "1"], {}, ["--por ", "--port"]),
        (["stray"], {}, ["stray"]),
        ([], {"PROT": "1"}, ["TERN_X_PROT", "TERN_X_PORT"]),
        (["--port", "http"], {}, ["--port", "'http'", "whole number"]),
        (["--port", "65536"], {}, ["--port", "0 to 65535"]),
        (["--port"], {}, ["--port", "--help"]),
        (["--pause-ms", "soon"], {}, ["--pause-ms", "30s"]),
        (["--pause-ms", "0"], {}, ["1 or more"]),
        ([], {"FAST": "maybe"}, ["TERN_X_FAST", "true or false"]),
        ([], {"STORE": ""}, ["TERN_X_STORE", "path"]),
        (["--name", "forbidden"], {}, ["--name is 'forbidden'"]),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_exit_code_78(
    arguments: list[str], environ: dict[str, str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The sentence names the option and the way out."""
    with pytest.raises(SettingsError) as caught:
        load(*arguments, **environ)
    said = capsys.readouterr().err
    assert caught.value.code == 78
    assert said == f"error: {caught.value.text}\n"
    assert said.count("\n") == 1
    for part in parts:
        assert part in said


def test_a_missing_value_names_option_and_variable(capsys: pytest.CaptureFixture[str]) -> None:
    """A field without a default must be given."""
    with pytest.raises(SettingsError):
        load_settings(Demanding, prefix="TERN_X_", environ={}, arguments=[])
    said = capsys.readouterr().err
    assert "--node" in said
    assert "TERN_X_NODE" in said


def test_help_teaches_defaults_and_variables(capsys: pytest.CaptureFixture[str]) -> None:
    """--help ends well and names default and variable of each option."""
    with pytest.raises(SystemExit) as caught:
        load("--help")
    said = " ".join(capsys.readouterr().out.split())
    assert caught.value.code == 0
    assert "TCP port; default 9876; TERN_X_PORT" in said
    assert "pause (ms)" in said
