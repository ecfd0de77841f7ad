"""Making drafters by name: light imports, clear refusals, and the kinds that exist."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from acespec.edge.drafters import factory, lm_models
from acespec.edge.drafters.base import Drafter, QuietDrafter, TurnContext
from acespec.edge.drafters.factory import make_drafter
from acespec.edge.drafters.gguf_drafter import GgufDrafter
from acespec.edge.drafters.hybrid import HybridDrafter
from acespec.edge.drafters.mlx_drafter import MlxDrafter
from acespec.edge.drafters.ngram import NgramDrafter
from acespec.edge.drafters.torch_drafter import TorchDrafter
from acespec.models.tokenizer import Tokenizer
from acespec.proto.errors import ModelNotFound, UsageError
from acespec.proto.sampling_params import SamplingParams
from tests.drafters import AdversarialDrafter, OracleDrafter, RandomDrafter
from tests.models.tiny_gguf import write_tiny_gguf
from tests.tiny import tiny_model_folder

VOCAB = 320
TURN = TurnContext(SamplingParams(), 1, 3, VOCAB)


def made(kind: str, model: str | None = None, cache: Path | None = None, tokenizer: Tokenizer | None = None) -> Drafter:
    return make_drafter(
        kind, draft_model=model, model_key="target", vocab_size=VOCAB, cache_dir=cache, tokenizer=tokenizer
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("tiny"), vocab=VOCAB)


def test_importing_the_drafters_imports_no_runtime() -> None:
    code = (
        "import sys; import acespec.edge.drafters.lm_models, acespec.edge.drafters.factory as f;"
        "f.make_drafter('ngram', draft_model=None, model_key='k', vocab_size=9, cache_dir=None);"
        "sys.exit(' '.join({'mlx', 'mlx_lm', 'torch', 'transformers', 'ik_llama_cpp'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_kind_is_made(folder: Path, tmp_path: Path) -> None:
    kinds = {
        "none": QuietDrafter,
        "ngram": NgramDrafter,
        "mlx": MlxDrafter,
        "gguf": GgufDrafter,
        "torch": TorchDrafter,
        "hybrid": HybridDrafter,
    }
    assert tuple(kinds) == factory.KINDS
    gguf = write_tiny_gguf(tmp_path / "tiny.gguf")
    for kind, expected in kinds.items():
        drafter = made(kind, str(gguf if kind == "gguf" else folder), tmp_path)
        assert type(drafter) is expected
        assert drafter.name == kind
    for runtime, model in (("mlx", folder), ("torch", folder), ("gguf", gguf)):
        assert made(f"hybrid:{runtime}", str(model)).name == "hybrid"


def test_hybrid_drafts_with_a_real_model(folder: Path, tmp_path: Path) -> None:
    drafter = made("hybrid", str(folder), tmp_path, Tokenizer.load(folder))
    drafter.begin(TURN)
    path = [10, 11, 12]
    for _ in range(8):
        (guess, *_) = drafter.propose(path, 2)
        drafter.commit([guess.token], len(path))
        path.append(guess.token)
    drafter.close()
    assert len(list((tmp_path / "ngram").iterdir())) == 1


def test_what_cannot_be_made_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for unknown in ("telepathy", "ngram:mlx"):
        with pytest.raises(UsageError, match="none, ngram, mlx, gguf, torch, hybrid"):
            made(unknown)
    for kind in ("mlx", "gguf", "torch", "hybrid"):
        with pytest.raises(UsageError, match="--draft-model"):
            made(kind)
    with pytest.raises(UsageError, match="unknown runtime 'abacus'"):
        made("hybrid:abacus", str(folder))
    with pytest.raises(ModelNotFound, match=r"give a \.gguf file"):
        made("gguf", str(folder))
    monkeypatch.setattr(lm_models, "find_spec", lambda name: None)
    for runtime in ("mlx", "gguf", "torch"):
        with pytest.raises(UsageError, match=rf"pip install 'acespec\[{runtime}\]'"):
            made(runtime, str(folder))


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
