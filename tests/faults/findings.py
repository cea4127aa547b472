"""Findings of an attack on an earlier version, each with the tests that fail if it comes back."""

from __future__ import annotations

OPENED = "tests/tracking/test_opened.py::test_altered_run_opens_only_on_request_with_a_warning"
EXPORTED = (
    "tests/methods/test_model_export.py::"
    "test_run_with_an_altered_file_is_exported_only_on_request_and_its_card_carries_the_warning"
)
ARGUMENTS = "tests/cli/test_hostile_arguments.py::"
ALTERED = "tests/cli/test_altered_runs.py::"
RUNS = "tests/cli/test_runs_command.py::"

FINDINGS: dict[str, tuple[str, ...]] = {
    # A forged score reached the model card.
    "H1": (OPENED, EXPORTED),
    # ask, export and evaluate used altered files.
    "H2": (
        OPENED,
        EXPORTED,
        "tests/methods/test_asking.py::test_ask_names_the_missing_part_of_a_run",
        f"{ALTERED}test_evaluation_of_an_altered_run_carries_the_warning_in_every_output",
        f"{ALTERED}test_every_output_of_a_command_on_an_altered_run_carries_the_warning",
    ),
    # An altered recipe made one run count as three seeds.
    "H3": (
        OPENED,
        "tests/evaluation/test_compare_seeds.py::test_copies_of_a_run_are_never_several_seeds",
        "tests/evaluation/test_compare_seeds.py::test_runs_that_trained_equal_weights_are_not_two_seeds",
    ),
    # -o replaced a device by a file.
    "H4": (
        f"{ARGUMENTS}test_device_is_written_and_never_replaced",
        f"{ARGUMENTS}test_report_written_to_a_pipe_goes_through_it",
        "tests/fuzz/test_attacks.py::test_full_device_as_output_is_one_error",
    ),
    # serve retriever of a recipe without retrieval ended in a traceback.
    "H5": (f"{ARGUMENTS}test_retriever_of_a_recipe_that_searches_nothing_is_refused",),
    # runs waited for a server that was down.
    "M1": (
        f"{RUNS}test_server_that_is_down_is_reported_in_one_sentence",
        f"{RUNS}test_server_that_never_answers_is_reported_within_five_seconds",
    ),
    # runs with a PostgreSQL store ended in a traceback.
    "M2": (f"{RUNS}test_database_is_neither_opened_nor_created",),
    # convert accepted ids of Wikidata that shift columns.
    "M3": ("tests/data/test_converters.py::test_id_or_date_that_would_shift_columns_is_refused_with_its_line",),
    # An ASCII locale ended commands in a traceback.
    "M4": (f"{ARGUMENTS}test_every_command_prints_in_an_ascii_locale_and_to_closed_streams",),
    # A question that is not UTF-8.
    "L1": (f"{ARGUMENTS}test_question_that_is_not_utf8_is_refused",),
    # Pipes and endless devices as input.
    "L2": (f"{ARGUMENTS}test_pipe_or_endless_device_is_refused",),
    # compare --score of a number that is no score.
    "L3": ("tests/evaluation/test_compare.py::test_score_that_no_run_can_have_is_refused",),
    # compare of a run with itself.
    "L4": ("tests/evaluation/test_compare.py::test_run_compared_with_itself_or_its_copy_is_refused",),
    # runs created a database, and -o created folders.
    "L5": (
        f"{RUNS}test_database_is_neither_opened_nor_created",
        f"{ARGUMENTS}test_output_that_cannot_be_meant_is_refused_before_the_work",
    ),
    # Control characters in the names of outputs.
    "L6": (f"{ARGUMENTS}test_output_that_cannot_be_meant_is_refused_before_the_work",),
    # Recipes that cannot be meant.
    "L7": (
        f"{ARGUMENTS}test_setting_that_cannot_be_meant_is_refused_with_its_place",
        f"{ARGUMENTS}test_beta_that_has_no_effect_is_refused",
    ),
    # A symlinked recipe looked for its pipeline beside the link.
    "L8": (f"{ARGUMENTS}test_symlinked_recipe_finds_its_pipeline_beside_its_target",),
    # Raw HTML in a study's Markdown table.
    "L9": ("tests/studies/test_table.py::test_markdown_of_hostile_texts_opens_no_html_and_no_cell",),
    # A moved run was not recognised as finished.
    "L10": (
        "tests/tracking/test_opened.py::test_finished_run_that_was_moved_is_still_finished",
        "tests/studies/test_study.py::test_a_killed_study_resumes_with_the_cell_it_was_at",
    ),
    # The retriever service accepted duplicate JSON keys.
    "L11": ("tests/retrieval/service/test_service.py::test_invalid_requests_get_small_errors_of_one_format",),
}
