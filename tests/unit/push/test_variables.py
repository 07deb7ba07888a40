"""What is filled into a content, and what a text may not do."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pushlease.errors import BadRequest
from pushlease.push.notification import Content
from pushlease.push.variables import filled, names_in


def test_names_are_found_and_filled_wherever_there_is_text() -> None:
    content = Content(
        title="Hi {{ name }}",
        link="https://example.com/{{ name }}",
        data={"order": "{{order}}"},
        locales={"de": {"title": "Hallo {{ name }}"}},
        apns={"payload": {"aps": {"alert": {"loc-args": ["{{ name }}", 1]}}}},
    )
    assert names_in(content) == {"name", "order"}
    ready = filled(content, {"name": "Ada & Co", "order": "42", "unused": "x"})
    assert (ready.title, ready.data, ready.locales) == (
        "Hi Ada & Co",
        {"order": "42"},
        {"de": {"title": "Hallo Ada & Co"}},
    )
    assert ready.link == "https://example.com/Ada%20%26%20Co"
    assert ready.apns == {"payload": {"aps": {"alert": {"loc-args": ["Ada & Co", 1]}}}}


@pytest.mark.parametrize(
    "text",
    [
        "{{ a.b }}",
        "{{ a['b'] }}",
        "{{ a|upper }}",
        "{{ a() }}",
        "{{ a ~ b }}",
        "{{ 1 }}",
        "{{ none }}",
        "{{ }}",
        "{{ a",
        "{{ a }",
        "{# gone #}",
        "{% if a %}x{% endif %}",
        "{% raw %}x{% endraw %}",
        "{{ 'a'.__class__ }}",
        "{{ " + "(" * 500 + "a" + ")" * 500 + " }}",
    ],
)
def test_a_text_can_name_values_and_do_nothing_else(text: str) -> None:
    for content in (Content(title=text), Content(data={"k": text}), Content(locales={"de": {"body": text}})):
        with pytest.raises(BadRequest, match=r"content\.") as refusal:
            names_in(content)
        assert refusal.value.field.startswith("content.")
        with pytest.raises(BadRequest):
            filled(content, {"a": "x", "b": "y"})


@pytest.mark.parametrize("name", ["self", "range", "loop", "missing"])
def test_a_name_without_a_value_is_a_fault(name: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        filled(Content(body=f"{{{{ {name} }}}}"), {})
    assert refusal.value.field == f"variables.{name}"


def test_braces_can_be_said() -> None:
    assert filled(Content(title="{ok} {{ '{{' }} }}"), {}).title == "{ok} {{ }}"


@given(st.text(max_size=40), st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=30), min_size=2))
def test_what_is_filled_in_is_never_read_again(around: str, values: dict[str, str]) -> None:
    before = around.replace("{", "(").replace("\r", "")  # line ends are written in one way
    ready: Any = filled(Content(title=before + "{{ a }}{{ b }}", link="https://x/{{ a }}"), values)
    assert ready.title == before + values["a"] + values["b"]
    assert ready.link is not None
    assert set(ready.link.removeprefix("https://x/")).isdisjoint(' /?#&"<>{}')
    assert json.loads(ready.to_json())["title"] == ready.title
