"""Checks a built site: all links and anchors have targets, and pages load nothing from other sites.

    python tools/docs/check_site.py FOLDER

MkDocs checks links in Markdown. This script also checks links from the theme, the API
reference and raw HTML, and finds lists that Markdown did not recognise.
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse

LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}
# Values of a <link>'s rel that load nothing.
NOT_LOADED = {"canonical", "prev", "next", "alternate"}


class Page(html.parser.HTMLParser):
    """A page's links, loaded files and anchors."""

    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links, self.loads, self.problems = set(), [], [], []
        self._paragraph = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids.update(attrs[name] for name in ("id", "name") if attrs.get(name))
        if tag == "a" and attrs.get("href") is not None:
            self.links.append(attrs["href"])
        if LOADED.get(tag) in attrs and attrs.get("rel") not in NOT_LOADED:
            self.loads.append(attrs[LOADED[tag]])
        if tag == "img" and not attrs.get("alt") and "twemoji" not in attrs.get("class", ""):
            self.problems.append(f"the image {attrs.get('src')} has no text for those who cannot see it")
        if tag == "p":
            self._paragraph = ""

    def handle_endtag(self, tag):
        if tag == "p" and self._paragraph is not None:
            if re.search(r"^(- |\d+\. )", self._paragraph.partition("\n")[2], flags=re.M):
                self.problems.append(f"a list needs an empty line before it: {self._paragraph[:80]!r}")
            self._paragraph = None

    def handle_data(self, data):
        if self._paragraph is not None:
            self._paragraph += data


def check(site: pathlib.Path) -> list[str]:
    """Returns the errors."""
    pages = {path.resolve(): Page(path.read_text()) for path in site.rglob("*.html")}
    errors = []
    for path, page in pages.items():
        name = path.relative_to(site)
        errors += [f"{name}: {problem}" for problem in page.problems]
        for address in page.links + page.loads:
            url = urllib.parse.urlsplit(address)
            if url.scheme or url.netloc:
                if address in page.loads and url.scheme != "data":
                    errors.append(f"{name}: loads {address} from elsewhere")
                continue
            target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                # 404.html has absolute links, because it is served for any address.
                if name.name != "404.html":
                    errors.append(f"{name}: {address} leads nowhere")
            elif url.fragment and target in pages:
                anchor = urllib.parse.unquote(url.fragment)
                if anchor not in pages[target].ids and anchor != "__skip":
                    errors.append(f"{name}: {address}: there is no such anchor")
    for style in [*site.rglob("*.css")]:
        for address in re.findall(r"url\([\"']?((?:https?:)?//[^\"')]+)", style.read_text()):
            errors.append(f"{style.relative_to(site)}: loads {address} from elsewhere")
    return errors


def main() -> None:
    """Checks a site."""
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    site = pathlib.Path(sys.argv[1]).resolve()
    errors = check(site)
    if errors:
        raise SystemExit("\n".join(errors))
    pages = len(list(site.rglob("*.html")))
    print(f"{pages} pages: links and anchors lead somewhere, nothing is loaded from elsewhere")


if __name__ == "__main__":
    main()
