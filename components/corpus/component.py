"""Kubeflow component of the step in ``platform_sdk/steps/corpus.py``."""

from platform_sdk.kubeflow.component import step_component

component = step_component("corpus")
