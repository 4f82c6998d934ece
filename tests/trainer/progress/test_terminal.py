"""A run on a terminal, and in a log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ckptdoctor.trainer.events import Ended
from ckptdoctor.trainer.progress.terminal import Terminal
from tests.trainer.progress.runs import FOONET, Watched, config, epoch_done, golden, run, saved, started, step
from tests.work import counted

SIZES = [(100, 30), (80, 24), (40, 20)]


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_the_screen_in_the_middle_of_a_run(width, height):
    """Bars, figures and the curve stand below the finished epochs, and fit into the terminal."""
    watched = Watched(width, height)
    watched.tell(Terminal(watched.console), [*run(config(ema=True))][: 3 + 22 * 2 + 12])
    emulator = watched.emulator
    golden(f"middle_{width}x{height}.txt", emulator.screen)
    assert not emulator.cursor_visible
    assert all(len(line) <= width for line in emulator.lines)


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_what_stays_of_a_run(width, height):
    """At the end there are no bars: the table, the whole curve, and what to do next; the cursor is back."""
    watched = Watched(width, height)
    watched.tell(Terminal(watched.console), run(config(ema=True)))
    emulator = watched.emulator
    golden(f"end_{width}x{height}.txt", emulator.scrollback)
    assert emulator.cursor_visible


@pytest.mark.parametrize("height", range(1, 40))
def test_the_screen_never_scrolls_itself_away(height):
    """On a terminal of any height the header is printed once, and nothing that was drawn is left in the scrollback."""
    watched = Watched(60, height)
    watched.tell(Terminal(watched.console), run(config()))
    lines = watched.emulator.scrollback.split("\n")
    assert [line for line in lines if "left" in line or "images a step" in line or "saved" in line] == []
    assert sum(line.startswith("network") for line in lines) == 1


@pytest.mark.parametrize("height", range(7, 25))
def test_a_curve_is_drawn_only_where_all_of_it_fits(height):
    """Where there is a curve, its lowest label and the last finished epoch can be seen too."""
    watched = Watched(60, height)
    watched.tell(Terminal(watched.console), [*run(config())][:59])
    lines = watched.emulator.screen.split("\n")
    assert any(line.startswith("  2/4") for line in lines)
    assert ("test accuracy" in lines) == (height >= 11)
    assert "test accuracy" not in lines or "30 % ┤" in lines[-1]


def test_a_log_has_plain_lines_only():
    """Not on a terminal: a header, a line an epoch, a line a checkpoint, the end; not one control character."""
    watched = Watched(80, 24, force_terminal=False)
    watched.tell(Terminal(watched.console), run(config()))
    golden("log.txt", watched.written.rstrip("\n"))
    assert all(char.isprintable() or char == "\n" for char in watched.written)


@pytest.mark.parametrize(
    "options",
    [{"environ": {"TERM": "dumb"}}, {"force_terminal": True, "force_interactive": False}],
    ids=["dumb terminal", "colours forced on a log"],
)
def test_where_the_cursor_cannot_move_there_are_plain_lines(options):
    """A dumb terminal, and a build server that asks for colours, get what a log gets."""
    watched = Watched(80, 24, **options)
    watched.tell(Terminal(watched.console), run(config()))
    golden("log.txt", watched.written.rstrip("\n"))


def test_no_color_means_no_color():
    """With NO_COLOR there are bars, but no colour codes; bold and dim may stay."""
    watched = Watched(80, 24, environ={"NO_COLOR": "1"})
    watched.tell(Terminal(watched.console), run(config()))
    assert watched.emulator.styles <= {"0", "1", "2"}
    coloured = Watched(80, 24)
    coloured.tell(Terminal(coloured.console), run(config()))
    assert coloured.emulator.styles - {"0", "1", "2"}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "log"])
def test_any_encoding_will_do(encoding, terminal):
    """A terminal and a log without UTF-8 get plain signs, a curve of asterisks, and codes for foreign characters."""
    many = config(world_size=8, out="süß→")
    watched = Watched(50, 24, encoding=encoding, force_terminal=terminal)
    screen = Terminal(watched.console)
    watched.tell(screen, [*run(many)][:57])
    if terminal:
        assert ("32 x 8" if encoding == "ascii" else "32 × 8") in watched.emulator.screen
        assert "% +" in watched.emulator.screen
    watched.tell(screen, [Ended(2, 0.65, "Ctrl-C")])
    assert (r"s\xfc\xdf->/epoch-0002" if encoding == "ascii" else "süß") in watched.written


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "log"])
def test_foonet_shows_what_each_replica_sees(terminal):
    """The first step of the run, and no other, prints one line for each replica."""
    watched = Watched(80, 24, force_terminal=terminal)
    watched.tell(Terminal(watched.console), run(FOONET))
    text = watched.emulator.scrollback if terminal else watched.written
    assert [line for line in text.split("\n") if line.startswith("replica")] == [
        "replica 0 on cpu: batch of 8",
        "replica 1 on cpu: batch of 8",
    ]


def test_other_networks_do_not():
    """Only foonet is there to show how a batch is split."""
    watched = Watched(80, 24, force_terminal=False)
    watched.tell(Terminal(watched.console), run(config()))
    assert "replica 0" not in watched.written


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "log"])
def test_a_hostile_path_is_only_text(terminal):
    """Neither rich's markup nor an escape sequence in a path does anything; the emulator would refuse the latter."""
    path = "[red]run[/red] :smile: \x1b[2J\x07\n"
    watched = Watched(80, 24, force_terminal=terminal)
    screen = Terminal(watched.console)
    watched.tell(screen, [started(config()), step(config(), 1, 1), replace(saved(1), path=path)], pause=1)
    watched.tell(screen, [step(config(), 1, 2)], pause=1)
    shown = r"[red]run[/red] :smile: \x1b[2J\x07\n"
    assert shown in (watched.emulator.screen if terminal else watched.written)
    watched.tell(screen, [Ended(0, None, f"told by {path}")])
    assert f"told by {shown}" in (watched.emulator.scrollback if terminal else watched.written)


