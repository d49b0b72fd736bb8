"""HTML and SVG for notebooks: plain, self-contained, light and dark, every number also as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["bar", "bytes_text", "counted", "details", "escape", "highlight", "page", "table", "text_table"]

_STYLE = """<style>
.pyrt{--ink:#1f2328;--dim:#59636e;--line:#d1d9e0;--bar:#0969da;--host:#bc4c00;--key:#8250df;--num:#0550ae;--com:#59636e;
--typ:#116329;font:13px/1.5 system-ui,sans-serif;color:var(--ink)}
@media (prefers-color-scheme:dark){.pyrt{--ink:#f0f6fc;--dim:#9198a1;--line:#3d444d;--bar:#4493f8;--host:#f0883e;
--key:#d2a8ff;--num:#79c0ff;--com:#9198a1;--typ:#7ee787}}
[data-jp-theme-light="false"] .pyrt{--ink:#f0f6fc;--dim:#9198a1;--line:#3d444d;--bar:#4493f8;--host:#f0883e;
--key:#d2a8ff;--num:#79c0ff;--com:#9198a1;--typ:#7ee787}
[data-jp-theme-light="true"] .pyrt{--ink:#1f2328;--dim:#59636e;--line:#d1d9e0;--bar:#0969da;--host:#bc4c00;
--key:#8250df;--num:#0550ae;--com:#59636e;--typ:#116329}
.pyrt .wide{overflow-x:auto;max-width:100%}
.pyrt.pyrt table{border-collapse:collapse;margin:.3em 0;font:inherit;color:inherit;width:auto}
.pyrt.pyrt.pyrt th,.pyrt.pyrt.pyrt td{padding:.15em .7em;text-align:left;white-space:nowrap;max-width:none;
border:0;border-bottom:1px solid var(--line);color:inherit;background:none;vertical-align:top}
.pyrt.pyrt.pyrt th{font-weight:600;color:var(--dim)}
.pyrt.pyrt.pyrt .n{text-align:right;font-variant-numeric:tabular-nums}
.pyrt.pyrt.pyrt td.l{white-space:normal;min-width:18em;overflow-wrap:anywhere}
.pyrt summary{cursor:pointer;font-weight:600;padding:.2em 0}.pyrt details details{margin-left:1em}
.pyrt.pyrt.pyrt pre{margin:.3em 0;padding:.6em;overflow:auto;
max-height:26em;border:1px solid var(--line);border-radius:6px;font:12px/1.45 ui-monospace,monospace;color:var(--ink);
background:none}.pyrt .k{color:var(--key)}.pyrt .t{color:var(--typ)}.pyrt .d{color:var(--num)}.pyrt .c{color:var(--com)}
.pyrt .track{display:inline-block;width:14em;height:.8em;border-radius:2px;background:var(--line)}
.pyrt svg{max-width:100%;min-width:36em;height:auto}
.pyrt .track span{display:block;height:100%;border-radius:2px;background:var(--bar)}
.pyrt .track.host span{background:var(--host)}.pyrt .dim{color:var(--dim)}
</style>"""

_LONG = 44
"""Characters from which a cell's text is wrapped."""

_TOKENS = re.compile(
    r"(?P<c>//[^\n]*)|(?P<k>@\w+|\b(?:fn|let|var|const|struct|return|if|else|for|while|loop|break|continue|switch|case|"
    r"default|override|alias|true|false)\b)|(?P<t>\b(?:[fiu]32|f16|bool|atomic|array|vec[234]\w?|mat[234]x[234]\w?|ptr)\b)|"
    r"(?P<d>\b(?:0x[\da-fA-F]+|\d+(?:\.\d*)?(?:e[+-]?\d+)?)[fhiu]?\b)"
)


def escape(text: str) -> str:
    """The text with HTML's special characters as references."""
    from html import escape as escape_html  # brings HTML's 2,231 named characters, which pages have no use for

    return escape_html(text)


def page(*parts: str) -> str:
    """Join the parts with the style that they need."""
    return f'{_STYLE}<div class="pyrt">{"".join(parts)}</div>'


def highlight(wgsl: str) -> str:
    """WGSL as HTML with keywords, types, numbers and comments marked."""
    made, at = [], 0
    for token in _TOKENS.finditer(wgsl):
        made.append(escape(wgsl[at : token.start()]))
        made.append(f'<span class="{token.lastgroup}">{escape(token.group())}</span>')
        at = token.end()
    return f"<pre>{''.join(made)}{escape(wgsl[at:])}</pre>"


def table(head: Sequence[str], rows: Iterable[Sequence[object]], raw: Iterable[int] = ()) -> str:
    """Return an HTML table; numbers are right-aligned, long texts wrapped; columns `raw` hold HTML."""
    plain = set(raw)

    def cell(i: int, value: object) -> str:
        kind = ' class="n"' if _is_number(value) else ' class="l"' if i not in plain and len(str(value)) > _LONG else ""
        return f"<td{kind}>{value if i in plain else escape(_text(value))}</td>"

    rows = list(rows)
    numbers = {i for row in rows for i, v in enumerate(row) if _is_number(v)}
    kinds = [' class="n"' if i in numbers else "" for i in range(len(head))]
    heads = "".join(f'<th scope="col"{kind}>{escape(h)}</th>' for kind, h in zip(kinds, head, strict=True))
    body = "".join(f"<tr>{''.join(cell(i, v) for i, v in enumerate(row))}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def details(title: str, content: str, is_open: bool = False) -> str:
    """Return a part that folds."""
    return f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>{content}</details>"


def bar(share: float, host: bool = False) -> str:
    """Return a bar of `share` (0 to 1) of its track."""
    kind = "track host" if host else "track"
    return f'<span class="{kind}" role="img" aria-label="{share:.0%}"><span style="width:{share:.1%}"></span></span>'


def text_table(head: Sequence[str], rows: Iterable[Sequence[object]], width: int = 60) -> str:
    """Return a table for terminals: columns aligned, long cells cut."""
    cells = [list(head)] + [[_cut(_text(v), width) for v in row] for row in rows]
    kinds = [[isinstance(v, int | float) for v in row] for row in rows] if isinstance(rows, Sequence) else []
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = []
    for number, row in enumerate(cells):
        right = kinds[number - 1] if number and kinds else [False] * len(head)
        parts = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        lines.append("  ".join(parts).rstrip())
        if number == 0:
            lines.append("  ".join("-" * w for w in widths))
    return "\n".join(lines)


def bytes_text(nbytes: int) -> str:
    """Format a byte count in decimal units, as browsers and the page do: '1.5 MB'."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if nbytes >= limit:
            return f"{nbytes / limit:.1f} {unit}"
    return f"{nbytes} B"


def counted(number: int, noun: str, plural: str = "s") -> str:
    """Format a count, such as '1 node' or '2 nodes'."""
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) or (isinstance(value, str) and bool(re.fullmatch(r"[\d.,]+%?", value)))


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
