"""Messages to bytes and back. Decoders are total: any bytes give a message or `BadFrame`, in bounded memory."""

from __future__ import annotations

import math

from google.protobuf.message import DecodeError

from acespec.proto import messages as m
from acespec.proto import verifier_pb2 as pb
from acespec.proto.errors import BadFrame
from acespec.proto.sampling_params import SamplingParams

MAX_FRAME_BYTES = 4 << 20
"""A frame larger than this is refused before it is parsed (gRPC's own default limit)."""


def encode_edge(message: m.EdgeMessage) -> bytes:
    """Bytes of a message that goes up."""
    match message:
        case m.Draft():
            frame = pb.EdgeFrame(draft=_draft_out(message))
        case m.Open():
            frame = pb.EdgeFrame(open=_open_out(message))
        case m.Cancel():
            frame = pb.EdgeFrame(cancel=pb.Cancel())
        case m.Ping():
            frame = pb.EdgeFrame(ping=pb.Ping())
    return frame.SerializeToString()


def decode_edge(data: bytes) -> m.EdgeMessage:
    """The message in `data`.

    Raises:
        BadFrame: the bytes are no `EdgeFrame`, or a field is out of its range.
    """
    frame = pb.EdgeFrame()
    _parse(frame, data)
    match frame.WhichOneof("frame"):
        case "draft":
            return _draft_in(frame.draft)
        case "open":
            return _open_in(frame.open)
        case "cancel":
            return m.Cancel()
        case "ping":
            return m.Ping()
        case _:
            raise BadFrame("an edge frame without content: the two ends run different protocol versions")


def encode_cloud(message: m.CloudMessage) -> bytes:
    """Bytes of a message that comes down."""
    match message:
        case m.Commit():
            frame = pb.CloudFrame(commit=_commit_out(message))
        case m.Opened():
            frame = pb.CloudFrame(
                opened=pb.Opened(
                    epoch=message.epoch,
                    kept=message.kept,
                    numerics_id=message.numerics_id,
                    granted_rate=message.granted_rate,
                    max_draft=message.max_draft,
                    max_nodes=message.max_nodes,
                    exact=message.exact,
                    resumed=message.resumed,
                )
            )
        case m.Pong():
            frame = pb.CloudFrame(pong=pb.Pong())
    return frame.SerializeToString()


def decode_cloud(data: bytes) -> m.CloudMessage:
    """The message in `data`.

    Raises:
        BadFrame: the bytes are no `CloudFrame`, or a field is out of its range.
    """
    frame = pb.CloudFrame()
    _parse(frame, data)
    match frame.WhichOneof("frame"):
        case "commit":
            return _commit_in(frame.commit)
        case "opened":
            o = frame.opened
            return m.Opened(
                epoch=o.epoch,
                kept=o.kept,
                numerics_id=o.numerics_id,
                granted_rate=_finite(o.granted_rate, "granted_rate", low=0.0),
                max_draft=o.max_draft,
                max_nodes=o.max_nodes,
                exact=o.exact,
                resumed=o.resumed,
            )
        case "pong":
            return m.Pong()
        case _:
            raise BadFrame("a cloud frame without content: the two ends run different protocol versions")


def encode_card(card: m.ModelCard) -> bytes:
    """Bytes of a model card."""
    return pb.ModelCard(**{name: getattr(card, name) for name in card.__slots__}).SerializeToString()


def decode_card(data: bytes) -> m.ModelCard:
    """The model card in `data`.

    Raises:
        BadFrame: the bytes are no model card.
    """
    card = pb.ModelCard()
    _parse(card, data)
    fields = {name: getattr(card, name) for name in m.ModelCard.__slots__}
    return m.ModelCard(**fields | {"eos_ids": tuple(card.eos_ids), "served": tuple(card.served)})


def _parse(frame: pb.EdgeFrame | pb.CloudFrame | pb.ModelCard, data: bytes) -> None:
    if len(data) > MAX_FRAME_BYTES:
        raise BadFrame(f"a frame of {len(data)} bytes: the limit is {MAX_FRAME_BYTES}")
    try:
        frame.ParseFromString(data)
    except DecodeError as error:
        raise BadFrame(
            "undecodable frame: the two ends run different protocol versions, or the bytes are corrupt"
        ) from error


