"""Draws, as SVG, how many times better ringq is than the original nsqd, with a bar each for rate, CPU and p99."""

import math

LEFT, RIGHT, TOP, ROW, BAR = 315, 60, 62, 48, 12
WIDTH = 880
PLOT = WIDTH - LEFT - RIGHT
# The ends of the axis. A bar begins at 1, and one to the left says that ringq is worse.
LEAST, MOST = 0.5, 100.0
# The greys and colours are readable on white and on black. A page in dark mode gets lighter text.
STYLE = """text{font:13px system-ui,sans-serif;fill:#333}.small{font-size:11px}line{stroke:#8888;stroke-width:1}
.rate{fill:#3b82f6}.cpu{fill:#d97706}.p99{fill:#16a34a}
@media(prefers-color-scheme:dark){text{fill:#ddd}}"""
# Each figure, whether more is better, and its name in the legend.
FIGURES = {"rate_per_s": (True, "rate", "messages per second"), "cpu_us": (False, "cpu", "messages per CPU second"),
           "p99_ms": (False, "p99", "shorter p99")}


def x(factor):
    return LEFT + PLOT * math.log(max(LEAST, min(factor, MOST)) / LEAST) / math.log(MOST / LEAST)


def ratio(row, figure):
    """Returns the median of the rounds' ratios, ringq to the original. If that is not stored, returns the ratio of the
    medians."""
    return row.get(f"{figure}_ratio") or row[figure]["ringq"] / row[figure]["original"]


def better(row, figure):
    """Returns how many times better ringq is, or `None` if that was not measured."""
    if figure not in row:
        return None
    return ratio(row, figure) if FIGURES[figure][0] else 1 / ratio(row, figure)


def times(factor):
    return f"{factor:.2g}" if factor < 100 else f"{factor:,.0f}"


def draw(rows):
    """Draws the chart of (text, row) pairs, with a logarithmic axis. A longer bar is cut and says so."""
    height = TOP + ROW * len(rows) + 8
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           f'role="img"><title>How many times better than nsqd 1.3.0 ringq is</title><style>{STYLE}</style>']
    at = LEFT
    for _, kind, text in FIGURES.values():
        out.append(f'<rect class="{kind}" x="{at}" y="8" width="12" height="12"/><text x="{at + 17}" y="18">{text}</text>')
        at += 205
    for tick in (0.5, 1, 2, 5, 10, 20, 50, 100):
        out.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP - 8}" y2="{height - 8}"/>'
                   f'<text class="small" x="{x(tick):.1f}" y="{TOP - 14}" text-anchor="middle">{tick} x</text>')
    for number, (text, row) in enumerate(rows):
        top = TOP + ROW * number
        out.append(f'<text x="{LEFT - 10}" y="{top + ROW / 2}" text-anchor="end">{text}</text>')
        factors = [(FIGURES[figure][1], better(row, figure)) for figure in FIGURES]
        factors = [(kind, factor) for kind, factor in factors if factor is not None]
        y = top + (ROW - BAR * len(factors)) / 2 - 4
        for kind, factor in factors:
            first, last = sorted((x(1), x(factor)))
            out.append(f'<rect class="{kind}" x="{first:.1f}" y="{y}" width="{last - first:.1f}" height="{BAR - 2}"/>')
            out.append(f'<text class="small" x="{last + 4:.1f}" y="{y + BAR - 3}">{times(factor)}</text>')
            y += BAR
    return "\n".join(out + ["</svg>"]) + "\n"
