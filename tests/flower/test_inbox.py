"""Whatever clients send: each of them is either good or rejected for one reason, and the server goes on."""

import gc
import io
import math
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfv.core import ACCURACY, Replies
from fedfv.flower._contract import BUFFERS, Names
from fedfv.flower._inbox import KINDS, Rejected, Wanted, read_evaluation, read_training
from fedfv.flower._layout import Layout
from fedfv.mapped import Rows
from fedfv.tasks import Score

ARRAYS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "bias": np.ones(2, dtype=np.float32),
    "running_mean": np.array([0.5], dtype=np.float32),
    "num_batches_tracked": np.array(7),
    "nothing": np.empty((0, 3), dtype=np.float32),
}
MODEL = ArrayRecord({name: Array(array) for name, array in ARRAYS.items()})
LAYOUT = Layout.of(MODEL, BUFFERS)
NEEDS = {"accuracies": ACCURACY, "margins": None}
SCORED = Score("error", lower_is_better=True, low=0)
METRICS = {"loss": 0.5, "num-examples": 10, "accuracy": 0.75, "margins": -2.5, "error": 3.0, "score-variance": 0.25}

PARAMS = torch.empty(LAYOUT.size("parameter"))
LAYOUT.read(MODEL, PARAMS)
WANTED = Wanted(LAYOUT, Names(score="error"), NEEDS)


@pytest.fixture(autouse=True, scope="module")
def _process() -> None:
    TaskIdentity.run_id = TaskIdentity.task_id = TaskIdentity.node_id = 1  # what a process of Flower's own has


def question(client: int) -> Message:
    message = Message(RecordDict(), 1000 + client, "train")
    message.metadata.__dict__["_message_id"] = f"message-{client}"
    return message


def received(replies: dict[int, list[RecordDict | Error]]) -> tuple[list[Message], dict[str, int]]:
    """The answers to a question to each of these clients, and the clients by their questions."""
    sent = {client: question(client) for client in replies}
    messages = [Message(each, reply_to=sent[client]) for client in replies for each in replies[client]]
    stray = Message(RecordDict(), reply_to=question(99))
    return [stray, *messages], {message.metadata.message_id: client for client, message in sent.items()}


def trained(replies: dict[int, list[RecordDict | Error]]) -> Any:
    return read(*received(replies))


def read(messages: list[Message], asked: dict[str, int]) -> tuple[Replies | None, list[Rejected]]:
    rows = Rows((len(asked), len(PARAMS)), torch.float32)
    good, metrics, rejected, _ = read_training(messages, asked, WANTED, PARAMS, 0, rows)
    assert len(metrics) == (0 if good is None else len(good.clients))
    assert all(not message.content for message in messages if message.has_content()), "a reply that was read is kept"
    return good, rejected


# Replies as clients may send them: a good one with some changes.


def good_reply() -> RecordDict:
    return RecordDict({"arrays": ArrayRecord(dict(MODEL)), "metrics": MetricRecord(dict(METRICS))})


def metrics_in(reply: RecordDict) -> MetricRecord:
    return cast(MetricRecord, reply["metrics"])


def arrays_in(reply: RecordDict) -> ArrayRecord:
    return cast(ArrayRecord, reply["arrays"])


def saved(array: np.ndarray, version: tuple[int, int] = (1, 0)) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, version, allow_pickle=True)
    return file.getvalue()


def declared(array: np.ndarray, data: bytes | None = None, stype: str = "numpy.ndarray") -> Array:
    return Array(str(array.dtype), array.shape, stype, saved(array) if data is None else data)


NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, 0.0, 1.0, 1e15, 1e16, 1e30, 1e31, -1e30, 1e300, 10**18, 10**400, -(10**5000), math.nan]),
    st.lists(st.floats(), max_size=3),
    st.builds(lambda: [0.0] * 10_001),
)
SHAPES = st.sampled_from([(), (0,), (1,), (2,), (2, 3), (3, 2), (6,), (1, 2, 3), (1,) * 20, (500, 500)])
TYPES = st.sampled_from(["f4", "f8", "f2", "i8", "i1", "u2", "u8"])
OTHER_TYPES = st.sampled_from([">f4", "?", "c8", "U3", "S2", "M8[s]", "O", "V4", "f4,f8", "g"])
VALUES = [0, 1, 2.5, math.nan, math.inf, -1e9, 1e14, 1e16, 1e38, 1e60, 1e308, 2.0**63]


