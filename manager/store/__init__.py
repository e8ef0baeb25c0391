"""The manager's state: in memory for reading, in the database before anybody hears of it."""

from beeyard.manager.store.change import Change, Wake, Wakeups
from beeyard.manager.store.store import Store
from beeyard.manager.store.transaction import Transaction
from beeyard.manager.store.view import View

__all__ = ["Change", "Store", "Transaction", "View", "Wake", "Wakeups"]
