"""The classifier on 134 recorded runs: precision and recall by kind, with a floor for both."""

from __future__ import annotations

from pathlib import Path

import pytest
from denials import corpus
from denials.scoring import Score

from sandboxd_proto.manifest import manifest_from

PRECISION, RECALL = 0.97, 0.90


@pytest.fixture(scope="session")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus") / "root"
    corpus.lay_out(root)
    return root


def test_recorded_runs_are_classified_as_they_truly_ended(fixture: Path) -> None:
    score = Score()
    for record in corpus.records():
        found = corpus.classify(record, fixture)
        score.add(record, found, exit_code=corpus.facts_of(record).exit_code)
    print("\n" + score.table())
    assert score.precision >= PRECISION
    assert score.recall >= RECALL


def test_chunks_of_one_byte_change_nothing(fixture: Path) -> None:
    for record in corpus.records():
        assert corpus.classify(record, fixture, chunk=1) == corpus.classify(record, fixture)


def test_what_cannot_be_run_again_is_counted() -> None:
    """Ports, pids, programs and bwrap arguments of the recording; the rest can be run again."""
    skipped = [record for record in corpus.records() if record.belongs_to_recording]
    print(f"\n{len(skipped)} of {len(corpus.records())} belong to the recording")
    assert 0 < len(skipped) < 40
    for record in corpus.records():
        manifest_from(record.manifest_to_run())


def test_a_classifier_that_always_denies_fails_the_floor(fixture: Path) -> None:
    """The score is able to fail: every record called a write is far below both floors."""
    score = Score()
    wrong = corpus.classify(corpus.records()[0], fixture)
    for record in corpus.records():
        score.add(record, wrong, exit_code=1)
    assert score.precision < PRECISION
    assert score.recall < RECALL