def seldom(draw: st.DrawFn) -> bool:
    return draw(st.integers(0, 9)) == 9


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> np.ndarray:
    """An array, most often of this shape and of real numbers, now and then in the order of Fortran."""
    array = np.zeros(draw(SHAPES) if seldom(draw) else shape, draw(OTHER_TYPES if seldom(draw) else TYPES))
    if array.dtype.kind in "fiu":
        with np.errstate(all="ignore"):
            array[...] = np.array(draw(st.sampled_from(VALUES))).astype(array.dtype)
    return np.asfortranarray(array) if draw(st.booleans()) else array


def forged(array: np.ndarray, header: str) -> bytes:
    """The bytes of an array with another header."""
    text = header.encode() + b" " * (117 - len(header)) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + array.tobytes()


HEADERS = [
    "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (1000, 1000), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
    "{'descr': '<f4', 'fortran_order': 1, 'shape': (2,), }",
    "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
    "{'shape': (2,), }",
    "(" * 90,
    "",
]


@st.composite
def changed_array(draw: st.DrawFn) -> tuple[str, Array]:
    """Another array under a name of the model; most are declared as what they are."""
    name = draw(st.sampled_from(list(ARRAYS)))
    array = draw(arrays(ARRAYS[name].shape))
    changed = declared(array)
    if seldom(draw):
        changed.data = draw(changed_bytes(array))
    if seldom(draw):
        changed.dtype = draw(st.sampled_from(["float32", "float64", "", "no type" * 100]))
    if seldom(draw):
        changed.shape = draw(st.sampled_from([ARRAYS[name].shape, (2,), (10**30,), (1,) * 1000]))
    if seldom(draw):
        changed.stype = draw(st.sampled_from(["", "pickle" * 100]))
    return name, changed


def changed_bytes(array: np.ndarray) -> st.SearchStrategy[bytes]:
    whole = saved(array)
    return st.one_of(
        st.just(saved(array, (2, 0))),
        st.just(whole + b"\0"),
        st.integers(0, len(whole)).map(lambda end: whole[:end]),
        st.binary(max_size=300),
        st.sampled_from(HEADERS).map(lambda header: forged(array, header)),
    )


Change = Callable[[RecordDict], None]


def put_metric(key: str, value: Any) -> Change:
    return lambda reply: metrics_in(reply).__setitem__(key, value)


def put_array(name: str, array: Array) -> Change:
    return lambda reply: arrays_in(reply).__setitem__(name, array)


def without(record: str, key: str) -> Change:
    def change(reply: RecordDict) -> None:
        reply[record].pop(key, None)

    return change


ARRAY_CHANGES: st.SearchStrategy[Change] = st.builds(lambda changed: put_array(*changed), changed_array())
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(put_metric, st.sampled_from([*METRICS, "client-id", "history"]), NUMBERS),
    st.builds(put_metric, st.text(max_size=5), NUMBERS),
    st.builds(without, st.just("metrics"), st.sampled_from([*METRICS])),
    ARRAY_CHANGES,
    st.builds(without, st.just("arrays"), st.sampled_from([*ARRAYS])),
    st.builds(put_array, st.text(max_size=5) | st.just("long " * 200), st.just(MODEL["bias"])),
)
RECORDS: list[Change] = [
    lambda reply: reply.clear(),
    lambda reply: reply.__setitem__("more", ConfigRecord({"text": "anything"})),
    lambda reply: reply.__setitem__("more", MetricRecord(dict(METRICS))),
    lambda reply: reply.__setitem__("more", ArrayRecord(dict(MODEL))),
    lambda reply: reply.__delitem__("arrays"),
    lambda reply: reply.__delitem__("metrics"),
]


@st.composite
def replies(draw: st.DrawFn, changes: st.SearchStrategy[Change]) -> RecordDict:
    reply = good_reply()
    for change in draw(st.lists(changes, max_size=2)):
        change(reply)
    if seldom(draw):
        draw(st.sampled_from(RECORDS))(reply)
    return reply


