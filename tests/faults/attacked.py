"""Faults that an attack on commit 9f806fb found, by the number of its report, each with the tests that hold it now.

Severity: H (what a reader is shown), M (commands that hang or end in a traceback), L (smaller).
"""

from __future__ import annotations

OPENED = "tracking/test_opened.py::test_altered_run_opens_only_on_request_with_a_warning"
SETTINGS = "cli/test_hostile_arguments.py::test_setting_that_cannot_be_meant_is_refused_with_its_place"

ATTACKED: dict[str, tuple[str, tuple[str, ...]]] = {
    "H1": ("a forged or deleted score reaches the model card", (
        OPENED,
        "methods/test_model_export.py::test_run_with_an_altered_file_is_exported_only_on_request_and_its_card_carries_the_warning",
    )),
    "H2": ("ask, export and evaluate use an altered configuration, tokenizer, template, corpus or question", (
        "e2e/test_damage_short.py::test_damaged_file_of_a_finished_run_ends_the_command_with_one_error",
        "methods/test_asking.py::test_ask_names_the_missing_part_of_a_run",
        "methods/test_model_export.py::test_altered_weights_are_not_exported",
    )),
    "H3": ("an edited recipe is shown, and copies of one run count as several seeds", (
        OPENED,
        "evaluation/test_compare_seeds.py::test_copies_of_a_run_are_never_several_seeds",
        "evaluation/test_compare_seeds.py::test_runs_that_trained_equal_weights_are_not_two_seeds",
    )),
    "H4": ("-o replaces a device by a file", (
        "cli/test_hostile_arguments.py::test_device_is_written_and_never_replaced",
        "cli/test_hostile_arguments.py::test_report_written_to_a_pipe_goes_through_it",
    )),
    "H5": ("serve retriever of a recipe that searches nothing ends in a traceback", (
        "cli/test_hostile_arguments.py::test_retriever_of_a_recipe_that_searches_nothing_is_refused",
    )),
    "M1": ("runs waits without end for a server that is down", (
        "cli/test_runs_command.py::test_server_that_is_down_is_reported_in_one_sentence",
        "cli/test_runs_command.py::test_server_that_never_answers_is_reported_within_five_seconds",
    )),
    "M2": ("runs with a database that has no driver here ends in a traceback", (
        "cli/test_runs_command.py::test_database_is_neither_opened_nor_created",
    )),
    "M3": ("convert accepts ids that shift columns", (
        "data/test_converters.py::test_id_or_date_that_would_shift_columns_is_refused_with_its_line",
    )),
    "M4": ("commands end in a traceback in an ASCII locale", (
        "cli/test_hostile_arguments.py::test_every_command_prints_in_an_ascii_locale_and_to_closed_streams",
    )),
    "L1": ("ask with a question that is not UTF-8", (
        "cli/test_hostile_arguments.py::test_question_that_is_not_utf8_is_refused",
    )),
    "L2": ("commands read a pipe or an endless device without end", (
        "cli/test_hostile_arguments.py::test_pipe_or_endless_device_is_refused",
    )),
    "L3": ("compare --score takes a score that no run can have", (
        "evaluation/test_compare.py::test_score_that_no_run_can_have_is_refused",
    )),
    "L4": ("compare takes one directory twice", (
        "evaluation/test_compare.py::test_run_compared_with_itself_or_its_copy_is_refused",
    )),
    "L5": ("runs creates a database, and -o creates folders", (
        "cli/test_runs_command.py::test_database_is_neither_opened_nor_created",
        "cli/test_hostile_arguments.py::test_output_that_cannot_be_meant_is_refused_before_the_work",
    )),
    "L6": ("control characters in the name of an output", (
        "cli/test_hostile_arguments.py::test_output_that_cannot_be_meant_is_refused_before_the_work",
    )),
    "L7": ("settings that cannot be meant pass validate", (
        SETTINGS,
        "cli/test_hostile_arguments.py::test_beta_that_has_no_effect_is_refused",
    )),
    "L8": ("a symlinked recipe looks for its pipeline beside the link", (
        "cli/test_hostile_arguments.py::test_symlinked_recipe_finds_its_pipeline_beside_its_target",
    )),
    "L9": ("raw HTML of a study reaches its Markdown table", (
        "studies/test_table.py::test_markdown_of_hostile_texts_opens_no_html_and_no_cell",
    )),
    "L10": ("a finished run that was moved is not known as finished", (
        "tracking/test_opened.py::test_finished_run_that_was_moved_is_still_finished",
        "studies/test_study.py::test_a_killed_study_resumes_with_the_cell_it_was_at",
    )),
    "L11": ("the retriever service takes a key twice", (
        "retrieval/service/test_service.py::test_invalid_requests_get_small_errors_of_one_format",
    )),
}  # fmt: skip
