import itertools
import json

import numpy as np
import pytest
import torch
import traitlets

from attnopt.explorers import AttentionFieldExplorer, Explorer, SoftmaxExplorer
from attnopt.explorers.base import MIME, module_source
from attnopt.explorers.html import script_json
from attnopt.softmax import softmax_jacobian

EXPLORERS = [SoftmaxExplorer, AttentionFieldExplorer]
CORNERS = [
    [list(logits), temperature]
    for logits in [*itertools.product((-3.0, 3.0), repeat=3), (0.0, 0.0, 0.0), (1.0, 0.3, -1.2)]
    for temperature in (0.1, 3.0)
]


@pytest.mark.parametrize(("logits", "temperature"), CORNERS)
def test_softmax_explorer_at_the_ends_of_its_controls(logits, temperature):
    numbers = SoftmaxExplorer(logits=logits, temperature=temperature).compute()
    s = torch.tensor(numbers["softmax"], dtype=torch.float64)
    assert abs(s.sum() - 1) < 1e-12
    assert max(logits) - 1e-12 <= numbers["smooth_maximum"] <= max(logits) + temperature * np.log(3) + 1e-12
    vectors = torch.tensor(numbers["eigenvectors"], dtype=torch.float64)
    values = torch.tensor(numbers["eigenvalues"], dtype=torch.float64)
    assert values[0] >= values[1] >= -1e-12
    torch.testing.assert_close(softmax_jacobian(s) @ vectors.T, vectors.T * values, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(vectors @ vectors.T, torch.eye(2, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    if values[1] > 1e-9:
        assert vectors.sum(1).abs().max() < 1e-6  # in the plane of the simplex


@pytest.mark.parametrize("axis", ["class", "sequence"])
@pytest.mark.parametrize("softness", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("reach", [-3.0, 3.0])
def test_attention_field_at_the_ends_of_its_controls(axis, softness, reach):
    tokens = [[reach, reach], [-reach, reach], [0.0, 0.0]]
    numbers = AttentionFieldExplorer(tokens=tokens, axis=axis, softness=softness, selected=2).compute()
    attention = np.array(numbers["attention"])
    np.testing.assert_allclose(attention.sum(1 if axis == "class" else 0), 1, rtol=1e-12)
    difference = np.array(numbers["output"]) - np.array(numbers["target"])
    np.testing.assert_allclose(numbers["gradient"], difference, atol=1e-12)
    assert numbers["loss"] > 0


@pytest.mark.parametrize("kind", EXPLORERS)
def test_display_is_widget_json_and_still(kind):
    explorer = kind()
    bundle, _ = explorer._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png", MIME, "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/plain"] == repr(kind())
    page = bundle[MIME]
    assert page["state"] == explorer.state() == kind(**page["state"]).state()
    assert json.loads(script_json(page)) == page
    assert len(page["alt"]) > 80
    assert bundle["image/png"] == kind()._repr_mimebundle_()[0]["image/png"]  # the same bytes every time


@pytest.mark.parametrize("kind", EXPLORERS)
def test_kernel_and_page_get_the_same_module(kind):
    assert kind()._esm == module_source(kind.module)
    assert "export default { render }" in module_source(kind.module)
    assert "innerHTML" not in module_source(kind.module)  # labels stay text


@pytest.mark.parametrize("kind", EXPLORERS)
def test_changing_a_trait_changes_the_still(kind):
    changed = {"temperature": 0.3} if kind is SoftmaxExplorer else {"softness": 0.9}
    assert kind(**changed).still() != kind().still()


def test_values_beyond_the_controls_are_named():
    with pytest.raises(traitlets.TraitError, match="logits must lie in"):
        SoftmaxExplorer(logits=[0.0, 0.0, 3.1])
    with pytest.raises(traitlets.TraitError):
        SoftmaxExplorer(logits=[0.0, 0.0])
    for temperature in (0.0, 3.5, float("nan")):
        with pytest.raises(traitlets.TraitError, match="temperature must lie in"):
            SoftmaxExplorer(temperature=temperature)
    with pytest.raises(traitlets.TraitError, match="tokens must lie in"):
        AttentionFieldExplorer(tokens=[[0.0, 0.0], [0.0, 0.0], [0.0, 9.0]])
    for bad in ({"softness": 1.1}, {"axis": "rows"}, {"selected": 3}):
        with pytest.raises(traitlets.TraitError):
            AttentionFieldExplorer(**bad)


def test_script_json_cannot_end_its_element():
    text = script_json({"label": "</script><!-- <b>"})
    assert "<" not in text
    assert json.loads(text) == {"label": "</script><!-- <b>"}


def test_base_class_asks_for_its_methods():
    class Empty(Explorer):
        module = "softmax"

    with pytest.raises(NotImplementedError):
        Empty().compute()
    with pytest.raises(NotImplementedError):
        Empty().still()