ERRORS = st.builds(Error, st.integers(0, 99), st.none() | st.text() | st.just("\x1b[2J\n" * 100))


@st.composite
def rounds(draw: st.DrawFn, changes: st.SearchStrategy[Change]) -> dict[int, list[RecordDict | Error]]:
    """What each of some clients sends, most often one reply."""
    several = st.lists(replies(changes) | ERRORS, max_size=3)
    clients = draw(st.sets(st.integers(0, 3), min_size=1))
    return {client: draw(several) if seldom(draw) else [draw(replies(changes))] for client in clients}


# What a good reply is, once more and in plain words.


def is_number(value: Any, low: float, high: float) -> bool:
    return not isinstance(value, list) and low <= value <= high


def good_metrics(client: int, reply: RecordDict) -> Any:
    records = [record for record in reply.values() if isinstance(record, MetricRecord)]
    if len(records) != 1 or records[0].get("client-id", client) != client:
        return None
    count = sum(len(value) if isinstance(value, list) else 1 for value in records[0].values())
    return None if count > 10_000 else records[0]


def loaded(array: Array) -> np.ndarray | None:
    """The array, if its bytes are those of an array of real numbers and nothing else, as they are declared."""
    file = io.BytesIO(array.data)
    try:
        found = np.load(file, allow_pickle=False)
    except Exception:
        return None
    if not isinstance(found, np.ndarray) or file.tell() != len(array.data):
        return None
    kept = found.dtype.kind in "fiu" and found.dtype.isnative and found.dtype.itemsize <= 8
    same = (array.dtype, array.shape, array.stype) == (str(found.dtype), found.shape, "numpy.ndarray")
    return found if kept and same else None


def is_good_array(name: str, array: Array) -> bool:
    found, model = loaded(array), ARRAYS[name]
    if found is None or found.shape != model.shape:
        return False
    for value, own in zip(found.ravel().tolist(), model.ravel().tolist(), strict=True):
        if name == "num_batches_tracked":
            if not math.isfinite(value) or value != int(value) or not -(2**63) <= value < 2**63:
                return False
        elif not abs(value) <= 3.4e38 or (name != "running_mean" and not abs(value - own) <= 1e15):
            return False
    return True


def is_good_training(client: int, each: list[RecordDict | Error]) -> bool:
    if len(each) != 1 or isinstance(each[0], Error):
        return False
    metrics = good_metrics(client, each[0])
    records = [record for record in each[0].values() if isinstance(record, ArrayRecord)]
    if len(records) > 1 and isinstance(each[0].get("arrays"), ArrayRecord):
        records = [arrays_in(each[0])]
    return (
        metrics is not None
        and is_number(metrics.get("loss", []), 0, 1e30)
        and is_number(metrics.get("num-examples", []), 0, 1e15)
        and is_number(metrics.get("accuracy", []), 0, 1)
        and is_number(metrics.get("margins", []), -1e30, 1e30)
        and len(records) == 1
        and set(records[0]) == set(ARRAYS)
        and all(is_good_array(name, array) for name, array in records[0].items())
    )


def size_of(each: list[Any]) -> Any:
    return next(record for record in each[0].values() if isinstance(record, MetricRecord))["num-examples"]


def check_rejected(rejected: list[Rejected], expected: set[int]) -> None:
    """Each of these clients is rejected once, for a reason that can be logged."""
    assert sorted(client for client, _, _ in rejected) == sorted(expected)
    assert {kind for _, kind, _ in rejected} <= set(KINDS)
    for _, _, reason in rejected:
        assert 0 < len(reason) < 500
        assert reason.isprintable()


@given(rounds(ARRAY_CHANGES) | rounds(CHANGES))
@settings(max_examples=300)
def test_each_client_is_good_or_rejected_once_whatever_it_sends(replies: dict[int, list[RecordDict | Error]]) -> None:
    valid = {client for client, each in replies.items() if is_good_training(client, each)}
    if not any(size_of(replies[client]) for client in valid):
        valid = set()
    good, rejected = trained(replies)
    assert ([] if good is None else good.clients.tolist()) == sorted(valid)
    check_rejected(rejected, replies.keys() - valid)
    if good is not None:
        numbers = [good.updates, good.losses, good.sizes, *good.all_measured().values(), *(good.buffers or ())]
        assert all(values.isfinite().all() for values in numbers if isinstance(values, torch.Tensor))
        assert torch.as_tensor(good.updates).norm(dim=1).isfinite().all()  # squared in single precision


