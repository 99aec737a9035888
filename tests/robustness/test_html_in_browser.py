"""The HTML report in headless Chromium: it renders, and everything that moves works."""

from __future__ import annotations

import os
import shutil
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris

from kernelweave import BayesianMKLClassifier, MKLClassifier, MKLRegressor
from kernelweave.kernels import RBF, Linear, WeightedDegree, simplemkl_family
from kernelweave.report import write_html

EVIL = '<img src=x onerror="window.broken=1"></script><script>window.broken=1</script>'
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium():
    """The browser of this machine, or None."""
    given = os.environ.get("KERNELWEAVE_CHROMIUM")
    return given or next((path for path in map(shutil.which, NAMES) if path), None)


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = find_chromium()
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} found, KERNELWEAVE_CHROMIUM not set")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of different kinds, by name."""
    folder = tmp_path_factory.mktemp("reports")
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X, y = X.iloc[::6, :5], y[::6]
    flowers, kind = load_iris(return_X_y=True, as_frame=True)
    rng = np.random.default_rng(0)
    S = ["".join(rng.choice(list("ACGT"), 40)) for _ in range(60)]
    S = [s[:8] + "TTC" + s[11:] if i % 2 else s for i, s in enumerate(S)]
    t = np.arange(60) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = {
            "table": (MKLClassifier(simplemkl_family(), loss="logistic").fit(X, y), X, y),
            "bayes": (
                BayesianMKLClassifier([RBF(width=1.0), Linear()], tol=0.1).fit(flowers, kind),
                flowers,
                kind,
            ),
            "numbers": (
                MKLRegressor([RBF(width=1.0), Linear()]).fit(X, X.iloc[:, 0]),
                X,
                X.iloc[:, 0],
            ),
            "sequences": (MKLClassifier(WeightedDegree(3).by_length()).fit(S, t), S, t),
            "evil": (
                MKLClassifier([RBF(width=1.0, name=EVIL), Linear()]).fit(X, np.where(y, EVIL, "b")),
                X,
                np.where(y, EVIL, "b"),
            ),
        }
    return {
        name: write_html(
            model, folder / f"{name}.html", *held, title=EVIL if name == "evil" else None
        )
        for name, (model, *held) in made.items()
    }


@pytest.fixture(scope="module")
def plain_context(browser):
    """One for all visits that ask for nothing special: they share nothing but the start-up."""
    size = {"width": 1200, "height": 900}
    context = browser.new_context(viewport=size, color_scheme="light", reduced_motion="reduce")
    yield context
    context.close()


@pytest.fixture
def visit(browser, plain_context, reports):
    """Open a report; what went wrong or was asked of the network is in `page.complaints`."""
    opened = []

    def go(name, **settings):
        context = browser.new_context(**settings) if settings else plain_context
        page = context.new_page()
        opened.append(context if settings else page)
        page.complaints = []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.complaints.append(request.url))
        page.goto(reports[name].as_uri())
        page.complaints.remove(reports[name].as_uri())
        return page

    yield go
    for page in opened:
        page.close()


def rows(page):
    return page.locator("#kernel-rows tr").all_inner_texts()


# Contrast of every visible text with what is behind it; returns what is too faint.
CONTRAST = """() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const probe = canvas.getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const parse = (text) => {
    if (!known.has(text)) {
      probe.clearRect(0, 0, 1, 1);
      probe.fillStyle = text;
      probe.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = probe.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  };
  const over = ([r, g, b, a], under) => [r, g, b].map((v, i) => a * v + (1 - a) * under[i]);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const papers = new Map();
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    if (!papers.has(element)) {
      const layer = parse(getComputedStyle(element).backgroundColor);
      papers.set(element, over(layer, behind(element.parentElement)));
    }
    return papers.get(element);
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest("script, style, .hidden, :disabled")) continue;
    const style = getComputedStyle(element);
    const svg = element.closest("svg");
    const paper = behind(svg ? svg.parentElement : element);
    const ink = over(parse(svg ? style.fill : style.color), paper);
    const [high, low] = [light(ink), light(paper)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) faint.push(`${ratio.toFixed(2)} ${walker.currentNode.textContent.trim()}`);
  }
  return faint;
}"""

# What a screen reader needs; returns what is missing.
NEEDS = """() => {
  const missing = [];
  const each = (what, wrong, words) => {
    for (const e of document.querySelectorAll(what)) {
      if (wrong(e)) missing.push(`${words}: ${e.outerHTML.slice(0, 90)}`);
    }
  };
  const name = (e) => (e.getAttribute("aria-label") || e.textContent || "").trim();
  const isImage = (e) => e.getAttribute("aria-label") && e.getAttribute("role") === "img";
  each("svg, img", (e) => !isImage(e), "no label");
  each("svg", (e) => e.getBoundingClientRect().width < 150, "small");
  each("button, a", (e) => !name(e), "no name");
  each("input, select", (e) => !e.labels.length, "no label");
  each("th", (e) => !e.scope, "no scope");
  each("figure", (e) => !e.querySelector("figcaption"), "no caption");
  each("[id]", (e) => document.querySelectorAll(`[id="${e.id}"]`).length > 1, "an id twice");
  for (const tag of ["header", "nav", "main", "footer", "h1"]) {
    if (document.querySelectorAll(tag).length !== 1) missing.push(`not one ${tag}`);
  }
  if (document.documentElement.lang !== "en") missing.push("no language");
  return missing;
}"""

