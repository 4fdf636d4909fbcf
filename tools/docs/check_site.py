"""Checks a built site: all links and anchors have targets, and pages load nothing from other sites.

MkDocs checks links in Markdown. This script also checks links from the theme, the API
reference and raw HTML, and finds lists that Markdown did not recognise.
"""

import pathlib
import re
import urllib.parse

LOADED = re.compile(
    r"<(?:script|img|source|iframe)\b[^>]*\ssrc=\"([^\"]+)|<link\b(?![^>]*canonical)[^>]*\shref=\"([^\"]+)"
)
FAULTS = {
    r"<img\b(?![^>]*(?:\balt=\"[^\"]|twemoji))[^>]*": "has no text for those who cannot see it",
    r"<p>[^<]*\n(?:- |\d+\. )[^<]*": "needs an empty line before its list",
}


def check(site: pathlib.Path) -> list[str]:
    """Returns the errors."""
    pages = {path: path.read_text() for path in site.rglob("*.html")}
    anchors = {path: set(re.findall(r"\s(?:id|name)=\"([^\"]+)", text)) for path, text in pages.items()}
    errors = []
    for path, text in pages.items():
        name = path.relative_to(site)
        errors += [
            f"{name}: {found} {fault}" for pattern, fault in FAULTS.items() for found in re.findall(pattern, text)
        ]
        loads = ["".join(groups) for groups in LOADED.findall(text)]
        for address in re.findall(r"<a\b[^>]*\shref=\"([^\"]+)", text) + loads:
            url = urllib.parse.urlsplit(address)
            if url.scheme or url.netloc:
                if address in loads and url.scheme != "data":
                    errors.append(f"{name}: loads {address} from elsewhere")
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            if target.is_dir():
                target /= "index.html"
            anchor = urllib.parse.unquote(url.fragment)
            # 404.html has absolute links, because it is served for any address.
            if not target.is_file() and name.name != "404.html":
                errors.append(f"{name}: {address} leads nowhere")
            elif anchor and target in pages and anchor not in {*anchors[target], "__skip"}:
                errors.append(f"{name}: {address}: there is no such anchor")
    for style in site.rglob("*.css"):
        addresses = re.findall(r"url\([\"']?((?:https?:)?//[^\"')]+)", style.read_text())
        errors += [f"{style.relative_to(site)}: loads {address} from elsewhere" for address in addresses]
    return errors
