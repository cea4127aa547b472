"""Cards: short Markdown about a step's inputs or outputs, for the narrow panel of the Kubeflow UI.

A card is a title, one sentence and small tables. Only ``data_card`` and ``model_card_text`` read files.
"""

from platform_sdk.evaluation.cards.form import form_card
from platform_sdk.evaluation.cards.inputs import collection_card, data_card, graph_card, model_card_text
from platform_sdk.evaluation.cards.rollouts import rollouts_card
from platform_sdk.evaluation.cards.scores import metric_values, scores_card
from platform_sdk.evaluation.cards.training import (
    end_card,
    failure_card,
    iterations_card,
    rewards_card,
    selection_card,
    training_card,
)

__all__ = [
    "collection_card",
    "data_card",
    "end_card",
    "failure_card",
    "form_card",
    "graph_card",
    "iterations_card",
    "metric_values",
    "model_card_text",
    "rewards_card",
    "rollouts_card",
    "scores_card",
    "selection_card",
    "training_card",
]
