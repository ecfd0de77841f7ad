"""Making drafters by name: light imports, clear refusals, and the kinds that exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from acespec.edge.drafters import factory
from acespec.edge.drafters.base import Drafter, QuietDrafter, TurnContext
from acespec.edge.drafters.factory import make_drafter
from acespec.edge.drafters.hybrid import HybridDrafter
from acespec.edge.drafters.mlx_drafter import MlxDrafter
from acespec.edge.drafters.ngram import NgramDrafter
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import Mismatch, UsageError
from acespec.proto.sampling_params import SamplingParams
from tests.drafters import AdversarialDrafter, OracleDrafter, RandomDrafter
from tests.tiny import tiny_model_folder

VOCAB = 320
TURN = TurnContext(SamplingParams(), 1, 3, VOCAB)


def made(kind: str, model: str | None = None, cache: Path | None = None, fingerprint: bytes | None = None) -> Drafter:
    return make_drafter(
        kind, draft_model=model, model_key="target", vocab_size=VOCAB, cache_dir=cache, fingerprint=fingerprint
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("tiny"), vocab=VOCAB)


def test_importing_the_drafters_imports_no_runtime() -> None:
    code = (
        "import sys; import acespec.edge.drafters.mlx_drafter, acespec.edge.drafters.factory as f;"
        "f.make_drafter('ngram', draft_model=None, model_key='k', vocab_size=9, cache_dir=None);"
        "sys.exit(' '.join({'mlx', 'mlx_lm', 'torch', 'transformers'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_kind_is_made(folder: Path, tmp_path: Path) -> None:
    kinds = {"none": QuietDrafter, "ngram": NgramDrafter, "mlx": MlxDrafter, "hybrid": HybridDrafter}
    assert tuple(kinds) == factory.KINDS
    for kind, expected in kinds.items():
        drafter = made(kind, str(folder), tmp_path)
        assert type(drafter) is expected
        assert drafter.name == kind


def test_hybrid_drafts_with_a_real_model(folder: Path, tmp_path: Path) -> None:
    drafter = made("hybrid", str(folder), tmp_path, Tokenizer.load(folder).fingerprint)
    drafter.begin(TURN)
    path = [10, 11, 12]
    for _ in range(8):
        (guess, *_) = drafter.propose(path, 2)
        drafter.commit([guess.token], len(path))
        path.append(guess.token)
    drafter.close()
    assert len(list((tmp_path / "ngram").iterdir())) == 1


def test_what_cannot_be_made_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="none, ngram, mlx, hybrid"):
        made("telepathy")
    for kind in ("mlx", "hybrid"):
        with pytest.raises(UsageError, match="--draft-model"):
            made(kind)
    with pytest.raises(Mismatch, match=f"{Tokenizer.load(folder).fingerprint.hex()}.*{'ab' * 16}"):
        made("mlx", str(folder), fingerprint=b"\xab" * 16)
    monkeypatch.setattr(factory, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'acespec\[mlx\]'"):
        made("mlx", str(folder))


def test_none_is_silent() -> None:
    drafter = made("none")
    drafter.begin(TURN)
    drafter.commit([1], 3)
    assert drafter.propose([1, 2, 3], 4) == []
    drafter.close()


def test_the_test_drafters_do_what_they_promise() -> None:
    truth = [int(t) for t in range(50, 150)]
    for drafter, low, high in (
        (OracleDrafter(truth, 1.0, start=3), 100, 100),
        (OracleDrafter(truth, 0.6, start=3), 40, 80),
        (OracleDrafter(truth, 0.0, start=3), 0, 0),
        (AdversarialDrafter(truth, start=3), 0, 0),
        (RandomDrafter(), 0, 10),
    ):
        drafter.begin(TURN)
        paths = [[0, 0, 0, *truth[:n]] for n in range(100)]
        right = sum(drafter.propose(path, 3)[0].token == truth[n] for n, path in enumerate(paths))
        assert low <= right <= high
        assert all(len({c.token for c in drafter.propose(path, 3)}) == 3 for path in paths)
        assert drafter.propose(paths[7], 2) == drafter.propose(paths[7], 2)
    wild = AdversarialDrafter(wild=True)
    wild.begin(TURN)
    said = [c for n in range(200) for c in wild.propose([0] * n)]
    assert any(not 0 <= c.token < VOCAB for c in said)
