"""Assignment sets against the plainest rule: an agent that applies all sets in order has what the store has."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from beeyard.core.model import AddressGrant, Task
from beeyard.core.states import TaskState
from beeyard.core.wire import AssignedTask, Assignments
from beeyard.manager.dispatch.assignments import AssignmentBook, assigned_task, is_news
from beeyard.manager.store import View
from beeyard.manager.store.view import Tables
from tests.support.builders import a_service, a_task

S = TaskState
NODE = "n1"


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
    book = AssignmentBook(view, NODE)
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
    return AssignmentBook(View(tables), NODE)


def test_first_set_is_complete_even_when_it_is_empty() -> None:
    """It tells an agent to stop everything."""
    assert a_book().take() == Assignments(complete=True, applies_to=0, results_in=1)


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
