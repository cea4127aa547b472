from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from platform_sdk.config.errors import UserError
from platform_sdk.config.recipe import load_recipe
from platform_sdk.config.source import ConfigError
from platform_sdk.credentials import has_credentials, without_credentials

HOME = Path(__file__).parents[2]
SECRET = "s3cr3t-t0ken"
URL = f"http://someone:{SECRET}@host:8000/v1"
PASSWORD = st.text(string.ascii_letters + string.digits + "/?#:%&'\"\\!$()[]{},;=~^|<>äß" + "@", min_size=1)


@example(scheme="http", user="", password="@/", before="", after="")
@given(
    scheme=st.sampled_from(["http", "https", "postgresql+psycopg2", "tcp"]),
    user=st.text(string.ascii_letters + "._-%", max_size=8),
    password=PASSWORD,
    before=st.sampled_from(["", "MLflow at ", '{"uri": "', "https://proxy:3128 via ", "("]),
    after=st.sampled_from(["", "/v1", ":5432/db refused", "/v1 and http://other:1/x"]),
)
def test_no_part_of_a_password_remains(scheme: str, user: str, password: str, before: str, after: str) -> None:
    text = f"{before}{scheme}://{user}:{password}@host{after}"
    assert without_credentials(text) == f"{before}{scheme}://***@host{after}"
    assert has_credentials({"a": [text]})


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/v1",
        "openai:bge@http://host:80/v1",
        "a@b.c",
        "hf://OWNER/NAME@main/FILE",
        "://",
        "http://***@host/",
    ],
)
def test_text_without_a_password_is_unchanged(text: str) -> None:
    assert without_credentials(text) == text


@pytest.mark.parametrize(
    ("recipe", "override", "remedy"),
    [
        ("mygo/world.yaml", f"retrieval.url={URL}", "url_token_env"),
        ("mygo/world.yaml", f"retrieval.uri={URL}", "token_env"),
        ("mygo/world.yaml", f"retrieval.encoder=openai:bge@{URL}", "api_key_env"),
        ("mygo/world.yaml", f"sampling.engine={{engine: openai, url: '{URL}'}}", "OPENAI_API_KEY"),
        ("mygo/world.yaml", f"sampling.engine={{engine: vllm, extra: {{proxies: ['{URL}']}}}}", "leave it out"),
        ("arena/world.yaml", f"evaluation.judge={{url: '{URL}', model: m}}", "api_key_env"),
        ("mygo/world.yaml", f"data_dir={URL}", "leave it out"),
        ("mygo/world.yaml", f"seed={URL}", "must be of type integer"),
        ("mygo/world.yaml", f"nothing={URL}", "no such parameter"),
        ("arena/world.yaml", f"agent.rewards={{accuracy: judge, judge: {{url: '{URL}', model: m}}}}", "api_key_env"),
    ],
)
def test_recipe_with_a_password_is_refused_without_showing_it(recipe: str, override: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=remedy) as caught:
        load_recipe(HOME / "pipelines" / recipe, [override])
    assert SECRET not in str(caught.value)


def test_an_error_never_quotes_a_password() -> None:
    assert str(UserError(f"{URL}: refused")) == "http://***@host:8000/v1: refused"
