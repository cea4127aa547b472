"""Kubeflow component of the step in ``platform_sdk/steps/train.py``."""

from platform_sdk.kubeflow.component import step_component

component = step_component("train")
