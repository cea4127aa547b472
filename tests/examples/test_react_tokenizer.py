"""The chat template of the base model for ReAct: calls of tools as the method react writes them."""

from __future__ import annotations

from examples.world_base.tokenizer import build_tokenizer, plain_template
from platform_sdk.sampling.models import load_tokenizer

SHIPPED = load_tokenizer("hopforge:world-base-react")
QUESTION = [{"role": "system", "content": "Think ."}, {"role": "user", "content": "Who ?"}]


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"type": "function", "id": "c", "function": {"name": name, "arguments": arguments}}


def test_shipped_template_is_the_one_that_the_tokenizer_is_made_with() -> None:
    assert SHIPPED.chat_template == build_tokenizer(1024, "react").chat_template


def test_conversation_without_tools_is_rendered_as_by_the_base_model() -> None:
    assert SHIPPED.apply_chat_template(QUESTION, tokenize=False) == plain_template(QUESTION)


def test_calls_and_results_are_written_as_the_method_react_writes_them() -> None:
    thought = {
        "role": "assistant",
        "content": "<think>So .</think>",
        "tool_calls": [call("search", query="Who is Ida ?")],
    }
    result = {"role": "tool", "tool_call_id": "c", "content": "Ida : Ida is a person ."}
    two = {"role": "assistant", "content": "", "tool_calls": [call("pair", a="x", b=1), call("add", n=2)]}
    rendered = SHIPPED.apply_chat_template([*QUESTION, thought, result, two], tokenize=False)
    assert rendered == (
        plain_template(QUESTION)
        + "<|assistant|><think>So .</think><search>Who is Ida ?</search><|end|>"
        + "<|user|><result>\nIda : Ida is a person .\n</result><|end|>"
        + '<|assistant|><pair>{"a": "x", "b": 1}</pair>\n<add>{"n": 2}</add><|end|>'
    )
