"""What both ends agree on before a turn runs: which of its ids the server holds already, and the epoch (sans-IO)."""

from __future__ import annotations

from collections.abc import Sequence

from acespec.edge.sequence import CommittedSequence
from acespec.edge.turn_request import TurnRequest
from acespec.proto.errors import BadFrame
from acespec.proto.messages import Checkpoint, Open, Opened
from acespec.proto.prompt import Encode, pack_ids


class TurnOpening:
    """The `Open`s of one session, over its committed sequence.

    Attributes:
        request: what the turn asks for.
        prompt_len: where its generated part begins.
        epoch: of the newest `Open`; 0 before the first.
    """

    def __init__(
        self,
        sequence: CommittedSequence,
        *,
        session_id: bytes,
        fingerprint: bytes,
        vocab_size: int,
        model: str,
        encode: Encode | None,
    ) -> None:
        self.request = TurnRequest()
        self.prompt_len = 0
        self.epoch = 0
        self._sequence = sequence
        self._session_id = session_id
        self._fingerprint = fingerprint
        self._vocab_size = vocab_size
        self._model = model
        self._encode = encode
        self._text: str | None = None
        self._asked: tuple[Checkpoint, ...] = ()
        self._agreed = False

    def start(
        self, ids: Sequence[int], request: TurnRequest, prompt_len: int | None, text: str | None, shared: int
    ) -> tuple[Checkpoint, ...]:
        """A new turn over `ids`; what the server may hold of them. See `EdgeSession.start_turn`."""
        common = self._sequence.replace(ids)
        held = [n for n in (self.prompt_len, common) if n <= common]
        self.prompt_len = len(ids) if prompt_len is None else prompt_len
        self.request = request
        self._text = text
        self._agreed = False
        self._asked = self._sequence.checkpoints([*held, min(shared, len(ids))])
        return self._asked

    def held(self) -> tuple[Checkpoint, ...]:
        """What the server may hold when the turn is resumed."""
        return self.committed() if self._agreed else self._asked

    def committed(self) -> tuple[Checkpoint, ...]:
        """The prompt, and all that is final."""
        return self._sequence.checkpoints((self.prompt_len, len(self._sequence)))

    def message(self, held: tuple[Checkpoint, ...]) -> Open:
        """The `Open` of the next epoch: it names `held`, and sends the ids behind."""
        start = held[-1].length if held else 0
        ids = self._sequence.ids
        text = self._text if start == 0 and len(ids) == self.prompt_len else None
        self.epoch += 1
        self._asked = held
        return self.request.open(
            session_id=self._session_id,
            epoch=self.epoch,
            fingerprint=self._fingerprint,
            prompt_len=self.prompt_len,
            append=pack_ids(ids[start:], self._vocab_size, text=text, encode=self._encode),
            keep=held,
            model=self._model,
        )

    def answered(self, answer: Opened) -> tuple[Checkpoint, ...] | None:
        """None if the server holds what it was asked about: the turn runs. Else what it does hold, to open from there.

        Raises:
            BadFrame: it says that it kept what it was not asked about.
        """
        if answer.kept == self.asked:
            self._agreed = True
            return None
        known = tuple(c for c in self._asked if c.length <= answer.kept)
        if (known[-1].length if known else 0) != answer.kept or answer.kept > self.asked:
            raise BadFrame(f"the server says it kept {answer.kept} tokens, a length that it was not asked about")
        return known

    @property
    def asked(self) -> int:
        """Tokens that the newest `Open` names and does not send."""
        return self._asked[-1].length if self._asked else 0