@given(rounds(CHANGES))
def test_each_evaluation_is_good_or_rejected_once_whatever_it_is(replies: dict[int, list[RecordDict | Error]]) -> None:
    def is_good(client: int, each: list[RecordDict | Error]) -> bool:
        if len(each) != 1 or isinstance(each[0], Error) or (metrics := good_metrics(client, each[0])) is None:
            return False
        variance = metrics.get("score-variance", math.nan)
        return (
            is_number(metrics.get("loss", 0), 0, 1e30)
            and is_number(metrics.get("num-examples", []), 0, 1e15)
            and is_number(metrics.get("error", []), 0, 1e30)
            and (is_number(variance, 0, 1e30) or (isinstance(variance, float) and not math.isfinite(variance)))
        )

    valid = {client for client, each in replies.items() if is_good(client, each)}
    good, rejected = read_evaluation(*received(replies), SCORED, WANTED.names)
    assert good.keys() == valid
    check_rejected(rejected, replies.keys() - valid)
    for loss, score, size, _, variance in good.values():
        assert all(math.isfinite(number) for number in (loss or 0, score, size, variance or 0))


# Single cases, with what is said about them.


def reply_with(**arrays: Array) -> RecordDict:
    reply = good_reply()
    arrays_in(reply).update(arrays)
    return reply


def reason(reply: RecordDict | Error) -> str:
    good, ((client, kind, reason),) = trained({3: [reply]})
    assert good is None
    assert client == 3
    return f"{kind}: {reason}"


BIAS = ARRAYS["bias"]
OTHER_HEADER = "must have the header that numpy writes for float32 of shape (2,), got another one"


def zipped() -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, np.zeros(1000))
    return file.getvalue()


@pytest.mark.parametrize(
    ("bias", "sentence"),
    [
        (declared(np.ones(3, np.float32)), "real numbers and shape (2,), got float32 of shape (3,)"),
        (declared(np.array(["a", "b"])), "real numbers and shape (2,), got <U1 of shape (2,)"),
        (declared(BIAS, stype="torch"), "got float32 of shape (2,), serialised in another way"),
        (declared(BIAS, saved(np.ones((20, 20)))), "8 bytes after a header of at most 1024, got 3328 in all"),
        (declared(BIAS, saved(np.ones(2))), OTHER_HEADER),
        (declared(BIAS, saved(np.ones(1))), OTHER_HEADER),
        (declared(BIAS, saved(BIAS)[:-1]), OTHER_HEADER),
        (declared(BIAS, forged(BIAS, HEADERS[2])), OTHER_HEADER),
        (declared(BIAS, b"\x80\x04" * 100), OTHER_HEADER),
        (declared(BIAS, zipped()), OTHER_HEADER),
    ],
)
def test_an_array_whose_bytes_are_not_what_the_model_needs_is_refused(bias: Array, sentence: str) -> None:
    assert sentence in reason(reply_with(bias=bias))
    assert reason(reply_with(bias=bias)).startswith("arrays: array 'bias' ")


def test_a_count_must_be_a_whole_number() -> None:
    for value in (math.nan, 1e300, 0.5):
        assert "whole numbers of type int64" in reason(reply_with(num_batches_tracked=Array(np.array(value))))
    good, _ = trained({3: [reply_with(num_batches_tracked=Array(np.array(9.0)))]})
    assert good.buffers.counts.tolist() == [[9]]


def test_an_array_in_the_order_of_fortran_is_read_as_what_it_is() -> None:
    good, _ = trained({3: [reply_with(weight=Array(np.asfortranarray(ARRAYS["weight"] + 1)))]})
    assert torch.as_tensor(good.updates).tolist() == [[-1.0] * 6 + [0.0] * 2]


