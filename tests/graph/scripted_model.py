"""A model that answers as a script says, with a tokenizer of bytes, which can spell any marker."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from platform_sdk.graph.llm import END, MISSED
from platform_sdk.sampling.engine import Request
from tests.methods.mygo.scripted import Scripted

ANSWER = """fact<|>Oslo lies in Norway.
entity<|>Oslo<|>city<|>A city.
entity<|>Norway<|>country<|>
fact<|>It is cold.
nonsense
entity<|>Oslo<|>city
"""


def byte_tokenizer() -> PreTrainedTokenizerFast:
    core = Tokenizer(models.BPE({letter: i for i, letter in enumerate(pre_tokenizers.ByteLevel.alphabet())}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>", clean_up_tokenization_spaces=False)
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    return tokenizer


def scripted(prompts: list[str], max_model_len: int = 10_000) -> Scripted:
    """Return an engine that answers, adds one fact when asked for more, and then has no more."""
    tokenizer = byte_tokenizer()

    def policy(request: Request) -> list[int]:
        prompt = tokenizer.decode(request.token_ids)
        prompts.append(prompt)
        missed = {0: ANSWER, 1: "fact<|>Yes.\n"}.get(prompt.count(MISSED), "")
        return list(tokenizer(missed + END, add_special_tokens=False)["input_ids"])

    return Scripted(policy, tokenizer=tokenizer, max_model_len=max_model_len)
