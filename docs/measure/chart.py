"""Draws, as SVG, how many times better ringq is than the original nsqd, with a bar each for rate, CPU and p99."""

import math

LEFT, RIGHT, TOP, ROW, BAR = 315, 60, 62, 48, 12
WIDTH, DECADES = 880, 2
PLOT = WIDTH - LEFT - RIGHT
# The greys and colours are readable on white and on black. A page in dark mode gets lighter text.
STYLE = """text{font:13px system-ui,sans-serif;fill:#333}.small{font-size:11px}line{stroke:#8888;stroke-width:1}
.rate{fill:#3b82f6}.cpu{fill:#d97706}.p99{fill:#16a34a}
@media(prefers-color-scheme:dark){text{fill:#ddd}}"""
# Each figure, whether more is better, and its name in the legend.
FIGURES = {"rate_per_s": (True, "rate", "messages per second"), "cpu_us": (False, "cpu", "messages per CPU second"),
           "p99_ms": (False, "p99", "shorter p99")}


def x(factor):
    return LEFT + PLOT * math.log10(max(1.0, min(factor, 10 ** DECADES))) / DECADES


def ratio(row, figure):
    """Returns the median of the rounds' ratios, ringq to the original. If that is not stored, returns the ratio of the
    medians."""
    return row.get(f"{figure}_ratio") or row[figure]["ringq"] / row[figure]["original"]


def better(row, figure):
    """Returns how many times better ringq is, or `None` if that was not measured."""
    if figure not in row:
        return None
    return ratio(row, figure) if FIGURES[figure][0] else 1 / ratio(row, figure)


def draw(rows):
    """Draws the chart of (text, row) pairs, with a logarithmic axis from 1 to 100. A longer bar is cut and says so."""
    height = TOP + ROW * len(rows) + 8
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
           f'role="img"><title>How many times better than nsqd 1.3.0 ringq is</title><style>{STYLE}</style>']
    at = LEFT
    for _, kind, text in FIGURES.values():
        out.append(f'<rect class="{kind}" x="{at}" y="8" width="12" height="12"/><text x="{at + 17}" y="18">{text}</text>')
        at += 205
    for tick in (1, 2, 5, 10, 20, 50, 100):
        out.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP - 8}" y2="{height - 8}"/>'
                   f'<text class="small" x="{x(tick):.1f}" y="{TOP - 14}" text-anchor="middle">{tick} x</text>')
    for number, (text, row) in enumerate(rows):
        top = TOP + ROW * number
        out.append(f'<text x="{LEFT - 10}" y="{top + ROW / 2}" text-anchor="end">{text}</text>')
        factors = [(FIGURES[figure][1], better(row, figure)) for figure in FIGURES]
        factors = [(kind, factor) for kind, factor in factors if factor is not None]
        y = top + (ROW - BAR * len(factors)) / 2 - 4
        for kind, factor in factors:
            out.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{x(factor) - LEFT:.1f}" height="{BAR - 2}"/>')
            label = f"{factor:.2g}" if factor < 100 else f"{factor:,.0f}"
            out.append(f'<text class="small" x="{x(factor) + 4:.1f}" y="{y + BAR - 3}">{label}</text>')
            y += BAR
    return "\n".join(out + ["</svg>"]) + "\n"
