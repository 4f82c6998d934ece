"""The HTML of ``curves.html``: figures, curves, a table of all epochs, and what the run was."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from ckptdoctor.trainer.progress.chart import Chart, Series, svg
from ckptdoctor.trainer.progress.metrics import Record, number
from ckptdoctor.trainer.progress.style import STYLE
from ckptdoctor.trainer.progress.text import duration, percent, visible

# What a browser is told it may fetch: nothing (https://www.w3.org/TR/CSP3/)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_COLUMNS = (
    ("train loss", "train_loss", "{:.4f}".format),
    ("train accuracy", "train_accuracy", percent),
    ("test loss", "test_loss", "{:.4f}".format),
    ("test accuracy", "test_accuracy", percent),
    ("EMA accuracy", "ema_accuracy", percent),
    ("images/s", "images_per_second", "{:,.0f}".format),
    ("seconds", "seconds", "{:,.1f}".format),
    ("learning rate", "learning_rate", "{:.4g}".format),
)


def page(metrics: Sequence[Record], title: str) -> str:
    """The page as text. Every word of it that is not ours, such as a path, is escaped."""
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
    """Any value as text that no browser takes for markup."""
    return escape(visible(str(value)))


def _head(title: str) -> Iterator[str]:
    yield "<!DOCTYPE html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{_text(title)} · training curves</title>"
    yield f"<style>{STYLE}</style>"
    yield "</head>"
    yield "<body>"


def _header(title: str, started: Record, metrics: Sequence[Record]) -> Iterator[str]:
    config = _config(started)
    devices = list(dict.fromkeys(map(str, _list(started.get("devices")))))
    parameters = number(started, "parameters")
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


def _state(last: Record) -> str:
    """How the run stands, as far as its last record tells."""
    time = str(last.get("time", ""))[:16].replace("T", " ")
    if last["event"] != "Ended":
        return f"In progress at {time} UTC"
    return f"Stopped at {time} UTC: {last['interrupted']}" if last.get("interrupted") else f"Done at {time} UTC"


def _tiles(started: Record, epochs: Sequence[Record]) -> Iterator[str]:
    """The figures to see first."""
    accuracies = _points(epochs, "test_accuracy")
    speeds = _points(epochs, "images_per_second")
    seconds = sum(value for _, value in _points(epochs, "seconds"))
    planned = _config(started).get("epochs", "?")
    yield '<dl class="tiles">'
    if accuracies:
        epoch, best = _best(accuracies)
        yield _tile("Best test accuracy", percent(best), f"after epoch {epoch}")
        yield _tile("Last test accuracy", percent(accuracies[-1][1]), f"after epoch {accuracies[-1][0]}")
    yield _tile("Epochs", f"{epochs[-1]['epoch'] if epochs else 0} of {planned}", "complete")
    if speeds:
        yield _tile("Images a second", f"{speeds[-1][1]:,.0f}", "in the last epoch")
    yield _tile("Time", duration(seconds), "of training, without tests")
    yield "</dl>"


def _tile(label: str, value: str, about: str) -> str:
    return f"<div><dt>{_text(label)}</dt><dd>{_text(value)}<small>{_text(about)}</small></dd></div>"


def _charts(epochs: Sequence[Record], resumed: Sequence[int]) -> Iterator[str]:
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
    yield from _figure(Chart("Accuracy", accuracy, percent, lambda value: f"{100 * value:g} %", resumed=resumed), "acc")
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


def _table(epochs: Sequence[Record], checkpoints: dict[int, str]) -> Iterator[str]:
    columns = [column for column in _COLUMNS if _points(epochs, column[1])]
    best = _best(_points(epochs, "test_accuracy"))[0]
    yield '<section><h2 id="epochs">All epochs</h2>'
    yield '<div class="scroll" role="region" aria-labelledby="epochs" tabindex="0"><table class="epochs">'
    titles = "".join(f'<th scope="col">{title}</th>' for title, _, _ in columns)
    yield f'<thead><tr><th scope="col">epoch</th>{titles}<th scope="col" class="left">checkpoint</th></tr></thead>'
    yield "<tbody>"
    for record in epochs:
        values = ((number(record, key), write) for _, key, write in columns)
        cells = "".join(f"<td>{'–' if value is None else _text(write(value))}</td>" for value, write in values)
        row = '<tr class="best">' if record["epoch"] == best else "<tr>"
        saved = f'<td class="left">{_text(checkpoints.get(record["epoch"], ""))}</td>'
        yield f'{row}<th scope="row">{_text(record["epoch"])}</th>{cells}{saved}</tr>'
    yield "</tbody></table></div></section>"


def _settings(started: Record) -> Iterator[str]:
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


def _points(epochs: Sequence[Record], key: str) -> list[tuple[int, float]]:
    values = ((record["epoch"], number(record, key)) for record in epochs)
    return [(epoch, value) for epoch, value in values if value is not None]


def _best(points: Sequence[tuple[int, float]]) -> tuple[int, float]:
    """The first epoch with the highest value, and that value; epoch 0 when there is none."""
    return max(points, key=lambda point: (point[1], -point[0]), default=(0, 0.0))


def _checkpoints(metrics: Sequence[Record]) -> dict[int, str]:
    """After which epoch which checkpoints were written: their names without the folder of the run."""
    found: dict[int, str] = {}
    epoch = 0
    for record in metrics:
        if record["event"] == "EpochDone":
            epoch = record["epoch"]
        elif record["event"] == "Saved":
            name = os.path.basename(str(record.get("path")))
            found[epoch] = f"{found[epoch]}, {name}" if epoch in found else name
    return found


def _config(started: Record) -> dict[str, Any]:
    config = started.get("config")
    return config if isinstance(config, dict) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
