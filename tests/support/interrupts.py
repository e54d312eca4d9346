"""An audit or a training that is stopped on its way, as by Ctrl-C."""

from collections.abc import Callable


def stop_after(share: float) -> Callable[[int, int], None]:
    """Progress that stops where more than this share of all is done."""

    def stop(done: int, total: int) -> None:
        if done > share * total:
            raise KeyboardInterrupt

    return stop
