"""The one function that draws a token: logits, parameters, seed and position in, token id out.

Per row, everything in float32, each operation rounded on its own:

    logits -> entries beyond the vocabulary dropped -> repetition, frequency, presence penalty -> bias
           -> grammar and banned tokens removed -> / temperature -> top-k -> top-p -> min-p
           -> + Gumbel noise -> argmax, the lowest id on a tie

Adding Gumbel noise and taking the argmax draws from the softmax of the row (Gumbel, 1954). Nothing else enters: not
the drafter, not the other rows, not the call order. Temperature 0 stops after the bias and takes the argmax.

Details that a twin has to keep:
* Repetition: tokens of prompt and generated part; positive logits are divided, others multiplied.
* Frequency: float32(penalty) * float32(count in the generated part) is subtracted; then presence, once.
* NaN counts as -inf and is never sampled; +inf and overflow count as 1e30. If nothing is left, token 0 is; under a
  grammar the lowest id that it allows.
* The filters are those of `filters`; what they remove is -inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from acespec.proto import filters, noise
from acespec.proto.sampling_params import SamplingParams

Row = NDArray[np.float32]

_CEILING: Final = np.float32(1e30)
_HOPELESS: Final = np.float32(32.0)  # more than noise.HIGHEST - noise.LOWEST: so far below the best none can win
_FEW: Final = 4  # a token's noise alone costs several times its share of a full row's


def processed(logits: Row, params: SamplingParams, prefix: Sequence[int], prompt_len: int, vocab_size: int) -> Row:
    """The row that noise is added to: float32[vocab_size], -inf for removed tokens.

    Args:
        logits: float32[n]. Entries at or beyond `vocab_size` are padding; if n is smaller the rest is -inf.
        prefix: all tokens before the one that is drawn.
        prompt_len: how many of them are the prompt.
    """
    row = _adjusted(logits, params, prefix, prompt_len, vocab_size)
    return row if params.greedy else _only(row, filters.kept(row, params))


def sample(
    logits: Row,
    params: SamplingParams,
    seed: int,
    position: int,
    *,
    prefix: Sequence[int] = (),
    prompt_len: int = 0,
    vocab_size: int | None = None,
    banned: Sequence[int] = (),
    allowed: NDArray[np.bool_] | None = None,
) -> int:
    """The token at `position` (its absolute index: the prefix's length). For the rest see `processed`.

    Args:
        banned: ids that may not be drawn here.
        allowed: bool[vocab_size] of a grammar; None allows all.
    """
    row = _adjusted(logits, params, prefix, prompt_len, _size(vocab_size, logits), banned, allowed)
    if params.greedy:
        return int(row.argmax())
    ids = filters.kept(row, params)
    if ids is None:
        ids = _hopeful(row)
    return int(ids[_scores(row, ids, seed, position).argmax()])


def propose(
    logits: Row,
    params: SamplingParams,
    seed: int,
    position: int,
    k: int,
    *,
    prefix: Sequence[int] = (),
    prompt_len: int = 0,
    vocab_size: int | None = None,
    banned: Sequence[int] = (),
) -> list[tuple[int, float]]:
    """A drafter's k guesses of what `sample` will draw from the target's logits, given the drafter's own.

    The top k of (log q + noise), which is sampling without replacement (Kool, van Hoof, Welling, ICML 2019); at
    temperature 0 the top k of the logits.

    Returns:
        At most k pairs (token, q), best first, lower ids first among equals. q is the softmax of the processed row.
        Fewer than k if the filters leave fewer.
    """
    if k < 1:
        return []
    row = _adjusted(logits, params, prefix, prompt_len, _size(vocab_size, logits), banned)
    ids = np.flatnonzero(row > -np.inf) if params.greedy else _surviving(row, params)
    values = row[ids]
    scores = values if params.greedy else _scores(row, ids, seed, position)
    weights = np.exp(values - values.max())
    total = float(weights.sum())
    return [(int(ids[i]), float(weights[i]) / total) for i in filters.best_first(scores, k)[:k]]


def _size(vocab_size: int | None, logits: Row) -> int:
    return logits.size if vocab_size is None else vocab_size


def _adjusted(
    logits: Row,
    params: SamplingParams,
    prefix: Sequence[int],
    prompt_len: int,
    vocab_size: int,
    banned: Sequence[int] = (),
    allowed: NDArray[np.bool_] | None = None,
) -> Row:
    """A fresh row after penalties, bias, masks and temperature; no NaN, no +inf, not all -inf."""
    row = _without_padding(logits, vocab_size)
    with np.errstate(invalid="ignore", over="ignore"):
        _penalise_repetition(row, params.repetition_penalty, prefix)
        _penalise_generated(row, params, prefix, prompt_len)
        _add_bias(row, params.logit_bias)
        _mask(row, banned, allowed)
        if not params.greedy:
            row /= np.float32(params.temperature)
    np.fmax(row, -np.inf, out=row)
    np.minimum(row, _CEILING, out=row)
    if row.max() == -np.inf:
        row[0 if allowed is None else int(allowed.argmax())] = 0.0
    return row


def _without_padding(logits: Row, vocab_size: int) -> Row:
    row = np.full(vocab_size, -np.inf, np.float32)
    present = min(vocab_size, logits.size)
    row[:present] = logits[:present]
    return row


def _penalise_repetition(row: Row, penalty: float, prefix: Sequence[int]) -> None:
    if penalty == 1.0:
        return
    seen, _ = _occurrences(prefix, row.size)
    logits = row[seen]
    factor = np.float32(penalty)
    row[seen] = np.where(logits > 0, logits / factor, logits * factor)


def _penalise_generated(row: Row, params: SamplingParams, prefix: Sequence[int], prompt_len: int) -> None:
    if params.frequency_penalty == 0.0 and params.presence_penalty == 0.0:
        return
    seen, counts = _occurrences(prefix[prompt_len:], row.size)
    row[seen] -= np.float32(params.frequency_penalty) * counts
    row[seen] -= np.float32(params.presence_penalty)


def _add_bias(row: Row, bias: Sequence[tuple[int, float]]) -> None:
    for token, value in bias:
        if 0 <= token < row.size:
            row[token] += np.float32(value)


def _mask(row: Row, banned: Sequence[int], allowed: NDArray[np.bool_] | None) -> None:
    """Remove tokens that may not be drawn; a ban that would leave nothing is lifted."""
    if allowed is not None:
        row[~allowed] = -np.inf
    ids = [token for token in banned if 0 <= token < row.size]
    if ids and (spared := np.delete(row, ids)).size and spared.max() > -np.inf:
        row[ids] = -np.inf


def _occurrences(tokens: Sequence[int], vocab_size: int) -> tuple[NDArray[np.int64], Row]:
    """(distinct ids inside the vocabulary, how often each occurs)."""
    ids, counts = np.unique(np.asarray(tokens, np.int64), return_counts=True)
    inside = (ids >= 0) & (ids < vocab_size)
    return ids[inside], counts[inside].astype(np.float32)


def _only(row: Row, ids: NDArray[np.intp] | None) -> Row:
    if ids is None:
        return row
    out = np.full_like(row, -np.inf)
    out[ids] = row[ids]
    return out


def _hopeful(row: Row) -> NDArray[np.intp]:
    """Ids that some noise could lift to the top."""
    return np.flatnonzero(row >= row.max() - _HOPELESS)


def _surviving(row: Row, params: SamplingParams) -> NDArray[np.intp]:
    ids = filters.kept(row, params)
    return np.flatnonzero(row > -np.inf) if ids is None else ids


def _scores(row: Row, ids: NDArray[np.intp], seed: int, position: int) -> Row:
    """Logit plus noise of the tokens `ids`: float32[len(ids)]. Both ways give the same bits."""
    if ids.size * _FEW <= row.size:
        return row[ids] + noise.gumbel_at(seed, position, ids)
    return (row + noise.gumbel(seed, position, row.size))[ids]
