"""Kubeflow component of the step in ``platform_sdk/steps/score.py``."""

from platform_sdk.kubeflow.component import step_component

component = step_component("score")
