"""A base model's vocabulary grows without its old words noticing."""

from __future__ import annotations

import torch

from platform_sdk.training.pretrain import PretrainSpec, add_words, new_model

SPEC = PretrainSpec(steps=1, hidden=32, layers=2, heads=4, key_value_heads=2, head_size=8, feed_forward=32, context=64)


def test_new_words_leave_the_old_ones_as_they_were_and_synonyms_begin_beside_what_they_mean() -> None:
    model = new_model(SPEC, 10, 0, 1)
    ids = torch.tensor([[2, 5, 9, 3]])
    with torch.no_grad():
        before = model(input_ids=ids).logits
        add_words(model, 13, {11: 4, 12: 7}, seed=3)
        after = model(input_ids=ids).logits
    assert model.config.vocab_size == 13
    assert after.shape[-1] == 13
    torch.testing.assert_close(after[..., :10], before)
    table = model.get_input_embeddings().weight
    torch.testing.assert_close(table[11] - table[4], table[12] - table[7])  # one shift for all synonyms
    assert not torch.equal(table[11], table[4])
