"""How tests are shared out among workers, and how workers tell what became of them.

The first run has 18,000 short tests. As xdist does both, it takes 23 seconds of CPU for that.
"""

from __future__ import annotations

from xdist.scheduler import LoadGroupScheduling

# What forks its processes from one that takes seconds to start (tests/trainer/forks.py). In the first run, which has
# enough for the other workers, one worker has all of these
FORKING = ("tests/trainer/", "tests/cli/test_train.py", "tests/formats/folders/test_dcp.py")

_OF_ONE_TEST = "of_one_test"
_HELD = ("logstart", "testreport", "logfinish")


class OneFileOneWorker(LoadGroupScheduling):
    """Hands out whole files, which share fixtures, and groups of files that share an import of gigabytes."""

    def __init__(self, config, log=None):
        super().__init__(config, log)
        self._first = config.args == config.getini("testpaths") and config.option.markexpr == "not slow"
        self._numbers = {}  # of each worker's tests, by their names

    def _split_scope(self, nodeid):
        scope = super()._split_scope(nodeid)
        if scope != nodeid:
            return scope
        return FORKING[0] if self._first and nodeid.startswith(FORKING) else nodeid.split("::", 1)[0]

    def _assign_work_unit(self, node):
        """Hand out the next file.

        xdist looks for each test from the start of the list of all, and after each counts again all that are done.
        """
        if node not in self._numbers:
            self._numbers[node] = {test: at for at, test in enumerate(self.registered_collections[node])}
        numbers, work = self._numbers[node], self.assigned_work[node]
        for file in [file for file, tests in work.items() if all(tests.values())]:
            del work[file]
        file, tests = self.workqueue.popitem(last=False)
        work[file] = tests
        node.send_runtest_some([numbers[test] for test, is_done in tests.items() if not is_done])


def tell_once_a_test(config):
    """Let a worker send what it says of a test when the test has ended, and not in six messages.

    Of what passed, nobody asks for the keywords; and that setting up and tearing down passed is news only to those who
    ask how long it took.
    """
    (worker,) = (each for each in config.pluginmanager.get_plugins() if type(each).__name__ == "WorkerInteractor")
    option = config.option
    asked = option.verbose >= 0 or option.durations is not None or getattr(option, "xmlpath", None) is not None
    send, held = worker.sendevent, []

    def sendevent(name, **said):
        if name == "testreport" and said["data"]["outcome"] == "passed":
            if said["data"]["when"] != "call" and not said["data"]["sections"] and not asked:
                return
            said["data"]["keywords"] = {}
        if name in _HELD:
            held.append((name, said))
        elif name == "runtest_protocol_complete":
            send(_OF_ONE_TEST, events=[*held, (name, said)])
            held.clear()
        else:
            for each, what in held:
                send(each, **what)
            held.clear()
            send(name, **said)

    worker.sendevent = sendevent


def hear_once_a_test(node):
    """Take such a message of a worker apart again."""
    hear = node.process_from_remote

    def process_from_remote(event):
        if isinstance(event, tuple) and event[0] == _OF_ONE_TEST:
            for each in event[1]["events"]:
                hear(each)
        else:
            hear(event)

    node.process_from_remote = process_from_remote
