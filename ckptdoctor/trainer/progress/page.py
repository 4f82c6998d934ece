"""The page of a run: ``curves.html``, one file that needs nothing else, made of the records of ``metrics.jsonl``.

It has figures, curves, a table of all epochs, and the choices of the run, in light and dark, wide and narrow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ckptdoctor.rendering.escape import escape as visible
from ckptdoctor.trainer.progress.chart import Chart, Series, svg
from ckptdoctor.trainer.progress.metrics import MetricsRecord, figure, replace_file
from ckptdoctor.trainer.progress.text import duration, percent_of

PAGE = "curves.html"
_TITLE = "· training curves</title>"
_HEAD = 1 << 13  # bytes in which a page has its title, which is a path

# What a browser is told it may fetch: nothing (https://www.w3.org/TR/CSP3/)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_COLUMNS = (
    ("train loss", "train_loss", "{:.4f}".format),
    ("train accuracy", "train_accuracy", percent_of),
    ("test loss", "test_loss", "{:.4f}".format),
    ("test accuracy", "test_accuracy", percent_of),
    ("EMA accuracy", "ema_accuracy", percent_of),
    ("images/s", "images_per_second", "{:,.0f}".format),
    ("seconds", "seconds", "{:,.1f}".format),
    ("learning rate", "learning_rate", "{:.4g}".format),
)


def is_page(path: Path) -> bool:
    """Return whether a file is such a page; one that cannot be read is none."""
    try:
        with path.open("rb") as file:
            return _TITLE.encode() in file.read(_HEAD)
    except OSError:
        return False


def page(metrics: Sequence[MetricsRecord], title: str) -> str:
    """Return the page as text. Every word of it that is not ours, such as a path, is escaped."""
    epochs = [record for record in metrics if record["event"] == "EpochDone"]
    starts = [record for record in metrics if record["event"] == "Started"]
    started = starts[-1] if starts else {}
    resumed = [record["epoch"] for record in starts if isinstance(record.get("epoch"), int) and record["epoch"] > 0]
    lines = [
        *_head(title),
        *_header(title, started, metrics),
        *_tiles(started, epochs),
        *_charts(epochs, resumed),
        *_table(epochs, _checkpoints(metrics)),
        *_settings(started),
    ]
    return "\n".join([*lines, "</body>", "</html>", ""])


def _text(value: Any) -> str:
    """Return any value as text that no browser takes for markup."""
    return escape(visible(str(value)))


def _head(title: str) -> Iterator[str]:
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{_text(title)} {_TITLE}"
    yield f"<style>{STYLE}</style>"
    yield "</head>"
    yield "<body>"


def _header(title: str, started: MetricsRecord, metrics: Sequence[MetricsRecord]) -> Iterator[str]:
    config = _config(started)
    devices = list(dict.fromkeys(map(str, _list(started.get("devices")))))
    parameters = figure(started, "parameters")
    facts = [
        config.get("network"),
        f"{parameters:,.0f} parameters" if parameters is not None else None,
        config.get("data"),
        f"{config.get('strategy')} × {config.get('world_size')} on {', '.join(devices)}" if config else None,
    ]
    yield "<header>"
    yield f"<h1>{_text(title)}</h1>"
    yield f"<p>{' · '.join(_text(fact) for fact in facts if fact)}</p>"
    if metrics:
        yield f"<p>{_text(_state(metrics[-1]))}</p>"
    yield "</header>"


def _state(last: MetricsRecord) -> str:
    """Return the state of the run, as far as its last record tells."""
    time = str(last.get("time", ""))[:16].replace("T", " ")
    if last["event"] != "Ended":
        return f"In progress at {time} UTC"
    return f"Stopped at {time} UTC: {last['interrupted']}" if last.get("interrupted") else f"Done at {time} UTC"


def _tiles(started: MetricsRecord, epochs: Sequence[MetricsRecord]) -> Iterator[str]:
    """Yield the figures to see first."""
    accuracies = _points(epochs, "test_accuracy")
    speeds = _points(epochs, "images_per_second")
    seconds = sum(value for _, value in _points(epochs, "seconds"))
    planned = _config(started).get("epochs", "?")
    yield '<dl class="tiles">'
    if accuracies:
        epoch, best = _best(accuracies)
        yield _tile("Best test accuracy", percent_of(best), f"after epoch {epoch}")
        yield _tile("Last test accuracy", percent_of(accuracies[-1][1]), f"after epoch {accuracies[-1][0]}")
    yield _tile("Epochs", f"{epochs[-1]['epoch'] if epochs else 0} of {planned}", "complete")
    if speeds:
        yield _tile("Images a second", f"{speeds[-1][1]:,.0f}", "in the last epoch")
    yield _tile("Time", duration(seconds), "of training, without tests")
    yield "</dl>"


def _tile(label: str, value: str, about: str) -> str:
    return f"<div><dt>{_text(label)}</dt><dd>{_text(value)}<small>{_text(about)}</small></dd></div>"


def _charts(epochs: Sequence[MetricsRecord], resumed: Sequence[int]) -> Iterator[str]:
    def series(name: str, style: str, key: str) -> Series:
        return Series(name, style, _points(epochs, key))

    accuracy = [
        series("train", "train", "train_accuracy"),
        series("EMA", "ema", "ema_accuracy"),
        series("test", "test", "test_accuracy"),
    ]
    loss = [series("train", "train", "train_loss"), series("test", "test", "test_loss")]
    speed = [series("training", "speed", "images_per_second")]
    yield '<section class="charts" aria-label="Curves">'
    yield from _figure(
        Chart("Accuracy", accuracy, percent_of, lambda value: f"{100 * value:g} %", resumed=resumed), "acc"
    )
    yield from _figure(Chart("Loss", loss, "{:.4f}".format, "{:g}".format, resumed=resumed), "loss")
    yield from _figure(Chart("Images a second", speed, "{:,.0f}".format, "{:,.0f}".format, 0.0, resumed), "speed")
    yield "</section>"


def _figure(chart: Chart, name: str) -> Iterator[str]:
    yield "<figure>"
    legend = "".join(
        f'<span><i class="{series.style}"></i>{_text(series.name)}</span>' for series in chart.series if series.points
    )
    yield f"<figcaption><h2>{_text(chart.title)}</h2>{legend}</figcaption>"
    yield svg(chart, name)
    yield "</figure>"


def _table(epochs: Sequence[MetricsRecord], checkpoints: dict[int, str]) -> Iterator[str]:
    columns = [column for column in _COLUMNS if _points(epochs, column[1])]
    best = _best(_points(epochs, "test_accuracy"))[0]
    yield '<section><h2 id="epochs">All epochs</h2>'
    yield '<div class="scroll" role="region" aria-labelledby="epochs" tabindex="0"><table class="epochs">'
    titles = "".join(f'<th scope="col">{title}</th>' for title, _, _ in columns)
    yield f'<thead><tr><th scope="col">epoch</th>{titles}<th scope="col" class="left">checkpoint</th></tr></thead>'
    yield "<tbody>"
    for record in epochs:
        values = ((figure(record, key), write) for _, key, write in columns)
        cells = "".join(f"<td>{'–' if value is None else _text(write(value))}</td>" for value, write in values)
        row = '<tr class="best">' if record["epoch"] == best else "<tr>"
        saved = f'<td class="left">{_text(checkpoints.get(record["epoch"], ""))}</td>'
        yield f'{row}<th scope="row">{_text(record["epoch"])}</th>{cells}{saved}</tr>'
    yield "</tbody></table></div></section>"


def _settings(started: MetricsRecord) -> Iterator[str]:
    yield '<section><h2>The run</h2><dl class="config">'
    for name, value in _config(started).items():
        yield f"<div><dt>{_text(name.replace('_', ' '))}</dt><dd>{_text(_value(value))}</dd></div>"
    yield "</dl></section>"


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _points(epochs: Sequence[MetricsRecord], key: str) -> list[tuple[int, float]]:
    values = ((record["epoch"], figure(record, key)) for record in epochs)
    return [(epoch, value) for epoch, value in values if value is not None]


def _best(points: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """Return the first epoch with the highest value, and that value; epoch 0 when there is none."""
    return max(points, key=lambda point: (point[1], -point[0]), default=(0, 0.0))


def _checkpoints(metrics: Sequence[MetricsRecord]) -> dict[int, str]:
    """Return after which epoch which checkpoints were written: their names without the run's folder."""
    found: dict[int, str] = {}
    epoch = 0
    for record in metrics:
        if record["event"] == "EpochDone":
            epoch = record["epoch"]
        elif record["event"] == "Saved":
            name = os.path.basename(str(record.get("path")))
            found[epoch] = f"{found[epoch]}, {name}" if epoch in found else name
    return found


