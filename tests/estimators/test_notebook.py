"""What notebooks show: scikit-learn's diagram, and below it what was learnt."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

from kernelweave import BayesianMKLClassifier, MKLClassifier, NystromMKLClassifier
from kernelweave.inspect import html_repr, learnt_line
from kernelweave.kernels import RBF, Linear

BAD = '<script>alert("x")</script> & <b>'
KERNELS = [Linear(), RBF(width=1.0, name=BAD), *(RBF(width=w) for w in (2.0, 3.0, 4.0))]


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = np.where(np.abs(X[:, 0]) + 0.3 * rng.normal(size=60) > 0.7, 1, -1)
    return MKLClassifier(KERNELS, regularizer="lp_ball").fit(X, y), X, y


class Strict(HTMLParser):
    """Reads HTML in which every tag is closed, in order."""

    _ALONE = frozenset({"br", "hr", "input", "img", "meta", "link", "path"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in self._ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self._ALONE:
            assert self.open.pop() == tag


def panel_of(estimator):
    """The part of the page that is ours."""
    html = html_repr(estimator)
    start = html.index('<div class="kw-learnt"')
    return html[start:]


def test_fitted_shows_diagram_weights_and_certificate(model):
    model, _, _ = model
    html = model._repr_html_()
    assert "sk-top-container" in html
    panel = panel_of(model)
    assert html.endswith(panel)
    assert html.startswith("<style>")
    assert f"gap {model.gap_:.1e} (relative, tolerance 1.0e-03)" in panel
    assert f"✓ converged after {model.n_iter_} iteration" in panel
    assert "5 of 5 kernels have weight" in panel
    for weight in model.weights_:
        assert f">{weight:.4f}<" in panel
    # The longest bar is that of the heaviest kernel.
    widths = [float(w) for w in re.findall(r"width: ([\d.]+)%\"", panel)]
    ordered = np.sort(model.weights_)[::-1]
    np.testing.assert_allclose(widths, 100 * ordered / ordered[0], atol=0.06)


def test_names_are_escaped_and_tags_are_closed(model):
    panel = panel_of(model[0])
    assert BAD not in panel
    assert "<script" not in panel
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &lt;b&gt;" in panel
    reader = Strict()
    reader.feed(panel)
    assert reader.open == []
    assert reader.seen.count("tr") == 5


def test_unfitted_is_what_scikit_learn_shows():
    html = MKLClassifier()._repr_html_()
    assert "kw-learnt" not in html
    numbers = re.compile(r"sk-(container|estimator)-id-\d+")
    assert numbers.sub("", html) == numbers.sub("", estimator_html_repr(MKLClassifier()))


def test_the_display_setting_of_scikit_learn_counts(model):
    model, _, _ = model
    bundle = model._repr_mimebundle_()
    assert "kw-learnt" in bundle["text/html"]
    assert bundle["text/plain"] == repr(model)
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert set(model._repr_mimebundle_()) == {"text/plain"}


def test_a_fit_that_did_not_converge_says_so(model):
    model, X, y = model
    short = clone(model).set_params(max_iter=1, tol=1e-9, solver="pgd")
    with pytest.warns(UserWarning):
        short.fit(X, y)
    assert "⚠ not converged after 1 iteration<" in panel_of(short)


def test_other_models(model):
    _, X, y = model
    bayes = BayesianMKLClassifier(KERNELS[:2], max_iter=300).fit(X, y)
    panel = panel_of(bayes)
    assert f"{bayes.weights_[0]:.4f} ± {bayes.weights_std_[0]:.4f}" in panel
    assert "lower bound on the log evidence" in panel
    nystrom = NystromMKLClassifier(KERNELS[:2], n_components=10).fit(X, y)
    assert f"fitted in {nystrom.n_iter_} iteration" in panel_of(nystrom)
    product = MKLClassifier(combination="product", regularizer="l1").fit(X, y)
    assert "relative projected gradient" in panel_of(product)
    bayes.weights_ = np.array([-0.5, 0.1])
    assert panel_of(bayes).count('"kw-bar kw-minus"') == 1


def test_many_kernels_and_none(model):
    model, X, y = model
    many = MKLClassifier("simplemkl", regularizer="lp_ball").fit(X, y)
    panel = panel_of(many)
    assert panel.count("<tr>") == 9
    assert "44 more" in panel
    many.weights_ = np.zeros(52)
    assert "None of the 52 kernels has weight." in panel_of(many)
    assert learnt_line(MKLClassifier("linear").fit(X, y)) == "One kernel: linear."


def test_pipelines_and_searches_show_it_in_their_diagrams(model):
    model, X, y = model
    pipe = make_pipeline(StandardScaler(), clone(model)).fit(X, y)
    assert "MKLClassifier" in pipe._repr_html_()
    search = GridSearchCV(clone(model), {"C": [0.1, 1.0]}, cv=2).fit(X, y)
    assert "MKLClassifier" in search._repr_html_()