# The smallest letters of the charts, in pixels of the screen; some are turned.
LETTERS = """() => Math.min(...[...document.querySelectorAll(".chart:not(.map) text")].map((t) => {
  const { a, b } = t.getScreenCTM();
  return parseFloat(getComputedStyle(t).fontSize) * Math.hypot(a, b);
}))"""


@pytest.mark.parametrize("name", ["table", "bayes", "numbers", "sequences", "evil"])
def test_it_renders_for_everybody(visit, name):
    page = visit(name)
    assert page.locator("main > section").count() >= 5
    assert page.evaluate(NEEDS) == []
    assert page.evaluate(CONTRAST) == []
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(CONTRAST) == []
    # A phone: no scrolling sideways, and letters that can be read.
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate(LETTERS) > 10
    assert page.evaluate("window.broken") is None
    assert page.complaints == []


def test_the_filter_narrows_the_table(visit):
    page = visit("table")
    assert page.locator("#matches").inner_text() == "78 kernels"
    assert len(rows(page)) == 25
    page.get_by_label("Search").fill("POLY radius")
    found = rows(page)
    assert found and all("polynomial" in row and "radius" in row for row in found)
    assert page.locator("#matches").inner_text() == f"{len(found)} of 78 kernels match"
    # Views and families are searched too: no name says "all columns".
    page.get_by_label("Search").fill("all columns")
    assert page.locator("#matches").inner_text() == "13 of 78 kernels match"
    page.get_by_label("Search").fill("no such kernel")
    assert rows(page) == []
    assert page.locator("#matches").inner_text() == "0 of 78 kernels match"
    page.get_by_label("Search").fill("")
    assert len(rows(page)) == 25


def test_the_table_sorts_by_mouse_and_keyboard(visit):
    page = visit("table")
    head = page.locator('th[data-key="name"]')
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    # There are 18 polynomials among 78 kernels.
    names = page.locator("#kernel-rows th").all_inner_texts()
    assert [name.startswith("polynomial") for name in names] == [True] * 18 + [False] * 7
    head.get_by_role("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    assert page.locator("#kernel-rows th").first.inner_text().startswith("rbf")
    weight = page.locator('th[data-key="weight"]')
    weight.get_by_role("button").focus()
    page.keyboard.press("Space")
    assert weight.get_attribute("aria-sort") == "descending"
    assert head.get_attribute("aria-sort") == "none"
    column = page.locator("#kernel-rows td.c-weight")
    shown = [float(text) for text in column.all_inner_texts()]
    assert shown == sorted(shown, reverse=True)
    assert shown[0] > 0
    page.keyboard.press("Space")
    assert float(column.first.inner_text()) == 0.0


def test_pages_of_the_table(visit):
    page = visit("table")
    first = rows(page)
    assert page.locator("#pages").inner_text() == "Page 1 of 4"
    assert page.get_by_role("button", name="Previous").is_disabled()
    page.get_by_role("button", name="Next").click()
    assert not set(first) & set(rows(page))
    for _ in range(2):
        page.get_by_role("button", name="Next").click()
    assert page.get_by_role("button", name="Next").is_disabled()
    assert len(rows(page)) == 3
    page.get_by_label("Search").fill("rbf")
    assert page.locator("#pages").inner_text() == "Page 1 of 3"


def test_light_and_dark(visit):
    def paper():
        return page.evaluate("getComputedStyle(document.body).backgroundColor")

    page = visit("table")
    light = paper()
    page.get_by_role("button", name="Switch to dark colours").press("Enter")
    dark = paper()
    assert dark != light
    page.get_by_role("button", name="Switch to light colours").click()
    assert paper() == light
    # What the button says counts more than the system; nothing outlives the page.
    page.emulate_media(color_scheme="dark")
    assert paper() == light
    page.reload()
    assert paper() == dark
    assert page.evaluate("localStorage.length") == 0


def test_the_keyboard_can_skip_to_the_report(visit):
    page = visit("table")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the report")
    assert skip.bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_tooltips(visit):
    page = visit("table")
    tip = page.get_by_role("tooltip")
    assert not tip.is_visible()
    target = page.locator("svg [data-tip]").first
    target.scroll_into_view_if_needed()
    # Scrolling takes a tip away; its event comes with the next frame.
    page.evaluate("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")
    target.hover()
    assert "alignment 1.00" in tip.inner_text()
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_print_is_light_open_and_without_controls(visit):
    page = visit("table")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(CONTRAST) == []
    for hidden in ("#theme", "#filter", ".contents", ".pages"):
        assert not page.locator(hidden).first.is_visible(), hidden
    assert all(figure.is_visible() for figure in page.locator("figure").all())
    assert "first 25 of 78" in page.locator("#kernel-note").inner_text()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_it_reads_without_scripts(visit):
    page = visit("table", java_script_enabled=False)
    written = rows(page)
    assert len(written) == 25
    assert all(figure.is_visible() for figure in page.locator("figure").all())
    assert not page.locator("#filter").is_visible()
    assert not page.locator("#theme").is_visible()
    # Python and the script write the same.
    assert written == rows(visit("table"))


def test_the_policy_lets_nothing_out(visit):
    page = visit("table")
    refused = page.evaluate(
        """async () => {
          const refused = [];
          addEventListener("securitypolicyviolation", (e) => refused.push(e.effectiveDirective));
          await fetch("https://example.invalid/").catch(() => {});
          await new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)));
          return refused;
        }"""
    )
    assert refused == ["connect-src"]