def _config(started: MetricsRecord) -> dict[str, Any]:
    config = started.get("config")
    return config if isinstance(config, dict) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f6f7f9; --ink: #1c2330; --soft: #5b6577; --rule: #dde1e8;
  --test: #1d5fd6; --train: #c2570c; --ema: #0b7a6f; --speed: #6d3fc4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #12151b; --card: #1a1f28; --ink: #e6e9ef; --soft: #9aa5b8; --rule: #2c3442;
    --test: #6ea8fe; --train: #ffa05c; --ema: #3fd0bd; --speed: #b794f6;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1rem 3rem; max-width: 76rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { margin: 0; font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 0; font-size: 1.05rem; }
section > h2 { margin: 2rem 0 .6rem; }
header p { margin: .2rem 0 0; color: var(--soft); overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 1.25rem 0; }
.tiles div, figure { background: var(--card); border: 1px solid var(--rule); border-radius: .6rem; }
.tiles div { padding: .7rem .9rem; }
.tiles dt { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; }
.tiles small { display: block; color: var(--soft); font-size: .8rem; font-weight: 400; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1rem; }
figure { margin: 0; padding: .9rem .9rem .5rem; }
figcaption { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; align-items: baseline; margin-bottom: .4rem; }
figcaption span { color: var(--soft); font-size: .85rem; white-space: nowrap; }
figcaption i { display: inline-block; width: 1.4em; margin-right: .4em; border-top: .2em solid; vertical-align: .2em; }
i.train { border-top-style: dashed; }
i.ema { border-top-style: dotted; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font-size: 15px; font-variant-numeric: tabular-nums; }
svg .value { text-anchor: end; }
svg .epoch { text-anchor: middle; }
svg .grid, svg .tick { stroke: var(--rule); }
svg .resumed { stroke: var(--soft); stroke-dasharray: 2 3; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
svg .line.train { stroke-dasharray: 6 4; }
svg .line.ema { stroke-dasharray: 1 4; }
svg .dot { stroke: var(--card); stroke-width: 1.5; }
svg .hidden { opacity: 0; }
svg .dot:hover { opacity: 1; stroke: var(--ink); }
.test { stroke: var(--test); } .train { stroke: var(--train); } .ema { stroke: var(--ema); }
.speed { stroke: var(--speed); }
i.test, .dot.test { fill: var(--test); border-color: var(--test); }
i.train, .dot.train { fill: var(--train); border-color: var(--train); }
i.ema, .dot.ema { fill: var(--ema); border-color: var(--ema); }
i.speed, .dot.speed { fill: var(--speed); border-color: var(--speed); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
.epochs { width: 100%; white-space: nowrap; }
th, td { padding: .35rem .7rem; border-bottom: 1px solid var(--rule); text-align: right; }
thead th { color: var(--soft); font-weight: 600; }
.left { text-align: left; }
tr.best td, tr.best th { font-weight: 700; }
.config { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .1rem 1.5rem; margin: 0; }
.config div { display: flex; justify-content: space-between; gap: 1rem; border-bottom: 1px solid var(--rule); }
.config dt { color: var(--soft); }
.config dd { margin: 0; text-align: right; overflow-wrap: anywhere; }
"""


def write(path: str, metrics: Sequence[MetricsRecord], title: str) -> None:
    """Write the page of these records to ``path``, which at every moment is a whole page. Raises WriteError."""
    replace_file(path, page(metrics, title).encode())
