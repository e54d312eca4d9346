"""The audits: a folder each, with its draw, judgement and result, which is its JSON. All of it runs on the host."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
