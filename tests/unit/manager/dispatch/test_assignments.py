"""Assignment sets against the plainest rule: an agent that applies all sets in order has what the store has."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from beeyard.core.grant import AddressGrant
from beeyard.core.model import Task
from beeyard.core.states import TaskState
from beeyard.core.wire import FRAME_BYTES_MAX, AssignedTask, Assignments, encoder
from beeyard.manager.dispatch.assignments import (
    PART_BYTES,
    PART_REMOVED,
    TASK_BYTES_MAX,
    AssignmentBook,
    assigned_task,
    is_news,
)
from beeyard.manager.store import View
from beeyard.manager.store.view import Tables
from tests.support.builders import a_service, a_task, a_task_spec

S = TaskState
NODE = "n1"


def never_too_large(task_id: str, n_bytes: int) -> None:
    raise AssertionError(f"{task_id} of {n_bytes} bytes is called too large")


class ModelAgent:
    """Applies sets as the protocol says."""

    def __init__(self) -> None:
        self.tasks: dict[str, AssignedTask] = {}
        self.number = 0

    def apply(self, assignments: Assignments | None) -> None:
        if assignments is None:
            return
        if assignments.complete:
            self.tasks = {}
        else:
            assert assignments.applies_to == self.number
        assert assignments.results_in == self.number + 1
        self.number = assignments.results_in
        for task_id in assignments.removed:
            del self.tasks[task_id]
        self.tasks.update((task.id, task) for task in assignments.tasks)


operation = st.one_of(
    st.tuples(
        st.just("put"),
        st.integers(1, 4),
        st.sampled_from([S.PENDING, S.ASSIGNED, S.RUNNING, S.FAILED]),
        st.sampled_from([S.READY, S.RUNNING, S.SHUTDOWN, S.REMOVE]),
        st.sampled_from([NODE, NODE, "n2"]),
    ),
    st.tuples(st.just("remove"), st.integers(1, 4)),
    st.tuples(st.sampled_from(["take", "take", "resync", "drop service"])),
)


@given(st.lists(operation, max_size=40))
def test_agent_that_applies_all_sets_has_what_the_store_has(operations: list[tuple]) -> None:
    """Whatever happens between two sets, and whenever they are taken. Statuses alone need not be told."""
    tables, agent = Tables(), ModelAgent()
    tables.put(a_service())
    view = View(tables)
    book = AssignmentBook(view, NODE, never_too_large)
    for name, *arguments in operations:
        if name == "put":
            number, state, desired, node_id = arguments
            before = view.tasks.get(f"t{number}")
            if before is not None and before.node_id:
                node_id = before.node_id  # a task is placed once
                state = max(state, before.status.state)
            task = a_task(
                f"t{number}",
                state=state if node_id == NODE else S.ASSIGNED,
                desired_state=desired,
                node_id=node_id if state >= S.ASSIGNED else "",
            )
            old = tables.put(task)
            if is_news(old, task) and task.node_id == NODE:  # type: ignore[arg-type]
                book.touch(task.id)
        elif name == "remove" and f"t{arguments[0]}" in view.tasks:
            if tables.remove("task", f"t{arguments[0]}").node_id == NODE:  # type: ignore[union-attr]
                book.touch(f"t{arguments[0]}")
        elif name == "take":
            agent.apply(book.take())
        elif name == "resync":
            book.request_complete()
        elif name == "drop service" and "s1" in view.services:
            tables.remove("service", "s1")
    agent.apply(book.take())

    wanted = {t.id: t.desired_state for t in view.tasks_of_node(NODE) if t.status.state >= S.ASSIGNED}
    assert {t.id: t.desired_state for t in agent.tasks.values()} == wanted
    assert book.take() is None


def a_book(*tasks: Task) -> AssignmentBook:
    tables = Tables()
    tables.put(a_service())
    for task in tasks:
        tables.put(task)
    return AssignmentBook(View(tables), NODE, never_too_large)


def test_first_set_is_complete_even_when_it_is_empty() -> None:
    """It tells an agent to stop everything."""
    assert a_book().take() == Assignments(complete=True, applies_to=0, results_in=1)


def a_large_task(number: int, n_bytes: int) -> Task:
    return a_task(f"t{number}", slot=number, state=S.ASSIGNED, node_id=NODE, spec=a_task_spec(args=["x" * n_bytes]))


def all_parts(book: AssignmentBook) -> list[Assignments]:
    """Every part of the set that is due."""
    parts = []
    while (part := book.take()) is not None:
        parts.append(part)
        if not part.more:
            break
    assert not book.unfinished
    return parts


def test_large_set_goes_in_parts_of_bounded_size_that_name_each_task_once() -> None:
    """All parts but the last say that there is more, and all say which set they are of."""
    parts = all_parts(a_book(*(a_large_task(number, 300_000) for number in range(10))))
    assert [part.more for part in parts] == [True, True, True, False]
    assert {(p.complete, p.applies_to, p.results_in) for p in parts} == {(True, 0, 1)}
    assert [task.id for part in parts for task in part.tasks] == [f"t{number}" for number in range(10)]
    assert all(len(encoder.encode(part)) <= PART_BYTES + 100 for part in parts)


def test_task_larger_than_a_part_has_one_to_itself() -> None:
    """It may be as large as half a frame."""
    parts = all_parts(a_book(a_large_task(1, 10), a_large_task(2, TASK_BYTES_MAX - 1000), a_large_task(3, 10)))
    assert [[task.id for task in part.tasks] for part in parts] == [["t1"], ["t2"], ["t3"]]
    assert all(len(encoder.encode(part)) < FRAME_BYTES_MAX for part in parts)


def test_task_too_large_for_any_part_is_left_out_and_told() -> None:
    """The others are sent, and its removal is nothing to an agent that never heard of it."""
    tables = Tables()
    tables.put(a_service())
    tables.put(a_large_task(1, 10))
    tables.put(a_large_task(2, TASK_BYTES_MAX))
    told: list[tuple[str, int]] = []
    book = AssignmentBook(View(tables), NODE, lambda task_id, n_bytes: told.append((task_id, n_bytes)))
    assert [task.id for part in all_parts(book) for task in part.tasks] == ["t1"]
    [(task_id, n_bytes)] = told
    assert task_id == "t2"
    assert n_bytes > TASK_BYTES_MAX
    tables.remove("task", "t2")
    book.touch("t2")
    assert book.take() is None


def test_many_removals_go_in_parts_and_what_changes_meanwhile_is_the_next_set() -> None:
    """A set that was begun is finished first."""
    n_tasks = PART_REMOVED + 1
    tables = Tables()
    tables.put(a_service())
    for number in range(n_tasks):
        tables.put(a_task(f"t{number}", slot=number, state=S.ASSIGNED, node_id=NODE))
    book = AssignmentBook(View(tables), NODE, never_too_large)
    all_parts(book)
    for number in range(n_tasks):
        tables.remove("task", f"t{number}")
        book.touch(f"t{number}")
    first = book.take()
    assert first is not None
    tables.put(a_task("new", state=S.ASSIGNED, node_id=NODE))
    book.touch("new")
    book.request_complete()
    second = book.take()
    assert second is not None
    assert [(len(p.removed), p.tasks, p.more, p.applies_to, p.results_in) for p in (first, second)] == [
        (PART_REMOVED, (), True, 1, 2),
        (1, (), False, 1, 2),
    ]
    complete = book.take()
    assert complete is not None
    assert (complete.complete, [task.id for task in complete.tasks]) == (True, ["new"])


def test_what_is_news_to_an_agent() -> None:
    """Everything but a status that moves on."""
    waits = a_task(state=S.PENDING)
    placed = a_task(state=S.ASSIGNED, node_id=NODE)
    runs = a_task(state=S.RUNNING, node_id=NODE)
    stops = msgspec.structs.replace(runs, desired_state=S.SHUTDOWN)
    assert is_news(None, placed)
    assert is_news(waits, placed)
    assert not is_news(placed, runs)
    assert is_news(runs, stops)
    assert is_news(stops, None)


def test_task_is_told_whole() -> None:
    """Nothing of what an agent needs is left out."""
    grant = AddressGrant(
        id="g",
        hook="address",
        network_id="n",
        network_name="lan",
        pool_id="p",
        pool_name="lan-r1",
        segment="s",
        driver="macvlan",
    )
    task = msgspec.structs.replace(a_task(state=S.RUNNING, node_id=NODE, slot=3), grants=(grant,))
    assert assigned_task(task, {"s1": a_service(labels={"a": "b"})}, None) == AssignedTask(
        id="t1",
        service_id="s1",
        service_name="web",
        slot=3,
        spec=task.spec,
        desired_state=S.RUNNING,
        grants=(grant,),
        state=S.RUNNING,
        lease_s=86400.0,
        fence=False,
        service_labels={"a": "b"},
    )
