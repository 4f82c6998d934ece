"""Losing a rank: what libraries say, and finding out who is missing."""

from __future__ import annotations

import threading

import pytest
from torch.distributed import HashStore

from ckptdoctor.errors import DamagedError, TrainingError
from ckptdoctor.trainer.launch.contact import (
    LostContactError,
    is_lost_contact,
    lost_contact,
    missing_ranks,
    says_lost_contact,
    wait_for_all,
)
from ckptdoctor.trainer.launch.positions import RankPosition
from ckptdoctor.trainer.launch.variables import RankPlace
from tests.trainer.launch.helpers import GOES_ON

CLOSED = "[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:20376. This is typically caused by"
TIMED_OUT = "[gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 3000ms for recv operation to complete"

# as torch 2.13 with gloo and NCCL says them
SAID = [
    CLOSED,
    TIMED_OUT,
    "[gloo/transport/tcp/unbound_buffer.cc:129] Timed out waiting 3000ms for send operation to complete",
    "[gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:30948: Connection reset by peer. This is typically",
    "Gloo connectFullMesh failed with [gloo/transport/tcp/pair.h:311] Connect timeout [none]",
    "Application timeout caused pair closure",
    "Wait timeout",
    "wait timeout after 3000ms, keys: /ckptdoctor/arrived/1",
    "Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
    "The client socket has timed out after 60000ms while trying to connect to (127.0.0.1, 29500).",
    "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?",
    "Broken pipe",
    "NCCL communicator was aborted on rank 0.",
]


def a_place(rank, size=4, rendezvous="env://"):
    return RankPlace(rank, rank, size, size, rendezvous)


@pytest.mark.parametrize("text", SAID)
def test_what_says_that_a_rank_is_gone(text):
    """The messages of gloo, NCCL and the stores are known for what they are, also as the reason of another error."""
    assert is_lost_contact(RuntimeError(text))
    wrapped = DamagedError("the checkpoint cannot be gathered.")
    wrapped.__cause__ = RuntimeError(text)
    assert is_lost_contact(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DataLoader worker (pid 4711) is killed by signal: Killed."),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        TrainingError("there is no GPU here."),
        BrokenPipeError(32, "Broken pipe"),  # of a terminal that went away
        ValueError("Wait timeout"),
    ],
)
def test_what_does_not(error):
    """Errors of this rank itself are none of that."""
    assert not is_lost_contact(error)


def test_an_error_of_a_loop_of_causes():
    """Causes that go round in a circle are looked at once."""
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    assert not is_lost_contact(one)


def test_the_log_of_nccl():
    """NCCL's watchdog writes why it aborts the process."""
    watchdog = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, …)"
    assert says_lost_contact(f"terminate called after throwing an instance\n  what():  {watchdog}")
    assert not says_lost_contact("Segmentation fault")


def survivors(store, ranks, size=4, wait=0.4):
    """What each of the survivors finds out."""
    found = {}
    threads = [
        threading.Thread(target=lambda rank=rank: found.update({rank: missing_ranks(store, a_place(rank, size), wait)}))
        for rank in ranks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_survivors_find_out_who_is_missing():
    """All survivors come to the same answer, whoever they are."""
    assert survivors(HashStore(), [0, 2]) == {0: [1, 3], 2: [1, 3]}
    assert survivors(HashStore(), [0, 1, 2, 3]) == {rank: [] for rank in range(4)}


class Broken:
    """A store whose keeper is gone, or does not answer."""

    def __init__(self, hang):
        self.hang = hang

    def set(self, key, value):
        if self.hang is not None:
            self.hang.wait()
        raise RuntimeError("Broken pipe")


def test_the_keeper_of_the_store_is_missing():
    """When the store itself is dead or silent it is rank 0, which keeps it, that is missing."""
    assert missing_ranks(Broken(None), a_place(1), 0.1) == [0]
    hang = threading.Event()
    assert missing_ranks(Broken(hang), a_place(1), 0.1) == [0]
    hang.set()


def a_sentence(error, store, rank=0, size=2, **changes):
    given = {"waited": 10.0, "position": RankPosition(1, 12), **changes}
    return lost_contact(RuntimeError(error), a_place(rank, size), store, **given).message


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("ckptdoctor.trainer.launch.contact.missing_ranks", lambda store, place: [1])


def test_the_sentence_of_a_survivor(quick):
    """It names who is missing, and says who says so and what happened to it."""
    assert a_sentence(TIMED_OUT, HashStore()) == (
        f"rank 1 has exited or hangs: rank 0 waited 10 s in epoch 1, step 12{GOES_ON}"
    )
    assert a_sentence(CLOSED, HashStore()) == (
        f"rank 1 has exited or hangs: rank 0 lost its connection in epoch 1, step 12{GOES_ON}"
    )


def test_several_are_missing(monkeypatch):
    """More than one missing rank makes a plural, none a sentence without a name."""
    monkeypatch.setattr("ckptdoctor.trainer.launch.contact.missing_ranks", lambda store, place: [1, 2, 3])
    assert a_sentence(TIMED_OUT, HashStore()).startswith("ranks 1, 2 and 3 have exited or hang: rank 0 waited 10 s")
    monkeypatch.setattr("ckptdoctor.trainer.launch.contact.missing_ranks", lambda store, place: [])
    assert a_sentence(CLOSED, HashStore()) == (
        f"the ranks lost contact with each other: rank 0 lost its connection in epoch 1, step 12{GOES_ON}"
    )


def test_under_the_launcher_nobody_is_asked():
    """The launcher sees its processes: it knows better, and at once."""
    own = a_place(0, 2, "file:///tmp/x")
    error = lost_contact(RuntimeError(CLOSED), own, HashStore(), 10.0, RankPosition(1, 12))
    assert error.message == (
        f"rank 0 lost its connection in epoch 1, step 12: another rank has exited or hangs{GOES_ON}"
    )
    assert isinstance(error, LostContactError) and is_lost_contact(error)


def test_ranks_that_never_met():
    """When not all came to the meeting place, the sentence says what to look at."""
    assert a_sentence("Timed out after 61 seconds waiting for clients. 1/2 clients joined.", None, waited=60.0) == (
        "rank 0 waited 60 s, and not all of the 2 ranks connected: start as many as the world size, with one "
        "MASTER_ADDR and MASTER_PORT that all can reach."
    )


def test_gathering_ends():
    """Waiting for a rank that does not come is losing contact."""
    with pytest.raises(RuntimeError) as caught:
        wait_for_all(HashStore(), "arrived", a_place(0, 2), 0.1)
    assert is_lost_contact(caught.value)