def _finite(value: float, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    if not (math.isfinite(value) and low <= value <= high):
        raise BadFrame(f"{name} = {value} is outside [{low}, {high}]")
    return value


def _draft_out(d: m.Draft) -> pb.Draft:
    return pb.Draft(received=d.received, nodes=d.nodes, base=d.base, step=d.step, held_ms=d.held_ms)


def _draft_in(d: pb.Draft) -> m.Draft:
    return m.Draft(
        received=d.received,
        nodes=d.nodes,
        base=d.base if d.HasField("base") else None,
        step=d.step,
        held_ms=d.held_ms if d.HasField("held_ms") else None,
    )


def _commit_out(c: m.Commit) -> pb.Commit:
    totals = None
    if c.totals is not None:
        totals = pb.Totals(**{name: getattr(c.totals, name) for name in c.totals.__slots__})
    return pb.Commit(
        length=c.length,
        matched=c.matched,
        tokens=c.tokens,
        digest=c.digest,
        ack=c.ack,
        held_us=c.held_us,
        verify_us=c.verify_us,
        load=c.load,
        next_in_ms=c.next_in_ms,
        finish=pb.FinishReason.ValueType(c.finish or 0),
        text_end=c.text_end,
        totals=totals,
        logprobs=c.logprobs,
    )


def _commit_in(c: pb.Commit) -> m.Commit:
    totals = None
    if c.HasField("totals"):
        totals = m.Totals(**{name: getattr(c.totals, name) for name in m.Totals.__slots__})
    return m.Commit(
        length=c.length,
        digest=c.digest,
        tokens=c.tokens,
        matched=c.matched if c.HasField("matched") else None,
        ack=c.ack,
        held_us=c.held_us,
        verify_us=c.verify_us,
        load=c.load,
        next_in_ms=c.next_in_ms,
        finish=_finish_in(c.finish),
        text_end=c.text_end if c.HasField("text_end") else None,
        totals=totals,
        logprobs=c.logprobs,
    )


def _finish_in(value: int) -> m.FinishReason | None:
    try:
        return m.FinishReason(value) if value else None
    except ValueError:
        raise BadFrame(f"unknown finish reason {value}") from None


def _open_out(o: m.Open) -> pb.Open:
    return pb.Open(
        version=o.version,
        session_id=o.session_id,
        epoch=o.epoch,
        model=o.model,
        fingerprint=o.fingerprint,
        sampling=_sampling_out(o),
        seed=o.seed,
        max_tokens=o.max_tokens,
        min_tokens=o.min_tokens,
        stop_ids=o.stop_ids,
        stop_strings=o.stop_strings,
        target_rate=o.target_rate,
        keep=[pb.Checkpoint(length=c.length, digest=c.digest) for c in o.keep],
        append=o.append,
        prompt_len=o.prompt_len,
        codec=pb.Codec.ValueType(o.codec),
    )


def _open_in(o: pb.Open) -> m.Open:
    if len(o.session_id) != m.SESSION_ID_BYTES:
        raise BadFrame(f"session_id has {len(o.session_id)} bytes, not {m.SESSION_ID_BYTES}")
    if any(len(c.digest) != m.DIGEST_BYTES for c in o.keep):
        raise BadFrame(f"a checkpoint digest does not have {m.DIGEST_BYTES} bytes")
    return m.Open(
        session_id=o.session_id,
        epoch=o.epoch,
        fingerprint=o.fingerprint,
        prompt_len=o.prompt_len,
        seed=o.seed,
        max_tokens=o.max_tokens,
        params=_params_in(o.sampling),
        append=o.append,
        keep=tuple(m.Checkpoint(c.length, c.digest) for c in o.keep),
        model=o.model,
        version=o.version,
        min_tokens=o.min_tokens,
        stop_ids=tuple(o.stop_ids),
        stop_strings=tuple(o.stop_strings),
        target_rate=_finite(o.target_rate, "target_rate", low=0.0) if o.HasField("target_rate") else None,
        codec=o.codec or pb.CODEC_RAW,
        ignore_eos=o.sampling.ignore_eos,
        top_logprobs=_top_logprobs_in(o.sampling),
        format=m.OutputFormat(**{name: getattr(o.sampling, name) for name in m.OutputFormat.__slots__}),
        extra=_unserved_in(o.sampling),
    )


def _sampling_out(o: m.Open) -> pb.Sampling:
    p, x = o.params, o.extra
    return pb.Sampling(
        temperature=p.temperature,
        top_k=p.top_k,
        top_p=None if p.top_p == 1.0 else p.top_p,
        min_p=p.min_p,
        repetition_penalty=None if p.repetition_penalty == 1.0 else p.repetition_penalty,
        frequency_penalty=p.frequency_penalty,
        presence_penalty=p.presence_penalty,
        logit_bias=[pb.LogitBias(token=t, bias=b) for t, b in p.logit_bias],
        n=0 if x.n == 1 else x.n,
        best_of=0 if x.best_of == 1 else x.best_of,
        prompt_logprobs=x.prompt_logprobs,
        suffix=x.suffix,
        logprobs=o.top_logprobs is not None,
        top_logprobs=o.top_logprobs or 0,
        ignore_eos=o.ignore_eos,
        **{name: getattr(o.format, name) for name in o.format.__slots__},
    )


def _params_in(s: pb.Sampling) -> SamplingParams:
    """Values arrive as 32-bit floats on both ends alike: the edge rounds its own before it uses them."""
    return SamplingParams(
        temperature=_finite(s.temperature, "temperature", 0.0, 100.0),
        top_k=s.top_k,
        top_p=_finite(s.top_p, "top_p", 0.0, 1.0) if s.HasField("top_p") else 1.0,
        min_p=_finite(s.min_p, "min_p", 0.0, 1.0),
        repetition_penalty=_finite(s.repetition_penalty, "repetition_penalty", 1e-6)
        if s.HasField("repetition_penalty")
        else 1.0,
        frequency_penalty=_finite(s.frequency_penalty, "frequency_penalty"),
        presence_penalty=_finite(s.presence_penalty, "presence_penalty"),
        logit_bias=tuple((b.token, _finite(b.bias, "logit_bias")) for b in s.logit_bias),
    )


def _top_logprobs_in(s: pb.Sampling) -> int | None:
    if s.top_logprobs and not s.logprobs:
        raise BadFrame("top_logprobs without logprobs: ask for both, or for neither")
    return s.top_logprobs if s.logprobs else None


def _unserved_in(s: pb.Sampling) -> m.Unserved:
    return m.Unserved(n=s.n or 1, best_of=s.best_of or 1, prompt_logprobs=s.prompt_logprobs, suffix=s.suffix)
