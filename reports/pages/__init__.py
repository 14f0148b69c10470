"""One page for each kind of record. A module here defines PAGE; a new one needs no other place."""
from functools import lru_cache
from importlib import import_module
from pkgutil import iter_modules

from reports.page import Page


@lru_cache(maxsize=None)
def pages() -> tuple[Page, ...]:
    """All pages, in the order in which a report shows them."""
    found = [import_module(f"{__name__}.{module.name}").PAGE for module in iter_modules(__path__)]
    return tuple(sorted(found, key=lambda page: page.place))
