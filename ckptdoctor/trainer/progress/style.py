"""How the page of curves looks: light and dark, wide and narrow, with nothing from outside."""

from __future__ import annotations

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
