"""Diagnosis of a run: facts are collected into one record, and rules turn them into findings.

``facts`` defines the record, ``local`` collects it from a run directory, the ``*_rules`` modules hold pure functions
from facts to findings, and ``explain`` applies them in the order of precedence. The facts of jobs on a cluster are
collected in ``kubeflow``.
"""