def test_missing_and_extra_arrays_are_counted_and_one_of_each_is_named() -> None:
    reply = reply_with(**{f"module.{name}": array for name, array in MODEL.items()})
    del arrays_in(reply)["weight"], arrays_in(reply)["bias"]
    assert reason(reply) == (
        "arrays: 2 arrays of the model are missing, such as 'weight'; "
        "5 arrays are not in the model, such as 'module.weight'"
    )


def test_an_error_of_any_length_becomes_one_line() -> None:
    assert reason(Error(2, "no memory\n\n\x1b[31mERROR")) == "error: code 2: no memory [31mERROR"
    assert len(reason(Error(2, "no memory " * 10**6))) < 350


def test_replies_that_all_have_no_examples_are_rejected() -> None:
    reply = good_reply()
    metrics_in(reply)["num-examples"] = 0
    assert reason(reply) == "metrics: `num-examples` must not be 0 in all replies"
    good, rejected = trained({1: [good_reply()], 3: [reply]})
    assert good.sizes.tolist() == [10, 0]
    assert not rejected


@pytest.mark.parametrize("as_list", [True, False], ids=["a list", "entries"])
def test_one_metric_more_than_the_bound_is_refused(as_list: bool) -> None:
    reply, free = good_reply(), 10_000 - len(METRICS)
    more = {"history": [0.5] * free} if as_list else {str(number): 0.5 for number in range(free)}
    metrics_in(reply).update(more)
    assert not trained({3: [reply]})[1]
    metrics_in(reply)["one"] = 1
    assert reason(reply) == "metrics: the reply must have at most 10000 numbers beside its arrays"


# Memory.


@pytest.fixture
def peak() -> Iterator[Callable[[], int]]:
    """The bytes that were reserved at most since the test began to measure."""
    yield lambda: tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()


LARGE = 1000 * sum(array.size for array in ARRAYS.values()) * 1000


def large_arrays() -> RecordDict:
    return RecordDict(
        {
            "arrays": ArrayRecord({name: Array(np.zeros(LARGE // len(ARRAYS))) for name in ARRAYS}),
            "metrics": MetricRecord(dict(METRICS)),
        }
    )


def lying_arrays() -> RecordDict:
    """Arrays of the right size by what they declare, with bytes that announce a terabyte, or hold too much."""
    announcing = forged(BIAS, f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**40},), }}")
    return reply_with(weight=declared(ARRAYS["weight"], bytes(LARGE)), bias=declared(BIAS, announcing))


def many_arrays() -> RecordDict:
    empty = Array(np.empty(0))
    return reply_with(**{f"extra {number}": empty for number in range(300_000)})


def many_metrics() -> RecordDict:
    reply = good_reply()
    metrics_in(reply).update({f"metric {number}": 0.5 for number in range(1_000_000)})
    return reply


def many_records() -> RecordDict:
    reply = good_reply()
    reply.update({f"record {number}": MetricRecord() for number in range(100_000)})
    return reply


def long_list() -> RecordDict:
    reply = good_reply()
    metrics_in(reply)["loss"] = [0.5] * 1_000_000
    return reply


@pytest.mark.parametrize("make", [large_arrays, lying_arrays, many_arrays, many_metrics, many_records, long_list])
def test_a_reply_of_any_size_costs_the_server_no_memory(
    make: Callable[[], RecordDict], peak: Callable[[], int]
) -> None:
    # Huge replies exist before memory is traced: they are what Flower has received.
    trained({2: [good_reply()]})  # loads compiled functions
    messages, asked = received({1: [make()], 2: [good_reply()]})
    gc.collect()
    tracemalloc.start()
    good, rejected = read(messages, asked)
    assert peak() < 2e6
    assert good is not None
    assert good.clients.tolist() == [2]
    assert [client for client, _, _ in rejected] == [1]


def test_the_bytes_of_a_refused_reply_are_given_back_at_once() -> None:
    tracemalloc.start()
    try:
        messages, asked = received({1: [reply_with(weight=declared(ARRAYS["weight"], bytes(50_000_000)))]})
        assert tracemalloc.get_traced_memory()[0] > 50e6
        read(messages, asked)
        assert tracemalloc.get_traced_memory()[0] < 1e6
    finally:
        tracemalloc.stop()
