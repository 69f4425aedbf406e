"""report_page.py: report_page.py PAGE: reads a page of penstock-report with a parser of HTML, its charts with one of XML, and
prints what they hold, one `name count` a line. Ends with 1 if the page is not well formed or refers to something outside."""
import collections
import html.parser
import re
import sys
import xml.etree.ElementTree

VOID = {"meta", "!doctype"}


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.seen, self.references = [], collections.Counter(), []

    def handle_starttag(self, tag, attributes):
        self.seen[tag] += 1
        self.references += [value for name, value in attributes if name in ("src", "href", "srcset", "data", "action", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            sys.exit(f"</{tag}> at {self.getpos()} closes no element")


def main(path):
    text = open(path, encoding="utf-8").read()
    page = Page()
    page.feed(text)
    page.close()
    if page.open or page.references or re.search("https?:|url\\(|@import", text, re.IGNORECASE):
        sys.exit(f"open: {page.open}, references: {page.references}, or an address in the text")
    print("script", page.seen["script"])
    charts = re.findall("<svg.*?</svg>", text, re.DOTALL)
    print("chart", len(charts))
    classes = collections.Counter()
    for chart in charts:
        root = xml.etree.ElementTree.fromstring(chart)
        name = root.get("aria-label").split()[0]
        numbers = [n for element in root.iter() for key in ("x", "y", "width", "height", "cx", "cy") for n in [element.get(key)] if n]
        if any(float(number) < -0.01 or float(number) > 5000 for number in numbers):
            sys.exit(f"{name}: a place outside of the chart")
        for element in root.iter():
            kind = re.sub("[0-9]+$", "", element.get("class", ""))
            classes[f"{name}.{kind}"] += 1
            classes[f"{name}.{kind} with title"] += element.find("title") is not None
            path = element.get("d", "M0 0")
            if not re.fullmatch("([MLZhlz ]|-?[0-9]+(\\.[0-9]+)?(?![0-9.]))+", path):
                sys.exit(f"{name}: no path: {path[:60]} ... {path[-60:]}")
            classes[f"{name}.{kind} places"] += path.count("L")
    for name, count in sorted(classes.items()):
        if count:
            print(name, count)


main(sys.argv[1])
