"""Everything that is other people's: their losses, risks, synthetic rows, second steps and models.

A rival is a part, a subclass of ``Rival``. All modules of this room are imported here, so that a new rival is one new
file, without an entry in any list.
"""

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ecrt.rivals.base import BaselineClassifier, Rival, known_rivals

__all__ = ["BaselineClassifier", "Rival", "known_rivals"]  # and every rival, by the name of its class

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
globals().update({_rival.__name__: _rival for _rival in known_rivals().values()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
