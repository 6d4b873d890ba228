"""The classifier on 134 recorded runs: precision and recall by kind, with a floor for both."""

from __future__ import annotations

from pathlib import Path

import pytest
from denials import corpus

PRECISION, RECALL = 0.97, 0.90


@pytest.fixture(scope="session")
def fixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus") / "root"
    corpus.lay_out(root)
    return root


def test_recorded_runs_are_classified_as_they_truly_ended(fixture: Path) -> None:
    score = corpus.Score()
    for record in corpus.records():
        score.add(record, corpus.classify(record, fixture))
    print("\n" + score.table())
    assert score.precision >= PRECISION
    assert score.recall >= RECALL


def test_chunks_of_one_byte_change_nothing(fixture: Path) -> None:
    for record in corpus.records():
        assert corpus.classify(record, fixture, chunk=1) == corpus.classify(record, fixture)