def test_a_command_is_never_broken_by_us():
    """A check command that is longer than a line is written without a line break: a terminal copies it in one piece."""
    path = "/".join(["a-folder-with-a-long-name"] * 5)
    watched = Watched(40, 20)
    screen = Terminal(watched.console)
    watched.tell(screen, [started(config()), replace(saved(1), path=path), Ended(1, 0.5)])
    assert f"ckptdoctor check {path}\n" in watched.written


def test_a_resumed_run_remembers():
    """The curve, the best accuracy and the last checkpoint include what an earlier run reached."""
    past = [
        {"event": "EpochDone", "epoch": 1, "test_accuracy": 0.95},
        {"event": "EpochDone", "epoch": 2, "test_accuracy": 0.91},
        {"event": "Saved", "path": "run/epoch-0002"},
    ]
    watched = Watched(80, 24)
    screen = Terminal(watched.console, past)
    watched.tell(screen, [started(config(), epoch=2)])
    assert "test accuracy" in watched.emulator.screen
    assert "saved run/epoch-0002" in watched.emulator.screen
    assert "epoch 3/4" in watched.emulator.screen
    watched.tell(screen, [Ended(2, 0.91, "Ctrl-C")])
    assert "best 95.0 % after epoch 1" in watched.emulator.scrollback
    assert "ckptdoctor check run/epoch-0002" in watched.emulator.scrollback


def test_a_crash_leaves_the_terminal_clean():
    """Closed in the middle of a run, the bars are gone, no finished epoch is lost, and the cursor is back."""
    watched = Watched(80, 24)
    screen = Terminal(watched.console)
    watched.tell(screen, [*run(config())][:60], pause=0.001)
    screen.close()
    screen.close()
    emulator = watched.emulator
    assert emulator.cursor_visible
    assert emulator.scrollback.split("\n")[-1].startswith("  2/4")


def test_numbers_that_are_none_do_no_harm():
    """A run whose loss explodes is shown to its end."""
    nan = float("nan")
    watched = Watched(80, 24)
    bad = epoch_done(config(), 1, train_loss=nan, test_loss=float("inf"), test_accuracy=nan, images_per_second=nan)
    screen = Terminal(watched.console)
    watched.tell(screen, [started(config()), replace(step(config(), 1, 1), loss=nan), bad, Ended(1, nan)], pause=1)
    assert "nan" in watched.emulator.scrollback


def test_drawing_is_rare():
    """A thousand steps in one second are drawn about ten times."""
    watched = Watched(80, 24)
    screen = Terminal(watched.console)
    watched.tell(screen, [started(config())])
    before = watched.written.count("\x1b[2K\x1b[1A")
    sizes = []
    for number in range(1000):
        watched.tell(screen, [step(config(), 1, number % 20 + 1)], pause=0.001)
        sizes.append(len(watched.written))
    assert 8 <= len(set(sizes)) - 1 <= 11
    assert watched.written.count("\x1b[2K\x1b[1A") > before


def test_a_long_epoch_says_that_it_is_tested():
    """The last step of an epoch that took a while is drawn at once: what follows is the test, and may take long."""
    watched = Watched(80, 24)
    screen = Terminal(watched.console)
    watched.tell(screen, [started(config()), *(step(config(), 1, number) for number in range(1, 20))], pause=0.11)
    assert "testing" not in watched.emulator.screen
    watched.tell(screen, [step(config(), 1, 20)], pause=0.001)
    assert "testing" in watched.emulator.screen


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "log"])
def test_a_step_costs_next_to_nothing(terminal):
    """Less than ten calls of functions a step, drawing included, when there are fifty thousand steps in a second."""
    watched = Watched(80, 24, force_terminal=terminal)
    screen = Terminal(watched.console)
    watched.tell(screen, [started(config())])
    steps = [step(config(), 1, number) for number in range(1, 21)] * 200
    _, calls = counted(watched.tell, screen, steps, 20e-6)
    assert calls / len(steps) < 10
