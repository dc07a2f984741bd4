"""The reference model: the whole protocol in dictionaries, every rule in sight.

Nothing here is fast and nothing is clever. Other stores are right when they do what this one does.
No method awaits anything while it changes something, so every call is one moment.
"""

from detent.stores.memory.store import MemoryStore, connect

__all__ = ["MemoryStore", "connect"]
